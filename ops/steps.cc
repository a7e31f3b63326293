#include "ops/steps.h"

#include <string>

namespace optc {

Status attribute_to_input(Graph &graph, NodeId id, std::string_view name, size_t index, Diagnostics &diagnostics) {
  const Node &node = graph.node(id);
  const Attribute *attribute = node.attribute(name);
  if (!attribute) return {};
  Constant value;
  if (const auto *ints = std::get_if<std::vector<int64_t>>(attribute)) {
    value = Constant::int64s(*ints);
  } else if (const auto *one = std::get_if<int64_t>(attribute)) {
    value = Constant::int64s({*one});
  } else if (const auto *real = std::get_if<float>(attribute)) {
    ElementType type = ElementType::kFloat32;
    if (node.input(0).valid() && graph.value(node.input(0)).type.is_tensor())
      type = graph.value(node.input(0)).type.element;
    value = Constant::scalar(type, *real);
  } else if (const auto *reals = std::get_if<std::vector<float>>(attribute)) {
    value = Constant::floats(*reals);
  } else {
    return diagnostics.error(ErrorKind::kInvalid, "attribute '" + std::string(name) + "' has the wrong type",
                             graph.describe(id));
  }
  ValueId constant = graph.add_constant(graph.unique_name(node.name + "_" + std::string(name)), std::move(value));
  graph.set_input(id, index, constant);
  graph.remove_attribute(id, name);
  return {};
}

Status input_to_attribute(Graph &graph, NodeId id, size_t index, std::string_view name, Diagnostics &diagnostics,
                          bool single) {
  const Node &node = graph.node(id);
  ValueId input = node.input(index);
  if (!input.valid()) return {};
  const Constant *constant = graph.constant(input);
  if (!constant || constant->rank() > 1)
    return diagnostics.error(ErrorKind::kUnsupported,
                             "input " + std::to_string(index) + " must be constant to be written as attribute '" +
                                 std::string(name) + "' of the older opset",
                             graph.describe(id));
  std::vector<int64_t> values;
  for (int64_t i = 0; i < constant->count(); ++i) values.push_back(constant->as_int64(i));
  if (single && values.size() == 1) {
    graph.set_attribute(id, name, values[0]);
  } else {
    graph.set_attribute(id, name, std::move(values));
  }
  graph.set_input(id, index, ValueId());
  return {};
}

Failure cannot_lower(const Graph &graph, NodeId node, std::string_view what, int version, Diagnostics &diagnostics) {
  return diagnostics.error(ErrorKind::kUnsupported,
                           std::string(what) + " cannot be said in opsets below " + std::to_string(version),
                           graph.describe(node));
}

}  // namespace optc
