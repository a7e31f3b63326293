#pragma once
// Row scratch of the strategies whose plans lie in runtime/cpu/*_plan.h, as dims: what the manifest says of it. The
// bundle itself asks the plan; tests/python/test_arena.py holds the two together.

#include "ir/dim/dim.h"
#include "ir/program/program.h"

namespace optc {

// Bytes for one task. `height` and `width` are the input's; the rest stands in the strategy's parameters.
Dim direct_scratch_bytes(const Strategy &strategy, Dim height, Dim width);
Dim winograd_scratch_bytes(const Strategy &strategy, int64_t m, Dim batch, Dim height, Dim width);
// Where the number of queries is not constant: the larger of the two forms that the plan chooses from.
Dim attention_scratch_bytes(Dim queries, Dim keys, Dim width, Dim value_width);

}  // namespace optc
