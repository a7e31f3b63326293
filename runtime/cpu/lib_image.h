// lib_image.h: sampling at computed positions: GridSample, RoiAlign, MaxRoiPool, DeformConv, Col2Im.
#pragma once
#include <math.h>

#include "lib_util.h"

static inline double optc_lib_reflect(double x, double low, double high) {
  const double range = high - low;
  if (!(range > 0)) return low;
  double d = fmod(fabs(x - low), 2 * range);
  return d > range ? high - (d - range) : low + d;
}

// The element of a plane at integer coordinates under a padding mode (0 zeros, 1 border, 2 reflection); reflection
// about [low, high].
typedef struct OptcLibPlane {
  const OptcLibTensor *x;
  int64_t base;  // element number of the plane's first
  int32_t n;     // spatial dims
  const int64_t *dims;
  int padding, align;
} OptcLibPlane;
// Its number; -1 where the padding is zeros, or there is no element.
static inline int64_t optc_lib_pixel_at(const OptcLibPlane *p, const int64_t *at) {
  int64_t offset = 0;
  for (int32_t k = 0; k < p->n; ++k) {
    int64_t i = at[k];
    if (i < 0 || i >= p->dims[k]) {
      if (p->padding == 0 || p->dims[k] == 0) return -1;
      if (p->padding == 1) {
        i = i < 0 ? 0 : p->dims[k] - 1;
      } else {
        i = (int64_t)(p->align ? optc_lib_reflect((double)i, 0, (double)(p->dims[k] - 1))
                               : optc_lib_reflect((double)i, -0.5, (double)p->dims[k] - 0.5));
        i = i < 0 ? 0 : i >= p->dims[k] ? p->dims[k] - 1 : i;
      }
    }
    offset = offset * p->dims[k] + i;
  }
  return p->base + offset;
}
static inline void optc_lib_cubic(double t, double *w) {  // Keys' convolution, a = -0.75
  const double a = -0.75;
  for (int k = 0; k < 4; ++k) {
    const double d = fabs(t - (k - 1));
    w[k] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  }
}
// What a sample sums: weights times elements, whose numbers count from the begin of a plane. The same in every plane.
typedef struct OptcLibTap {
  double weight;
  int64_t at;
} OptcLibTap;
// Of 2 (linear) or 4 (cubic) an axis those that weigh and lie on an element; their number. p->base is 0.
static inline int64_t optc_lib_taps(const OptcLibPlane *p, const double *x, int taps, OptcLibTap *to) {
  double w[8][4];
  int64_t first[8], at[8];
  int64_t combinations = 1, count = 0;
  for (int32_t k = 0; k < p->n; ++k) {
    const double f = floor(x[k]), t = x[k] - f;
    first[k] = (int64_t)f - (taps == 4);
    if (taps == 4)
      optc_lib_cubic(t, w[k]);
    else
      w[k][0] = 1 - t, w[k][1] = t;
    combinations *= taps;
  }
  for (int64_t c = 0; c < combinations; ++c) {
    double weight = 1;
    int64_t rest = c;
    for (int32_t k = p->n; k-- > 0;) {
      const int64_t t = rest % taps;
      rest /= taps;
      at[k] = first[k] + t;
      weight *= w[k][t];
    }
    const int64_t pixel = weight != 0 ? optc_lib_pixel_at(p, at) : -1;
    if (pixel >= 0) to[count].weight = weight, to[count++].at = pixel;
  }
  return count;
}
// Their sum in the plane that begins at element `base`.
static inline double optc_lib_sum_taps(const OptcLibTensor *x, int64_t base, const OptcLibTap *taps, int64_t count) {
  double sum = 0;
  if (x->type == 1) {
    const float *plane = (const float *)x->data + base;
    for (int64_t k = 0; k < count; ++k) sum += taps[k].weight * (double)plane[taps[k].at];
  } else {
    for (int64_t k = 0; k < count; ++k) sum += taps[k].weight * optc_lib_double(x, base + taps[k].at);
  }
  return sum;
}
enum { OPTC_LIB_SAMPLES = 32 };  // whose taps are at hand while all channels are read

