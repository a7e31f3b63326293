#pragma once
// Quantized numbers.

#include "ops/build.h"

namespace optc {

// Adds the zero point (compute type of `to`, or invalid: 0) to a rounded real and saturates at the range of `to`; the
// result is stored as `to`. Real numbers beyond int32 saturate too; NaN gives 0.
Expr quantize_rounded(Expr rounded, Expr zero_point, ElementType to, bool saturate);

}  // namespace optc
