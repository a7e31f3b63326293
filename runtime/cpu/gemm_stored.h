// gemm_stored.h: products of operands that are stored in 16 bits, in float, or whose rows do not run along k, in float
// or double. Included inside an instruction-set namespace (foreach_isa.h).
//
// A block of A's rows and a panel of B are widened where they are laid out for the tiles of gemm.h; all sums are those
// of gemm.h on the widened operands, in its order.
#ifndef OPTC_CPU_GEMM_STORED_H
#define OPTC_CPU_GEMM_STORED_H
#include "runtime/cpu/gemm.h"

// How elements are stored: loads of a vector, of its first n lanes. `sum`: what they are multiplied in.
struct StoredF32 {
  typedef float type, sum;
  OPTC_INLINE vf load(const float *p) { return OPTC_ISA::load(p); }
  OPTC_INLINE vf load_n(const float *p, int n) { return OPTC_ISA::load_n(p, n); }
};
struct StoredF16 {
  typedef uint16_t type;
  typedef float sum;
  OPTC_INLINE vf load(const uint16_t *p) { return load_f16(p); }
  OPTC_INLINE vf load_n(const uint16_t *p, int n) { return load_f16_n(p, n); }
};
struct StoredBF16 {
  typedef uint16_t type;
  typedef float sum;
  OPTC_INLINE vf load(const uint16_t *p) { return load_bf16(p); }
  OPTC_INLINE vf load_n(const uint16_t *p, int n) { return load_bf16_n(p, n); }
};

struct StoredF64 {
  typedef double type, sum;
  OPTC_INLINE vd load(const double *p) { return OPTC_ISA::load(p); }
  OPTC_INLINE vd load_n(const double *p, int n) { return OPTC_ISA::load_n(p, n); }
};

// out[i * ld + j] = p[i * row_stride + j * column_stride] for rows x columns, zeros up to `width` columns (a multiple
// of 16, at most 64 beyond `columns`).
template <class S>
static OPTC_KERNEL void widen_block(typename S::sum *out, int64_t ld, const typename S::type *p, int64_t rows,
                                    int64_t columns, int64_t width, int64_t row_stride, int64_t column_stride) {
  if (column_stride == 1) {
    for (int64_t i = 0; i < rows; ++i) {
      const typename S::type *row = p + i * row_stride;
      int64_t j = 0;
      for (; j + OPTC_VW <= columns; j += OPTC_VW) store(out + i * ld + j, S::load(row + j));
      for (; j < width; j += OPTC_VW)
        store_n(out + i * ld + j, S::load_n(row + j, (int)optc_clamp(columns - j, 0, OPTC_VW)),
                (int)optc_clamp(width - j, 0, OPTC_VW));
    }
    return;
  }
  // Vectors down the columns, eight side by side, so that both sides stay in cache lines.
  for (int64_t i = 0; i < rows; i += OPTC_VW) {
    const int lanes = (int)optc_clamp(rows - i, 0, OPTC_VW);
    for (int64_t j0 = 0; j0 < width; j0 += 8) {
      typename S::sum block[8][OPTC_VW];
      for (int j = 0; j < 8; ++j) {
        Lanes<typename S::sum> column{};
        if (j0 + j < columns) {
          const typename S::type *from = p + i * row_stride + (j0 + j) * column_stride;
          if (row_stride == 1) {
            column = lanes == OPTC_VW ? S::load(from) : S::load_n(from, lanes);
          } else {
            typename S::type elements[OPTC_VW] = {};
            for (int u = 0; u < lanes; ++u) elements[u] = from[u * row_stride];
            column = S::load(elements);
          }
        }
        store(block[j], column);
      }
      for (int u = 0; u < lanes; ++u) OPTC_UNROLL for (int j = 0; j < 8; ++j) out[(i + u) * ld + j0 + j] = block[j][u];
    }
  }
}

// A[i][k] at p + i * row + k * inner.
template <class S>
struct StoredRows {
  const typename S::type *p;
  int64_t row, inner;
};
// B: packed as optc_pack_b does, in its own type; or B[k][n] at p + k * inner + n * column.
template <class S>
struct StoredColumns {
  const typename S::type *p;
  bool packed;
  int64_t inner, column;
};

