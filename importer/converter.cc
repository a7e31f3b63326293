#include <algorithm>

#include "importer/internal_converter.h"
#include "importer/internal_order.h"
#include "ops/extern.h"
#include "ops/util.h"

namespace optc {
namespace {

constexpr int kMaxRegionDepth = 16;

std::string describe(const onnx::NodeProto &node, int64_t index) {
  return "node '" + node_label(node, index) + "' (" + node.op_type() + " #" + std::to_string(index) + ")";
}

bool is_list(const onnx::AttributeProto &attribute) {
  return attribute.type() == onnx::AttributeProto::GRAPHS || attribute.type() == onnx::AttributeProto::TENSORS ||
         attribute.type() == onnx::AttributeProto::TYPE_PROTOS;
}

// The items of a list, each as an attribute of its own.
void items_of(const onnx::AttributeProto &list, std::deque<onnx::AttributeProto> &items) {
  const auto item = [&](onnx::AttributeProto::AttributeType type) -> onnx::AttributeProto & {
    onnx::AttributeProto &one = items.emplace_back();
    one.set_name(list.name());
    one.set_type(type);
    return one;
  };
  for (const auto &graph : list.graphs()) *item(onnx::AttributeProto::GRAPH).mutable_g() = graph;
  for (const auto &tensor : list.tensors()) *item(onnx::AttributeProto::TENSOR).mutable_t() = tensor;
  for (const auto &type : list.type_protos()) *item(onnx::AttributeProto::TYPE_PROTO).mutable_tp() = type;
}

// A graph that optc's own body of the node will place somewhere: until then what it declares is all that is known of
// its inputs, and a dim that is no number is a size of its own.
void declare_ranks(Graph &graph, RegionId region, const onnx::GraphProto &proto) {
  const std::vector<ValueId> inputs = graph.region(region).inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto &declared = proto.input(static_cast<int>(i)).type().tensor_type();
    Type type = graph.value(inputs[i]).type;
    if (!type.is_tensor() || type.has_shape() || !declared.has_shape()) continue;
    type.shape.emplace();
    for (const auto &dim : declared.shape().dim()) {
      const size_t axis = type.shape->size();
      type.shape->push_back(
          dim.has_dim_value() && dim.dim_value() >= 0
              ? Dim(dim.dim_value())
              : graph.dims()->new_symbol(SymbolKind::kData, size_name(graph.value(inputs[i]).name, axis)));
    }
    graph.set_type(inputs[i], std::move(type));
  }
}

}  // namespace

Converter::Converter(const onnx::ModelProto &model, const TensorSource &source, const ImportOptions &options,
                     Reading reading, Diagnostics &diagnostics)
    : model_(model),
      source_(source),
      options_(options),
      reading_(reading),
      diagnostics_(diagnostics),
      namer_(*graph_.dims(), options) {
  direct_source_.external = nullptr;
  frames_.emplace_back();
}

Result<Graph> Converter::run() {
  OPTC_TRY(check_model());
  OPTC_TRY(read_custom_ops());
  OPTC_TRY(check_size());
  if (reading_ == Reading::kAsWritten) {
    OPTC_TRY(convert_main());
    declare_types();
    return std::move(graph_);
  }
  OPTC_TRY(list_unsupported());
  OPTC_TRY(convert_main());
  OPTC_TRY(check_externs());
  OPTC_TRY(finish_region(Graph::main(), true));
  OPTC_TRY(check_outputs());
  return std::move(graph_);
}

