#include <algorithm>

#include "importer/internal_converter.h"
#include "ops/body.h"
#include "ops/util.h"

namespace optc {
namespace {

// Whether a region, nested ones included, makes a value whose type is not known.
bool has_unknown_rank(const Graph &graph, RegionId region) {
  for (NodeId id : graph.nodes(region)) {
    for (ValueId v : graph.node(id).outputs) {
      if (!v.valid()) continue;
      const Type &type = graph.value(v).type;
      if (type.kind == Type::Kind::kNone || (type.is_tensor() && !type.shape)) return true;
    }
    for (const auto &[name, inner] : graph.node(id).regions)
      if (has_unknown_rank(graph, inner)) return true;
  }
  return false;
}

}  // namespace

// Every node of the region in order, nested regions first. Not strict: the region is the body of a node whose own
// inference will set the final types (and report what is wrong); here they only serve the checks and function bodies
// inside it, so failures are ignored.
Status Converter::finish_region(RegionId region, bool strict) {
  NodeId done;
  for (;;) {
    const NodeId id = done.valid() ? graph_.node(done).next : graph_.region(region).first;
    if (!id.valid()) return close_forms(region, strict);
    if (forms_.count(graph_.node(id).output(0).index)) {  // its holder
      done = id;
      continue;
    }
    OPTC_ASSIGN(const bool written, write_of_forms(id));
    if (written) continue;
    auto it = sources_.find(id.index);
    if (it != sources_.end()) {
      const NodeSource node_source = it->second;
      sources_.erase(it);
      OPTC_TRY(finish_node(id, node_source));
      continue;  // what the step put before the node, and then the node itself
    }
    if (graph_.node(id).op == "Squeeze") name_squeezed_axes(id);
    if (graph_.node(id).op == "GatherND" && name_gathered_depth(id)) continue;  // what it put before the node first
    OPTC_TRY(free_unread_carried(id));
    if (graph_.node(id).op == "optc.Extern") OPTC_TRY(type_extern(id));
    if (strict) {
      OPTC_TRY(infer_node(graph_, id, diagnostics_));
      if (align_branches(id)) OPTC_TRY(infer_node(graph_, id, diagnostics_));
      if (split_branches(id)) continue;
    } else {
      bool known = true;  // an operator is not asked what comes of operands without types
      const auto check = [&](ValueId v) {
        if (!v.valid()) return;
        const Type &type = graph_.value(v).type;
        known =
            known && type.kind != Type::Kind::kNone && !(type.is_tensor() && type.element == ElementType::kUndefined);
      };
      for (ValueId v : graph_.node(id).inputs) check(v);
      for (const auto &[name, inner] : graph_.node(id).regions)
        for (ValueId v : graph_.captures(inner)) check(v);
      Diagnostics scratch;
      if (known) (void)infer_node(graph_, id, scratch, nullptr, InferMode::kTentative).ok();
      if (known && align_branches(id)) (void)infer_node(graph_, id, scratch, nullptr, InferMode::kTentative).ok();
      if (known && split_branches(id)) continue;
    }
    const std::vector<ValueId> outputs = graph_.node(id).outputs;
    for (ValueId output : outputs) {
      if (!output.valid()) continue;
      const Value &value = graph_.value(output);
      const bool known = value.type.kind != Type::Kind::kNone && (!value.type.is_tensor() || value.type.shape);
      if (known) continue;
      auto declared = declared_.find(output.index);
      if (declared != declared_.end()) {
        OPTC_ASSIGN(Type type, namer_.inner_type(*declared->second, value.name, diagnostics_));
        const bool same =
            value.type.kind == Type::Kind::kNone || (type.is_tensor() && type.element == value.type.element);
        if (same && (!type.is_tensor() || type.shape)) {
          graph_.set_type(output, std::move(type));
          continue;
        }
      }
      if (strict)
        return diagnostics_.error(
            ErrorKind::kUnsupported, "the rank of '" + value.name + "' is not known before the model runs",
            graph_.describe(id),
            "give the shapes of the inputs with --shape, or declare this value's shape in the model (value_info)");
    }
    done = id;
  }
}

// Squeeze without axes where symbolic dims may be 1: the rank that the model declares for the result says how many go,
// and, where only some of them do, the names of its dims say which stay.
void Converter::name_squeezed_axes(NodeId id) {
  const Node &node = graph_.node(id);
  const auto declared = declared_.find(node.output(0).index);
  if (node.input(1).valid() || !node.input(0).valid() || declared == declared_.end() ||
      !declared->second->tensor_type().has_shape() || !graph_.value(node.input(0)).type.has_shape())
    return;
  const onnx::TensorShapeProto &wanted = declared->second->tensor_type().shape();
  const auto stays = [&](Dim d) {
    return std::any_of(wanted.dim().begin(), wanted.dim().end(),
                       [&](const auto &dim) { return dim.has_dim_param() && dim.dim_param() == d.str(); });
  };
  std::vector<int64_t> ones, open, named;  // axes
  const Shape in = *graph_.value(node.input(0)).type.shape;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool may_be_one = !in[i].is_constant() && lower_bound(in[i]) <= 1 && upper_bound(in[i]) >= 1;
    if (in[i].is(1)) ones.push_back(static_cast<int64_t>(i));
    if (may_be_one) open.push_back(static_cast<int64_t>(i));
    if (may_be_one && !stays(in[i])) named.push_back(static_cast<int64_t>(i));
  }
  const size_t dropped = in.size() - std::min(in.size(), static_cast<size_t>(wanted.dim_size()));
  if (open.empty() || dropped <= ones.size()) return;
  const size_t missing = dropped - ones.size();
  const std::vector<int64_t> &squeezed = missing == open.size() ? open : named;
  if (squeezed.size() != missing) return;
  ones.insert(ones.end(), squeezed.begin(), squeezed.end());
  std::sort(ones.begin(), ones.end());
  graph_.set_input(id, 1, graph_.add_constant(graph_.unique_name(node.name + "_axes"), Constant::int64s(ones)));
}

