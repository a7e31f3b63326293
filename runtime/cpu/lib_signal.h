// lib_signal.h: DFT, STFT, MelWeightMatrix, Det, Inverse.
#pragma once
#include <math.h>

#include "dft.h"
#include "lib_util.h"

static inline void optc_lib_swap(double *a, double *b) {
  const double t = *a;
  *a = *b, *b = t;
}

// inputs: X [..., 1 or 2], dft_length (optional scalar), axis (optional scalar, -2); attributes inverse, onesided.
// Output: [..., 2], or [..., 1] for a one-sided inverse. Sizes: the output's dims.
static inline int optc_lib_dft(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *length_tensor = optc_lib_input(call, 1),
                      *axis_tensor = optc_lib_input(call, 2);
  const int inverse = optc_lib_int_attribute(call, "inverse", 0) != 0,
            onesided = optc_lib_int_attribute(call, "onesided", 0) != 0;
  int64_t axis = axis_tensor ? optc_lib_int_at(axis_tensor, 0) : -2;
  if (axis < 0) axis += x->rank;
  if (axis < 0 || axis >= x->rank - 1) return optc_lib_fault(call, "DFT: the axis is out of range");
  const int64_t in = x->dims[axis], parts = x->dims[x->rank - 1];
  const int64_t n = length_tensor ? optc_lib_int_at(length_tensor, 0) : inverse && onesided ? 2 * (in - 1) : in;
  if (n < 1 || n > ((int64_t)1 << 40)) return optc_lib_fault(call, "DFT: dft_length is out of range");
  const int64_t out = onesided && !inverse ? n / 2 + 1 : n, out_parts = inverse && onesided ? 1 : 2;
  int64_t dims[OPTC_LIB_MAX_RANK], outer = 1, inner = 1;
  for (int32_t k = 0; k < x->rank; ++k) {
    dims[k] = x->dims[k];
    if (k < axis) outer *= dims[k];
    if (k > axis && k < x->rank - 1) inner *= dims[k];
  }
  dims[axis] = out, dims[x->rank - 1] = out_parts;
  for (int32_t k = 0; k < x->rank; ++k) call->sizes[k] = dims[k];
  if (!optc_lib_allocate(call, 0, x->rank, dims)) return optc_lib_out_of_memory(call);
  double *re = optc_dft_doubles(2 * n), *im = re ? re + n : NULL;
  OptcDft *plan = re ? optc_dft_plan(n) : NULL;
  if (!plan) {
    free(re);
    return optc_lib_out_of_memory(call);
  }
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      for (int64_t k = 0; k < n; ++k) {
        // One-sided input of an inverse transform: the other half is its conjugate.
        const int mirrored = inverse && onesided && k > n / 2;
        const int64_t from = mirrored ? n - k : k, at = ((o * in + from) * inner + i) * parts;
        re[k] = from < in ? optc_lib_double(x, at) : 0;
        im[k] = from < in && parts == 2 ? optc_lib_double(x, at + 1) : 0;
        if (mirrored) im[k] = -im[k];
      }
      optc_dft_run(plan, inverse ? im : re, inverse ? re : im);
      const double scale = inverse ? 1 / (double)n : 1;
      for (int64_t k = 0; k < out; ++k) {
        const int64_t at = ((o * out + k) * inner + i) * out_parts;
        optc_lib_set(&call->outputs[0], at, re[k] * scale);
        if (out_parts == 2) optc_lib_set(&call->outputs[0], at + 1, im[k] * scale);
      }
    }
  optc_dft_free(plan);
  free(re);
  return 0;
}

// inputs: signal [batch, length, 1 or 2], frame_step, window (optional), frame_length (optional); attribute onesided.
// Output: [batch, frames, bins, 2]. Sizes: its dims.
static inline int optc_lib_stft(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *window = optc_lib_input(call, 2),
                      *length_tensor = optc_lib_input(call, 3);
  const int64_t step = optc_lib_int_at(&call->inputs[1], 0), batch = x->dims[0], length = x->dims[1],
                parts = x->rank == 3 ? x->dims[2] : 1;
  const int64_t n = length_tensor ? optc_lib_int_at(length_tensor, 0) : window ? optc_lib_count(window) : length;
  if (step < 1 || n < 1 || n > length) return optc_lib_fault(call, "STFT: the frame does not fit the signal");
  const int64_t frames = 1 + (length - n) / step,
                bins = optc_lib_int_attribute(call, "onesided", 1) != 0 ? n / 2 + 1 : n;
  const int64_t dims[4] = {batch, frames, bins, 2};
  for (int k = 0; k < 4; ++k) call->sizes[k] = dims[k];
  if (!optc_lib_allocate(call, 0, 4, dims)) return optc_lib_out_of_memory(call);
  const int64_t width = window ? optc_lib_count(window) : n;
  double *re = optc_dft_doubles(2 * n), *im = re ? re + n : NULL;
  OptcDft *plan = re ? optc_dft_plan(n) : NULL;
  if (!plan) {
    free(re);
    return optc_lib_out_of_memory(call);
  }
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t f = 0; f < frames; ++f) {
      for (int64_t k = 0; k < n; ++k) {
        const double w = window ? (k < width ? optc_lib_double(window, k) : 0) : 1;
        const int64_t at = (b * length + f * step + k) * parts;
        re[k] = w * optc_lib_double(x, at);
        im[k] = parts == 2 ? w * optc_lib_double(x, at + 1) : 0;
      }
      optc_dft_run(plan, re, im);
      for (int64_t k = 0; k < bins; ++k) {
        optc_lib_set(&call->outputs[0], ((b * frames + f) * bins + k) * 2, re[k]);
        optc_lib_set(&call->outputs[0], ((b * frames + f) * bins + k) * 2 + 1, im[k]);
      }
    }
  optc_dft_free(plan);
  free(re);
  return 0;
}

