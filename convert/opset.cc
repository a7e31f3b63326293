// Between versions of ai.onnx. ONNX's own converter is not asked: it goes through a representation without functions,
// metadata and sparse tensors, and has steps for a part of the operators. A node whose definition did change goes
// through a Graph of its own: up by the importer, down by the exporter, whose steps stand at the operators (ops/).
#include <onnx/defs/schema.h>

#include <algorithm>

#include "convert/internal_edit.h"
#include "emit/onnx/export.h"
#include "importer/importer.h"
#include "ops/registry.h"

namespace optc {
namespace {

constexpr int64_t kOldestOpset = 7;
constexpr size_t kLargestOperand = size_t{1} << 20;  // bytes of a constant that the steps may read

bool is_onnx(const std::string &domain) { return domain.empty() || domain == "ai.onnx"; }

const onnx::OpSchema *schema_of(const std::string &op, int64_t version) {
  const onnx::OpSchema *schema = onnx::OpSchemaRegistry::Schema(op, static_cast<int>(version), "");
  return schema && !schema->deprecated() ? schema : nullptr;
}

std::string label_of(const onnx::NodeProto &node) {
  const std::string name = !node.name().empty() ? node.name() : node.output_size() > 0 ? node.output(0) : "";
  return "node '" + name + "' (" + node.op_type() + ")";
}

enum class Change : uint8_t { kNone, kTypes, kForm };  // kTypes: only which element types are allowed

Change change_of(const onnx::NodeProto &node, int64_t from, int64_t to) {
  if (!is_onnx(node.domain())) return Change::kNone;
  const onnx::OpSchema *old = schema_of(node.op_type(), from), *now = schema_of(node.op_type(), to);
  if (old && now && old->SinceVersion() == now->SinceVersion()) return Change::kNone;
  if (!now) return Change::kForm;
  const OpDef *def = find_op(node.op_type());
  if (!def && node.op_type() != "Constant") return Change::kForm;
  if (def)
    for (const VersionStep &step : def->steps) {
      if (step.version <= std::min(from, to) || step.version > std::max(from, to)) continue;
      if (from < to ? step.up != nullptr : step.down != nullptr) return Change::kForm;
    }
  try {
    now->Verify(node);
  } catch (const std::exception &) {
    return Change::kForm;
  }
  return Change::kTypes;
}

class OpsetChange {
 public:
  OpsetChange(ModelFile &model, int64_t from, int64_t to, Diagnostics &diagnostics)
      : model_(model), from_(from), to_(to), diagnostics_(diagnostics) {}

  Status run() {
    NameSet ambiguous;
    was_sound_ = type_fault(model_.proto).empty();
    types_ = infer_types(model_.proto, &ambiguous);
    add_types_of_file(model_.path, ambiguous, types_);
    values_ = value_names(model_.proto.graph());
    nodes_ = node_names(model_.proto.graph());
    OPTC_TRY(graph(*model_.proto.mutable_graph(), {}));
    drop_unread_constants();
    return {};
  }

  // Every node whose definition is another one must be allowed the types that it has.
  Status check() {
    types_ = infer_types(model_.proto);
    Status status;
    for_each_graph(*model_.proto.mutable_graph(), [&](onnx::GraphProto &graph) {
      for (const auto &node : graph.node())
        if (status.ok()) status = check_node(node);
    });
    if (!status.ok() || !was_sound_) return status;
    // A function's body may be written for operands of one type that its operator may have of two.
    if (const std::string fault = type_fault(model_.proto); !fault.empty())
      return diagnostics_.error(ErrorKind::kUnsupported,
                                "the model cannot be said in opset " + std::to_string(to_) + ": " + fault, {},
                                "the types of the operands have no form there");
    return status;
  }

 private:
  using Constants = std::unordered_map<std::string, onnx::TensorProto>;

