// gemm.h: matrix products of float or double (T) with packed or unpacked B. Included inside an instruction-set
// namespace (foreach_isa.h).
//
// Finished sums go to a TileSink, once for each tile of rows and columns. So all products of a translation unit share
// one copy of the tiles' code, whatever stands behind the sums.
//
// OPTC_PANELS, which the including file may define, says what it uses, added up, so that the tiles of the rest are not
// compiled. Widths of panels: 1 for 16 columns, 2 for 32, 4 for 48, 8 for 64; and 16 times the same for rows of A that
// are no equal distance apart. 256 stands for none.
//
// Order of summation: k ascending, in blocks of kc; one or two rows use 4 or 2 interleaved partial sums. It depends on
// the plan alone.
#ifndef OPTC_CPU_GEMM_H
#define OPTC_CPU_GEMM_H
#include "runtime/cpu/gemm_plan.h"
#include "runtime/cpu/wide.h"
#ifndef OPTC_PANELS
#define OPTC_PANELS 255
#endif

// The rows of A: row i at p + i * ld; or, with ow > 0, the pixels of images with oh x ow outputs (a 1x1 convolution
// with strides): ld, row and image are then the elements from one output pixel, row of pixels and image to the next.
template <class T>
struct GemmRowsOf {
  typedef T element;
  const T *p;
  int64_t ld;
  int64_t ow = 0, oh = 0, row = 0, image = 0;
  OPTC_MEMBER const T *at(int64_t i) const {
    if (ow == 0) return p + i * ld;
    const int64_t y = i / ow;
    return p + (y / oh) * image + (y % oh) * row + (i - y * ow) * ld;
  }
};
typedef GemmRowsOf<float> GemmRows;
// T of a parameter that says nothing of it.
template <class T>
using GemmElement = typename GemmRowsOf<T>::element;

// Takes the sums of C (T: float, double, or int32_t in gemm_i8.h) at rows [row, row + rows), columns [column, column +
// columns): sums[i * ld + j]. They lie on the stack and may be read up to the next multiple of OPTC_VW.
template <class T>
struct TileSinkOf {
  void (*finish)(const void *body, const T *sums, int64_t ld, int64_t row, int64_t column, int64_t rows,
                 int64_t columns);
  const void *body;
  OPTC_MEMBER void operator()(const T *sums, int64_t ld, int64_t row, int64_t column, int64_t rows,
                              int64_t columns) const {
    finish(body, sums, ld, row, column, rows, columns);
  }
};
typedef TileSinkOf<float> TileSink;

// Columns that one tile covers (of a panel of nr), and its greatest number of rows: as many accumulators as the
// registers hold. A double takes the place of two floats.
template <class T = float>
constexpr int gemm_tile_columns(int nr) {
  return OPTC_VW == 16 ? nr : 64 / int(sizeof(T));
}
template <class T = float>
constexpr int gemm_tile_rows(int nr) {
#if OPTC_VW == 16
  const int bytes = nr * int(sizeof(T));
  return bytes == 256 ? 6 : bytes == 192 ? 8 : 12;
#elif OPTC_VW == 8 || OPTC_NEON
  return nr > 0 ? 6 : 0;
#else
  return nr > 0 ? 3 : 0;
#endif
}
constexpr int kGemmMostRows = 12;

// One tile: the sums over `planes` x `kernel_rows` x `segments` runs of k products each (one run for a matrix product,
// those of the kernel's window for a convolution).
template <class T>
struct GemmTileOf {
  const T *b;  // columns of a packed panel
  int64_t nr;  // elements from one k to the next in b
  int64_t k;
  int64_t kernel_rows, row_step, segments, segment_step;  // steps in A, elements
  T *partial;                                             // sums of the earlier blocks of k, [row * ldp + column]
  int64_t ldp;
  bool first, last;              // a tile that is not the last leaves its sums in `partial`
  int64_t row, column, columns;  // columns: valid ones from `column` on
  const char *next;              // what to prefetch, `step` bytes a k
  int64_t step;
  int64_t planes = 1, plane_step = 0;
  int64_t row_skip = 0,
          plane_skip = 0;  // elements of b behind the runs of a kernel row (plane): taps that are left out
  bool few = false;        // of a result of at most kGemmFewRows rows
};
typedef GemmTileOf<float> GemmTile;
// A result of so few rows is summed in another order, which covers the latency of fma. Never a tile of so few rows of a
// larger one: an element must not depend on how the rows were divided.
constexpr int64_t kGemmFewRows = 2;

