#include <algorithm>

#include "convert/internal_edit.h"

namespace optc {
namespace {

std::vector<std::string> split_names(const std::string &text) {
  std::vector<std::string> names;
  for (size_t from = 0; from <= text.size() && !text.empty();) {
    const size_t to = std::min(text.find(',', from), text.size());
    names.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return names;
}

// Names may hold ".." and ",": the first split whose names all exist is meant.
struct Range {
  std::vector<std::string> inputs, outputs;
  std::string unknown;  // a name that does not exist
  bool found = false;
};
Range parse_range(const std::string &text, const NameSet &values) {
  Range first;
  bool any = false;
  for (size_t at = text.find(".."); at != std::string::npos; at = text.find("..", at + 1)) {
    const std::string left = text.substr(0, at), right = text.substr(at + 2);
    Range range{left.empty() || values.count(left) ? std::vector<std::string>{left} : split_names(left),
                right.empty() || values.count(right) ? std::vector<std::string>{right} : split_names(right), "", false};
    if (left.empty()) range.inputs.clear();
    if (right.empty()) range.outputs.clear();
    for (const auto *list : {&range.inputs, &range.outputs})
      for (const std::string &name : *list)
        if (!values.count(name) && range.unknown.empty()) range.unknown = name;
    range.found = range.unknown.empty();
    if (range.found) return range;
    if (!any) first = range;
    any = true;
  }
  return first;
}

}  // namespace

Status extract(ModelFile &model, const std::string &text, Diagnostics &diagnostics) {
  onnx::GraphProto &graph = *model.proto.mutable_graph();
  const auto wrong = [&](const std::string &message, const std::string &help = {}) {
    return diagnostics.error(ErrorKind::kUsage, "--extract " + text + ": " + message, {}, help);
  };
  NameSet values;  // of the main graph
  std::unordered_map<std::string, int> producer;
  std::unordered_map<std::string, const onnx::ValueInfoProto *> declared;
  for (const auto &info : graph.input()) values.insert(info.name()), declared[info.name()] = &info;
  for (const auto &info : graph.output()) declared[info.name()] = &info;
  NameSet initial;
  for (const auto &tensor : graph.initializer()) initial.insert(tensor.name());
  for (const auto &sparse : graph.sparse_initializer()) initial.insert(sparse.values().name());
  values.insert(initial.begin(), initial.end());
  for (int i = 0; i < graph.node_size(); ++i)
    for (const auto &name : graph.node(i).output())
      if (!name.empty()) values.insert(name), producer[name] = i;
  if (text.find("..") == std::string::npos) return wrong("expected INPUTS..OUTPUTS, as a,b..c");
  Range range = parse_range(text, values);
  if (!range.found)
    return wrong("the main graph has no value '" + range.unknown + "'",
                 "`optc inspect` shows a model's inputs and outputs");
  if (range.outputs.empty())
    for (const auto &info : graph.output()) range.outputs.push_back(info.name());

  // Backwards from the outputs to the inputs; what is reached and neither made nor constant must be given.
  const NameSet given(range.inputs.begin(), range.inputs.end());
  if (given.size() != range.inputs.size()) return wrong("an input is named twice");
  if (NameSet(range.outputs.begin(), range.outputs.end()).size() != range.outputs.size())
    return wrong("an output is named twice");
  NameSet reached;
  std::vector<bool> kept(static_cast<size_t>(graph.node_size()));
  std::vector<std::string> work = range.outputs, open;
  while (!work.empty()) {
    const std::string name = std::move(work.back());
    work.pop_back();
    if (name.empty() || !reached.insert(name).second || given.count(name)) continue;
    const auto it = producer.find(name);
    if (it == producer.end()) {
      if (!initial.count(name)) open.push_back(name);
      continue;
    }
    if (kept[static_cast<size_t>(it->second)]) continue;
    kept[static_cast<size_t>(it->second)] = true;
    const onnx::NodeProto &node = graph.node(it->second);
    work.insert(work.end(), node.input().begin(), node.input().end());
    for (std::string &outer : captures(node)) work.push_back(std::move(outer));
    // The other outputs are made too, and may not be made twice.
    for (const auto &output : node.output())
      if (given.count(output))
        return wrong("'" + output +
                     "' is asked for as an input, but the node that makes it is needed for another of its outputs");
  }
  for (const std::string &name : range.inputs)
    if (!reached.count(name)) return wrong("the outputs do not depend on '" + name + "'");
  if (range.inputs.empty()) {
    for (const auto &info : graph.input())
      if (reached.count(info.name())) range.inputs.push_back(info.name());
  } else if (!open.empty()) {
    std::sort(open.begin(), open.end());
    return wrong("the outputs also depend on the model's input '" + open.front() + "'", "name it among the inputs");
  }

  const TypesByName types = infer_types(model.proto);
  const auto info_of = [&](const std::string &name, onnx::ValueInfoProto &info) -> Status {
    if (const auto it = declared.find(name); it != declared.end()) info = *it->second;
    if (const auto it = types.find(name); it != types.end() && !info.has_type()) *info.mutable_type() = it->second;
    info.set_name(name);
    if (info.has_type()) return {};
    return wrong("the type of '" + name + "' is not known", "declare it in the model (value_info)");
  };
  onnx::GraphProto part;
  for (const std::string &name : range.inputs) OPTC_TRY(info_of(name, *part.add_input()));
  for (const std::string &name : range.outputs) OPTC_TRY(info_of(name, *part.add_output()));
  const auto shown = [&](const std::string &name) { return given.count(name) > 0; };
  const auto keep_if = [](auto &list, const auto &wanted) {
    std::remove_reference_t<decltype(list)> rest;
    for (auto &item : list)
      if (wanted(item)) *rest.Add() = std::move(item);
    list.Swap(&rest);
  };
  int index = 0;
  NameSet made;
  for (const auto &node : graph.node()) {
    if (kept[static_cast<size_t>(index++)]) made.insert(node.output().begin(), node.output().end());
  }
  index = 0;
  keep_if(*graph.mutable_node(), [&](const auto &) { return kept[static_cast<size_t>(index++)]; });
  const NameSet used = [&] {
    NameSet all = reached;
    all.insert(made.begin(), made.end());
    return all;
  }();
  keep_if(*graph.mutable_initializer(), [&](const auto &t) { return used.count(t.name()) && !shown(t.name()); });
  keep_if(*graph.mutable_sparse_initializer(),
          [&](const auto &s) { return used.count(s.values().name()) && !shown(s.values().name()); });
  const NameSet outputs(range.outputs.begin(), range.outputs.end()), inputs(range.inputs.begin(), range.inputs.end());
  keep_if(*graph.mutable_value_info(), [&](const auto &info) {
    return used.count(info.name()) && !outputs.count(info.name()) && !inputs.count(info.name());
  });
  keep_if(*graph.mutable_quantization_annotation(), [&](const auto &note) { return used.count(note.tensor_name()); });
  graph.mutable_input()->Swap(part.mutable_input());
  graph.mutable_output()->Swap(part.mutable_output());
  return {};
}

}  // namespace optc
