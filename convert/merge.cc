#include <algorithm>

#include "convert/internal_edit.h"

namespace optc {
namespace {

std::string domain_name(const std::string &domain) { return domain.empty() ? "ai.onnx" : domain; }

Status merge_opsets(onnx::ModelProto &model, const onnx::ModelProto &other, Diagnostics &diagnostics) {
  for (const auto &theirs : other.opset_import()) {
    bool known = false;
    for (const auto &ours : model.opset_import()) {
      if (domain_name(ours.domain()) != domain_name(theirs.domain())) continue;
      known = true;
      if (ours.version() != theirs.version())
        return diagnostics.error(ErrorKind::kUsage,
                                 "--merge: the models import versions " + std::to_string(ours.version()) + " and " +
                                     std::to_string(theirs.version()) + " of " + domain_name(ours.domain()),
                                 {},
                                 domain_name(ours.domain()) == "ai.onnx" ? "--opset N brings both to one version" : "");
    }
    if (!known) *model.add_opset_import() = theirs;
  }
  return {};
}

Status merge_functions(onnx::ModelProto &model, const onnx::ModelProto &other, Diagnostics &diagnostics) {
  for (const auto &theirs : other.functions()) {
    bool known = false;
    for (const auto &ours : model.functions()) {
      if (ours.name() != theirs.name() || ours.domain() != theirs.domain() || ours.overload() != theirs.overload())
        continue;
      known = true;
      if (ours.SerializeAsString() != theirs.SerializeAsString())
        return diagnostics.error(ErrorKind::kUsage, "--merge: both models have a function " + theirs.domain() + "." +
                                                        theirs.name() + ", and they are not the same");
    }
    if (!known) *model.add_functions() = theirs;
  }
  return {};
}

// Empty: values of these types can be the same value.
std::string conflict(const onnx::TypeProto &a, const onnx::TypeProto &b) {
  if (type_text(a) != type_text(b)) return type_text(a) + " and " + type_text(b);
  if (!a.has_tensor_type() || !a.tensor_type().has_shape() || !b.tensor_type().has_shape()) return "";
  const auto &x = a.tensor_type().shape(), &y = b.tensor_type().shape();
  if (x.dim_size() != y.dim_size())
    return std::to_string(x.dim_size()) + " and " + std::to_string(y.dim_size()) + " dimensions";
  for (int i = 0; i < x.dim_size(); ++i)
    if (x.dim(i).has_dim_value() && y.dim(i).has_dim_value() && x.dim(i).dim_value() != y.dim(i).dim_value())
      return "sizes " + std::to_string(x.dim(i).dim_value()) + " and " + std::to_string(y.dim(i).dim_value()) +
             " of dimension " + std::to_string(i);
  return "";
}

template <typename List>
void append(List &to, List &from) {
  for (auto &item : from) *to.Add() = std::move(item);
}

}  // namespace

Status merge(ModelFile &model, ModelFile other, const std::vector<std::pair<std::string, std::string>> &connect,
             const std::string &prefix, Diagnostics &diagnostics) {
  const auto wrong = [&](const std::string &text, const std::string &help = {}) {
    return diagnostics.error(ErrorKind::kUsage, "--merge: " + text, {}, help);
  };
  onnx::GraphProto &ours = *model.proto.mutable_graph(), &theirs = *other.proto.mutable_graph();
  if (connect.empty())
    return wrong("nothing says how the models meet", "--connect OUTPUT=INPUT, of the first and of the second");
  OPTC_TRY(merge_opsets(model.proto, other.proto, diagnostics));
  OPTC_TRY(merge_functions(model.proto, other.proto, diagnostics));

  const TypesByName our_types = infer_types(model.proto), their_types = infer_types(other.proto);
  NameSet main_values;
  for (const auto &info : ours.input()) main_values.insert(info.name());
  for (const auto &tensor : ours.initializer()) main_values.insert(tensor.name());
  for (const auto &node : ours.node()) main_values.insert(node.output().begin(), node.output().end());
  NameSet their_inputs, interface;
  for (const auto &info : theirs.input()) their_inputs.insert(info.name());
  NameMap names;  // of the second model
  NameSet connected, joined;
  for (const auto &[from, to] : connect) {
    const std::string text = "--connect " + from + "=" + to;
    if (from.empty() || !main_values.count(from)) return wrong(text + ": the first model has no value '" + from + "'");
    if (!their_inputs.count(to)) return wrong(text + ": the second model has no input '" + to + "'");
    if (!names.emplace(to, from).second) return wrong(text + ": '" + to + "' is connected already");
    connected.insert(to);
    joined.insert(from);
    const auto a = our_types.find(from), b = their_types.find(to);
    if (a == our_types.end() || b == their_types.end()) continue;
    if (const std::string bad = conflict(a->second, b->second); !bad.empty())
      return wrong(text + ": the two do not fit, " + bad);
  }
  for (const auto &info : theirs.input()) interface.insert(info.name());
  for (const auto &info : theirs.output()) interface.insert(info.name());
  const NameSet our_names = value_names(ours), their_names = value_names(theirs);
  std::vector<std::string> sorted(their_names.begin(), their_names.end());
  std::sort(sorted.begin(), sorted.end());
  NameSet taken = our_names;
  for (const std::string &name : sorted) taken.insert(prefix + name);
  for (const std::string &name : sorted) {
    if (connected.count(name)) continue;
    const std::string wish = prefix + name;
    if (our_names.count(wish) && interface.count(name))
      return wrong("both models have a value '" + wish + "', an input or output of the second",
                   "--merge-prefix P puts P before the names of the second");
    names[name] = our_names.count(wish) ? fresh_name(wish, taken) : wish;
  }
  rename_values(theirs, names);
  NameSet nodes = node_names(ours);
  for_each_graph(theirs, [&](onnx::GraphProto &graph) {
    for (auto &node : *graph.mutable_node())
      if (!node.name().empty()) node.set_name(fresh_name(prefix + node.name(), nodes));
  });

  // The data of the second model's tensors stands in its own list.
  OPTC_TRY(for_each_tensor(other.proto, [&](onnx::TensorProto &tensor, const TensorPlace &) -> Status {
    if (const Constant *weight = weight_of(other, tensor)) set_weight(model, tensor, *weight);
    return {};
  }));
  model.has_external |= other.has_external;
  model.read_files.insert(other.read_files.begin(), other.read_files.end());

  // Outputs of the first that are connected are no outputs any more; inputs of the second that are, no inputs.
  google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> outputs;
  for (auto &info : *ours.mutable_output())
    if (!joined.count(info.name())) {
      *outputs.Add() = std::move(info);
    } else {
      bool made = false;  // by a node: then its type may be noted
      for (const auto &input : ours.input()) made = made || input.name() == info.name();
      if (!made) *ours.add_value_info() = std::move(info);
    }
  for (auto &info : *theirs.mutable_output()) {
    for (const auto &there : outputs)
      if (there.name() == info.name()) return wrong("the output '" + info.name() + "' would be there twice");
    *outputs.Add() = std::move(info);
  }
  ours.mutable_output()->Swap(&outputs);
  for (auto &info : *theirs.mutable_input()) {
    const bool met = std::any_of(connect.begin(), connect.end(), [&](const auto &c) { return c.first == info.name(); });
    if (!met) *ours.add_input() = std::move(info);
  }
  for (auto &tensor : *theirs.mutable_initializer())
    if (!joined.count(tensor.name())) *ours.add_initializer() = std::move(tensor);
  append(*ours.mutable_sparse_initializer(), *theirs.mutable_sparse_initializer());
  append(*ours.mutable_value_info(), *theirs.mutable_value_info());
  append(*ours.mutable_quantization_annotation(), *theirs.mutable_quantization_annotation());
  append(*ours.mutable_node(), *theirs.mutable_node());
  for (const auto &theirs_entry : other.proto.metadata_props()) {
    bool known = false;
    for (const auto &entry : model.proto.metadata_props()) {
      if (entry.key() != theirs_entry.key()) continue;
      known = true;
      if (entry.value() != theirs_entry.value())
        diagnostics.warning("metadata '" + entry.key() + "' of the second model is left out: the first has another");
    }
    if (!known) *model.proto.add_metadata_props() = theirs_entry;
  }
  model.proto.set_ir_version(std::max(model.proto.ir_version(), other.proto.ir_version()));
  return {};
}

}  // namespace optc
