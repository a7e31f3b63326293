#include "cli/optimized_diff.h"

#include <utility>

#include "driver/bisect.h"

namespace optc::cli {

LoweredGraph lower_if_possible(const Graph &graph, const CompileOptions &options, Listener &listener) {
  LoweredGraph lowered;
  Diagnostics ignored;
  Result<Program> program = lower_reported(graph, options, listener, ignored, false, lowered.report);
  if (program.ok()) lowered.program = std::move(*program);
  return lowered;
}

GraphDiff diff_optimized(const Graph &before, const Optimized &optimized, const LoweredGraph &lowered) {
  GraphDiff diff = diff_by_origin(before, optimized.graph, optimized.records);
  if (lowered.program) name_kernels(diff, optimized.graph, *lowered.program);
  return diff;
}

PageFacts facts_of_page(const Optimized &optimized, const LoweredGraph &lowered) {
  PageFacts facts;
  facts.rewrites = &optimized.records;
  if (!lowered.program) return facts;
  facts.lowering = &lowered.report.steps;
  facts.program = &*lowered.program;
  return facts;
}

}  // namespace optc::cli
