// gemm_types.h: matrix products of double, and of 8-bit integers into int32. Included inside an instruction-set
// namespace (foreach_isa.h).
#ifndef OPTC_CPU_GEMM_TYPES_H
#define OPTC_CPU_GEMM_TYPES_H
#include "runtime/cpu/gemm_plan.h"
#include "runtime/cpu/wide.h"

// --- double. C[m0..m1)[n0..n1) = A B; B[k][n] at b[k * row_stride + n * column_stride]. Order of summation: k
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

// --- 8-bit integers (signed or unsigned, each side with a zero point) into int32, exactly. B is packed as pairs of
// int16 with its zero point subtracted: [ceil(n / 32)][ceil(k / 2)][32][2], zeros beyond; two products and their sum
// are one instruction on x86 (pmaddwd).
constexpr int kI8Columns = 32;
constexpr int64_t gemm_i8_packed_size(int64_t n, int64_t k) {
  return optc_round_up(n, kI8Columns) * optc_round_up(k, 2);
}
// B[k][n] at b[k * row_stride + n * column_stride]; zero: one a column, or null.
template <class T>
static OPTC_KERNEL void gemm_i8_pack(const T *b, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride,
                                     const int32_t *zero, int16_t *out) {
  for (int64_t n0 = 0; n0 < n; n0 += kI8Columns)
    for (int64_t x = 0; x < k; x += 2)
      for (int64_t j = n0; j < n0 + kI8Columns; ++j)
        for (int64_t u = x; u < x + 2; ++u)
          *out++ = int16_t(j < n && u < k ? b[u * row_stride + j * column_stride] - (zero ? zero[j] : 0) : 0);
}

// acc + a pair of products in each int32 lane.
OPTC_INLINE vi madd_i16(vi a, vi b, vi acc) {
#if OPTC_VW == 16
  return acc + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif OPTC_VW == 8
  return acc + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif OPTC_X86
  return acc + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  return acc + (((a << 16) >> 16) * ((b << 16) >> 16)) + (a >> 16) * (b >> 16);
#endif
}

template <int MR, class Sink>
OPTC_INLINE void gemm_i8_tile(const int16_t *a, int64_t k2, const int16_t *panel, int64_t row, int64_t column,
                              int64_t n, const Sink &sink) {
  constexpr int NV = kI8Columns / OPTC_VW > 4 ? 4 : kI8Columns / OPTC_VW;  // vectors at a time
  for (int j0 = 0; j0 < kI8Columns / OPTC_VW && column + j0 * OPTC_VW < n; j0 += NV) {
    vi acc[MR][NV];
    OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = vi{};
    for (int64_t x = 0; x < k2; ++x) {
      vi v[NV];
      OPTC_UNROLL for (int j = 0; j < NV; ++j) v[j] =
          load((const int32_t *)(panel + (x * kI8Columns + (j0 + j) * OPTC_VW) * 2));
      OPTC_UNROLL for (int i = 0; i < MR; ++i) {
        int32_t pair;
        memcpy(&pair, a + (i * k2 + x) * 2, 4);
        OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = madd_i16(splat_i(pair), v[j], acc[i][j]);
      }
    }
    OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) {
      const int64_t at = column + (j0 + j) * OPTC_VW;
      if (at < n) sink(acc[i][j], row + i, at, int(optc_clamp(n - at, 0, OPTC_VW)));
    }
  }
}

// Rows [m0, m1), panels [p0, p1) of 32 columns. scratch: 4 * (k + 1) int16. a_zero: one for all rows (a_zero_step 0) or
// one a row (1); null: 0. sink(vi sum, row, column, lanes).
template <class T, class Sink>
static OPTC_KERNEL void gemm_i8(int64_t m0, int64_t m1, int64_t p0, int64_t p1, int64_t n, int64_t k, const T *a,
                                int64_t lda, const int32_t *a_zero, int64_t a_zero_step, const int16_t *packed,
                                int16_t *scratch, const Sink &sink) {
  constexpr int MR = OPTC_VW == 4 && !OPTC_NEON ? 2 : 4;
  const int64_t k2 = optc_ceil_div(k, 2);
  for (int64_t m = m0; m < m1; m += MR) {
    const int64_t rows = optc_clamp(m1 - m, 0, MR);
    for (int64_t i = 0; i < rows; ++i) {
      const int32_t zero = a_zero ? a_zero[(m + i) * a_zero_step] : 0;
      for (int64_t x = 0; x < k; ++x) scratch[i * k2 * 2 + x] = int16_t(a[(m + i) * lda + x] - zero);
      if (k % 2) scratch[i * k2 * 2 + k] = 0;
    }
    for (int64_t p = p0; p < p1; ++p) {
      const int16_t *panel = packed + p * k2 * 2 * kI8Columns;
      if (rows == MR) {
        gemm_i8_tile<MR>(scratch, k2, panel, m, p * kI8Columns, n, sink);
      } else {
        for (int64_t i = 0; i < rows; ++i)
          gemm_i8_tile<1>(scratch + i * k2 * 2, k2, panel, m + i, p * kI8Columns, n, sink);
      }
    }
  }
}
#endif  // OPTC_CPU_GEMM_TYPES_H
