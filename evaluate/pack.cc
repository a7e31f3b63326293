#include "evaluate/pack.h"

#include <vector>

#include "runtime/cpu/gemm_plan.h"

namespace optc {

Constant pack_gemm(const Constant &b, int64_t offset, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride) {
  const int64_t floats = optc_gemm_packed_floats(n, k);
  std::vector<uint8_t> bytes(static_cast<size_t>(floats) * 4);
  optc_pack_b(reinterpret_cast<float *>(bytes.data()), b.as<float>() + offset, k, n, row_stride, column_stride);
  return Constant::owned(ElementType::kFloat32, {floats}, std::move(bytes));
}

}  // namespace optc
