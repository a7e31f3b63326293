#pragma once
// Weights laid out for their kernels, with the packing functions of runtime/cpu (the layouts are documented there).

#include <cstdint>

#include "ir/constant.h"

namespace optc {

// B[k][n] at element offset + k * row_stride + n * column_stride of an f32 constant, in the panels of runtime/cpu/gemm_plan.h.
Constant pack_gemm(const Constant &b, int64_t offset, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride);

}  // namespace optc
