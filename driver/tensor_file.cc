#include "driver/tensor_file.h"

#include <onnx/onnx-data.pb.h>
#include <onnx/onnx_pb.h>

#include <cstring>
#include <string_view>

#include "support/file.h"
#include "support/staging.h"

namespace optc {
namespace {

struct NumpyType {
  std::string_view descr;
  ElementType type;
};
constexpr NumpyType kNumpyTypes[] = {
    {"<f4", ElementType::kFloat32},   {"<f8", ElementType::kFloat64},     {"<f2", ElementType::kFloat16},
    {"<i8", ElementType::kInt64},     {"<i4", ElementType::kInt32},       {"<i2", ElementType::kInt16},
    {"|i1", ElementType::kInt8},      {"<u8", ElementType::kUInt64},      {"<u4", ElementType::kUInt32},
    {"<u2", ElementType::kUInt16},    {"|u1", ElementType::kUInt8},       {"|b1", ElementType::kBool},
    {"<c8", ElementType::kComplex64}, {"<c16", ElementType::kComplex128},
};

Failure bad(Diagnostics &diagnostics, const std::string &path, const std::string &what) {
  return diagnostics.error(ErrorKind::kUsage, path + ": " + what);
}

// Product of non-negative dims; -1 on overflow or a negative dim.
int64_t count_of(const std::vector<int64_t> &dims) {
  int64_t count = 1;
  for (const int64_t d : dims)
    if (d < 0 || __builtin_mul_overflow(count, d, &count)) return -1;
  return count;
}

// The text after `key` in a .npy header's dictionary.
std::string_view field(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size());
  while (!rest.empty() && (rest[0] == ' ' || rest[0] == ':' || rest[0] == '\'' || rest[0] == '"'))
    rest.remove_prefix(1);
  return rest;
}

Result<RuntimeValue> read_npy(const std::string &path, std::string_view text, const Type &expected,
                              Diagnostics &diagnostics) {
  if (text.size() < 12) return bad(diagnostics, path, "not a .npy file");
  const int major = text[6];
  size_t start = 10;
  size_t length = static_cast<uint8_t>(text[8]) | static_cast<uint8_t>(text[9]) << 8;
  if (major >= 2) {
    start = 12;
    length |= static_cast<size_t>(static_cast<uint8_t>(text[10])) << 16 |
              static_cast<size_t>(static_cast<uint8_t>(text[11])) << 24;
  }
  if (length > text.size() - start) return bad(diagnostics, path, "the .npy header is cut off");
  const std::string_view header = text.substr(start, length);
  const std::string_view data = text.substr(start + length);
  if (field(header, "'fortran_order'").substr(0, 4) == "True")
    return bad(diagnostics, path, "the array is in Fortran order; save numpy.ascontiguousarray of it");
  std::string_view descr = field(header, "'descr'");
  descr = descr.substr(0, descr.find_first_of("'\""));
  ElementType type = ElementType::kUndefined;
  for (const NumpyType &known : kNumpyTypes)
    if (descr == known.descr || (descr.size() > 1 && descr.substr(1) == known.descr.substr(1) && descr[0] != '>'))
      type = known.type;
  // ml_dtypes' types are saved as raw bytes: |V1, <V2.
  if (type == ElementType::kUndefined && descr.find('V') != std::string_view::npos && expected.is_tensor() &&
      descr.size() > 2 && (descr[2] - '0') * 8 == bit_width(expected.element))
    type = expected.element;
  if (type == ElementType::kUndefined)
    return bad(diagnostics, path, "element type '" + std::string(descr) + "' is not known");

  std::vector<int64_t> dims;
  std::string_view shape = field(header, "'shape'");
  shape = shape.substr(0, shape.find(')'));
  int64_t number = -1;
  for (const char c : shape) {
    if (c >= '0' && c <= '9') {
      if (number > (int64_t{1} << 56)) return bad(diagnostics, path, "a dimension is too large");
      number = (number < 0 ? 0 : number) * 10 + (c - '0');
    } else if (number >= 0) {
      dims.push_back(number);
      number = -1;
    }
  }
  if (number >= 0) dims.push_back(number);
  const int64_t count = count_of(dims);
  const std::optional<int64_t> bytes = count < 0 ? std::nullopt : storage_bytes(type, count);
  if (!bytes || static_cast<uint64_t>(*bytes) != data.size())
    return bad(diagnostics, path, "the array's data does not have the size that its shape says");
  return RuntimeValue::of(Constant::owned(type, std::move(dims), std::vector<uint8_t>(data.begin(), data.end())));
}

template <typename T, typename Field>
void copy_field(const Field &field, std::vector<uint8_t> &bytes) {
  bytes.resize(field.size() * sizeof(T));
  for (int i = 0; i < field.size(); ++i) {
    const T value = static_cast<T>(field[i]);
    std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
  }
}

Result<RuntimeValue> from_proto(const onnx::TensorProto &proto, const std::string &path, Diagnostics &diagnostics) {
  const ElementType type = static_cast<ElementType>(proto.data_type());
  std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  const int64_t count = count_of(dims);
  if (count < 0 || proto.data_type() <= 0 || proto.data_type() > static_cast<int>(ElementType::kInt2))
    return bad(diagnostics, path, "not a valid TensorProto");
  if (type == ElementType::kString) {
    if (proto.string_data_size() != count) return bad(diagnostics, path, "the number of strings does not fit the dims");
    return RuntimeValue::of(Constant::strings(
        std::move(dims), std::vector<std::string>(proto.string_data().begin(), proto.string_data().end())));
  }
  std::vector<uint8_t> bytes;
  if (proto.has_raw_data()) {
    bytes.assign(proto.raw_data().begin(), proto.raw_data().end());
  } else if (proto.float_data_size() > 0) {
    copy_field<float>(proto.float_data(), bytes);
  } else if (proto.double_data_size() > 0) {
    copy_field<double>(proto.double_data(), bytes);
  } else if (proto.int64_data_size() > 0) {
    copy_field<int64_t>(proto.int64_data(), bytes);
  } else if (proto.uint64_data_size() > 0) {
    type == ElementType::kUInt32 ? copy_field<uint32_t>(proto.uint64_data(), bytes)
                                 : copy_field<uint64_t>(proto.uint64_data(), bytes);
  } else {
    switch (bit_width(type)) {
      case 32:
        copy_field<int32_t>(proto.int32_data(), bytes);
        break;
      case 16:
        copy_field<uint16_t>(proto.int32_data(), bytes);
        break;
      default:
        copy_field<uint8_t>(proto.int32_data(), bytes);
        break;
    }
  }
  const std::optional<int64_t> size = storage_bytes(type, count);
  if (!size || static_cast<uint64_t>(*size) != bytes.size())
    return bad(diagnostics, path, "the tensor's data does not have the size that its dims say");
  return RuntimeValue::of(Constant::owned(type, std::move(dims), std::move(bytes)));
}

void to_proto(const Constant &tensor, onnx::TensorProto *proto) {
  proto->set_data_type(static_cast<int>(tensor.type()));
  for (const int64_t d : tensor.dims()) proto->add_dims(d);
  if (tensor.type() == ElementType::kString) {
    for (const std::string &text : tensor.string_values()) proto->add_string_data(text);
  } else {
    proto->set_raw_data(tensor.data(), tensor.size());
  }
}

// A map: keys, and as many values of one element each (or, when read, one tensor of all).
Result<RuntimeValue> from_proto(const onnx::MapProto &proto, const std::string &path, Diagnostics &diagnostics) {
  RuntimeValue map;
  map.kind = RuntimeValue::Kind::kMap;
  const bool strings = proto.key_type() == onnx::TensorProto::STRING;
  if (strings) {
    map.tensor =
        Constant::strings({proto.string_keys_size()}, {proto.string_keys().begin(), proto.string_keys().end()});
  } else if (proto.key_type() == onnx::TensorProto::INT64) {
    map.tensor = Constant::int64s({proto.keys().begin(), proto.keys().end()});
  } else {
    return bad(diagnostics, path, "the keys of a map are neither strings nor int64");
  }
  const int64_t count = map.tensor.count();
  std::vector<uint8_t> bytes;
  std::vector<std::string> texts;
  ElementType type = ElementType::kFloat32;
  int64_t found = 0;
  for (const onnx::TensorProto &tensor : proto.values().tensor_values()) {
    OPTC_ASSIGN(const RuntimeValue value, from_proto(tensor, path, diagnostics));
    if (found > 0 && value.tensor.type() != type) return bad(diagnostics, path, "the values of a map differ in type");
    type = value.tensor.type();
    found += value.tensor.count();
    if (type == ElementType::kString) {
      texts.insert(texts.end(), value.tensor.string_values().begin(), value.tensor.string_values().end());
    } else {
      bytes.insert(bytes.end(), value.tensor.data(), value.tensor.data() + value.tensor.size());
    }
  }
  if (found != count)
    return bad(diagnostics, path,
               "a map has " + std::to_string(count) + " keys and " + std::to_string(found) + " values");
  map.items.push_back(RuntimeValue::of(type == ElementType::kString
                                           ? Constant::strings({count}, std::move(texts))
                                           : Constant::owned(type, {count}, std::move(bytes))));
  return map;
}

Result<RuntimeValue> from_proto(const onnx::SequenceProto &proto, const std::string &path, Diagnostics &diagnostics) {
  RuntimeValue sequence;
  sequence.kind = RuntimeValue::Kind::kSequence;
  for (const onnx::TensorProto &tensor : proto.tensor_values()) {
    OPTC_ASSIGN(RuntimeValue item, from_proto(tensor, path, diagnostics));
    sequence.element = item.tensor.type();
    sequence.items.push_back(std::move(item));
  }
  for (const onnx::MapProto &map : proto.map_values()) {
    OPTC_ASSIGN(RuntimeValue item, from_proto(map, path, diagnostics));
    sequence.items.push_back(std::move(item));
  }
  return sequence;
}

// Element i of a tensor, as a tensor without dims.
Constant element_of(const Constant &tensor, int64_t i) {
  if (tensor.type() == ElementType::kString)
    return Constant::strings({}, {tensor.string_values()[static_cast<size_t>(i)]});
  const size_t width = tensor.count() ? tensor.size() / static_cast<size_t>(tensor.count()) : 0;
  const uint8_t *at = tensor.data() + static_cast<size_t>(i) * width;
  return Constant::owned(tensor.type(), {}, std::vector<uint8_t>(at, at + width));
}

void map_to_proto(const RuntimeValue &map, onnx::MapProto *proto) {
  const Constant &keys = map.tensor;
  proto->set_key_type(static_cast<int>(keys.type()));
  onnx::SequenceProto *values = proto->mutable_values();
  values->set_elem_type(onnx::SequenceProto::TENSOR);
  for (int64_t i = 0; i < keys.count(); ++i) {
    if (keys.type() == ElementType::kString)
      proto->add_string_keys(keys.string_values()[static_cast<size_t>(i)]);
    else
      proto->add_keys(keys.as_int64(i));
    to_proto(element_of(map.items[0].tensor, i), values->add_tensor_values());
  }
}

Status sequence_to_proto(const std::string &path, const RuntimeValue &value, onnx::SequenceProto *proto,
                         Diagnostics &diagnostics) {
  proto->set_elem_type(onnx::SequenceProto::TENSOR);
  for (const RuntimeValue &item : value.items) {
    if (item.kind == RuntimeValue::Kind::kMap) {
      proto->set_elem_type(onnx::SequenceProto::MAP);
      map_to_proto(item, proto->add_map_values());
      continue;
    }
    if (item.kind != RuntimeValue::Kind::kTensor)
      return diagnostics.error(ErrorKind::kUnsupported, path + ": a sequence of something else than tensors and maps");
    to_proto(item.tensor, proto->add_tensor_values());
  }
  return {};
}

std::string npy_text(const Constant &tensor, std::string_view descr) {
  std::string shape = "(";
  for (const int64_t d : tensor.dims()) shape += std::to_string(d) + ",";
  if (tensor.rank() > 1) shape.pop_back();
  std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': " + shape + "), }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  text += header;
  text.append(reinterpret_cast<const char *>(tensor.data()), tensor.size());
  return text;
}

bool ends_with(const std::string &text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

bool has_numpy_type(ElementType type) {
  for (const NumpyType &known : kNumpyTypes)
    if (type == known.type) return true;
  return false;
}

Result<RuntimeValue> read_value(const std::string &path, const Type &expected, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::string text, read_file(path, diagnostics));
  if (text.compare(0, 6, "\x93NUMPY") == 0) return read_npy(path, text, expected, diagnostics);
  const Type *type = &expected;
  bool optional = false;
  if (type->kind == Type::Kind::kOptional) {
    optional = true;
    type = type->inner.get();
  }
  const bool sequence = type->kind == Type::Kind::kSequence;
  if (!optional && type->kind == Type::Kind::kMap) {
    onnx::MapProto proto;
    if (!proto.ParseFromString(text)) return bad(diagnostics, path, "not a MapProto");
    return from_proto(proto, path, diagnostics);
  }
  if (!optional && !sequence) {
    onnx::TensorProto proto;
    if (!proto.ParseFromString(text)) return bad(diagnostics, path, "neither .npy nor a TensorProto");
    return from_proto(proto, path, diagnostics);
  }
  RuntimeValue value;
  onnx::OptionalProto optional_proto;
  onnx::SequenceProto sequence_proto;
  if (optional) {
    if (!optional_proto.ParseFromString(text)) return bad(diagnostics, path, "not an OptionalProto");
    value.kind = RuntimeValue::Kind::kOptional;
    if (optional_proto.has_tensor_value()) {
      OPTC_ASSIGN(RuntimeValue inner, from_proto(optional_proto.tensor_value(), path, diagnostics));
      value.items.push_back(std::move(inner));
      return value;
    }
    if (!optional_proto.has_sequence_value()) return value;
    sequence_proto = optional_proto.sequence_value();
  } else if (!sequence_proto.ParseFromString(text)) {
    return bad(diagnostics, path, "not a SequenceProto");
  }
  OPTC_ASSIGN(RuntimeValue items, from_proto(sequence_proto, path, diagnostics));
  if (type->inner && type->inner->is_tensor()) items.element = type->inner->element;
  if (!optional) return items;
  value.items.push_back(std::move(items));
  return value;
}

Status write_value(const std::string &path, const RuntimeValue &value, Diagnostics &diagnostics) {
  if (ends_with(path, ".npy")) {
    if (value.kind == RuntimeValue::Kind::kTensor)
      for (const NumpyType &known : kNumpyTypes)
        if (known.type == value.tensor.type())
          return write_file(path, npy_text(value.tensor, known.descr), diagnostics);
    return diagnostics.error(ErrorKind::kUsage, path + ": NumPy's format has no such type", {}, "write .pb");
  }
  std::string text;
  if (value.kind == RuntimeValue::Kind::kTensor) {
    onnx::TensorProto proto;
    to_proto(value.tensor, &proto);
    proto.SerializeToString(&text);
  } else if (value.kind == RuntimeValue::Kind::kSequence) {
    onnx::SequenceProto proto;
    OPTC_TRY(sequence_to_proto(path, value, &proto, diagnostics));
    proto.SerializeToString(&text);
  } else if (value.kind == RuntimeValue::Kind::kOptional) {
    onnx::OptionalProto proto;
    if (value.items.empty()) {
      proto.set_elem_type(onnx::OptionalProto::UNDEFINED);
    } else if (value.items[0].kind == RuntimeValue::Kind::kTensor) {
      proto.set_elem_type(onnx::OptionalProto::TENSOR);
      to_proto(value.items[0].tensor, proto.mutable_tensor_value());
    } else {
      proto.set_elem_type(onnx::OptionalProto::SEQUENCE);
      OPTC_TRY(sequence_to_proto(path, value.items[0], proto.mutable_sequence_value(), diagnostics));
    }
    proto.SerializeToString(&text);
  } else if (value.kind == RuntimeValue::Kind::kMap) {
    onnx::MapProto proto;
    map_to_proto(value, &proto);
    proto.SerializeToString(&text);
  } else {
    return diagnostics.error(ErrorKind::kUnsupported, path + ": there is no value");
  }
  return write_file(path, text, diagnostics);
}

}  // namespace optc
