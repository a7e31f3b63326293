#include "emit/onnx/internal_export.h"

namespace optc {

void write_type(const Type &type, onnx::TypeProto &out) {
  switch (type.kind) {
    case Type::Kind::kTensor: {
      auto *tensor = out.mutable_tensor_type();
      tensor->set_elem_type(static_cast<int32_t>(type.element));
      if (!type.shape) return;
      tensor->mutable_shape();
      for (Dim d : *type.shape) {
        auto *dim = tensor->mutable_shape()->add_dim();
        if (d.is_constant())
          dim->set_dim_value(d.value());
        else
          dim->set_dim_param(d.str());
      }
      return;
    }
    case Type::Kind::kSequence:
      return write_type(*type.inner, *out.mutable_sequence_type()->mutable_elem_type());
    case Type::Kind::kOptional:
      return write_type(*type.inner, *out.mutable_optional_type()->mutable_elem_type());
    case Type::Kind::kMap:
      out.mutable_map_type()->set_key_type(static_cast<int32_t>(type.element));
      return write_type(*type.inner, *out.mutable_map_type()->mutable_value_type());
    case Type::Kind::kNone:
      return;
  }
}

bool write_tensor_header(const std::string &name, const Constant &constant, onnx::TensorProto &out) {
  out.set_name(name);
  out.set_data_type(static_cast<int32_t>(constant.type()));
  for (int64_t d : constant.dims()) out.add_dims(d);
  if (constant.type() != ElementType::kString) return true;
  for (const std::string &text : constant.string_values()) out.add_string_data(text);
  return false;
}

void write_tensor(const std::string &name, const Constant &constant, onnx::TensorProto &out) {
  if (write_tensor_header(name, constant, out)) out.set_raw_data(constant.data(), constant.size());
}

bool write_attribute(const std::string &name, const Attribute &attribute, onnx::AttributeProto &out) {
  out.set_name(name);
  if (const auto *v = std::get_if<int64_t>(&attribute)) {
    out.set_type(onnx::AttributeProto::INT);
    out.set_i(*v);
  } else if (const auto *v = std::get_if<float>(&attribute)) {
    out.set_type(onnx::AttributeProto::FLOAT);
    out.set_f(*v);
  } else if (const auto *v = std::get_if<std::string>(&attribute)) {
    out.set_type(onnx::AttributeProto::STRING);
    out.set_s(*v);
  } else if (const auto *v = std::get_if<std::vector<int64_t>>(&attribute)) {
    out.set_type(onnx::AttributeProto::INTS);
    for (int64_t i : *v) out.add_ints(i);
  } else if (const auto *v = std::get_if<std::vector<float>>(&attribute)) {
    out.set_type(onnx::AttributeProto::FLOATS);
    for (float f : *v) out.add_floats(f);
  } else if (const auto *v = std::get_if<std::vector<std::string>>(&attribute)) {
    out.set_type(onnx::AttributeProto::STRINGS);
    for (const std::string &s : *v) out.add_strings(s);
  } else if (const auto *v = std::get_if<Constant>(&attribute)) {
    out.set_type(onnx::AttributeProto::TENSOR);
    write_tensor("", *v, *out.mutable_t());
    out.mutable_t()->clear_name();
  } else if (const auto *v = std::get_if<Type>(&attribute)) {
    out.set_type(onnx::AttributeProto::TYPE_PROTO);
    write_type(*v, *out.mutable_tp());
  } else {
    return false;
  }
  return true;
}

}  // namespace optc
