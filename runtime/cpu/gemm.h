// gemm.h: matrix products of float with packed or unpacked B. Included inside an instruction-set namespace
// (foreach_isa.h).
//
// A is given by its rows: StridedRows, or any type with `const float *row(int64_t) const` (a strided 1x1 convolution).
// The result goes to a sink, called once for each vector of C:  void operator()(vf sum, int64_t row, int64_t column,
// int n) const;  n is the number of valid lanes (OPTC_VW except at the right edge; a constant there, so that load_n and
// store_n become plain). `enum { kLight = 1 };` in it asks for the epilogue to be unrolled on the registers: for a few
// instructions (bias, relu), not for a GELU. StoreRows is the plain sink; with_epilogue makes one of an `vf
// operator()(vf, row, column, n)`.
//
// Order of summation: k ascending, in blocks of kc; one or two rows use 4 or 2 interleaved partial sums. It depends on
// the plan alone.
#ifndef OPTC_CPU_GEMM_H
#define OPTC_CPU_GEMM_H
#include "runtime/cpu/gemm_plan.h"
#include "runtime/cpu/simd.h"

struct StridedRows {
  const float *p;
  int64_t ld;
  OPTC_MEMBER const float *row(int64_t i) const { return p + i * ld; }
};

struct StoreRows {
  enum { kLight = 1 };
  float *c;
  int64_t ldc;
  OPTC_MEMBER void operator()(vf v, int64_t row, int64_t column, int n) const { store_n(c + row * ldc + column, v, n); }
};

template <class Epilogue, int Light>
struct StoreEpilogue {
  enum { kLight = Light };
  float *c;
  int64_t ldc;
  Epilogue epilogue;
  OPTC_MEMBER void operator()(vf v, int64_t row, int64_t column, int n) const {
    store_n(c + row * ldc + column, epilogue(v, row, column, n), n);
  }
};
// The sink c[row * ldc + column] = epilogue(sum, row, column, n).
template <int Light = 1, class Epilogue>
OPTC_INLINE StoreEpilogue<Epilogue, Light> with_epilogue(float *c, int64_t ldc, const Epilogue &epilogue) {
  return {c, ldc, epilogue};
}

// Columns that one tile covers (of a panel of nr), and its greatest number of rows: as many accumulators as the
// registers hold.
constexpr int gemm_tile_columns(int nr) { return OPTC_VW == 16 ? nr : 16; }
constexpr int gemm_tile_rows(int nr) {
#if OPTC_VW == 16
  return nr == 64 ? 6 : nr == 48 ? 8 : 12;
#elif OPTC_VW == 8 || OPTC_NEON
  return nr > 0 ? 6 : 0;
#else
  return nr > 0 ? 3 : 0;
#endif
}
// The tile heights that the partition of m rows uses, one bit each; all of them when m is 0 (known at run time only).
constexpr uint32_t gemm_tile_heights(int64_t m, int64_t m_tasks, int nr) {
  const int mr = gemm_tile_rows(nr);
  if (m == 0) return (2u << mr) - 2;
  uint32_t mask = 0;
  for (int64_t rows = m / m_tasks; rows <= optc_ceil_div(m, m_tasks); ++rows) {
    if (rows == 0) continue;
    const int64_t tiles = optc_ceil_div(rows, mr);
    mask |= (1u << (rows / tiles)) | (1u << optc_ceil_div(rows, tiles));
  }
  return mask;
}

struct GemmTile {
  const float *b;
  int64_t k;
  float *partial;  // sums of the earlier blocks of k
  int64_t ldp;
  bool first, last;
  int64_t row, column, columns;  // columns: valid ones from `column` on
  const char *next;              // what to prefetch, `step` bytes a k
  int64_t step;
  int64_t nr;  // floats from one k to the next in b
};