Status Converter::convert_main() {
  ModelInfo &info = graph_.info();
  info.name = model_.graph().name();
  info.producer = model_.producer_name();
  info.producer_version = model_.producer_version();
  info.domain = model_.domain();
  info.doc = model_.doc_string();
  info.ir_version = model_.ir_version();
  info.model_version = model_.model_version();
  for (const auto &opset : model_.opset_import())
    info.opset_imports.emplace_back(normal_domain(opset.domain()), opset.version());
  for (const auto &entry : model_.metadata_props()) info.metadata.emplace_back(entry.key(), entry.value());

  const onnx::GraphProto &graph = model_.graph();
  Scope scope;
  scope.frame = &frames_.front();
  scope.region = Graph::main();
  for (const auto &input : graph.input()) main_names_.insert(input.name());
  for (const auto &tensor : graph.initializer()) main_names_.insert(tensor.name());
  for (const auto &tensor : graph.sparse_initializer()) main_names_.insert(tensor.values().name());
  for (const auto &node : graph.node()) main_names_.insert(node.output().begin(), node.output().end());

  // Before IR 4 every initializer had to be listed as an input, and could not be overridden: those are constants.
  std::unordered_set<std::string> initialized;
  for (const auto &tensor : graph.initializer()) initialized.insert(tensor.name());
  for (const auto &tensor : graph.sparse_initializer()) initialized.insert(tensor.values().name());
  const bool fixed = model_.ir_version() < 4 || options_.constant_defaults;
  for (const auto &input : graph.input())
    if (!(fixed && initialized.count(input.name()))) namer_.note_plain_names(input.type());
  for (const auto &input : graph.input()) {
    if (fixed && initialized.count(input.name())) continue;
    if (input.name().empty()) return diagnostics_.error(ErrorKind::kInvalid, "an input of the graph has no name");
    OPTC_ASSIGN(Type type, main_input_type(input));
    OPTC_TRY(define(scope, input.name(), graph_.add_input(Graph::main(), input.name(), std::move(type)),
                    "the graph's inputs"));
  }
  OPTC_TRY(namer_.check_pins(diagnostics_));
  OPTC_TRY(convert_initializers(graph, scope));
  if (reading_ == Reading::kCompile) warn_of_defaults();
  OPTC_TRY(convert_nodes(graph.node(), scope));

  auto declare = [&](const onnx::ValueInfoProto &value) {
    auto it = scope.values.find(value.name());
    if (it != scope.values.end() && it->second.valid() && value.has_type())
      declared_.emplace(it->second.index, &value.type());
  };
  for (const auto &value : graph.value_info()) declare(value);
  std::vector<ValueId> outputs;
  if (graph.output_size() == 0) return diagnostics_.error(ErrorKind::kInvalid, "the graph has no outputs");
  for (const auto &output : graph.output()) {  // one may be listed again: a module returned it twice
    auto it = scope.values.find(output.name());
    if (output.name().empty() || it == scope.values.end() || !it->second.valid())
      return diagnostics_.error(ErrorKind::kInvalid, "graph output '" + output.name() + "' has no producer", {},
                                "no node, initializer or input of the graph has this name");
    ValueId value = it->second;
    if (graph_.value(value).name != output.name()) {  // an argument that a function gives back
      const uint32_t origin = graph_.add_origin({output.name(), "Identity", next_index_++});
      const NodeId node =
          graph_.add_node(Graph::main(), "Identity", output.name(), {value}, {{output.name(), Type()}}, {});
      graph_.set_origin(node, {origin});
      value = graph_.node(node).outputs[0];
    }
    if (output.has_type()) declared_[value.index] = &output.type();
    outputs.push_back(value);
  }
  graph_.set_outputs(Graph::main(), std::move(outputs));
  return {};
}

void Converter::warn_of_defaults() {
  const std::vector<ValueId> &inputs = graph_.region(Graph::main()).inputs;
  std::string names;
  size_t count = 0;
  for (size_t i = 0; i < inputs.size() && i < graph_.defaults().size(); ++i) {
    if (!graph_.defaults()[i].valid()) continue;
    constexpr size_t kNamed = 3;
    if (count < kNamed) names += (count ? ", '" : "'") + graph_.value(inputs[i]).name + "'";
    if (count++ == kNamed) names += ", ...";
  }
  if (count == 0) return;
  const bool one = count == 1;
  diagnostics_.warning(std::to_string(count) + (one ? " input has a default" : " inputs have defaults") +
                       " that callers may replace (" + names + "), so " + (one ? "it is" : "they are") +
                       " not folded: --constant-defaults makes " + (one ? "it a constant" : "them constants"));
}

