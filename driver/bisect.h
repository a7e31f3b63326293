#pragma once
// Which step made a result wrong: all steps between a model and its Program in one list, rewrites of the Graph first
// and lowering's after them, counted by CompileOptions::stop_after_rewrites.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "driver/toolchain.h"
#include "lowering/lower.h"

namespace optc {

struct CompileStep {
  std::string name;   // of the rule, or of the step of lowering (lowering/steps.h)
  std::string where;  // the node, kernel or buffer
  bool lowering = false;
};

// What these options make of `model`, for the GPU where they have targets of one; also where the verifier refuses the
// Program that comes of it, and up to the rewrite that ends in an error.
Result<std::vector<CompileStep>> list_steps(const Graph &model, const CompileOptions &options, Listener &listener,
                                            Diagnostics &diagnostics);

// The number, from 1, of the first step with which `agrees` turns false: agrees(count) says whether the result of the
// first `count` steps is right. It is true for 0 and false for `count` here, and asked about log2(count) times.
Result<int64_t> first_wrong_step(int64_t count, const std::function<Result<bool>(int64_t)> &agrees);

// lower_model, with lowering's own report.
Result<Program> lower_reported(const Graph &graph, const CompileOptions &options, Listener &listener,
                               Diagnostics &diagnostics, bool gpu, LoweringReport &report);
// The options for lowering what `optimized` is: of the steps that are allowed, the rewrites have been made.
CompileOptions after_rewrites(CompileOptions options, const Optimized &optimized);

}  // namespace optc
