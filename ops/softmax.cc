// Softmax, LogSoftmax, Hardmax.

#include <algorithm>

#include "ops/pointwise.h"
#include "ops/rows.h"

namespace optc {
namespace {

Status infer_softmax(InferContext &c) {
  if (c.has_shape(0) && c.rank(0) > 0) {
    OPTC_ASSIGN([[maybe_unused]] int64_t axis, c.axis(c.node().int_or("axis", -1), c.rank(0)));
  }
  c.set(0, c.input(0));
  return {};
}

std::vector<bool> softmax_row(BuildContext &c) {
  const int64_t rank = static_cast<int64_t>(c.shape(0).size());
  const int64_t axis = c.node().int_or("axis", -1);
  return rank == 0 ? std::vector<bool>() : inside_axis(static_cast<size_t>(rank), axis < 0 ? axis + rank : axis);
}

template <bool logarithmic>
Status build(BuildContext &c) {
  NestBuilder nest(c, c.node().op);
  const BufferId x = c.input(0), y = c.output(0);
  Rows rows(nest, c.shape(0), softmax_row(c));
  const Expr highest = nest.reduce(Combine::kMax, nest.load(x, rows.open()));
  std::vector<Dim> at = rows.open();
  if (logarithmic) {
    const Expr sum = nest.reduce(Combine::kSum, exponential(nest.load(x, at) - highest));
    const Expr shift = logarithm(sum);
    at = rows.open();
    nest.store(y, at, nest.load(x, at) - highest - shift);
  } else {
    // e^(x - max) is kept, not computed twice.
    const Expr e = exponential(nest.load(x, at) - highest);
    const LocalId kept = nest.local_row("e", e.type(), rows.row_shape());
    nest.store_local(kept, rows.row(at), e);
    const Expr sum = nest.reduce(Combine::kSum, e);
    at = rows.open();
    nest.store(y, at, nest.load_local(kept, rows.row(at)) / sum);
  }
  nest.finish();
  return {};
}

// 1 at the first largest element.
Status build_hardmax(BuildContext &c) {
  NestBuilder nest(c, c.node().op);
  const BufferId x = c.input(0);
  Rows rows(nest, c.shape(0), softmax_row(c));
  const Expr highest = nest.reduce(Combine::kMax, nest.load(x, rows.open()));
  std::vector<Dim> at = rows.open();
  auto position = [&] {
    return rows.row(at).empty() ? nest.constant(ElementType::kInt64, 0)
                                : nest.position(rows.row(at)[0], rows.row_shape()[0]);
  };
  const Expr value = nest.load(x, at);
  const Expr hit = apply(ScalarOp::kOr, apply(ScalarOp::kEq, value, highest), apply(ScalarOp::kIsNan, value));
  const Expr first = nest.reduce(Combine::kMin, position(), {}, hit);
  at = rows.open();
  nest.store(c.output(0), at, select(apply(ScalarOp::kEq, position(), first), value.constant(1), value.constant(0)));
  nest.finish();
  return {};
}

// Before opset 13 the input was flattened to a matrix at `axis` (default 1) and whole rows were normalized.
Status flattened(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const int64_t axis = graph.node(node).int_or("axis", 1);
  const ValueId x = graph.node(node).inputs[0];
  const Type type = graph.value(x).type;
  if (type.has_shape() && (type.rank() == 0 || axis == type.rank() - 1 || axis == -1)) {
    graph.set_attribute(node, "axis", int64_t{-1});
    return {};
  }
  // A Flatten takes the rank for an axis, too: rows of one element, whatever they are.
  if (type.has_shape() && (axis >= type.rank() || axis < -type.rank()))
    return diagnostics.error(
        ErrorKind::kInvalid,
        "axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(type.rank()),
        graph.describe(node), "before opset 13 an axis that is not given is 1");
  const RegionId region = graph.node(node).region;
  const std::string base = graph.node(node).name.empty() ? graph.node(node).op : graph.node(node).name;
  auto insert = [&](const char *op, std::vector<ValueId> inputs,
                    std::vector<std::pair<std::string, Attribute>> attributes) {
    const std::string name = graph.unique_name(base + "_" + op);
    return graph.add_node(region, op, name, std::move(inputs), {{name, Type()}}, std::move(attributes), node);
  };
  const NodeId flat = insert("Flatten", {x}, {{"axis", axis}});
  OPTC_TRY(infer_node(graph, flat, diagnostics));
  const std::string op = graph.node(node).op;
  const NodeId inner = insert(op.c_str(), {graph.node(flat).outputs[0]}, {{"axis", int64_t{-1}}});
  OPTC_TRY(infer_node(graph, inner, diagnostics));
  const NodeId shape = insert("Shape", {x}, {{"start", int64_t{0}}});
  OPTC_TRY(infer_node(graph, shape, diagnostics));
  graph.set_op(node, "Reshape");
  graph.remove_attribute(node, "axis");
  // A dim of 0 would be taken from the matrix. (Said only where there may be one: below opset 14 no Reshape can say
  // it.)
  const bool empty = !type.has_shape() ||
                     std::any_of(type.shape->begin(), type.shape->end(), [](Dim d) { return lower_bound(d) <= 0; });
  graph.set_attribute(node, "allowzero", int64_t{empty});
  graph.set_input(node, 0, graph.node(inner).outputs[0]);
  graph.set_input(node, 1, graph.node(shape).outputs[0]);
  return {};
}

// Before 13 rows reach to the end: another axis is brought there and back.
Status last_axis(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const ValueId x = graph.node(node).inputs[0];
  const Type type = graph.value(x).type;
  if (!type.has_shape())
    return diagnostics.error(ErrorKind::kUnsupported, "the rank of the input is not known", graph.describe(node));
  const int64_t rank = type.rank(), given = graph.node(node).int_or("axis", -1),
                axis = given < 0 ? given + rank : given;
  if (rank == 0) return {};
  graph.set_attribute(node, "axis", rank - 1);
  if (axis == rank - 1) return {};
  std::vector<int64_t> swap;
  for (int64_t k = 0; k < rank; ++k) swap.push_back(k == axis ? rank - 1 : k == rank - 1 ? axis : k);
  const std::string base = graph.node(node).name.empty() ? graph.node(node).op : graph.node(node).name;
  auto insert = [&](const std::string &op, ValueId input, std::vector<std::pair<std::string, Attribute>> attributes) {
    const std::string name = graph.unique_name(base + "_" + op);
    return graph.add_node(graph.node(node).region, op, name, {input}, {{name, Type()}}, std::move(attributes), node);
  };
  const NodeId turned = insert("Transpose", x, {{"perm", swap}});
  OPTC_TRY(infer_node(graph, turned, diagnostics));
  const std::string op = graph.node(node).op;
  const NodeId inner = insert(op, graph.node(turned).outputs[0], {{"axis", rank - 1}});
  OPTC_TRY(infer_node(graph, inner, diagnostics));
  graph.set_op(node, "Transpose");
  graph.remove_attribute(node, "axis");
  graph.set_attribute(node, "perm", swap);
  graph.set_input(node, 0, graph.node(inner).outputs[0]);
  return {};
}

constexpr VersionStep kSteps[] = {{13, flattened, last_axis}};

const OpDef kOps[] = {
    {"Hardmax", OpForm::kReduction, 13, infer_softmax, build_hardmax, kSteps},
    {"LogSoftmax", OpForm::kReduction, 13, infer_softmax, build<true>, kSteps},
    {"Softmax", OpForm::kReduction, 13, infer_softmax, build<false>, kSteps},
};

}  // namespace

std::span<const OpDef> softmax_ops() { return kOps; }

}  // namespace optc