// MR rows of A times NV vectors of a panel: k products onto acc. Rows by their pointers (List), or lda elements apart:
// that takes fewer registers. b and next move on.
template <int MR, int NV, bool List, class T, class V>
OPTC_INLINE void gemm_products(V (&acc)[MR][NV], const T *const (&rows)[MR], const T *a, int64_t lda, const T *&b,
                               int64_t nr, int64_t k, const char *&next, int64_t step, [[maybe_unused]] bool few) {
  constexpr int KU = MR > kGemmFewRows ? 1 : MR == 1 ? 4 : 2;  // interleaved sums
  int64_t at = 0;
  if constexpr (KU > 1)
    if (few) {
      V part[KU][MR][NV];
      OPTC_UNROLL for (int u = 0; u < KU; ++u) OPTC_UNROLL for (int i = 0; i < MR; ++i)
          OPTC_UNROLL for (int j = 0; j < NV; ++j) part[u][i][j] = V{};
      for (; k >= KU; k -= KU) {
        OPTC_UNROLL for (int u = 0; u < KU; ++u) {
          OPTC_UNROLL for (int j = 0; j < NV * OPTC_VW; j += 64 / int(sizeof(T)))
              __builtin_prefetch((const char *)(b + j) + 1024, 0, 3);
          OPTC_UNROLL for (int i = 0; i < MR; ++i) {
            const V s = broadcast(List ? rows[i][at + u] : a[i * lda + u]);
            OPTC_UNROLL for (int j = 0; j < NV; ++j) part[u][i][j] = fma(s, load(b + j * OPTC_VW), part[u][i][j]);
          }
          b += nr;
        }
        at += KU;
        a += KU;
      }
      OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) {
        V s = part[0][i][j] + part[1][i][j];
        if (KU == 4) s = s + (part[KU - 2][i][j] + part[KU - 1][i][j]);
        acc[i][j] = acc[i][j] + s;
      }
    }
  for (; k > 0; --k) {
    V v[NV];
    OPTC_UNROLL for (int j = 0; j < NV; ++j) v[j] = load(b + j * OPTC_VW);
    __builtin_prefetch(next, 0, 2);
    next += step;
    OPTC_UNROLL for (int i = 0; i < MR; ++i) {
      const V s = broadcast(List ? rows[i][at] : a[i * lda]);
      OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = fma(s, v[j], acc[i][j]);
    }
    if (List)
      ++at;
    else
      ++a;
    b += nr;
  }
}

template <class T, int MR, int NV, bool List>
static OPTC_KERNEL void gemm_tile(const T *const *a, int64_t lda, const GemmTileOf<T> &t, const TileSinkOf<T> &sink) {
  constexpr int kColumns = NV * OPTC_VW;
  const int64_t columns = t.columns < kColumns ? t.columns : kColumns;
  T sums[MR][kColumns];
  typedef Lanes<T> V;
  V acc[MR][NV];
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = V{};
  if (!t.first) {
    for (int i = 0; i < MR; ++i) memcpy(sums[i], t.partial + i * t.ldp, sizeof(T) * (size_t)columns);
    OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] =
        load(&sums[i][j * OPTC_VW]);
  }
  const int64_t nr = OPTC_VW == 16 ? kColumns : t.nr;
  const T *b = t.b;
  const char *next = t.next;
  for (int64_t z = 0; z < t.planes; ++z) {
    for (int64_t y = 0; y < t.kernel_rows; ++y) {
      for (int64_t x = 0; x < t.segments; ++x) {
        const int64_t offset = z * t.plane_step + y * t.row_step + x * t.segment_step;
        const T *rows[MR];
        if (List) {
          OPTC_UNROLL for (int i = 0; i < MR; ++i) rows[i] = a[i] + offset;
        }
        gemm_products<MR, NV, List>(acc, rows, *a + offset, lda, b, nr, t.k, next, t.step, t.few);
      }
      b += t.row_skip;
    }
    b += t.plane_skip;
  }
  if (!t.last && columns == kColumns) {
    OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j)
        store(t.partial + i * t.ldp + j * OPTC_VW, acc[i][j]);
    return;
  }
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j)
      store(&sums[i][j * OPTC_VW], acc[i][j]);
  if (t.last) return sink(&sums[0][0], kColumns, t.row, t.column, MR, columns);
  for (int i = 0; i < MR; ++i) memcpy(t.partial + i * t.ldp, sums[i], sizeof(T) * (size_t)columns);
}

