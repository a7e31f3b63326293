// conv_transposed_plan.h: a transposed convolution as direct ones (conv_plan.h), one a part of its outputs. The same
// for every instruction set and for the compiler.
//
// Output o of an axis sums weight[k] * input[(o + pad - k * dilation) / stride] over the k where that is whole. Outputs
// stride * q + r of one rest r thus read inputs q, q + 1, ... by every so-manieth k: a direct convolution of stride 1.
// Neighbouring rests that read the same inputs are one part: their filters lie side by side, as the columns of one
// product. No product with a zero between inputs is computed.
//
// The shape is an OptcConvShape of ONNX's attributes whose last pads are such that the output has
// (in - 1) * stride + (kernel - 1) * dilation + 1 - pads elements: pads less output_padding, negative at times.
// Weights enter as ONNX has them: [c, oc / groups, kd, kh, kw].
#pragma once
#include "runtime/cpu/conv_plan.h"

constexpr int64_t optc_transposed_out(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pads) {
  const int64_t out = (in - 1) * stride + (kernel - 1) * dilation + 1 - pads;
  return out < 0 ? 0 : out;
}
constexpr int64_t optc_transposed_od(const OptcConvShape &s) {
  return optc_transposed_out(s.d, s.kd, s.sd, s.dd, s.pad_front + s.pad_back);
}
constexpr int64_t optc_transposed_oh(const OptcConvShape &s) {
  return optc_transposed_out(s.h, s.kh, s.sh, s.dh, s.pad_top + s.pad_bottom);
}
constexpr int64_t optc_transposed_ow(const OptcConvShape &s) {
  return optc_transposed_out(s.w, s.kw, s.sw, s.dw, s.pad_left + s.pad_right);
}

// Of one axis: the taps of the outputs stride * q + rest. Tap t reads input q + t * dilation - pad by weight
// tap - t * step.
struct OptcTransposedRest {
  int64_t taps, tap, step, dilation, pad;
};
constexpr OptcTransposedRest optc_transposed_rest(int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                                                  int64_t rest) {
  int64_t common = stride, other = dilation;  // greatest common divisor
  while (other != 0) {
    const int64_t remainder = common % other;
    common = other, other = remainder;
  }
  OptcTransposedRest r{};
  r.step = stride / common, r.dilation = dilation / common;
  const int64_t reach = rest + pad;
  int64_t first = dilation == 1 ? (reach % stride + stride) % stride : 0;  // the least k
  while (dilation != 1 && first < r.step && (reach - first * dilation) % stride != 0) ++first;
  if (first >= r.step || first >= kernel) return r;
  r.taps = (kernel - 1 - first) / r.step + 1;
  r.tap = first + (r.taps - 1) * r.step;
  r.pad = (r.taps - 1) * r.dilation - (reach - first * dilation) / stride;
  return r;
}

// Rests [first, first + count) of one axis that read the same inputs.
struct OptcTransposedAxis {
  int64_t first, count;
  OptcTransposedRest rest;  // of `first`
};
// The part that begins with rest `first`.
constexpr OptcTransposedAxis optc_transposed_axis(int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                                                  int64_t first) {
  OptcTransposedAxis a{first, 1, optc_transposed_rest(kernel, stride, dilation, pad, first)};
  for (; first + a.count < stride; ++a.count) {
    const OptcTransposedRest next = optc_transposed_rest(kernel, stride, dilation, pad, first + a.count);
    if (next.taps != a.rest.taps || next.pad != a.rest.pad) break;
  }
  return a;
}