// The tile's products: MR rows of A times NV vectors of a panel, into acc. NR: the panel's width when a constant, else
// 0 and t.nr tells, so that panels of all widths share the code.
template <int MR, int NV, int NR, bool Prefetch, bool List>
OPTC_INLINE void gemm_products(vf (&acc)[MR][NV], const float *a, int64_t lda, const float *const *list,
                               const GemmTile &t) {
  constexpr int KU = MR == 1 ? 4 : MR == 2 ? 2 : 1;  // interleaved sums, to cover the latency of fma
  const float *b = t.b;
  const char *next = t.next;
  const int64_t step = t.step, nr = NR ? NR : t.nr;
  const float *rows[MR];
  OPTC_UNROLL for (int i = 0; i < MR; ++i) rows[i] = List ? list[i] : a;
  int64_t k = t.k;
  if (KU > 1) {
    vf part[KU][MR][NV];
    OPTC_UNROLL for (int u = 0; u < KU; ++u) OPTC_UNROLL for (int i = 0; i < MR; ++i)
        OPTC_UNROLL for (int j = 0; j < NV; ++j) part[u][i][j] = vf{};
    for (; k >= KU; k -= KU) {
      OPTC_UNROLL for (int u = 0; u < KU; ++u) {
        if (Prefetch) {
          OPTC_UNROLL for (int j = 0; j < NV * OPTC_VW; j += 16) __builtin_prefetch((const char *)(b + j) + 1024, 0, 3);
        }
        OPTC_UNROLL for (int i = 0; i < MR; ++i) {
          const vf s = splat(List ? rows[i][u] : a[i * lda + u]);
          OPTC_UNROLL for (int j = 0; j < NV; ++j) part[u][i][j] = fma(s, load(b + j * OPTC_VW), part[u][i][j]);
        }
        b += nr;
      }
      if (List) OPTC_UNROLL for (int i = 0; i < MR; ++i) rows[i] += KU;
      a += KU;
    }
    OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) {
      vf s = part[0][i][j] + part[1][i][j];
      if (KU == 4) s = s + (part[KU - 2][i][j] + part[KU - 1][i][j]);
      acc[i][j] += s;
    }
  }
  for (; k > 0; --k) {
    vf v[NV];
    OPTC_UNROLL for (int j = 0; j < NV; ++j) v[j] = load(b + j * OPTC_VW);
    if (Prefetch) __builtin_prefetch(next, 0, 2), next += step;
    OPTC_UNROLL for (int i = 0; i < MR; ++i) {
      const vf s = splat(List ? *rows[i]++ : a[i * lda]);
      OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = fma(s, v[j], acc[i][j]);
    }
    ++a;
    b += nr;
  }
}

// The sums of a tile go to the sink, vector by vector.
template <int MR, int NV, class Sink>
OPTC_INLINE void gemm_finish(vf (&acc)[MR][NV], int64_t row, int64_t column, int64_t columns, const Sink &sink) {
  if (Sink::kLight == 1 && columns >= NV * OPTC_VW) {
    OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j)
        sink(acc[i][j], row + i, column + j * OPTC_VW, OPTC_VW);
    return;
  }
  float sums[MR][NV * OPTC_VW];
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j)
      store(&sums[i][j * OPTC_VW], acc[i][j]);
  if constexpr (Sink::kLight == 2) {
    sink.tile(&sums[0][0], NV * OPTC_VW, row, column, MR, columns < NV * OPTC_VW ? columns : NV * OPTC_VW);
    return;
  }
  for (int i = 0; i < MR; ++i) {
    int64_t j = 0;
    for (; j + OPTC_VW <= columns && j < NV * OPTC_VW; j += OPTC_VW)
      sink(load(&sums[i][j]), row + i, column + j, OPTC_VW);
    if (j < columns && j < NV * OPTC_VW) sink(load(&sums[i][j]), row + i, column + j, (int)(columns - j));
  }
}

template <int MR, int NV, int NR, bool Prefetch, bool List, class Sink>
static OPTC_KERNEL void gemm_tile(const float *a, int64_t lda, const float *const *list, const GemmTile &t,
                                  const Sink &sink) {
  vf acc[MR][NV];
  if (t.first) {
    OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = vf{};
  } else {
    OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] =
        load_n(t.partial + i * t.ldp + j * OPTC_VW, (int)optc_clamp(t.columns - j * OPTC_VW, 0, OPTC_VW));
  }
  gemm_products<MR, NV, NR, Prefetch, List>(acc, a, lda, list, t);
  if (t.last) return gemm_finish<MR, NV>(acc, t.row, t.column, t.columns, sink);
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j)
      store_n(t.partial + i * t.ldp + j * OPTC_VW, acc[i][j], (int)optc_clamp(t.columns - j * OPTC_VW, 0, OPTC_VW));
}

template <class Rows>
struct gemm_is_strided {
  enum { value = 0 };
};
template <>
struct gemm_is_strided<StridedRows> {
  enum { value = 1 };
};

