// conv_plan.h: shapes of convolutions, the choice of algorithm, how the work is divided, and the layouts of packed
// weights. The same for every instruction set and for the compiler (C++17; usable from C++20). A 1-D convolution is one
// with h = kh = 1; of three dims are volumes, d planes of h rows.
//
// Images are NHWC (NDHWC); the source of a convolution is given by strides, so that the first one may read NCHW.
// Weights enter as ONNX has them: [oc, c / groups, kd, kh, kw].
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "runtime/cpu/gemm_plan.h"

struct OptcConvShape {
  int64_t n, h, w, c, oc;  // n, h, w may be unknown (0) where a shape is used for constants only
  int64_t kh, kw, sh, sw, dh, dw;
  int64_t pad_top, pad_left, pad_bottom, pad_right;
  int64_t groups;
  int64_t d = 1, kd = 1, sd = 1, dd = 1, pad_front = 0, pad_back = 0;  // of planes; d may be unknown, too
  int64_t element = 4;                                                 // as in gemm_plan.h
};
constexpr OptcConvShape optc_of_double(OptcConvShape s) {
  s.element = 8;
  return s;
}
constexpr int64_t optc_conv_out(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pads) {
  const int64_t free = in + pads - (kernel - 1) * dilation - 1;
  return free < 0 ? 0 : free / stride + 1;
}
constexpr int64_t optc_conv_od(const OptcConvShape &s) {
  return optc_conv_out(s.d, s.kd, s.sd, s.dd, s.pad_front + s.pad_back);
}
constexpr int64_t optc_conv_oh(const OptcConvShape &s) {
  return optc_conv_out(s.h, s.kh, s.sh, s.dh, s.pad_top + s.pad_bottom);
}
constexpr int64_t optc_conv_ow(const OptcConvShape &s) {
  return optc_conv_out(s.w, s.kw, s.sw, s.dw, s.pad_left + s.pad_right);
}

constexpr bool optc_conv_flat(const OptcConvShape &s) {  // one plane of one tap
  return s.d == 1 && s.kd == 1 && s.sd == 1 && s.pad_front == 0 && s.pad_back == 0;
}

enum OptcConvAlgorithm {
  OPTC_CONV_GEMM,
  OPTC_CONV_DIRECT,
  OPTC_CONV_DEPTHWISE,
  OPTC_CONV_WINOGRAD2,
  OPTC_CONV_WINOGRAD4
};

// Whether Winograd's algorithms can compute it: 3x3 of stride 1.
constexpr bool optc_winograd_can(const OptcConvShape &s) {
  return optc_conv_flat(s) && s.kh == 3 && s.kw == 3 && s.sh == 1 && s.sw == 1 && s.dh == 1 && s.dw == 1 &&
         s.groups == 1;
}

// GEMM: 1x1 without padding (of volumes: without strides). Depthwise: one channel a group, as many out as in, of one
// plane. Winograd for 3x3 of stride 1: F(4,3)
// (error about 4 times that of a direct sum) where its weights, four times the plain ones, stay in reach of the caches
// and the map has enough 4x4 tiles; F(2,3) (no less accurate than a direct sum) on smaller maps. `strict` refuses
// F(4,3). Of double there are the first two.
constexpr OptcConvAlgorithm optc_conv_algorithm(const OptcConvShape &s, bool strict) {
  const bool no_pads = s.pad_top == 0 && s.pad_left == 0 && s.pad_bottom == 0 && s.pad_right == 0;
  if (s.element == 8 && optc_conv_flat(s)) {
    const bool pixels = s.kh == 1 && s.kw == 1 && s.groups == 1;
    return pixels && no_pads ? OPTC_CONV_GEMM : OPTC_CONV_DIRECT;
  }
  if (!optc_conv_flat(s)) {
    const bool pixels = s.kd == 1 && s.kh == 1 && s.kw == 1 && s.groups == 1 && s.sd == 1 && s.sh == 1 && s.sw == 1;
    return pixels && no_pads && s.pad_front == 0 && s.pad_back == 0 ? OPTC_CONV_GEMM : OPTC_CONV_DIRECT;
  }
  if (s.groups > 1 && s.groups == s.c && s.oc == s.c) return OPTC_CONV_DEPTHWISE;
  if (s.kh == 1 && s.kw == 1 && s.groups == 1 && no_pads) return OPTC_CONV_GEMM;
  if (!optc_winograd_can(s) || s.c < 32 || s.oc < 32) return OPTC_CONV_DIRECT;
  const int64_t oh = optc_conv_oh(s), ow = optc_conv_ow(s);
  if (!strict && 36 * 4 * s.c * s.oc <= 6000000 && (s.h == 0 || (oh >= 12 && ow >= 8))) return OPTC_CONV_WINOGRAD4;
  return s.h == 0 || (oh >= 4 && ow >= 4) ? OPTC_CONV_WINOGRAD2 : OPTC_CONV_DIRECT;
}

