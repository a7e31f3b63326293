// conv.h: convolutions of float or double (T) as matrix products and direct sums. Included inside an instruction-set
// namespace (foreach_isa.h). The result goes to a sink as in gemm.h: row is the output pixel ((image * od + z) * oh +
// y) * ow + x, column the output channel.
#ifndef OPTC_CPU_CONV_H
#define OPTC_CPU_CONV_H
#include "runtime/cpu/conv_plan.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/transpose.h"

// A source image by strides in elements: NHWC with pixel stride >= c, or NCHW; of volumes the stride of planes, too.
template <class T>
struct ConvSourceOf {
  const T *p;
  int64_t image, row, pixel, channel;
  int64_t plane = 0;
};
typedef ConvSourceOf<float> ConvSource;
template <class T>
OPTC_INLINE ConvSourceOf<T> nhwc(const T *p, const OptcConvShape &s) {
  return {p, s.d * s.h * s.w * s.c, s.w * s.c, s.c, 1, s.h * s.w * s.c};
}
template <class T>
OPTC_INLINE ConvSourceOf<T> nchw(const T *p, const OptcConvShape &s) {
  return {p, s.c * s.d * s.h * s.w, s.w, 1, s.d * s.h * s.w, s.h * s.w};
}

// The product that a 1x1 convolution without padding is: rows of A are pixels, weights packed by optc_pack_b from
// [c][oc].
OPTC_INLINE OptcGemm conv_1x1_plan(const OptcConvShape &s, int64_t threads = 1) {
  return optc_gemm_plan(s.n * optc_conv_od(s) * optc_conv_oh(s) * optc_conv_ow(s), s.oc, s.c, threads, 1, s.element);
}
template <class T>
OPTC_INLINE GemmRowsOf<T> conv_1x1_rows(const OptcConvShape &s, const ConvSourceOf<T> &x) {
  if (s.sh == 1 && s.sw == 1) return {x.p, x.pixel};  // images and rows follow one another
  return {x.p, s.sw * x.pixel, optc_conv_ow(s), optc_conv_oh(s), s.sh * x.row, x.image};
}

// All tasks of such a convolution (multiply of gemm.h says what Env is and which scratch it needs where c > 1024).
template <class Env, class T>
OPTC_INLINE void convolve_1x1(const Env &env, const OptcConvShape &s, const ConvSourceOf<T> &x, const T *packed,
                              const TileSinkOf<T> &sink) {
  multiply(env, conv_1x1_plan(s, env.threads), conv_1x1_rows(s, x), packed, nullptr, 0, sink);
}

// Tiles lie in one output row where rows divide evenly enough, else they run over the band's pixels.
template <class T>
constexpr bool conv_tiles_in_rows(int64_t ow, int nr) {
  const int most = gemm_tile_rows<T>(nr);
  return ow > 0 && ow / optc_ceil_div(ow, most) >= most - (most > 6 ? 1 : 0);
}

// out[3 * i + j] = p[j][i] for i < OPTC_VW: three channels of neighbouring pixels side by side.
OPTC_INLINE void conv_interleave(const float *const (&p)[3], float *out) {
  const vf a = load(p[0]), b = load(p[1]), c = load(p[2]);
  OPTC_UNROLL for (int k = 0; k < 3; ++k) {
    vf v = {};
#if defined(__clang__)  // which makes shuffles of these itself
    OPTC_UNROLL for (int j = 0; j < OPTC_VW; ++j) {
      const int at = k * OPTC_VW + j, i = at / 3;
      v[j] = at % 3 == 0 ? a[i] : at % 3 == 1 ? b[i] : c[i];
    }
#else
    vi two = {}, three = {};
    OPTC_UNROLL for (int j = 0; j < OPTC_VW; ++j) {
      const int at = k * OPTC_VW + j, i = at / 3;
      two[j] = at % 3 == 1 ? OPTC_VW + i : i;
      three[j] = at % 3 == 2 ? OPTC_VW + i : j;
    }
    v = __builtin_shuffle(__builtin_shuffle(a, b, two), c, three);
#endif
    store(out + k * OPTC_VW, v);
  }
}

