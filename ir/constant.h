#pragma once
// Constant: the immutable value of a tensor known at compile time. A handle: copies share the bytes, which lie in a
// mapped file, are owned, or are made from other constants when they are asked for. Nothing copies a weight that no
// rule changes, and what is packed for a kernel is packed as it is written.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ir/types.h"

namespace optc {

class Constant {
 public:
  Constant() = default;

  // Bytes owned elsewhere; `owner` keeps them alive. Row-major, little-endian, packed as ONNX packs sub-byte types.
  // `size` must equal storage_bytes(type, product of dims).
  static Constant view(ElementType type, std::vector<int64_t> dims, const void *data, size_t size,
                       std::shared_ptr<const void> owner);
  static Constant owned(ElementType type, std::vector<int64_t> dims, std::vector<uint8_t> bytes);
  static Constant strings(std::vector<int64_t> dims, std::vector<std::string> values);
  // Made from the bytes of `of` in the way that `form` says, and by nothing else: those of one form and of equal
  // sources are equal. `make` hands all bytes to the sink, in order and in pieces, each time and from any thread; where
  // the sink takes no more it ends, false.
  using Sink = std::function<bool(const void *data, size_t size)>;
  using Make = std::function<bool(const Sink &)>;
  static Constant made(ElementType type, std::vector<int64_t> dims, std::string form, std::vector<Constant> of,
                       Make make);
  static Constant scalar(ElementType type, double value);      // rank 0; value converted (integers exactly up to 2^53)
  static Constant int64s(const std::vector<int64_t> &values);  // rank 1
  static Constant scalar_int64(int64_t value);
  static Constant floats(const std::vector<float> &values);  // rank 1, f32

  bool valid() const { return body_ != nullptr; }
  ElementType type() const { return body_->type; }
  const std::vector<int64_t> &dims() const { return body_->dims; }
  int rank() const { return static_cast<int>(dims().size()); }
  int64_t count() const { return body_->count; }
  // One that is made is kept from here on; give() keeps nothing.
  const uint8_t *data() const { return body_->make ? kept() : body_->data; }
  bool give(const Sink &sink) const;
  Constant plain() const;  // the same with its bytes; of one that is made, they go with the result
  bool is_made() const { return body_->make != nullptr; }
  // The same address: the same bytes, as long as one of the two lives.
  const void *identity() const { return is_made() ? static_cast<const void *>(body_.get()) : body_->data; }
  // The first bytes, `most` at most; of one that is made its form and those of its sources. Without making anything.
  std::string beginning(size_t most) const;
  size_t size() const { return body_->size; }
  const std::vector<std::string> &string_values() const { return body_->strings; }
  template <typename T>
  const T *as() const {
    return reinterpret_cast<const T *>(data());
  }
  // Any numeric type, element i, converted to double / int64 (floats truncate). Sub-byte types unpack.
  double as_double(int64_t i) const;
  int64_t as_int64(int64_t i) const;
  // XXH3-128 over type, dims and bytes, computed at the first call.
  const std::string &hash() const;
  bool equals(const Constant &other) const;            // same type, dims and bytes
  Constant reshaped(std::vector<int64_t> dims) const;  // same bytes, other dims of the same count
  Shape shape() const;

 private:
  const uint8_t *kept() const;
  struct Body {
    ElementType type = ElementType::kUndefined;
    std::vector<int64_t> dims;
    int64_t count = 0;
    const uint8_t *data = nullptr;
    size_t size = 0;
    std::vector<uint8_t> bytes;
    std::vector<std::string> strings;
    std::shared_ptr<const void> owner;
    std::string form;  // of one that is made, as the two below
    std::vector<Constant> of;
    Make make;
    mutable std::once_flag once;
    mutable std::unique_ptr<const Constant> kept;
    mutable std::string hash;
  };
  std::shared_ptr<const Body> body_;
};

// Conversions of the 16-bit and smaller floats, round to nearest even; the semantics of ONNX's Cast.
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
float bfloat16_to_float(uint16_t bits);
uint16_t float_to_bfloat16(float value);
// float8 / float4 / e8m0 of the given type; `saturate` as Cast's attribute of that name.
float small_float_to_float(ElementType type, uint8_t bits);
uint8_t float_to_small_float(ElementType type, float value, bool saturate);

}  // namespace optc
