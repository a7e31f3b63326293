// gemm_blocks.h: products by weights of 4 and 8 bits that are quantized in blocks along the sum (gemm_blocks_plan.h),
// in float. Included inside an instruction-set namespace (foreach_isa.h).
//
// Of few rows the weights are what is read: they are decoded in registers, and the sum over a block is scaled once, so
// that a sum is the dequantized product's but for the order of its roundings: the sum over a block must not overflow
// before it is scaled. Of more rows, a panel of weights is dequantized into the cache and goes through the tiles of
// gemm.h, whose sums they are to the bit.
#ifndef OPTC_CPU_GEMM_BLOCKS_H
#define OPTC_CPU_GEMM_BLOCKS_H
#include "runtime/cpu/gemm_blocks_plan.h"
#include "runtime/cpu/gemm_stored.h"

// How a zero point is stored: not at all (it is the center), as int8_t, as float.
enum class BlockZero { kCenter, kByte, kFloat };
// What a dequantized weight is rounded to.
enum class BlockRound { kNone, kF16, kBF16 };

template <int Bits, BlockZero Zero, BlockRound Round>
struct BlockWeights {
  static constexpr int kBits = Bits, kCodes = 32 / Bits;
  static constexpr BlockZero kZero = Zero;
  static constexpr BlockRound kRound = Round;
  const uint32_t *codes;
  const float *scales;
  const void *zeros;
  int64_t block;
  float center;  // what was subtracted from the numbers; a float zero point is one of them as they were

  OPTC_MEMBER vf zero(int64_t i) const {
    if (Zero == BlockZero::kByte) return __builtin_convertvector(load_i8((const int8_t *)zeros + i), vf);
    return Zero == BlockZero::kFloat ? load((const float *)zeros + i) : vf{};
  }
};

// The codes of a word as floats. AVX-512 looks those of 4 bits up, which takes the low bits of each lane alone.
template <class W>
struct BlockDecoder {
  vf table;  // AVX-512, 4 bits; else the center in all lanes
  OPTC_INLINE BlockDecoder of(const W &w) {
    const float center = W::kZero == BlockZero::kFloat ? w.center : 0.0f;
    BlockDecoder d;
    d.table = splat(center);
    if (OPTC_VW == 16 && W::kBits == 4) {
      for (int i = 0; i < OPTC_VW; ++i) d.table[i] = (float)(i < 8 ? i : i - 16) + center;
    }
    return d;
  }
  // Number u of the word; AVX-512 of 4 bits: the lowest, and the word moves on to the next.
  OPTC_MEMBER vf next(vi &word, int u) const {
#if OPTC_X86 && OPTC_VW == 16
    if (W::kBits == 4) {
      const vf x = (vf)_mm512_maskz_permutexvar_ps(0xffff, (__m512i)word, (__m512)table);
      word = (vi)((vu)word >> 4);
      return x;
    }
#endif
    const vi code = (vi)((vu)word << (32 - W::kBits * (u + 1))) >> (32 - W::kBits);
    const vf x = __builtin_convertvector(code, vf);
    return W::kZero == BlockZero::kFloat ? x + table : x;
  }
};

template <class W>
OPTC_INLINE vf block_weight(vf code, vf zero, vf scale) {
  const vf x = (W::kZero == BlockZero::kCenter ? code : code - zero) * scale;
  return W::kRound == BlockRound::kF16 ? round_to_f16(x) : W::kRound == BlockRound::kBF16 ? round_to_bf16(x) : x;
}

