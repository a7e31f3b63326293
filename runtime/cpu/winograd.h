// winograd.h: 3x3 convolutions of stride 1 by Winograd's F(m x m, 3 x 3), m = 2 or 4 (conv_plan.h). Included inside an
// instruction-set namespace (foreach_isa.h). The sink as in conv.h. The transforms spread an infinity or NaN over a
// tile and may overflow before their results do: what of a tile is not finite is computed again as the sum that it is.
#ifndef OPTC_CPU_WINOGRAD_H
#define OPTC_CPU_WINOGRAD_H
#include "runtime/cpu/conv.h"

// The one-dimensional transforms: o = B^T d of m + 2 inputs, o = A^T q to m outputs.
template <int M>
struct WinogradTransform;
template <>
struct WinogradTransform<2> {
  OPTC_MEMBER static void input(const vf *d, vf *o) {
    o[0] = d[0] - d[2];
    o[1] = d[1] + d[2];
    o[2] = d[2] - d[1];
    o[3] = d[1] - d[3];
  }
  OPTC_MEMBER static void output(const vf *q, vf *o) {
    o[0] = q[0] + q[1] + q[2];
    o[1] = q[1] - q[2] - q[3];
  }
};
template <>
struct WinogradTransform<4> {
  OPTC_MEMBER static void input(const vf *d, vf *o) {
    const vf four = splat(4.0f), five = splat(5.0f), two = splat(2.0f);
    o[0] = fma(four, d[0], fma(-five, d[2], d[4]));
    const vf a = fma(-four, d[2], d[4]), b = fma(-four, d[1], d[3]);
    o[1] = a + b;
    o[2] = a - b;
    const vf c = d[4] - d[2], e = two * (d[3] - d[1]);
    o[3] = c + e;
    o[4] = c - e;
    o[5] = fma(four, d[1], fma(-five, d[3], d[5]));
  }
  OPTC_MEMBER static void output(const vf *q, vf *o) {
    const vf a = q[1] + q[2], b = q[1] - q[2], c = q[3] + q[4], e = q[3] - q[4];
    o[0] = q[0] + a + c;
    o[1] = fma(splat(2.0f), e, b);
    o[2] = fma(splat(4.0f), c, a);
    o[3] = fma(splat(8.0f), e, b) + q[5];
  }
};

// OPTC_VW channels of one tile: in[i * row_step + j * column_step] to v[(i * a + j) * step].
template <int M>
static OPTC_KERNEL void winograd_input(const float *in, int64_t row_step, int64_t column_step, float *v, int64_t step) {
  constexpr int A = M + 2;
  vf t[A][A];
  OPTC_UNROLL for (int j = 0; j < A; ++j) {
    vf d[A], o[A];
    OPTC_UNROLL for (int i = 0; i < A; ++i) d[i] = load(in + i * row_step + j * column_step);
    WinogradTransform<M>::input(d, o);
    OPTC_UNROLL for (int i = 0; i < A; ++i) t[i][j] = o[i];
  }
  OPTC_UNROLL for (int i = 0; i < A; ++i) {
    vf o[A];
    WinogradTransform<M>::input(t[i], o);
    OPTC_UNROLL for (int j = 0; j < A; ++j) store(v + (i * A + j) * step, o[j]);
  }
}

// The inputs of tiles [t0, t1). Rows of v are `ldv` floats, a multiple of OPTC_VW: what lies beyond c is written and
// never read.
template <int M>
static OPTC_KERNEL void winograd_inputs(const OptcConvShape &s, const OptcWinograd &p, const ConvSource &src,
                                        int64_t t0, int64_t t1, float *v, int64_t ldv) {
  constexpr int A = M + 2;
  const int64_t step = p.block * ldv, map = p.tile_rows * p.tile_cols;
  for (int64_t t = t0; t < t1; ++t, v += ldv) {
    const int64_t y = t % map / p.tile_cols * M - s.pad_top, x = t % p.tile_cols * M - s.pad_left;
    const float *in = src.p + t / map * src.image + y * src.row + x * src.pixel;
    const bool inside = y >= 0 && y + A <= s.h && x >= 0 && x + A <= s.w;
    for (int64_t c = 0; c < s.c; c += OPTC_VW) {
      if (inside && c + OPTC_VW <= s.c) {
        winograd_input<M>(in + c, src.row, src.pixel, v + c, step);
        continue;
      }
      float patch[A * A * OPTC_VW];
      const int n = int(optc_clamp(s.c - c, 0, OPTC_VW));
      for (int i = 0; i < A; ++i)
        for (int j = 0; j < A; ++j) {
          const bool present = y + i >= 0 && y + i < s.h && x + j >= 0 && x + j < s.w;
          store(patch + (i * A + j) * OPTC_VW, present ? load_n(in + i * src.row + j * src.pixel + c, n) : vf{});
        }
      winograd_input<M>(patch, A * OPTC_VW, OPTC_VW, v + c, step);
    }
  }
}