// Parts in order: `first` begins with that of rests 0, 0, 0; next() is false behind the last one.
struct OptcTransposedPart {
  OptcTransposedAxis z, y, x;
  OptcConvShape direct;  // oc: by group, rests of z, y and x, then filters; no taps (kh = 0): the sums are zero
};
constexpr int64_t optc_transposed_outputs(int64_t out, int64_t stride, int64_t first) {
  return out > first ? optc_ceil_div(out - first, stride) : 0;
}
constexpr OptcTransposedPart optc_transposed_part(const OptcConvShape &s, int64_t z, int64_t y, int64_t x) {
  OptcTransposedPart p{};
  p.z = optc_transposed_axis(s.kd, s.sd, s.dd, s.pad_front, z);
  p.y = optc_transposed_axis(s.kh, s.sh, s.dh, s.pad_top, y);
  p.x = optc_transposed_axis(s.kw, s.sw, s.dw, s.pad_left, x);
  const bool none = p.z.rest.taps == 0 || p.y.rest.taps == 0 || p.x.rest.taps == 0;
  OptcConvShape &t = p.direct;
  t = s;
  t.oc = s.oc * p.z.count * p.y.count * p.x.count;
  t.sd = t.sh = t.sw = 1;
  t.kd = none ? 0 : p.z.rest.taps, t.kh = none ? 0 : p.y.rest.taps, t.kw = none ? 0 : p.x.rest.taps;
  t.dd = p.z.rest.dilation, t.dh = p.y.rest.dilation, t.dw = p.x.rest.dilation;
  t.pad_front = p.z.rest.pad, t.pad_top = p.y.rest.pad, t.pad_left = p.x.rest.pad;
  // As many outputs as q has values.
  t.pad_back = optc_transposed_outputs(optc_transposed_od(s), s.sd, z) + (t.kd - 1) * t.dd - t.d - t.pad_front;
  t.pad_bottom = optc_transposed_outputs(optc_transposed_oh(s), s.sh, y) + (t.kh - 1) * t.dh - t.h - t.pad_top;
  t.pad_right = optc_transposed_outputs(optc_transposed_ow(s), s.sw, x) + (t.kw - 1) * t.dw - t.w - t.pad_left;
  return p;
}
constexpr bool optc_transposed_next(const OptcConvShape &s, OptcTransposedPart &p) {
  int64_t z = p.z.first, y = p.y.first, x = p.x.first + p.x.count;
  if (x >= s.sw) x = 0, y += p.y.count;
  if (y >= s.sh) y = 0, z += p.z.count;
  if (z >= s.sd) return false;
  p = optc_transposed_part(s, z, y, x);
  return true;
}

constexpr int64_t optc_transposed_part_floats(const OptcTransposedPart &p) {
  return p.direct.kh == 0 ? 0 : optc_direct_packed_floats(p.direct);
}
constexpr int64_t optc_transposed_part_tasks(const OptcTransposedPart &p) {
  const OptcConvShape &t = p.direct;
  return t.kh == 0 ? t.n * optc_conv_od(t) * optc_conv_oh(t) : optc_direct_tasks(t, optc_direct_plan(t));
}
// Packed weights: those of the parts as direct convolutions, one part after another.
constexpr int64_t optc_transposed_packed_floats(const OptcConvShape &s) {
  int64_t floats = 0;
  OptcTransposedPart p = optc_transposed_part(s, 0, 0, 0);
  do {
    floats += optc_transposed_part_floats(p);
  } while (optc_transposed_next(s, p));
  return floats;
}
constexpr int64_t optc_transposed_scratch_floats(const OptcConvShape &s) {
  int64_t floats = 0;
  OptcTransposedPart p = optc_transposed_part(s, 0, 0, 0);
  do {
    const int64_t own = p.direct.kh == 0 ? 0 : optc_direct_plan(p.direct).scratch_floats;
    floats = own > floats ? own : floats;
  } while (optc_transposed_next(s, p));
  return floats;
}
template <class T>
static inline void optc_transposed_pack(const OptcConvShape &s, const T *weights, T *out) {
  const int64_t own_c = s.c / s.groups, own_oc = s.oc / s.groups;
  OptcTransposedPart p = optc_transposed_part(s, 0, 0, 0);
  do {
    if (p.direct.kh == 0) continue;
    const auto at = [](const OptcTransposedAxis &a, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad,
                       int64_t rest, int64_t t) {
      const OptcTransposedRest r = optc_transposed_rest(kernel, stride, dilation, pad, a.first + rest);
      return r.tap - t * r.step;
    };
    const auto weight = [&](int64_t o, int64_t c, int64_t z, int64_t y, int64_t x) {
      const int64_t per_group = p.direct.oc / s.groups, group = o / per_group, piece = o % per_group / own_oc;
      const int64_t kz = at(p.z, s.kd, s.sd, s.dd, s.pad_front, piece / (p.x.count * p.y.count), z),
                    ky = at(p.y, s.kh, s.sh, s.dh, s.pad_top, piece / p.x.count % p.y.count, y),
                    kx = at(p.x, s.kw, s.sw, s.dw, s.pad_left, piece % p.x.count, x);
      return weights[((((group * own_c + c) * own_oc + o % own_oc) * s.kd + kz) * s.kh + ky) * s.kw + kx];
    };
    optc_direct_pack_taps(p.direct, weight, out);
    out += optc_transposed_part_floats(p);
  } while (optc_transposed_next(s, p));
}