Result<Type> Converter::main_input_type(const onnx::ValueInfoProto &input) {
  if (reading_ == Reading::kCompile) return namer_.input_type(input.type(), input.name(), diagnostics_);
  Diagnostics unread;  // a type that a Graph cannot hold is left open
  Result<Type> type = namer_.input_type(input.type(), input.name(), unread);
  return type.ok() ? std::move(type) : Type();
}

// Of a Graph that is read as written: the types that the file declares, and no others.
void Converter::declare_types() {
  for (size_t i = 0; i < graph_.value_capacity(); ++i) {
    const auto declared = declared_.find(static_cast<uint32_t>(i));
    if (declared == declared_.end() || graph_.value(ValueId(i)).kind != ValueKind::kNodeOutput) continue;
    Diagnostics unread;
    // Any name of a dim will do, as in an input's type: nothing is computed of it.
    Result<Type> type = namer_.input_type(*declared->second, graph_.value(ValueId(i)).name, unread);
    if (type.ok()) graph_.set_type(ValueId(i), *std::move(type));
  }
}

Status Converter::define(Scope &scope, const std::string &name, ValueId value, const std::string &where) {
  if (!scope.values.emplace(name, value).second)
    return diagnostics_.error(ErrorKind::kInvalid, "the name '" + name + "' is defined twice", where,
                              "every value of a graph needs a name of its own");
  return {};
}

Result<ValueId> Converter::resolve(const Scope &scope, const std::string &name, const std::string &where) {
  if (name.empty()) return ValueId();
  for (const Scope *s = &scope; s; s = s->parent) {
    auto it = s->values.find(name);
    if (it != s->values.end()) return it->second;
  }
  return diagnostics_.error(ErrorKind::kInvalid, "input '" + name + "' is not defined", where,
                            "no node, initializer or input before it has this name");
}

std::string Converter::value_name(const Scope &scope, const std::string &name) {
  if (scope.parent == nullptr && scope.frame->function == nullptr) return name;
  auto it = scope.renamed.find(name);
  if (it != scope.renamed.end()) return it->second;
  std::string full = scope.frame->prefix + name;
  if (main_names_.count(full)) full += "_inner";  // names of the main graph stay as they are, whatever comes first
  return full;
}

Status Converter::convert_initializers(const onnx::GraphProto &graph, Scope &scope) {
  auto place = [&](const std::string &name, Constant constant) -> Status {
    auto it = scope.values.find(name);
    if (it == scope.values.end()) {
      const ValueId id = graph_.add_constant(value_name(scope, name), std::move(constant), scope.region);
      return define(scope, name, id, "the graph's initializers");
    }
    const Value &value = graph_.value(it->second);
    if (value.kind != ValueKind::kRegionInput || scope.region != Graph::main() ||
        graph_.defaults()[value.index].valid())
      return diagnostics_.error(ErrorKind::kInvalid, "initializer '" + name + "' is defined twice");
    // The default of an input: it must fit the declared type.
    const bool fits = value.type.is_tensor() && value.type.element == constant.type() &&
                      (!value.type.shape || value.type.shape->size() == constant.dims().size());
    bool same = fits;
    if (fits && value.type.shape)
      for (size_t i = 0; i < constant.dims().size(); ++i)
        same = same && (!(*value.type.shape)[i].is_constant() || (*value.type.shape)[i].is(constant.dims()[i]));
    if (!same)
      return diagnostics_.error(ErrorKind::kInvalid, "initializer '" + name + "' is " +
                                                         to_string(Type::tensor(constant.type(), constant.shape())) +
                                                         ", but the input of that name is " + to_string(value.type));
    if (!value.type.shape) graph_.set_type(it->second, Type::tensor(constant.type(), constant.shape()));
    graph_.set_default(value.index, std::move(constant));
    return {};
  };
  for (const auto &tensor : graph.initializer()) {
    const std::string what = "initializer '" + tensor.name() + "'";
    if (tensor.name().empty()) return diagnostics_.error(ErrorKind::kInvalid, "an initializer has no name");
    OPTC_ASSIGN(Constant constant, convert_tensor(tensor, source(scope.frame->direct), what, diagnostics_));
    OPTC_TRY(place(tensor.name(), std::move(constant)));
  }
  for (const auto &tensor : graph.sparse_initializer()) {
    const std::string &name = tensor.values().name();
    if (name.empty()) return diagnostics_.error(ErrorKind::kInvalid, "a sparse initializer has no name");
    OPTC_ASSIGN(Constant constant,
                convert_sparse(tensor, source(scope.frame->direct), "sparse initializer '" + name + "'", diagnostics_));
    OPTC_TRY(place(name, std::move(constant)));
  }
  return {};
}