// inputs: X [N, C, spatial...], grid [N, out..., n] (x first); attributes mode (nearest, linear, cubic and their old
// names), padding_mode, align_corners. Output: [N, C, out...].
static inline int optc_lib_grid_sample(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *grid = &call->inputs[1];
  const int32_t n = x->rank - 2;
  const char *mode = optc_lib_string_attribute(call, "mode", "linear"),
             *padding = optc_lib_string_attribute(call, "padding_mode", "zeros");
  const int nearest = mode[0] == 'n', cubic = optc_lib_same(mode, "cubic") || optc_lib_same(mode, "bicubic");
  const int align = optc_lib_int_attribute(call, "align_corners", 0) != 0;
  int64_t plane = 1, points = 1;
  for (int32_t k = 0; k < n; ++k) plane *= x->dims[2 + k], points *= grid->dims[1 + k];
  int64_t most = 1;  // taps
  for (int32_t k = 0; k < n && !nearest; ++k) most *= cubic ? 4 : 2;
  OptcLibTap *taps = (OptcLibTap *)malloc((size_t)(OPTC_LIB_SAMPLES * most) * sizeof(OptcLibTap));
  if (!taps) return optc_lib_out_of_memory(call);
  OptcLibTensor *y = &call->outputs[0];
  const OptcLibPlane p = {x, 0, n, x->dims + 2, padding[0] == 'b' ? 1 : padding[0] == 'r' ? 2 : 0, align};
  for (int64_t b = 0; b < x->dims[0]; ++b)
    for (int64_t first = 0; first < points; first += OPTC_LIB_SAMPLES) {
      const int64_t some = optc_lib_lesser(points - first, OPTC_LIB_SAMPLES);
      int64_t count[OPTC_LIB_SAMPLES];  // nearest: the element, or -1
      for (int64_t q = 0; q < some; ++q) {
        double at[8];
        for (int32_t k = 0; k < n; ++k) {
          const double g = optc_lib_double(grid, (b * points + first + q) * n + (n - 1 - k)),
                       length = (double)p.dims[k];
          double v = align ? (g + 1) / 2 * (length - 1) : ((g + 1) * length - 1) / 2;
          if (v != v) v = -1;
          if (!(fabs(v) < 1e15)) v = v < 0 ? -1e15 : 1e15;
          if (nearest) v = nearbyint(v);
          // Where all of a window would be padding, the position itself is brought inside first; not that of a cubic
          // window beside the border, whose weights still turn there: each of its pixels is (as PyTorch does it).
          const double low = align ? 0 : -0.5, high = align ? length - 1 : length - 0.5;
          if (v < low || v > high) {
            if (p.padding == 1 && !cubic) v = v < 0 ? 0 : v > length - 1 ? length - 1 : v;
            if (p.padding == 2) v = optc_lib_reflect(v, low, high);
          }
          at[k] = v;
        }
        if (nearest) {
          int64_t i[8];
          for (int32_t k = 0; k < n; ++k) i[k] = (int64_t)nearbyint(at[k]);
          count[q] = optc_lib_pixel_at(&p, i);
        } else {
          count[q] = optc_lib_taps(&p, at, cubic ? 4 : 2, taps + q * most);
        }
      }
      for (int64_t c = 0; c < x->dims[1]; ++c) {
        const int64_t base = (b * x->dims[1] + c) * plane, to = (b * x->dims[1] + c) * points + first;
        for (int64_t q = 0; q < some; ++q)
          if (nearest)
            optc_lib_copy_element(y, to + q, x, count[q] < 0 ? -1 : base + count[q]);
          else
            optc_lib_set(y, to + q, optc_lib_sum_taps(x, base, taps + q * most, count[q]));
      }
    }
  free(taps);
  return 0;
}