// GatherND whose indices end in a symbolic dim: how many numbers an index has follows from the rank that the model
// declares for the result. A Reshape that keeps all other dims says it, and checks it when the model runs.
bool Converter::name_gathered_depth(NodeId id) {
  const Node &node = graph_.node(id);
  const auto declared = declared_.find(node.output(0).index);
  if (declared == declared_.end() || !declared->second->tensor_type().has_shape() || !node.input(0).valid() ||
      !node.input(1).valid())
    return false;
  const Type data = graph_.value(node.input(0)).type, indices = graph_.value(node.input(1)).type;
  if (!data.has_shape() || !indices.has_shape() || indices.rank() == 0 || indices.shape->back().is_constant())
    return false;
  const int64_t depth = data.rank() + indices.rank() - 1 - node.int_or("batch_dims", 0) -
                        declared->second->tensor_type().shape().dim_size();
  if (depth < 1 || depth > data.rank()) return false;
  std::vector<int64_t> dims(static_cast<size_t>(indices.rank()), 0);  // 0: as it is
  dims.back() = depth;
  const std::string name = graph_.unique_name(node.name + "/indices");
  const ValueId shape = graph_.add_constant(graph_.unique_name(name + "_shape"), Constant::int64s(dims));
  const NodeId view = graph_.add_node(graph_.node(id).region, "Reshape", name, {graph_.node(id).input(1), shape},
                                      {{name, Type()}}, {}, id);
  graph_.set_origin(view, graph_.node(id).origin);
  graph_.set_input(id, 1, graph_.node(view).output(0));
  return true;
}

