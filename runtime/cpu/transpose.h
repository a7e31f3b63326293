// transpose.h: matrices of float transposed by square tiles in registers. Included inside an instruction-set namespace
// (foreach_isa.h).
#ifndef OPTC_CPU_TRANSPOSE_H
#define OPTC_CPU_TRANSPOSE_H
#include "runtime/cpu/gemm_plan.h"
#include "runtime/cpu/simd.h"

// One step of a tile's transposition: in blocks of 2 S x 2 S, the S x S block above right is exchanged with that below
// left (Eklundh, "A Fast Computer Method for Matrix Transposing", 1972).
template <int S>
OPTC_INLINE void transpose_step(vf (&v)[OPTC_VW]) {
#if !defined(__clang__)
  vi upper = {}, lower = {};
  OPTC_UNROLL for (int j = 0; j < OPTC_VW; ++j) {
    upper[j] = (j & S) != 0 ? OPTC_VW + j - S : j;
    lower[j] = (j & S) != 0 ? OPTC_VW + j : j + S;
  }
#endif
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) {
    if ((i & S) == 0) {
      const vf a = v[i], b = v[i + S];
#if defined(__clang__)  // which makes shuffles of these itself
      OPTC_UNROLL for (int j = 0; j < OPTC_VW; ++j) {
        v[i][j] = (j & S) != 0 ? b[j & ~S] : a[j];
        v[i + S][j] = (j & S) != 0 ? b[j] : a[j | S];
      }
#else
      v[i] = __builtin_shuffle(a, b, upper);
      v[i + S] = __builtin_shuffle(a, b, lower);
#endif
    }
  }
}

// out[c * out_row + r] = in[r * in_row + c] for r < rows, c < columns, both at most OPTC_VW.
OPTC_INLINE void transpose_tile(const float *in, int64_t in_row, float *out, int64_t out_row, int rows, int columns) {
  vf v[OPTC_VW];
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) v[i] = i < rows ? load_n(in + i * in_row, columns) : vf{};
  transpose_step<1>(v);
  transpose_step<2>(v);
#if OPTC_VW >= 8
  transpose_step<4>(v);
#endif
#if OPTC_VW >= 16
  transpose_step<8>(v);
#endif
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) {
    if (i < columns) store_n(out + i * out_row, v[i], rows);
  }
}

// The same for any number of rows and columns.
static OPTC_KERNEL void transpose(const float *in, int64_t in_row, float *out, int64_t out_row, int64_t rows,
                                  int64_t columns) {
  for (int64_t r = 0; r < rows; r += OPTC_VW)
    for (int64_t c = 0; c < columns; c += OPTC_VW)
      transpose_tile(in + r * in_row + c, in_row, out + c * out_row + r, out_row,
                     static_cast<int>(optc_clamp(rows - r, 0, OPTC_VW)),
                     static_cast<int>(optc_clamp(columns - c, 0, OPTC_VW)));
}
#endif  // OPTC_CPU_TRANSPOSE_H
