// conv.h: 2-D convolutions of float as matrix products and direct sums. Included inside an instruction-set namespace
// (foreach_isa.h). The result goes to a sink as in gemm.h: row is the output pixel (image * oh + y) * ow + x, column
// the output channel.
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

// The product that a 1x1 convolution without padding is: rows of A are pixels, weights packed by optc_pack_b from
// [c][oc].
OPTC_INLINE OptcGemm conv_1x1_plan(const OptcConvShape &s) {
  return optc_gemm_plan(s.n * optc_conv_oh(s) * optc_conv_ow(s), s.oc, s.c);
}
OPTC_INLINE GemmRows conv_1x1_rows(const OptcConvShape &s, const ConvSource &x) {
  if (s.sh == 1 && s.sw == 1) return {x.p, x.pixel};  // images and rows follow one another
  return {x.p, s.sw * x.pixel, optc_conv_ow(s), optc_conv_oh(s), s.sh * x.row, x.image};
}

// All tasks of such a convolution (multiply of gemm.h says what Env is and which scratch it needs where c > 1024).
template <class Env>
OPTC_INLINE void convolve_1x1(const Env &env, const OptcConvShape &s, const ConvSource &x, const float *packed,
                              const TileSink &sink) {
  multiply(env, conv_1x1_plan(s), conv_1x1_rows(s, x), packed, nullptr, 0, sink);
}

