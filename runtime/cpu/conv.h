// conv.h: 2-D convolutions of float as matrix products and direct sums. Included inside an instruction-set namespace
// (foreach_isa.h).
//
// `Shape` is a type with `static constexpr OptcConvShape kShape` (n, h, w 0 where they are known at run time only); `s`
// is the whole shape, the same one where it is constant. The result goes to a sink as in gemm.h: row is the output
// pixel (image * oh + y) * ow + x, column the output channel.
#ifndef OPTC_CPU_CONV_H
#define OPTC_CPU_CONV_H
#include "runtime/cpu/conv_plan.h"
#include "runtime/cpu/gemm.h"

// A source image by strides in floats: NHWC with pixel stride >= c, or NCHW.
struct ConvSource {
  const float *p;
  int64_t image, row, pixel, channel;
};
OPTC_INLINE ConvSource nhwc(const float *p, const OptcConvShape &s) { return {p, s.h * s.w * s.c, s.w * s.c, s.c, 1}; }
OPTC_INLINE ConvSource nchw(const float *p, const OptcConvShape &s) { return {p, s.c * s.h * s.w, s.w, 1, s.h * s.w}; }

// The rows of A for a 1x1 convolution with strides: pixel (y * sh, x * sw).
struct PixelRows {
  const float *p;
  int64_t image_step, row_step, pixel_step;  // of an output pixel, in floats
  int64_t oh, ow;
  OPTC_MEMBER const float *row(int64_t i) const {
    const int64_t y = i / ow;
    return p + (y / oh) * image_step + (y % oh) * row_step + (i - y * ow) * pixel_step;
  }
};

// 1x1 without padding: task t of optc_gemm_plan(n * oh * ow, oc, c), weights packed by optc_pack_b from [c][oc].
template <class Shape, class Sink>
OPTC_INLINE void conv_1x1(const OptcConvShape &s, int64_t t, const ConvSource &x, const float *packed, float *partial,
                          int64_t ldp, const Sink &sink) {
  constexpr OptcConvShape k = Shape::kShape;
  constexpr int64_t m = k.n * optc_conv_oh(k) * optc_conv_ow(k);
  const int64_t oh = optc_conv_oh(s), ow = optc_conv_ow(s);
  if constexpr (k.sh == 1 && k.sw == 1) {
    const StridedRows rows = {x.p, x.pixel};  // images and rows follow one another
    if constexpr (m > 0)
      gemm<m, k.oc, k.c>(t, rows, packed, partial, ldp, sink);
    else
      gemm_rows<k.oc, k.c>(s.n * oh * ow, t, rows, packed, partial, ldp, sink);
  } else {
    const PixelRows rows = {x.p, x.image, k.sh * x.row, k.sw * x.pixel, oh, ow};
    if constexpr (m > 0)
      gemm<m, k.oc, k.c>(t, rows, packed, partial, ldp, sink);
    else
      gemm_rows<k.oc, k.c>(s.n * oh * ow, t, rows, packed, partial, ldp, sink);
  }
}

struct ConvTile {
  const float *b;
  int64_t kernel_rows, row_step;      // one product a kernel row (floats from one to the next) ...
  int64_t segments, segment_step, k;  // ... and a segment: kw * c floats in one, or c floats for each kw when dilated
  int64_t row, column, columns;
  const char *next;
  int64_t step;
};

template <int MR, int NV, int NR, bool Prefetch, bool List, class Sink>
static OPTC_KERNEL void conv_tile(const float *a, int64_t lda, const float *const *list, const ConvTile &t,
                                  const Sink &sink) {
  vf acc[MR][NV];
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = vf{};
  GemmTile part = {t.b, t.k, nullptr, 0, true, true, 0, 0, 0, t.next, t.step, NR};
  for (int64_t y = 0; y < t.kernel_rows; ++y) {
    for (int64_t x = 0; x < t.segments; ++x) {
      const int64_t offset = y * t.row_step + x * t.segment_step;
      const float *rows[MR];
      if (List) {
        OPTC_UNROLL for (int i = 0; i < MR; ++i) rows[i] = list[i] + offset;
      }
      gemm_products<MR, NV, NR, Prefetch, List>(acc, a + offset, lda, rows, part);
      part.b += t.k * NR;
      part.next += t.k * t.step;
    }
  }
  gemm_finish<MR, NV>(acc, t.row, t.column, t.columns, sink);
}