  Status graph(onnx::GraphProto &graph, Constants constants) {
    NameSet defaults;  // initializers that a caller may replace
    for (const auto &info : graph.input()) defaults.insert(info.name());
    for (const auto &info : graph.input()) constants.erase(info.name());
    for (const auto &tensor : graph.initializer())
      if (!defaults.count(tensor.name())) note_constant(tensor.name(), tensor, constants);
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    for (auto &node : *graph.mutable_node()) {
      if (node.op_type() == "Constant" && is_onnx(node.domain()) && node.output_size() == 1) {
        onnx::NodeProto constant = node;
        (void)constant_as_tensor(constant);
        for (const auto &attribute : constant.attribute())
          if (attribute.has_t()) note_constant(node.output(0), attribute.t(), constants);
      }
      if (to_ < 9 && node.op_type() == "Constant" && is_onnx(node.domain()) && as_initializer(node, graph, nodes))
        continue;
      const Change change = change_of(node, from_, to_);
      if (change == Change::kForm && node.op_type() == "Constant" && to_ < 12 && constant_as_tensor(node)) {
        *nodes.Add() = std::move(node);
        continue;
      }
      if (change == Change::kForm) {
        OPTC_TRY(through_graph(node, constants, nodes, graph));
        continue;
      }
      for (auto &attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) OPTC_TRY(this->graph(*attribute.mutable_g(), constants));
        for (auto &inner : *attribute.mutable_graphs()) OPTC_TRY(this->graph(inner, constants));
      }
      *nodes.Add() = std::move(node);
    }
    graph.mutable_node()->Swap(&nodes);
    return {};
  }

  // Constant is of floats alone before opset 9: of another type it becomes an initializer of its graph, and passes
  // through an Identity where it is an output. False: another form of node, which stays.
  bool as_initializer(onnx::NodeProto &node, onnx::GraphProto &graph,
                      google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes) {
    if (node.output_size() != 1) return false;
    (void)constant_as_tensor(node);
    if (node.attribute_size() != 1 || !node.attribute(0).has_t()) return false;
    onnx::TensorProto &tensor = *node.mutable_attribute(0)->mutable_t();
    if (tensor.data_type() == onnx::TensorProto::FLOAT || tensor.data_type() == onnx::TensorProto::FLOAT16 ||
        tensor.data_type() == onnx::TensorProto::DOUBLE)
      return false;
    std::string name = node.output(0);
    const auto is_it = [&](const onnx::ValueInfoProto &info) { return info.name() == node.output(0); };
    if (std::any_of(graph.output().begin(), graph.output().end(), is_it)) {
      name = fresh_name(name, values_);
      onnx::NodeProto &copy = *nodes.Add();
      copy.set_op_type("Identity");
      copy.set_name(fresh_name(name, nodes_));
      copy.add_input(name);
      copy.add_output(node.output(0));
    }
    tensor.set_name(name);
    *graph.add_initializer() = std::move(tensor);
    return true;
  }

  void note_constant(const std::string &name, const onnx::TensorProto &tensor, Constants &constants) {
    onnx::TensorProto whole = tensor;
    if (const Constant *weight = weight_of(model_, tensor)) {
      if (weight->size() > kLargestOperand) return;
      whole.clear_external_data();
      whole.clear_data_location();
      whole.set_raw_data(weight->data(), weight->size());
    }
    whole.set_name(name);
    constants[name] = std::move(whole);
  }