constexpr int kWinogradColumns = 64;  // output channels that go to the sink together

// OPTC_VW channels of the outputs of one tile, from q[i * step] to results[i][j][0, OPTC_VW). Whether the first n are
// finite; what lies behind them in q was not computed.
template <int M>
static OPTC_KERNEL bool winograd_output(const float *q, int64_t step, int64_t n, float *results) {
  constexpr int A = M + 2;
  vf t[M][A];
  OPTC_UNROLL for (int j = 0; j < A; ++j) {
    vf d[A], o[M];
    OPTC_UNROLL for (int i = 0; i < A; ++i) d[i] = load(q + (i * A + j) * step);
    WinogradTransform<M>::output(d, o);
    OPTC_UNROLL for (int i = 0; i < M; ++i) t[i][j] = o[i];
  }
  vf odd = {};  // NaN in the lanes of what is not finite
  OPTC_UNROLL for (int i = 0; i < M; ++i) {
    vf o[M];
    WinogradTransform<M>::output(t[i], o);
    OPTC_UNROLL for (int j = 0; j < M; ++j) {
      store(results + (i * M + j) * kWinogradColumns, o[j]);
      odd = fma(o[j], vf{}, odd);
    }
  }
  float lanes[OPTC_VW], any = 0;
  store(lanes, odd);
  for (int64_t i = 0; i < optc_clamp(n, 0, OPTC_VW); ++i) any += lanes[i];
  return any == 0;
}

// The same results as sums over the window, from OPTC_VW output channels of the packed weights: packed + i * panel_step
// + c * nr holds those of input channel c in the i-th of the transformed weights, of which each weight is the
// difference of two or one of the outer ones. (y, x): the tile's first input, which may lie in the padding.
template <int M>
static OPTC_KERNEL void winograd_sums(const OptcConvShape &s, const ConvSource &src, const float *image, int64_t y,
                                      int64_t x, const float *packed, int64_t panel_step, int64_t nr, float *results) {
  constexpr int A = M + 2;
  // Weight k of three: scale[k] * (u[first[k]] - u[second[k]]), without the latter where it is 0.
  static const int first[3] = {0, M == 2 ? 1 : 2, A - 1}, second[3] = {0, M == 2 ? 2 : 1, 0};
  static const float scale[3] = {M == 2 ? 1.0f : 4.0f, M == 2 ? 1.0f : 3.0f, 1.0f};
  vf sums[M][M] = {};
  for (int64_t c = 0; c < s.c; ++c) {
    const float *u = packed + c * nr;
    for (int ky = 0; ky < 3; ++ky)
      for (int kx = 0; kx < 3; ++kx) {
        vf w = {}, of = {};  // of: the sum of the magnitudes
        for (int a = 0; a < (second[ky] ? 2 : 1); ++a) {
          const float *row = u + (a ? second[ky] : first[ky]) * A * panel_step;
          vf v = load(row + first[kx] * panel_step);
          of = of + abs(v);
          if (second[kx]) {
            const vf other = load(row + second[kx] * panel_step);
            of = of + abs(other);
            v = v - other;
          }
          w = a ? w - v : v;
        }
        // A weight of zero must be one: it makes a NaN of an infinity. What is lost is below the transforms' rounding.
        w = select(abs(w) <= splat(0x1p-23f) * of, vf{}, w);
        w = w * splat(scale[ky] * scale[kx]);
        for (int i = 0; i < M; ++i)
          for (int j = 0; j < M; ++j) {
            const int64_t iy = y + i + ky, ix = x + j + kx;
            if (iy >= 0 && iy < s.h && ix >= 0 && ix < s.w)
              sums[i][j] = fma(splat(image[iy * src.row + ix * src.pixel + c]), w, sums[i][j]);
          }
      }
  }
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < M; ++j) store(results + (i * M + j) * kWinogradColumns, sums[i][j]);
}

