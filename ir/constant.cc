#include "ir/constant.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/file.h"

namespace optc {
namespace {

int64_t count_of(const std::vector<int64_t> &dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

template <typename T>
void append(std::vector<uint8_t> &bytes, T value) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

template <typename T>
T read(const uint8_t *data, int64_t i) {
  T value;
  std::memcpy(&value, data + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

Constant Constant::view(ElementType type, std::vector<int64_t> dims, const void *data, size_t size,
                        std::shared_ptr<const void> owner) {
  auto body = std::make_shared<Body>();
  body->type = type;
  body->count = count_of(dims);
  body->dims = std::move(dims);
  body->data = static_cast<const uint8_t *>(data);
  body->size = size;
  body->owner = std::move(owner);
  Constant constant;
  constant.body_ = std::move(body);
  return constant;
}

Constant Constant::owned(ElementType type, std::vector<int64_t> dims, std::vector<uint8_t> bytes) {
  auto body = std::make_shared<Body>();
  body->type = type;
  body->count = count_of(dims);
  body->dims = std::move(dims);
  body->bytes = std::move(bytes);
  body->data = body->bytes.data();
  body->size = body->bytes.size();
  Constant constant;
  constant.body_ = std::move(body);
  return constant;
}

Constant Constant::made(ElementType type, std::vector<int64_t> dims, std::string form, std::vector<Constant> of,
                        Make make) {
  auto body = std::make_shared<Body>();
  body->type = type;
  body->count = count_of(dims);
  body->dims = std::move(dims);
  body->size = static_cast<size_t>(storage_bytes(type, body->count).value_or(0));
  body->form = std::move(form);
  body->of = std::move(of);
  body->make = std::move(make);
  Constant constant;
  constant.body_ = std::move(body);
  return constant;
}

bool Constant::give(const Sink &sink) const {
  if (is_made()) return body_->make(sink);
  return size() == 0 || sink(data(), size());
}

Constant Constant::plain() const {
  if (!is_made()) return *this;
  std::vector<uint8_t> all;
  all.reserve(size());
  give([&](const void *data, size_t size) {
    const auto *bytes = static_cast<const uint8_t *>(data);
    all.insert(all.end(), bytes, bytes + size);
    return true;
  });
  return owned(type(), dims(), std::move(all));
}

const uint8_t *Constant::kept() const {
  std::call_once(body_->once, [this] { body_->kept = std::make_unique<const Constant>(plain()); });
  return body_->kept->data();
}

std::string Constant::beginning(size_t most) const {
  std::string text = body_->form;
  for (const Constant &source : body_->of) text += source.beginning(most);
  if (!is_made()) text.append(reinterpret_cast<const char *>(body_->data), std::min(size(), most));
  return text;
}

Constant Constant::strings(std::vector<int64_t> dims, std::vector<std::string> values) {
  auto body = std::make_shared<Body>();
  body->type = ElementType::kString;
  body->count = count_of(dims);
  body->dims = std::move(dims);
  body->strings = std::move(values);
  Constant constant;
  constant.body_ = std::move(body);
  return constant;
}

Constant Constant::scalar(ElementType type, double value) {
  std::vector<uint8_t> bytes;
  switch (type) {
    case ElementType::kFloat32:
      append(bytes, static_cast<float>(value));
      break;
    case ElementType::kFloat64:
      append(bytes, value);
      break;
    case ElementType::kFloat16:
      append(bytes, float_to_half(static_cast<float>(value)));
      break;
    case ElementType::kBFloat16:
      append(bytes, float_to_bfloat16(static_cast<float>(value)));
      break;
    case ElementType::kInt64:
      append(bytes, static_cast<int64_t>(value));
      break;
    case ElementType::kUInt64:
      append(bytes, static_cast<uint64_t>(value));
      break;
    case ElementType::kInt32:
      append(bytes, static_cast<int32_t>(value));
      break;
    case ElementType::kUInt32:
      append(bytes, static_cast<uint32_t>(value));
      break;
    case ElementType::kInt16:
      append(bytes, static_cast<int16_t>(value));
      break;
    case ElementType::kUInt16:
      append(bytes, static_cast<uint16_t>(value));
      break;
    case ElementType::kInt8:
      append(bytes, static_cast<int8_t>(value));
      break;
    case ElementType::kUInt8:
      append(bytes, static_cast<uint8_t>(value));
      break;
    case ElementType::kBool:
      append(bytes, static_cast<uint8_t>(value != 0));
      break;
    case ElementType::kInt4:
    case ElementType::kUInt4:
      append(bytes, static_cast<uint8_t>(static_cast<int>(value) & 15));
      break;
    case ElementType::kInt2:
    case ElementType::kUInt2:
      append(bytes, static_cast<uint8_t>(static_cast<int>(value) & 3));
      break;
    case ElementType::kComplex64:
      append(bytes, static_cast<float>(value));
      append(bytes, 0.0f);
      break;
    case ElementType::kComplex128:
      append(bytes, value);
      append(bytes, 0.0);
      break;
    default:
      append(bytes, float_to_small_float(type, static_cast<float>(value), true));
      break;
  }
  return owned(type, {}, std::move(bytes));
}

Constant Constant::int64s(const std::vector<int64_t> &values) {
  std::vector<uint8_t> bytes(values.size() * 8);
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return owned(ElementType::kInt64, {static_cast<int64_t>(values.size())}, std::move(bytes));
}

Constant Constant::scalar_int64(int64_t value) {
  std::vector<uint8_t> bytes;
  append(bytes, value);
  return owned(ElementType::kInt64, {}, std::move(bytes));
}

Constant Constant::floats(const std::vector<float> &values) {
  std::vector<uint8_t> bytes(values.size() * 4);
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return owned(ElementType::kFloat32, {static_cast<int64_t>(values.size())}, std::move(bytes));
}

double Constant::as_double(int64_t i) const {
  const uint8_t *d = data();
  switch (type()) {
    case ElementType::kFloat32:
      return read<float>(d, i);
    case ElementType::kFloat64:
      return read<double>(d, i);
    case ElementType::kFloat16:
      return half_to_float(read<uint16_t>(d, i));
    case ElementType::kBFloat16:
      return bfloat16_to_float(read<uint16_t>(d, i));
    case ElementType::kUInt64:
      return static_cast<double>(read<uint64_t>(d, i));
    case ElementType::kFloat8E4M3FN:
    case ElementType::kFloat8E4M3FNUZ:
    case ElementType::kFloat8E5M2:
    case ElementType::kFloat8E5M2FNUZ:
    case ElementType::kFloat8E8M0:
      return small_float_to_float(type(), d[i]);
    case ElementType::kFloat4E2M1:
      return small_float_to_float(type(), (d[i / 2] >> (i % 2 * 4)) & 15);
    case ElementType::kComplex64:
      return read<float>(d, 2 * i);
    case ElementType::kComplex128:
      return read<double>(d, 2 * i);
    default:
      return static_cast<double>(as_int64(i));
  }
}

int64_t Constant::as_int64(int64_t i) const {
  const uint8_t *d = data();
  switch (type()) {
    case ElementType::kInt64:
      return read<int64_t>(d, i);
    case ElementType::kUInt64:
      return static_cast<int64_t>(read<uint64_t>(d, i));
    case ElementType::kInt32:
      return read<int32_t>(d, i);
    case ElementType::kUInt32:
      return read<uint32_t>(d, i);
    case ElementType::kInt16:
      return read<int16_t>(d, i);
    case ElementType::kUInt16:
      return read<uint16_t>(d, i);
    case ElementType::kInt8:
      return read<int8_t>(d, i);
    case ElementType::kUInt8:
      return d[i];
    case ElementType::kBool:
      return d[i] != 0;
    case ElementType::kUInt4:
      return (d[i / 2] >> (i % 2 * 4)) & 15;
    case ElementType::kInt4:
      return (((d[i / 2] >> (i % 2 * 4)) & 15) ^ 8) - 8;
    case ElementType::kUInt2:
      return (d[i / 4] >> (i % 4 * 2)) & 3;
    case ElementType::kInt2:
      return (((d[i / 4] >> (i % 4 * 2)) & 3) ^ 2) - 2;
    case ElementType::kString:
    case ElementType::kUndefined:
      return 0;
    default: {
      const double v = as_double(i);
      return std::isfinite(v) && std::fabs(v) < 0x1p63 ? static_cast<int64_t>(v) : 0;
    }
  }
}

const std::string &Constant::hash() const {
  if (body_->hash.empty()) {
    std::string head = std::to_string(static_cast<int>(type())) + ":";
    for (int64_t d : dims()) head += std::to_string(d) + ",";
    std::string body;
    if (type() == ElementType::kString)
      for (const std::string &s : string_values()) body += std::to_string(s.size()) + ":" + s;
    const Constant bytes = plain();  // of one that is made, they are not kept
    head += type() == ElementType::kString ? xxh3_128(body.data(), body.size()) : xxh3_128(bytes.data(), size());
    body_->hash = xxh3_128(head.data(), head.size());
  }
  return body_->hash;
}

bool Constant::equals(const Constant &other) const {
  if (body_ == other.body_) return true;
  if (!body_ || !other.body_ || type() != other.type() || dims() != other.dims()) return false;
  if (type() == ElementType::kString) return string_values() == other.string_values();
  if (is_made() && other.is_made() && body_->form == other.body_->form &&
      std::equal(body_->of.begin(), body_->of.end(), other.body_->of.begin(), other.body_->of.end(),
                 [](const Constant &a, const Constant &b) { return a.equals(b); }))
    return true;
  return size() == other.size() &&
         (data() == other.data() || size() == 0 || std::memcmp(data(), other.data(), size()) == 0);
}

Constant Constant::reshaped(std::vector<int64_t> dims) const {
  if (type() == ElementType::kString) return strings(std::move(dims), string_values());
  if (is_made()) return made(type(), std::move(dims), body_->form, body_->of, body_->make);
  return view(type(), std::move(dims), data(), size(), body_);
}

Shape Constant::shape() const {
  Shape shape;
  for (int64_t d : dims()) shape.push_back(Dim(d));
  return shape;
}

}  // namespace optc
