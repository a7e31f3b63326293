#include "emit/cpp/types.h"

namespace optc {

const CppType &cpp_type(ElementType type) {
  static const CppType f32{"float", "float", nullptr, 1}, f64{"double", "double", nullptr, 1},
      u8{"uint8_t", "uint8_t", nullptr, 1}, i8{"int8_t", "int8_t", nullptr, 1}, u16{"uint16_t", "uint16_t", nullptr, 1},
      i16{"int16_t", "int16_t", nullptr, 1}, u32{"uint32_t", "uint32_t", nullptr, 1},
      i32{"int32_t", "int32_t", nullptr, 1}, u64{"uint64_t", "uint64_t", nullptr, 1},
      i64{"int64_t", "int64_t", nullptr, 1}, b{"uint8_t", "bool", "bool", 1}, f16{"uint16_t", "float", "f16", 1},
      bf16{"uint16_t", "float", "bf16", 1}, c64{"Complex64", "Complex64", nullptr, 1},
      c128{"Complex128", "Complex128", nullptr, 1}, e4m3{"uint8_t", "float", "f8e4m3fn", 1},
      e4m3z{"uint8_t", "float", "f8e4m3fnuz", 1}, e5m2{"uint8_t", "float", "f8e5m2", 1},
      e5m2z{"uint8_t", "float", "f8e5m2fnuz", 1}, u4{"uint8_t", "uint8_t", "u4", 2}, i4{"uint8_t", "int8_t", "i4", 2},
      f4{"uint8_t", "float", "f4e2m1", 2}, e8m0{"uint8_t", "float", "f8e8m0", 1}, u2{"uint8_t", "uint8_t", "u2", 4},
      i2{"uint8_t", "int8_t", "i2", 4}, text{"OptcLibString", "OptcLibString", nullptr, 1},
      none{"uint8_t", "uint8_t", nullptr, 1};
  switch (type) {
    case ElementType::kFloat32:
      return f32;
    case ElementType::kFloat64:
      return f64;
    case ElementType::kUInt8:
      return u8;
    case ElementType::kInt8:
      return i8;
    case ElementType::kUInt16:
      return u16;
    case ElementType::kInt16:
      return i16;
    case ElementType::kUInt32:
      return u32;
    case ElementType::kInt32:
      return i32;
    case ElementType::kUInt64:
      return u64;
    case ElementType::kInt64:
      return i64;
    case ElementType::kBool:
      return b;
    case ElementType::kFloat16:
      return f16;
    case ElementType::kBFloat16:
      return bf16;
    case ElementType::kComplex64:
      return c64;
    case ElementType::kComplex128:
      return c128;
    case ElementType::kFloat8E4M3FN:
      return e4m3;
    case ElementType::kFloat8E4M3FNUZ:
      return e4m3z;
    case ElementType::kFloat8E5M2:
      return e5m2;
    case ElementType::kFloat8E5M2FNUZ:
      return e5m2z;
    case ElementType::kFloat8E8M0:
      return e8m0;
    case ElementType::kFloat4E2M1:
      return f4;
    case ElementType::kUInt4:
      return u4;
    case ElementType::kInt4:
      return i4;
    case ElementType::kUInt2:
      return u2;
    case ElementType::kInt2:
      return i2;
    case ElementType::kString:
      return text;
    case ElementType::kUndefined:
      break;
  }
  return none;
}

bool is_small_float(ElementType type) {
  return is_float(type) && type != ElementType::kFloat32 && type != ElementType::kFloat64;
}

}  // namespace optc