// Task t of `p`, optc_winograd_plan(s, M). scratch: p.scratch_floats floats of the running thread. Weights by
// optc_winograd_pack.
template <int M>
static OPTC_KERNEL void conv_winograd(const OptcConvShape &s, const OptcWinograd &p, int64_t t, const ConvSource &src,
                                      const float *packed, float *scratch, const TileSink &sink) {
  constexpr int A = M + 2;
  const int64_t ldv = optc_round_up(s.c, 16), ldq = optc_round_up(s.oc, 16);
  const int64_t block = t / p.oc_tasks, part = t % p.oc_tasks, panels = optc_panel_count(p.panels);
  const int64_t t0 = p.tiles * block / p.block_tasks, t1 = p.tiles * (block + 1) / p.block_tasks;
  const int64_t p0 = panels * part / p.oc_tasks, p1 = panels * (part + 1) / p.oc_tasks;
  const int64_t n0 = optc_panel_begin(p.panels, p0), n1 = optc_clamp(optc_panel_begin(p.panels, p1), 0, s.oc);
  const int64_t padded = optc_panel_columns(p.panels);
  float *v = (float *)(((uintptr_t)scratch + 63) / 64 * 64), *q = v + A * A * p.block * ldv;

  winograd_inputs<M>(s, p, src, t0, t1, v, ldv);
  for (int i = 0; i < A * A; ++i) {
    const GemmRows rows = {v + i * p.block * ldv, ldv};
    for (int64_t j = p0; j < p1; ++j) {
      const int64_t n = optc_panel_begin(p.panels, j);
      const GemmPanel panel = {packed + (i * padded + n) * s.c,
                               optc_panel_width(p.panels, j),
                               0,
                               s.c,
                               n,
                               n1,
                               true,
                               false,
                               q + i * p.block * ldq,
                               ldq,
                               true,
                               p.tiles <= kGemmFewRows};
      gemm_panel(rows, panel, 0, t1 - t0, sink);
    }
  }
  const int64_t map = p.tile_rows * p.tile_cols;
  for (int64_t tile = t0; tile < t1; ++tile) {
    const int64_t y = tile % map / p.tile_cols * M, x = tile % p.tile_cols * M;
    const int64_t rows = optc_clamp(p.oh - y, 0, M), cols = optc_clamp(p.ow - x, 0, M),
                  row = (tile / map * p.oh + y) * p.ow + x;
    const float *from = q + (tile - t0) * ldq;
    for (int64_t c = n0; c < n1; c += kWinogradColumns) {
      float results[M * M * kWinogradColumns];
      const int64_t n = optc_clamp(n1 - c, 0, kWinogradColumns);
      for (int64_t j = 0; j < n; j += OPTC_VW)
        if (!winograd_output<M>(from + c + j, p.block * ldq, n - j, results + j)) {
          const int64_t at = optc_panel_of(p.panels, c + j), begin = optc_panel_begin(p.panels, at);
          winograd_sums<M>(s, src, src.p + tile / map * src.image, y - s.pad_top, x - s.pad_left,
                           packed + begin * s.c + c + j - begin, padded * s.c, optc_panel_width(p.panels, at),
                           results + j);
        }
      for (int64_t i = 0; i < rows; ++i)
        sink(results + i * M * kWinogradColumns, kWinogradColumns, row + i * p.ow, c, cols, n);
    }
  }
}

// All tasks.
template <int M, class Env>
static OPTC_KERNEL void convolve_winograd(const Env &env, const OptcConvShape &s, const ConvSource &x,
                                          const float *packed, const TileSink &sink) {
  const OptcWinograd p = optc_winograd_plan(s, M, env.threads);
  parallel(env, optc_winograd_tasks(p), 1, [&](int64_t begin, int64_t end, uint8_t *scratch) {
    for (int64_t t = begin; t < end; ++t)
      conv_winograd<M>(s, p, t, x, packed, reinterpret_cast<float *>(scratch), sink);
  });
}
#endif  // OPTC_CPU_WINOGRAD_H
