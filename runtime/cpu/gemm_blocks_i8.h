// gemm_blocks_i8.h: products by weights of 4 and 8 bits that are quantized in blocks along the sum (gemm_blocks_plan.h)
// and activations of 8 bits in the same blocks. Included inside an instruction-set namespace (foreach_isa.h).
//
//   C[i][n] = sum over blocks b of a_scale[i][b] * w_scale[b][n] * (sum over k of b of a[i][k] * (q[k][n] -
//   zero[b][n]))
//
// The sum over a block is exact, in int32, and the same for every instruction set; what follows is float, block after
// block, for any number of threads. It is sum a q - zero sum a with q >= 0, so that four products of unsigned and
// signed bytes are one instruction of AVX512_VNNI. For 4 bits AVX2 has pairs of products in int16, which 2 * 15 * 128
// cannot overflow; other sets, and 8 bits without VNNI, widen even and odd bytes to int16.
#ifndef OPTC_CPU_GEMM_BLOCKS_I8_H
#define OPTC_CPU_GEMM_BLOCKS_I8_H
#include "runtime/cpu/dot_i8.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/gemm_blocks_plan.h"

// A[i][k] = p[i * row + k * inner] * scales[i * scale_row + k / block * scale_block].
struct BlockRows {
  const int8_t *p;
  int64_t row, inner;
  const float *scales;
  int64_t scale_row, scale_block;
};
// zeros: where they differ from the center, else null.
template <int Bits, bool Zeros>
struct BlockBytes {
  static constexpr int kBits = Bits, kCodes = 32 / Bits;
  static constexpr int32_t kHalf = 1 << (Bits - 1);
  static constexpr bool kZeros = Zeros;
  const uint32_t *codes;
  const float *scales;
  const int8_t *zeros;
  int64_t block;
};

// The rows of a task as they are laid out for the tiles: bytes with zeros behind k, and what is one a block.
struct BlockI8Rows {
  const int8_t *bytes;
  const float *scales;
  const int32_t *sums;
  int64_t ld, blocks;
};

// Sum of n signed bytes.
OPTC_INLINE int32_t sum_signed_bytes(const int8_t *p, int64_t n) {
  constexpr uint64_t kEven = 0x00ff00ff00ff00ff, kPairs = 0x0000ffff0000ffff;
  int32_t total = 0;
  int64_t i = 0;
  for (int64_t whole = n / 8, some; whole > 0; whole -= some) {
    some = whole < 64 ? whole : 64;
    uint64_t sums = 0;  // four of 16 bits
    for (int64_t x = 0; x < some; ++x, i += 8) {
      uint64_t word;
      memcpy(&word, p + i, 8);
      word ^= 0x8080808080808080;  // plus 128 each
      sums += (word & kEven) + ((word >> 8) & kEven);
    }
    sums = (sums & kPairs) + ((sums >> 16) & kPairs);
    total += (int32_t)((uint32_t)sums + (uint32_t)(sums >> 32)) - (int32_t)(8 * 128 * some);
  }
  for (; i < n; ++i) total += p[i];
  return total;
}

// Rows [m0, m0 + rows) into scratch (optc_gemm_blocks_i8_bytes).
static OPTC_KERNEL BlockI8Rows lay_out_block_rows(const BlockRows &a, int64_t m0, int64_t rows, int64_t k,
                                                  int64_t block, uint8_t *scratch) {
  const int64_t ld = optc_gemm_blocks_i8_row(k), blocks = optc_block_count(k, block);
  int8_t *bytes = (int8_t *)scratch;
  float *scales = (float *)(scratch + rows * ld);
  int32_t *sums = (int32_t *)(scales + rows * blocks);
  for (int64_t i = 0; i < rows; ++i) {
    const int8_t *from = a.p + (m0 + i) * a.row;
    int8_t *to = bytes + i * ld;
    if (a.inner == 1)
      memcpy(to, from, (size_t)k);
    else
      for (int64_t x = 0; x < k; ++x) to[x] = from[x * a.inner];
    memset(to + k, 0, (size_t)(ld - k));
    for (int64_t b = 0; b < blocks; ++b) {
      scales[i * blocks + b] = a.scales[(m0 + i) * a.scale_row + b * a.scale_block];
      sums[i * blocks + b] = sum_signed_bytes(to + b * block, optc_clamp(k - b * block, 0, block));
    }
  }
  return {bytes, scales, sums, ld, blocks};
}

