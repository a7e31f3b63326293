#include "ir/constant_bits.h"

#include <cstring>

#include "ir/constant.h"

namespace optc {

double float_of_bits(ElementType type, uint64_t bits) {
  switch (type) {
    case ElementType::kFloat32: {
      float f;
      const uint32_t u = static_cast<uint32_t>(bits);
      std::memcpy(&f, &u, 4);
      return f;
    }
    case ElementType::kFloat64: {
      double d;
      std::memcpy(&d, &bits, 8);
      return d;
    }
    case ElementType::kFloat16:
      return half_to_float(static_cast<uint16_t>(bits));
    case ElementType::kBFloat16:
      return bfloat16_to_float(static_cast<uint16_t>(bits));
    default:
      return small_float_to_float(type, static_cast<uint8_t>(bits));
  }
}

uint64_t bits_of_float(ElementType type, double value) {
  switch (type) {
    case ElementType::kFloat32: {
      const float f = static_cast<float>(value);
      uint32_t u;
      std::memcpy(&u, &f, 4);
      return u;
    }
    case ElementType::kFloat64: {
      uint64_t u;
      std::memcpy(&u, &value, 8);
      return u;
    }
    case ElementType::kFloat16:
      return float_to_half(static_cast<float>(value));
    case ElementType::kBFloat16:
      return float_to_bfloat16(static_cast<float>(value));
    default:
      return float_to_small_float(type, static_cast<float>(value), true);
  }
}

uint64_t bits_of_integer(ElementType type, uint64_t value) {
  if (type == ElementType::kBool) return value != 0;
  const int width = bit_width(type);
  return width >= 64 ? value : value & ((uint64_t{1} << width) - 1);
}
int64_t integer_of_bits(ElementType type, uint64_t bits) {
  const int width = bit_width(type);
  if (width >= 64 || !is_signed_integer(type)) return static_cast<int64_t>(bits);
  const uint64_t sign = uint64_t{1} << (width - 1);
  return static_cast<int64_t>((bits ^ sign) - sign);
}

}  // namespace optc