  // The node alone, as a model of the old version, becomes one of the new version, whose nodes take its place.
  Status through_graph(const onnx::NodeProto &node, const Constants &constants,
                       google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes, onnx::GraphProto &owner) {
    onnx::ModelProto alone;
    alone.set_ir_version(std::max(ir_of_opset(from_), int64_t{8}));
    for (const auto &opset : model_.proto.opset_import())
      if (!is_onnx(opset.domain())) *alone.add_opset_import() = opset;
    alone.add_opset_import()->set_version(from_);
    *alone.mutable_functions() = model_.proto.functions();
    onnx::GraphProto &graph = *alone.mutable_graph();
    graph.set_name("node");
    *graph.add_node() = node;
    std::vector<std::string> operands(node.input().begin(), node.input().end());
    for (std::string &name : captures(node)) operands.push_back(std::move(name));
    NameSet seen;
    for (const std::string &name : operands) {
      if (name.empty() || !seen.insert(name).second) continue;
      if (const auto it = constants.find(name); it != constants.end()) {
        *graph.add_initializer() = it->second;
        continue;
      }
      const auto it = types_.find(name);
      if (it == types_.end())
        return diagnostics_.error(ErrorKind::kUnsupported, "the type of '" + name + "' is not known", label_of(node),
                                  "declare it in the model (value_info)");
      onnx::ValueInfoProto &info = *graph.add_input();
      info.set_name(name);
      *info.mutable_type() = it->second;
    }
    std::vector<std::string> outputs;
    for (const auto &name : node.output()) {
      if (name.empty()) continue;
      outputs.push_back(name);
      onnx::ValueInfoProto &info = *graph.add_output();
      info.set_name(name);
      if (const auto it = types_.find(name); it != types_.end()) *info.mutable_type() = it->second;
    }
    // Graphs inside the node may hold weights: they go with it.
    OPTC_TRY(for_each_tensor(alone, [&](onnx::TensorProto &tensor, const TensorPlace &) -> Status {
      if (const Constant *weight = weight_of(model_, tensor)) {
        tensor.clear_external_data();
        tensor.clear_data_location();
        tensor.set_raw_data(weight->data(), weight->size());
      }
      return {};
    }));
    auto bytes = std::make_shared<std::string>(alone.SerializeAsString());
    const std::string_view view(*bytes);
    OPTC_ASSIGN(const Graph whole, import_bytes(view, bytes, "", ImportOptions{}, diagnostics_));
    ExportOptions options;
    options.opset = to_;
    OPTC_ASSIGN(const std::string written, export_model(whole, options, diagnostics_));
    onnx::ModelProto result;
    if (!result.ParseFromString(written))
      return diagnostics_.error(ErrorKind::kInternal, "a converted node cannot be read back", label_of(node));
    return splice(node, outputs, seen, *result.mutable_graph(), nodes, owner);
  }

  Status splice(const onnx::NodeProto &node, const std::vector<std::string> &outputs, const NameSet &operands,
                onnx::GraphProto &result, google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                onnx::GraphProto &owner) {
    const NameSet own(outputs.begin(), outputs.end());
    NameMap names;
    const NameSet inner = value_names(result);
    std::vector<std::string> sorted(inner.begin(), inner.end());
    std::sort(sorted.begin(), sorted.end());
    for (const std::string &name : sorted)
      if (!own.count(name) && !operands.count(name)) names[name] = fresh_name(name, values_);
    rename_values(result, names);
    for (auto &tensor : *result.mutable_initializer()) {
      if (operands.count(tensor.name())) continue;
      *owner.add_initializer() = std::move(tensor);
    }
    nodes_.erase(node.name());
    int first = nodes.size(), bearer = -1;
    for (auto &part : *result.mutable_node()) {
      google::protobuf::RepeatedPtrField<onnx::StringStringEntryProto> notes;
      for (auto &note : *part.mutable_metadata_props())
        if (note.key() != "optc.origin" && note.key() != "optc.rules") *notes.Add() = std::move(note);
      part.mutable_metadata_props()->Swap(&notes);
      if (bearer < 0 && part.op_type() == node.op_type()) bearer = nodes.size();
      *nodes.Add() = std::move(part);
    }
    if (nodes.size() == first && outputs.empty()) return {};
    if (bearer < 0) bearer = nodes.size() - 1;
    for (int i = first; i < nodes.size(); ++i) {
      onnx::NodeProto &part = nodes[i];
      if (i == bearer) {
        part.set_name(node.name());
        part.set_doc_string(node.doc_string());
        if (!node.has_doc_string()) part.clear_doc_string();
        *part.mutable_metadata_props() = node.metadata_props();
        if (!node.name().empty()) nodes_.insert(node.name());
        if (!node.has_name()) part.clear_name();
      }
    }
    for (int i = first; i < nodes.size(); ++i)
      if (i != bearer) nodes[i].set_name(fresh_name(nodes[i].name(), nodes_));
    // An output that is an operand, or another output, passes through an Identity.
    for (int i = 0; i < result.output_size() && i < static_cast<int>(outputs.size()); ++i) {
      if (result.output(i).name() == outputs[static_cast<size_t>(i)]) continue;
      onnx::NodeProto &copy = *nodes.Add();
      copy.set_op_type("Identity");
      copy.set_name(fresh_name(outputs[static_cast<size_t>(i)], nodes_));
      copy.add_input(result.output(i).name());
      copy.add_output(outputs[static_cast<size_t>(i)]);
    }
    for (const std::string &name : operands) touched_.insert(name);
    return {};
  }