// Tiles lie in one output row where rows divide evenly enough, else they run over the band's pixels.
constexpr bool conv_tiles_in_rows(int64_t ow, int nr) {
  return ow > 0 && ow / optc_ceil_div(ow, gemm_tile_rows(nr)) >= gemm_tile_rows(nr) - (gemm_tile_rows(nr) > 6 ? 1 : 0);
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

// A band of a direct convolution: the dense padded block that the tiles read.
struct ConvBand {
  const float *in;
  int64_t in_row;       // floats from one of its rows to the next
  int64_t first, rows;  // the output pixel that it begins with, its output rows
  int64_t group;
};

// Groups that share a vector, where an infinity or NaN among their inputs would reach the others by its product with a
// zero between them: one sum at a time, over the group's own channels.
static OPTC_KERNEL void conv_direct_apart(const OptcConvShape &s, const OptcDirect &d, const ConvBand &band, int64_t p0,
                                          int64_t p1, const float *weights, const TileSink &sink) {
  const int64_t own_c = s.c / s.groups, own_oc = s.oc / s.groups, kk = s.kh * s.kw * d.c;
  const int64_t end = p1 * d.nr < d.oc ? p1 * d.nr : d.oc;
  for (int64_t y = 0; y < band.rows; ++y)
    for (int64_t x = 0; x < d.ow; ++x)
      for (int64_t o = p0 * d.nr; o < end; ++o) {
        const int64_t c0 = o / own_oc * own_c;
        const float *in = band.in + y * s.sh * band.in_row + x * s.sw * d.c,
                    *w = weights + o / d.nr * kk * d.nr + o % d.nr;
        float sums[OPTC_VW] = {};
        for (int64_t i = 0; i < s.kh; ++i)
          for (int64_t j = 0; j < s.kw; ++j)
            for (int64_t c = c0; c < c0 + own_c; ++c)
              sums[0] = __builtin_fmaf(in[i * s.dh * band.in_row + j * s.dw * d.c + c],
                                       w[((i * s.kw + j) * d.c + c) * d.nr], sums[0]);
        sink(sums, OPTC_VW, band.first + y * d.ow + x, band.group * d.oc + o, 1, 1);
      }
}

static OPTC_KERNEL bool conv_all_finite(const float *p, int64_t n) {
  vf zero = {};  // x * 0 is zero or NaN
  int64_t i = 0;
  for (; i + OPTC_VW <= n; i += OPTC_VW) zero = fma(load(p + i), vf{}, zero);
  for (; i < n; ++i) zero[0] += p[i] * 0.0f;
  return reduce_sum(zero) == 0;
}

// Task t of the plan `d`. scratch: d.scratch_floats floats of the running thread. Weights by optc_direct_pack.
static OPTC_KERNEL void conv_direct(const OptcConvShape &s, const OptcDirect &d, int64_t t, const ConvSource &x,
                                    const float *packed, float *scratch, const TileSink &sink) {
  const int nr = d.nr;
  const int64_t oc_task = t % d.oc_tasks, band_number = t / d.oc_tasks % d.row_tasks,
                group = t / d.oc_tasks / d.row_tasks % d.groups;
  const int64_t image = t / d.oc_tasks / d.row_tasks / d.groups;
  const int64_t y0 = d.oh * band_number / d.row_tasks, y1 = d.oh * (band_number + 1) / d.row_tasks, rows = y1 - y0;
  const int64_t in_rows = (rows - 1) * s.sh + (s.kh - 1) * s.dh + 1, c = d.c;
  if (rows <= 0 || d.ow <= 0) return;

  // The band as a dense padded block: the source itself when it is one.
  ConvBand band = {scratch, d.in_cols * c, (image * d.oh + y0) * d.ow, rows, group};
  const bool no_pads = s.pad_top == 0 && s.pad_left == 0 && s.pad_bottom == 0 && s.pad_right == 0;
  if (no_pads && x.channel == 1 && x.pixel == c) {
    band.in = x.p + image * x.image + y0 * s.sh * x.row;
    band.in_row = x.row;
  } else {
    conv_copy_band(s, x, image, y0 * s.sh - s.pad_top, in_rows, d.in_cols, group * c, c, scratch);
  }

  const int64_t kk = s.kh * s.kw * c, panels = optc_ceil_div(d.oc, nr), pixels = rows * d.ow;
  const int64_t p0 = panels * oc_task / d.oc_tasks, p1 = panels * (oc_task + 1) / d.oc_tasks;
  const float *weights = packed + group * kk * panels * nr;
  if (d.groups != s.groups) {
    bool finite = true;
    for (int64_t r = 0; r < in_rows && finite; ++r) finite = conv_all_finite(band.in + r * band.in_row, d.in_cols * c);
    if (!finite) return conv_direct_apart(s, d, band, p0, p1, weights, sink);
  }

  const int64_t columns = gemm_tile_columns(nr), most = gemm_tile_rows(nr);
  const bool in_rows_only = conv_tiles_in_rows(d.ow, nr);
  const int64_t run = in_rows_only ? d.ow : pixels, runs = in_rows_only ? rows : 1;  // pixels that tiles divide
  const int64_t tiles = optc_ceil_div(run, most), low = run / tiles;
  const GemmTileFunction lower = gemm_tile_function(nr, low, !in_rows_only),
                         higher = low * tiles < run ? gemm_tile_function(nr, low + 1, !in_rows_only) : lower;
  GemmTile tile = {nullptr, nr, s.kw * c, s.kh, s.dh * band.in_row, 1, 0, nullptr, 0, true, true, 0, 0, 0, nullptr, 0};
  if (s.dw != 1) tile.k = c, tile.segments = s.kw, tile.segment_step = s.dw * c;
  tile.step = d.prefetch ? optc_clamp(optc_ceil_div(nr * 4, tiles * runs), 1, 64) : 0;
  for (int64_t p = p0; p < p1; ++p) {
    const float *panel = weights + p * kk * nr;
    for (int64_t column = 0; column < nr && p * nr + column < d.oc; column += columns) {
      tile.b = panel + column;
      tile.column = group * d.oc + p * nr + column;
      tile.columns = d.oc - p * nr - column;
      tile.next = (const char *)(panel + (d.prefetch ? kk * nr : 0));
      int64_t y = 0, px = 0;  // of the next pixel
      for (int64_t r = 0; r < runs; ++r)
        for (int64_t i = 0; i < tiles; ++i) {
          const int64_t first = run * i / tiles, height = run * (i + 1) / tiles - first;
          const float *list[kGemmMostRows];
          for (int64_t q = 0; q < height; ++q) {
            list[q] = band.in + y * s.sh * band.in_row + px * s.sw * c;
            if (++px == d.ow) px = 0, ++y;
          }
          tile.row = band.first + r * run + first;
          (height == low ? lower : higher)(list, s.sw * c, tile, sink);
          tile.next += kk * tile.step;
        }
    }
  }
}

// All tasks.
template <class Env>
static OPTC_KERNEL void convolve_direct(const Env &env, const OptcConvShape &s, const ConvSource &x,
                                        const float *packed, const TileSink &sink) {
  const OptcDirect d = optc_direct_plan(s);
  parallel(env, optc_direct_tasks(s, d), 1, [&](int64_t begin, int64_t end, uint8_t *scratch) {
    for (int64_t t = begin; t < end; ++t) conv_direct(s, d, t, x, packed, reinterpret_cast<float *>(scratch), sink);
  });
}
#endif  // OPTC_CPU_CONV_H