// Samples along a bin that is `extent` pixels long: one a pixel, at least one.
static inline int64_t optc_lib_roi_samples(double extent) {
  return extent > 1 ? extent < 0x1p30 ? (int64_t)ceil(extent) : (int64_t)1 << 30 : 1;
}
// A bilinear sample of a region; without weight where it lies outside of the image.
static inline void optc_lib_roi_taps(double y, double z, int64_t height, int64_t width, OptcLibTap *taps) {
  memset(taps, 0, 4 * sizeof *taps);
  if (!(y >= -1 && y <= (double)height && z >= -1 && z <= (double)width)) return;
  y = y > 0 ? y : 0, z = z > 0 ? z : 0;
  int64_t y0 = (int64_t)y, x0 = (int64_t)z, y1 = y0 + 1, x1 = x0 + 1;
  if (y0 >= height - 1) y0 = y1 = height - 1, y = (double)y0;
  if (x0 >= width - 1) x0 = x1 = width - 1, z = (double)x0;
  const double ly = y - (double)y0, lx = z - (double)x0;
  const OptcLibTap four[4] = {{(1 - ly) * (1 - lx), y0 * width + x0},
                              {(1 - ly) * lx, y0 * width + x1},
                              {ly * (1 - lx), y1 * width + x0},
                              {ly * lx, y1 * width + x1}};
  memcpy(taps, four, sizeof four);
}
// inputs: X [N, C, H, W], rois [R, 4] (x1, y1, x2, y2), batch_indices [R]; attributes mode, output_height,
// output_width, sampling_ratio, spatial_scale, half_pixel. Output: [R, C, output_height, output_width].
static inline int optc_lib_roi_align(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *rois = &call->inputs[1];
  const int64_t regions = rois->dims[0], channels = x->dims[1], height = x->dims[2], width = x->dims[3];
  const int64_t oh = optc_lib_int_attribute(call, "output_height", 1),
                ow = optc_lib_int_attribute(call, "output_width", 1),
                ratio = optc_lib_int_attribute(call, "sampling_ratio", 0);
  const double scale = optc_lib_float_attribute(call, "spatial_scale", 1),
               shift = optc_lib_int_attribute(call, "half_pixel", 1) ? 0.5 : 0;
  const int most = optc_lib_same(optc_lib_string_attribute(call, "mode", "avg"), "max"), empty = height * width == 0;
  double *result = (double *)malloc((size_t)(channels + 1) * sizeof(double));  // of a bin
  if (!result) return optc_lib_out_of_memory(call);
  for (int64_t r = 0; r < regions; ++r) {
    const int64_t batch = optc_lib_int_at(&call->inputs[2], r);
    const char *problem = batch < 0 || batch >= x->dims[0] ? "RoiAlign: a batch index is out of range" : nullptr;
    double box[4];
    for (int k = 0; k < 4; ++k) {
      box[k] = optc_lib_double(rois, 4 * r + k) * scale - shift;
      if (!problem && !(fabs(box[k]) < INFINITY)) problem = "RoiAlign: a region is not finite";
    }
    double rw = box[2] - box[0], rh = box[3] - box[1];
    if (shift == 0) rw = rw > 1 ? rw : 1, rh = rh > 1 ? rh : 1;
    const double bh = rh / (double)oh, bw = rw / (double)ow;
    const int64_t gh = ratio > 0 ? ratio : optc_lib_roi_samples(bh), gw = ratio > 0 ? ratio : optc_lib_roi_samples(bw);
    if (!problem && gh >= ((int64_t)1 << 30) / gw) problem = "RoiAlign: a region is too large";
    if (problem) {
      free(result);
      return optc_lib_fault(call, problem);
    }
    for (int64_t i = 0; i < oh; ++i)
      for (int64_t j = 0; j < ow; ++j) {
        for (int64_t c = 0; c < channels; ++c) result[c] = most && !empty ? -INFINITY : 0;
        for (int64_t first = 0; first < gh * gw && !empty; first += OPTC_LIB_SAMPLES) {
          const int64_t some = optc_lib_lesser(gh * gw - first, OPTC_LIB_SAMPLES);
          OptcLibTap taps[OPTC_LIB_SAMPLES][4];
          for (int64_t q = 0; q < some; ++q) {
            const double u = (double)((first + q) / gw), v = (double)((first + q) % gw);
            optc_lib_roi_taps(box[1] + (double)i * bh + (u + 0.5) * bh / (double)gh,
                              box[0] + (double)j * bw + (v + 0.5) * bw / (double)gw, height, width, taps[q]);
          }
          for (int64_t c = 0; c < channels; ++c) {
            const int64_t base = (batch * channels + c) * height * width;
            for (int64_t q = 0; q < some; ++q)
              if (most)
                for (int k = 0; k < 4; ++k) {
                  const double e = taps[q][k].weight * optc_lib_double(x, base + taps[q][k].at);
                  result[c] = e > result[c] ? e : result[c];
                }
              else
                result[c] += optc_lib_sum_taps(x, base, taps[q], 4);
          }
        }
        for (int64_t c = 0; c < channels; ++c)
          optc_lib_set(&call->outputs[0], ((r * channels + c) * oh + i) * ow + j,
                       most ? result[c] : result[c] / (double)(gh * gw));
      }
  }
  free(result);
  return 0;
}

