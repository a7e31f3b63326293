// gemm_i8.h: products of 8-bit integers into int32, exactly (modulo 2^32), by the plan and layout of gemm_i8_plan.h.
// Included inside an instruction-set namespace (foreach_isa.h).
//
// Four products and their sum are one instruction of AVX512_VNNI, and a tile of 16 x 16 x 64 is one of AMX, which
// optc_isa_dot() tells at run time. The other sets widen even and odd bytes to int16, where pairs of products cannot
// overflow.
#ifndef OPTC_CPU_GEMM_I8_H
#define OPTC_CPU_GEMM_I8_H
#include "runtime/cpu/dot_i8.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/gemm_i8_plan.h"

// The zero point of row or column i: value + the element at p + i * step (p null: value alone).
struct GemmZero {
  int32_t value = 0;
  const uint8_t *p = nullptr;
  int64_t step = 0;
  bool is_signed = false;
  OPTC_MEMBER int32_t at(int64_t i) const {
    return value + (!p ? 0 : is_signed ? (int32_t)(int8_t)p[i * step] : (int32_t)p[i * step]);
  }
};
OPTC_INLINE GemmZero gemm_zero(const uint8_t *p, int64_t step) { return {0, p, step, false}; }
OPTC_INLINE GemmZero gemm_zero(const int8_t *p, int64_t step) { return {0, (const uint8_t *)p, step, true}; }
OPTC_INLINE GemmZero gemm_zero(int32_t value) { return {value, nullptr, 0, false}; }

// to[0..n) = from[0..n), each with the bits of `flip` turned.
OPTC_INLINE void copy_flipped(uint8_t *to, const uint8_t *from, int64_t n, uint8_t flip) {
  if (!flip) {
    memcpy(to, from, (size_t)n);
    return;
  }
  int64_t i = 0;
  for (const uint64_t flips = flip * 0x0101010101010101u; i + 8 <= n; i += 8) {
    uint64_t word;
    memcpy(&word, from + i, 8);
    word ^= flips;
    memcpy(to + i, &word, 8);
  }
  for (; i < n; ++i) to[i] = from[i] ^ flip;
}

// A[i][k] at p + i * row + k * inner.
struct GemmI8Rows {
  const uint8_t *p;
  int64_t row, inner;
  bool is_signed;
  GemmZero zero;
  // Whether rows can be multiplied where they lie: no byte changes, and no block of k is left over.
  OPTC_MEMBER bool in_place(int64_t k, int64_t block) const { return inner == 1 && !is_signed && k % block == 0; }
  // Rows [m0, m0 + rows) as unsigned bytes, `ld` apart.
  OPTC_MEMBER void lay_out(int64_t m0, int64_t rows, int64_t k, int64_t ld, uint8_t *to) const {
    const uint8_t flip = is_signed ? 0x80 : 0;
    const uint8_t *from = p + m0 * row;
    for (int64_t i = 0; i < rows; ++i, from += row, to += ld) {
      if (inner == 1)
        copy_flipped(to, from, k, flip);
      else
        for (int64_t x = 0; x < k; ++x) to[x] = from[x * inner] ^ flip;
    }
  }
};
OPTC_INLINE GemmI8Rows gemm_i8_rows(const uint8_t *p, int64_t row, int64_t inner, GemmZero zero) {
  return {p, row, inner, false, zero};
}
OPTC_INLINE GemmI8Rows gemm_i8_rows(const int8_t *p, int64_t row, int64_t inner, GemmZero zero) {
  return {(const uint8_t *)p, row, inner, true, zero};
}
// B: packed (optc_gemm_i8_pack), or B[k][n] at p + k * inner + n * column.
struct GemmI8Columns {
  const uint8_t *packed, *p;
  int64_t inner, column;
  bool is_signed;
  GemmZero zero;
};
OPTC_INLINE GemmI8Columns gemm_i8_packed(const uint8_t *packed, bool is_signed, GemmZero zero) {
  return {packed, nullptr, 0, 0, is_signed, zero};
}
OPTC_INLINE GemmI8Columns gemm_i8_columns(const uint8_t *p, int64_t inner, int64_t column, GemmZero zero) {
  return {nullptr, p, inner, column, false, zero};
}
OPTC_INLINE GemmI8Columns gemm_i8_columns(const int8_t *p, int64_t inner, int64_t column, GemmZero zero) {
  return {nullptr, (const uint8_t *)p, inner, column, true, zero};
}