template <int MR, uint32_t Heights, int NV, int NR, bool Prefetch, class Rows, class Sink>
OPTC_INLINE void gemm_tile_of(int64_t rows, const Rows &a, int64_t k0, const GemmTile &t, const Sink &sink) {
  if constexpr (MR > 0) {
    if constexpr (((Heights >> MR) & 1) == 0) {
      gemm_tile_of<MR - 1, Heights, NV, NR, Prefetch>(rows, a, k0, t, sink);
    } else {
      if (rows != MR) return gemm_tile_of<MR - 1, Heights, NV, NR, Prefetch>(rows, a, k0, t, sink);
      if constexpr (gemm_is_strided<Rows>::value) {
        gemm_tile<MR, NV, NR, Prefetch, false>(a.row(t.row) + k0, a.ld, nullptr, t, sink);
      } else {
        const float *list[MR];
        for (int i = 0; i < MR; ++i) list[i] = a.row(t.row + i) + k0;
        gemm_tile<MR, NV, NR, Prefetch, true>(nullptr, 0, list, t, sink);
      }
    }
  }
}

// One panel times rows [m0, m1), in tiles of equal height.
template <int NR, uint32_t Heights, bool Prefetch, class Rows, class Sink>
OPTC_INLINE void gemm_panel(const Rows &a, const float *panel, int64_t m0, int64_t m1, int64_t n, int64_t n1,
                            int64_t k0, int64_t kc, bool first, bool last, float *partial, int64_t ldp,
                            const Sink &sink) {
  constexpr int kColumns = gemm_tile_columns(NR), kRows = gemm_tile_rows(NR), NV = kColumns / OPTC_VW;
  const int64_t rows = m1 - m0, tiles = optc_ceil_div(rows, kRows);
  const char *next = (const char *)(panel + kc * NR);
  const int64_t step = Prefetch ? optc_clamp(optc_ceil_div(NR * 4, tiles), 1, 64) : 0;
  for (int s = 0; s < NR && n + s < n1; s += kColumns) {
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t r0 = m0 + rows * t / tiles, r1 = m0 + rows * (t + 1) / tiles;
      const GemmTile tile = {panel + s,
                             kc,
                             partial ? partial + r0 * ldp + n + s : nullptr,
                             ldp,
                             first,
                             last,
                             r0,
                             n + s,
                             n1 - n - s,
                             next + t * kc * step,
                             step,
                             NR};
      gemm_tile_of<kRows, Heights, NV, OPTC_VW == 16 ? NR : 0, Prefetch>(r1 - r0, a, k0, tile, sink);
    }
  }
}

// Rows [m0, m1), columns [n0, n1) of the product with a packed B. `partial`, indexed [row * ldp + column], holds the
// sums between blocks of k (needed when k > kc; it may be C itself when the sink stores exactly there). M: g.m when it
// is a constant, else 0. Not inlined: products of one kind share it, and it is entered once a task.
template <int NR, int64_t M, int64_t MTasks, bool Prefetch, class Rows, class Sink>
static OPTC_KERNEL void gemm_block(const OptcGemm &g, const OptcGemmTask &task, const Rows &a, const float *packed,
                                   float *partial, int64_t ldp, const Sink &sink) {
  constexpr uint32_t kHeights = gemm_tile_heights(M, MTasks, NR);
  const int64_t padded = optc_round_up(g.n, NR);
  if (g.k == 0) {
    for (int64_t i = task.m0; i < task.m1; ++i)
      for (int64_t j = task.n0; j < task.n1; j += OPTC_VW) sink(vf{}, i, j, (int)optc_clamp(task.n1 - j, 0, OPTC_VW));
  }
  for (int64_t k0 = 0; k0 < g.k; k0 += g.kc) {
    const int64_t kc = g.k - k0 < g.kc ? g.k - k0 : g.kc;
    for (int64_t n = task.n0; n < task.n1; n += NR)
      gemm_panel<NR, kHeights, Prefetch>(a, packed + k0 * padded + n * kc, task.m0, task.m1, n, task.n1, k0, kc,
                                         k0 == 0, k0 + kc == g.k, partial, ldp, sink);
  }
}

// Task t of the plan of a product whose shape is constant: gemm<M, N, K>(t, rows, packed, partial, ldp, sink).
template <int64_t M, int64_t N, int64_t K, class Rows, class Sink>
OPTC_INLINE void gemm(int64_t t, const Rows &a, const float *packed, float *partial, int64_t ldp, const Sink &sink) {
  constexpr OptcGemm g = optc_gemm_plan(M, N, K);
  gemm_block<g.nr, M, g.m_tasks, g.prefetch>(g, optc_gemm_task(g, t), a, packed, partial, ldp, sink);
}