// inputs: X [N, C, H, W], rois [R, 5] (batch, x1, y1, x2, y2); attributes pooled_shape, spatial_scale. Output: [R, C,
// ph, pw].
static inline int optc_lib_max_roi_pool(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *rois = &call->inputs[1];
  const OptcLibAttribute *pooled = optc_lib_attribute(call, "pooled_shape");
  const double scale = optc_lib_float_attribute(call, "spatial_scale", 1);
  const int64_t channels = x->dims[1], height = x->dims[2], width = x->dims[3], ph = pooled->ints[0],
                pw = pooled->ints[1];
  for (int64_t r = 0; r < rois->dims[0]; ++r) {
    const int64_t batch = optc_lib_int_at(rois, 5 * r);
    if (batch < 0 || batch >= x->dims[0]) return optc_lib_fault(call, "MaxRoiPool: a batch index is out of range");
    int64_t box[4];
    for (int k = 0; k < 4; ++k)  // far outside is outside
      box[k] = (int64_t)round(fmin(fmax(optc_lib_double(rois, 5 * r + 1 + k) * scale, -0x1p40), 0x1p40));
    const double rh = (double)(box[3] - box[1] + 1 > 1 ? box[3] - box[1] + 1 : 1),
                 rw = (double)(box[2] - box[0] + 1 > 1 ? box[2] - box[0] + 1 : 1);
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < ph; ++i)
        for (int64_t j = 0; j < pw; ++j) {
          int64_t h0 = (int64_t)floor((double)i * rh / (double)ph) + box[1],
                  h1 = (int64_t)ceil((double)(i + 1) * rh / (double)ph) + box[1];
          int64_t w0 = (int64_t)floor((double)j * rw / (double)pw) + box[0],
                  w1 = (int64_t)ceil((double)(j + 1) * rw / (double)pw) + box[0];
          h0 = h0 < 0 ? 0 : h0, w0 = w0 < 0 ? 0 : w0, h1 = h1 > height ? height : h1, w1 = w1 > width ? width : w1;
          double best = h0 < h1 && w0 < w1 ? -INFINITY : 0;
          for (int64_t h = h0; h < h1; ++h)
            for (int64_t w = w0; w < w1; ++w) {
              const double v = optc_lib_double(x, ((batch * channels + c) * height + h) * width + w);
              best = v > best ? v : best;
            }
          optc_lib_set(&call->outputs[0], ((r * channels + c) * ph + i) * pw + j, best);
        }
  }
  return 0;
}

