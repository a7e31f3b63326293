// scalar.h: the meaning of one element where C++ differs from ONNX or leaves it open: integers wrap, division by zero
// gives 0, casts saturate, minima propagate NaN, small floats round to nearest even. Emitted kernels call these for
// every element type that the vector headers do not cover. Small floats are held as float values that the format can
// represent.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <limits>
#include <type_traits>

namespace optc {

#define OPTC_SCALAR static inline __attribute__((unused))

template <class To, class From>
OPTC_SCALAR To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From), "a bitcast keeps the width");
  To result;
  memcpy(&result, &value, sizeof result);
  return result;
}

// --- integers of any width; u is wide enough that nothing promotes to a signed type
template <class T>
using Wide = std::conditional_t<(sizeof(T) <= 4), uint32_t, uint64_t>;
template <class T>
OPTC_SCALAR T add_wrap(T a, T b) {
  return (T)((Wide<T>)a + (Wide<T>)b);
}
template <class T>
OPTC_SCALAR T sub_wrap(T a, T b) {
  return (T)((Wide<T>)a - (Wide<T>)b);
}
template <class T>
OPTC_SCALAR T mul_wrap(T a, T b) {
  return (T)((Wide<T>)a * (Wide<T>)b);
}
template <class T>
OPTC_SCALAR T neg_wrap(T a) {
  return (T)(Wide<T>{0} - (Wide<T>)a);
}
template <class T>
OPTC_SCALAR T abs_wrap(T a) {
  if constexpr (std::is_signed_v<T>) return a < 0 ? neg_wrap(a) : a;
  return a;
}
template <class T>
OPTC_SCALAR T div_trunc(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (b == (T)-1) return neg_wrap(a);
  }
  return (T)(a / b);
}
// The remainder with the sign of the dividend, and with the sign of the divisor (ONNX's Mod).
template <class T>
OPTC_SCALAR T mod_trunc(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::is_same_v<T, float> ? (T)fmodf((float)a, (float)b) : (T)fmod((double)a, (double)b);
  } else {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
      if (b == (T)-1) return 0;
    }
    return (T)(a % b);
  }
}
template <class T>
OPTC_SCALAR T mod_floor(T a, T b) {
  const T r = mod_trunc(a, b);
  if constexpr (std::is_signed_v<T> || std::is_floating_point_v<T>) {
    if (r != 0 && (r < 0) != (b < 0)) return (T)(r + b);
  }
  return r;
}
template <class T>
OPTC_SCALAR T shift_left(T a, T by) {
  return (std::make_unsigned_t<T>)by >= 8 * sizeof(T) ? T{0} : (T)((Wide<T>)a << by);
}
template <class T>
OPTC_SCALAR T shift_right(T a, T by) {
  if ((std::make_unsigned_t<T>)by >= 8 * sizeof(T)) return a < 0 ? (T)-1 : T{0};
  return (T)(a >> by);
}
// Integer powers wrap; a negative exponent gives 0 except for the bases 1 and -1.
template <class T>
OPTC_SCALAR T pow_wrap(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) return base == 1 ? T{1} : base == (T)-1 ? (exponent % 2 ? (T)-1 : T{1}) : T{0};
  }
  T result = 1;
  for (std::make_unsigned_t<T> e = (std::make_unsigned_t<T>)exponent; e; e >>= 1) {
    if (e & 1) result = mul_wrap(result, base);
    base = mul_wrap(base, base);
  }
  return result;
}
template <class T>
OPTC_SCALAR T sign_of(T a) {
  return a > 0 ? T{1} : a < 0 ? (T)-1 : a;
}
template <class T>
OPTC_SCALAR T min_of(T a, T b) {
  return a != a ? a : b != b ? b : a < b ? a : b;
}
template <class T>
OPTC_SCALAR T max_of(T a, T b) {
  return a != a ? a : b != b ? b : a > b ? a : b;
}
template <class T>
OPTC_SCALAR T sigmoid_of(T a) {
  return T{1} / (T{1} + (T)exp(-(double)a));
}