// MR rows of A, `lda` bytes apart, times NV vectors of a panel's columns, over `groups` groups of four rows of B that
// are `stride` bytes apart: sums[i][j].
template <int MR, int NV, bool Dot>
static OPTC_KERNEL void gemm_i8_tile(const uint8_t *a, int64_t lda, const uint8_t *b, int64_t stride, int64_t groups,
                                     int32_t *sums) {
  constexpr int KU = !Dot ? 1 : MR * NV <= 4 ? 4 : MR * NV <= 8 ? 2 : 1;  // interleaved sums, to cover the latency
  vi acc[KU][MR][NV];
  OPTC_UNROLL for (int u = 0; u < KU; ++u) OPTC_UNROLL for (int i = 0; i < MR; ++i)
      OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[u][i][j] = vi{};
  const auto step = [&](vi(&sum)[MR][NV]) OPTC_LAMBDA {
    vi v[NV];
    OPTC_UNROLL for (int j = 0; j < NV; ++j) v[j] = load((const int32_t *)(b + j * OPTC_VW * 4));
#if OPTC_X86 && OPTC_VW == 16
    if (Dot) {
      OPTC_UNROLL for (int i = 0; i < MR; ++i) {
        const vi s = quad(a + i * lda);
        OPTC_UNROLL for (int j = 0; j < NV; ++j)
            // g++ 12 copies the accumulators of the intrinsic.
            __asm__("vpdpbusd %2, %1, %0" : "+v"(sum[i][j]) : "v"(s), "v"(v[j]));
      }
      return;
    }
#endif
    vi even[NV], odd[NV];
    OPTC_UNROLL for (int j = 0; j < NV; ++j) even[j] = (vi)(((vi16w)v[j] << 8) >> 8), odd[j] = (vi)((vi16w)v[j] >> 8);
    OPTC_UNROLL for (int i = 0; i < MR; ++i) {
      vi s = quad(a + i * lda);
#if OPTC_X86
      __asm__("" : "+v"(s));  // one broadcast from memory, not two from general registers
#endif
      const vi e = s & 0x00ff00ff, o = (vi)((vu16w)s >> 8);
      OPTC_UNROLL for (int j = 0; j < NV; ++j) sum[i][j] = madd_i16(o, odd[j], madd_i16(e, even[j], sum[i][j]));
    }
  };
  int64_t g = 0;
  for (; g + KU <= groups; g += KU) {
    OPTC_UNROLL for (int u = 0; u < KU; ++u) {
      if (MR == 1) __builtin_prefetch(b + 1024, 0, 3);
      step(acc[u]);
      a += 4, b += stride;
    }
  }
  for (; KU > 1 && g < groups; ++g, a += 4, b += stride) step(acc[0]);
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) {
    vi sum = acc[0][i][j];
    OPTC_UNROLL for (int u = 1; u < KU; ++u) sum = (vi)((vu)sum + (vu)acc[u][i][j]);
    store(sums + (i * NV + j) * OPTC_VW, sum);
  }
}

// What zero points add to the sums of a task: of its rows, and of the columns of a panel.
struct GemmI8Terms {
  int32_t row_zero[256], row_term[256];  // za, sum a - K za
  int32_t column_zero[64];               // zb
  bool columns;                          // some zb is not 0
};