// a: the rows of A; where they are lda elements apart, the first alone.
template <class T>
using GemmTileFunctionOf = void (*)(const T *const *a, int64_t lda, const GemmTileOf<T> &t, const TileSinkOf<T> &sink);
typedef GemmTileFunctionOf<float> GemmTileFunction;
template <class T, int MR, int NV, bool List>
OPTC_INLINE GemmTileFunctionOf<T> gemm_tile_of(int64_t rows) {
  if (rows == MR) return gemm_tile<T, MR, NV, List>;
  if constexpr (MR > 1) return gemm_tile_of<T, MR - 1, NV, List>(rows);
  return nullptr;
}
template <class T, int NR, int Bit>
OPTC_INLINE GemmTileFunctionOf<T> gemm_tile_in(int64_t rows, [[maybe_unused]] bool list) {
  constexpr int MR = gemm_tile_rows<T>(NR), NV = gemm_tile_columns<T>(NR) / OPTC_VW;
  if constexpr (((OPTC_PANELS) & (Bit * 16)) != 0)
    if (list) return gemm_tile_of<T, MR, NV, true>(rows);
  if constexpr (((OPTC_PANELS)&Bit) != 0) return gemm_tile_of<T, MR, NV, false>(rows);
  return nullptr;
}
// The tile of `rows` rows in panels of nr. (Where vectors are shorter, panels of all widths have the same tiles.)
template <class T = float>
static OPTC_KERNEL GemmTileFunctionOf<T> gemm_tile_function([[maybe_unused]] int nr, int64_t rows, bool list) {
#if OPTC_VW == 16
  if constexpr (sizeof(T) == 4) {
    if (nr == 64) return gemm_tile_in<T, 64, 8>(rows, list);
    if (nr == 48) return gemm_tile_in<T, 48, 4>(rows, list);
  }
  return nr == 32 ? gemm_tile_in<T, 32, 2>(rows, list) : gemm_tile_in<T, 16, 1>(rows, list);
#else
  return gemm_tile_in<T, 16, 15>(rows, list);
#endif
}

// One panel of a product, or the part of it that a task computes.
template <class T>
struct GemmPanelOf {
  const T *b;
  int nr;
  int64_t k0, k;     // the rows of B in it
  int64_t n, n1;     // its first column, and where the task's columns end
  bool first, last;  // of the blocks of k; a panel that is not the last leaves its sums in `partial`
  T *partial;        // [row * ldp + column]
  int64_t ldp;
  bool prefetch;  // the panel behind this one
  bool few;       // GemmTile
};
typedef GemmPanelOf<float> GemmPanel;

