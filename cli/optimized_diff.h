#pragma once
// What optc makes of a model, as a difference and as what its page tells (`diff A`, `opt`).

#include <optional>

#include "driver/toolchain.h"
#include "emit/report/diff.h"
#include "lowering/lower.h"

namespace optc::cli {

// A Graph lowered for the CPU, as a bundle is made of it; no Program where that fails: a model need not be one that
// optc can compile.
struct LoweredGraph {
  std::optional<Program> program;
  LoweringReport report;
};
LoweredGraph lower_if_possible(const Graph &graph, const CompileOptions &options, Listener &listener);
// What optimize_model made of `before`, with the rules and with the kernels of `lowered`, which was made of the same
// Graph (of `optimized` itself, or of what a bundle is made of).
GraphDiff diff_optimized(const Graph &before, const Optimized &optimized, const LoweredGraph &lowered);
// What the page of such a difference shows of how it came about. Keeps addresses of both.
PageFacts facts_of_page(const Optimized &optimized, const LoweredGraph &lowered);

}  // namespace optc::cli