// Adds them, and hands the sums of [row, row + rows) x [column, column + columns) on. `at`: the column in the panel.
static OPTC_KERNEL void gemm_i8_finish(int32_t *sums, int64_t ld, const GemmI8Terms &t, const int32_t *column_sums,
                                       int64_t m0, int64_t row, int64_t column, int64_t at, int64_t rows,
                                       int64_t columns, const TileSinkOf<int32_t> &sink) {
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t zero = t.row_zero[row - m0 + i], term = t.row_term[row - m0 + i];
    if (zero == 0 && !t.columns) continue;
    for (int64_t j = 0; j < columns; j += OPTC_VW) {
      vu sum = (vu)load(sums + i * ld + j) - (vu)splat_i(zero) * (vu)load(column_sums + at + j);
      if (t.columns) sum -= (vu)splat_i(term) * (vu)load(t.column_zero + at + j);
      store(sums + i * ld + j, (vi)sum);
    }
  }
  sink(sums, ld, row, column, rows, columns);
}

// One panel, in columns [n, n1) of C, times rows [m0, m1), which start at a and are lda bytes apart.
struct GemmI8Block {
  const uint8_t *a;
  int64_t lda, k, m0, m1, n, n1;
  const uint8_t *panel;
};
template <int MR, int NV, bool Dot>
OPTC_INLINE void gemm_i8_rows_of(const GemmI8Block &p, const GemmI8Terms &t, int64_t &row, int64_t at, int64_t width,
                                 const TileSinkOf<int32_t> &sink) {
  constexpr int64_t kColumns = NV * OPTC_VW;
  for (; p.m1 - row >= MR; row += MR) {
    int32_t sums[MR * kColumns];
    gemm_i8_tile<MR, NV, Dot>(p.a + (row - p.m0) * p.lda, p.lda, p.panel + (width + at) * 4, width * 4,
                              optc_ceil_div(p.k, 4), sums);
    gemm_i8_finish(sums, kColumns, t, (const int32_t *)p.panel, p.m0, row, p.n + at, at, MR,
                   optc_clamp(p.n1 - p.n - at, 0, kColumns), sink);
  }
}
template <bool Dot>
static OPTC_KERNEL void gemm_i8_panel(const GemmI8Block &p, const GemmI8Terms &t, const TileSinkOf<int32_t> &sink) {
  const int64_t width = optc_gemm_i8_width(p.n1, p.n);
  int64_t at = 0;
  // As many accumulators as the registers hold.
#if OPTC_VW == 16
  if (width == 64) {
    int64_t row = p.m0;
    gemm_i8_rows_of<Dot ? 6 : 4, 4, Dot>(p, t, row, 0, width, sink);
    gemm_i8_rows_of<Dot ? 3 : 2, 4, Dot>(p, t, row, 0, width, sink);
    gemm_i8_rows_of<1, 4, Dot>(p, t, row, 0, width, sink);
    return;
  }
  constexpr int kRows = 8, kVectors = 1;
#elif OPTC_VW == 8
  constexpr int kRows = 4, kVectors = 2;
#else
  constexpr int kRows = 2, kVectors = 2;
#endif
  for (; at < width && p.n + at < p.n1; at += kVectors * OPTC_VW) {
    int64_t row = p.m0;
    gemm_i8_rows_of<kRows, kVectors, Dot>(p, t, row, at, width, sink);
    gemm_i8_rows_of<1, kVectors, Dot>(p, t, row, at, width, sink);
  }
}

#if OPTC_X86 && OPTC_VW == 16
// Tiles 0 to 3: sums of two by two blocks of 16 x 16; 4, 5: A; 6, 7: B.
OPTC_INLINE void amx_configure(int64_t first_rows, int64_t second_rows) {
  uint8_t c[64] __attribute__((aligned(64))) = {1};
  const int64_t rows[8] = {first_rows, first_rows, second_rows, second_rows, first_rows, second_rows, 16, 16};
  for (int t = 0; t < 8; ++t) c[16 + 2 * t] = rows[t] ? 64 : 0, c[48 + t] = (uint8_t)rows[t];
  __asm__ volatile("ldtilecfg %0" : : "m"(c) : "memory");
}
#define OPTC_AMX_LOAD(tile, p, stride) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define OPTC_AMX_STORE(tile, p, stride) \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define OPTC_AMX_DOT(sum, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : :)
#define OPTC_AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)