Status Converter::finish_node(NodeId id, const NodeSource &node_source) {
  const std::vector<std::pair<std::string, RegionId>> regions = graph_.node(id).regions;
  if (!regions.empty()) seed_body_inputs(id);
  for (const auto &[name, region] : regions) OPTC_TRY(finish_region(region, false));
  if (node_source.schema) {
    OPTC_TRY(check_types(id, *node_source.schema));
    fill_defaults(id, *node_source.schema);
  }
  const OpDef *def = find_op(graph_.node(id).op);
  if (!def) return expand(id, node_source);
  if (def->body) return write_body(id, node_source);
  if (!def->signature.inputs.empty()) OPTC_TRY(Body::check(graph_, id, *def, diagnostics_));
  const NodeId before = graph_.node(id).previous;
  const RegionId region = graph_.node(id).region;
  const std::vector<uint32_t> origin = graph_.node(id).origin;
  int64_t version = node_source.version;
  while (def && graph_.node(id).alive) {
    const VersionStep *next = nullptr;
    for (const VersionStep &step : def->steps)
      if (step.version > version && (!next || step.version < next->version)) next = &step;
    if (!next) break;
    if (next->up) OPTC_TRY(next->up(graph_, id, diagnostics_));
    version = next->version;
    if (graph_.node(id).alive) def = find_op(graph_.node(id).op);
  }
  if (!graph_.node(id).alive) def = nullptr;
  if (def && node_source.schema)
    if (const onnx::OpSchema *schema = current_schema(def->name, def->version)) fill_defaults(id, *schema);
  // Nodes that the steps made come from the same node of the file.
  for (NodeId n = before.valid() ? graph_.node(before).next : graph_.region(region).first; n.valid() && n != id;
       n = graph_.node(n).next) {
    if (!graph_.node(n).origin.empty()) break;
    graph_.set_origin(n, origin);
  }
  if (graph_.node(id).alive)
    for (NodeId n = graph_.node(id).next; n.valid() && graph_.node(n).origin.empty(); n = graph_.node(n).next)
      graph_.set_origin(n, origin);
  return {};
}

void Converter::fill_defaults(NodeId id, const onnx::OpSchema &schema) {
  for (const auto &[name, attribute] : schema.attributes()) {
    if (attribute.default_value.type() == onnx::AttributeProto::UNDEFINED || graph_.node(id).attribute(name)) continue;
    Result<Attribute> value = convert_attribute(attribute.default_value, true, schema.Name());
    if (value.ok()) graph_.set_attribute(id, name, *std::move(value));
  }
}

// First types for inputs of a body that declares none; the owner's inference has the last word.
void Converter::seed_body_inputs(NodeId owner) {
  const std::string op = graph_.node(owner).op;
  const RegionId body = graph_.node(owner).region_named("body");
  if (!body.valid()) return;
  const std::vector<ValueId> inputs = graph_.region(body).inputs;
  auto seed = [&](size_t i, Type type) {
    if (i < inputs.size() && graph_.value(inputs[i]).type.kind == Type::Kind::kNone)
      graph_.set_type(inputs[i], std::move(type));
  };
  auto outer = [&](size_t i) {
    const ValueId value = graph_.node(owner).input(i);
    return value.valid() ? graph_.value(value).type : Type();
  };
  if (op == "Loop") {
    seed(0, Type::tensor(ElementType::kInt64, Shape()));
    seed(1, Type::tensor(ElementType::kBool, Shape()));
    for (size_t i = 2; i < inputs.size(); ++i) seed(i, outer(i));
  } else if (op == "Scan") {
    if (inputs.size() + 1 == graph_.node(owner).inputs.size()) return;  // of opset 8: a batch axis, types are declared
    const auto scans = static_cast<size_t>(std::max<int64_t>(0, graph_.node(owner).int_or("num_scan_inputs", 0)));
    const std::vector<int64_t> *axes = graph_.node(owner).ints("scan_input_axes");
    for (size_t i = 0; i < inputs.size(); ++i) {
      Type type = outer(i);
      if (i + scans >= inputs.size() && type.has_shape() && !type.shape->empty()) {
        const size_t k = i + scans - inputs.size();
        int64_t axis = axes && k < axes->size() ? (*axes)[k] : 0;
        if (axis < 0) axis += type.rank();
        if (axis >= 0 && axis < type.rank()) type.shape->erase(type.shape->begin() + axis);
      }
      seed(i, std::move(type));
    }
  } else if (op == "SequenceMap") {
    for (size_t i = 0; i < inputs.size(); ++i) {
      Type type = outer(i);
      seed(i, type.kind == Type::Kind::kSequence ? *type.inner : type);
    }
  }
}