// The panel times rows [m0, m1), in tiles of equal height.
template <class T>
static OPTC_KERNEL void gemm_panel(const GemmRowsOf<T> &a, const GemmPanelOf<T> &p, int64_t m0, int64_t m1,
                                   const TileSinkOf<T> &sink) {
  const int64_t columns = gemm_tile_columns<T>(p.nr), rows = m1 - m0,
                tiles = optc_ceil_div(rows, gemm_tile_rows<T>(p.nr));
  if (rows <= 0) return;
  const int64_t low = rows / tiles;
  const bool list_rows = a.ow != 0;
  const GemmTileFunctionOf<T> lower = gemm_tile_function<T>(p.nr, low, list_rows),
                              higher = low * tiles < rows ? gemm_tile_function<T>(p.nr, low + 1, list_rows) : lower;
  const char *next = (const char *)(p.b + (p.prefetch ? p.k * p.nr : 0));
  GemmTileOf<T> tile = {p.b, p.nr, p.k, 1, 0, 1, 0, nullptr, p.ldp, p.first, p.last, 0, 0, 0, next, 0};
  tile.few = p.few;
  tile.step = p.prefetch ? optc_clamp(optc_ceil_div(p.nr * int64_t(sizeof(T)), tiles), 1, 64) : 0;
  for (int64_t s = 0; s < p.nr && p.n + s < p.n1; s += columns) {
    tile.b = p.b + s;
    tile.column = p.n + s;
    tile.columns = p.n1 - p.n - s;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t r0 = m0 + rows * t / tiles, height = m0 + rows * (t + 1) / tiles - r0;
      const T *list[kGemmMostRows];
      list[0] = a.at(r0) + p.k0;
      for (int64_t i = 1; i < height && list_rows; ++i) list[i] = a.at(r0 + i) + p.k0;
      tile.row = r0;
      tile.next = next + t * p.k * tile.step;
      if (p.partial) tile.partial = p.partial + r0 * p.ldp + p.n + s;
      (height == low ? lower : higher)(list, a.ld, tile, sink);
    }
  }
}

// Products over no k: all sums are zero.
template <class T>
static OPTC_KERNEL void gemm_zeros(const OptcGemmTask &task, const TileSinkOf<T> &sink) {
  const T zeros[OPTC_VW] = {};
  for (int64_t i = task.m0; i < task.m1; ++i)
    for (int64_t j = task.n0; j < task.n1; j += OPTC_VW)
      sink(zeros, OPTC_VW, i, j, 1, optc_clamp(task.n1 - j, 0, OPTC_VW));
}

// Panel p of B in the block of k that begins at k0, laid out at b. Its sums go to the sink where the block is the last,
// else to `partial`; columns from n1 on are not the task's.
template <class T>
OPTC_INLINE GemmPanelOf<T> gemm_panel_at(const OptcGemm &g, int64_t p, int64_t k0, const T *b, int64_t n1,
                                         GemmElement<T> *partial, int64_t ldp, bool prefetch) {
  const bool first = k0 == 0, last = g.k - k0 <= g.kc;
  return {b,
          optc_panel_width(g.panels, p),
          k0,
          last ? g.k - k0 : g.kc,
          optc_panel_begin(g.panels, p),
          n1,
          first,
          last,
          first && last ? nullptr : partial,
          ldp,
          prefetch,
          g.m <= kGemmFewRows};
}

// Task t of the plan, with a packed B (optc_pack_b). `partial`, indexed [row * ldp + column], holds the sums between
// blocks of k: needed when k > kc; it may be C itself when the sink stores exactly there.
template <class T>
static OPTC_KERNEL void gemm(const OptcGemm &g, int64_t t, const GemmRowsOf<T> &a, const T *packed,
                             GemmElement<T> *partial, int64_t ldp, const TileSinkOf<T> &sink) {
  const OptcGemmTask task = optc_gemm_task(g, t);
  if (g.k == 0) return gemm_zeros(task, sink);
  const int64_t padded = optc_panel_columns(g.panels);
  for (int64_t k0 = 0; k0 < g.k; k0 += g.kc) {
    const int64_t kc = g.k - k0 < g.kc ? g.k - k0 : g.kc;
    for (int64_t p = task.p0; p < task.p1; ++p) {
      const T *b = packed + k0 * padded + optc_panel_begin(g.panels, p) * kc;
      gemm_panel(a, gemm_panel_at(g, p, k0, b, task.n1, partial, ldp, g.prefetch), task.m0, task.m1, sink);
    }
  }
}

