// conv_plan.h: shapes of 2-D convolutions, the choice of algorithm, how the work is divided, and the layouts of packed
// weights. The same for every instruction set and for the compiler (C++17; usable from C++20). A 1-D convolution is one
// with h = kh = 1.
//
// Images are NHWC; the source of a convolution is given by strides, so that the first one may read NCHW. Weights enter
// as ONNX has them: [oc, c / groups, kh, kw].
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "runtime/cpu/gemm_plan.h"

struct OptcConvShape {
  int64_t n, h, w, c, oc;  // n, h, w may be unknown (0) where a shape is used for constants only
  int64_t kh, kw, sh, sw, dh, dw;
  int64_t pad_top, pad_left, pad_bottom, pad_right;
  int64_t groups;
};
constexpr int64_t optc_conv_out(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pads) {
  const int64_t free = in + pads - (kernel - 1) * dilation - 1;
  return free < 0 ? 0 : free / stride + 1;
}
constexpr int64_t optc_conv_oh(const OptcConvShape &s) {
  return optc_conv_out(s.h, s.kh, s.sh, s.dh, s.pad_top + s.pad_bottom);
}
constexpr int64_t optc_conv_ow(const OptcConvShape &s) {
  return optc_conv_out(s.w, s.kw, s.sw, s.dw, s.pad_left + s.pad_right);
}

enum OptcConvAlgorithm {
  OPTC_CONV_GEMM,
  OPTC_CONV_DIRECT,
  OPTC_CONV_DEPTHWISE,
  OPTC_CONV_WINOGRAD2,
  OPTC_CONV_WINOGRAD4
};

// GEMM: 1x1 without padding. Depthwise: one channel a group, as many out as in. Winograd for 3x3 of stride 1: F(4,3)
// (error about 4 times that of a direct sum) where its weights, four times the plain ones, stay in reach of the caches
// and the map has enough 4x4 tiles; F(2,3) (no less accurate than a direct sum) on smaller maps. `strict` refuses
// F(4,3).
constexpr OptcConvAlgorithm optc_conv_algorithm(const OptcConvShape &s, bool strict) {
  if (s.groups > 1 && s.groups == s.c && s.oc == s.c) return OPTC_CONV_DEPTHWISE;
  const bool no_pads = s.pad_top == 0 && s.pad_left == 0 && s.pad_bottom == 0 && s.pad_right == 0;
  if (s.kh == 1 && s.kw == 1 && s.groups == 1 && no_pads) return OPTC_CONV_GEMM;
  const bool winograd = s.kh == 3 && s.kw == 3 && s.sh == 1 && s.sw == 1 && s.dh == 1 && s.dw == 1 && s.groups == 1 &&
                        s.c >= 32 && s.oc >= 32;
  if (!winograd) return OPTC_CONV_DIRECT;
  const int64_t oh = optc_conv_oh(s), ow = optc_conv_ow(s);
  if (!strict && 36 * 4 * s.c * s.oc <= 6000000 && (s.h == 0 || (oh >= 12 && ow >= 8))) return OPTC_CONV_WINOGRAD4;
  return s.h == 0 || (oh >= 4 && ow >= 4) ? OPTC_CONV_WINOGRAD2 : OPTC_CONV_DIRECT;
}

// --- direct. Groups of few channels are joined, with zeros between them, until they fill a vector: `joined` of them
// make one. (An infinity or NaN in one of the joined groups then reaches the others, by its product with zero.)
constexpr int64_t optc_conv_joined(const OptcConvShape &s) {
  int64_t joined = 1;
  const int64_t oc = s.oc / s.groups;
  while (oc * joined < 16 && s.groups % (joined * 2) == 0) joined *= 2;
  return joined;
}

