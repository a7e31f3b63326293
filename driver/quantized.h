#pragma once
// Quantized models: a sum in another order moves single values to the next step of their grid, which the layers behind
// multiply. How many did is what tells such a difference from a fault.

#include <cstdint>
#include <string>
#include <vector>

#include "driver/toolchain.h"

namespace optc {

struct CrossedSteps {
  int64_t values = 0;      // that QuantizeLinear and DynamicQuantizeLinear make, constants aside
  int64_t crossed = 0;     // of them, those that differ from ONNX Runtime's
  int64_t by_more = 0;     // by more than one step
  std::string first;       // the first tensor, in order of execution, with one that differs
  std::string uncompared;  // why nothing was compared; empty: it was
};
std::string describe(const CrossedSteps &steps);

bool is_quantized(const Graph &graph);
// Runs the model with its quantized tensors as further outputs, by ONNX Runtime without optimizations and, rewritten
// and lowered by `options`, on the evaluator.
CrossedSteps crossed_steps(const Graph &graph, const std::vector<RuntimeValue> &inputs, const CompileOptions &options,
                           Listener &listener);

}  // namespace optc
