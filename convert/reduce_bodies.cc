// What a reduction does to bodies of If, Loop and Scan.

#include <set>

#include "convert/internal_reduce.h"

namespace optc {
namespace {

onnx::GraphProto *body_at(onnx::GraphProto &graph, size_t number) {
  onnx::GraphProto *found = nullptr;
  size_t at = 0;
  for_each_graph(graph, [&](onnx::GraphProto &g) {
    if (at++ == number + 1) found = &g;  // the first is the main graph
  });
  return found;
}

NameSet names_made(const onnx::GraphProto &graph) {
  NameSet made;
  for (const auto &node : graph.node()) made.insert(node.output().begin(), node.output().end());
  made.erase("");
  return made;
}

// What the graph reads, captures of its nodes' bodies included, in order, each once.
std::vector<std::string> names_read(const onnx::GraphProto &graph) {
  std::vector<std::string> list;
  NameSet seen;
  const auto add = [&](const std::string &name) {
    if (!name.empty() && seen.insert(name).second) list.push_back(name);
  };
  for (const auto &node : graph.node()) {
    for (const std::string &name : node.input()) add(name);
    for (const std::string &name : captures(node)) add(name);
  }
  for (const auto &output : graph.output()) add(output.name());
  return list;
}

bool write_info(const std::string &name, const std::string &as, const TypesByName &types, onnx::ValueInfoProto &info) {
  info.set_name(as);
  if (const auto it = types.find(name); it != types.end() && !info.has_type()) *info.mutable_type() = it->second;
  return info.has_type();
}

}  // namespace

size_t count_bodies(const ModelFile &model) {
  size_t count = 0;
  onnx::GraphProto copy = model.proto.graph();
  for_each_graph(copy, [&](onnx::GraphProto &) { ++count; });
  return count - 1;
}

size_t count_body_nodes(const ModelFile &model, size_t body) {
  onnx::GraphProto copy = model.proto.graph();
  const onnx::GraphProto *graph = body_at(copy, body);
  return graph ? static_cast<size_t>(graph->node_size()) : 0;
}

bool lift_body(const ModelFile &model, size_t body, const TypesByName &types, ModelFile &alone) {
  alone = model;
  onnx::GraphProto whole = model.proto.graph();
  const onnx::GraphProto *inner = body_at(whole, body);
  if (!inner || inner->node_size() == 0) return false;
  onnx::GraphProto graph = *inner;
  const NameSet made = names_made(graph);
  NameSet known = made;
  for (auto &input : *graph.mutable_input()) {
    if (!write_info(input.name(), input.name(), types, input)) return false;
    known.insert(input.name());
  }
  for (const auto &tensor : graph.initializer()) known.insert(tensor.name());
  for (const auto &sparse : graph.sparse_initializer()) known.insert(sparse.values().name());
  for (auto &output : *graph.mutable_output())
    if (!write_info(output.name(), output.name(), types, output)) return false;
  // What it reads of the graphs around it: their weights come along, their values become inputs.
  for (const std::string &name : names_read(graph)) {
    if (!known.insert(name).second) continue;
    bool weight = false;
    for_each_graph(whole, [&](onnx::GraphProto &outer) {
      for (const auto &tensor : outer.initializer())
        if (!weight && tensor.name() == name) {
          *graph.add_initializer() = tensor;
          weight = true;
        }
    });
    if (!weight && !write_info(name, name, types, *graph.add_input())) return false;
  }
  // An output that no node of it makes is no model's.
  for (const auto &output : graph.output())
    if (!made.count(output.name())) return false;
  alone.proto.mutable_graph()->Swap(&graph);
  return true;
}

bool cut_body(const ModelFile &model, size_t body, const std::vector<size_t> &kept, const TypesByName &types,
              ModelFile &cut) {
  cut = model;
  onnx::GraphProto &main = *cut.proto.mutable_graph();
  onnx::GraphProto *graph = body_at(main, body);
  if (!graph) return false;
  const NameSet before = names_made(*graph);
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  for (size_t i : kept) *nodes.Add() = graph->node(static_cast<int>(i));
  graph->mutable_node()->Swap(&nodes);
  const NameSet after = names_made(*graph);
  NameSet taken = value_names(model.proto.graph());
  NameMap given;  // what a removed node made, and the input of the main graph that stands for it
  for (const std::string &name : names_read(*graph)) {
    if (!before.count(name) || after.count(name)) continue;
    onnx::ValueInfoProto &info = *main.add_input();
    given[name] = fresh_name(name + "_given", taken);
    if (!write_info(name, given[name], types, info)) return false;
  }
  rename_values(*graph, given);
  // What a body gives it has to make.
  for (auto &output : *graph->mutable_output()) {
    bool is_given = false;
    for (const auto &[name, input] : given) is_given = is_given || input == output.name();
    if (!is_given) continue;
    onnx::NodeProto &copy = *graph->add_node();
    copy.set_op_type("Identity");
    copy.set_name(output.name() + "_copy");
    copy.add_input(output.name());
    output.set_name(fresh_name(output.name() + "_copy", taken));
    copy.add_output(output.name());
  }
  const NameSet left = names_made(*graph);
  google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> infos;
  for (const auto &info : graph->value_info())
    if (left.count(info.name())) *infos.Add() = info;
  graph->mutable_value_info()->Swap(&infos);
  return true;
}

}  // namespace optc
