// conv_i8_depthwise.h: depthwise convolutions of 8-bit integers (one channel a group, as many filters) of one plane
// whose channels lie innermost. Included inside an instruction-set namespace (foreach_isa.h). Products and sums are
// those of floats that hold integers, which is exact (conv_i8_plan.h). The sink as in conv.h.
#ifndef OPTC_CPU_CONV_I8_DEPTHWISE_H
#define OPTC_CPU_CONV_I8_DEPTHWISE_H
#include "runtime/cpu/conv_i8.h"

constexpr int kConvI8DepthwiseColumns = 64;                    // channels that go to the sink together
constexpr int kConvI8DepthwisePixels = OPTC_VW == 16 ? 8 : 4;  // neighbouring outputs that share the weights

// Bytes less their zero point, as floats.
struct ConvI8Lanes {
  vi flip, zero;
  OPTC_MEMBER vf operator()(const uint8_t *p) const { return to_f32((load_u8(p) ^ flip) - zero); }
  OPTC_MEMBER vf part(const uint8_t *p, int n) const { return to_f32((load_u8_n(p, n) ^ flip) - zero); }
};

// Kernel rows [y0, y1) and columns [x0, x1) that lie inside, of T pixels of one output row.
struct ConvI8Taps {
  int64_t y0, y1, x0, x1;
};
// OPTC_VW channels. in: tap (0, 0) of the first pixel.
template <int T>
OPTC_INLINE void conv_i8_depthwise_pixels(const OptcConvShape &s, const ConvI8Source &x, const ConvI8Lanes &lanes,
                                          const uint8_t *in, const ConvI8Taps &taps, const float *weights,
                                          vf weight_zero, int32_t *out) {
  vf acc[T];
  OPTC_UNROLL for (int t = 0; t < T; ++t) acc[t] = vf{};
  for (int64_t i = taps.y0; i < taps.y1; ++i)
    for (int64_t j = taps.x0; j < taps.x1; ++j) {
      const vf w = load(weights + (i * s.kw + j) * s.c) - weight_zero;
      const uint8_t *from = in + i * s.dh * x.row + j * s.dw * x.pixel;
      OPTC_UNROLL for (int t = 0; t < T; ++t) acc[t] = fma(lanes(from + t * s.sw * x.pixel), w, acc[t]);
    }
  OPTC_UNROLL for (int t = 0; t < T; ++t) store(out + t * kConvI8DepthwiseColumns, to_i32(acc[t]));
}
// The first n of OPTC_VW channels of one pixel.
OPTC_INLINE void conv_i8_depthwise_part(const OptcConvShape &s, const ConvI8Source &x, const ConvI8Lanes &lanes,
                                        const uint8_t *in, const ConvI8Taps &taps, const float *weights, vf weight_zero,
                                        int n, int32_t *out) {
  vf acc = {};
  for (int64_t i = taps.y0; i < taps.y1; ++i)
    for (int64_t j = taps.x0; j < taps.x1; ++j)
      acc = fma(lanes.part(in + i * s.dh * x.row + j * s.dw * x.pixel, n),
                load_n(weights + (i * s.kw + j) * s.c, n) - weight_zero, acc);
  store(out, to_i32(acc));
}

// Taps [first, last) of one axis whose place at + tap * dilation lies in [0, in).
OPTC_INLINE void conv_i8_inside(int64_t at, int64_t in, int64_t kernel, int64_t dilation, int64_t &first,
                                int64_t &last) {
  first = at < 0 ? optc_clamp(optc_ceil_div(-at, dilation), 0, kernel) : 0;
  last = at < in ? optc_clamp(optc_ceil_div(in - at, dilation), first, kernel) : first;
}

// Output rows [begin, end) of all images.
static OPTC_KERNEL void conv_i8_depthwise(const OptcConvShape &s, int64_t begin, int64_t end, const ConvI8Source &x,
                                          const float *packed, const GemmZero &zero, const TileSinkOf<int32_t> &sink) {
  constexpr int T = kConvI8DepthwisePixels;
  constexpr int64_t kColumns = kConvI8DepthwiseColumns;
  const int64_t oh = optc_conv_oh(s), ow = optc_conv_ow(s);
  const ConvI8Lanes lanes = {splat_i(x.is_signed ? 0x80 : 0), splat_i(x.zero.at(0) + (x.is_signed ? 128 : 0))};
  int32_t sums[T * kConvI8DepthwiseColumns];
  for (int64_t line = begin; line < end; ++line) {
    const int64_t image = line / oh, top = line % oh * s.sh - s.pad_top;
    ConvI8Taps taps;
    conv_i8_inside(top, s.h, s.kh, s.dh, taps.y0, taps.y1);
    for (int64_t c = 0; c < s.c; c += kColumns) {
      const int64_t columns = optc_clamp(s.c - c, 0, kColumns);
      float zeros[kConvI8DepthwiseColumns];
      for (int64_t j = 0; j < kColumns; ++j) zeros[j] = j < columns ? float(zero.at(c + j)) : 0;
      for (int64_t ox = 0; ox < ow;) {
        const int64_t left = ox * s.sw - s.pad_left;
        conv_i8_inside(left, s.w, s.kw, s.dw, taps.x0, taps.x1);
        // A block of pixels whose taps all lie inside.
        const bool block = ox + T <= ow && left >= 0 && left + (T - 1) * s.sw + (s.kw - 1) * s.dw < s.w;
        const int64_t pixels = block ? T : 1;
        // Not read where it lies outside.
        const uint8_t *in = x.p + image * x.image + top * x.row + left * x.pixel + c;
        for (int64_t j = 0; j < columns; j += OPTC_VW) {
          const float *weights = packed + c + j;
          const vf weight_zero = load(zeros + j);
          const int n = int(optc_clamp(columns - j, 0, OPTC_VW));
          if (n == OPTC_VW && block)
            conv_i8_depthwise_pixels<T>(s, x, lanes, in + j, taps, weights, weight_zero, sums + j);
          else if (n == OPTC_VW)
            conv_i8_depthwise_pixels<1>(s, x, lanes, in + j, taps, weights, weight_zero, sums + j);
          else
            for (int64_t t = 0; t < pixels; ++t)
              conv_i8_depthwise_part(s, x, lanes, in + t * s.sw * x.pixel + j, taps, weights, weight_zero, n,
                                     sums + t * kColumns + j);
        }
        sink(sums, kColumns, line * ow + ox, c, pixels, columns);
        ox += pixels;
      }
    }
  }
}

// All rows, in tasks of a hundred thousand products or more. (How the bytes of the weights were read does not matter:
// they are floats here.)
template <class Env>
static OPTC_KERNEL void convolve_i8_depthwise(const Env &env, const OptcConvShape &s, const ConvI8Source &x,
                                              const float *packed, bool, const GemmZero &zero,
                                              const TileSinkOf<int32_t> &sink) {
  const int64_t work = optc_conv_ow(s) * s.c * optc_conv_i8_taps(s);
  parallel(env, s.n * optc_conv_oh(s), optc_ceil_div(100000, work > 0 ? work : 1),
           [&](int64_t begin, int64_t end, uint8_t *) { conv_i8_depthwise(s, begin, end, x, packed, zero, sink); });
}
#endif  // OPTC_CPU_CONV_I8_DEPTHWISE_H
