#pragma once
// Nodes that take another's place where the opset lacks its operator or its form. Seen by emit/onnx only.

#include <string>
#include <utility>
#include <vector>

#include "emit/onnx/internal_export.h"

namespace optc {

// Nodes before `at`, with its origin.
class Chain {
 public:
  Chain(Graph &graph, NodeId at) : g_(graph), at_(at), name_(graph.node(at).name) {}

  ValueId add(const char *op, std::vector<ValueId> inputs,
              std::vector<std::pair<std::string, Attribute>> attributes = {}) {
    const std::string name = g_.unique_name(name_ + "/" + op);
    const NodeId n =
        g_.add_node(g_.node(at_).region, op, name, std::move(inputs), {{name, Type()}}, std::move(attributes), at_);
    g_.set_origin(n, g_.node(at_).origin);
    made_.push_back(n);
    return g_.node(n).outputs[0];
  }
  ValueId constant(const char *what, Constant value) {
    return g_.add_constant(g_.unique_name(name_ + "/" + what), std::move(value));
  }
  ValueId cast(ValueId v, ElementType from, ElementType to) {
    return from == to ? v : add("Cast", {v}, {{"to", static_cast<int64_t>(to)}});
  }
  Status infer(Diagnostics &diagnostics) {
    for (NodeId n : made_) OPTC_TRY(infer_node(g_, n, diagnostics));
    return {};
  }

 private:
  Graph &g_;
  const NodeId at_;
  const std::string name_;
  std::vector<NodeId> made_;
};

// `results` are read from now on where the node's outputs were, and have their names.
inline void take_place(Graph &graph, NodeId id, const std::vector<ValueId> &results) {
  const std::vector<ValueId> outputs = graph.node(id).outputs;
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs.size() && i < results.size(); ++i) {
    names.push_back(outputs[i].valid() ? graph.value(outputs[i]).name : "");
    if (outputs[i].valid() && results[i].valid()) graph.replace_uses(outputs[i], results[i]);
  }
  graph.erase_node(id);
  for (size_t i = 0; i < names.size(); ++i)
    if (results[i].valid() && !names[i].empty()) graph.rename_value(results[i], names[i]);
}

}  // namespace optc