// Copies c channels of n pixels, `step` elements apart, into [n][c].
template <class T>
OPTC_INLINE void conv_copy_pixels(const T *from, int64_t step, int64_t channel, int64_t n, int64_t c, T *to) {
  if (channel == 1 && step == c) {
    memcpy(to, from, sizeof(T) * n * c);
  } else if (channel == 1) {
    for (int64_t i = 0; i < n; ++i) memcpy(to + i * c, from + i * step, sizeof(T) * c);
  } else if (step == 1 && c == 1) {
    memcpy(to, from, sizeof(T) * n);
  } else {
    int64_t i = 0;
    if constexpr (sizeof(T) == sizeof(float)) {
      if (step == 1 && c >= 4) return transpose(from, channel, to, c, c, n);
      for (; step == 1 && c == 3 && i + OPTC_VW <= n; i += OPTC_VW)
        conv_interleave({from + i, from + channel + i, from + 2 * channel + i}, to + 3 * i);
    }
    for (; i < n; ++i)
      for (int64_t j = 0; j < c; ++j) to[i * c + j] = from[j * channel + i * step];
  }
}

// Copies channels [c0, c0 + c) of a band of one plane (null: outside) with its border of zeros into [rows][cols][c]. Of
// the pads, which may be negative (inputs that no tap reads), the left one is used: y0 is the first row, inside the
// plane or not.
template <class T>
static OPTC_KERNEL void conv_copy_band(const OptcConvShape &s, const ConvSourceOf<T> &x, const GemmElement<T> *plane,
                                       int64_t y0, int64_t rows, int64_t cols, int64_t c0, int64_t c, T *out) {
  const auto zero = [](T *to, int64_t count) { memset(to, 0, sizeof(T) * count); };
  if (!plane) return zero(out, rows * cols * c);
  const int64_t top = optc_clamp(-y0, 0, rows), bottom = optc_clamp(s.h - y0, top, rows);  // rows inside
  const int64_t left = optc_clamp(s.pad_left, 0, cols), skipped = s.pad_left < 0 ? -s.pad_left : 0;
  const int64_t inside = optc_clamp(s.w - skipped, 0, cols - left), right = cols - left - inside;
  const T *from = plane + (y0 + top) * x.row + skipped * x.pixel + c0 * x.channel;
  zero(out, top * cols * c);
  out += top * cols * c;
  if (inside == cols && cols == 1) {  // a line that stands upright
    conv_copy_pixels(from, x.row, x.channel, bottom - top, c, out);
    out += (bottom - top) * c;
  } else {
    for (int64_t r = top; r < bottom; ++r, from += x.row, out += cols * c) {
      zero(out, left * c);
      conv_copy_pixels(from, x.pixel, x.channel, inside, c, out + left * c);
      zero(out + (left + inside) * c, right * c);
    }
  }
  zero(out, (rows - bottom) * cols * c);
}

// A band of a direct convolution: the dense padded block that the tiles read.
template <class T>
struct ConvBandOf {
  const T *in;
  int64_t in_plane, in_row;  // elements from the plane (row) of one tap (one row) to the next
  int64_t first, rows;       // the output pixel that it begins with, its output rows
  int64_t group;
};

// Groups that share a vector, where an infinity or NaN among their inputs would reach the others by its product with a
// zero between them: one sum at a time, over the group's own channels.
OPTC_INLINE float conv_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
OPTC_INLINE double conv_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
template <class T>
static OPTC_KERNEL void conv_direct_apart(const OptcConvShape &s, const OptcDirect &d, const ConvBandOf<T> &band,
                                          int64_t p0, int64_t p1, const T *weights, const TileSinkOf<T> &sink) {
  const int64_t own_c = s.c / s.groups, own_oc = s.oc / s.groups, kk = s.kd * s.kh * s.kw * d.c;
  const int64_t end = optc_clamp(optc_panel_begin(d.panels, p1), 0, d.oc);
  for (int64_t y = 0; y < band.rows; ++y)
    for (int64_t x = 0; x < d.ow; ++x)
      for (int64_t o = optc_panel_begin(d.panels, p0); o < end; ++o) {
        const int64_t c0 = o / own_oc * own_c, p = optc_panel_of(d.panels, o), nr = optc_panel_width(d.panels, p);
        const T *in = band.in + y * s.sh * band.in_row + x * s.sw * d.c,
                *w = weights + optc_panel_begin(d.panels, p) * (kk - 1) + o;
        T sums[OPTC_VW] = {};
        for (int64_t z = 0; z < s.kd; ++z)
          for (int64_t i = 0; i < s.kh; ++i)
            for (int64_t j = 0; j < s.kw; ++j)
              for (int64_t c = c0; c < c0 + own_c; ++c)
                sums[0] = conv_fma(in[z * band.in_plane + i * s.dh * band.in_row + j * s.dw * d.c + c],
                                   w[(((z * s.kh + i) * s.kw + j) * d.c + c) * nr], sums[0]);
        sink(sums, OPTC_VW, band.first + y * d.ow + x, band.group * d.oc + o, 1, 1);
      }
}