// The same when only N and K are constant (packed weights, M known at run time).
template <int64_t N, int64_t K, class Rows, class Sink>
OPTC_INLINE void gemm_rows(int64_t m, int64_t t, const Rows &a, const float *packed, float *partial, int64_t ldp,
                           const Sink &sink) {
  constexpr int kNr = optc_gemm_nr(N);
  constexpr bool kPrefetch = N * K * 4 > 786432;
  const OptcGemm g = optc_gemm_plan(m, N, K);
  gemm_block<kNr, 0, 1, kPrefetch>(g, optc_gemm_task(g, t), a, packed, partial, ldp, sink);
}

// --- B given at run time: B[k][n] at b[k * row_stride + n * column_stride]. Its panels are packed, one at a time, into
// `scratch`.
constexpr int64_t kGemmScratchFloats = 1024 * 64;  // floats of scratch for each task that runs at a time

template <int NR>
static OPTC_KERNEL void gemm_pack_panel(float *out, const float *b, int64_t k, int64_t columns, int64_t row_stride,
                                        int64_t column_stride) {
  if (column_stride == 1) {
    for (int64_t i = 0; i < k; ++i, out += NR) {
      const float *row = b + i * row_stride;
      if (columns >= NR) {
        OPTC_UNROLL for (int j = 0; j < NR; j += OPTC_VW) store(out + j, load(row + j));
      } else {
        for (int j = 0; j < NR; j += OPTC_VW) store(out + j, load_n(row + j, (int)optc_clamp(columns - j, 0, OPTC_VW)));
      }
    }
    return;
  }
  // Columns are rows of a transposed matrix: read 8 of them side by side, so that both sides stay in cache lines.
  for (int64_t j0 = 0; j0 < NR; j0 += 8) {
    for (int64_t i = 0; i < k; ++i) {
      OPTC_UNROLL for (int j = 0; j < 8; ++j) out[i * NR + j0 + j] =
          j0 + j < columns ? b[i * row_stride + (j0 + j) * column_stride] : 0.0f;
    }
  }
}

template <int NR, class Rows, class Sink>
OPTC_INLINE void gemm_unpacked_block(const OptcGemm &g, const OptcGemmTask &task, const Rows &a, const float *b,
                                     int64_t row_stride, int64_t column_stride, float *partial, int64_t ldp,
                                     float *scratch, const Sink &sink) {
  constexpr uint32_t kHeights = gemm_tile_heights(0, 1, NR);
  if (g.k == 0) {
    for (int64_t i = task.m0; i < task.m1; ++i)
      for (int64_t j = task.n0; j < task.n1; j += OPTC_VW) sink(vf{}, i, j, (int)optc_clamp(task.n1 - j, 0, OPTC_VW));
  }
  for (int64_t k0 = 0; k0 < g.k; k0 += g.kc) {
    const int64_t kc = g.k - k0 < g.kc ? g.k - k0 : g.kc;
    for (int64_t n = task.n0; n < task.n1; n += NR) {
      gemm_pack_panel<NR>(scratch, b + k0 * row_stride + n * column_stride, kc, task.n1 - n, row_stride, column_stride);
      gemm_panel<NR, kHeights, false>(a, scratch, task.m0, task.m1, n, task.n1, k0, kc, k0 == 0, k0 + kc == g.k,
                                      partial, ldp, sink);
    }
  }
}

// Task t of a product of any shape known at run time.
template <class Rows, class Sink>
static OPTC_KERNEL void gemm_unpacked(const OptcGemm &g, int64_t t, const Rows &a, const float *b, int64_t row_stride,
                                      int64_t column_stride, float *partial, int64_t ldp, float *scratch,
                                      const Sink &sink) {
  const OptcGemmTask task = optc_gemm_task(g, t);
  switch (g.nr) {
    case 16:
      return gemm_unpacked_block<16>(g, task, a, b, row_stride, column_stride, partial, ldp, scratch, sink);
    case 32:
      return gemm_unpacked_block<32>(g, task, a, b, row_stride, column_stride, partial, ldp, scratch, sink);
    case 48:
      return gemm_unpacked_block<48>(g, task, a, b, row_stride, column_stride, partial, ldp, scratch, sink);
    default:
      return gemm_unpacked_block<64>(g, task, a, b, row_stride, column_stride, partial, ldp, scratch, sink);
  }
}
#endif  // OPTC_CPU_GEMM_H