struct OptcDirect {
  int64_t groups, c, oc;  // after joining: channels in and out of a group
  int nr;
  int64_t oh, ow;
  int64_t row_tasks, oc_tasks;  // tasks: (image, group, band of output rows, run of panels)
  int64_t band_rows;            // most output rows of a band
  int64_t in_rows, in_cols;     // of the padded band
  int64_t scratch_floats;       // a task's padded copy of its band
  bool prefetch;
};
constexpr OptcDirect optc_direct_plan(const OptcConvShape &s) {
  OptcDirect d{};
  const int64_t joined = optc_conv_joined(s);
  d.groups = s.groups / joined;
  d.c = s.c / d.groups, d.oc = s.oc / d.groups;
  d.nr = optc_gemm_nr(d.oc);
  d.oh = optc_conv_oh(s), d.ow = optc_conv_ow(s);
  const int64_t k = s.kh * s.kw * d.c, panels = optc_ceil_div(d.oc, d.nr);
  const int64_t rows = optc_clamp(optc_ceil_div(256, d.ow > 0 ? d.ow : 1), 1, d.oh > 0 ? d.oh : 1);
  d.row_tasks = d.oh > 0 ? optc_ceil_div(d.oh, rows) : 1;
  d.band_rows = optc_ceil_div(d.oh, d.row_tasks);
  d.in_rows = (d.band_rows - 1) * s.sh + (s.kh - 1) * s.dh + 1;
  d.in_cols = (d.ow - 1) * s.sw + (s.kw - 1) * s.dw + 1;
  const int64_t work = 2 * d.band_rows * d.ow * d.oc * k / 8000000;
  d.oc_tasks = optc_clamp(work, 1, panels);
  d.scratch_floats = optc_clamp(d.in_rows * d.in_cols, 0, INT64_MAX) * d.c + 16;
  d.prefetch = k * d.oc * 4 > 1500000;
  return d;
}
constexpr int64_t optc_direct_tasks(const OptcConvShape &s, const OptcDirect &d) {
  return s.n * d.groups * d.row_tasks * d.oc_tasks;
}
// Packed weights: for each group the panels [oc / nr][kh][kw][c][nr].
constexpr int64_t optc_direct_packed_floats(const OptcConvShape &s) {
  const OptcDirect d = optc_direct_plan(s);
  return d.groups * s.kh * s.kw * d.c * optc_round_up(d.oc, d.nr);
}
static inline void optc_direct_pack(const OptcConvShape &s, const float *weights, float *out) {
  const OptcDirect d = optc_direct_plan(s);
  const int64_t own_c = s.c / s.groups, own_oc = s.oc / s.groups;
  for (int64_t g = 0; g < d.groups; ++g)
    for (int64_t o0 = 0; o0 < d.oc; o0 += d.nr)
      for (int64_t y = 0; y < s.kh; ++y)
        for (int64_t x = 0; x < s.kw; ++x)
          for (int64_t c = 0; c < d.c; ++c)
            for (int64_t o = o0; o < o0 + d.nr; ++o) {
              const bool present = o < d.oc && o / own_oc == c / own_c;
              *out++ = present ? weights[(((g * d.oc + o) * own_c + c % own_c) * s.kh + y) * s.kw + x] : 0.0f;
            }
}

// --- depthwise: weights [kh][kw][c]; tasks are (image, band of output rows).
static inline void optc_depthwise_pack(const OptcConvShape &s, const float *weights, float *out) {
  for (int64_t t = 0; t < s.kh * s.kw; ++t)
    for (int64_t c = 0; c < s.c; ++c) *out++ = weights[c * s.kh * s.kw + t];
}
constexpr int64_t optc_depthwise_row_tasks(const OptcConvShape &s) {
  const int64_t oh = optc_conv_oh(s), work = oh * optc_conv_ow(s) * s.c * s.kh * s.kw / 200000;
  return optc_clamp(work, 1, oh > 0 ? oh : 1);
}
constexpr int64_t optc_depthwise_tasks(const OptcConvShape &s) { return s.n * optc_depthwise_row_tasks(s); }