template <class T>
static OPTC_KERNEL bool conv_all_finite(const T *p, int64_t n) {
  const Lanes<T> none = broadcast(T(0));
  Lanes<T> zero = none;  // x * 0 is zero or NaN
  T rest = 0;
  int64_t i = 0;
  for (; i + OPTC_VW <= n; i += OPTC_VW) zero = fma(load(p + i), none, zero);
  for (; i < n; ++i) rest += p[i] * T(0);
  return reduce_sum(zero) + rest == 0;
}

// Outputs [begin, end) of one axis whose taps [first, last) lie inside.
struct ConvInside {
  int64_t begin, end, first, last;
};
OPTC_INLINE void conv_taps_inside(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad, int64_t o,
                                  int64_t &first, int64_t &last) {
  const int64_t at = o * stride - pad;
  first = optc_clamp(at < 0 ? optc_ceil_div(-at, dilation) : 0, 0, kernel);
  last = optc_clamp(at < in ? optc_ceil_div(in - at, dilation) : 0, first, kernel);
}
OPTC_INLINE ConvInside conv_inside(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                                   int64_t begin, int64_t end) {
  ConvInside r = {begin, begin + 1, 0, 0};
  conv_taps_inside(in, kernel, stride, dilation, pad, begin, r.first, r.last);
  for (; r.end < end; ++r.end) {
    int64_t first, last;
    conv_taps_inside(in, kernel, stride, dilation, pad, r.end, first, last);
    if (first != r.first || last != r.last) break;
  }
  return r;
}

// Hands on the sums of a rectangle of pixels, which are rows one after another to the tiles.
template <class T>
struct ConvRectangleOf {
  const TileSinkOf<T> &to;
  int64_t first, width, ow;  // output pixel of its corner; pixels of its rows and of the output's
};
template <class T>
static OPTC_KERNEL void conv_finish_rectangle(const void *body, const T *sums, int64_t ld, int64_t row, int64_t column,
                                              int64_t rows, int64_t columns) {
  const ConvRectangleOf<T> &r = *static_cast<const ConvRectangleOf<T> *>(body);
  int64_t y = row / r.width, x = row % r.width;
  for (int64_t i = 0; i < rows;) {
    const int64_t n = optc_clamp(rows - i, 0, r.width - x);
    r.to(sums + i * ld, ld, r.first + y * r.ow + x, column, n, columns);
    i += n, x = 0, ++y;
  }
}