// All tasks of the plan. `partial` may be null: sums between blocks of k then lie in the scratch of the running
// threads, 192 * ceil(n / 64) * 64 of T each. Env: what parallel(env, count, grain, body) takes
// (runtime/bundle/env.h).
template <class Env, class T>
static OPTC_KERNEL void multiply(const Env &env, const OptcGemm &g, const GemmRowsOf<T> &a, const T *packed,
                                 GemmElement<T> *partial, int64_t ldp, const TileSinkOf<T> &sink) {
  parallel(env, optc_gemm_tasks(g), 1, [&](int64_t begin, int64_t end, uint8_t *scratch) {
    for (int64_t t = begin; t < end; ++t) {
      T *sums = partial;
      int64_t ld = ldp;
      if (!sums && g.k > g.kc) {
        const OptcGemmTask task = optc_gemm_task(g, t);
        ld = task.n1 - task.n0;
        sums = reinterpret_cast<T *>(scratch) - task.m0 * ld - task.n0;
      }
      gemm(g, t, a, packed, sums, ld, sink);
    }
  });
}

// The whole product, stored as it is: c[row * ldc + column].
template <class T>
static OPTC_KERNEL void gemm_store(const OptcGemm &g, const GemmRowsOf<T> &a, const T *packed, T *c, int64_t ldc) {
  const int64_t padded = optc_panel_columns(g.panels);
  for (int64_t k0 = 0; k0 < g.k; k0 += g.kc) {
    const int64_t kc = g.k - k0 < g.kc ? g.k - k0 : g.kc;
    for (int64_t p = 0; p < optc_panel_count(g.panels); ++p) {
      const T *b = packed + k0 * padded + optc_panel_begin(g.panels, p) * kc;
      GemmPanelOf<T> panel = gemm_panel_at(g, p, k0, b, g.n, c, ldc, g.prefetch);
      panel.last = false, panel.partial = c;  // all sums are left there
      gemm_panel(a, panel, 0, g.m, TileSinkOf<T>{nullptr, nullptr});
    }
  }
}

// --- B given at run time: B[k][n] at b[k * row_stride + n * column_stride]. Its panels are packed, one at a time, into
// `scratch`.
template <class T>
static OPTC_KERNEL void gemm_pack_panel(T *out, int nr, const T *b, int64_t k, int64_t columns, int64_t row_stride,
                                        int64_t column_stride) {
  if (column_stride == 1) {
    for (int64_t i = 0; i < k; ++i, out += nr) {
      const T *row = b + i * row_stride;
      if (columns >= nr) {
        for (int j = 0; j < nr; j += OPTC_VW) store(out + j, load(row + j));
      } else {
        for (int j = 0; j < nr; j += OPTC_VW) store(out + j, load_n(row + j, (int)optc_clamp(columns - j, 0, OPTC_VW)));
      }
    }
    return;
  }
  // Columns are rows of a transposed matrix: read 8 of them side by side, so that both sides stay in cache lines.
  for (int64_t j0 = 0; j0 < nr; j0 += 8) {
    for (int64_t i = 0; i < k; ++i) {
      OPTC_UNROLL for (int j = 0; j < 8; ++j) out[i * nr + j0 + j] =
          j0 + j < columns ? b[i * row_stride + (j0 + j) * column_stride] : T(0);
    }
  }
}

// Task t of the plan, with such a B.
template <class T>
static OPTC_KERNEL void gemm_unpacked(const OptcGemm &g, int64_t t, const GemmRowsOf<T> &a, const T *b,
                                      int64_t row_stride, int64_t column_stride, GemmElement<T> *partial, int64_t ldp,
                                      GemmElement<T> *scratch, const TileSinkOf<T> &sink) {
  const OptcGemmTask task = optc_gemm_task(g, t);
  if (g.k == 0) return gemm_zeros(task, sink);
  for (int64_t k0 = 0; k0 < g.k; k0 += g.kc) {
    const int64_t kc = g.k - k0 < g.kc ? g.k - k0 : g.kc;
    for (int64_t p = task.p0; p < task.p1; ++p) {
      const int64_t n = optc_panel_begin(g.panels, p);
      const int nr = optc_panel_width(g.panels, p);
      gemm_pack_panel(scratch, nr, b + k0 * row_stride + n * column_stride, kc, task.n1 - n, row_stride, column_stride);
      gemm_panel(a, gemm_panel_at<T>(g, p, k0, scratch, task.n1, partial, ldp, false), task.m0, task.m1, sink);
    }
  }
}
#endif  // OPTC_CPU_GEMM_H
