#include "tests/proto_io.h"

#include <cstring>
#include <utility>
#include <vector>

#include "onnx/onnx-data.pb.h"
#include "onnx/onnx_pb.h"

namespace optc::testing {

namespace {

using onnx::TensorProto;

template <typename T, typename Field>
std::vector<uint8_t> cells(const Field &field) {
  std::vector<uint8_t> bytes(static_cast<size_t>(field.size()) * sizeof(T));
  for (int i = 0; i < field.size(); ++i) {
    const T value = static_cast<T>(field.Get(i));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// The typed field that a TensorProto of this type uses instead of raw_data, as bytes.
std::vector<uint8_t> typed_bytes(const TensorProto &t, ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
    case ElementType::kComplex64:
      return cells<float>(t.float_data());
    case ElementType::kFloat64:
    case ElementType::kComplex128:
      return cells<double>(t.double_data());
    case ElementType::kInt64:
      return cells<int64_t>(t.int64_data());
    case ElementType::kUInt64:
      return cells<uint64_t>(t.uint64_data());
    case ElementType::kUInt32:
      return cells<uint32_t>(t.uint64_data());
    case ElementType::kInt32:
      return cells<int32_t>(t.int32_data());
    default:
      return bit_width(type) == 16 ? cells<uint16_t>(t.int32_data()) : cells<uint8_t>(t.int32_data());
  }
}

Result<Constant> tensor_of(const TensorProto &t, const std::string &what, Diagnostics &diagnostics) {
  const ElementType type = static_cast<ElementType>(t.data_type());
  std::vector<int64_t> dims(t.dims().begin(), t.dims().end());
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  if (type == ElementType::kString) {
    std::vector<std::string> strings(t.string_data().begin(), t.string_data().end());
    if (static_cast<int64_t>(strings.size()) != count)
      return diagnostics.error(ErrorKind::kUsage, what + " has other dims than strings");
    return Constant::strings(std::move(dims), std::move(strings));
  }
  std::vector<uint8_t> bytes;
  if (t.has_raw_data())
    bytes.assign(t.raw_data().begin(), t.raw_data().end());
  else
    bytes = typed_bytes(t, type);
  const auto expected = storage_bytes(type, count);
  if (!expected || static_cast<size_t>(*expected) != bytes.size())
    return diagnostics.error(ErrorKind::kUsage,
                             what + " has " + std::to_string(bytes.size()) + " bytes, which its dims do not ask for");
  return Constant::owned(type, std::move(dims), std::move(bytes));
}

Result<RuntimeValue> map_of(const onnx::MapProto &m, const std::string &what, Diagnostics &diagnostics) {
  RuntimeValue map;
  map.kind = RuntimeValue::Kind::kMap;
  map.tensor = m.key_type() == TensorProto::STRING
                   ? Constant::strings({m.string_keys_size()}, {m.string_keys().begin(), m.string_keys().end()})
                   : Constant::int64s({m.keys().begin(), m.keys().end()});
  std::vector<uint8_t> bytes;
  std::vector<std::string> texts;
  ElementType type = ElementType::kFloat32;
  for (const TensorProto &t : m.values().tensor_values()) {  // of one element each
    OPTC_ASSIGN(const Constant c, tensor_of(t, what, diagnostics));
    type = c.type();
    if (type == ElementType::kString)
      texts.insert(texts.end(), c.string_values().begin(), c.string_values().end());
    else
      bytes.insert(bytes.end(), c.data(), c.data() + c.size());
  }
  const std::vector<int64_t> dims = map.tensor.dims();
  map.items.push_back(RuntimeValue::of(type == ElementType::kString ? Constant::strings(dims, std::move(texts))
                                                                    : Constant::owned(type, dims, std::move(bytes))));
  return map;
}

Result<RuntimeValue> sequence_of(const onnx::SequenceProto &s, const std::string &what, Diagnostics &diagnostics) {
  RuntimeValue value;
  value.kind = RuntimeValue::Kind::kSequence;
  for (const TensorProto &t : s.tensor_values()) {
    OPTC_ASSIGN(Constant c, tensor_of(t, what, diagnostics));
    value.element = c.type();
    value.items.push_back(RuntimeValue::of(std::move(c)));
  }
  for (const onnx::MapProto &map : s.map_values()) {
    OPTC_ASSIGN(RuntimeValue item, map_of(map, what, diagnostics));
    value.items.push_back(std::move(item));
  }
  for (const onnx::SequenceProto &inner : s.sequence_values()) {
    OPTC_ASSIGN(RuntimeValue item, sequence_of(inner, what, diagnostics));
    value.items.push_back(std::move(item));
  }
  return value;
}

void fill(const Constant &c, const std::string &name, TensorProto &t) {
  t.set_name(name);
  t.set_data_type(static_cast<int>(c.type()));
  for (const int64_t d : c.dims()) t.add_dims(d);
  if (c.type() == ElementType::kString) {
    for (const std::string &s : c.string_values()) t.add_string_data(s);
  } else {
    t.set_raw_data(c.data(), c.size());
  }
}

void fill(const RuntimeValue &value, const std::string &name, onnx::MapProto &m) {
  m.set_name(name);
  const Constant &keys = value.tensor;
  m.set_key_type(static_cast<int>(keys.type()));
  onnx::SequenceProto &values = *m.mutable_values();
  values.set_elem_type(onnx::SequenceProto::TENSOR);
  const Constant &items = value.items[0].tensor;
  for (int64_t i = 0; i < keys.count(); ++i) {
    const size_t at = static_cast<size_t>(i);
    TensorProto &item = *values.add_tensor_values();
    if (keys.type() == ElementType::kString)
      m.add_string_keys(keys.string_values()[at]);
    else
      m.add_keys(keys.as_int64(i));
    item.set_data_type(static_cast<int>(items.type()));
    const size_t width = items.size() / static_cast<size_t>(keys.count());
    if (items.type() == ElementType::kString)
      item.add_string_data(items.string_values()[at]);
    else
      item.set_raw_data(items.data() + at * width, width);
  }
}

void fill(const RuntimeValue &value, const std::string &name, onnx::SequenceProto &s) {
  s.set_name(name);
  s.set_elem_type(onnx::SequenceProto::TENSOR);
  for (const RuntimeValue &item : value.items) {
    if (item.kind == RuntimeValue::Kind::kSequence) {
      s.set_elem_type(onnx::SequenceProto::SEQUENCE);
      fill(item, "", *s.add_sequence_values());
    } else if (item.kind == RuntimeValue::Kind::kMap) {
      s.set_elem_type(onnx::SequenceProto::MAP);
      fill(item, "", *s.add_map_values());
    } else if (item.kind == RuntimeValue::Kind::kTensor) {
      fill(item.tensor, "", *s.add_tensor_values());
    }
  }
}

}  // namespace

Result<RuntimeValue> parse_value(std::string_view bytes, const Type &type, const std::string &what,
                                 Diagnostics &diagnostics) {
  const int size = static_cast<int>(bytes.size());
  auto unreadable = [&] {
    return diagnostics.error(ErrorKind::kUsage, what + " is no serialized value of the input's type");
  };
  if (type.kind == Type::Kind::kSequence) {
    onnx::SequenceProto s;
    if (!s.ParseFromArray(bytes.data(), size)) return unreadable();
    return sequence_of(s, what, diagnostics);
  }
  if (type.kind == Type::Kind::kMap) {
    onnx::MapProto m;
    if (!m.ParseFromArray(bytes.data(), size)) return unreadable();
    return map_of(m, what, diagnostics);
  }
  if (type.kind == Type::Kind::kOptional) {
    onnx::OptionalProto o;
    if (!o.ParseFromArray(bytes.data(), size)) return unreadable();
    RuntimeValue value;
    value.kind = RuntimeValue::Kind::kOptional;
    if (o.has_tensor_value()) {
      OPTC_ASSIGN(Constant c, tensor_of(o.tensor_value(), what, diagnostics));
      value.items.push_back(RuntimeValue::of(std::move(c)));
    } else if (o.has_sequence_value()) {
      OPTC_ASSIGN(RuntimeValue s, sequence_of(o.sequence_value(), what, diagnostics));
      value.items.push_back(std::move(s));
    }
    return value;
  }
  TensorProto t;
  if (!t.ParseFromArray(bytes.data(), size)) return unreadable();
  OPTC_ASSIGN(Constant c, tensor_of(t, what, diagnostics));
  return RuntimeValue::of(std::move(c));
}

std::string serialize_value(const RuntimeValue &value, const Type &type, const std::string &name) {
  if (type.kind == Type::Kind::kOptional) {
    onnx::OptionalProto o;
    o.set_name(name);
    const RuntimeValue *inner = value.kind != RuntimeValue::Kind::kOptional ? &value
                                : value.items.empty()                       ? nullptr
                                                                            : &value.items[0];
    if (inner && inner->kind == RuntimeValue::Kind::kTensor) {
      o.set_elem_type(onnx::OptionalProto::TENSOR);
      fill(inner->tensor, "", *o.mutable_tensor_value());
    } else if (inner && inner->kind == RuntimeValue::Kind::kSequence) {
      o.set_elem_type(onnx::OptionalProto::SEQUENCE);
      fill(*inner, "", *o.mutable_sequence_value());
    }
    return o.SerializeAsString();
  }
  if (value.kind == RuntimeValue::Kind::kSequence) {
    onnx::SequenceProto s;
    fill(value, name, s);
    return s.SerializeAsString();
  }
  if (value.kind == RuntimeValue::Kind::kMap) {
    onnx::MapProto m;
    fill(value, name, m);
    return m.SerializeAsString();
  }
  TensorProto t;
  if (value.kind == RuntimeValue::Kind::kTensor) fill(value.tensor, name, t);
  return t.SerializeAsString();
}

}  // namespace optc::testing