typedef double OptcLibDoubles __attribute__((vector_size(16)));
enum { OPTC_LIB_PLACES = 16 };  // of a result that are summed side by side
// inputs: X [N, C, H, W], W [M, C / group, kh, kw], offset [N, offset_group * kh * kw * 2, oh, ow] (y, x), B
// (optional), mask (optional); attributes dilations, group, offset_group, pads, strides. Output: [N, M, oh, ow].
static inline int optc_lib_deform_conv(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *w = &call->inputs[1], *offset = &call->inputs[2],
                      *bias = optc_lib_input(call, 3), *mask = optc_lib_input(call, 4);
  const OptcLibAttribute *d = optc_lib_attribute(call, "dilations"), *p = optc_lib_attribute(call, "pads"),
                         *s = optc_lib_attribute(call, "strides");
  const int64_t group = optc_lib_int_attribute(call, "group", 1),
                offset_group = optc_lib_int_attribute(call, "offset_group", 1);
  const int64_t dh = d ? d->ints[0] : 1, dw = d ? d->ints[1] : 1, top = p ? p->ints[0] : 0, left = p ? p->ints[1] : 0,
                sh = s ? s->ints[0] : 1, sw = s ? s->ints[1] : 1;
  const int64_t channels = x->dims[1], filters = w->dims[0], depth = w->dims[1], kh = w->dims[2], kw = w->dims[3],
                oh = offset->dims[2], ow = offset->dims[3];
  const int64_t per_group = filters / group, per_offset = channels / offset_group, kernel = kh * kw, area = oh * ow;
  // What the filters multiply, of some places of the result: of each channel and tap, the places side by side.
  const int64_t rows = channels * kernel;
  OptcLibDoubles(*columns)[OPTC_LIB_PLACES / 2] =
      (OptcLibDoubles(*)[OPTC_LIB_PLACES / 2]) malloc((size_t)(rows + 1) * sizeof *columns);
  if (!columns) return optc_lib_out_of_memory(call);
  const OptcLibPlane plane = {x, 0, 2, x->dims + 2, 0, 1};
  for (int64_t n = 0; n < x->dims[0]; ++n)
    for (int64_t first = 0; first < area; first += OPTC_LIB_PLACES) {
      const int64_t some = optc_lib_lesser(area - first, OPTC_LIB_PLACES);
      memset(columns, 0, (size_t)rows * sizeof *columns);
      for (int64_t g = 0; g < offset_group; ++g)
        for (int64_t tap = 0; tap < kernel; ++tap)
          for (int64_t q = 0; q < some; ++q) {
            const int64_t i = (first + q) / ow, j = (first + q) % ow;
            const int64_t at = ((n * offset_group + g) * kernel + tap) * 2 * area + first + q;
            const double position[2] = {(double)(i * sh - top + tap / kw * dh) + optc_lib_double(offset, at),
                                        (double)(j * sw - left + tap % kw * dw) + optc_lib_double(offset, at + area)};
            if (!(fabs(position[0]) < 1e15 && fabs(position[1]) < 1e15)) continue;
            OptcLibTap taps[4];
            const int64_t count = optc_lib_taps(&plane, position, 2, taps);
            const double factor =
                mask ? optc_lib_double(mask, ((n * offset_group + g) * kernel + tap) * area + first + q) : 1;
            for (int64_t c = g * per_offset; c < (g + 1) * per_offset; ++c)
              columns[c * kernel + tap][q / 2][q % 2] =
                  factor * optc_lib_sum_taps(x, (n * channels + c) * x->dims[2] * x->dims[3], taps, count);
          }
      for (int64_t m = 0; m < filters; ++m) {
        const OptcLibDoubles zero = {0, 0};
        OptcLibDoubles sum[OPTC_LIB_PLACES / 2];
        for (int q = 0; q < OPTC_LIB_PLACES / 2; ++q) sum[q] = zero + (bias ? optc_lib_double(bias, m) : 0);
        for (int64_t k = 0; k < depth * kernel; ++k) {
          const OptcLibDoubles weight = zero + optc_lib_double(w, m * depth * kernel + k);
          const OptcLibDoubles *column = columns[m / per_group * depth * kernel + k];
          for (int q = 0; q < OPTC_LIB_PLACES / 2; ++q) sum[q] += weight * column[q];
        }
        for (int64_t q = 0; q < some; ++q)
          optc_lib_set(&call->outputs[0], (n * filters + m) * area + first + q, sum[q / 2][q % 2]);
      }
    }
  free(columns);
  return 0;
}

