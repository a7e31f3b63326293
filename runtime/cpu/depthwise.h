// depthwise.h: depthwise convolutions (one channel a group) of NHWC images. Included inside an instruction-set
// namespace (foreach_isa.h). The sink as in conv.h. Order of summation: kernel rows, then columns; taps outside the
// image are left out.
#ifndef OPTC_CPU_DEPTHWISE_H
#define OPTC_CPU_DEPTHWISE_H
#include "runtime/cpu/conv.h"

// The inside of a row goes by runs of neighbouring outputs, one vector of channels after another, by a kernel with
// constants; what is left of it and its ends by blocks of fewer outputs and more vectors, of any kernel.
constexpr int kDepthwiseRun = OPTC_VW == 16 ? 8 : 4;
constexpr int kDepthwiseVectors = OPTC_VW == 16 || OPTC_NEON ? 4 : 2;
constexpr int kDepthwiseColumns = 64;  // channels that go to the sink together

// Neighbouring pixels of one row whose taps all lie inside horizontally, OPTC_VW channels: out[t * kDepthwiseColumns].
// in: the first tap of the first pixel. SW: the stride, 0 if not a constant (KW, too).
template <int KW, int SW>
OPTC_INLINE void depthwise_run(const OptcConvShape &s, const float *in, int64_t in_row, int64_t pixel, int64_t rows,
                               const float *weights, float *out) {
  constexpr int T = kDepthwiseRun;
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

constexpr int depthwise_block_pixels(int vectors) { return vectors > 1 ? 4 : kDepthwiseRun; }

struct DepthwiseBlock {
  const float *in;        // the first tap of the first pixel, which may lie left of the image
  int64_t in_row, pixel;  // floats from one row of taps to the next, from one pixel to the next
  int64_t rows, left;     // rows of taps; the column of `in` in the image
  const float *weights;
  int64_t columns;  // channels: the last vector may be a part of one
  float *out;       // [pixel * kDepthwiseColumns + channel]
};

// T pixels, NV vectors, all of them whole or not. Edge: columns of taps may lie outside.
template <int T, int NV, bool Whole, bool Edge>
static OPTC_KERNEL void depthwise_block(const OptcConvShape &s, const DepthwiseBlock &b) {
  vf acc[T][NV];
  OPTC_UNROLL for (int t = 0; t < T; ++t) OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[t][j] = vf{};
  const int last = static_cast<int>(b.columns - (NV - 1) * OPTC_VW);
  const auto part = [&](const float *p, int j) OPTC_LAMBDA {
    return Whole || j < NV - 1 ? load(p + j * OPTC_VW) : load_n(p + j * OPTC_VW, last);
  };
  const int64_t step = s.sw * b.pixel, kw = s.kw, c = s.c, tap = s.dw * b.pixel;
  const float *row = b.in, *weights = b.weights;
  for (int64_t y = 0; y < b.rows; ++y, row += b.in_row) {
    const float *in[T];  // of each pixel: a register each, and constant offsets
    OPTC_UNROLL for (int t = 0; t < T; ++t) in[t] = row + t * step;
    for (int64_t x = 0; x < kw; ++x, weights += c) {
      vf w[NV];
      OPTC_UNROLL for (int j = 0; j < NV; ++j) w[j] = part(weights, j);
      const int64_t left = b.left + x * s.dw;
      OPTC_UNROLL for (int t = 0; t < T; ++t) {
        if (!Edge || static_cast<uint64_t>(left + t * s.sw) < static_cast<uint64_t>(s.w)) {
          OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[t][j] = fma(part(in[t], j), w[j], acc[t][j]);
        }
        in[t] += tap;
        asm("" : "+r"(in[t]));
      }
    }
  }
  OPTC_UNROLL for (int t = 0; t < T; ++t) OPTC_UNROLL for (int j = 0; j < NV; ++j)
      store(b.out + t * kDepthwiseColumns + j * OPTC_VW, acc[t][j]);
}

// For blocks of `pixels` pixels. (Few of them gain nothing where no tap is asked for.)
typedef void (*DepthwiseBlockFunction)(const OptcConvShape &s, const DepthwiseBlock &b);
template <int NV, bool Whole, bool Edge, int T = depthwise_block_pixels(NV)>
OPTC_INLINE DepthwiseBlockFunction depthwise_block_function(int64_t pixels) {
  constexpr int kLeast = Edge ? 1 : depthwise_block_pixels(NV) / 2 + 1;
  if (pixels == T) return depthwise_block<T, NV, Whole, Edge>;
  if constexpr (T > kLeast) return depthwise_block_function<NV, Whole, Edge, T - 1>(pixels);
  if constexpr (!Edge) return depthwise_block_function<NV, Whole, true>(pixels);
  return nullptr;
}
template <bool Edge, int NV = kDepthwiseVectors>
static OPTC_KERNEL DepthwiseBlockFunction depthwise_function(int64_t columns, int64_t pixels) {
  if (columns == kDepthwiseVectors * OPTC_VW) return depthwise_block_function<kDepthwiseVectors, true, Edge>(pixels);
  if (columns > (NV - 1) * OPTC_VW) return depthwise_block_function<NV, false, Edge>(pixels);
  if constexpr (NV > 1) return depthwise_function<Edge, NV - 1>(columns, pixels);
  return nullptr;
}

// The outputs [ox, end) of a row, at most kDepthwiseRun: sums of b.columns channels.
OPTC_INLINE void depthwise_blocks(const OptcConvShape &s, DepthwiseBlock b, int64_t ox, int64_t end, bool inside) {
  const float *in = b.in, *weights = b.weights;
  float *out = b.out;
  const int64_t columns = b.columns;
  for (int64_t c = 0; c < columns; c += b.columns) {
    b.columns = optc_clamp(columns - c, 0, kDepthwiseVectors * OPTC_VW);
    const int64_t most = depthwise_block_pixels(b.columns > OPTC_VW ? 2 : 1), blocks = optc_ceil_div(end - ox, most);
    b.weights = weights + c;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t first = (end - ox) * i / blocks, pixels = (end - ox) * (i + 1) / blocks - first;
      b.left = (ox + first) * s.sw - s.pad_left;
      b.in = in + b.left * b.pixel + c;
      b.out = out + first * kDepthwiseColumns + c;
      (inside ? depthwise_function<false>(b.columns, pixels) : depthwise_function<true>(b.columns, pixels))(s, b);
    }
  }
}

