#pragma once
// A graph's text as the Program of its operators and as the lowered one, and the check that both compute the same.
// Both run on the evaluator, without the runtime's kernels: the loop nests are what is tested.

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph/text.h"
#include "lowering/lower.h"
#include "ops/build.h"
#include "ops/registry.h"
#include "tests/same_results.h"

namespace optc {

struct Lowered {
  LoweringReport report;
  Program plain, program;
  std::string text;  // of the lowered Program; empty when a step failed, which is a failure of the test
};

inline Lowered lower_text(const std::string &text, const LoweringOptions &options) {
  Lowered result;
  Diagnostics diagnostics;
  Result<Graph> graph = parse_graph(text, diagnostics);
  EXPECT_TRUE(graph.ok()) << said(diagnostics);
  if (!graph.ok()) return result;
  EXPECT_TRUE(infer_graph(*graph, diagnostics).ok()) << said(diagnostics);
  Result<Program> plain = build_program(*graph, diagnostics);
  Result<Program> lowered = lower(*graph, options, result.report, diagnostics);
  EXPECT_TRUE(plain.ok() && lowered.ok()) << said(diagnostics);
  if (!plain.ok() || !lowered.ok()) return result;
  result.text = print(*lowered);
  result.plain = std::move(*plain);
  result.program = std::move(*lowered);
  return result;
}

// Both Programs on random inputs of these sizes, within `tolerance` of each output's largest magnitude.
inline void expect_same_results(const Lowered &lowered, const DimValues &sizes, double tolerance) {
  if (lowered.text.empty()) return;
  std::mt19937 random(3);
  const std::vector<RuntimeValue> inputs = random_inputs(lowered.plain, sizes, random);
  EvaluateOptions options;
  options.use_runtime_kernels = false;
  Diagnostics diagnostics;
  const auto want = evaluate(lowered.plain, inputs, options, diagnostics);
  options.as_lowered = true;
  const auto got = evaluate(lowered.program, inputs, options, diagnostics);
  EXPECT_TRUE(want.ok() && got.ok()) << said(diagnostics) << lowered.text;
  if (!want.ok() || !got.ok()) return;
  for (size_t o = 0; o < want->size(); ++o)
    EXPECT_LE(relative_difference((*want)[o].tensor, (*got)[o].tensor), tolerance) << "output " << o << "\n"
                                                                                   << lowered.text;
}

}  // namespace optc
