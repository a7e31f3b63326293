// gemm_plan.h: how a matrix product is divided and how its weights are laid out. The same for every instruction set and
// for the compiler, which packs constants with it (C++17; usable from C++20).
//
// C[M,N] = A[M,K] * B[K,N]. B is packed as [ceil(K / kc)][panels][kc][columns] elements: blocks of kc rows of B (the
// last one shorter), in each the panels of columns one after another, each panel row by row; columns beyond N are zero.
// So a kernel reads B strictly forward. Panels have 48 or 64 columns, three or four vectors of AVX-512 (narrower
// vectors split them), as many of each as leave less than one vector of zeros; 16 or 32 where N is that small. Of
// double they have 32 columns, as many vectors, and a last one 16.
//
// `element`: bytes of an element as it is multiplied, 4 (float) or 8 (double).
#pragma once
#include <stddef.h>
#include <stdint.h>

constexpr int64_t optc_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t optc_round_up(int64_t a, int64_t b) { return optc_ceil_div(a, b) * b; }
constexpr int64_t optc_clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

// How n columns are divided into panels: `first` of `width` columns, then `others` of `other` columns.
struct OptcPanels {
  int width, other;
  int64_t first, others;
};
constexpr OptcPanels optc_gemm_panels(int64_t n, int64_t element = 4) {
  const int64_t vectors = n > 0 ? optc_ceil_div(n, 16) : 0;
  if (element == 8 && vectors > 2) return {32, 16, vectors / 2, vectors % 2};
  if (vectors == 1 || vectors == 2) return {int(vectors) * 16, 16, 1, 0};
  if (vectors == 5) return {48, 32, 1, 1};
  if (vectors % 3 != 0 && vectors % 4 == 0) return {64, 16, vectors / 4, 0};
  const int64_t fours = vectors % 3;  // 3 a + 4 b vectors, with the least b
  return {48, fours > 0 ? 64 : 16, (vectors - 4 * fours) / 3, fours};
}
constexpr int64_t optc_panel_count(const OptcPanels &p) { return p.first + p.others; }
constexpr int optc_panel_width(const OptcPanels &p, int64_t panel) { return panel < p.first ? p.width : p.other; }
// The first column of a panel; of the one behind the last: all columns, with those that are zero.
constexpr int64_t optc_panel_begin(const OptcPanels &p, int64_t panel) {
  return panel < p.first ? panel * p.width : p.first * p.width + (panel - p.first) * p.other;
}
constexpr int64_t optc_panel_columns(const OptcPanels &p) { return optc_panel_begin(p, optc_panel_count(p)); }
// The panel that a column lies in.
constexpr int64_t optc_panel_of(const OptcPanels &p, int64_t column) {
  const int64_t behind = column - p.first * p.width;
  return behind < 0 ? column / p.width : p.first + behind / p.other;
}

struct OptcGemm {
  int64_t m, n, k;
  OptcPanels panels;         // of the columns
  int64_t kc;                // rows of B in a block
  int64_t m_tasks, n_tasks;  // the grid of independent tasks; each element is summed in the same order in any grid
  bool prefetch;             // fetch the next panel while this one is in use: weights are seldom in the L2 cache still
};

// Whole K up to 1024, else equal blocks of at most 1024 rows.
constexpr int64_t optc_gemm_kc(int64_t k) {
  return k <= 1024 ? (k > 0 ? k : 1) : optc_round_up(optc_ceil_div(k, optc_ceil_div(k, 1024)), 8);
}

// Elements of the packed B.
constexpr int64_t optc_gemm_packed_floats(int64_t n, int64_t k, int64_t element = 4) {
  return k * optc_panel_columns(optc_gemm_panels(n, element));
}

// What is divided among threads: `copies` independent products of `units` (of `unit_rows` rows each) by `panels` (of
// up to `columns` columns), sums of k terms. unit_work: what a unit costs a task whatever its columns, in
// multiply-adds.
struct OptcWork {
  int64_t copies, units, unit_rows, panels, columns, k, unit_work;
};
struct OptcGrid {
  int64_t m_tasks, n_tasks;  // parts of the units and of the panels
};
// The grid that `threads` threads finish first, by a model of their time: `least` parts of the units and one of the
// panels, or more of both. Tasks are divided among threads as parallel of runtime/bundle/env.h does. All in
// multiply-adds, of which a core makes some 70 in a nanosecond; tiles of few rows wait for the columns' loads.
constexpr OptcGrid optc_divide(const OptcWork &w, int64_t threads, int64_t least) {
  constexpr int64_t kPart = 100000, kTask = 20000, kWake = 5000, kFloat = 10, kTile = 12, kFewRows = 8;
  OptcGrid best = {least, 1};
  const int64_t column_work = w.columns * w.k, rows_of_all = w.units * w.unit_rows;
  const int64_t total = w.copies * (rows_of_all < kFewRows ? kFewRows : rows_of_all) * w.panels * column_work;
  const int64_t parts = total / kPart < threads ? total / kPart : threads;
  if (parts <= 1 || w.copies < 1) return best;
  int64_t best_time = INT64_MAX, last = 0;
  for (int64_t n = 1; n <= w.panels && (n == 1 || n * w.copies <= 2 * parts); ++n) {
    const int64_t own = optc_ceil_div(w.panels, n);  // panels of a task at most
    if (own == last) continue;
    last = own;
    for (int64_t half = 2; half <= 5; ++half) {
      // So many parts of the units that each thread gets about one task, or two.
      int64_t m = (half / 2 * parts + (half % 2 ? n * w.copies - 1 : 0)) / (n * w.copies);
      if (m < least) m = optc_ceil_div(optc_ceil_div(least * n * w.copies, parts) * parts, n * w.copies);
      m = optc_clamp(m, least, w.units > least ? w.units : least);
      const int64_t units = optc_ceil_div(w.units, m), rows = units * w.unit_rows, tiles = optc_ceil_div(rows, kTile);
      const int64_t high = optc_ceil_div(rows, tiles < 1 ? 1 : tiles), tasks = w.copies * m * n;
      const int64_t task = tiles * (high < kFewRows ? kFewRows : high) * own * column_work +
                           kFloat * (rows * w.k + own * column_work) + units * w.unit_work + kTask;
      const int64_t time = optc_ceil_div(tasks, threads) * task + kWake * (tasks < threads ? tasks : threads);
      if (time < best_time) best_time = time, best = {m, n};
    }
  }
  return best;
}

