#include <stdexcept>

#include "importer/internal_converter.h"
#include "importer/internal_order.h"
#include "ops/body.h"

namespace optc {
namespace {

std::map<std::string, int64_t> opsets_of(const onnx::FunctionProto &function,
                                         const std::map<std::string, int64_t> &around) {
  std::map<std::string, int64_t> opsets;
  for (const auto &opset : function.opset_import()) {
    int64_t &version = opsets[normal_domain(opset.domain())];
    version = std::max(version, static_cast<int64_t>(opset.version()));
  }
  opsets.insert(around.begin(), around.end());
  return opsets;
}

std::string function_label(const onnx::FunctionProto &function) {
  return (function.domain().empty() ? "" : function.domain() + ".") + function.name();
}

// A node that optc wrote of an operator that ONNX defines by a function: what ONNX asks of it to build the function.
// Inputs have names only to be there.
onnx::NodeProto as_proto(const Node &node) {
  onnx::NodeProto proto;
  proto.set_op_type(node.op);
  for (size_t i = 0; i < node.inputs.size(); ++i)
    proto.add_input(node.inputs[i].valid() ? "input" + std::to_string(i) : std::string());
  for (size_t i = 0; i < node.outputs.size(); ++i)
    proto.add_output(node.outputs[i].valid() ? "output" + std::to_string(i) : std::string());
  for (const auto &[name, value] : node.attributes) {
    onnx::AttributeProto &attribute = *proto.add_attribute();
    attribute.set_name(name);
    if (const auto *i = std::get_if<int64_t>(&value)) {
      attribute.set_type(onnx::AttributeProto::INT);
      attribute.set_i(*i);
    } else if (const auto *f = std::get_if<float>(&value)) {
      attribute.set_type(onnx::AttributeProto::FLOAT);
      attribute.set_f(*f);
    } else if (const auto *s = std::get_if<std::string>(&value)) {
      attribute.set_type(onnx::AttributeProto::STRING);
      attribute.set_s(*s);
    } else if (const auto *list = std::get_if<std::vector<int64_t>>(&value)) {
      attribute.set_type(onnx::AttributeProto::INTS);
      for (int64_t i : *list) attribute.add_ints(i);
    }
  }
  return proto;
}

// The newest opset whose operators optc's bodies may write.
constexpr int kNewestOpset = 28;

}  // namespace

Result<PassedAttribute> Converter::passed(const onnx::AttributeProto &attribute, const Frame &frame,
                                          const std::string &where) {
  if (attribute.ref_attr_name().empty()) return PassedAttribute{&attribute, frame.direct};
  if (!frame.function)
    return diagnostics_.error(ErrorKind::kInvalid,
                              "attribute '" + attribute.name() + "' refers to '" + attribute.ref_attr_name() +
                                  "', but the node is in no function",
                              where);
  auto it = frame.attributes.find(attribute.ref_attr_name());
  if (it == frame.attributes.end()) return PassedAttribute{};  // the call leaves it out: so does this node
  if (attribute.type() != onnx::AttributeProto::UNDEFINED && it->second.proto->type() != attribute.type())
    return diagnostics_.error(
        ErrorKind::kInvalid,
        "attribute '" + attribute.name() + "' refers to '" + attribute.ref_attr_name() + "', which is of another kind",
        where);
  if (it->second.proto->has_g() || it->second.proto->graphs_size() > 0)
    return diagnostics_.error(ErrorKind::kUnsupported,
                              "a graph passed to a function as attribute '" + attribute.ref_attr_name() + "'", where);
  return it->second;
}

Status Converter::inline_call(const onnx::NodeProto &node, const onnx::FunctionProto &function, Scope &scope,
                              const std::string &where) {
  const Frame &caller = *scope.frame;
  for (const Frame *f = &caller; f; f = f->caller)
    if (f->function == &function)
      return diagnostics_.error(ErrorKind::kInvalid,
                                "function " + function_label(function) + " calls itself" +
                                    (f == &caller ? "" : " through function " + function_label(*caller.function)),
                                where, "ONNX functions must not be recursive");
  if (caller.depth >= kMaxCallDepth)
    return diagnostics_.error(ErrorKind::kUnsupported,
                              "functions call one another more than " + std::to_string(kMaxCallDepth) + " deep", where);
  if (node.input_size() > function.input_size() || node.output_size() > function.output_size())
    return diagnostics_.error(ErrorKind::kInvalid,
                              "function " + function_label(function) + " has " + std::to_string(function.input_size()) +
                                  " inputs and " + std::to_string(function.output_size()) + " outputs; the call has " +
                                  std::to_string(node.input_size()) + " and " + std::to_string(node.output_size()),
                              where);
  const int64_t index = caller.function ? caller.origin : next_index_ - 1;
  Frame &frame = frames_.emplace_back();
  frame.caller = &caller;
  frame.function = &function;
  frame.opsets = opsets_of(function, caller.opsets);
  frame.prefix = caller.prefix + node_label(node, index) + "/";
  frame.direct = caller.direct || is_custom(function);
  frame.origin = index;
  frame.depth = caller.depth + 1;
  for (const auto &attribute : function.attribute_proto())
    frame.attributes[attribute.name()] = {&attribute, frame.direct};
  std::unordered_set<std::string> known(function.attribute().begin(), function.attribute().end());
  for (const auto &attribute : function.attribute_proto()) known.insert(attribute.name());
  for (const auto &attribute : node.attribute()) {
    if (!known.count(attribute.name()))
      return diagnostics_.error(ErrorKind::kInvalid,
                                "function " + function_label(function) + " has no attribute '" + attribute.name() + "'",
                                where);
    OPTC_ASSIGN(const PassedAttribute value, passed(attribute, caller, where));
    if (value.proto) frame.attributes[attribute.name()] = value;
  }
  Scope inner;
  inner.frame = &frame;
  inner.region = scope.region;
  inner.before = scope.before;
  inner.depth = scope.depth;
  for (int i = 0; i < function.input_size(); ++i) {
    ValueId value;
    if (i < node.input_size()) {
      OPTC_ASSIGN(value, resolve(scope, node.input(i), where));
    }
    OPTC_TRY(define(inner, function.input(i), value, "function " + function_label(function)));
  }
  for (int i = 0; i < node.output_size(); ++i)
    if (!node.output(i).empty()) inner.renamed[function.output(i)] = value_name(scope, node.output(i));
  OPTC_TRY(convert_nodes(function.node(), inner));
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    auto it = inner.values.find(function.output(i));
    if (it == inner.values.end())
      return diagnostics_.error(
          ErrorKind::kInvalid,
          "output '" + function.output(i) + "' of function " + function_label(function) + " has no producer", where);
    OPTC_TRY(define(scope, node.output(i), it->second, where));
  }
  return {};
}

