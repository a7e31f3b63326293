// Conversions of the 16-, 8- and 4-bit floating-point formats.
// Formats: IEEE 754 binary16; bfloat16; OCP 8-bit E4M3 and E5M2 and the FNUZ forms of arXiv 2206.02915; OCP MX E2M1 and
// E8M0.
#include <cmath>
#include <cstring>

#include "ir/constant.h"

namespace optc {
namespace {

uint32_t bits_of(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}
float float_of(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

struct Format {
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity;          // E5M2
  bool negative_zero_is_nan;  // FNUZ forms: one NaN, 0x80, no -0
  bool has_nan;
};

Format format_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat8E4M3FN:
      return {4, 3, 7, false, false, true};
    case ElementType::kFloat8E4M3FNUZ:
      return {4, 3, 8, false, true, true};
    case ElementType::kFloat8E5M2:
      return {5, 2, 15, true, false, true};
    case ElementType::kFloat8E5M2FNUZ:
      return {5, 2, 16, false, true, true};
    case ElementType::kFloat4E2M1:
      return {2, 1, 1, false, false, false};
    default:
      return {4, 3, 7, false, false, true};
  }
}

}  // namespace

float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 31, mantissa = h & 0x3FF;
  if (exponent == 31) return float_of(sign | 0x7F800000 | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t float_to_half(float value) {
  const uint32_t u = bits_of(value), sign = (u >> 16) & 0x8000, magnitude = u & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00 | ((magnitude >> 13) & 0x1FF));
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // rounds to 65536 or more
  if (magnitude < 0x38800000) {                                              // below the smallest normal
    const float scaled = float_of(magnitude) * 0x1p24f;
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

float bfloat16_to_float(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }

uint16_t float_to_bfloat16(float value) {
  const uint32_t u = bits_of(value);
  if ((u & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((u >> 16) | 0x40);
  return static_cast<uint16_t>((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
}

float small_float_to_float(ElementType type, uint8_t bits) {
  if (type == ElementType::kFloat8E8M0) {
    if (bits == 255) return NAN;
    return std::ldexp(1.0f, bits - 127);
  }
  const Format f = format_of(type);
  const int width = 1 + f.exponent_bits + f.mantissa_bits;
  const bool negative = (bits >> (width - 1)) & 1;
  const int exponent = (bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int top = (1 << f.exponent_bits) - 1;
  if (f.negative_zero_is_nan && bits == 0x80) return NAN;
  if (f.has_infinity && exponent == top) {
    if (mantissa) return NAN;
    return negative ? -INFINITY : INFINITY;
  }
  if (!f.has_infinity && !f.negative_zero_is_nan && f.has_nan && exponent == top &&
      mantissa == (1 << f.mantissa_bits) - 1)
    return NAN;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - f.bias - f.mantissa_bits)
                                  : std::ldexp(static_cast<float>(mantissa + (1 << f.mantissa_bits)),
                                               exponent - f.bias - f.mantissa_bits);
  return negative ? -magnitude : magnitude;
}

uint8_t float_to_small_float(ElementType type, float value, bool saturate) {
  if (type == ElementType::kFloat8E8M0) {
    // A scale: powers of two from 2^-127 to 2^127, 255 is NaN. Rounds up, ONNX's default round_mode.
    if (std::isnan(value) || (std::isinf(value) && !saturate)) return 255;
    const float magnitude = std::fabs(value);
    if (std::isinf(value)) return 254;
    if (magnitude == 0) return 0;
    int e;
    const float m = std::frexp(magnitude, &e);  // magnitude = m * 2^e, 0.5 <= m < 1
    int biased = e - 1 + 127 + (m > 0.5f ? 1 : 0);
    if (biased > 254) return saturate ? 254 : 255;
    return static_cast<uint8_t>(biased < 0 ? 0 : biased);
  }
  const Format f = format_of(type);
  const int width = 1 + f.exponent_bits + f.mantissa_bits;
  const uint8_t sign = std::signbit(value) ? static_cast<uint8_t>(1u << (width - 1)) : 0;
  const int top = (1 << f.exponent_bits) - 1;
  const uint8_t all_ones = static_cast<uint8_t>((1u << (width - 1)) - 1);
  const uint8_t nan = f.negative_zero_is_nan ? 0x80 : !f.has_nan ? 0 : static_cast<uint8_t>(sign | all_ones);
  const uint8_t infinity = static_cast<uint8_t>(sign | (top << f.mantissa_bits));
  uint8_t largest = all_ones;  // FNUZ and E2M1: all codes are finite
  if (f.has_infinity)
    largest = static_cast<uint8_t>(((top - 1) << f.mantissa_bits) | ((1 << f.mantissa_bits) - 1));
  else if (!f.negative_zero_is_nan && f.has_nan)
    largest = static_cast<uint8_t>(all_ones - 1);
  // E2M1 has no NaN: negative zero stands for it, as in ONNX's reference.
  if (std::isnan(value))
    return !f.has_nan       ? static_cast<uint8_t>(1u << (width - 1))
           : f.has_infinity ? static_cast<uint8_t>(sign | all_ones)
                            : nan;
  if (std::isinf(value)) {
    if (saturate || !f.has_nan) return static_cast<uint8_t>(sign | largest);
    return f.has_infinity ? infinity : nan;
  }
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return f.negative_zero_is_nan ? 0 : sign;
  int e;
  std::frexp(magnitude, &e);  // 2^(e-1) <= magnitude < 2^e
  int exponent = e - 1;
  const int minimum = 1 - f.bias;
  if (exponent < minimum) exponent = minimum;
  const double unit = std::ldexp(1.0, exponent - f.mantissa_bits);
  double steps = std::nearbyint(static_cast<double>(magnitude) / unit);  // ties to even
  if (steps >= std::ldexp(1.0, f.mantissa_bits + 1)) {
    steps /= 2;
    ++exponent;
  }
  const int mantissa_limit = 1 << f.mantissa_bits;
  uint32_t code;
  if (steps < mantissa_limit)
    code = static_cast<uint32_t>(steps);
  else
    code =
        (static_cast<uint32_t>(exponent + f.bias) << f.mantissa_bits) + (static_cast<uint32_t>(steps) - mantissa_limit);
  if (code > largest) {
    if (saturate || !f.has_nan) return static_cast<uint8_t>(sign | largest);
    return f.has_infinity ? infinity : nan;
  }
  if (code == 0 && f.negative_zero_is_nan) return 0;
  return static_cast<uint8_t>(sign | code);
}

}  // namespace optc
