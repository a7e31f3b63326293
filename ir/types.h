#pragma once
// Element types and value types. The numbers of ElementType are those of onnx.TensorProto.DataType.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dim/dim.h"

namespace optc {

enum class ElementType : uint8_t {
  kUndefined = 0,
  kFloat32 = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kUInt16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kFloat64 = 11,
  kUInt32 = 12,
  kUInt64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBFloat16 = 16,
  kFloat8E4M3FN = 17,
  kFloat8E4M3FNUZ = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2FNUZ = 20,
  kUInt4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
  kUInt2 = 25,
  kInt2 = 26,
};

int bit_width(ElementType type);    // 2, 4, 8, 16, 32, 64, 128; 0 for strings and undefined
bool is_float(ElementType type);    // every floating-point type, float8 and float4 included
bool is_integer(ElementType type);  // signed or unsigned, without bool
bool is_signed_integer(ElementType type);
bool is_unsigned_integer(ElementType type);
bool is_complex(ElementType type);
std::string_view to_string(ElementType type);  // "f32", "i64", "bool", "f8e4m3fn", "string", ...
std::string_view onnx_name(ElementType type);  // "float", "int64", ... as ONNX's schemas and errors spell them
ElementType element_type_from_string(std::string_view text);  // kUndefined when unknown; accepts to_string's spelling
// Bytes of `count` elements; sub-byte types are packed as ONNX packs them. nullopt: overflow or no fixed size
// (strings).
std::optional<int64_t> storage_bytes(ElementType type, int64_t count);

using Shape = std::vector<Dim>;

// The type of a value: a tensor, or a sequence / optional / map of another type.
struct Type {
  enum class Kind : uint8_t { kNone, kTensor, kSequence, kOptional, kMap };
  Kind kind = Kind::kNone;
  ElementType element = ElementType::kUndefined;  // tensor: its elements; map: its keys
  std::optional<Shape> shape;                     // tensor: nullopt while the rank is not known
  std::shared_ptr<const Type> inner;              // sequence, optional: the element; map: the value

  static Type tensor(ElementType element, std::optional<Shape> shape) {
    Type type;
    type.kind = Kind::kTensor;
    type.element = element;
    type.shape = std::move(shape);
    return type;
  }
  static Type sequence(Type element) { return nested(Kind::kSequence, std::move(element)); }
  static Type optional(Type element) { return nested(Kind::kOptional, std::move(element)); }
  static Type map(ElementType key, Type value) {
    Type type = nested(Kind::kMap, std::move(value));
    type.element = key;
    return type;
  }
  bool is_tensor() const { return kind == Kind::kTensor; }
  bool has_shape() const { return is_tensor() && shape.has_value(); }
  int rank() const { return static_cast<int>(shape->size()); }  // has_shape() only
  friend bool operator==(const Type &a, const Type &b);

 private:
  static Type nested(Kind kind, Type inner) {
    Type type;
    type.kind = kind;
    type.inner = std::make_shared<const Type>(std::move(inner));
    return type;
  }
};

std::string to_string(
    const Type &type);  // "f32[N,3,224,224]", "f32[?]" for unknown rank, "seq(f32[N])", "opt(...)", "map(i64,...)"
std::string to_string(const Shape &shape);  // "[N,3,224,224]"
Dim element_count(const Shape &shape);

}  // namespace optc
