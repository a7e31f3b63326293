// Operators that only optc has, said in ONNX's.
#include <cmath>

#include "emit/onnx/internal_export.h"
#include "ops/extern.h"
#include "ops/util.h"

namespace optc {
namespace {

// optc.Attention (ops/fused_attention.cc) as the chain that it came from. ai.onnx's Attention means something else
// where no key is left: 0, which would hide the chain's NaN; and runtimes refuse it with a mask that broadcasts over
// the queries or keys, with no keys and with a scale that is not positive.
Status lower_attention(Graph &graph, NodeId id, Diagnostics &diagnostics) {
  const Node node = graph.node(id);
  const float scale = node.float_or("scale", 1.0f);
  const bool guarded = node.int_or("zero_masked_rows", 0) != 0;
  const ValueId out = node.outputs[0];
  const ElementType element = graph.value(node.inputs[0]).type.element;
  std::vector<NodeId> made;
  auto add = [&](const char *op, std::vector<ValueId> inputs,
                 std::vector<std::pair<std::string, Attribute>> attributes = {}) {
    const std::string name = graph.unique_name(node.name + "/" + op);
    const NodeId n =
        graph.add_node(node.region, op, name, std::move(inputs), {{name, Type()}}, std::move(attributes), id);
    graph.set_origin(n, node.origin);
    made.push_back(n);
    return graph.node(n).outputs[0];
  };
  auto number = [&](const char *name, double value) {
    return graph.add_constant(graph.unique_name(node.name + "/" + name), Constant::scalar(element, value));
  };
  // Products of 16 bits overflow where their scaled values do not: there the scale stands before the product, on both
  // sides, on the keys' side as a power of two, which rounds nothing.
  double queries_scale = 1, keys_scale = 1, scores_scale = static_cast<double>(scale);
  if (scale != 0 && (element == ElementType::kFloat16 || element == ElementType::kBFloat16)) {
    keys_scale = std::exp2(std::round(std::log2(std::fabs(scores_scale)) / 2));
    queries_scale = scores_scale / keys_scale;
    scores_scale = 1;
  }
  auto scaled = [&](ValueId v, const char *what, double by) { return by == 1 ? v : add("Mul", {v, number(what, by)}); };
  // Heads that share keys and values get them repeated.
  const int64_t heads = (*graph.value(node.inputs[0]).type.shape)[1].is_constant()
                            ? (*graph.value(node.inputs[0]).type.shape)[1].value()
                            : 0;
  auto repeated = [&](ValueId v, const char *what) {
    const Shape shape = *graph.value(v).type.shape;
    if (heads == 0 || !shape[1].is_constant() || shape[1].value() == heads) return v;
    const auto list = [&](const char *part, const std::vector<int64_t> &values) {
      return graph.add_constant(graph.unique_name(node.name + "/" + what + "_" + part), Constant::int64s(values));
    };
    const ValueId one = add("Unsqueeze", {v, list("axes", {2})});
    const ValueId all = add("Expand", {one, list("groups", {1, 1, heads / shape[1].value(), 1, 1})});
    const ValueId part = add("Transpose", {all}, {{"perm", std::vector<int64_t>{0, 3, 1, 2, 4}}});
    // [B,T,G,H/G,D]: the first two dims are copied, so that none need be known.
    const ValueId joined = add("Reshape", {part, list("heads", {0, 0, heads, -1})}, {{"allowzero", int64_t{0}}});
    return add("Transpose", {joined}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  };
  const ValueId queries = scaled(node.inputs[0], "queries_scale", queries_scale);
  const ValueId keys = add("Transpose", {scaled(repeated(node.inputs[1], "keys"), "keys_scale", keys_scale)},
                           {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  ValueId scores = scaled(add("MatMul", {queries, keys}), "scale", scores_scale);
  if (const ValueId mask = node.input(3); mask.valid()) {
    if (graph.value(mask).type.element == ElementType::kBool)
      scores = add("Where", {mask, scores, number("excluded", -INFINITY)});
    else
      scores = add("Add", {scores, mask});
  }
  ValueId weights = add("Softmax", {scores}, {{"axis", int64_t{-1}}});
  if (guarded) {
    const ValueId empty = add("IsNaN", {weights});
    weights = add("Where", {empty, number("zero", 0), weights});
  }
  const ValueId result = add("MatMul", {weights, repeated(node.inputs[2], "values")});
  for (NodeId n : made) OPTC_TRY(infer_node(graph, n, diagnostics));
  const std::string name = graph.value(out).name;
  graph.replace_uses(out, result);
  graph.erase_node(id);
  graph.rename_value(result, name);
  return {};
}

// optc.Fail (ops/control.cc), a branch that cannot run: ONNX has no such operator, so an index that is out of range
// whenever the branch is taken, and the declared types made of what it would give. The index is made of the branch's
// condition, so that it is not known before. Where the condition is, no run takes the branch, and nothing need fail.
Status lower_fail(Graph &graph, NodeId id, Diagnostics &diagnostics) {
  const Node node = graph.node(id);
  const NodeId owner = graph.region(node.region).owner;
  if (!owner.valid() || graph.node(owner).op != "If")
    return diagnostics.error(ErrorKind::kUnsupported, "a branch that cannot run has no form in ONNX here",
                             graph.describe(id));
  std::vector<NodeId> made;
  auto add = [&](const char *op, std::vector<ValueId> inputs,
                 std::vector<std::pair<std::string, Attribute>> attributes = {}) {
    const std::string name = graph.unique_name("cannot_run_" + std::string(op));
    const NodeId n =
        graph.add_node(node.region, op, name, std::move(inputs), {{name, Type()}}, std::move(attributes), id);
    graph.set_origin(n, node.origin);
    made.push_back(n);
    return graph.node(n).outputs[0];
  };
  auto numbers = [&](const std::vector<int64_t> &list) {
    return graph.add_constant(graph.unique_name("cannot_run_constant"), Constant::int64s(list));
  };
  // The condition is 0 or 1: one more is beyond a tensor of one element.
  const auto cast_to = [&](ValueId v, ElementType to) { return add("Cast", {v}, {{"to", static_cast<int64_t>(to)}}); };
  ValueId fault = numbers({0});
  if (!is_dead(graph, node.region)) {
    const ValueId taken = cast_to(graph.node(owner).inputs[0], ElementType::kInt64);
    const ValueId flat = add("Reshape", {taken, numbers({1})}, {{"allowzero", int64_t{0}}});
    fault = add("Gather", {fault, add("Add", {flat, numbers({1})})}, {{"axis", int64_t{0}}});
  }
  const std::vector<ValueId> outputs = node.outputs;
  std::vector<ValueId> results;
  for (const ValueId output : outputs) {
    const Type type = graph.value(output).type;
    if (!type.has_shape())
      return diagnostics.error(ErrorKind::kUnsupported, "a branch that cannot run gives " + to_string(type),
                               graph.describe(id));
    results.push_back(add("Reshape",
                          {cast_to(fault, type.element), numbers(std::vector<int64_t>(type.shape->size(), 1))},
                          {{"allowzero", int64_t{0}}}));
  }
  for (NodeId n : made) OPTC_TRY(infer_node(graph, n, diagnostics));
  graph.set_outputs(node.region, results);
  graph.erase_node(id);
  return {};
}

}  // namespace

Status lower_own_operators(Graph &graph, Diagnostics &diagnostics) {
  for (NodeId id : graph.all_nodes()) {
    if (graph.node(id).op == "optc.Attention") OPTC_TRY(lower_attention(graph, id, diagnostics));
    if (graph.node(id).op == "optc.Fail") OPTC_TRY(lower_fail(graph, id, diagnostics));
    if (graph.node(id).op == "optc.Extern") {  // the model's own operator again
      std::string op(graph.node(id).string_or(kExternOperator, ""));
      op.replace(op.find("::"), 2, ".");
      graph.remove_attribute(id, kExternOperator);
      graph.set_op(id, std::move(op));
    }
  }
  return {};
}

}  // namespace optc
