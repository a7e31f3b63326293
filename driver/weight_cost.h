#pragma once
// --quantize-weights: the weights of products become 8 or 4 bits wide (optimizer/weight_quantization.h), and what that
// costs is measured as storage_cost.h measures 16 bits.

#include "driver/storage_cost.h"
#include "driver/toolchain.h"

namespace optc {

// Of an output's range, what a quantized weight alone may change on the samples. Four bits leave a number its first
// digit, so their bound is wider; beside weights in 8 bits, activations in 8 bits add as much again.
constexpr double bound_of(const WeightFormat &format) {
  return format.bits == 4 ? 0.2 : format.activations ? 2 * kStorageBound : kStorageBound;
}

// Rounds the weights of products in `graph` to options.weights.format, but for those that options.weights.keep names
// and those whose rounding costs too much. The listener hears how many, their bytes before and after and the cost on
// the samples; with details, each weight.
// `settled` (may be null) gets the names of all that stayed, so that the next call measures nothing.
// kUsage where a name of `keep` is of no such weight, or the folder of samples does not suit.
Status quantize_weights(Graph &graph, const CompileOptions &options, Listener &listener, Diagnostics &diagnostics,
                        WeightQuantization *settled);

}  // namespace optc
