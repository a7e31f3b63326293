// pool.h: pooling of float images. Included inside an instruction-set namespace (foreach_isa.h).
//
// The shape is an OptcConvShape (oc = c, groups unused) whose output size the caller gives, because of ONNX's
// ceil_mode. Padding never enters a maximum; in an average it counts as zeros when `count_pads` (up to the padded
// border, not beyond it). NaN propagates.
#ifndef OPTC_CPU_POOL_H
#define OPTC_CPU_POOL_H
#include "runtime/cpu/conv.h"

struct PoolWindow {
  int64_t begin, end;  // kernel taps inside the image
  int64_t padded;      // taps inside the image and its padding
};
OPTC_INLINE PoolWindow pool_window(int64_t first, int64_t size, int64_t kernel, int64_t dilation, int64_t pad_after) {
  const int64_t begin = first < 0 ? optc_ceil_div(-first, dilation) : 0;
  const int64_t inside = first < size ? optc_ceil_div(size - first, dilation) : 0;
  const int64_t padded = first < size + pad_after ? optc_ceil_div(size + pad_after - first, dilation) : 0;
  const int64_t end = inside < kernel ? inside : kernel;
  return {begin, end < begin ? begin : end, padded < kernel ? padded : kernel};
}

// One output row y of one NHWC image, all channels; sink(value, row0 + x, channel, n).
template <bool Average, class Sink>
static OPTC_KERNEL void pool_nhwc_row(const OptcConvShape &s, int64_t ow, const float *image, int64_t y,
                                      bool count_pads, int64_t row0, const Sink &sink) {
  const PoolWindow wy = pool_window(y * s.sh - s.pad_top, s.h, s.kh, s.dh, s.pad_bottom);
  for (int64_t ox = 0; ox < ow; ++ox) {
    const PoolWindow wx = pool_window(ox * s.sw - s.pad_left, s.w, s.kw, s.dw, s.pad_right);
    const int64_t inside = (wy.end - wy.begin) * (wx.end - wx.begin),
                  taps = count_pads ? wy.padded * wx.padded : inside;
    const float *in = image + ((y * s.sh - s.pad_top) * s.w + ox * s.sw - s.pad_left) * s.c;
    for (int64_t c = 0; c < s.c; c += OPTC_VW) {
      const int n = int(optc_clamp(s.c - c, 0, OPTC_VW));
      vf r = splat(Average ? 0.0f : -__builtin_inff());
      for (int64_t j = wy.begin; j < wy.end; ++j)
        for (int64_t i = wx.begin; i < wx.end; ++i) {
          const vf v = load_n(in + (j * s.dh * s.w + i * s.dw) * s.c + c, n);
          r = Average ? r + v : max(r, v);
        }
      sink(Average ? r / splat(float(taps)) : r, row0 + ox, c, n);
    }
  }
}

// One output row y of one plane of an NCHW image into out[0, ow).
template <bool Average>
static OPTC_KERNEL void pool_nchw_row(const OptcConvShape &s, int64_t ow, const float *plane, int64_t y,
                                      bool count_pads, float *out) {
  const PoolWindow wy = pool_window(y * s.sh - s.pad_top, s.h, s.kh, s.dh, s.pad_bottom);
  const float *in = plane + (y * s.sh - s.pad_top) * s.w;
  // Pixels whose taps all lie inside go by vectors.
  const int64_t last = s.w - (s.kw - 1) * s.dw - 1 + s.pad_left;
  const int64_t x0 = optc_clamp(optc_ceil_div(s.pad_left, s.sw), 0, ow),
                x1 = optc_clamp(last < 0 ? 0 : last / s.sw + 1, x0, ow);
  for (int64_t ox = 0; ox < ow;) {
    if (ox >= x0 && ox < x1) {
      const int n = int(optc_clamp(x1 - ox, 0, OPTC_VW));
      const float *from = in + ox * s.sw - s.pad_left;
      vf r = splat(Average ? 0.0f : -__builtin_inff());
      for (int64_t j = wy.begin; j < wy.end; ++j)
        for (int64_t i = 0; i < s.kw; ++i) {
          const float *p = from + j * s.dh * s.w + i * s.dw;
          const vf v = s.sw == 1 ? load_n(p, n) : load_strided(p, s.sw, n);
          r = Average ? r + v : max(r, v);
        }
      const int64_t rows = count_pads ? wy.padded : wy.end - wy.begin;
      store_n(out + ox, Average ? r / splat(float(rows * s.kw)) : r, n);
      ox += n;
      continue;
    }
    const PoolWindow wx = pool_window(ox * s.sw - s.pad_left, s.w, s.kw, s.dw, s.pad_right);
    const int64_t inside = (wy.end - wy.begin) * (wx.end - wx.begin),
                  taps = count_pads ? wy.padded * wx.padded : inside;
    float r = Average ? 0.0f : -__builtin_inff();
    for (int64_t j = wy.begin; j < wy.end; ++j)
      for (int64_t i = wx.begin; i < wx.end; ++i) {
        const float v = in[j * s.dh * s.w + i * s.dw + ox * s.sw - s.pad_left];
        r = Average ? r + v : max(r, v);
      }
    out[ox++] = Average ? r / float(taps) : r;
  }
}

// The mean (or greatest value) of every channel over `pixels` of one NHWC image; sink(value, row, channel, n). Order:
// pixels ascending, four partial sums.
template <bool Average, class Sink>
static OPTC_KERNEL void global_pool_nhwc(const float *image, int64_t pixels, int64_t c_all, int64_t row,
                                         const Sink &sink) {
  for (int64_t c = 0; c < c_all; c += OPTC_VW) {
    const int n = int(optc_clamp(c_all - c, 0, OPTC_VW));
    vf r[4];
    OPTC_UNROLL for (int u = 0; u < 4; ++u) r[u] = splat(Average ? 0.0f : -__builtin_inff());
    int64_t i = 0;
    for (; i + 4 <= pixels; i += 4) {
      OPTC_UNROLL for (int u = 0; u < 4; ++u) {
        const vf v = load_n(image + (i + u) * c_all + c, n);
        r[u] = Average ? r[u] + v : max(r[u], v);
      }
    }
    for (; i < pixels; ++i) {
      const vf v = load_n(image + i * c_all + c, n);
      r[0] = Average ? r[0] + v : max(r[0], v);
    }
    const vf all = Average ? (r[0] + r[1]) + (r[2] + r[3]) : max(max(r[0], r[1]), max(r[2], r[3]));
    sink(Average ? all / splat(float(pixels)) : all, row, c, n);
  }
}
#endif  // OPTC_CPU_POOL_H
