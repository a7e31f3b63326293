#pragma once
// What the vector lanes of a CPU hold and compute (runtime/cpu/simd.h, math.h): asked by whoever decides whether a loop
// runs in lanes, and by the printer that spells it.

#include "ir/program/scalar.h"

namespace optc {

// What holds the lanes of a type: float vectors, double vectors (as many lanes, in two registers), int32 vectors,
// masks; kNone: only scalar code can.
enum class LaneClass { kNone, kFloat, kDouble, kInt, kMask };
LaneClass lane_class(ElementType type);

// Whether `node` (with operands of `operand` type) can be computed in lanes.
bool lanes_support(const Scalar &node, ElementType operand);

}  // namespace optc
