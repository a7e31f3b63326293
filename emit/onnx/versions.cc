#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <unordered_map>

#include "emit/onnx/internal_export.h"

namespace optc {
namespace {

constexpr int kMaxBodyDepth = 8;

// The node, written for `version`, means the same at `opset`: optc knows no step between the two, and the schema takes
// it.
bool same_meaning(const onnx::NodeProto &node, int64_t version, int64_t opset) {
  const onnx::OpSchema *wanted = schema_at("", node.op_type(), version);
  const onnx::OpSchema *there = schema_at("", node.op_type(), opset);
  if (!wanted || !there) return false;
  if (wanted == there) return true;
  const OpDef *def = find_op(node.op_type());
  if (!def && node.op_type() != "Constant") return false;
  if (def)
    for (const VersionStep &step : def->steps)
      if ((step.version > version) != (step.version > opset)) return false;
  try {
    there->Verify(node);
  } catch (const std::exception &) {
    return false;
  }
  return true;
}

// The body's nodes with the call's names, or an empty list when `opset` does not define one of them as the body's own
// version does.
std::vector<onnx::NodeProto> inline_body(const onnx::NodeProto &call, const onnx::OpSchema &schema,
                                         const onnx::FunctionProto &function, int64_t version, int64_t opset,
                                         int depth) {
  std::unordered_map<std::string, std::string> names;
  for (int i = 0; i < function.input_size(); ++i) names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
  for (int i = 0; i < function.output_size(); ++i)
    if (i < call.output_size() && !call.output(i).empty()) names[function.output(i)] = call.output(i);
  std::unordered_map<std::string, const onnx::AttributeProto *> attributes;
  for (const auto &[name, attribute] : schema.attributes())
    if (attribute.default_value.type() != onnx::AttributeProto::UNDEFINED) attributes[name] = &attribute.default_value;
  for (const auto &attribute : call.attribute()) attributes[attribute.name()] = &attribute;
  const std::string prefix = (call.name().empty() ? call.output(0) : call.name()) + "/";
  auto named = [&](const std::string &name) {
    if (name.empty()) return name;
    return names.try_emplace(name, prefix + name).first->second;
  };
  std::vector<onnx::NodeProto> nodes;
  for (const auto &part : function.node()) {
    onnx::NodeProto node = part;
    if (!node.domain().empty() && node.domain() != "ai.onnx") return {};
    node.set_name(prefix + (part.name().empty() ? part.output(0) : part.name()));
    for (auto &input : *node.mutable_input()) input = named(input);
    for (auto &output : *node.mutable_output()) output = named(output);
    node.clear_attribute();
    for (const auto &attribute : part.attribute()) {
      if (attribute.has_g() || attribute.graphs_size() > 0) return {};  // names inside would need the same care
      if (attribute.ref_attr_name().empty()) {
        *node.add_attribute() = attribute;
      } else if (auto it = attributes.find(attribute.ref_attr_name()); it != attributes.end()) {
        onnx::AttributeProto *copy = node.add_attribute();
        *copy = *it->second;
        copy->set_name(attribute.name());
      }
    }
    *node.mutable_metadata_props() = call.metadata_props();
    if (same_meaning(node, version, opset)) {
      nodes.push_back(std::move(node));
      continue;
    }
    std::vector<onnx::NodeProto> inner = function_body(node, {}, opset, depth + 1);
    if (inner.empty()) return {};
    for (auto &n : inner) nodes.push_back(std::move(n));
  }
  return nodes;
}

}  // namespace

std::pair<std::string, std::string> split_op(std::string_view op) {
  const size_t dot = op.rfind('.');
  if (dot == std::string_view::npos) return {"", std::string(op)};
  return {std::string(op.substr(0, dot)), std::string(op.substr(dot + 1))};
}

const onnx::OpSchema *schema_at(const std::string &domain, const std::string &op, int64_t version) {
  const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(op, static_cast<int>(version), domain);
  return schema && !schema->deprecated() ? schema : nullptr;
}

std::vector<onnx::NodeProto> function_body(const onnx::NodeProto &node, const std::vector<onnx::TypeProto> &input_types,
                                           int64_t opset, int depth) {
  if (depth > kMaxBodyDepth) return {};
  const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(node.op_type(), "");
  if (!schema) return {};
  for (int version : schema->function_opset_versions())
    if (const onnx::FunctionProto *function = schema->GetFunction(version)) {
      std::vector<onnx::NodeProto> nodes = inline_body(node, *schema, *function, version, opset, depth);
      if (!nodes.empty()) return nodes;
    }
  for (int version : schema->context_dependent_function_opset_versions()) {
    onnx::FunctionProto function;
    try {
      const onnx::FunctionBodyBuildContextImpl context(node, input_types);
      if (!schema->BuildContextDependentFunction(context, function, version)) continue;
    } catch (const std::exception &) {
      continue;
    }
    std::vector<onnx::NodeProto> nodes = inline_body(node, *schema, function, version, opset, depth);
    if (!nodes.empty()) return nodes;
  }
  return {};
}

namespace {

// A Constant node of ONNX's own function bodies, whose tensors hold one number; false: of another form.
bool number_of(const onnx::NodeProto &node, ElementType &type, std::vector<int64_t> &dims, double &value) {
  if (node.op_type() != "Constant" || node.attribute_size() != 1) return false;
  const onnx::AttributeProto &a = node.attribute(0);
  if (a.name() == "value_float" || a.name() == "value_int") {
    type = a.name() == "value_int" ? ElementType::kInt64 : ElementType::kFloat32;
    value = a.name() == "value_int" ? static_cast<double>(a.i()) : static_cast<double>(a.f());
    return true;
  }
  if (a.name() == "value_ints" && a.ints_size() == 1) {
    type = ElementType::kInt64;
    dims = {1};
    value = static_cast<double>(a.ints(0));
    return true;
  }
  if (!a.has_t()) return false;
  const onnx::TensorProto &t = a.t();
  int64_t count = 1;
  for (int64_t d : t.dims()) count *= d;
  dims.assign(t.dims().begin(), t.dims().end());
  if (count != 1) return false;
  if (t.float_data_size() == 1) {
    type = ElementType::kFloat32;
    value = static_cast<double>(t.float_data(0));
  } else if (t.double_data_size() == 1) {
    type = ElementType::kFloat64;
    value = t.double_data(0);
  } else if (t.int64_data_size() == 1) {
    type = ElementType::kInt64;
    value = static_cast<double>(t.int64_data(0));
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::vector<onnx::TensorProto> take_constants(std::vector<onnx::NodeProto> &body,
                                              const std::unordered_map<std::string, ElementType> &known) {
  struct Number {
    ElementType type = ElementType::kUndefined;
    std::vector<int64_t> dims;
    double value = 0;
  };
  std::unordered_map<std::string, Number> numbers;
  std::vector<std::string> order;
  std::vector<onnx::NodeProto> rest;
  const auto add = [&](const std::string &name, Number number) {
    numbers.emplace(name, std::move(number));
    order.push_back(name);
  };
  for (onnx::NodeProto &node : body) {
    Number number;
    if (number_of(node, number.type, number.dims, number.value)) {
      add(node.output(0), std::move(number));
      continue;
    }
    if (node.op_type() == "CastLike") {
      const auto from = numbers.find(node.input(0));
      const auto like = known.find(node.input(1));
      if (from != numbers.end() && like != known.end() && is_float(like->second) && is_float(from->second.type)) {
        number = from->second;
        number.type = like->second;
        add(node.output(0), std::move(number));
        continue;
      }
    }
    rest.push_back(std::move(node));
  }
  body = std::move(rest);
  std::vector<onnx::TensorProto> tensors;
  for (const std::string &name : order) {
    const bool used = std::any_of(body.begin(), body.end(), [&](const onnx::NodeProto &node) {
      return std::find(node.input().begin(), node.input().end(), name) != node.input().end();
    });
    if (!used) continue;
    const Number &number = numbers.at(name);
    write_tensor(name, Constant::scalar(number.type, number.value).reshaped(number.dims), tensors.emplace_back());
  }
  return tensors;
}

namespace {

// Operators that ONNX withdrew become those that say them since; what only the older opset says is refused.
Status succeed(Graph &graph, NodeId id, int64_t opset, Diagnostics &diagnostics) {
  const std::string op = graph.node(id).op;
  if (op == "Scatter" && opset >= 11) graph.set_op(id, "ScatterElements");
  if (op == "Upsample" && opset >= 10) {
    const ValueId scales = graph.node(id).input(1);
    graph.set_op(id, "Resize");
    graph.set_input(id, 1, ValueId());
    graph.set_input(id, 2, scales);
    graph.set_attribute(id, "coordinate_transformation_mode", std::string("asymmetric"));
    // It only grows, where what Resize-10 does is rounding down, too.
    graph.set_attribute(id, "nearest_mode", std::string(opset == 10 ? "simple" : "floor"));
  }
  if (op == "Resize" && opset >= 11 && graph.node(id).string_or("nearest_mode", "") == "simple") {
    if (graph.node(id).string_or("mode", "nearest") == "nearest")
      return diagnostics.error(
          ErrorKind::kUnsupported,
          "a nearest Resize of opset 10 rounds down along an axis that grows and up along one that "
          "shrinks, which no later opset says of scales of both kinds, or that the run decides",
          graph.describe(id), "keep it at opset 10");
    graph.remove_attribute(id, "nearest_mode");
  }
  return {};
}

}  // namespace

Status lower_versions(Graph &graph, int64_t opset, Diagnostics &diagnostics) {
  for (NodeId id : graph.all_nodes()) {
    if (!split_op(graph.node(id).op).first.empty()) continue;
    OPTC_TRY(succeed(graph, id, opset, diagnostics));
    int64_t version = kNewestOpset + 1;
    for (const OpDef *def = find_op(graph.node(id).op); def && graph.node(id).alive; def = find_op(graph.node(id).op)) {
      const VersionStep *next = nullptr;
      for (const VersionStep &step : def->steps)
        if (step.version > opset && step.version < version && (!next || step.version > next->version)) next = &step;
      if (!next) break;
      version = next->version;
      // An operator that came with this version needs no step: it is expanded where it is written.
      if (!schema_at("", std::string(def->name), version - 1) && !next->down) continue;
      if (next->down) OPTC_TRY(next->down(graph, id, diagnostics));
    }
  }
  return {};
}

}  // namespace optc