// No output has the name of an input, an initializer or another output: said before the order of the nodes is looked
// for, since such a name can look like a cycle.
Status Converter::check_names(const NodeList &nodes, const Scope &scope) {
  std::unordered_map<std::string_view, int> producers;
  const auto place = [&](int i) {
    return "node '" + node_label(nodes.Get(i), i) + "' (" + nodes.Get(i).op_type() + ")";
  };
  for (int i = 0; i < nodes.size(); ++i) {
    for (const std::string &name : nodes.Get(i).output()) {
      if (name.empty()) continue;
      const auto known = scope.values.find(name);
      const auto [other, is_new] = producers.emplace(name, i);
      if (is_new && known == scope.values.end()) continue;
      Diagnostic d;
      d.kind = ErrorKind::kInvalid;
      d.message = "the name '" + name + "' is defined twice";
      if (is_new) {
        const bool constant = known->second.valid() && graph_.value(known->second).kind == ValueKind::kConstant;
        d.places.push_back((constant ? "initializer '" : "input '") + name + "'");
      } else {
        d.places.push_back(place(other->second));
      }
      d.places.push_back(place(i));
      d.help = "every value of a graph needs a name of its own";
      return diagnostics_.add(std::move(d));
    }
  }
  return {};
}

Status Converter::convert_nodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes, Scope &scope) {
  OPTC_TRY(check_names(nodes, scope));
  OPTC_ASSIGN(const std::vector<int> order, node_order(nodes, diagnostics_));
  for (int i : order) OPTC_TRY(convert_node(nodes.Get(i), scope));
  return {};
}

// A loop's number and its condition as lists: of one element, whatever name their dim has.
void Converter::declare_lists(const onnx::GraphProto &body, RegionId region) {
  const std::vector<ValueId> inputs = graph_.region(region).inputs;
  for (size_t i = 0; i < std::min<size_t>(2, inputs.size()); ++i) {
    const auto &declared = body.input(static_cast<int>(i)).type().tensor_type();
    if (!declared.has_shape() || declared.shape().dim_size() != 1 || declared.shape().dim(0).has_dim_value()) continue;
    graph_.set_type(inputs[i], Type::tensor(graph_.value(inputs[i]).type.element, Shape{1}));
  }
}

Status Converter::convert_region(const onnx::GraphProto &graph, RegionId region, const Scope &parent) {
  if (parent.depth >= kMaxRegionDepth)
    return diagnostics_.error(ErrorKind::kUnsupported,
                              "graphs nest more than " + std::to_string(kMaxRegionDepth) + " deep");
  Scope scope;
  scope.parent = &parent;
  scope.frame = parent.frame;
  scope.region = region;
  scope.depth = parent.depth + 1;
  for (const auto &input : graph.input()) {
    if (input.name().empty()) return diagnostics_.error(ErrorKind::kInvalid, "an input of a subgraph has no name");
    Type type;
    if (input.has_type() && input.type().value_case() != onnx::TypeProto::VALUE_NOT_SET) {
      Diagnostics unread;
      Result<Type> declared =
          namer_.inner_type(input.type(), input.name(), reading_ == Reading::kCompile ? diagnostics_ : unread);
      if (declared.ok())
        type = *std::move(declared);
      else if (reading_ == Reading::kCompile)
        return declared.failure();
    }
    const ValueId id = graph_.add_input(region, value_name(scope, input.name()), std::move(type));
    OPTC_TRY(define(scope, input.name(), id, "the inputs of a subgraph"));
  }
  OPTC_TRY(convert_initializers(graph, scope));
  OPTC_TRY(convert_nodes(graph.node(), scope));
  for (const auto &value : graph.value_info()) {
    auto it = scope.values.find(value.name());
    if (it != scope.values.end() && it->second.valid() && value.has_type())
      declared_.emplace(it->second.index, &value.type());
  }
  std::vector<ValueId> outputs;
  for (const auto &output : graph.output()) {
    OPTC_ASSIGN(const ValueId value, resolve(scope, output.name(), "the outputs of a subgraph"));
    if (!value.valid())
      return diagnostics_.error(ErrorKind::kInvalid, "output '" + output.name() + "' of a subgraph has no producer");
    outputs.push_back(value);
  }
  graph_.set_outputs(region, std::move(outputs));
  return {};
}