// The sums of `rows` rows of A (at most MR), `lda` floats apart with zeros behind k, times NV vectors of columns of the
// panel of `nr` columns that begins at column n, from its column `at` on.
struct BlockTile {
  const float *a;
  int64_t lda, row, rows, k, n, n1, nr, at;
};
template <class W, int MR, int NV>
static OPTC_KERNEL void blocks_tile(const W &w, const BlockTile &t, const TileSink &sink) {
  constexpr int kColumns = NV * OPTC_VW;
  constexpr bool kScaled = W::kRound == BlockRound::kNone;  // sums over a block are scaled
  const BlockDecoder<W> decoder = BlockDecoder<W>::of(w);
  const int32_t *codes = (const int32_t *)w.codes + t.n * optc_block_groups(t.k, W::kBits) + t.at;
  const float *scales = w.scales + t.n * optc_block_count(t.k, w.block) + t.at;
  int64_t zeros = t.n * optc_block_count(t.k, w.block) + t.at;
  const float *a[MR];
  OPTC_UNROLL for (int i = 0; i < MR; ++i) a[i] = t.a + (i < t.rows ? i : t.rows - 1) * t.lda;
  float sums[MR][kColumns];
  for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) store(&sums[i][j * OPTC_VW], vf{});
  for (int64_t k0 = 0; k0 < t.k; k0 += w.block, scales += t.nr, zeros += t.nr) {
    const int64_t end = k0 + optc_clamp(t.k - k0, 0, w.block);
    vf acc[MR][NV], zero[NV], scale[NV];
    OPTC_UNROLL for (int j = 0; j < NV; ++j) {
      zero[j] = w.zero(zeros + j * OPTC_VW);
      if (!kScaled) scale[j] = load(scales + j * OPTC_VW);
      OPTC_UNROLL for (int i = 0; i < MR; ++i) acc[i][j] = vf{};
    }
    for (int64_t k = k0; k < end; k += W::kCodes, codes += t.nr) {
      vi word[NV];
      OPTC_UNROLL for (int j = 0; j < NV; ++j) {
        word[j] = load(codes + j * OPTC_VW);
        if (j % (16 / OPTC_VW) == 0) __builtin_prefetch((const char *)(codes + j * OPTC_VW) + 2048, 0, 3);
      }
      OPTC_UNROLL for (int u = 0; u < W::kCodes; ++u) {
        vf x[NV];
        OPTC_UNROLL for (int j = 0; j < NV; ++j) {
          x[j] = decoder.next(word[j], u);
          if (!kScaled)
            x[j] = block_weight<W>(x[j], zero[j], scale[j]);
          else if (W::kZero != BlockZero::kCenter)
            x[j] = x[j] - zero[j];
        }
        OPTC_UNROLL for (int i = 0; i < MR; ++i) {
          const vf s = splat(a[i][k + u]);
          OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = fma(s, x[j], acc[i][j]);
        }
      }
    }
    OPTC_UNROLL for (int j = 0; j < NV; ++j) {
      if (kScaled) scale[j] = load(scales + j * OPTC_VW);
      OPTC_UNROLL for (int i = 0; i < MR; ++i) {
        const vf sum = load(&sums[i][j * OPTC_VW]);
        store(&sums[i][j * OPTC_VW], kScaled ? fma(acc[i][j], scale[j], sum) : sum + acc[i][j]);
      }
    }
  }
  sink(&sums[0][0], kColumns, t.row, t.n + t.at, t.rows, optc_clamp(t.n1 - t.n - t.at, 0, kColumns));
}
template <class W, int MR, int NV>
OPTC_INLINE void blocks_tiles(const W &w, BlockTile &t, const TileSink &sink) {
  for (; t.at + NV * OPTC_VW <= t.nr && t.n + t.at < t.n1; t.at += NV * OPTC_VW) blocks_tile<W, MR, NV>(w, t, sink);
}
// As many vectors at a time as the registers hold.
template <class W, int MR>
static OPTC_KERNEL void blocks_panel(const W &w, BlockTile t, const TileSink &sink) {
#if OPTC_VW == 16
  blocks_tiles<W, MR, 4>(w, t, sink);
  blocks_tiles<W, MR, 3>(w, t, sink);
  blocks_tiles<W, MR, 2>(w, t, sink);
  blocks_tiles<W, MR, 1>(w, t, sink);
#else
  if (MR == 1) blocks_tiles<W, MR, 4>(w, t, sink);
  blocks_tiles<W, MR, 2>(w, t, sink);  // panels are 16 columns wide, or a multiple
#endif
}