// --- Winograd F(m, 3), m = 2 or 4 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015): tiles
// of a x a inputs, a = m + 2.
struct OptcWinograd {
  int64_t m, a, oh, ow, tile_rows, tile_cols, tiles;  // tiles of all images
  int nr;
  int64_t block;  // tiles of a task at most
  int64_t block_tasks, oc_tasks;
  int64_t scratch_floats;
  bool prefetch;
};
constexpr OptcWinograd optc_winograd_plan(const OptcConvShape &s, int64_t m) {
  OptcWinograd p{};
  p.m = m, p.a = m + 2;
  p.oh = optc_conv_oh(s), p.ow = optc_conv_ow(s);
  p.tile_rows = optc_ceil_div(p.oh, m), p.tile_cols = optc_ceil_div(p.ow, m);
  p.tiles = s.n * p.tile_rows * p.tile_cols;
  p.nr = optc_gemm_nr(s.oc);
  // The transformed inputs and products of a block stay in a 2 MB L2 cache, beside one panel of weights.
  const int64_t most = optc_clamp(1048576 / (p.a * p.a * (s.c + s.oc) * 4), 12, 48);
  p.block_tasks = optc_clamp(optc_ceil_div(p.tiles, most), 1, INT64_MAX);
  p.block = optc_ceil_div(p.tiles, p.block_tasks);
  // Few blocks: columns are divided too, though each part transforms the inputs again.
  p.oc_tasks = p.block_tasks >= 4 ? 1 : optc_clamp(s.oc / 128, 1, 4 / p.block_tasks);
  p.scratch_floats = p.a * p.a * p.block * (optc_round_up(s.c, 16) + optc_round_up(s.oc, 16)) + 64;
  p.prefetch = p.a * p.a * s.c * s.oc * 4 > 1000000;
  return p;
}
constexpr int64_t optc_winograd_tasks(const OptcWinograd &p) { return p.block_tasks * p.oc_tasks; }
// Transformed weights: [a * a][oc / nr][c][nr].
constexpr int64_t optc_winograd_packed_floats(const OptcConvShape &s, int64_t m) {
  return (m + 2) * (m + 2) * s.c * optc_round_up(s.oc, optc_gemm_nr(s.oc));
}
static inline void optc_winograd_row(int64_t m, const double *g, double *o) {  // G g
  if (m == 2) {
    o[0] = g[0], o[1] = (g[0] + g[1] + g[2]) / 2, o[2] = (g[0] - g[1] + g[2]) / 2, o[3] = g[2];
  } else {
    o[0] = g[0] / 4, o[1] = -(g[0] + g[1] + g[2]) / 6, o[2] = -(g[0] - g[1] + g[2]) / 6;
    o[3] = (g[0] + 2 * g[1] + 4 * g[2]) / 24, o[4] = (g[0] - 2 * g[1] + 4 * g[2]) / 24, o[5] = g[2];
  }
}
static inline void optc_winograd_pack(const OptcConvShape &s, int64_t m, const float *weights, float *out) {
  const int64_t a = m + 2, nr = optc_gemm_nr(s.oc), padded = optc_round_up(s.oc, nr);
  for (int64_t o = 0; o < padded; ++o)
    for (int64_t c = 0; c < s.c; ++c) {
      double t[6][3] = {}, u[6][6] = {};
      if (o < s.oc) {
        const float *w = weights + (o * s.c + c) * 9;
        for (int j = 0; j < 3; ++j) {
          const double column[3] = {w[j], w[3 + j], w[6 + j]};
          double r[6];
          optc_winograd_row(m, column, r);
          for (int64_t i = 0; i < a; ++i) t[i][j] = r[i];
        }
        for (int64_t i = 0; i < a; ++i) optc_winograd_row(m, t[i], u[i]);
      }
      for (int64_t i = 0; i < a * a; ++i)
        out[(i * padded + o / nr * nr) * s.c + c * nr + o % nr] = static_cast<float>(u[i / a][i % a]);
    }
}