// --- index arithmetic (operands of any sign, divisors positive)
OPTC_SCALAR int64_t floor_div(int64_t a, int64_t b) { return b <= 0 ? 0 : a >= 0 ? a / b : -((b - 1 - a) / b); }
OPTC_SCALAR int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }
OPTC_SCALAR int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
OPTC_SCALAR int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// --- amounts of memory: they stop at a size that no machine has, instead of overflowing
constexpr int64_t kTooLarge = int64_t{1} << 50;
OPTC_SCALAR int64_t no_more(int64_t a) { return least(most(a, -kTooLarge), kTooLarge); }
OPTC_SCALAR int64_t times(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) product = (a < 0) == (b < 0) ? kTooLarge : -kTooLarge;
  return no_more(product);
}
OPTC_SCALAR int64_t plus(int64_t a, int64_t b) { return no_more(no_more(a) + no_more(b)); }
template <class... More>
OPTC_SCALAR int64_t times(int64_t a, int64_t b, More... more) {
  return times(times(a, b), more...);
}
template <class... More>
OPTC_SCALAR int64_t plus(int64_t a, int64_t b, More... more) {
  return plus(plus(a, b), more...);
}

// --- casts
// Float to integer: truncates, saturates at the range, NaN gives 0.
template <class To, class From>
OPTC_SCALAR To saturate_to(From a) {
  using L = std::numeric_limits<To>;
  if (a != a) return 0;
  // Both limits as floats: the lower one is exact, the upper one may round up to the first value out of range.
  if (a <= (From)L::min()) return L::min();
  if (a >= (From)L::max()) return L::max();
  return (To)a;
}
template <class From>
OPTC_SCALAR int8_t saturate_to_i4(From a) {
  return a != a ? 0 : a <= -8 ? -8 : a >= 7 ? 7 : (int8_t)a;
}
template <class From>
OPTC_SCALAR uint8_t saturate_to_u4(From a) {
  return a != a ? 0 : a <= 0 ? 0 : a >= 15 ? 15 : (uint8_t)a;
}
template <class From>
OPTC_SCALAR int8_t saturate_to_i2(From a) {
  return a != a ? 0 : a <= -2 ? -2 : a >= 1 ? 1 : (int8_t)a;
}
template <class From>
OPTC_SCALAR uint8_t saturate_to_u2(From a) {
  return a != a ? 0 : a <= 0 ? 0 : a >= 3 ? 3 : (uint8_t)a;
}
OPTC_SCALAR int8_t wrap_to_i4(int64_t a) { return (int8_t)((int8_t)((uint8_t)a << 4) >> 4); }
OPTC_SCALAR uint8_t wrap_to_u4(int64_t a) { return (uint8_t)(a & 15); }
OPTC_SCALAR int8_t wrap_to_i2(int64_t a) { return (int8_t)((int8_t)((uint8_t)a << 6) >> 6); }
OPTC_SCALAR uint8_t wrap_to_u2(int64_t a) { return (uint8_t)(a & 3); }

// f64 to f32 rounded to odd, so that a second rounding to fewer bits is right.
OPTC_SCALAR float narrow_odd(double a) {
  float f = (float)a;
  if ((double)f == a || a != a || isinf(f)) return f;
  uint32_t u = bits_as<uint32_t>(f);
  if ((fabs((double)f) > fabs(a))) --u;  // toward zero
  return bits_as<float>(u | 1u);
}