// Task t of s.n * row_tasks, optc_depthwise_row_tasks(s, ...). x must be NHWC (channel stride 1); weights by
// optc_depthwise_pack. KW, SW: kernel width and stride where they are given as constants (of a kernel without
// dilation), else 0.
template <int KW, int SW>
static OPTC_KERNEL void conv_depthwise(const OptcConvShape &s, int64_t row_tasks, int64_t t, const ConvSource &x,
                                       const float *packed, const TileSink &sink) {
  constexpr int T = kDepthwiseRun;
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
    for (int64_t c = 0; c < s.c; c += kDepthwiseColumns) {
      const int64_t columns = optc_clamp(s.c - c, 0, kDepthwiseColumns), whole = columns / OPTC_VW * OPTC_VW;
      DepthwiseBlock b = {in + c, s.dh * x.row, x.pixel, y1 - y0, 0, weights + c, columns, sums};
      for (int64_t ox = 0, end = 0; ox < ow; ox = end) {
        const bool inside = ox >= x0 && ox + T <= x1;
        end = inside || ox + T < ow ? ox + T : ow;
        if (ox < x0 && x0 < end && x0 + T <= x1) end = x0;  // so that runs follow
        if (inside) {
          const float *at = b.in + (ox * s.sw - s.pad_left) * x.pixel;
          for (int64_t j = 0; j < whole; j += OPTC_VW)
            depthwise_run<KW, SW>(s, at + j, b.in_row, b.pixel, b.rows, b.weights + j, sums + j);
          if (whole < columns) {
            DepthwiseBlock rest = b;
            rest.in += whole, rest.weights += whole, rest.out += whole, rest.columns = columns - whole;
            depthwise_blocks(s, rest, ox, end, true);
          }
        } else {
          depthwise_blocks(s, b, ox, end, ox >= x0 && end <= x1);
        }
        sink(sums, kDepthwiseColumns, (image * oh + y) * ow + ox, c, end - ox, columns);
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