Status Converter::convert_node(const onnx::NodeProto &node, Scope &scope) {
  const Frame &frame = *scope.frame;
  const int64_t index = frame.function ? frame.origin : next_index_++;
  const std::string where = describe(node, index);
  if (static_cast<int64_t>(graph_.node_capacity()) >= options_.max_nodes)
    return diagnostics_.error(ErrorKind::kUnsupported, "more than " + std::to_string(options_.max_nodes) + " nodes",
                              where,
                              "functions that call one another many times grow without bound when they are inlined");
  if (node.op_type().empty()) return diagnostics_.error(ErrorKind::kInvalid, "a node has no operator", where);
  if (const onnx::FunctionProto *function = local_function(node)) return inline_call(node, *function, scope, where);
  const bool compile = reading_ == Reading::kCompile;

  const std::string domain = normal_domain(node.domain());
  auto opset = frame.opsets.find(domain);
  if (opset == frame.opsets.end() && compile)
    return diagnostics_.error(ErrorKind::kInvalid,
                              "the domain '" + (domain.empty() ? "ai.onnx" : domain) + "' is not imported", where);

  // Attributes: references to a function's arguments are replaced by what the call passes.
  std::vector<std::pair<std::string, Attribute>> attributes;
  std::vector<std::pair<std::string, const onnx::GraphProto *>> graphs;
  std::vector<PassedAttribute> given;
  const onnx::NodeProto *effective = &node;
  bool references = false;
  for (const auto &attribute : node.attribute()) {
    references |= !attribute.ref_attr_name().empty();
    OPTC_ASSIGN(const PassedAttribute value, passed(attribute, frame, where));
    given.push_back(value);
  }
  if (references) {
    onnx::NodeProto &copy = resolved_.emplace_back(node);
    copy.clear_attribute();
    for (int i = 0; i < node.attribute_size(); ++i)
      if (given[static_cast<size_t>(i)].proto) {
        auto *attribute = copy.add_attribute();
        *attribute = *given[static_cast<size_t>(i)].proto;
        attribute->set_name(node.attribute(i).name());
      }
    effective = &copy;
  }
  NodeSource node_source;
  node_source.proto = effective;
  node_source.frame = &frame;
  node_source.version = version_of(node.op_type(), opset == frame.opsets.end() ? 0 : opset->second, domain);
  const ExternOperator *external = compile ? extern_of(node) : nullptr;
  node_source.schema = external ? nullptr : find_schema(node.op_type(), node_source.version, domain);
  if (external) {
    const std::string text = external->domain + "::" + external->name;
    used_externs_.insert(text);
    attributes.emplace_back(kExternOperator, text);
  }
  if (compile && node_source.schema) OPTC_TRY(check_schema(*effective, *node_source.schema, where));
  if (domain.empty() && node.op_type() == "Constant") {
    const bool direct =
        std::any_of(given.begin(), given.end(), [](const PassedAttribute &a) { return a.proto && a.direct; });
    return convert_constant(*effective, direct, scope, where);
  }

  for (int i = 0; i < node.attribute_size(); ++i) {
    const PassedAttribute &value = given[static_cast<size_t>(i)];
    if (!value.proto) continue;
    const auto take = [&](const std::string &name, const onnx::AttributeProto &attribute) -> Status {
      if (attribute.type() == onnx::AttributeProto::GRAPH) {
        graphs.emplace_back(name, &attribute.g());
        return {};
      }
      OPTC_ASSIGN(Attribute converted, convert_attribute(attribute, value.direct, where));
      for (const auto &[other, unused] : attributes)
        if (other == name)
          return diagnostics_.error(ErrorKind::kInvalid, "attribute '" + name + "' appears twice", where);
      attributes.emplace_back(name, std::move(converted));
      return {};
    };
    const std::string &name = node.attribute(i).name();
    if (compile || !is_list(*value.proto)) {
      OPTC_TRY(take(name, *value.proto));
      continue;
    }
    const size_t first = items_.size();
    items_of(*value.proto, items_);
    const size_t end = items_.size();  // bodies of graphs add their own behind
    for (size_t k = first; k < end; ++k) OPTC_TRY(take(name + "[" + std::to_string(k - first) + "]", items_[k]));
  }
  std::vector<ValueId> inputs;
  for (const auto &input : node.input()) {
    OPTC_ASSIGN(const ValueId value, resolve(scope, input, where));
    inputs.push_back(value);
  }
  for (const std::string &name : names_in_attributes(*effective)) {
    if (!compile) break;
    OPTC_ASSIGN(const ValueId value, resolve(scope, name, where));
    inputs.push_back(value);
  }
  if (compile && node_source.schema) OPTC_TRY(check_required(*node_source.schema, inputs, where));
  std::vector<std::pair<std::string, Type>> outputs;
  for (const auto &output : node.output())
    outputs.emplace_back(output.empty() ? "" : value_name(scope, output), Type());
  if (compile && std::all_of(outputs.begin(), outputs.end(), [](const auto &o) { return o.first.empty(); }))
    return diagnostics_.error(ErrorKind::kInvalid, "the node has no outputs", where);

  const std::string label = frame.prefix + node_label(node, index);
  const NodeId id = graph_.add_node(scope.region, external ? "optc.Extern" : op_name(domain, node.op_type()), label,
                                    std::move(inputs), std::move(outputs), std::move(attributes), scope.before);
  graph_.set_origin(id, {graph_.add_origin({label, op_name(domain, node.op_type()), index})});
  for (const auto &[name, graph] : graphs) {
    const RegionId region = graph_.add_region(id);
    OPTC_TRY(convert_region(*graph, region, scope));
    if (node.op_type() == "Loop" && domain.empty()) declare_lists(*graph, region);
    if (const OpDef *def = find_op(graph_.node(id).op); compile && def && def->body)
      declare_ranks(graph_, region, *graph);
    graph_.attach_region(id, name, region);
  }
  for (int i = 0; i < node.output_size(); ++i)
    if (!node.output(i).empty())
      OPTC_TRY(define(scope, node.output(i), graph_.node(id).outputs[static_cast<size_t>(i)], where));
  if (compile)
    sources_.emplace(id.index, node_source);
  else if (node_source.schema)
    fill_defaults(id, *node_source.schema);
  return {};
}

