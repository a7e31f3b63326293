// lib_resize.h: which input elements each output coordinate of a Resize reads along one axis, and with what weight. An
// interpolation of several axes is the product of one table an axis. ONNX operator text, Resize-19.
#pragma once
#include <math.h>

#include "lib_util.h"

enum { OPTC_RESIZE_NEAREST, OPTC_RESIZE_LINEAR, OPTC_RESIZE_CUBIC };
enum {
  OPTC_RESIZE_HALF_PIXEL,
  OPTC_RESIZE_HALF_PIXEL_SYMMETRIC,
  OPTC_RESIZE_PYTORCH_HALF_PIXEL,
  OPTC_RESIZE_ALIGN_CORNERS,
  OPTC_RESIZE_ASYMMETRIC,
  OPTC_RESIZE_TF_HALF_PIXEL,  // of opsets 11 and 12: the centre of a pixel, not moved back by half of one
  OPTC_RESIZE_CROP
};
enum { OPTC_RESIZE_PREFER_FLOOR, OPTC_RESIZE_PREFER_CEIL, OPTC_RESIZE_FLOOR, OPTC_RESIZE_CEIL, OPTC_RESIZE_SIMPLE };

typedef struct OptcLibResizeAxis {
  int mode, coordinates, nearest, antialias, exclude_outside;
  double cubic_a;
  int64_t in, out;
  double scale;   // out / in as the model gives it
  double length;  // the resized length before it was rounded down: optc_lib_resize_length of a scale
  double roi_start, roi_end;
} OptcLibResizeAxis;

static inline int optc_lib_resize_mode(const char *s) {
  return s[0] == 'n' ? OPTC_RESIZE_NEAREST : s[0] == 'c' ? OPTC_RESIZE_CUBIC : OPTC_RESIZE_LINEAR;
}
static inline int optc_lib_resize_coordinates(const char *s) {
  if (optc_lib_same(s, "half_pixel_symmetric")) return OPTC_RESIZE_HALF_PIXEL_SYMMETRIC;
  if (optc_lib_same(s, "pytorch_half_pixel")) return OPTC_RESIZE_PYTORCH_HALF_PIXEL;
  if (optc_lib_same(s, "align_corners")) return OPTC_RESIZE_ALIGN_CORNERS;
  if (optc_lib_same(s, "asymmetric")) return OPTC_RESIZE_ASYMMETRIC;
  if (optc_lib_same(s, "tf_half_pixel_for_nn")) return OPTC_RESIZE_TF_HALF_PIXEL;
  if (optc_lib_same(s, "tf_crop_and_resize")) return OPTC_RESIZE_CROP;
  return OPTC_RESIZE_HALF_PIXEL;
}
static inline int optc_lib_resize_nearest(const char *s) {
  if (optc_lib_same(s, "round_prefer_ceil")) return OPTC_RESIZE_PREFER_CEIL;
  if (optc_lib_same(s, "floor")) return OPTC_RESIZE_FLOOR;
  if (optc_lib_same(s, "ceil")) return OPTC_RESIZE_CEIL;
  if (optc_lib_same(s, "simple")) return OPTC_RESIZE_SIMPLE;  // Resize-10: up for smaller, else down
  return OPTC_RESIZE_PREFER_FLOOR;
}

// An axis that copies: its table has one tap and the index is the coordinate.
static inline int optc_lib_resize_is_copy(const OptcLibResizeAxis *a) {
  return a->scale == 1 && a->in == a->out && a->coordinates != OPTC_RESIZE_CROP;
}
static inline int64_t optc_lib_resize_taps(const OptcLibResizeAxis *a) {
  if (optc_lib_resize_is_copy(a) || a->mode == OPTC_RESIZE_NEAREST) return 1;
  const double scale = a->antialias && a->scale < 1 ? a->scale : 1;
  const double reach = a->mode == OPTC_RESIZE_LINEAR ? 1 : 2;
  return 2 - 2 * ((int64_t)floor(-reach / scale) + 1);
}

static inline double optc_lib_resize_weight(const OptcLibResizeAxis *a, double distance) {
  const double d = fabs(distance);
  if (a->mode == OPTC_RESIZE_LINEAR) return d < 1 ? 1 - d : 0;
  const double k = a->cubic_a;
  if (d <= 1) return ((k + 2) * d - (k + 3)) * d * d + 1;
  if (d < 2) return ((k * d - 5 * k) * d + 8 * k) * d - 4 * k;
  return 0;
}

// The length that a scale gives, not yet rounded down. Scales are f32 and so is this product: 10 * 0.7f is 7 and not a
// little less, as whoever wrote 0.7 meant it.
static inline double optc_lib_resize_length(double scale, int64_t in) { return (double)((float)scale * (float)in); }