// inputs: num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz (scalars). Output: [dft_length / 2
// + 1, num_mel_bins]. Sizes: its dims.
static inline int optc_lib_mel_weights(OptcLibCall *call) {
  const int64_t mels = optc_lib_int_at(&call->inputs[0], 0), length = optc_lib_int_at(&call->inputs[1], 0),
                rate = optc_lib_int_at(&call->inputs[2], 0);
  if (mels < 1 || length < 1 || rate < 1 || mels > 1 << 24 || length > 1 << 28)
    return optc_lib_fault(call, "MelWeightMatrix: an operand is out of range");
  const double low = 2595 * log1p(optc_lib_double(&call->inputs[3], 0) / 700) / log(10.0),
               high = 2595 * log1p(optc_lib_double(&call->inputs[4], 0) / 700) / log(10.0);
  const int64_t dims[2] = {length / 2 + 1, mels};
  call->sizes[0] = dims[0], call->sizes[1] = dims[1];
  if (!optc_lib_allocate(call, 0, 2, dims)) return optc_lib_out_of_memory(call);
  OptcLibTensor *y = &call->outputs[0];
  for (int64_t i = 0; i < dims[0] * mels; ++i) optc_lib_set(y, i, 0);
  const double step = (high - low) / (double)(mels + 2);
  for (int64_t m = 0; m < mels; ++m) {
    int64_t bin[3];
    for (int k = 0; k < 3; ++k) {
      const double hertz = 700 * expm1(((double)(m + k) * step + low) / 2595 * log(10.0));
      bin[k] = (int64_t)floor((double)(length + 1) * hertz / (double)rate);
      if (bin[k] < 0 || bin[k] > dims[0])
        return optc_lib_fault(call, "MelWeightMatrix: an edge lies outside the spectrum");
    }
    if (bin[1] == bin[0] && bin[1] < dims[0]) optc_lib_set(y, bin[1] * mels + m, 1);
    for (int64_t j = bin[0]; j <= bin[1] && j < dims[0] && bin[1] > bin[0]; ++j)
      optc_lib_set(y, j * mels + m, (double)(j - bin[0]) / (double)(bin[1] - bin[0]));
    for (int64_t j = bin[1]; j < bin[2] && j < dims[0]; ++j)
      optc_lib_set(y, j * mels + m, (double)(bin[2] - j) / (double)(bin[2] - bin[1]));
  }
  return 0;
}

// inputs: X [..., n, n]. Output: the determinants, by elimination with row pivots.
static inline int optc_lib_det(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const int64_t n = x->dims[x->rank - 1],
                matrices = n ? optc_lib_count(x) / (n * n) : optc_lib_count(&call->outputs[0]);
  double *a = (double *)malloc((size_t)(n * n + 1) * sizeof(double));
  if (!a) return optc_lib_out_of_memory(call);
  for (int64_t m = 0; m < matrices; ++m) {
    for (int64_t i = 0; i < n * n; ++i) a[i] = optc_lib_double(x, m * n * n + i);
    double det = 1;
    for (int64_t c = 0; c < n; ++c) {
      int64_t pivot = c;
      for (int64_t r = c + 1; r < n; ++r)
        if (fabs(a[r * n + c]) > fabs(a[pivot * n + c])) pivot = r;
      if (pivot != c) {
        det = -det;
        for (int64_t k = 0; k < n; ++k) optc_lib_swap(&a[c * n + k], &a[pivot * n + k]);
      }
      det *= a[c * n + c];
      if (a[c * n + c] == 0) break;
      for (int64_t r = c + 1; r < n; ++r) {
        const double f = a[r * n + c] / a[c * n + c];
        for (int64_t k = c; k < n; ++k) a[r * n + k] -= f * a[c * n + k];
      }
    }
    optc_lib_set(&call->outputs[0], m, det);
  }
  free(a);
  return 0;
}

// inputs: X [..., n, n]. Output: the inverses, by elimination of all other rows with row pivots in f64. What a singular
// matrix gives is not finite.
static inline int optc_lib_inverse(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  const int64_t n = x->dims[x->rank - 1], width = 2 * n, matrices = n ? optc_lib_count(x) / (n * n) : 0;
  double *a = (double *)malloc((size_t)(n * width + 1) * sizeof(double));  // [X, identity], row by row
  if (!a) return optc_lib_out_of_memory(call);
  for (int64_t m = 0; m < matrices; ++m) {
    for (int64_t r = 0; r < n; ++r)
      for (int64_t k = 0; k < width; ++k)
        a[r * width + k] = k < n ? optc_lib_double(x, (m * n + r) * n + k) : k - n == r;
    for (int64_t c = 0; c < n; ++c) {
      int64_t pivot = c;
      for (int64_t r = c + 1; r < n; ++r)
        if (fabs(a[r * width + c]) > fabs(a[pivot * width + c])) pivot = r;
      for (int64_t k = 0; k < width && pivot != c; ++k) optc_lib_swap(&a[c * width + k], &a[pivot * width + k]);
      const double scale = a[c * width + c];
      for (int64_t k = 0; k < width; ++k) a[c * width + k] /= scale;
      for (int64_t r = 0; r < n; ++r) {
        const double f = a[r * width + c];
        for (int64_t k = 0; k < width && r != c; ++k) a[r * width + k] -= f * a[c * width + k];
      }
    }
    for (int64_t i = 0; i < n * n; ++i) optc_lib_set(&call->outputs[0], m * n * n + i, a[i / n * width + n + i % n]);
  }
  free(a);
  return 0;
}