// threads: that share the work with `copies` such products at a time; layouts do not depend on them, and what a task
// needs of memory is the most for one.
constexpr OptcGemm optc_gemm_plan(int64_t m, int64_t n, int64_t k, int64_t threads = 1, int64_t copies = 1,
                                  int64_t element = 4) {
  OptcGemm g{};
  g.m = m, g.n = n, g.k = k;
  g.panels = optc_gemm_panels(n, element);
  g.kc = optc_gemm_kc(k);
  const int64_t panels = optc_panel_count(g.panels);
  // Rows of a task: its part of A, kc wide, takes half of an L2 cache of 1 MB at most.
  const int64_t rows = optc_clamp(524288 / element / g.kc, 48, 192);
  g.m_tasks = m > 0 ? optc_ceil_div(m, rows) : 1;
  // About 8 MFLOP, or 256 KB of weights where few rows share them.
  const int64_t by_work = element / 2 * m * n * k / 8000000, by_bytes = n * k * element / 262144;
  g.n_tasks = optc_clamp((m <= 16 ? by_bytes : by_work) / g.m_tasks, 1, panels < 1 ? 1 : panels);
  if (threads > 1 && m > 0 && panels > 0) {
    const OptcGrid grid = optc_divide({copies, m, 1, panels, g.panels.width * element / 4, k, 0}, threads, g.m_tasks);
    g.m_tasks = grid.m_tasks, g.n_tasks = grid.n_tasks;
  }
  g.prefetch = panels > 1;
  return g;
}
constexpr int64_t optc_gemm_tasks(const OptcGemm &g) { return g.m_tasks * g.n_tasks; }

// Task t computes rows [m0, m1) and columns [n0, n1) of the panels [p0, p1).
struct OptcGemmTask {
  int64_t m0, m1, n0, n1;
  int64_t p0 = 0, p1 = 0;
};
constexpr OptcGemmTask optc_gemm_task(const OptcGemm &g, int64_t t) {
  const int64_t mi = t / g.n_tasks, ni = t % g.n_tasks, panels = optc_panel_count(g.panels);
  const int64_t p0 = panels * ni / g.n_tasks, p1 = panels * (ni + 1) / g.n_tasks;
  const int64_t n1 = optc_panel_begin(g.panels, p1);
  return {
      g.m * mi / g.m_tasks, g.m * (mi + 1) / g.m_tasks, optc_panel_begin(g.panels, p0), n1 < g.n ? n1 : g.n, p0, p1};
}

// Floats of a panel that is laid out at run time, at most (half as many doubles).
constexpr int64_t kOptcGemmPanelFloats = 1024 * 64;
// Scratch of a task of gemm_stored.h, in floats: a panel of B, its rows of A, and its partial sums unless they have a
// place.
constexpr int64_t optc_gemm_stored_floats(int64_t rows, int64_t columns, int64_t k, bool partial, int64_t element = 4) {
  const int64_t kc = optc_gemm_kc(k);
  return kOptcGemmPanelFloats +
         (rows * optc_round_up(kc, 16) + (partial && k > kc ? rows * columns : 0)) * (element / 4);
}

// Packs `depth` rows of B for one panel of its n columns; gives what lies behind it.
template <class T>
static inline T *optc_pack_panel(T *out, const T *b, int64_t depth, int64_t n, const OptcPanels &panels, int64_t panel,
                                 int64_t row_stride, int64_t column_stride) {
  const int64_t begin = optc_panel_begin(panels, panel), end = optc_panel_begin(panels, panel + 1);
  for (int64_t i = 0; i < depth; ++i)
    for (int64_t j = begin; j < end; ++j) *out++ = j < n ? b[i * row_stride + j * column_stride] : T(0);
  return out;
}

// Packs B, given by strides in elements: B[k][n] at b[k * row_stride + n * column_stride]. T: float, double, or the
// bits of a 16-bit type, which is multiplied as float.
template <class T>
constexpr int64_t optc_multiplied() {
  return sizeof(T) == 8 ? 8 : 4;
}
template <class T>
static inline void optc_pack_b(T *out, const T *b, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride) {
  const OptcPanels panels = optc_gemm_panels(n, optc_multiplied<T>());
  const int64_t kc = optc_gemm_kc(k);
  for (int64_t k0 = 0; k0 < k; k0 += kc)
    for (int64_t p = 0; p < optc_panel_count(panels); ++p)
      out =
          optc_pack_panel(out, b + k0 * row_stride, k - k0 < kc ? k - k0 : kc, n, panels, p, row_stride, column_stride);
}
