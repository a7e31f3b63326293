// gemm_i8_plan.h: how a product of 8-bit integers is divided and how its second factor is laid out. The same for every
// instruction set and for the compiler, which packs constants with it (C++17; usable from C++20).
//
// C[M,N] = (A[M,K] - za) * (B[K,N] - zb) in int32, modulo 2^32. All instructions take A as unsigned and B as signed
// bytes, so an operand of the other kind has its highest bit flipped, and its zero point moves by 128 with it. What the
// zero points add is a term of each row and column, made of the sums of the bytes:
//   sum (a - za)(b - zb) = sum a b - za * (sum b - K zb) - zb * sum a.
//
// B is packed in panels of 64 columns, the last one of as many as there are, rounded up to 16. A panel: the sums of its
// columns (int32 each), then for each group of four rows of B the four bytes of each column; zeros beyond K and N.
// Behind the last panel lie kOptcGemmI8Slack bytes that are read and multiplied by zeros.
#pragma once
#include <stdint.h>

#include "runtime/cpu/gemm_plan.h"

constexpr int64_t kOptcGemmI8Panel = 64;
constexpr int64_t kOptcGemmI8Slack = 4096;

constexpr int64_t optc_gemm_i8_width(int64_t n, int64_t first) {
  return n - first < kOptcGemmI8Panel ? optc_round_up(n - first, 16) : kOptcGemmI8Panel;
}
// Bytes of a column of a panel, its sum included.
constexpr int64_t optc_gemm_i8_column(int64_t k) { return 4 + optc_round_up(k, 4); }
constexpr int64_t optc_gemm_i8_packed_bytes(int64_t n, int64_t k) {
  return optc_round_up(n, 16) * optc_gemm_i8_column(k) + kOptcGemmI8Slack;
}
// Bytes of a row of A that was laid out for a task.
constexpr int64_t optc_gemm_i8_row(int64_t k) { return optc_round_up(k > 0 ? k : 1, 64); }
// Rows of a task at most: they take a quarter of an L2 cache of 1 MB.
constexpr int64_t optc_gemm_i8_rows(int64_t k) { return optc_clamp(262144 / optc_gemm_i8_row(k), 32, 256); }
// Scratch of a task: its rows of A, then a panel where B was not packed before.
constexpr int64_t optc_gemm_i8_scratch(int64_t m, int64_t k, bool packed) {
  const int64_t rows = optc_gemm_i8_rows(k) < m ? optc_gemm_i8_rows(k) : m;
  return rows * optc_gemm_i8_row(k) + (packed ? 0 : kOptcGemmI8Panel * optc_gemm_i8_column(k) + kOptcGemmI8Slack);
}

struct OptcGemmI8 {
  int64_t m, n, k;
  int64_t m_tasks, n_tasks;  // the grid of independent tasks
};
// threads: that share the work with `copies` such products at a time; layouts do not depend on them, and what a task
// needs of memory is the most for one.
constexpr OptcGemmI8 optc_gemm_i8_plan(int64_t m, int64_t n, int64_t k, int64_t threads = 1, int64_t copies = 1) {
  OptcGemmI8 g{m, n, k, 1, 1};
  const int64_t panels = optc_ceil_div(n, kOptcGemmI8Panel);
  g.m_tasks = m > 0 ? optc_ceil_div(m, optc_gemm_i8_rows(k)) : 1;
  // About 16 million operations, or 128 KB of weights where few rows share them.
  const int64_t by_work = 2 * m * n * k / 16000000, by_bytes = n * k / 131072;
  g.n_tasks = optc_clamp((m <= 16 ? by_bytes : by_work) / g.m_tasks, 1, panels < 1 ? 1 : panels);
  if (threads > 1 && m > 0 && panels > 0) {
    // Four products of bytes take the time, and the memory, of one of floats.
    const OptcGrid grid =
        optc_divide({copies, m, 1, panels, kOptcGemmI8Panel, optc_ceil_div(k, 4), 0}, threads, g.m_tasks);
    g.m_tasks = grid.m_tasks, g.n_tasks = grid.n_tasks;
  }
  return g;
}
constexpr int64_t optc_gemm_i8_tasks(const OptcGemmI8 &g) { return g.m_tasks * g.n_tasks; }
// Task t computes rows [m0, m1) and columns [n0, n1); n0 is a multiple of the panels' width.
constexpr OptcGemmTask optc_gemm_i8_task(const OptcGemmI8 &g, int64_t t) {
  const int64_t mi = t / g.n_tasks, ni = t % g.n_tasks, panels = optc_ceil_div(g.n, kOptcGemmI8Panel);
  const int64_t n1 = panels * (ni + 1) / g.n_tasks * kOptcGemmI8Panel;
  return {g.m * mi / g.m_tasks, g.m * (mi + 1) / g.m_tasks, panels * ni / g.n_tasks * kOptcGemmI8Panel,
          n1 < g.n ? n1 : g.n};
}

// One panel of `columns` columns from column `first` on: B[k][n] at b[k * row_stride + n * column_stride], in elements.
template <class T>
inline void optc_gemm_i8_pack_panel(uint8_t *out, const T *b, int64_t first, int64_t k, int64_t columns, int64_t width,
                                    int64_t row_stride, int64_t column_stride) {
  const uint8_t flip = T(-1) > T(0) ? 0x80 : 0;  // unsigned ones become signed
  uint8_t *bytes = out + 4 * width;
  for (int64_t j = 0; j < width; ++j) {
    uint32_t sum = 0;
    uint8_t *to = bytes + 4 * j;
    for (int64_t i = 0; i < k || i % 4 != 0; ++i) {
      const bool in = j < columns && i < k;  // no address is formed of what lies outside: b may be null where k is 0
      const uint8_t byte = in ? uint8_t(uint8_t(b[i * row_stride + (first + j) * column_stride]) ^ flip) : 0;
      sum += uint32_t(int32_t(int8_t(byte)));
      to[i / 4 * 4 * width + i % 4] = byte;
    }
    __builtin_memcpy(out + 4 * j, &sum, 4);
  }
}
template <class T>
inline void optc_gemm_i8_pack(uint8_t *out, const T *b, int64_t k, int64_t n, int64_t row_stride,
                              int64_t column_stride) {
  for (int64_t n0 = 0; n0 < n; n0 += kOptcGemmI8Panel) {
    const int64_t width = optc_gemm_i8_width(n, n0), columns = n - n0 < width ? n - n0 : width;
    optc_gemm_i8_pack_panel(out, b, n0, k, columns, width, row_stride, column_stride);
    out += width * optc_gemm_i8_column(k);
  }
  for (int64_t i = 0; i < kOptcGemmI8Slack; ++i) out[i] = 0;
}