// sum + the products of the unsigned bytes w with the signed ones a, of each lane.
template <bool Dot>
OPTC_INLINE vi dot_bytes(vi w, vi a, vi sum) {
#if OPTC_X86 && OPTC_VW == 16
  if (Dot) {
    // g++ 12 copies the accumulators of the intrinsic.
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(a));
    return sum;
  }
#endif
  const vi even = w & 0x00ff00ff, odd = (vi)((vu16w)w >> 8);
  return madd_i16(odd, (vi)((vi16w)a >> 8), madd_i16(even, (vi)(((vi16w)a << 8) >> 8), sum));
}
#if OPTC_X86 && OPTC_VW >= 8
// Products of unsigned bytes w and signed ones a, in pairs; those of 4 bits are far from where a sum saturates.
OPTC_INLINE vi16w madd_bytes(vi w, vi a) {
#if OPTC_VW == 16
  return (vi16w)_mm512_maddubs_epi16((__m512i)w, (__m512i)a);
#else
  return (vi16w)_mm256_maddubs_epi16((__m256i)w, (__m256i)a);
#endif
}
#endif
// The same of the eight numbers of 4 bits of a word: low halves with `low`, high ones with `high`.
template <bool Dot>
OPTC_INLINE vi dot_halves(vi word, vi low, vi high, vi sum) {
  const vi first = word & 0x0f0f0f0f, second = (vi)((vu)word >> 4) & 0x0f0f0f0f;
#if OPTC_X86 && OPTC_VW >= 8
  if (!Dot) {
    const vi16w pairs = madd_bytes(first, low) + madd_bytes(second, high);
    return madd_i16((vi)pairs, splat_i(0x00010001), sum);
  }
#endif
  return dot_bytes<Dot>(second, high, dot_bytes<Dot>(first, low, sum));
}

