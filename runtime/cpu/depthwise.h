// depthwise.h: depthwise convolutions (one channel a group) of NHWC images. Included inside an instruction-set
// namespace (foreach_isa.h). The sink as in conv.h. Order of summation: kernel rows, then columns; taps outside the
// image are left out.
#ifndef OPTC_CPU_DEPTHWISE_H
#define OPTC_CPU_DEPTHWISE_H
#include "runtime/cpu/conv.h"

constexpr int kDepthwiseColumns = 64;                    // channels that go to the sink together
constexpr int kDepthwisePixels = OPTC_VW == 16 ? 8 : 4;  // neighbouring outputs that share the weights in registers

// Neighbouring pixels of one row whose taps all lie inside horizontally, OPTC_VW channels: out[t * kDepthwiseColumns].
// in: the first tap of the first pixel. SW: the stride, 0 if not a constant (KW, too).
template <int KW, int SW>
OPTC_INLINE void depthwise_pixels(const OptcConvShape &s, const float *in, int64_t in_row, int64_t pixel, int64_t rows,
                                  const float *weights, float *out) {
  constexpr int T = kDepthwisePixels;
  const int64_t sw = SW ? SW : s.sw, kw = KW ? KW : s.kw, dw = KW ? 1 : s.dw;
  vf acc[T];
  OPTC_UNROLL for (int t = 0; t < T; ++t) acc[t] = vf{};
  for (int64_t y = 0; y < rows; ++y, in += in_row, weights += kw * s.c) {
    if constexpr (KW > 0) {
      OPTC_UNROLL for (int x = 0; x < KW; ++x) {
        const vf w = load(weights + x * s.c);
        OPTC_UNROLL for (int t = 0; t < T; ++t) acc[t] = fma(load(in + (t * sw + x) * pixel), w, acc[t]);
      }
    } else {
      for (int64_t x = 0; x < kw; ++x) {
        const vf w = load(weights + x * s.c);
        OPTC_UNROLL for (int t = 0; t < T; ++t) acc[t] = fma(load(in + (t * sw + x * dw) * pixel), w, acc[t]);
      }
    }
  }
  OPTC_UNROLL for (int t = 0; t < T; ++t) store(out + t * kDepthwiseColumns, acc[t]);
}

// One pixel, n of OPTC_VW channels: the taps [t0, t1) of each of `rows` kernel rows. in: tap 0.
OPTC_INLINE void depthwise_pixel(const OptcConvShape &s, const float *in, int64_t in_row, int64_t pixel, int64_t rows,
                                 int64_t t0, int64_t t1, const float *weights, int n, float *out) {
  vf acc = {};
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t t = t0; t < t1; ++t)
      acc = fma(load_n(in + y * in_row + t * s.dw * pixel, n), load_n(weights + (y * s.kw + t) * s.c, n), acc);
  store(out, acc);
}

// Task t of s.n * row_tasks, optc_depthwise_row_tasks(s, ...). x must be NHWC (channel stride 1); weights by
// optc_depthwise_pack. KW, SW: kernel width and stride where they are given as constants (of a kernel without
// dilation), else 0.
template <int KW, int SW>
static OPTC_KERNEL void conv_depthwise(const OptcConvShape &s, int64_t row_tasks, int64_t t, const ConvSource &x,
                                       const float *packed, const TileSink &sink) {
  constexpr int T = kDepthwisePixels;
  const int64_t oh = optc_conv_oh(s), ow = optc_conv_ow(s);
  const int64_t image = t / row_tasks, band = t % row_tasks;
  // Pixels whose kernel columns all lie inside: [x0, x1).
  const int64_t last = s.w - (s.kw - 1) * s.dw - 1 + s.pad_left;  // the greatest ox * sw
  const int64_t x0 = optc_clamp(optc_ceil_div(s.pad_left, s.sw), 0, ow),
                x1 = optc_clamp(last < 0 ? 0 : last / s.sw + 1, x0, ow);
  float sums[T * kDepthwiseColumns];
  for (int64_t y = oh * band / row_tasks; y < oh * (band + 1) / row_tasks; ++y) {
    // Kernel rows inside the image.
    const int64_t top = y * s.sh - s.pad_top, y0 = top < 0 ? optc_ceil_div(-top, s.dh) : 0;
    const int64_t y1 = optc_clamp(top < s.h ? optc_ceil_div(s.h - top, s.dh) : 0, y0, y0 > s.kh ? y0 : s.kh);
    const float *in = x.p + image * x.image + (top + y0 * s.dh) * x.row, *weights = packed + y0 * s.kw * s.c;
    const int64_t in_row = s.dh * x.row, rows = y1 - y0, row = (image * oh + y) * ow;
    for (int64_t c = 0; c < s.c; c += kDepthwiseColumns) {
      const int64_t columns = optc_clamp(s.c - c, 0, kDepthwiseColumns), whole = columns / OPTC_VW * OPTC_VW;
      for (int64_t ox = 0; ox < ow;) {
        const int64_t left = ox * s.sw - s.pad_left;
        const float *at = in + left * x.pixel + c;
        const bool block = ox >= x0 && ox + T <= x1;
        const int64_t first = block || left >= 0 ? 0 : optc_ceil_div(-left, s.dw);
        const int64_t end =
            block ? s.kw
                  : optc_clamp(left < s.w ? optc_ceil_div(s.w - left, s.dw) : 0, first, first > s.kw ? first : s.kw);
        if (block) {
          for (int64_t j = 0; j < whole; j += OPTC_VW)
            depthwise_pixels<KW, SW>(s, at + j, in_row, x.pixel, rows, weights + c + j, sums + j);
        } else {
          for (int64_t j = 0; j < whole; j += OPTC_VW)
            depthwise_pixel(s, at + j, in_row, x.pixel, rows, first, end, weights + c + j, OPTC_VW, sums + j);
        }
        const int64_t pixels = block ? T : 1;
        for (int64_t i = 0; i < pixels && whole < columns; ++i)
          depthwise_pixel(s, at + i * s.sw * x.pixel + whole, in_row, x.pixel, rows, first, end, weights + c + whole,
                          int(columns - whole), sums + i * kDepthwiseColumns + whole);
        sink(sums, kDepthwiseColumns, row + ox, c, pixels, columns);
        ox += pixels;
      }
    }
  }
}

// All tasks.
template <int KW, int SW, class Env>
static OPTC_KERNEL void convolve_depthwise(const Env &env, const OptcConvShape &s, const ConvSource &x,
                                           const float *packed, const TileSink &sink) {
  const int64_t row_tasks = optc_depthwise_row_tasks(s, env.threads);
  parallel(env, s.n * row_tasks, 1, [&](int64_t begin, int64_t end, uint8_t *) {
    for (int64_t t = begin; t < end; ++t) conv_depthwise<KW, SW>(s, row_tasks, t, x, packed, sink);
  });
}
#endif  // OPTC_CPU_DEPTHWISE_H
