// Normalizations in opsets that lack their operator, or its form (before opset 21 GroupNormalization had one scale a
// group). ONNX's function bodies take the variance as mean(x^2) - mean(x)^2,
// of which nothing is left where the mean is large against the deviations; here it is mean((x - mean(x))^2).
#include "emit/onnx/internal_chain.h"
#include "emit/onnx/internal_export.h"

namespace optc {
namespace {

constexpr int64_t kLayerOpset = 17, kGroupOpset = 21;

struct Normal {
  ValueId value, mean, inverse;  // (x - mean) * inverse
};
// `inverse` only when asked for.
Normal normalize(Chain &chain, ValueId x, ElementType type, const std::vector<int64_t> &axes, float epsilon,
                 bool inverse) {
  const ValueId over = chain.constant("axes", Constant::int64s(axes));
  auto mean = [&](ValueId v) { return chain.add("ReduceMean", {v, over}, {{"keepdims", int64_t{1}}}); };
  Normal n;
  n.mean = mean(x);
  const ValueId centred = chain.add("Sub", {x, n.mean});
  const ValueId small = chain.constant("epsilon", Constant::scalar(type, static_cast<double>(epsilon)));
  const ValueId deviation = chain.add("Sqrt", {chain.add("Add", {mean(chain.add("Mul", {centred, centred})), small})});
  n.value = chain.add("Div", {centred, deviation});
  if (inverse) n.inverse = chain.add("Reciprocal", {deviation});
  return n;
}

// Halves are summed in f32, as the operators do.
ElementType statistics_type(ElementType element) {
  return element == ElementType::kFloat64 ? element : ElementType::kFloat32;
}

Status lower_layer_norm(Graph &graph, NodeId id, Diagnostics &diagnostics) {
  const Node node = graph.node(id);
  const Type x_type = graph.value(node.inputs[0]).type;
  const int64_t rank = x_type.rank(), axis = node.int_or("axis", -1);
  const ElementType type = statistics_type(x_type.element);
  const ElementType stash = static_cast<ElementType>(node.int_or("stash_type", 1));
  auto used = [&](size_t i) { return i < node.outputs.size() && node.outputs[i].valid(); };
  std::vector<int64_t> axes;
  for (int64_t k = axis < 0 ? axis + rank : axis; k < rank; ++k) axes.push_back(k);
  Chain chain(graph, id);
  const Normal n = normalize(chain, chain.cast(node.inputs[0], x_type.element, type), type, axes,
                             node.float_or("epsilon", 1e-5f), used(2));
  ValueId y = chain.add("Mul", {chain.cast(n.value, type, x_type.element), node.inputs[1]});
  if (node.input(2).valid()) y = chain.add("Add", {y, node.inputs[2]});
  const std::vector<ValueId> results{y, used(1) ? chain.cast(n.mean, type, stash) : ValueId(),
                                     used(2) ? chain.cast(n.inverse, type, stash) : ValueId()};
  OPTC_TRY(chain.infer(diagnostics));
  take_place(graph, id, results);
  return {};
}

// Scale and bias have one element a channel (opset 21's form).
Status lower_group_norm(Graph &graph, NodeId id, Diagnostics &diagnostics) {
  const Node node = graph.node(id);
  const Type x_type = graph.value(node.inputs[0]).type;
  const ElementType type = statistics_type(x_type.element);
  Chain chain(graph, id);
  const std::vector<std::pair<std::string, Attribute>> zero_copies{{"allowzero", int64_t{0}}};
  const ValueId groups = chain.constant("groups", Constant::int64s({0, node.int_or("num_groups", 1), -1}));
  const ValueId x = chain.cast(node.inputs[0], x_type.element, type);
  const Normal n = normalize(chain, chain.add("Reshape", {x, groups}, zero_copies), type, {2},
                             node.float_or("epsilon", 1e-5f), false);
  ValueId y = chain.add("Reshape", {n.value, chain.add("Shape", {node.inputs[0]})}, zero_copies);
  y = chain.cast(y, type, x_type.element);
  std::vector<int64_t> column(static_cast<size_t>(x_type.rank()) - 1, 1);
  column[0] = -1;
  const ValueId channels = chain.constant("channels", Constant::int64s(column));
  y = chain.add("Mul", {y, chain.add("Reshape", {node.inputs[1], channels}, zero_copies)});
  y = chain.add("Add", {y, chain.add("Reshape", {node.inputs[2], channels}, zero_copies)});
  OPTC_TRY(chain.infer(diagnostics));
  take_place(graph, id, {y});
  return {};
}

}  // namespace

Status lower_normalizations(Graph &graph, int64_t opset, Diagnostics &diagnostics) {
  for (NodeId id : graph.all_nodes()) {
    const std::string op = graph.node(id).op;
    if (op == "LayerNormalization" && opset < kLayerOpset) OPTC_TRY(lower_layer_norm(graph, id, diagnostics));
    if (op == "GroupNormalization" && opset < kGroupOpset) OPTC_TRY(lower_group_norm(graph, id, diagnostics));
  }
  return {};
}

}  // namespace optc
