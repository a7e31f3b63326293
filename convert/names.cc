#include <algorithm>

#include "convert/internal_edit.h"

namespace optc {
namespace {

template <typename Visit>
void each_name(onnx::GraphProto &graph, const Visit &visit) {
  for (auto &info : *graph.mutable_input()) visit(*info.mutable_name());
  for (auto &info : *graph.mutable_output()) visit(*info.mutable_name());
  for (auto &info : *graph.mutable_value_info()) visit(*info.mutable_name());
  for (auto &tensor : *graph.mutable_initializer()) visit(*tensor.mutable_name());
  for (auto &sparse : *graph.mutable_sparse_initializer()) visit(*sparse.mutable_values()->mutable_name());
  for (auto &node : *graph.mutable_node()) {
    for (auto &name : *node.mutable_input()) visit(name);
    for (auto &name : *node.mutable_output()) visit(name);
  }
  for (auto &note : *graph.mutable_quantization_annotation()) {
    visit(*note.mutable_tensor_name());
    for (auto &entry : *note.mutable_quant_parameter_tensor_names()) visit(*entry.mutable_value());
  }
}

void rename_dims(onnx::TypeProto &type, const std::string &from, const std::string &to, int64_t &count) {
  const auto in_shape = [&](onnx::TensorShapeProto &shape) {
    for (auto &dim : *shape.mutable_dim())
      if (dim.has_dim_param() && dim.dim_param() == from) {
        dim.set_dim_param(to);
        ++count;
      }
  };
  if (type.has_tensor_type() && type.tensor_type().has_shape())
    in_shape(*type.mutable_tensor_type()->mutable_shape());
  else if (type.has_sparse_tensor_type() && type.sparse_tensor_type().has_shape())
    in_shape(*type.mutable_sparse_tensor_type()->mutable_shape());
  else if (type.has_sequence_type())
    rename_dims(*type.mutable_sequence_type()->mutable_elem_type(), from, to, count);
  else if (type.has_optional_type())
    rename_dims(*type.mutable_optional_type()->mutable_elem_type(), from, to, count);
  else if (type.has_map_type())
    rename_dims(*type.mutable_map_type()->mutable_value_type(), from, to, count);
}

int64_t rename_dim(onnx::ModelProto &model, const std::string &from, const std::string &to) {
  int64_t count = 0;
  const auto in = [&](auto &list) {
    for (auto &info : list)
      if (info.has_type()) rename_dims(*info.mutable_type(), from, to, count);
  };
  for_each_graph(*model.mutable_graph(), [&](onnx::GraphProto &graph) {
    in(*graph.mutable_input());
    in(*graph.mutable_output());
    in(*graph.mutable_value_info());
  });
  for (auto &function : *model.mutable_functions()) in(*function.mutable_value_info());
  return count;
}

int64_t rename_node(onnx::ModelProto &model, const std::string &from, const std::string &to) {
  int64_t count = 0;
  for_each_graph(*model.mutable_graph(), [&](onnx::GraphProto &graph) {
    for (auto &node : *graph.mutable_node())
      if (node.name() == from) {
        node.set_name(to);
        ++count;
      }
  });
  return count;
}

void collect_captures(const onnx::GraphProto &graph, NameSet defined, std::vector<std::string> &found, NameSet &seen) {
  for (const auto &info : graph.input()) defined.insert(info.name());
  for (const auto &tensor : graph.initializer()) defined.insert(tensor.name());
  for (const auto &sparse : graph.sparse_initializer()) defined.insert(sparse.values().name());
  const auto use = [&](const std::string &name) {
    if (!name.empty() && !defined.count(name) && seen.insert(name).second) found.push_back(name);
  };
  for (const auto &node : graph.node()) {
    for (const auto &name : node.input()) use(name);
    for (const auto &attribute : node.attribute()) {
      if (attribute.has_g()) collect_captures(attribute.g(), defined, found, seen);
      for (const auto &inner : attribute.graphs()) collect_captures(inner, defined, found, seen);
    }
    for (const auto &name : node.output()) defined.insert(name);
  }
  for (const auto &info : graph.output()) use(info.name());
}

}  // namespace

NameSet value_names(const onnx::GraphProto &graph) {
  NameSet names;
  for_each_graph(const_cast<onnx::GraphProto &>(graph),
                 [&](onnx::GraphProto &g) { each_name(g, [&](const std::string &name) { names.insert(name); }); });
  names.erase("");
  return names;
}

NameSet node_names(const onnx::GraphProto &graph) {
  NameSet names;
  for_each_graph(const_cast<onnx::GraphProto &>(graph), [&](onnx::GraphProto &g) {
    for (const auto &node : g.node()) names.insert(node.name());
  });
  return names;
}

std::string fresh_name(const std::string &wish, NameSet &taken) {
  if (taken.insert(wish).second) return wish;
  for (int64_t n = 2;; ++n)
    if (std::string name = wish + "_" + std::to_string(n); taken.insert(name).second) return name;
}

void rename_values(onnx::GraphProto &graph, const NameMap &names) {
  for_each_graph(graph, [&](onnx::GraphProto &g) {
    each_name(g, [&](std::string &name) {
      if (const auto it = names.find(name); it != names.end()) name = it->second;
    });
  });
}

std::vector<std::string> captures(const onnx::NodeProto &node) {
  std::vector<std::string> found;
  NameSet seen;
  for (const auto &attribute : node.attribute()) {
    if (attribute.has_g()) collect_captures(attribute.g(), {}, found, seen);
    for (const auto &inner : attribute.graphs()) collect_captures(inner, {}, found, seen);
  }
  return found;
}

Status rename(ModelFile &model, const std::vector<std::pair<std::string, std::string>> &renames,
              Diagnostics &diagnostics) {
  onnx::GraphProto &graph = *model.proto.mutable_graph();
  for (const auto &pair : renames) {
    const std::string &old = pair.first, &fresh = pair.second;
    const auto wrong = [&](const std::string &text, const std::string &help = {}) {
      return diagnostics.error(ErrorKind::kUsage, "--rename " + old + "=" + fresh + ": " + text, {}, help);
    };
    if (fresh.empty()) return wrong("the new name is empty");
    if (old.rfind("dim:", 0) == 0) {
      if (rename_dim(model.proto, old.substr(4), fresh) == 0) return wrong("no dimension has that name");
    } else if (old.rfind("node:", 0) == 0) {
      if (node_names(graph).count(fresh)) return wrong("a node is called " + fresh + " already");
      if (rename_node(model.proto, old.substr(5), fresh) == 0) return wrong("no node has that name");
    } else {
      const NameSet values = value_names(graph);
      if (!values.count(old))
        return wrong("no value has that name", "dim:" + old + "=" + fresh + " names a dimension, node:" + old + "=" +
                                                   fresh +
                                                   " a node; `optc inspect` shows a model's inputs and outputs");
      if (values.count(fresh)) return wrong("a value is called " + fresh + " already");
      rename_values(graph, {{old, fresh}});
    }
  }
  return {};
}

}  // namespace optc