template <int MR, uint32_t Heights, int NV, int NR, bool Prefetch, bool List, class Sink>
OPTC_INLINE void conv_tile_of(int64_t pixels, const float *a, int64_t lda, const float *const *list, const ConvTile &t,
                              const Sink &sink) {
  if constexpr (MR > 0) {
    if constexpr (((Heights >> MR) & 1) == 0) {
      conv_tile_of<MR - 1, Heights, NV, NR, Prefetch, List>(pixels, a, lda, list, t, sink);
    } else {
      if (pixels != MR) return conv_tile_of<MR - 1, Heights, NV, NR, Prefetch, List>(pixels, a, lda, list, t, sink);
      conv_tile<MR, NV, NR, Prefetch, List>(a, lda, list, t, sink);
    }
  }
}

// Tiles lie in one output row where rows divide evenly enough, else they run over the band's pixels.
constexpr bool conv_tiles_in_rows(int64_t ow, int nr) {
  return ow > 0 && ow / optc_ceil_div(ow, gemm_tile_rows(nr)) >= gemm_tile_rows(nr) - (gemm_tile_rows(nr) > 6 ? 1 : 0);
}
constexpr uint32_t conv_heights(const OptcConvShape &s, const OptcDirect &d) {
  const int mr = gemm_tile_rows(d.nr);
  if (s.h == 0 || s.w == 0 || d.oh == 0 || d.ow == 0) return (2u << mr) - 2;
  if (conv_tiles_in_rows(d.ow, d.nr)) {
    const int64_t tiles = optc_ceil_div(d.ow, mr);
    return (1u << (d.ow / tiles)) | (1u << optc_ceil_div(d.ow, tiles));
  }
  uint32_t mask = 0;
  for (int64_t rows = d.oh / d.row_tasks; rows <= d.band_rows; ++rows) {
    const int64_t tiles = optc_ceil_div(rows * d.ow, mr);
    mask |= (1u << (rows * d.ow / tiles)) | (1u << optc_ceil_div(rows * d.ow, tiles));
  }
  return mask;
}

// Copies channels [c0, c0 + c) of a band with its zero border into [in_rows][in_cols][c].
static OPTC_KERNEL void conv_copy_band(const OptcConvShape &s, const ConvSource &x, int64_t image, int64_t y0,
                                       int64_t rows, int64_t cols, int64_t c0, int64_t c, float *out) {
  const int64_t left = s.pad_left < cols ? s.pad_left : cols;
  const int64_t inside = optc_clamp(cols - left, 0, s.w);
  for (int64_t r = 0; r < rows; ++r, out += cols * c) {
    const int64_t y = y0 + r;
    if (y < 0 || y >= s.h) {
      memset(out, 0, sizeof(float) * cols * c);
      continue;
    }
    memset(out, 0, sizeof(float) * left * c);
    memset(out + (left + inside) * c, 0, sizeof(float) * (cols - left - inside) * c);
    const float *from = x.p + image * x.image + y * x.row + c0 * x.channel;
    float *to = out + left * c;
    if (x.channel == 1 && x.pixel == c) {
      memcpy(to, from, sizeof(float) * inside * c);
    } else if (x.channel == 1) {
      for (int64_t i = 0; i < inside; ++i) memcpy(to + i * c, from + i * x.pixel, sizeof(float) * c);
    } else {
      for (int64_t j = 0; j < c; ++j)
        for (int64_t i = 0; i < inside; ++i) to[i * c + j] = from[j * x.channel + i * x.pixel];
    }
  }
}