// Sums of 32 (Two: both tiles of A) or up to 16 rows, and 32 (Wide) or 16 columns.
template <bool Two, bool Wide>
static OPTC_KERNEL void gemm_i8_amx(const uint8_t *a, int64_t lda, const uint8_t *b, int64_t stride, int64_t k,
                                    int32_t *sums) {
  OPTC_AMX_ZERO(0);
  if (Wide) OPTC_AMX_ZERO(1);
  if (Two) OPTC_AMX_ZERO(2);
  if (Two && Wide) OPTC_AMX_ZERO(3);
  for (int64_t x = 0; x < k; x += 64, a += 64, b += 16 * stride) {
    OPTC_AMX_LOAD(6, b, stride);
    OPTC_AMX_LOAD(4, a, lda);
    OPTC_AMX_DOT(0, 4, 6);
    if (Wide) {
      OPTC_AMX_LOAD(7, b + 64, stride);
      OPTC_AMX_DOT(1, 4, 7);
    }
    if (Two) {
      OPTC_AMX_LOAD(5, a + 16 * lda, lda);
      OPTC_AMX_DOT(2, 5, 6);
      if (Wide) OPTC_AMX_DOT(3, 5, 7);
    }
  }
  OPTC_AMX_STORE(0, sums, 128);
  if (Wide) OPTC_AMX_STORE(1, sums + 16, 128);
  if (Two) OPTC_AMX_STORE(2, sums + 16 * 32, 128);
  if (Two && Wide) OPTC_AMX_STORE(3, sums + 16 * 32 + 16, 128);
}

// The panel times rows [row, row + rows), for which the tiles are configured. A has whole blocks of 64 bytes.
template <bool Two>
static OPTC_KERNEL void gemm_i8_amx_panel(const GemmI8Block &p, const GemmI8Terms &t, int64_t row, int64_t rows,
                                          const TileSinkOf<int32_t> &sink) {
  const int64_t width = optc_gemm_i8_width(p.n1, p.n);
  const uint8_t *a = p.a + (row - p.m0) * p.lda;
  int32_t sums[32 * 32] __attribute__((aligned(64)));
  for (int64_t at = 0; at < width && p.n + at < p.n1; at += 32) {
    const uint8_t *b = p.panel + (width + at) * 4;
    if (width - at >= 32)
      gemm_i8_amx<Two, true>(a, p.lda, b, width * 4, p.k, sums);
    else
      gemm_i8_amx<Two, false>(a, p.lda, b, width * 4, p.k, sums);
    gemm_i8_finish(sums, 32, t, (const int32_t *)p.panel, p.m0, row, p.n + at, at, rows,
                   optc_clamp(p.n1 - p.n - at, 0, 32), sink);
  }
}
#endif

// Sum of n bytes.
OPTC_INLINE uint32_t sum_bytes(const uint8_t *p, int64_t n) {
  vu sum = {};
  int64_t i = 0;
  for (; i + 4 * OPTC_VW <= n; i += 4 * OPTC_VW) {
    const vu v = (vu)load((const int32_t *)(p + i));
    sum += (v & 0xff) + ((v >> 8) & 0xff) + ((v >> 16) & 0xff) + (v >> 24);
  }
  uint32_t total = (uint32_t)reduce_sum((vi)sum);
  for (; i < n; ++i) total += p[i];
  return total;
}