// Of few rows the weights are what is read: they are widened in registers. The sums of [row, row + MR) x `columns` of a
// panel over k products, as gemm_tile adds them. a: [MR][lda]; b: the panel, `nr` elements from one k to the next.
template <class B, int MR, int NV, class T = typename B::sum>
static OPTC_KERNEL void gemm_stored_tile(const T *a, int64_t lda, const typename B::type *b, const GemmPanelOf<T> &p,
                                         int64_t row, int64_t at, const TileSinkOf<T> &sink) {
  typedef Lanes<T> V;
  constexpr int kColumns = NV * OPTC_VW, KU = MR == 1 ? 4 : 2;
  const int64_t columns = optc_clamp(p.n1 - p.n - at, 0, kColumns);
  T sums[MR][kColumns];
  V acc[MR][NV], part[KU][MR][NV];
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = V{};
  if (!p.first) {
    for (int i = 0; i < MR; ++i) memcpy(sums[i], p.partial + (row + i) * p.ldp + p.n + at, sizeof(T) * (size_t)columns);
    OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] =
        load(&sums[i][j * OPTC_VW]);
  }
  OPTC_UNROLL for (int u = 0; u < KU; ++u) OPTC_UNROLL for (int i = 0; i < MR; ++i)
      OPTC_UNROLL for (int j = 0; j < NV; ++j) part[u][i][j] = V{};
  int64_t k = p.k;
  for (b += at; k >= KU; k -= KU, a += KU) {
    OPTC_UNROLL for (int u = 0; u < KU; ++u, b += p.nr) {
      OPTC_UNROLL for (int j = 0; j < NV * OPTC_VW; j += 64 / int(sizeof(*b)))
          __builtin_prefetch((const char *)(b + j) + 1024, 0, 3);
      V v[NV];
      OPTC_UNROLL for (int j = 0; j < NV; ++j) v[j] = B::load(b + j * OPTC_VW);
      OPTC_UNROLL for (int i = 0; i < MR; ++i) {
        const V s = broadcast(a[i * lda + u]);
        OPTC_UNROLL for (int j = 0; j < NV; ++j) part[u][i][j] = fma(s, v[j], part[u][i][j]);
      }
    }
  }
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) {
    V s = part[0][i][j] + part[1][i][j];
    if (KU == 4) s = s + (part[KU - 2][i][j] + part[KU - 1][i][j]);
    acc[i][j] = acc[i][j] + s;
  }
  for (; k > 0; --k, ++a, b += p.nr) {
    OPTC_UNROLL for (int j = 0; j < NV; ++j) {
      const V v = B::load(b + j * OPTC_VW);
      OPTC_UNROLL for (int i = 0; i < MR; ++i) acc[i][j] = fma(broadcast(a[i * lda]), v, acc[i][j]);
    }
  }
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j)
      store(&sums[i][j * OPTC_VW], acc[i][j]);
  if (p.last) return sink(&sums[0][0], kColumns, row, p.n + at, MR, columns);
  for (int i = 0; i < MR; ++i) memcpy(p.partial + (row + i) * p.ldp + p.n + at, sums[i], sizeof(T) * (size_t)columns);
}
template <class B, int MR, class T = typename B::sum>
static OPTC_KERNEL void gemm_stored_panel(const T *a, int64_t lda, const typename B::type *b, const GemmPanelOf<T> &p,
                                          int64_t row, const TileSinkOf<T> &sink) {
  constexpr int kWide = (OPTC_VW == 16 ? 16 : 8) / sizeof(T);  // as many as the registers hold
  int64_t at = 0;
  for (; at + kWide * OPTC_VW <= p.nr && p.n + at < p.n1; at += kWide * OPTC_VW)
    gemm_stored_tile<B, MR, kWide>(a, lda, b, p, row, at, sink);
  for (; at < p.nr && p.n + at < p.n1; at += OPTC_VW) gemm_stored_tile<B, MR, 1>(a, lda, b, p, row, at, sink);
}

// Task t of the plan. `partial` as in gemm(), or null: in the scratch (optc_gemm_stored_floats).
template <class A, class B, class T = typename A::sum>
static OPTC_KERNEL void gemm_stored(const OptcGemm &g, int64_t t, const StoredRows<A> &a, const StoredColumns<B> &b,
                                    GemmElement<T> *partial, int64_t ldp, GemmElement<T> *scratch,
                                    const TileSinkOf<T> &sink) {
  const OptcGemmTask task = optc_gemm_task(g, t);
  if (g.k == 0) return gemm_zeros(task, sink);
  const int64_t rows = task.m1 - task.m0, ld = optc_round_up(g.kc, 16);
  if (rows <= 0) return;
  T *staged = scratch + kOptcGemmPanelFloats * 4 / int64_t(sizeof(T));
  if (!partial) {
    ldp = task.n1 - task.n0;
    partial = staged + rows * ld - task.m0 * ldp - task.n0;
  }
  const int64_t padded = optc_panel_columns(g.panels);
  for (int64_t k0 = 0; k0 < g.k; k0 += g.kc) {
    const int64_t kc = g.k - k0 < g.kc ? g.k - k0 : g.kc;
    // Inner strides of rows are columns of the block.
    widen_block<A>(staged, ld, a.p + task.m0 * a.row + k0 * a.inner, rows, kc, optc_round_up(kc, 16), a.row, a.inner);
    const GemmRowsOf<T> widened = {staged - task.m0 * ld - k0, ld};
    for (int64_t p = task.p0; p < task.p1; ++p) {
      const int64_t n = optc_panel_begin(g.panels, p);
      const int nr = optc_panel_width(g.panels, p);
      if (b.packed && g.m <= kGemmFewRows) {
        const bool whole = k0 == 0 && kc == g.k;
        const GemmPanelOf<T> panel = {
            nullptr, nr, k0, kc, n, task.n1, k0 == 0, k0 + kc == g.k, whole ? nullptr : partial, ldp, false, true};
        (rows == 1 ? gemm_stored_panel<B, 1> : gemm_stored_panel<B, 2>)(staged, ld, b.p + k0 * padded + n * kc, panel,
                                                                        task.m0, sink);
        continue;
      }
      if (b.packed)
        widen_block<B>(scratch, nr, b.p + k0 * padded + n * kc, kc, nr, nr, nr, 1);
      else
        widen_block<B>(scratch, nr, b.p + k0 * b.inner + n * b.column, kc, optc_clamp(task.n1 - n, 0, nr), nr, b.inner,
                       b.column);
      gemm_panel(widened, gemm_panel_at<T>(g, p, k0, scratch, task.n1, partial, ldp, false), task.m0, task.m1, sink);
    }
  }
}
#endif  // OPTC_CPU_GEMM_STORED_H