// The output rows [y0, y1) of a plane z, panels [p0, p1) of a group, from the image where it lies: rectangles of pixels
// with the same taps inside, each with those alone.
template <class T>
static OPTC_KERNEL void conv_direct_inside(const OptcConvShape &s, const OptcDirect &d, const ConvSourceOf<T> &x,
                                           int64_t out_plane, int64_t group, int64_t y0, int64_t y1, int64_t p0,
                                           int64_t p1, const T *weights, const TileSinkOf<T> &sink) {
  const int64_t c = d.c, image = out_plane / d.od, z = out_plane % d.od, kk = s.kd * s.kh * s.kw * c;
  const ConvInside iz = conv_inside(s.d, s.kd, s.sd, s.dd, s.pad_front, z, z + 1);
  const bool whole_rows = x.pixel == c && s.dw == 1;  // the taps of a kernel row follow one another
  ConvInside iy = {}, ix = {};
  for (int64_t y = y0; y < y1; y = iy.end) {
    iy = conv_inside(s.h, s.kh, s.sh, s.dh, s.pad_top, y, y1);
    for (int64_t px = 0; px < d.ow; px = ix.end) {
      ix = conv_inside(s.w, s.kw, s.sw, s.dw, s.pad_left, px, d.ow);
      const int64_t width = ix.end - px, pixels = (iy.end - y) * width, taps = ix.last - ix.first;
      const ConvRectangleOf<T> body = {sink, (out_plane * d.oh + y) * d.ow + px, width, d.ow};
      const TileSinkOf<T> rectangle = {conv_finish_rectangle<T>, &body};
      const T *in = x.p + image * x.image + (z * s.sd - s.pad_front + iz.first * s.dd) * x.plane +
                    (y * s.sh - s.pad_top + iy.first * s.dh) * x.row +
                    (px * s.sw - s.pad_left + ix.first * s.dw) * x.pixel + group * c;
      for (int64_t p = p0; p < p1; ++p) {
        const int nr = optc_panel_width(d.panels, p);
        const int64_t tiles = optc_ceil_div(pixels, gemm_tile_rows<T>(nr)), low = pixels / tiles;
        const GemmTileFunctionOf<T> lower = gemm_tile_function<T>(nr, low, true),
                                    higher = low * tiles < pixels ? gemm_tile_function<T>(nr, low + 1, true) : lower;
        GemmTileOf<T> tile = {
            nullptr, nr,      c, iy.last - iy.first, s.dh * x.row, taps, s.dw * x.pixel, nullptr, 0, true, true, 0, 0,
            0,       nullptr, 0};
        tile.few = d.oh * d.ow <= kGemmFewRows;
        if (whole_rows) tile.k = taps * c, tile.segments = 1;
        tile.planes = iz.last - iz.first, tile.plane_step = s.dd * x.plane;
        tile.row_skip = (s.kw - taps) * c * nr, tile.plane_skip = (s.kh - tile.kernel_rows) * s.kw * c * nr;
        const int64_t begin = optc_panel_begin(d.panels, p);
        const T *panel = weights + begin * kk + ((iz.first * s.kh + iy.first) * s.kw + ix.first) * c * nr;
        for (int64_t column = 0; column < nr && begin + column < d.oc; column += gemm_tile_columns<T>(nr)) {
          tile.b = panel + column;
          tile.column = group * d.oc + begin + column;
          tile.columns = d.oc - begin - column;
          tile.next = (const char *)panel;
          for (int64_t i = 0; i < tiles; ++i) {
            const int64_t first = pixels * i / tiles, height = pixels * (i + 1) / tiles - first;
            const T *list[kGemmMostRows];
            int64_t ry = first / width, rx = first % width;
            for (int64_t q = 0; q < height; ++q) {
              list[q] = in + ry * s.sh * x.row + rx * s.sw * x.pixel;
              if (++rx == width) rx = 0, ++ry;
            }
            tile.row = first;
            (height == low ? lower : higher)(list, 0, tile, rectangle);
          }
        }
      }
    }
  }
}

