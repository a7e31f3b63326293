#include "convert/internal_model.h"

namespace optc {
namespace {

Status visit_graph(onnx::GraphProto &graph, const TensorVisitor &visit);

Status visit_sparse(onnx::SparseTensorProto &sparse, const std::string &what, const TensorVisitor &visit) {
  if (sparse.has_values()) OPTC_TRY(visit(*sparse.mutable_values(), {what + " (values)"}));
  if (sparse.has_indices()) OPTC_TRY(visit(*sparse.mutable_indices(), {what + " (indices)"}));
  return {};
}

Status visit_attribute(onnx::AttributeProto &attribute, const std::string &owner, const TensorVisitor &visit) {
  const std::string what = "attribute '" + attribute.name() + "' of " + owner;
  if (attribute.has_t()) OPTC_TRY(visit(*attribute.mutable_t(), {what}));
  for (auto &tensor : *attribute.mutable_tensors()) OPTC_TRY(visit(tensor, {what}));
  if (attribute.has_sparse_tensor()) OPTC_TRY(visit_sparse(*attribute.mutable_sparse_tensor(), what, visit));
  for (auto &sparse : *attribute.mutable_sparse_tensors()) OPTC_TRY(visit_sparse(sparse, what, visit));
  if (attribute.has_g()) OPTC_TRY(visit_graph(*attribute.mutable_g(), visit));
  for (auto &graph : *attribute.mutable_graphs()) OPTC_TRY(visit_graph(graph, visit));
  return {};
}

template <typename Nodes>
Status visit_nodes(Nodes &nodes, const TensorVisitor &visit) {
  for (onnx::NodeProto &node : nodes) {
    const std::string name = !node.name().empty() ? node.name() : node.output_size() > 0 ? node.output(0) : "";
    for (auto &attribute : *node.mutable_attribute())
      OPTC_TRY(visit_attribute(attribute, "node '" + name + "' (" + node.op_type() + ")", visit));
  }
  return {};
}

Status visit_graph(onnx::GraphProto &graph, const TensorVisitor &visit) {
  for (auto &tensor : *graph.mutable_initializer())
    OPTC_TRY(visit(tensor, {"initializer '" + tensor.name() + "'", true}));
  for (auto &sparse : *graph.mutable_sparse_initializer())
    OPTC_TRY(visit_sparse(sparse, "sparse initializer '" + sparse.values().name() + "'", visit));
  return visit_nodes(*graph.mutable_node(), visit);
}

}  // namespace

Status for_each_tensor(onnx::ModelProto &model, const TensorVisitor &visit) {
  if (model.has_graph()) OPTC_TRY(visit_graph(*model.mutable_graph(), visit));
  for (auto &function : *model.mutable_functions()) {
    for (auto &attribute : *function.mutable_attribute_proto())
      OPTC_TRY(visit_attribute(attribute, "function '" + function.name() + "'", visit));
    OPTC_TRY(visit_nodes(*function.mutable_node(), visit));
  }
  return {};
}

void for_each_graph(onnx::GraphProto &graph, const std::function<void(onnx::GraphProto &)> &visit) {
  visit(graph);
  for (auto &node : *graph.mutable_node())
    for (auto &attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) for_each_graph(*attribute.mutable_g(), visit);
      for (auto &inner : *attribute.mutable_graphs()) for_each_graph(inner, visit);
    }
}

namespace {

template <typename Nodes>
int64_t count_in(const Nodes &nodes) {
  int64_t count = nodes.size();
  for (const onnx::NodeProto &node : nodes)
    for (const auto &attribute : node.attribute()) {
      if (attribute.has_g()) count += count_in(attribute.g().node());
      for (const auto &inner : attribute.graphs()) count += count_in(inner.node());
    }
  return count;
}

}  // namespace

int64_t count_nodes(const onnx::ModelProto &model) {
  int64_t count = count_in(model.graph().node());
  for (const auto &function : model.functions()) count += count_in(function.node());
  return count;
}

}  // namespace optc
