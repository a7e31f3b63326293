// gemm_types.h: matrix products of double. Included inside an instruction-set namespace (foreach_isa.h).
#ifndef OPTC_CPU_GEMM_TYPES_H
#define OPTC_CPU_GEMM_TYPES_H
#include "runtime/cpu/gemm_plan.h"
#include "runtime/cpu/wide.h"

// C[m0..m1)[n0..n1) = A B; B[k][n] at b[k * row_stride + n * column_stride]. Order of summation: k
// ascending. Vectors of columns where B's columns are contiguous, else of four sums along k.
template <int MR>
OPTC_INLINE void gemm_f64_rows(const double *a, int64_t lda, const double *b, int64_t row_stride, int64_t k, int64_t n0,
                               int64_t n1, double *c, int64_t ldc) {
  for (int64_t n = n0; n < n1; n += OPTC_VW) {
    const int lanes = int(optc_clamp(n1 - n, 0, OPTC_VW));
    vd acc[MR];
    OPTC_UNROLL for (int i = 0; i < MR; ++i) acc[i] = splat_d(0);
    for (int64_t x = 0; x < k; ++x) {
      const vd v = lanes == OPTC_VW ? load(b + x * row_stride + n) : load_n(b + x * row_stride + n, lanes);
      OPTC_UNROLL for (int i = 0; i < MR; ++i) acc[i] = fma(splat_d(a[i * lda + x]), v, acc[i]);
    }
    OPTC_UNROLL for (int i = 0; i < MR; ++i) store_n(c + i * ldc + n, acc[i], lanes);
  }
}
static OPTC_KERNEL void gemm_f64(int64_t m0, int64_t m1, int64_t n0, int64_t n1, int64_t k, const double *a,
                                 int64_t lda, const double *b, int64_t row_stride, int64_t column_stride, double *c,
                                 int64_t ldc) {
  int64_t i = m0;
  if (column_stride == 1) {
    for (; i + 4 <= m1; i += 4) gemm_f64_rows<4>(a + i * lda, lda, b, row_stride, k, n0, n1, c + i * ldc, ldc);
    for (; i < m1; ++i) gemm_f64_rows<1>(a + i * lda, lda, b, row_stride, k, n0, n1, c + i * ldc, ldc);
    return;
  }
  for (; i < m1; ++i)
    for (int64_t n = n0; n < n1; ++n) {
      double s[4] = {};
      int64_t x = 0;
      for (; x + 4 <= k; x += 4)
        for (int u = 0; u < 4; ++u) s[u] += a[i * lda + x + u] * b[(x + u) * row_stride + n * column_stride];
      for (; x < k; ++x) s[0] += a[i * lda + x] * b[x * row_stride + n * column_stride];
      c[i * ldc + n] = (s[0] + s[1]) + (s[2] + s[3]);
    }
}
#endif  // OPTC_CPU_GEMM_TYPES_H