// index[out * taps], weight[out * taps] (f32). An index of -1 says that the coordinate lies outside a crop: the result
// is the extrapolation value.
static inline void optc_lib_resize_table(const OptcLibResizeAxis *a, int64_t taps, int64_t *index, float *weight) {
  for (int64_t i = 0; i < a->out; ++i) {
    int64_t *to = index + i * taps;
    float *w = weight + i * taps;
    if (optc_lib_resize_is_copy(a)) {
      to[0] = i, w[0] = 1;
      continue;
    }
    double x = 0, shift = 0;  // the coordinate is x + shift
    const double n = (double)a->in;
    switch (a->coordinates) {
      case OPTC_RESIZE_HALF_PIXEL:
        x = ((double)i + 0.5) / a->scale, shift = -0.5;
        break;
      case OPTC_RESIZE_HALF_PIXEL_SYMMETRIC:
        // In the order of ONNX's reference: where the result is a whole number, it is so to the digit.
        x = n / 2 * (1 - (double)a->out / a->length) + ((double)i + 0.5) / a->scale, shift = -0.5;
        break;
      case OPTC_RESIZE_PYTORCH_HALF_PIXEL:
        if (a->out > 1) x = ((double)i + 0.5) / a->scale, shift = -0.5;
        break;
      case OPTC_RESIZE_ALIGN_CORNERS:
        x = a->length > 1 ? (double)i * (n - 1) / (a->length - 1) : 0;
        break;
      case OPTC_RESIZE_ASYMMETRIC:
        x = (double)i / a->scale;
        break;
      case OPTC_RESIZE_TF_HALF_PIXEL:
        x = ((double)i + 0.5) / a->scale;
        break;
      default:
        x = a->length > 1 ? a->roi_start * (n - 1) + (double)i * (a->roi_end - a->roi_start) * (n - 1) / (a->length - 1)
                          : 0.5 * (a->roi_start + a->roi_end) * (n - 1);
    }
    // A quotient that is a whole number but for the scale's rounding to f32 (17 / 1.7f) is that number to the choice of
    // the nearest, which is made of f32.
    x = (a->mode == OPTC_RESIZE_NEAREST ? (double)(float)x : x) + shift;
    const int outside = a->coordinates == OPTC_RESIZE_CROP && (x < 0 || x > n - 1);
    const double nearest_integer = floor(x + 0.5);
    if (fabs(x - nearest_integer) < 1e-9) x = nearest_integer;  // the rounding of i / scale must not move a sample
    if (a->mode == OPTC_RESIZE_NEAREST) {
      double p = floor(x);
      switch (a->nearest) {
        case OPTC_RESIZE_PREFER_FLOOR:
          p = ceil(x - 0.5);
          break;
        case OPTC_RESIZE_PREFER_CEIL:
          p = floor(x + 0.5);
          break;
        case OPTC_RESIZE_CEIL:
          p = ceil(x);
          break;
        case OPTC_RESIZE_SIMPLE:
          p = a->scale < 1 ? ceil(x) : floor(x);
          break;
        default:
          break;
      }
      to[0] = p < 0 ? 0 : p > n - 1 ? a->in - 1 : (int64_t)p;
      w[0] = 1;
    } else {
      const double scale = a->antialias && a->scale < 1 ? a->scale : 1;
      const double first = ceil(x) - 1 - (double)(taps / 2 - 1);
      double sum = 0;
      for (int64_t t = 0; t < taps; ++t) {
        const double at = first + (double)t;
        double value = optc_lib_resize_weight(a, (at - x) * scale);
        if (a->exclude_outside && (at < 0 || at > n - 1)) value = 0;
        to[t] = at < 0 ? 0 : at > n - 1 ? a->in - 1 : (int64_t)at;
        w[t] = (float)value;
        sum += value;
      }
      if ((a->exclude_outside || a->antialias) && sum != 0)
        for (int64_t t = 0; t < taps; ++t) w[t] = (float)((double)w[t] / sum);
    }
    if (outside)
      for (int64_t t = 0; t < taps; ++t) to[t] = -1;
  }
}