  // Constants that were operands of a converted node, and of no other, and that it has no more as operands.
  void drop_unread_constants() {
    NameSet read;
    for_each_graph(*model_.proto.mutable_graph(), [&](onnx::GraphProto &graph) {
      for (const auto &node : graph.node()) read.insert(node.input().begin(), node.input().end());
      for (const auto &info : graph.output()) read.insert(info.name());
      for (const auto &info : graph.input()) read.insert(info.name());
    });
    const auto gone = [&](const std::string &name) { return touched_.count(name) && !read.count(name); };
    for_each_graph(*model_.proto.mutable_graph(), [&](onnx::GraphProto &graph) {
      google::protobuf::RepeatedPtrField<onnx::TensorProto> tensors;
      for (auto &tensor : *graph.mutable_initializer())
        if (!gone(tensor.name())) *tensors.Add() = std::move(tensor);
      graph.mutable_initializer()->Swap(&tensors);
      google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
      NameSet dropped;
      for (auto &node : *graph.mutable_node())
        if (node.op_type() == "Constant" && is_onnx(node.domain()) && node.output_size() == 1 && gone(node.output(0)))
          dropped.insert(node.output(0));
        else
          *nodes.Add() = std::move(node);
      graph.mutable_node()->Swap(&nodes);
      google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> infos;
      for (auto &info : *graph.mutable_value_info())
        if (!dropped.count(info.name())) *infos.Add() = std::move(info);
      graph.mutable_value_info()->Swap(&infos);
    });
  }

  Status check_node(const onnx::NodeProto &node) {
    if (!is_onnx(node.domain())) return {};
    const onnx::OpSchema *old = schema_of(node.op_type(), from_), *now = schema_of(node.op_type(), to_);
    if (old && now && old->SinceVersion() == now->SinceVersion()) return {};
    const std::string version = "opset " + std::to_string(to_);
    if (!now) return diagnostics_.error(ErrorKind::kInternal, version + " has no " + node.op_type(), label_of(node));
    const auto fits = [&](const std::string &name, const std::vector<onnx::OpSchema::FormalParameter> &formals,
                          int i) -> Status {
      const auto it = types_.find(name);
      if (name.empty() || it == types_.end() || formals.empty()) return {};
      const std::string type = type_text(it->second);
      const auto &allowed = formals[std::min(static_cast<size_t>(i), formals.size() - 1)].GetTypes();
      if (type.empty() || std::any_of(allowed.begin(), allowed.end(), [&](onnx::DataType t) { return *t == type; }))
        return {};
      return diagnostics_.error(ErrorKind::kUnsupported, version + " has no " + node.op_type() + " of " + type,
                                label_of(node));
    };
    for (int i = 0; i < node.input_size(); ++i) OPTC_TRY(fits(node.input(i), now->inputs(), i));
    for (int i = 0; i < node.output_size(); ++i) OPTC_TRY(fits(node.output(i), now->outputs(), i));
    return {};
  }