// A function's absent argument may leave out what the operator needs.
Status Converter::check_required(const onnx::OpSchema &schema, const std::vector<ValueId> &inputs,
                                 const std::string &where) {
  const auto &formals = schema.inputs();
  for (size_t i = 0; i < inputs.size() && !formals.empty(); ++i) {
    const auto &formal = formals[std::min(i, formals.size() - 1)];
    if (!inputs[i].valid() && formal.GetOption() != onnx::OpSchema::Optional)
      return diagnostics_.error(ErrorKind::kInvalid,
                                "input " + std::to_string(i) + " (" + formal.GetName() + ") is required, but absent",
                                where);
  }
  return {};
}

Status Converter::convert_constant(const onnx::NodeProto &node, bool direct, Scope &scope, const std::string &where) {
  if (node.attribute_size() != 1 || node.output_size() != 1 || node.output(0).empty())
    return diagnostics_.error(ErrorKind::kInvalid, "a Constant has one value and one output", where);
  const onnx::AttributeProto &value = node.attribute(0);
  const TensorSource &tensors = source(direct);
  const std::string what = "attribute '" + value.name() + "' of " + where;
  Constant constant;
  switch (value.type()) {
    case onnx::AttributeProto::TENSOR: {
      OPTC_ASSIGN(constant, convert_tensor(value.t(), tensors, what, diagnostics_));
      break;
    }
    case onnx::AttributeProto::SPARSE_TENSOR: {
      OPTC_ASSIGN(constant, convert_sparse(value.sparse_tensor(), tensors, what, diagnostics_));
      break;
    }
    case onnx::AttributeProto::INT:
      constant = Constant::scalar_int64(value.i());
      break;
    case onnx::AttributeProto::INTS:
      constant = Constant::int64s({value.ints().begin(), value.ints().end()});
      break;
    case onnx::AttributeProto::FLOAT:
      constant = Constant::floats({value.f()}).reshaped({});
      break;
    case onnx::AttributeProto::FLOATS:
      constant = Constant::floats({value.floats().begin(), value.floats().end()});
      break;
    case onnx::AttributeProto::STRING:
      constant = Constant::strings({}, {value.s()});
      break;
    case onnx::AttributeProto::STRINGS:
      constant = Constant::strings({value.strings_size()}, {value.strings().begin(), value.strings().end()});
      break;
    default:
      return diagnostics_.error(ErrorKind::kInvalid, what + " is no value", where);
  }
  const ValueId id = graph_.add_constant(value_name(scope, node.output(0)), std::move(constant), scope.region);
  return define(scope, node.output(0), id, where);
}

