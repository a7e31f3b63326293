#pragma once
// States (ir/program/state.h): inputs and outputs that are one memory of the caller.
//
// Bound behind fusion, when it is settled which kernel reads and writes what. An input of which nothing is read after
// it was replaced is read where it lies, and what kernels would copy of it into the output is left out (the step
// state.in_place). Any other is copied before the first kernel; then nothing else changes.
//
// An output that is longer than its input along an axis must be an append: it begins with the input, unchanged. What
// reads such a cache by a shape that cannot have its strides gets a copy, which is reported.

#include <string>
#include <vector>

#include "ir/program/program.h"
#include "lowering/lower.h"

namespace optc {

// kUsage where a pair is no state: other types, dims that differ along two axes. kUnsupported where the output is no
// append of the input.
Status bind_states(Program &program, const LoweringOptions &options, Steps &steps, std::vector<StateReport> &report,
                   Diagnostics &diagnostics);

}  // namespace optc