Status Converter::expand(NodeId id, const NodeSource &node_source) {
  const onnx::NodeProto &proto = *node_source.proto;
  const onnx::OpSchema *schema = node_source.schema;
  const std::string where = graph_.describe(id);
  const onnx::FunctionProto *function = nullptr;
  if (schema) {
    try {
      // Not asking whether what it is written in is still the same at the model's opset: it names its own.
      function = schema->GetFunction(static_cast<int>(node_source.version), false);
      if (!function && schema->HasContextDependentFunction()) {
        std::vector<onnx::TypeProto> types;
        for (size_t i = 0; i < static_cast<size_t>(proto.input_size()); ++i) {
          onnx::TypeProto &type = types.emplace_back();
          const ValueId value = graph_.node(id).input(i);
          if (value.valid() && !to_type_proto(graph_.value(value).type, type)) type.Clear();
        }
        onnx::FunctionProto &built = built_.emplace_back();
        const onnx::FunctionBodyBuildContextImpl context(proto, types);
        if (schema->BuildContextDependentFunction(context, built, static_cast<int>(node_source.version)))
          function = &built;
      }
    } catch (const std::exception &) {
      function = nullptr;
    }
  }
  if (!function)
    return diagnostics_.error(ErrorKind::kUnsupported,
                              "the operator has no implementation, and no function body for these inputs", where);
  const Frame &caller = *node_source.frame;
  if (caller.depth >= kMaxCallDepth)
    return diagnostics_.error(ErrorKind::kUnsupported,
                              "functions nest more than " + std::to_string(kMaxCallDepth) + " deep", where);
  Frame &frame = frames_.emplace_back();
  frame.caller = &caller;
  frame.function = function;
  frame.opsets = opsets_of(*function, caller.opsets);
  frame.prefix = graph_.node(id).name + "/";
  frame.direct = true;
  frame.origin = graph_.origins()[graph_.node(id).origin.front()].index;
  frame.depth = caller.depth + 1;
  for (const auto &[name, attribute] : schema->attributes())
    if (attribute.default_value.type() != onnx::AttributeProto::UNDEFINED)
      frame.attributes[name] = {&attribute.default_value, true};
  for (const auto &attribute : proto.attribute()) frame.attributes[attribute.name()] = {&attribute, caller.direct};

  Scope inner;
  inner.frame = &frame;
  inner.region = graph_.node(id).region;
  inner.before = id;
  std::vector<ValueId> arguments;
  for (int i = 0; i < function->input_size(); ++i) {
    const ValueId value = graph_.node(id).input(static_cast<size_t>(i));
    if (value.valid()) arguments.push_back(value);
    OPTC_TRY(define(inner, function->input(i), value, where));
  }
  OPTC_TRY(convert_nodes(function->node(), inner));

  std::vector<ValueId> results;
  for (size_t i = 0; i < graph_.node(id).outputs.size(); ++i) {
    auto it = i < static_cast<size_t>(function->output_size())
                  ? inner.values.find(function->output(static_cast<int>(i)))
                  : inner.values.end();
    results.push_back(it == inner.values.end() ? ValueId() : it->second);
    if (graph_.node(id).outputs[i].valid() && !results.back().valid())
      return diagnostics_.error(ErrorKind::kInternal, "the function body does not give output " + std::to_string(i),
                                where);
  }
  replace_node(id, results, arguments);
  return {};
}

