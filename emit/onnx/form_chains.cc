// Operators and forms of them that came later than the opset that is written, as chains of what it has.
// (Normalizations: norm_chains.cc.)
#include <algorithm>
#include <cmath>

#include "emit/onnx/internal_chain.h"
#include "emit/onnx/internal_export.h"

namespace optc {
namespace {

constexpr int64_t kGeluOpset = 20, kShapeOpset = 15, kReshapeOpset = 14;

Status lower_gelu(Graph &graph, NodeId id, Diagnostics &diagnostics) {
  const Node node = graph.node(id);
  const ValueId x = node.inputs[0];
  const ElementType type = graph.value(x).type.element;
  Chain chain(graph, id);
  const auto number = [&](const char *name, double value) {
    return chain.constant(name, Constant::scalar(type, value));
  };
  ValueId inner;
  if (node.string_or("approximate", "none") == "tanh") {
    const ValueId cube = chain.add("Mul", {chain.add("Mul", {x, x}), x});
    const ValueId sum = chain.add("Add", {x, chain.add("Mul", {cube, number("cubic", 0.044715)})});
    inner = chain.add("Tanh", {chain.add("Mul", {sum, number("scale", std::sqrt(2 / M_PI))})});
  } else {
    inner = chain.add("Erf", {chain.add("Div", {x, number("root", std::sqrt(2.0))})});
  }
  const ValueId product = chain.add("Mul", {x, chain.add("Add", {inner, number("one", 1)})});
  const ValueId y = chain.add("Mul", {product, number("half", 0.5)});
  OPTC_TRY(chain.infer(diagnostics));
  take_place(graph, id, {y});
  return {};
}

// A part of the shape is a slice of it: both count negative ends from the back and cut at the rank.
Status lower_shape(Graph &graph, NodeId id, Diagnostics &diagnostics) {
  const Node node = graph.node(id);
  if (node.int_or("start", 0) == 0 && !node.attribute("end")) return {};
  Chain chain(graph, id);
  const ValueId whole = chain.add("Shape", {node.inputs[0]}, {{"start", int64_t{0}}});
  const ValueId part = chain.add("Slice", {whole, chain.constant("start", Constant::int64s({node.int_or("start", 0)})),
                                           chain.constant("end", Constant::int64s({node.int_or("end", INT64_MAX)})),
                                           chain.constant("axes", Constant::int64s({0}))});
  OPTC_TRY(chain.infer(diagnostics));
  take_place(graph, id, {part});
  return {};
}

// Whether an entry of the shape that is 0 copies a 0.
bool zeros_copy_zeros(const Graph &graph, const Node &node) {
  const Value &wanted = graph.value(node.inputs[1]);
  std::vector<Dim> entries;
  if (const Constant *constant = graph.constant(node.inputs[1]))
    for (int64_t i = 0; i < constant->count(); ++i) entries.push_back(Dim(constant->as_int64(i)));
  else if (wanted.elements)
    entries = *wanted.elements;
  else
    return false;
  const Type &type = graph.value(node.inputs[0]).type;
  for (size_t k = 0; k < entries.size(); ++k) {
    const Dim entry = entries[k];
    if (entry.is_constant() ? entry.value() != 0 : lower_bound(entry) > 0) continue;
    if (!type.has_shape() || k >= type.shape->size()) return false;
    const Dim copied = (*type.shape)[k];
    if (copied.is(0) || (!entry.is(0) && exact_div(copied, entry))) continue;
    return false;
  }
  return true;
}

// Before opset 14 a 0 copies a dim of the operand. So the operand is first a column of its n elements, n x 1 x .. x 1,
// or 0 x 0 x .. x 0 where it has none: then every 0 copies a 0.
Status lower_reshape(Graph &graph, NodeId id, Diagnostics &diagnostics) {
  const Node node = graph.node(id);
  if (node.int_or("allowzero", 0) == 0) return {};
  if (zeros_copy_zeros(graph, node)) {
    graph.set_attribute(id, "allowzero", int64_t{0});
    return {};
  }
  const Type &shape = graph.value(node.inputs[1]).type;
  if (!shape.has_shape() || shape.rank() != 1 || !(*shape.shape)[0].is_constant())
    return diagnostics.error(
        ErrorKind::kUnsupported,
        "allowzero of a Reshape to a rank that only the run decides cannot be said in opsets below " +
            std::to_string(kReshapeOpset),
        graph.describe(id));
  const int64_t rank = (*shape.shape)[0].value();
  Chain chain(graph, id);
  const std::vector<std::pair<std::string, Attribute>> zero_copies{{"allowzero", int64_t{0}}};
  std::vector<int64_t> column(static_cast<size_t>(std::max<int64_t>(rank, 1)), 1), axes;
  column[0] = -1;
  for (int64_t k = 1; k < rank; ++k) axes.push_back(k);
  ValueId x = chain.add("Reshape", {node.inputs[0], chain.constant("column", Constant::int64s(column))}, zero_copies);
  if (rank > 1) {
    const ValueId count = chain.add("Size", {node.inputs[0]});
    const ValueId some =
        chain.cast(chain.cast(count, ElementType::kInt64, ElementType::kBool), ElementType::kBool, ElementType::kInt64);
    const ValueId ends = chain.add("Expand", {some, chain.constant("ranks", Constant::int64s({rank - 1}))});
    const ValueId starts = chain.constant("starts", Constant::int64s(std::vector<int64_t>(axes.size(), 0)));
    x = chain.add("Slice", {x, starts, ends, chain.constant("axes", Constant::int64s(axes))});
  }
  const ValueId y = chain.add("Reshape", {x, node.inputs[1]}, zero_copies);
  OPTC_TRY(chain.infer(diagnostics));
  take_place(graph, id, {y});
  return {};
}

}  // namespace

Status lower_later_forms(Graph &graph, int64_t opset, Diagnostics &diagnostics) {
  for (const NodeId id : graph.all_nodes()) {
    const std::string op = graph.node(id).op;
    if (op == "Gelu" && opset < kGeluOpset) OPTC_TRY(lower_gelu(graph, id, diagnostics));
    if (op == "Shape" && opset < kShapeOpset) OPTC_TRY(lower_shape(graph, id, diagnostics));
    if (op == "Reshape" && opset < kReshapeOpset) OPTC_TRY(lower_reshape(graph, id, diagnostics));
  }
  return {};
}

}  // namespace optc