Result<Attribute> Converter::convert_attribute(const onnx::AttributeProto &attribute, bool direct,
                                               const std::string &where) {
  switch (attribute.type()) {
    case onnx::AttributeProto::INT:
      return Attribute(static_cast<int64_t>(attribute.i()));
    case onnx::AttributeProto::FLOAT:
      return Attribute(attribute.f());
    case onnx::AttributeProto::STRING:
      return Attribute(attribute.s());
    case onnx::AttributeProto::INTS:
      return Attribute(std::vector<int64_t>(attribute.ints().begin(), attribute.ints().end()));
    case onnx::AttributeProto::FLOATS:
      return Attribute(std::vector<float>(attribute.floats().begin(), attribute.floats().end()));
    case onnx::AttributeProto::STRINGS:
      return Attribute(std::vector<std::string>(attribute.strings().begin(), attribute.strings().end()));
    case onnx::AttributeProto::TENSOR: {
      OPTC_ASSIGN(Constant constant, convert_tensor(attribute.t(), source(direct),
                                                    "attribute '" + attribute.name() + "' of " + where, diagnostics_));
      return Attribute(std::move(constant));
    }
    case onnx::AttributeProto::SPARSE_TENSOR:
      if (reading_ == Reading::kAsWritten) {
        OPTC_ASSIGN(Constant constant,
                    convert_sparse(attribute.sparse_tensor(), source(direct),
                                   "attribute '" + attribute.name() + "' of " + where, diagnostics_));
        return Attribute(std::move(constant));
      }
      break;
    case onnx::AttributeProto::TYPE_PROTO: {
      OPTC_ASSIGN(Type type, namer_.inner_type(attribute.tp(), attribute.name(), diagnostics_));
      return Attribute(std::move(type));
    }
    default:
      break;
  }
  const bool known = attribute.type() != onnx::AttributeProto::UNDEFINED;
  return diagnostics_.error(
      known ? ErrorKind::kUnsupported : ErrorKind::kInvalid,
      "attribute '" + attribute.name() + "' " +
          (known ? "is of kind " + onnx::AttributeProto::AttributeType_Name(attribute.type()) : "has no type"),
      where);
}

}  // namespace optc