// Task t of the plan `d`. scratch: d.scratch_floats elements of the running thread. Weights by optc_direct_pack.
template <class T>
static OPTC_KERNEL void conv_direct(const OptcConvShape &s, const OptcDirect &d, int64_t t, const ConvSourceOf<T> &x,
                                    const T *packed, GemmElement<T> *scratch, const TileSinkOf<T> &sink) {
  const int64_t oc_task = t % d.oc_tasks, band_number = t / d.oc_tasks % d.row_tasks,
                group = t / d.oc_tasks / d.row_tasks % d.groups;
  const int64_t out_plane = t / d.oc_tasks / d.row_tasks / d.groups, image = out_plane / d.od, z = out_plane % d.od;
  const int64_t y0 = d.oh * band_number / d.row_tasks, y1 = d.oh * (band_number + 1) / d.row_tasks, rows = y1 - y0;
  const int64_t in_rows = (rows - 1) * s.sh + (s.kh - 1) * s.dh + 1, c = d.c;
  if (rows <= 0 || d.ow <= 0) return;
  const int64_t kk = s.kd * s.kh * s.kw * c, panels = optc_panel_count(d.panels), pixels = rows * d.ow;
  const int64_t p0 = panels * oc_task / d.oc_tasks, p1 = panels * (oc_task + 1) / d.oc_tasks;
  const T *weights = packed + group * kk * optc_panel_columns(d.panels);
  if (x.channel == 1 && optc_direct_skips(s))
    return conv_direct_inside(s, d, x, out_plane, group, y0, y1, p0, p1, weights, sink);

  // The band as a dense padded block: the source itself when it is one.
  const int64_t z0 = z * s.sd - s.pad_front, row0 = y0 * s.sh - s.pad_top;
  ConvBandOf<T> band = {scratch, in_rows * d.in_cols * c, d.in_cols * c, (out_plane * d.oh + y0) * d.ow, rows, group};
  const bool no_pads =
      s.pad_front <= 0 && s.pad_back <= 0 && s.pad_top <= 0 && s.pad_left <= 0 && s.pad_bottom <= 0 && s.pad_right <= 0;
  const T *volume = x.p + image * x.image;
  if (no_pads && x.channel == 1 && x.pixel == c) {
    band.in = volume + z0 * x.plane + row0 * x.row - s.pad_left * x.pixel;
    band.in_plane = s.dd * x.plane;
    band.in_row = x.row;
  } else {
    for (int64_t k = 0; k < s.kd; ++k) {
      const int64_t at = z0 + k * s.dd;
      conv_copy_band(s, x, at < 0 || at >= s.d ? nullptr : volume + at * x.plane, row0, in_rows, d.in_cols, group * c,
                     c, scratch + k * band.in_plane);
    }
  }

  if (d.groups != s.groups) {
    bool finite = true;
    for (int64_t r = 0; r < s.kd * in_rows && finite; ++r)
      finite = conv_all_finite(band.in + r / in_rows * band.in_plane + r % in_rows * band.in_row, d.in_cols * c);
    if (!finite) return conv_direct_apart(s, d, band, p0, p1, weights, sink);
  }

  for (int64_t p = p0; p < p1; ++p) {
    const int nr = optc_panel_width(d.panels, p);
    const bool in_rows_only = conv_tiles_in_rows<T>(d.ow, nr);
    const int64_t run = in_rows_only ? d.ow : pixels, runs = in_rows_only ? rows : 1;  // pixels that tiles divide
    const int64_t tiles = optc_ceil_div(run, gemm_tile_rows<T>(nr)), low = run / tiles;
    const GemmTileFunctionOf<T> lower = gemm_tile_function<T>(nr, low, !in_rows_only),
                                higher = low * tiles < run ? gemm_tile_function<T>(nr, low + 1, !in_rows_only) : lower;
    GemmTileOf<T> tile = {nullptr, nr, s.kw * c, s.kh, s.dh * band.in_row, 1, 0, nullptr, 0, true, true, 0,
                          0,       0,  nullptr,  0};
    tile.planes = s.kd, tile.plane_step = band.in_plane, tile.few = d.oh * d.ow <= kGemmFewRows;
    if (s.dw != 1) tile.k = c, tile.segments = s.kw, tile.segment_step = s.dw * c;
    tile.step = d.prefetch ? optc_clamp(optc_ceil_div(nr * int64_t(sizeof(T)), tiles * runs), 1, 64) : 0;
    const int64_t begin = optc_panel_begin(d.panels, p);
    const T *panel = weights + begin * kk;
    for (int64_t column = 0; column < nr && begin + column < d.oc; column += gemm_tile_columns<T>(nr)) {
      tile.b = panel + column;
      tile.column = group * d.oc + begin + column;
      tile.columns = d.oc - begin - column;
      tile.next = (const char *)(panel + (d.prefetch ? kk * nr : 0));
      int64_t y = 0, px = 0;  // of the next pixel
      for (int64_t r = 0; r < runs; ++r)
        for (int64_t i = 0; i < tiles; ++i) {
          const int64_t first = run * i / tiles, height = run * (i + 1) / tiles - first;
          const T *list[kGemmMostRows];
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
template <class Env, class T>
static OPTC_KERNEL void convolve_direct(const Env &env, const OptcConvShape &s, const ConvSourceOf<T> &x,
                                        const T *packed, const TileSinkOf<T> &sink) {
  const OptcDirect d = optc_direct_plan(s, env.threads);
  parallel(env, optc_direct_tasks(s, d), 1, [&](int64_t begin, int64_t end, uint8_t *scratch) {
    for (int64_t t = begin; t < end; ++t) conv_direct(s, d, t, x, packed, reinterpret_cast<T *>(scratch), sink);
  });
}
#endif  // OPTC_CPU_CONV_H