  ModelFile &model_;
  const int64_t from_, to_;
  Diagnostics &diagnostics_;
  TypesByName types_;
  bool was_sound_ = false;  // whether ONNX finds the types of the model as it was right
  NameSet values_, nodes_, touched_;
};

// The version of ai.onnx among imports; 0: none.
template <typename Imports>
int64_t version_in(const Imports &imports) {
  int64_t version = 0;
  for (const auto &opset : imports)
    if (is_onnx(opset.domain())) version = std::max<int64_t>(version, opset.version());
  return version;
}

template <typename Imports>
void set_version(Imports &imports, int64_t to) {
  for (auto &opset : imports)
    if (is_onnx(opset.domain())) opset.set_version(to);
}

bool changes(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes, int64_t from, int64_t to) {
  for (const auto &node : nodes) {
    if (change_of(node, from, to) == Change::kForm) return true;
    for (const auto &attribute : node.attribute()) {
      if (attribute.has_g() && changes(attribute.g().node(), from, to)) return true;
      for (const auto &graph : attribute.graphs())
        if (changes(graph.node(), from, to)) return true;
    }
  }
  return false;
}

}  // namespace

bool constant_as_tensor(onnx::NodeProto &node) {
  if (node.attribute_size() != 1) return false;
  const onnx::AttributeProto old = node.attribute(0);
  onnx::TensorProto tensor;
  if (old.name() == "value_float" || old.name() == "value_floats") {
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    if (old.name() == "value_float") tensor.add_float_data(old.f());
    for (const float f : old.floats()) tensor.add_float_data(f);
    if (old.name() == "value_floats") tensor.add_dims(old.floats_size());
  } else if (old.name() == "value_int" || old.name() == "value_ints") {
    tensor.set_data_type(onnx::TensorProto::INT64);
    if (old.name() == "value_int") tensor.add_int64_data(old.i());
    for (const int64_t i : old.ints()) tensor.add_int64_data(i);
    if (old.name() == "value_ints") tensor.add_dims(old.ints_size());
  } else if (old.name() == "value_string" || old.name() == "value_strings") {
    tensor.set_data_type(onnx::TensorProto::STRING);
    if (old.name() == "value_string") tensor.add_string_data(old.s());
    for (const std::string &s : old.strings()) tensor.add_string_data(s);
    if (old.name() == "value_strings") tensor.add_dims(old.strings_size());
  } else {
    return false;
  }
  onnx::AttributeProto &attribute = *node.mutable_attribute(0);
  attribute.Clear();
  attribute.set_name("value");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  *attribute.mutable_t() = std::move(tensor);
  return true;
}

Status set_opset(ModelFile &model, int64_t opset, Diagnostics &diagnostics) {
  onnx::ModelProto &proto = model.proto;
  if (opset < kOldestOpset || opset > kNewestOpset)
    return diagnostics.error(ErrorKind::kUsage, "--opset " + std::to_string(opset) + ": versions " +
                                                    std::to_string(kOldestOpset) + " to " +
                                                    std::to_string(kNewestOpset) + " can be written");
  const int64_t from = version_in(proto.opset_import());
  if (from < 1)
    return diagnostics.error(ErrorKind::kInvalid, "the model imports no version of ai.onnx, so it has no other");
  if (from > kNewestOpset)
    return diagnostics.error(ErrorKind::kUnsupported, "opset version " + std::to_string(from) +
                                                          " of ai.onnx; optc reads versions up to " +
                                                          std::to_string(kNewestOpset));
  // A body without types of its values cannot be brought to another form; once it is inlined it has them.
  std::string inlined;
  for (const auto &function : proto.functions()) {
    const int64_t own = version_in(function.opset_import());
    if (inlined.empty() && own > 0 && changes(function.node(), own, opset)) inlined = function.name();
  }
  if (!inlined.empty())
    OPTC_TRY(inline_functions(proto, inlined + " has another form in opset " + std::to_string(opset), diagnostics));
  OpsetChange change(model, from, opset, diagnostics);
  OPTC_TRY(change.run());
  set_version(*proto.mutable_opset_import(), opset);
  for (auto &function : *proto.mutable_functions()) set_version(*function.mutable_opset_import(), opset);
  proto.set_ir_version(std::max(proto.ir_version(), ir_of_opset(opset)));
  return change.check();
}

}  // namespace optc
