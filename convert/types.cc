#include <onnx/defs/data_type_utils.h>
#include <onnx/shape_inference/implementation.h>

#include "convert/internal_edit.h"
#include "emit/onnx/internal_export.h"
#include "importer/importer.h"

namespace optc {

onnx::ModelProto with_types(const onnx::ModelProto &model) {
  onnx::ModelProto typed = model;
  if (!can_inline(model)) return typed;  // inference follows every call, too
  try {
    const onnx::ShapeInferenceOptions options(false, 0, true);
    onnx::shape_inference::InferShapes(typed, onnx::OpSchemaRegistry::Instance(), options);
  } catch (const std::exception &) {
    typed = model;  // the types that are declared are all that is known
  }
  return typed;
}

std::string type_fault(const onnx::ModelProto &model) {
  if (!can_inline(model)) return {};
  onnx::ModelProto typed = model;
  try {
    const onnx::ShapeInferenceOptions strict(true, 1, false);
    onnx::shape_inference::InferShapes(typed, onnx::OpSchemaRegistry::Instance(), strict);
  } catch (const std::exception &fault) {
    return fault.what();
  }
  return {};
}

TypesByName infer_types(const onnx::ModelProto &model, NameSet *ambiguous) {
  onnx::ModelProto typed = with_types(model);
  TypesByName types;
  // Graphs that lie beside one another may use one name for two values: what does not hold for both is not known.
  NameSet unsure;
  const auto kind = [](const onnx::TypeProto &type) {
    const bool ranked = type.has_tensor_type() && type.tensor_type().has_shape();
    return type_text(type) + (ranked ? std::to_string(type.tensor_type().shape().dim_size()) : "");
  };
  const auto note_type = [&](const std::string &name, const onnx::TypeProto &type) {
    if (type.value_case() == onnx::TypeProto::VALUE_NOT_SET || type_text(type).empty()) return;
    const auto [it, fresh] = types.try_emplace(name, type);
    if (!fresh && kind(it->second) != kind(type)) unsure.insert(name);
  };
  const auto note = [&](const onnx::ValueInfoProto &info) {
    if (info.has_type()) note_type(info.name(), info.type());
  };
  const auto note_tensor = [&](const onnx::TensorProto &tensor, const std::string &name) {
    onnx::TypeProto type;
    type.mutable_tensor_type()->set_elem_type(tensor.data_type());
    type.mutable_tensor_type()->mutable_shape();
    for (const int64_t d : tensor.dims()) type.mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(d);
    note_type(name, type);
  };
  for_each_graph(*typed.mutable_graph(), [&](onnx::GraphProto &graph) {
    for (const auto &info : graph.input()) note(info);
    for (const auto &tensor : graph.initializer()) note_tensor(tensor, tensor.name());
    for (const auto &info : graph.value_info()) note(info);
    for (const auto &info : graph.output()) note(info);
  });
  for (const std::string &name : unsure) types.erase(name);
  if (ambiguous) *ambiguous = std::move(unsure);
  return types;
}

void add_types_of_file(const std::string &path, const NameSet &ambiguous, TypesByName &types) {
  Diagnostics ignored;
  const Result<Graph> graph = import_model(path, ImportOptions{}, ignored);
  if (!graph.ok()) return;
  NameSet seen, unsure;
  for (size_t i = 0; i < graph->value_capacity(); ++i) {
    const Value &value = graph->value(ValueId(i));
    if (!value.alive || value.name.empty() || value.type.kind == Type::Kind::kNone) continue;
    if (!seen.insert(value.name).second) {
      unsure.insert(value.name);
      continue;
    }
    const auto it = types.find(value.name);
    if (ambiguous.count(value.name)) continue;
    const bool ranked = it != types.end() && (!it->second.has_tensor_type() || it->second.tensor_type().has_shape());
    if (ranked) continue;
    onnx::TypeProto type;
    write_type(value.type, type);
    if (it == types.end() || type_text(it->second) == type_text(type)) types[value.name] = std::move(type);
  }
  for (const std::string &name : unsure) types.erase(name);
}

std::string type_text(const onnx::TypeProto &type) {
  try {
    if (type.has_tensor_type() && type.tensor_type().elem_type() == onnx::TensorProto::UNDEFINED) return "";
    const onnx::DataType text = onnx::Utils::DataTypeUtils::ToType(type);
    return text ? *text : "";
  } catch (const std::exception &) {
    return "";
  }
}

}  // namespace optc