// out[i * nr + j] = the weight at k0 + i, column j of the panel that begins at column n, for kc rows. k0 is a multiple
// of 8.
template <class W>
static OPTC_KERNEL void widen_blocks(float *out, const W &w, int64_t k, int64_t n, int64_t nr, int64_t k0, int64_t kc) {
  const BlockDecoder<W> decoder = BlockDecoder<W>::of(w);
  const int64_t blocks = optc_block_count(k, w.block);
  const int32_t *codes = (const int32_t *)w.codes + n * optc_block_groups(k, W::kBits) + k0 / W::kCodes * nr;
  int64_t b = k0 / w.block, left = w.block - k0 % w.block;  // rows of block b
  for (int64_t i = 0; i < kc; i += W::kCodes, codes += nr) {
    if (left <= 0) ++b, left = w.block;
    left -= W::kCodes;
    const int64_t of_block = (n * blocks) + b * nr, rows = kc - i;
    for (int64_t j = 0; j < nr; j += OPTC_VW) {
      const vf zero = w.zero(of_block + j), scale = load(w.scales + of_block + j);
      vi word = load(codes + j);
      float *to = out + i * nr + j;
      if (rows >= W::kCodes) {
        OPTC_UNROLL for (int u = 0; u < W::kCodes; ++u)
            store(to + u * nr, block_weight<W>(decoder.next(word, u), zero, scale));
      } else {
        OPTC_UNROLL for (int u = 0; u < W::kCodes; ++u) {
          const vf x = block_weight<W>(decoder.next(word, u), zero, scale);
          if (u < rows) store(to + u * nr, x);
        }
      }
    }
  }
}

// Task t of the plan, with few rows.
template <class A, class W>
static OPTC_KERNEL void gemm_blocks_few(const OptcGemm &g, const OptcGemmTask &task, const StoredRows<A> &a, const W &w,
                                        float *scratch, const TileSink &sink) {
  const int64_t ld = optc_round_up(g.k, 16);
  for (int64_t row = task.m0; row < task.m1; row += kOptcBlockFewRows) {
    const int64_t rows = optc_clamp(task.m1 - row, 0, kOptcBlockFewRows);
    widen_block<A>(scratch, ld, a.p + row * a.row, rows, g.k, ld, a.row, a.inner);
    for (int64_t p = task.p0; p < task.p1; ++p) {
      const BlockTile tile = {
          scratch, ld, row, rows, g.k, optc_panel_begin(g.panels, p), task.n1, optc_panel_width(g.panels, p), 0};
      rows == 1   ? blocks_panel<W, 1>(w, tile, sink)
      : rows == 2 ? blocks_panel<W, 2>(w, tile, sink)
                  : blocks_panel<W, 4>(w, tile, sink);
    }
  }
}

// Task t of the plan. `partial` as in gemm(), or null: in the scratch (optc_gemm_blocks_floats).
template <class A, class W>
static OPTC_KERNEL void gemm_blocks(const OptcGemm &g, int64_t t, const StoredRows<A> &a, const W &w, float *partial,
                                    int64_t ldp, float *scratch, const TileSink &sink) {
  const OptcGemmTask task = optc_gemm_task(g, t);
  if (g.k == 0) return gemm_zeros(task, sink);
  const int64_t rows = task.m1 - task.m0, ld = optc_round_up(g.kc, 16);
  if (rows <= 0) return;
  if (g.m <= kOptcBlockFewRows) return gemm_blocks_few(g, task, a, w, scratch, sink);
  float *staged = scratch + kOptcGemmPanelFloats;
  if (!partial) {
    ldp = task.n1 - task.n0;
    partial = staged + rows * ld - task.m0 * ldp - task.n0;
  }
  for (int64_t k0 = 0; k0 < g.k; k0 += g.kc) {
    const int64_t kc = g.k - k0 < g.kc ? g.k - k0 : g.kc;
    widen_block<A>(staged, ld, a.p + task.m0 * a.row + k0 * a.inner, rows, kc, optc_round_up(kc, 16), a.row, a.inner);
    const GemmRows widened = {staged - task.m0 * ld - k0, ld};
    for (int64_t p = task.p0; p < task.p1; ++p) {
      widen_blocks(scratch, w, g.k, optc_panel_begin(g.panels, p), optc_panel_width(g.panels, p), k0, kc);
      gemm_panel(widened, gemm_panel_at(g, p, k0, scratch, task.n1, partial, ldp, false), task.m0, task.m1, sink);
    }
  }
}
#endif  // OPTC_CPU_GEMM_BLOCKS_H