// The sums of `rows` rows (at most MR) from `first` of the task on, times NV vectors of columns of the panel of `nr`
// columns that begins at column n, from its column `at` on. C's row is `row`.
struct BlockI8Tile {
  int64_t first, rows, row, k, n, n1, nr, at;
};
template <class W, int MR, int NV, bool Dot>
static OPTC_KERNEL void blocks_i8_tile(const W &w, const BlockI8Rows &a, const BlockI8Tile &t, const TileSink &sink) {
  constexpr int kColumns = NV * OPTC_VW;
  const int32_t *codes = (const int32_t *)w.codes + t.n * optc_block_groups(t.k, W::kBits) + t.at;
  const float *scales = w.scales + t.n * a.blocks + t.at;
  const int8_t *zeros = W::kZeros ? w.zeros + t.n * a.blocks + t.at : nullptr;
  int64_t rows[MR];
  OPTC_UNROLL for (int i = 0; i < MR; ++i) rows[i] = t.first + (i < t.rows ? i : t.rows - 1);
  vf sums[MR][NV];
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) sums[i][j] = vf{};
  for (int64_t b = 0; b < a.blocks; ++b, scales += t.nr) {
    const int64_t begin = b * w.block, end = begin + optc_clamp(t.k - begin, 0, w.block);
    vi acc[MR][NV];
    OPTC_UNROLL for (int j = 0; j < NV; ++j) {
      vi zero = splat_i(W::kHalf);
      if (W::kZeros) zero += load_i8(zeros + j * OPTC_VW);
      OPTC_UNROLL for (int i = 0; i < MR; ++i) {
        const int32_t sum = -a.sums[rows[i] * a.blocks + b];
        acc[i][j] = W::kZeros ? zero * splat_i(sum) : splat_i(W::kHalf * sum);
      }
    }
    for (int64_t k = begin; k < end; k += W::kCodes, codes += t.nr) {
      vi low[MR], high[MR];
      OPTC_UNROLL for (int i = 0; i < MR; ++i) {
        const uint8_t *at = (const uint8_t *)a.bytes + rows[i] * a.ld + k;
        low[i] = quad(at);
        if (W::kBits == 4) high[i] = quad(at + 4);
      }
      OPTC_UNROLL for (int j = 0; j < NV; ++j) {
        const vi word = load(codes + j * OPTC_VW);
        if (j % (16 / OPTC_VW) == 0) __builtin_prefetch((const char *)(codes + j * OPTC_VW) + 2048, 0, 3);
        OPTC_UNROLL for (int i = 0; i < MR; ++i) acc[i][j] =
            W::kBits == 4 ? dot_halves<Dot>(word, low[i], high[i], acc[i][j]) : dot_bytes<Dot>(word, low[i], acc[i][j]);
      }
    }
    OPTC_UNROLL for (int j = 0; j < NV; ++j) {
      const vf scale = load(scales + j * OPTC_VW);
      OPTC_UNROLL for (int i = 0; i < MR; ++i) sums[i][j] =
          fma(to_f32(acc[i][j]) * scale, splat(a.scales[rows[i] * a.blocks + b]), sums[i][j]);
    }
    if (W::kZeros) zeros += t.nr;
  }
  float out[MR][kColumns];
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j)
      store(&out[i][j * OPTC_VW], sums[i][j]);
  sink(&out[0][0], kColumns, t.row, t.n + t.at, t.rows, optc_clamp(t.n1 - t.n - t.at, 0, kColumns));
}
template <class W, int MR, int NV, bool Dot>
OPTC_INLINE void blocks_i8_tiles(const W &w, const BlockI8Rows &a, BlockI8Tile &t, const TileSink &sink) {
  for (; t.at + NV * OPTC_VW <= t.nr && t.n + t.at < t.n1; t.at += NV * OPTC_VW)
    blocks_i8_tile<W, MR, NV, Dot>(w, a, t, sink);
}
// As many vectors at a time as the registers hold.
template <class W, int MR, bool Dot>
static OPTC_KERNEL void blocks_i8_panel(const W &w, const BlockI8Rows &a, BlockI8Tile t, const TileSink &sink) {
#if OPTC_VW == 16
  if (MR <= 2) {
    blocks_i8_tiles<W, MR, 4, Dot>(w, a, t, sink);
    blocks_i8_tiles<W, MR, 3, Dot>(w, a, t, sink);
  }
  blocks_i8_tiles<W, MR, 2, Dot>(w, a, t, sink);
  blocks_i8_tiles<W, MR, 1, Dot>(w, a, t, sink);
#else
  if (MR == 1) blocks_i8_tiles<W, MR, 4, Dot>(w, a, t, sink);
  blocks_i8_tiles<W, MR, MR == 4 ? 1 : 2, Dot>(w, a, t, sink);  // panels are 16 columns wide, or a multiple
#endif
}
template <class W, bool Dot>
static OPTC_KERNEL void blocks_i8_rows(const OptcGemm &g, const OptcGemmTask &task, const W &w, const BlockI8Rows &a,
                                       const TileSink &sink) {
  for (int64_t p = task.p0; p < task.p1; ++p)  // a panel stays in the cache
    for (int64_t row = task.m0; row < task.m1; row += 4) {
      const int64_t rows = optc_clamp(task.m1 - row, 0, 4);
      const BlockI8Tile tile = {
          row - task.m0, rows, row, g.k, optc_panel_begin(g.panels, p), task.n1, optc_panel_width(g.panels, p), 0};
      rows == 1   ? blocks_i8_panel<W, 1, Dot>(w, a, tile, sink)
      : rows == 2 ? blocks_i8_panel<W, 2, Dot>(w, a, tile, sink)
                  : blocks_i8_panel<W, 4, Dot>(w, a, tile, sink);
    }
}

// Task t of the plan; scratch: optc_gemm_blocks_i8_bytes of its rows. `dot`: one of OPTC_DOT_*, at most optc_isa_dot().
template <class W>
static OPTC_KERNEL void gemm_blocks_i8(const OptcGemm &g, int64_t t, const BlockRows &a, const W &w, uint8_t *scratch,
                                       const TileSink &sink, [[maybe_unused]] int dot) {
  const OptcGemmTask task = optc_gemm_task(g, t);
  if (task.m0 >= task.m1 || task.n0 >= task.n1) return;
  const BlockI8Rows rows = lay_out_block_rows(a, task.m0, task.m1 - task.m0, g.k, w.block, scratch);
#if OPTC_X86 && OPTC_VW == 16
  if (dot >= OPTC_DOT_VNNI) return blocks_i8_rows<W, true>(g, task, w, rows, sink);
#endif
  blocks_i8_rows<W, false>(g, task, w, rows, sink);
}
#endif  // OPTC_CPU_GEMM_BLOCKS_I8_H