// Task t of the plan; scratch: optc_gemm_i8_scratch bytes. `dot`: one of OPTC_DOT_*, at most optc_isa_dot(). Rows:
// GemmI8Rows, or a type with its members.
template <class Rows>
static OPTC_KERNEL void gemm_i8(const OptcGemmI8 &g, int64_t task, const Rows &a, const GemmI8Columns &b,
                                uint8_t *scratch, const TileSinkOf<int32_t> &sink, [[maybe_unused]] int dot) {
  const OptcGemmTask part = optc_gemm_i8_task(g, task);
  const int64_t rows = part.m1 - part.m0, k = g.k;
  if (rows <= 0 || part.n0 >= part.n1) return;
  [[maybe_unused]] const bool amx = OPTC_X86 && OPTC_VW == 16 && dot >= OPTC_DOT_AMX && rows > 4;
  const int32_t a_move = a.is_signed ? 128 : 0, b_move = b.is_signed ? 0 : -128;
  GemmI8Terms t;
  bool columns = false;
  for (int64_t n = part.n0; n < part.n1 && !columns; n = b.zero.step ? n + 1 : part.n1)
    columns = b.zero.at(n) + b_move != 0;
  // Of rows without elements no address is formed: there a.p may be null.
  const bool in_place = k > 0 && a.in_place(k, amx ? 64 : 4);
  const int64_t lda = in_place ? a.row : optc_gemm_i8_row(k);
  const uint8_t *bytes = in_place ? a.p + part.m0 * a.row : scratch;
  if (!in_place) {
    if (k > 0) a.lay_out(part.m0, rows, k, lda, scratch);
    for (int64_t i = 0; i < rows && lda > k; ++i) memset(scratch + i * lda + k, 0, (size_t)(lda - k));
  }
  for (int64_t i = 0; i < rows; ++i) {
    t.row_zero[i] = a.zero.at(part.m0 + i) + a_move;
    const uint32_t sum = columns ? sum_bytes(bytes + i * lda, k) : 0;
    t.row_term[i] = (int32_t)(sum - (uint32_t)k * (uint32_t)t.row_zero[i]);
  }
  const int64_t column_bytes = optc_gemm_i8_column(k);
  uint8_t *panel = scratch + rows * optc_gemm_i8_row(k);
  for (int64_t n = part.n0; n < part.n1; n += kOptcGemmI8Panel) {
    const int64_t width = optc_gemm_i8_width(part.n1, n), valid = optc_clamp(part.n1 - n, 0, width);
    GemmI8Block block = {bytes, lda, k, part.m0, part.m1, n, part.n1, b.packed ? b.packed + n * column_bytes : nullptr};
    if (!b.packed) {
      if (b.is_signed)
        optc_gemm_i8_pack_panel(panel, (const int8_t *)b.p, n, k, valid, width, b.inner, b.column);
      else
        optc_gemm_i8_pack_panel(panel, b.p, n, k, valid, width, b.inner, b.column);
      block.panel = panel;
    }
    t.columns = columns;
    for (int64_t j = 0; j < width; ++j) t.column_zero[j] = j < valid && columns ? b.zero.at(n + j) + b_move : 0;
#if OPTC_X86 && OPTC_VW == 16
    if (amx) {
      int64_t row = part.m0;
      if (rows >= 32) amx_configure(16, 16);
      for (; part.m1 - row >= 32; row += 32) gemm_i8_amx_panel<true>(block, t, row, 32, sink);
      if (part.m1 - row > 16) {
        amx_configure(16, part.m1 - row - 16);
        gemm_i8_amx_panel<true>(block, t, row, part.m1 - row, sink);
      } else if (part.m1 > row) {
        amx_configure(part.m1 - row, 0);
        gemm_i8_amx_panel<false>(block, t, row, part.m1 - row, sink);
      }
      continue;
    }
    if (dot >= OPTC_DOT_VNNI) {
      gemm_i8_panel<true>(block, t, sink);
      continue;
    }
#endif
    gemm_i8_panel<false>(block, t, sink);
  }
#if OPTC_X86 && OPTC_VW == 16
  if (amx) __asm__ volatile("tilerelease");
#endif
}
#endif  // OPTC_CPU_GEMM_I8_H