// inputs: X [N, C * blocks, L], image_shape, block_shape; attributes dilations, pads, strides. Output: [N, C,
// image...]. Sizes: its dims.
static inline int optc_lib_col2im(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *image = &call->inputs[1], *block = &call->inputs[2];
  const OptcLibAttribute *dilations = optc_lib_attribute(call, "dilations"), *pads = optc_lib_attribute(call, "pads"),
                         *strides = optc_lib_attribute(call, "strides");
  const int32_t n = (int32_t)optc_lib_count(image);
  if (n < 1 || n > 6 || optc_lib_count(block) != n)
    return optc_lib_fault(call, "Col2Im: image_shape and block_shape differ in length");
  int64_t kernel[6], columns[6], dims[8], taps = 1, length = 1, pixels = 1;
  for (int32_t k = 0; k < n; ++k) {
    kernel[k] = optc_lib_int_at(block, k);
    dims[2 + k] = optc_lib_int_at(image, k);
    const int64_t d = dilations ? dilations->ints[k] : 1, s = strides ? strides->ints[k] : 1,
                  p = pads ? pads->ints[k] + pads->ints[n + k] : 0;
    if (kernel[k] < 1 || s < 1 || dims[2 + k] < 1) return optc_lib_fault(call, "Col2Im: a shape is not positive");
    columns[k] = (dims[2 + k] + p - d * (kernel[k] - 1) - 1) / s + 1;
    if (columns[k] < 0) return optc_lib_fault(call, "Col2Im: the input's dims do not fit the image and the block");
    taps *= kernel[k], length *= columns[k], pixels *= dims[2 + k];
  }
  if (x->dims[1] % taps != 0 || x->dims[2] != length)
    return optc_lib_fault(call, "Col2Im: the input's dims do not fit the image and the block");
  dims[0] = x->dims[0], dims[1] = x->dims[1] / taps;
  for (int32_t k = 0; k < n + 2; ++k) call->sizes[k] = dims[k];
  if (!optc_lib_allocate(call, 0, n + 2, dims)) return optc_lib_out_of_memory(call);
  const int whole = optc_lib_is_int(x->type);  // sums of integers wrap
  double *sum = (double *)malloc((size_t)(pixels + 1) * sizeof(double));
  uint64_t *wrapped = (uint64_t *)sum;
  if (!sum) return optc_lib_out_of_memory(call);
  for (int64_t plane = 0; plane < dims[0] * dims[1]; ++plane) {
    memset(sum, 0, (size_t)pixels * sizeof(double));
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t l = 0; l < length; l += columns[n - 1]) {  // rows of columns
        int64_t tap = t / kernel[n - 1], column = l / columns[n - 1], stride = dims[n + 1], to = 0;
        int inside = 1;
        for (int32_t k = n - 1; k-- > 0;) {
          const int64_t i = column % columns[k] * (strides ? strides->ints[k] : 1) - (pads ? pads->ints[k] : 0) +
                            tap % kernel[k] * (dilations ? dilations->ints[k] : 1);
          column /= columns[k], tap /= kernel[k];
          if (i < 0 || i >= dims[2 + k]) inside = 0;
          to += i * stride, stride *= dims[2 + k];
        }
        const int64_t from = (plane * taps + t) * length + l, step = strides ? strides->ints[n - 1] : 1;
        int64_t i = t % kernel[n - 1] * (dilations ? dilations->ints[n - 1] : 1) - (pads ? pads->ints[n - 1] : 0);
        for (int64_t c = 0; inside && c < columns[n - 1]; ++c, i += step) {
          if (i < 0 || i >= dims[n + 1]) continue;
          if (whole)
            wrapped[to + i] += (uint64_t)optc_lib_int_at(x, from + c);
          else
            sum[to + i] += optc_lib_double(x, from + c);
        }
      }
    for (int64_t i = 0; i < pixels; ++i)
      if (whole)
        optc_lib_set_wrapped(&call->outputs[0], plane * pixels + i, wrapped[i]);
      else
        optc_lib_set(&call->outputs[0], plane * pixels + i, sum[i]);
  }
  free(sum);
  return 0;
}
