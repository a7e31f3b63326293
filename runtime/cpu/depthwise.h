// depthwise.h: depthwise convolutions (one channel a group) of NHWC images. Included inside an instruction-set
// namespace (foreach_isa.h). Shape, s and the sink as in conv.h. Order of summation: kernel rows, then columns; taps
// outside the image are left out.
#ifndef OPTC_CPU_DEPTHWISE_H
#define OPTC_CPU_DEPTHWISE_H
#include "runtime/cpu/conv.h"

// `T` neighbouring pixels of one row whose taps all lie inside horizontally, OPTC_VW channels (n valid). in: tap (y0,
// 0) of the first pixel.
template <int T, int KW, class Sink>
OPTC_INLINE void depthwise_pixels(const float *in, int64_t in_row, int64_t pixel, int64_t sw, int64_t dw,
                                  int64_t kernel_rows, int64_t kw, const float *weights, int64_t c, int64_t row,
                                  int64_t column, int n, const Sink &sink) {
  vf acc[T];
  OPTC_UNROLL for (int t = 0; t < T; ++t) acc[t] = vf{};
  for (int64_t y = 0; y < kernel_rows; ++y, in += in_row) {
    if constexpr (KW > 0) {
      OPTC_UNROLL for (int x = 0; x < KW; ++x) {
        const vf w = load_n(weights + (y * KW + x) * c, n);
        OPTC_UNROLL for (int t = 0; t < T; ++t) acc[t] = fma(load_n(in + (t * sw + x * dw) * pixel, n), w, acc[t]);
      }
    } else {
      for (int64_t x = 0; x < kw; ++x) {
        const vf w = load_n(weights + (y * kw + x) * c, n);
        OPTC_UNROLL for (int t = 0; t < T; ++t) acc[t] = fma(load_n(in + (t * sw + x * dw) * pixel, n), w, acc[t]);
      }
    }
  }
  OPTC_UNROLL for (int t = 0; t < T; ++t) sink(acc[t], row + t, column, n);
}

// One output row, the channels from `column` on (n of them).
template <bool Full, class Shape, class Sink>
OPTC_INLINE void depthwise_row(const OptcConvShape &s, const float *image, const ConvSource &x, int64_t y,
                               const float *packed, int64_t row, int64_t column, int n, const Sink &sink) {
  constexpr OptcConvShape k = Shape::kShape;
  constexpr int KW = k.kw <= 7 ? int(k.kw) : 0;
  const int64_t ow = optc_conv_ow(s), top = y * k.sh - k.pad_top;
  // Kernel rows inside the image.
  const int64_t y0 = top < 0 ? optc_ceil_div(-top, k.dh) : 0;
  const int64_t y1 = optc_clamp(top < s.h ? optc_ceil_div(s.h - top, k.dh) : 0, y0, y0 > k.kh ? y0 : k.kh);
  const float *in = image + (top + y0 * k.dh) * x.row + column, *weights = packed + y0 * k.kw * s.c + column;
  const int64_t in_row = k.dh * x.row, rows = y1 - y0;
  // Pixels whose kernel columns all lie inside: [x0, x1).
  const int64_t last = s.w - (k.kw - 1) * k.dw - 1 + k.pad_left;  // the greatest ox * sw
  const int64_t x0 = optc_clamp(optc_ceil_div(k.pad_left, k.sw), 0, ow),
                x1 = optc_clamp(last < 0 ? 0 : last / k.sw + 1, x0, ow);
  const auto edge = [&](int64_t ox) OPTC_LAMBDA {
    const int64_t left = ox * k.sw - k.pad_left;
    const int64_t first = left < 0 ? optc_ceil_div(-left, k.dw) : 0;
    const int64_t end =
        optc_clamp(left < s.w ? optc_ceil_div(s.w - left, k.dw) : 0, first, first > k.kw ? first : k.kw);
    vf acc = {};
    for (int64_t q = 0; q < rows; ++q)
      for (int64_t t = first; t < end; ++t)
        acc = fma(load_n(in + q * in_row + (left + t * k.dw) * x.pixel, n), load_n(weights + (q * k.kw + t) * s.c, n),
                  acc);
    sink(acc, row + ox, column, n);
  };
  constexpr int T = OPTC_VW == 16 ? 8 : 4;
  for (int64_t ox = 0; ox < ow;) {
    if (ox < x0 || ox + T > x1) {
      edge(ox++);
      continue;
    }
    for (; ox + T <= x1; ox += T)
      depthwise_pixels<T, Full ? KW : 0>(in + (ox * k.sw - k.pad_left) * x.pixel, in_row, x.pixel, k.sw, k.dw, rows,
                                         k.kw, weights, s.c, row + ox, column, n, sink);
  }
}

// Task t of optc_depthwise_tasks(s). x must be NHWC (channel stride 1); weights by optc_depthwise_pack.
template <class Shape, class Sink>
static OPTC_KERNEL void conv_depthwise(const OptcConvShape &s, int64_t t, const ConvSource &x, const float *packed,
                                       const Sink &sink) {
  const int64_t row_tasks = optc_depthwise_row_tasks(s), oh = optc_conv_oh(s), ow = optc_conv_ow(s);
  const int64_t image = t / row_tasks, band = t % row_tasks;
  const float *in = x.p + image * x.image;
  for (int64_t y = oh * band / row_tasks; y < oh * (band + 1) / row_tasks; ++y) {
    const int64_t row = (image * oh + y) * ow;
    int64_t c = 0;
    for (; c + OPTC_VW <= s.c; c += OPTC_VW) depthwise_row<true, Shape>(s, in, x, y, packed, row, c, OPTC_VW, sink);
    if constexpr (Shape::kShape.c % OPTC_VW != 0)
      depthwise_row<false, Shape>(s, in, x, y, packed, row, c, int(s.c - c), sink);
  }
}
#endif  // OPTC_CPU_DEPTHWISE_H