Status Converter::write_body(NodeId id, const NodeSource &node_source) {
  const std::vector<ValueId> arguments = graph_.node(id).inputs;
  const size_t first = graph_.node_capacity();
  // A body may ask what the model declares of the results.
  for (const ValueId output : graph_.node(id).outputs) {
    const auto declared = output.valid() ? declared_.find(output.index) : declared_.end();
    if (declared == declared_.end() || graph_.value(output).type.has_shape()) continue;
    Diagnostics unread;
    if (Result<Type> type = namer_.inner_type(*declared->second, graph_.value(output).name, unread); type.ok())
      graph_.set_type(output, *std::move(type));
  }
  OPTC_ASSIGN(const std::vector<ValueId> results, Body::write(graph_, id, *find_op(graph_.node(id).op), diagnostics_));
  // What was written is checked as if it had been read from a file, at the versions that optc's operators have.
  for (size_t k = first; k < graph_.node_capacity(); ++k) {
    const NodeId n(k);
    if (!graph_.node(n).alive) continue;
    const OpDef *def = find_op(graph_.node(n).op);
    NodeSource source;
    source.frame = node_source.frame;
    if (def) {
      source.version = def->version;
      source.schema = current_schema(def->name, def->version);
    } else {
      source.schema = current_schema(graph_.node(n).op, kNewestOpset);
      source.version = source.schema ? source.schema->since_version() : 1;
      source.proto = &resolved_.emplace_back(as_proto(graph_.node(n)));
    }
    sources_.emplace(n.index, source);
  }
  replace_node(id, results, arguments);
  return {};
}

// The node's outputs become `results`, under the outputs' names. `arguments`: values with a name of their own to keep.
void Converter::replace_node(NodeId id, const std::vector<ValueId> &results, const std::vector<ValueId> &arguments) {
  std::vector<std::pair<ValueId, std::string>> renames;
  const std::vector<ValueId> outputs = graph_.node(id).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid()) continue;
    ValueId value = results[i];
    bool taken = graph_.is_constant(value);  // an argument, or an output given before: it keeps its own name
    for (ValueId a : arguments) taken |= a == value;
    for (const auto &[v, other] : renames) taken |= v == value;
    if (taken) {
      const std::string name = graph_.unique_name(graph_.node(id).name + "/output");
      const NodeId copy = graph_.add_node(graph_.node(id).region, "Identity", name, {value}, {{name, Type()}}, {}, id);
      graph_.set_origin(copy, graph_.node(id).origin);
      value = graph_.node(copy).outputs[0];
    }
    graph_.replace_uses(outputs[i], value);
    auto declared = declared_.find(outputs[i].index);
    if (declared != declared_.end()) declared_.emplace(value.index, declared->second);
    renames.emplace_back(value, graph_.value(outputs[i]).name);
  }
  graph_.erase_node(id);
  for (auto &[value, other] : renames) graph_.rename_value(value, std::move(other));
}

}  // namespace optc