// Fills `axes` (one a dimension of X) from the operands of a Resize: X, roi, scales, sizes and the operator's
// attributes.
static inline int optc_lib_resize_axes(OptcLibCall *call, OptcLibResizeAxis *axes) {
  const OptcLibTensor *x = &call->inputs[0], *roi = optc_lib_input(call, 1), *scales = optc_lib_input(call, 2),
                      *sizes = optc_lib_input(call, 3);
  const OptcLibAttribute *listed = optc_lib_attribute(call, "axes");
  const int64_t rank = x->rank, n = listed && listed->count ? (int64_t)listed->count : rank;
  if (scales && optc_lib_count(scales) == 0) scales = nullptr;
  if (sizes && optc_lib_count(sizes) == 0) sizes = nullptr;
  if (roi && optc_lib_count(roi) == 0) roi = nullptr;
  if (!scales && !sizes) return optc_lib_fault(call, "Resize: neither scales nor sizes");
  if ((scales ? optc_lib_count(scales) : optc_lib_count(sizes)) != n)
    return optc_lib_fault(call, "Resize: one entry an axis is needed");
  for (int64_t k = 0; k < rank; ++k) {
    OptcLibResizeAxis *a = &axes[k];
    a->mode = optc_lib_resize_mode(optc_lib_string_attribute(call, "mode", "nearest"));
    a->coordinates =
        optc_lib_resize_coordinates(optc_lib_string_attribute(call, "coordinate_transformation_mode", "half_pixel"));
    a->nearest = optc_lib_resize_nearest(optc_lib_string_attribute(call, "nearest_mode", "round_prefer_floor"));
    a->antialias = optc_lib_int_attribute(call, "antialias", 0) != 0;
    a->exclude_outside = optc_lib_int_attribute(call, "exclude_outside", 0) != 0;
    a->cubic_a = optc_lib_float_attribute(call, "cubic_coeff_a", -0.75f);
    a->in = a->out = x->dims[k];
    a->scale = 1, a->length = (double)a->in, a->roi_start = 0, a->roi_end = 1;
  }
  const char *policy = optc_lib_string_attribute(call, "keep_aspect_ratio_policy", "stretch");
  double common = 0;
  for (int64_t j = 0; j < n; ++j) {
    int64_t k = listed && listed->count ? listed->ints[j] : j;
    if (k < 0) k += rank;
    if (k < 0 || k >= rank) return optc_lib_fault(call, "Resize: an axis is out of range");
    OptcLibResizeAxis *a = &axes[k];
    if (scales) {
      a->scale = optc_lib_double(scales, j);
      if (!(a->scale > 0)) return optc_lib_fault(call, "Resize: a scale is not positive");
      a->length = optc_lib_resize_length(a->scale, a->in);
      if (!(a->length < 0x1p62)) return optc_lib_fault(call, "Resize: a scale is too large");
      a->out = (int64_t)floor(a->length);
    } else {
      a->out = optc_lib_int_at(sizes, j);
      if (a->out < 0) return optc_lib_fault(call, "Resize: a size is negative");
      a->scale = a->in ? (double)a->out / (double)a->in : 1;
      a->length = (double)a->out;
      if (j == 0 || (optc_lib_same(policy, "not_larger") ? a->scale < common : a->scale > common)) common = a->scale;
    }
    if (roi && optc_lib_count(roi) == 2 * n)
      a->roi_start = optc_lib_double(roi, j), a->roi_end = optc_lib_double(roi, n + j);
  }
  if (!scales && !optc_lib_same(policy, "stretch"))
    for (int64_t j = 0; j < n; ++j) {
      int64_t k = listed && listed->count ? listed->ints[j] : j;
      OptcLibResizeAxis *a = &axes[k < 0 ? k + rank : k];
      a->scale = common;
      a->out = (int64_t)floor(common * (double)a->in + 0.5);
      a->length = (double)a->out;
    }
  return 0;
}

// inputs: X, roi, scales, sizes; the operator's attributes. Sizes: the rank dims of the result, then the taps of each
// dimension.
static inline int optc_lib_resize_sizes(OptcLibCall *call) {
  OptcLibResizeAxis axes[OPTC_LIB_MAX_RANK];
  const int status = optc_lib_resize_axes(call, axes);
  if (status) return status;
  const int32_t rank = call->inputs[0].rank;
  for (int32_t k = 0; k < rank; ++k) {
    call->sizes[k] = axes[k].out;
    call->sizes[rank + k] = optc_lib_resize_taps(&axes[k]);
  }
  return 0;
}
// inputs as resize_sizes; attribute table_axis. Outputs: i64[out, taps] indices and f32[out, taps] weights of that
// dimension.
static inline int optc_lib_resize_table_of_axis(OptcLibCall *call) {
  OptcLibResizeAxis axes[OPTC_LIB_MAX_RANK];
  const int status = optc_lib_resize_axes(call, axes);
  if (status) return status;
  const OptcLibResizeAxis *a = &axes[optc_lib_int_attribute(call, "table_axis", 0)];
  optc_lib_resize_table(a, optc_lib_resize_taps(a), (int64_t *)call->outputs[0].data, (float *)call->outputs[1].data);
  return 0;
}