// --- direct. Groups of few channels are joined, with zeros between them, until they fill a vector: `joined` of them
// make one. (Where an input is not finite, which a zero would make NaN, they are summed apart.)
constexpr int64_t optc_conv_joined(const OptcConvShape &s) {
  int64_t joined = 1;
  const int64_t oc = s.oc / s.groups;
  while (oc * joined < 16 && s.groups % (joined * 2) == 0) joined *= 2;
  return joined;
}

// Taps that lie outside are left out, instead of read from a border of zeros, where they are a fifth of all or more:
// those of dilated kernels on small maps. Only of an image whose channels lie innermost, and of groups that are not
// joined.
constexpr double optc_conv_inside(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation,
                                  int64_t pad) {  // the share of one axis
  double inside = 0;
  for (int64_t k = 0; k < kernel; ++k) {
    const int64_t before = pad - k * dilation, last = in - 1 + before;
    const int64_t first = before > 0 ? optc_ceil_div(before, stride) : 0, end = last < 0 ? 0 : last / stride + 1;
    inside += static_cast<double>(optc_clamp((end < out ? end : out) - first, 0, out));
  }
  return out > 0 && kernel > 0 ? inside / (static_cast<double>(out) * static_cast<double>(kernel)) : 1;
}
constexpr bool optc_direct_skips(const OptcConvShape &s) {
  return optc_conv_joined(s) == 1 && optc_conv_inside(s.d, optc_conv_od(s), s.kd, s.sd, s.dd, s.pad_front) *
                                             optc_conv_inside(s.h, optc_conv_oh(s), s.kh, s.sh, s.dh, s.pad_top) *
                                             optc_conv_inside(s.w, optc_conv_ow(s), s.kw, s.sw, s.dw, s.pad_left) <=
                                         0.8;
}

struct OptcDirect {
  int64_t groups, c, oc;  // after joining: channels in and out of a group
  OptcPanels panels;      // of oc
  int64_t od, oh, ow;
  int64_t row_tasks, oc_tasks;  // tasks: (image, output plane, group, band of output rows, run of panels)
  int64_t band_rows;            // most output rows of a band
  int64_t in_rows, in_cols;     // of the padded band, in each of its kd planes
  int64_t scratch_floats;       // a task's padded copy of its band, which one that skips has not
  bool prefetch;
};
// threads as in optc_gemm_plan: scratch_floats is the most for one, the layouts are the same for all.
constexpr OptcDirect optc_direct_plan(const OptcConvShape &s, int64_t threads = 1) {
  OptcDirect d{};
  const int64_t joined = optc_conv_joined(s);
  d.groups = s.groups / joined;
  d.c = s.c / d.groups, d.oc = s.oc / d.groups;
  d.panels = optc_gemm_panels(d.oc, s.element);
  d.od = optc_conv_od(s), d.oh = optc_conv_oh(s), d.ow = optc_conv_ow(s);
  const int64_t k = s.kd * s.kh * s.kw * d.c, panels = optc_panel_count(d.panels);
  const int64_t rows = optc_clamp(optc_ceil_div(256, d.ow > 0 ? d.ow : 1), 1, d.oh > 0 ? d.oh : 1);
  d.row_tasks = d.oh > 0 ? optc_ceil_div(d.oh, rows) : 1;
  const int64_t copies = s.n * d.od * d.groups;
  if (threads > 1 && copies > 0 && d.oh > 0 && d.ow > 0 && d.oc > 0) {
    // A band is copied for each of its parts of the columns.
    const OptcGrid grid = optc_divide(
        {copies, d.oh, d.ow, panels, d.panels.width * s.element / 4, k, s.kd * s.sh * s.w * d.c * s.element}, threads,
        d.row_tasks);
    d.row_tasks = grid.m_tasks, d.oc_tasks = grid.n_tasks;
  }
  d.band_rows = optc_ceil_div(d.oh, d.row_tasks);
  d.in_rows = (d.band_rows - 1) * s.sh + (s.kh - 1) * s.dh + 1;
  d.in_cols = (d.ow - 1) * s.sw + (s.kw - 1) * s.dw + 1;
  if (d.oc_tasks == 0) d.oc_tasks = optc_clamp(s.element / 2 * d.band_rows * d.ow * d.oc * k / 8000000, 1, panels);
  d.scratch_floats = optc_clamp(d.in_rows * d.in_cols, 0, INT64_MAX) * s.kd * d.c + 16;
  d.prefetch = panels > 1;
  return d;
}
constexpr int64_t optc_direct_tasks(const OptcConvShape &s, const OptcDirect &d) {
  return s.n * d.od * d.groups * d.row_tasks * d.oc_tasks;
}
// Packed weights: for each group its panels of oc, each [kd][kh][kw][c][columns].
constexpr int64_t optc_direct_packed_floats(const OptcConvShape &s) {
  const OptcDirect d = optc_direct_plan(s);
  return d.groups * s.kd * s.kh * s.kw * d.c * optc_panel_columns(d.panels);
}
// weight(filter, channel of its group, z, y, x): the weight of one tap.
template <class Weight, class T>
static inline void optc_direct_pack_taps(const OptcConvShape &s, const Weight &weight, T *out) {
  const OptcDirect d = optc_direct_plan(s);
  const int64_t own_c = s.c / s.groups, own_oc = s.oc / s.groups;
  for (int64_t g = 0; g < d.groups; ++g)
    for (int64_t p = 0; p < optc_panel_count(d.panels); ++p)
      for (int64_t z = 0; z < s.kd; ++z)
        for (int64_t y = 0; y < s.kh; ++y)
          for (int64_t x = 0; x < s.kw; ++x)
            for (int64_t c = 0; c < d.c; ++c)
              for (int64_t o = optc_panel_begin(d.panels, p); o < optc_panel_begin(d.panels, p + 1); ++o) {
                const bool present = o < d.oc && o / own_oc == c / own_c;
                *out++ = present ? weight(g * d.oc + o, c % own_c, z, y, x) : T(0);
              }
}
template <class T>
static inline void optc_direct_pack(const OptcConvShape &s, const T *weights, T *out) {
  const int64_t own_c = s.c / s.groups;
  optc_direct_pack_taps(
      s,
      [&](int64_t o, int64_t c, int64_t z, int64_t y, int64_t x) {
        return weights[(((o * own_c + c) * s.kd + z) * s.kh + y) * s.kw + x];
      },
      out);
}