// --- float16, bfloat16
OPTC_SCALAR float from_f16(uint16_t h) {
  const uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
  const float scaled = bits_as<float>(magnitude) * 0x1p112f;
  const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
  return bits_as<float>(bits_as<uint32_t>(scaled) | special | ((uint32_t)(h & 0x8000) << 16));
}
OPTC_SCALAR uint16_t to_f16(float a) {
  const uint32_t u = bits_as<uint32_t>(a), sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);  // 65520 and more
  if (magnitude < 0x38800000u)  // subnormal: an addition whose last place is 2^-24 does the rounding
    return (uint16_t)(sign | (bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u));
  return (uint16_t)(sign | ((magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000u) >> 13));
}
OPTC_SCALAR float from_bf16(uint16_t h) { return bits_as<float>((uint32_t)h << 16); }
OPTC_SCALAR uint16_t to_bf16(float a) {
  const uint32_t u = bits_as<uint32_t>(a);
  if ((u & 0x7fffffff) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40);
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
OPTC_SCALAR float round_f16(float a) { return from_f16(to_f16(a)); }
OPTC_SCALAR float round_bf16(float a) { return from_bf16(to_bf16(a)); }
OPTC_SCALAR float round_f16(double a) { return round_f16(narrow_odd(a)); }
OPTC_SCALAR float round_bf16(double a) { return round_bf16(narrow_odd(a)); }

// --- float8 (OCP E4M3, E5M2; FNUZ forms of arXiv 2206.02915), float4 (E2M1), E8M0 scales
struct SmallFloat {
  int exponent_bits, mantissa_bits, bias;
  bool infinity, fnuz, nan;
};
constexpr SmallFloat kF8E4M3FN{4, 3, 7, false, false, true}, kF8E4M3FNUZ{4, 3, 8, false, true, true},
    kF8E5M2{5, 2, 15, true, false, true}, kF8E5M2FNUZ{5, 2, 16, false, true, true},
    kF4E2M1{2, 1, 1, false, false, false};

OPTC_SCALAR float from_small(const SmallFloat &f, uint8_t code) {
  const int width = 1 + f.exponent_bits + f.mantissa_bits, top = (1 << f.exponent_bits) - 1;
  const int exponent = (code >> f.mantissa_bits) & top, mantissa = code & ((1 << f.mantissa_bits) - 1);
  const bool negative = (code >> (width - 1)) & 1;
  if (f.fnuz && code == 0x80) return NAN;
  if (f.infinity && exponent == top) return mantissa ? NAN : negative ? -INFINITY : INFINITY;
  if (f.nan && !f.infinity && !f.fnuz && exponent == top && mantissa == (1 << f.mantissa_bits) - 1) return NAN;
  const float magnitude = exponent == 0
                              ? ldexpf((float)mantissa, 1 - f.bias - f.mantissa_bits)
                              : ldexpf((float)(mantissa + (1 << f.mantissa_bits)), exponent - f.bias - f.mantissa_bits);
  return negative ? -magnitude : magnitude;
}
OPTC_SCALAR uint8_t to_small(const SmallFloat &f, float value, bool saturate) {
  const int width = 1 + f.exponent_bits + f.mantissa_bits, top = (1 << f.exponent_bits) - 1,
            steps_a_binade = 1 << f.mantissa_bits;
  const uint32_t sign = signbit(value) ? 1u << (width - 1) : 0u, ones = (1u << (width - 1)) - 1;
  const uint32_t infinity = (uint32_t)top << f.mantissa_bits;
  const uint32_t largest = f.infinity ? infinity - 1 : f.nan && !f.fnuz ? ones - 1 : ones;
  const uint32_t overflow = saturate || !f.nan ? sign | largest
                            : f.infinity       ? sign | infinity
                            : f.fnuz           ? 0x80u
                                               : sign | ones;
  // E2M1 has no NaN: negative zero stands for it, as in ONNX's reference.
  if (value != value) return (uint8_t)(!f.nan ? 1u << (width - 1) : f.fnuz ? 0x80u : sign | ones);
  if (isinf(value)) return (uint8_t)overflow;
  const float magnitude = fabsf(value);
  int exponent = magnitude == 0 ? 1 - f.bias : ilogbf(magnitude);
  if (exponent < 1 - f.bias) exponent = 1 - f.bias;
  // Exact: a float has at most 24 bits, and the product by a power of two stays far from float's own limits.
  const double scaled = ldexp((double)magnitude, f.mantissa_bits - exponent);
  uint32_t steps = (uint32_t)scaled;
  const double rest = scaled - steps;
  if (rest > 0.5 || (rest == 0.5 && (steps & 1))) ++steps;
  // Consecutive codes are consecutive magnitudes: a carry moves into the exponent by itself.
  const int64_t code = steps < (uint32_t)steps_a_binade
                           ? (int64_t)steps
                           : ((int64_t)(exponent + f.bias) << f.mantissa_bits) + steps - steps_a_binade;
  if (code > (int64_t)largest) return (uint8_t)overflow;
  if (code == 0 && f.fnuz) return 0;
  return (uint8_t)(sign | (uint32_t)code);
}
OPTC_SCALAR float from_f8e4m3fn(uint8_t c) { return from_small(kF8E4M3FN, c); }
OPTC_SCALAR float from_f8e4m3fnuz(uint8_t c) { return from_small(kF8E4M3FNUZ, c); }
OPTC_SCALAR float from_f8e5m2(uint8_t c) { return from_small(kF8E5M2, c); }
OPTC_SCALAR float from_f8e5m2fnuz(uint8_t c) { return from_small(kF8E5M2FNUZ, c); }
OPTC_SCALAR float from_f4e2m1(uint8_t c) { return from_small(kF4E2M1, c); }
OPTC_SCALAR float from_f8e8m0(uint8_t c) { return c == 255 ? NAN : ldexpf(1.0f, c - 127); }
// By default without saturation: what is stored has been rounded to the format, infinities included.
OPTC_SCALAR uint8_t to_f8e4m3fn(float a, bool saturate = false) { return to_small(kF8E4M3FN, a, saturate); }
OPTC_SCALAR uint8_t to_f8e4m3fnuz(float a, bool saturate = false) { return to_small(kF8E4M3FNUZ, a, saturate); }
OPTC_SCALAR uint8_t to_f8e5m2(float a, bool saturate = false) { return to_small(kF8E5M2, a, saturate); }
OPTC_SCALAR uint8_t to_f8e5m2fnuz(float a, bool saturate = false) { return to_small(kF8E5M2FNUZ, a, saturate); }
OPTC_SCALAR uint8_t to_f4e2m1(float a, bool = true) { return to_small(kF4E2M1, a, true); }
// E8M0: powers of two from 2^-127, rounded up.
OPTC_SCALAR uint8_t to_f8e8m0(float a, bool saturate = false) {
  if (a != a) return 255;
  if (isinf(a)) return saturate ? 254 : 255;
  const float magnitude = fabsf(a);
  if (magnitude == 0) return 0;
  int e;
  const float m = frexpf(magnitude, &e);
  const int code = e + 126 + (m > 0.5f ? 1 : 0);
  return (uint8_t)(code > 254 ? (saturate ? 254 : 255) : code < 0 ? 0 : code);
}
#define OPTC_ROUND_SMALL(format)                                                                                      \
  OPTC_SCALAR float round_##format(float a, bool saturate = true) { return from_##format(to_##format(a, saturate)); } \
  OPTC_SCALAR float round_##format(double a, bool saturate = true) { return round_##format(narrow_odd(a), saturate); }
OPTC_ROUND_SMALL(f8e4m3fn)
OPTC_ROUND_SMALL(f8e4m3fnuz)
OPTC_ROUND_SMALL(f8e5m2)
OPTC_ROUND_SMALL(f8e5m2fnuz)
OPTC_ROUND_SMALL(f4e2m1)
OPTC_ROUND_SMALL(f8e8m0)
#undef OPTC_ROUND_SMALL

// --- elements below a byte: the first one lies in the low bits
OPTC_SCALAR uint8_t get_u4(const uint8_t *p, int64_t i) { return (uint8_t)((p[i >> 1] >> (4 * (i & 1))) & 15); }
OPTC_SCALAR int8_t get_i4(const uint8_t *p, int64_t i) { return wrap_to_i4(get_u4(p, i)); }
OPTC_SCALAR void put_4(uint8_t *p, int64_t i, uint8_t v) {
  const int shift = 4 * (int)(i & 1);
  p[i >> 1] = (uint8_t)((p[i >> 1] & ~(15 << shift)) | ((v & 15) << shift));
}
OPTC_SCALAR uint8_t get_u2(const uint8_t *p, int64_t i) { return (uint8_t)((p[i >> 2] >> (2 * (i & 3))) & 3); }
OPTC_SCALAR int8_t get_i2(const uint8_t *p, int64_t i) { return wrap_to_i2(get_u2(p, i)); }
OPTC_SCALAR void put_2(uint8_t *p, int64_t i, uint8_t v) {
  const int shift = 2 * (int)(i & 3);
  p[i >> 2] = (uint8_t)((p[i >> 2] & ~(3 << shift)) | ((v & 3) << shift));
}

struct Complex64 {
  float re, im;
};
struct Complex128 {
  double re, im;
};

}  // namespace optc
