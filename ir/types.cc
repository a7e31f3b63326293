#include "ir/types.h"

namespace optc {
namespace {

struct ElementInfo {
  ElementType type;
  std::string_view name, onnx;
  int bits;
};

constexpr ElementInfo kElements[] = {
    {ElementType::kUndefined, "undefined", "undefined", 0},
    {ElementType::kFloat32, "f32", "float", 32},
    {ElementType::kUInt8, "u8", "uint8", 8},
    {ElementType::kInt8, "i8", "int8", 8},
    {ElementType::kUInt16, "u16", "uint16", 16},
    {ElementType::kInt16, "i16", "int16", 16},
    {ElementType::kInt32, "i32", "int32", 32},
    {ElementType::kInt64, "i64", "int64", 64},
    {ElementType::kString, "string", "string", 0},
    {ElementType::kBool, "bool", "bool", 8},
    {ElementType::kFloat16, "f16", "float16", 16},
    {ElementType::kFloat64, "f64", "double", 64},
    {ElementType::kUInt32, "u32", "uint32", 32},
    {ElementType::kUInt64, "u64", "uint64", 64},
    {ElementType::kComplex64, "c64", "complex64", 64},
    {ElementType::kComplex128, "c128", "complex128", 128},
    {ElementType::kBFloat16, "bf16", "bfloat16", 16},
    {ElementType::kFloat8E4M3FN, "f8e4m3fn", "float8e4m3fn", 8},
    {ElementType::kFloat8E4M3FNUZ, "f8e4m3fnuz", "float8e4m3fnuz", 8},
    {ElementType::kFloat8E5M2, "f8e5m2", "float8e5m2", 8},
    {ElementType::kFloat8E5M2FNUZ, "f8e5m2fnuz", "float8e5m2fnuz", 8},
    {ElementType::kUInt4, "u4", "uint4", 4},
    {ElementType::kInt4, "i4", "int4", 4},
    {ElementType::kFloat4E2M1, "f4e2m1", "float4e2m1", 4},
    {ElementType::kFloat8E8M0, "f8e8m0", "float8e8m0", 8},
    {ElementType::kUInt2, "u2", "uint2", 2},
    {ElementType::kInt2, "i2", "int2", 2},
};

const ElementInfo &info(ElementType type) {
  const auto i = static_cast<size_t>(type);
  return kElements[i < std::size(kElements) ? i : 0];
}

}  // namespace

int bit_width(ElementType type) { return info(type).bits; }

bool is_float(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
    case ElementType::kFloat64:
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
    case ElementType::kFloat8E4M3FN:
    case ElementType::kFloat8E4M3FNUZ:
    case ElementType::kFloat8E5M2:
    case ElementType::kFloat8E5M2FNUZ:
    case ElementType::kFloat4E2M1:
    case ElementType::kFloat8E8M0:
      return true;
    default:
      return false;
  }
}

bool is_signed_integer(ElementType type) {
  return type == ElementType::kInt8 || type == ElementType::kInt16 || type == ElementType::kInt32 ||
         type == ElementType::kInt64 || type == ElementType::kInt4 || type == ElementType::kInt2;
}
bool is_unsigned_integer(ElementType type) {
  return type == ElementType::kUInt8 || type == ElementType::kUInt16 || type == ElementType::kUInt32 ||
         type == ElementType::kUInt64 || type == ElementType::kUInt4 || type == ElementType::kUInt2;
}
bool is_integer(ElementType type) { return is_signed_integer(type) || is_unsigned_integer(type); }
bool is_complex(ElementType type) { return type == ElementType::kComplex64 || type == ElementType::kComplex128; }

std::string_view to_string(ElementType type) { return info(type).name; }
std::string_view onnx_name(ElementType type) { return info(type).onnx; }

ElementType element_type_from_string(std::string_view text) {
  for (const ElementInfo &e : kElements)
    if (e.name == text || e.onnx == text) return e.type;
  return ElementType::kUndefined;
}

std::optional<int64_t> storage_bytes(ElementType type, int64_t count) {
  const int bits = bit_width(type);
  int64_t total = 0;
  if (bits == 0 || count < 0 || __builtin_mul_overflow(count, static_cast<int64_t>(bits), &total) ||
      total > INT64_MAX - 7)
    return std::nullopt;
  return (total + 7) / 8;
}

bool operator==(const Type &a, const Type &b) {
  if (a.kind != b.kind || a.element != b.element || a.shape != b.shape) return false;
  if (!a.inner || !b.inner) return !a.inner && !b.inner;
  return *a.inner == *b.inner;
}

std::string to_string(const Shape &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i) text += ",";
    text += shape[i].str();
  }
  return text + "]";
}

std::string to_string(const Type &type) {
  switch (type.kind) {
    case Type::Kind::kNone:
      return "none";
    case Type::Kind::kTensor:
      return std::string(to_string(type.element)) + (type.shape ? to_string(*type.shape) : std::string("[?]"));
    case Type::Kind::kSequence:
      return "seq(" + to_string(*type.inner) + ")";
    case Type::Kind::kOptional:
      return "opt(" + to_string(*type.inner) + ")";
    case Type::Kind::kMap:
      return "map(" + std::string(to_string(type.element)) + "," + to_string(*type.inner) + ")";
  }
  return "none";
}

Dim element_count(const Shape &shape) {
  Dim count = 1;
  for (const Dim &d : shape) count = count * d;
  return count;
}

}  // namespace optc