// --- depthwise: weights [kh][kw][c]; tasks are (image, band of output rows).
static inline void optc_depthwise_pack(const OptcConvShape &s, const float *weights, float *out) {
  for (int64_t t = 0; t < s.kh * s.kw; ++t)
    for (int64_t c = 0; c < s.c; ++c) *out++ = weights[c * s.kh * s.kw + t];
}
constexpr int64_t optc_depthwise_row_tasks(const OptcConvShape &s, int64_t threads = 1) {
  const int64_t oh = optc_conv_oh(s), work = oh * optc_conv_ow(s) * s.c * s.kh * s.kw;
  int64_t tasks = work / (threads > 1 ? 20000 : 200000);
  // As many rows for each thread, where there are few.
  if (threads > 1 && s.n > 0 && tasks * s.n > threads && oh < 4 * threads) tasks = optc_ceil_div(threads, s.n);
  return optc_clamp(tasks, 1, oh > 0 ? oh : 1);
}

// --- Winograd F(m, 3), m = 2 or 4 (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015): tiles
// of a x a inputs, a = m + 2.
struct OptcWinograd {
  int64_t m, a, oh, ow, tile_rows, tile_cols, tiles;  // tiles of all images
  OptcPanels panels;
  int64_t block;  // tiles of a task at most
  int64_t block_tasks, oc_tasks;
  int64_t scratch_floats;
};
// threads as in optc_gemm_plan.
constexpr OptcWinograd optc_winograd_plan(const OptcConvShape &s, int64_t m, int64_t threads = 1) {
  OptcWinograd p{};
  p.m = m, p.a = m + 2;
  p.oh = optc_conv_oh(s), p.ow = optc_conv_ow(s);
  p.tile_rows = optc_ceil_div(p.oh, m), p.tile_cols = optc_ceil_div(p.ow, m);
  p.tiles = s.n * p.tile_rows * p.tile_cols;
  p.panels = optc_gemm_panels(s.oc);
  // The transformed inputs and products of a block stay in a 2 MB L2 cache, beside one panel of weights.
  const int64_t most = optc_clamp(1048576 / (p.a * p.a * (s.c + s.oc) * 4), 12, 48);
  p.block_tasks = optc_clamp(optc_ceil_div(p.tiles, most), 1, INT64_MAX);
  p.oc_tasks = 1;
  if (threads > 1 && p.tiles > 0) {
    // Columns are divided too, though each part transforms the inputs again.
    const OptcGrid grid =
        optc_divide({1, p.tiles, 1, optc_panel_count(p.panels), p.panels.width, p.a * p.a * s.c, p.a * p.a * s.c * 8},
                    threads, p.block_tasks);
    p.block_tasks = grid.m_tasks, p.oc_tasks = grid.n_tasks;
  }
  p.block = optc_ceil_div(p.tiles, p.block_tasks);
  p.scratch_floats = p.a * p.a * p.block * (optc_round_up(s.c, 16) + optc_round_up(s.oc, 16)) + 64;
  return p;
}
constexpr int64_t optc_winograd_tasks(const OptcWinograd &p) { return p.block_tasks * p.oc_tasks; }
// Transformed weights: [a * a] times the panels of oc, each [c][columns].
constexpr int64_t optc_winograd_packed_floats(const OptcConvShape &s, int64_t m) {
  return (m + 2) * (m + 2) * s.c * optc_panel_columns(optc_gemm_panels(s.oc));
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
  const int64_t a = m + 2;
  const OptcPanels panels = optc_gemm_panels(s.oc);
  const int64_t padded = optc_panel_columns(panels);
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
      const int64_t p = optc_panel_of(panels, o), begin = optc_panel_begin(panels, p);
      for (int64_t i = 0; i < a * a; ++i)
        out[(i * padded + begin) * s.c + c * optc_panel_width(panels, p) + o - begin] =
            static_cast<float>(u[i / a][i % a]);
    }
}
