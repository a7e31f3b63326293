// conv_i8_plan.h: convolutions of 8-bit integers as products: a row for each output pixel, a column for each filter,
// summed over (kernel plane, row, column, channel). The layouts of packed weights; the same for every instruction set
// and for the compiler (C++17; usable from C++20).
#pragma once
#include <stdint.h>

#include "runtime/cpu/conv_plan.h"
#include "runtime/cpu/gemm_i8_plan.h"

constexpr int64_t optc_conv_i8_taps(const OptcConvShape &s) { return s.kd * s.kh * s.kw; }
// Of a group.
constexpr int64_t optc_conv_i8_inner(const OptcConvShape &s) { return s.c / s.groups * optc_conv_i8_taps(s); }
constexpr int64_t optc_conv_i8_group_bytes(const OptcConvShape &s) {
  return optc_round_up(optc_gemm_i8_packed_bytes(s.oc / s.groups, optc_conv_i8_inner(s)), 64);
}
constexpr int64_t optc_conv_i8_packed_bytes(const OptcConvShape &s) { return s.groups * optc_conv_i8_group_bytes(s); }

// Weights [oc, c / groups, kd, kh, kw]: one product's factor of gemm_i8_plan.h after the other, a group each. `rows`
// has room for [inner, oc / groups].
template <class T>
inline void optc_conv_i8_pack(const OptcConvShape &s, const T *w, uint8_t *out, T *rows) {
  const int64_t c = s.c / s.groups, oc = s.oc / s.groups, taps = optc_conv_i8_taps(s), inner = optc_conv_i8_inner(s);
  for (int64_t g = 0; g < s.groups; ++g, w += oc * inner, out += optc_conv_i8_group_bytes(s)) {
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t i = 0; i < c; ++i)
        for (int64_t n = 0; n < oc; ++n) rows[(t * c + i) * oc + n] = w[(n * c + i) * taps + t];
    optc_gemm_i8_pack(out, rows, inner, oc, oc, 1);
  }
}

// Depthwise (one channel a group, as many filters): [taps][c] as floats, in which the products and sums of bytes are
// exact up to this number of taps.
constexpr int64_t kOptcConvI8DepthwiseTaps = 16777216 / (255 * 255);
constexpr int64_t optc_conv_i8_depthwise_bytes(const OptcConvShape &s) {
  return 4 * optc_round_up(optc_conv_i8_taps(s) * s.c, 16);
}
template <class T>
inline void optc_conv_i8_depthwise_pack(const OptcConvShape &s, const T *w, float *out) {
  const int64_t taps = optc_conv_i8_taps(s);
  for (int64_t t = 0; t < taps; ++t)
    for (int64_t i = 0; i < s.c; ++i) out[t * s.c + i] = float(w[i * taps + t]);
}