// A branch that is never taken may not fit the values around it (a function body for inputs of several ranks has one
// for each): what cannot be compiled in it is left out.
void Converter::close_dead_branches() {
  for (NodeId id : graph_.all_nodes()) {
    if (!graph_.node(id).alive || graph_.node(id).op != "If" || is_dead(graph_, graph_.node(id).region)) continue;
    const auto taken = known_condition(graph_, graph_.node(id).input(0));
    if (!taken) continue;
    const RegionId dead = graph_.node(id).region_named(*taken ? "else_branch" : "then_branch"),
                   live = graph_.node(id).region_named(*taken ? "then_branch" : "else_branch");
    if (!has_unknown_rank(graph_, dead)) continue;
    fail_branch(graph_, dead, "a branch was taken whose condition is never met");
    const std::vector<ValueId> from = graph_.region(live).outputs, to = graph_.region(dead).outputs;
    for (size_t i = 0; i < to.size() && i < from.size(); ++i) graph_.set_type(to[i], graph_.value(from[i]).type);
  }
}

// A declared shape is believed where nothing else tells the rank of an If's result: no branch may give another one.
Status Converter::check_branches() {
  for (NodeId id : graph_.all_nodes()) {
    const Node &node = graph_.node(id);
    if (node.op != "If" || is_dead(graph_, node.region)) continue;
    const auto taken = known_condition(graph_, node.input(0));
    for (const bool then : {true, false}) {
      if (taken && *taken != then) continue;
      const char *name = then ? "then_branch" : "else_branch";
      const std::vector<ValueId> &results = graph_.region(node.region_named(name)).outputs;
      for (size_t i = 0; i < results.size() && i < node.outputs.size(); ++i) {
        if (!node.outputs[i].valid()) continue;
        const Value &given = graph_.value(results[i]), &value = graph_.value(node.outputs[i]);
        if (!given.type.is_tensor() || !value.type.is_tensor() || !given.type.shape || !value.type.shape) continue;
        if (given.type.rank() != value.type.rank())
          return diagnostics_.error(
              ErrorKind::kUnsupported, "the rank of '" + value.name + "' is not known before the model runs",
              graph_.describe(id),
              std::string(name) + " gives '" + given.name + "' " + to_string(given.type) + ", and the result is " +
                  to_string(value.type) + (declared_.count(node.outputs[i].index) ? " as declared" : "") +
                  ": reshape it in the branches to one rank");
      }
    }
  }
  return {};
}

Status Converter::check_outputs() {
  close_dead_branches();
  OPTC_TRY(check_aligned());
  // Bodies are inferred by their owners; what is left without a rank there cannot be compiled.
  for (NodeId id : graph_.all_nodes()) {
    if (is_dead(graph_, graph_.node(id).region)) continue;
    for (ValueId v : graph_.node(id).outputs) {
      if (!v.valid()) continue;
      const Type &type = graph_.value(v).type;
      if (type.kind == Type::Kind::kNone || (type.is_tensor() && !type.shape))
        return diagnostics_.error(ErrorKind::kUnsupported,
                                  "the rank of '" + graph_.value(v).name + "' is not known before the model runs",
                                  graph_.describe(id));
    }
  }
  OPTC_TRY(check_branches());
  for (ValueId id : graph_.region(Graph::main()).outputs) {
    auto it = declared_.find(id.index);
    if (it == declared_.end() || it->second->value_case() != onnx::TypeProto::kTensorType) continue;
    const Value &value = graph_.value(id);
    const auto &declared = it->second->tensor_type();
    if (!value.type.is_tensor() ||
        (declared.elem_type() != 0 && element_type_of(declared.elem_type()) != value.type.element))
      return diagnostics_.error(ErrorKind::kInvalid, "graph output '" + value.name + "' is " + to_string(value.type) +
                                                         ", but it is declared as a tensor of " +
                                                         std::string(onnx_name(element_type_of(declared.elem_type()))));
    if (!declared.has_shape() || !value.type.shape) continue;
    bool differs = static_cast<size_t>(declared.shape().dim_size()) != value.type.shape->size();
    for (int i = 0; i < declared.shape().dim_size() && !differs; ++i) {
      const Dim dim = (*value.type.shape)[static_cast<size_t>(i)];
      differs = declared.shape().dim(i).has_dim_value() && dim.is_constant() &&
                declared.shape().dim(i).dim_value() != dim.value();
    }
    if (differs)
      diagnostics_.warning("graph output '" + value.name + "' is " + to_string(value.type) +
                           ", which is not the shape that the model declares");
  }
  return {};
}

}  // namespace optc