// Task t of optc_direct_plan(s). scratch: plan.scratch_floats floats of the running thread. Weights by
// optc_direct_pack.
template <class Shape, class Sink>
static OPTC_KERNEL void conv_direct(const OptcConvShape &s, int64_t t, const ConvSource &x, const float *packed,
                                    float *scratch, const Sink &sink) {
  constexpr OptcConvShape k = Shape::kShape;
  constexpr OptcDirect fixed = optc_direct_plan(k);
  constexpr int NR = fixed.nr, kColumns = gemm_tile_columns(NR), NV = kColumns / OPTC_VW, kRows = gemm_tile_rows(NR);
  constexpr uint32_t kHeights = conv_heights(k, fixed);
  constexpr bool kPrefetch = fixed.prefetch && OPTC_VW == 16;
  const OptcDirect d = optc_direct_plan(s);
  const int64_t oc_task = t % d.oc_tasks, band = t / d.oc_tasks % d.row_tasks,
                group = t / d.oc_tasks / d.row_tasks % d.groups;
  const int64_t image = t / d.oc_tasks / d.row_tasks / d.groups;
  const int64_t y0 = d.oh * band / d.row_tasks, y1 = d.oh * (band + 1) / d.row_tasks;
  const int64_t in_rows = (y1 - y0 - 1) * k.sh + (k.kh - 1) * k.dh + 1, c = fixed.c;

  // The band as a dense padded block: the source itself when it is one.
  const float *in;
  int64_t in_row;
  const bool no_pads = k.pad_top == 0 && k.pad_left == 0 && k.pad_bottom == 0 && k.pad_right == 0;
  if (no_pads && x.channel == 1 && x.pixel == c) {
    in = x.p + image * x.image + y0 * k.sh * x.row;
    in_row = x.row;
  } else {
    conv_copy_band(s, x, image, y0 * k.sh - k.pad_top, in_rows, d.in_cols, group * c, c, scratch);
    in = scratch;
    in_row = d.in_cols * c;
  }

  const int64_t kk = k.kh * k.kw * c, panels = optc_ceil_div(d.oc, NR), pixels = (y1 - y0) * d.ow,
                first = (image * d.oh + y0) * d.ow;
  const bool in_rows_only = conv_tiles_in_rows(d.ow, NR);
  const int64_t tiles = in_rows_only ? optc_ceil_div(d.ow, kRows) : optc_ceil_div(pixels, kRows);
  const int64_t all_tiles = in_rows_only ? tiles * (y1 - y0) : tiles;
  const int64_t step = kPrefetch ? optc_clamp(optc_ceil_div(NR * 4, all_tiles), 1, 64) : 0;
  const float *weights = packed + group * kk * panels * NR;
  for (int64_t p = panels * oc_task / d.oc_tasks; p < panels * (oc_task + 1) / d.oc_tasks; ++p) {
    const float *panel = weights + p * kk * NR;
    for (int64_t col = 0; col < NR && p * NR + col < d.oc; col += kColumns) {
      ConvTile tile = {panel + col,
                       k.kh,
                       k.dh * in_row,
                       k.dw == 1 ? 1 : k.kw,
                       k.dw * c,
                       k.dw == 1 ? k.kw * c : c,
                       0,
                       group * d.oc + p * NR + col,
                       d.oc - p * NR - col,
                       (const char *)(panel + kk * NR),
                       step};
      if (in_rows_only) {
        for (int64_t y = 0; y < y1 - y0; ++y) {
          for (int64_t i = 0; i < tiles; ++i) {
            const int64_t x0 = d.ow * i / tiles, x1 = d.ow * (i + 1) / tiles;
            tile.row = first + y * d.ow + x0;
            conv_tile_of<kRows, kHeights, NV, NR, kPrefetch, false>(x1 - x0, in + y * k.sh * in_row + x0 * k.sw * c,
                                                                    k.sw * c, nullptr, tile, sink);
            tile.next += kk * step;
          }
        }
      } else {
        int64_t y = 0, px = 0;  // of the next pixel
        for (int64_t i = 0; i < tiles; ++i) {
          const int64_t p0 = pixels * i / tiles, p1 = pixels * (i + 1) / tiles;
          const float *list[kRows];
          for (int64_t q = 0; q < p1 - p0; ++q) {
            list[q] = in + y * k.sh * in_row + px * k.sw * c;
            if (++px == d.ow) px = 0, ++y;
          }
          tile.row = first + p0;
          conv_tile_of<kRows, kHeights, NV, NR, kPrefetch, true>(p1 - p0, nullptr, 0, list, tile, sink);
          tile.next += kk * step;
        }
      }
    }
  }
}
#endif  // OPTC_CPU_CONV_H
