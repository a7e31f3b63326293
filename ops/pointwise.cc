#include "ops/pointwise.h"

#include <algorithm>
#include <cmath>

namespace optc {

Status infer_same(InferContext &c) {
  c.set(0, c.input(0));
  if (c.input(0).is_tensor())
    if (const std::vector<Dim> *elements = c.elements(0)) c.set_elements(0, std::vector<Dim>(*elements));
  return {};
}

Status infer_broadcast(InferContext &c, ElementType element, size_t count) {
  if (count == 0) count = c.input_count();
  std::vector<Shape> shapes;
  for (size_t i = 0; i < count; ++i) {
    if (!c.has_input(i)) continue;
    if (!c.has_shape(i)) {
      c.set(0, Type::tensor(element, std::nullopt));
      return {};
    }
    shapes.push_back(c.shape(i));
  }
  OPTC_ASSIGN(Shape shape, c.broadcast(shapes));
  c.set_tensor(0, element, std::move(shape));
  return {};
}

void propagate(InferContext &c, const std::function<std::optional<Dim>(const std::vector<Dim> &)> &f) {
  size_t count = 1;
  bool vector = false, empty = false;
  for (size_t i = 0; i < c.input_count(); ++i) {
    const std::vector<Dim> *elements = c.elements(i);
    if (!elements || !c.has_shape(i) || c.rank(i) > 1) return;
    vector |= c.rank(i) == 1;
    empty |= elements->empty();
    if (elements->size() > 1 && count > 1 && elements->size() != count) return;
    count = std::max(count, elements->size());
  }
  if (empty) {
    c.set_elements(0, {});
    return;
  }
  if (!vector && count != 1) return;
  std::vector<Dim> result;
  for (size_t k = 0; k < count; ++k) {
    std::vector<Dim> values;
    for (size_t i = 0; i < c.input_count(); ++i) {
      const std::vector<Dim> &elements = *c.elements(i);
      values.push_back(elements.size() == 1 ? elements[0] : elements[k]);
    }
    const std::optional<Dim> d = f(values);
    if (!d) return;
    result.push_back(*d);
  }
  c.set_elements(0, std::move(result));
}

Status drop_consumed_inputs(Graph &graph, NodeId node, Diagnostics &) {
  graph.remove_attribute(node, "consumed_inputs");
  return {};
}

Status legacy_broadcast(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Node &n = graph.node(node);
  const bool broadcast = n.int_or("broadcast", 0) != 0;
  const Attribute *axis_attribute = n.attribute("axis");
  const int64_t axis = n.int_or("axis", 0);
  graph.remove_attribute(node, "consumed_inputs");
  graph.remove_attribute(node, "broadcast");
  graph.remove_attribute(node, "axis");
  if (!broadcast || !axis_attribute || n.inputs.size() < 2) return {};
  const Type a = graph.value(n.inputs[0]).type, b = graph.value(n.inputs[1]).type;
  if (!a.has_shape() || !b.has_shape())
    return diagnostics.error(ErrorKind::kUnsupported,
                             "the ranks of operands that broadcast along an axis are not known", graph.describe(node));
  const int64_t first = axis < 0 ? axis + a.rank() : axis, trailing = a.rank() - first - b.rank();
  if (first < 0 || trailing < 0)
    return diagnostics.error(ErrorKind::kInvalid, "attribute 'axis' is out of range", graph.describe(node));
  if (trailing == 0) return {};
  std::vector<int64_t> axes;
  for (int64_t k = 0; k < trailing; ++k) axes.push_back(b.rank() + k);
  const ValueId from = n.inputs[1];
  const std::string name = graph.value(from).name;
  const ValueId list = graph.add_constant(graph.unique_name(name + "_axes"), Constant::int64s(axes));
  const NodeId view = graph.add_node(n.region, "Unsqueeze", graph.unique_name(name + "_aligned"), {from, list},
                                     {{graph.unique_name(name + "_aligned"), Type()}}, {}, node);
  OPTC_TRY(infer_node(graph, view, diagnostics));
  graph.set_input(node, 1, graph.node(view).outputs[0]);
  return {};
}

Expr sigmoid(Expr x) { return apply(ScalarOp::kSigmoid, x); }

Expr softplus(Expr x) { return maximum(x, x.constant(0)) + apply(ScalarOp::kLog1p, exponential(-absolute(x))); }

Expr gelu(Expr x, bool tanh_form) {
  if (tanh_form) {
    const Expr inner = (x + x * x * x * 0.044715) * std::sqrt(2.0 / M_PI);
    return x * 0.5 * (apply(ScalarOp::kTanh, inner) + 1);
  }
  return x * 0.5 * (apply(ScalarOp::kErf, x * std::sqrt(0.5)) + 1);
}

}  // namespace optc
