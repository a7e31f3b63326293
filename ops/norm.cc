// Normalizations. Statistics and the whole formula are computed in f32 (f64 for f64) and rounded once, at the output.

#include "ops/pointwise.h"
#include "ops/rows.h"
#include "ops/util.h"

namespace optc {
namespace {

using Index = std::vector<Dim>;

float epsilon_of(const Node &node) { return node.float_or("epsilon", 1e-5f); }
Expr inverse_root(Expr x) { return 1.0 / square_root(x); }
// Scales and biases may have another float type than the data.
Expr parameter(BuildContext &c, NestBuilder &nest, size_t input, const Index &index, ElementType type) {
  return cast(nest.load(c.input(input), index), type);
}

// --- LayerNormalization, RMSNormalization --------------------------------------------------------------------

Result<int64_t> first_axis(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  return c.axis(c.node().int_or("axis", -1), c.rank(0));
}
int64_t first_axis(BuildContext &c, size_t rank) {
  const int64_t axis = c.node().int_or("axis", -1);
  return axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
}
Shape statistics_shape(const Shape &x, int64_t axis) {
  Shape shape = x;
  for (size_t k = static_cast<size_t>(axis); k < shape.size(); ++k) shape[k] = 1;
  return shape;
}
Status check_scale(InferContext &c, size_t input) {
  if (!c.has_input(input) || !c.has_shape(input)) return {};
  OPTC_ASSIGN(const Shape all, c.broadcast({c.shape(0), c.shape(input)}));
  if (all.size() != c.shape(0).size()) return c.invalid("a scale or bias has a higher rank than the input");
  return {};
}

Status infer_layer_norm(InferContext &c) {
  OPTC_ASSIGN(const int64_t axis, first_axis(c));
  OPTC_TRY(check_scale(c, 1));
  OPTC_TRY(check_scale(c, 2));
  c.set(0, c.input(0));
  const Shape statistics = statistics_shape(c.shape(0), axis);
  const ElementType stash = static_cast<ElementType>(c.node().int_or("stash_type", 1));
  c.set_tensor(1, stash, statistics);
  c.set_tensor(2, stash, statistics);
  return {};
}

struct NormForm {
  size_t bias = SIZE_MAX;  // input number; the scale is input 1
  bool centred = true;
  size_t mean_output = SIZE_MAX, inverse_output = SIZE_MAX;
};

Status build_row_norm(BuildContext &c, const NormForm &form, int64_t axis) {
  const Shape shape = c.shape(0);
  NestBuilder nest(c, c.node().op);
  Rows rows(nest, shape, inside_from(shape.size(), axis));
  auto load = [&](const Index &at) { return nest.load(c.input(0), at); };
  Expr mean, variance;
  if (form.centred) {
    const Moments m = moments(nest, rows, load);
    mean = m.mean;
    variance = m.variance;
  } else {
    const Expr x = load(rows.open());
    const Expr sum = nest.reduce(Combine::kSum, x * x);
    variance = sum / cast(nest.index(rows.count()), sum.type());
  }
  const Expr inverse = inverse_root(variance + static_cast<double>(epsilon_of(c.node())));
  const Index at = rows.open();
  const Expr x = load(at);
  Expr y = (form.centred ? x - mean : x) * inverse;
  y = y * parameter(c, nest, 1, broadcast_index(at, c.shape(1), shape), y.type());
  if (form.bias != SIZE_MAX && c.has_input(form.bias))
    y = y + parameter(c, nest, form.bias, broadcast_index(at, c.shape(form.bias), shape), y.type());
  nest.store(c.output(0), at, y);
  nest.end_stage();
  if (form.mean_output != SIZE_MAX && c.has_output(form.mean_output))
    nest.store(c.output(form.mean_output), rows.outer(true), mean);
  if (form.inverse_output != SIZE_MAX && c.has_output(form.inverse_output))
    nest.store(c.output(form.inverse_output), rows.outer(true), inverse);
  nest.finish();
  return {};
}

Status build_layer_norm(BuildContext &c) {
  NormForm form;
  form.bias = 2;
  form.mean_output = 1;
  form.inverse_output = 2;
  return build_row_norm(c, form, first_axis(c, c.shape(0).size()));
}

Status infer_rms_norm(InferContext &c) {
  OPTC_ASSIGN([[maybe_unused]] const int64_t axis, first_axis(c));
  OPTC_TRY(check_scale(c, 1));
  c.set(0, Type::tensor(c.element(1), c.shape(0)));
  return {};
}
Status build_rms_norm(BuildContext &c) {
  NormForm form;
  form.centred = false;
  return build_row_norm(c, form, first_axis(c, c.shape(0).size()));
}

// --- InstanceNormalization, GroupNormalization ---------------------------------------------------------------

Status infer_channel_norm(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) < 2) return c.invalid("the input must have batch and channels");
  for (size_t i = 1; i < 3; ++i) {
    if (!c.has_input(i) || !c.has_shape(i)) continue;
    if (c.rank(i) != 1) return c.invalid("scale and bias must be vectors");
    OPTC_ASSIGN([[maybe_unused]] Dim d,
                c.same(c.shape(i)[0], c.shape(0)[1], "the number of channels and the length of scale and bias"));
  }
  c.set(0, c.input(0));
  return {};
}
Status build_instance_norm(BuildContext &c) {
  const Shape shape = c.shape(0);
  NestBuilder nest(c, c.node().op);
  Rows rows(nest, shape, inside_from(shape.size(), 2));
  auto load = [&](const Index &at) { return nest.load(c.input(0), at); };
  const Moments m = moments(nest, rows, load);
  const Expr inverse = inverse_root(m.variance + static_cast<double>(epsilon_of(c.node())));
  const Index at = rows.open();
  const Expr x = load(at);
  const Expr scale = parameter(c, nest, 1, {at[1]}, x.type()), bias = parameter(c, nest, 2, {at[1]}, x.type());
  nest.store(c.output(0), at, (x - m.mean) * inverse * scale + bias);
  nest.finish();
  return {};
}

Status infer_group_norm(InferContext &c) {
  OPTC_TRY(infer_channel_norm(c));
  const int64_t groups = c.node().int_or("num_groups", 0);
  if (groups <= 0) return c.invalid("attribute 'num_groups' must be positive");
  const Dim channels = c.shape(0)[1], per_group = floor_div(channels, groups);
  if (per_group * Dim(groups) != channels) {
    if (channels.is_constant()) return c.invalid("the number of channels is not a multiple of num_groups");
    c.constrain(channels, per_group * Dim(groups));
  }
  return {};
}
Status build_group_norm(BuildContext &c) {
  const Shape shape = c.shape(0);
  const int64_t groups = c.node().int_or("num_groups", 1);
  const Dim per_group = floor_div(shape[1], groups);
  Shape view = shape;  // [N, G, C / G, ...]
  view[1] = per_group;
  view.insert(view.begin() + 1, Dim(groups));
  NestBuilder nest(c, c.node().op);
  Rows rows(nest, view, inside_from(view.size(), 2));
  auto whole = [&](Index at) {
    at[2] = at[1] * per_group + at[2];
    at.erase(at.begin() + 1);
    return at;
  };
  auto load = [&](const Index &at) { return nest.load(c.input(0), whole(at)); };
  const Moments m = moments(nest, rows, load);
  const Expr inverse = inverse_root(m.variance + static_cast<double>(epsilon_of(c.node())));
  const Index view_at = rows.open(), at = whole(view_at);
  const Expr x = load(view_at);
  const Expr scale = parameter(c, nest, 1, {at[1]}, x.type()), bias = parameter(c, nest, 2, {at[1]}, x.type());
  nest.store(c.output(0), at, (x - m.mean) * inverse * scale + bias);
  nest.finish();
  return {};
}
// Opset 18 had one scale and bias a group.
Status scales_per_channel(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Type x = graph.value(graph.node(node).inputs[0]).type;
  const int64_t groups = graph.node(node).int_or("num_groups", 0);
  if (!x.has_shape() || x.rank() < 2 || groups <= 0 || !exact_div((*x.shape)[1], groups) ||
      !(*x.shape)[1].is_constant())
    return diagnostics.error(ErrorKind::kUnsupported,
                             "the number of channels must be known and a multiple of num_groups", graph.describe(node));
  const int64_t channels = (*x.shape)[1].value(), per_group = channels / groups;
  if (per_group == 1) return {};
  auto insert = [&](const char *op, std::vector<ValueId> inputs) {
    const std::string name = graph.unique_name(graph.node(node).name + "_" + op);
    const NodeId n = graph.add_node(graph.node(node).region, op, name, std::move(inputs), {{name, Type()}}, {}, node);
    return n;
  };
  auto list = [&](const char *what, std::vector<int64_t> values) {
    return graph.add_constant(graph.unique_name(graph.node(node).name + "_" + what), Constant::int64s(values));
  };
  for (size_t i = 1; i < 3; ++i) {
    const ValueId v = graph.node(node).inputs[i];
    const NodeId column = insert("Unsqueeze", {v, list("axes", {1})});
    OPTC_TRY(infer_node(graph, column, diagnostics));
    const NodeId wide = insert("Expand", {graph.node(column).outputs[0], list("shape", {groups, per_group})});
    OPTC_TRY(infer_node(graph, wide, diagnostics));
    const NodeId flat = insert("Reshape", {graph.node(wide).outputs[0], list("length", {channels})});
    graph.set_attribute(flat, "allowzero", int64_t{0});
    OPTC_TRY(infer_node(graph, flat, diagnostics));
    graph.set_input(node, i, graph.node(flat).outputs[0]);
  }
  return {};
}

// --- BatchNormalization --------------------------------------------------------------------------------------

Status infer_batch_norm(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Dim channels = c.rank(0) > 1 ? c.shape(0)[1] : Dim(1);
  for (size_t i = 1; i < 5; ++i) {
    if (!c.has_input(i) || !c.has_shape(i)) continue;
    if (c.rank(i) != 1) return c.invalid("scale, bias, mean and variance must be vectors");
    OPTC_ASSIGN([[maybe_unused]] Dim d,
                c.same(c.shape(i)[0], channels, "the number of channels and the length of the statistics"));
  }
  c.set(0, c.input(0));
  for (size_t i = 1; i < c.output_count(); ++i) {
    const ValueId statistic = c.node().output(i);
    if (statistic.valid() && !c.graph().value(statistic).uses.empty() && !c.node().int_or("training_mode", 0))
      return c.invalid("only training_mode = 1 gives running statistics");
    c.set_tensor(i, c.element(i == 2 ? 4 : 3), {channels});
  }
  return {};
}
Status build_batch_norm(BuildContext &c) {
  const Shape shape = c.shape(0);
  const size_t rank = shape.size();
  const double epsilon = epsilon_of(c.node());
  NestBuilder nest(c, c.node().op);
  if (!c.node().int_or("training_mode", 0)) {
    const Index at = nest.outer(shape);
    const Index channel = {rank > 1 ? at[1] : Dim(0)};
    const Expr x = nest.load(c.input(0), at);
    const ElementType type = x.type();
    const Expr inverse = inverse_root(parameter(c, nest, 4, channel, type) + epsilon);
    const Expr factor = parameter(c, nest, 1, channel, type) * inverse;
    nest.store(c.output(0), at,
               (x - parameter(c, nest, 3, channel, type)) * factor + parameter(c, nest, 2, channel, type));
    nest.finish();
    return {};
  }
  std::vector<bool> inside(rank, true);
  if (rank > 1) inside[1] = false;
  Rows rows(nest, shape, inside);
  auto load = [&](const Index &at) { return nest.load(c.input(0), at); };
  const Moments m = moments(nest, rows, load);
  const Index at = rows.open();
  const Index channel = {rank > 1 ? at[1] : Dim(0)};
  const Expr x = load(at);
  const Expr factor = parameter(c, nest, 1, channel, x.type()) * inverse_root(m.variance + epsilon);
  nest.store(c.output(0), at, (x - m.mean) * factor + parameter(c, nest, 2, channel, x.type()));
  nest.end_stage();
  const float momentum = c.node().float_or("momentum", 0.9f);
  const Expr now[2] = {m.mean, m.variance};
  for (size_t k = 0; k < 2; ++k) {
    if (!c.has_output(1 + k)) continue;
    const Expr old = parameter(c, nest, 3 + k, channel, x.type());
    nest.store(c.output(1 + k), channel, old * momentum + now[k] * (1.0f - momentum));
  }
  nest.finish();
  return {};
}
Status batch_norm_inference(Graph &graph, NodeId node, Diagnostics &) {
  graph.remove_attribute(node, "consumed_inputs");
  graph.remove_attribute(node, "is_test");
  return {};
}
// With spatial = 0 the statistics have an element for each of a sample's: what broadcasts is said by the operators of
// the formula.
Status batch_norm_spatial(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const bool spatial = graph.node(node).int_or("spatial", 1) != 0;
  graph.remove_attribute(node, "spatial");
  if (spatial) return {};
  const Node n = graph.node(node);
  if (n.outputs.size() > 1)
    return diagnostics.error(ErrorKind::kUnsupported, "BatchNormalization with spatial = 0 is supported for inference",
                             graph.describe(node));
  const ElementType type = graph.value(n.input(0)).type.element;
  Status status;
  const auto insert = [&](const char *op, std::vector<ValueId> inputs) {
    const std::string name = graph.unique_name(n.name + "_" + op);
    const NodeId made = graph.add_node(n.region, op, name, std::move(inputs), {{name, Type()}}, {}, node);
    if (status) status = infer_node(graph, made, diagnostics);
    return graph.node(made).outputs[0];
  };
  const ValueId epsilon = graph.add_constant(graph.unique_name(n.name + "_epsilon"),
                                             Constant::scalar(type, static_cast<double>(n.float_or("epsilon", 1e-5f))));
  const ValueId deviation = insert("Sqrt", {insert("Add", {n.input(4), epsilon})});
  const ValueId scaled =
      insert("Mul", {insert("Div", {insert("Sub", {n.input(0), n.input(3)}), deviation}), n.input(1)});
  OPTC_TRY(status);
  for (const char *attribute : {"epsilon", "momentum"}) graph.remove_attribute(node, attribute);
  for (size_t i = 5; i-- > 2;) graph.set_input(node, i, ValueId());
  graph.set_input(node, 0, scaled);
  graph.set_input(node, 1, n.input(2));
  graph.set_op(node, "Add");
  return {};
}
// Before opset 14 the outputs behind the first said that the node trains.
Status batch_norm_training(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  bool trains = false;
  for (size_t i = 1; i < graph.node(node).outputs.size(); ++i) {
    const ValueId v = graph.node(node).outputs[i];
    trains |= v.valid() && !graph.value(v).uses.empty();
  }
  if (trains)
    return diagnostics.error(ErrorKind::kUnsupported, "BatchNormalization in training mode needs opset 14",
                             graph.describe(node));
  return {};
}

Status batch_norm_only_infers(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (graph.node(node).int_or("training_mode", 0))
    return diagnostics.error(ErrorKind::kUnsupported, "BatchNormalization in training mode needs opset 14",
                             graph.describe(node));
  graph.remove_attribute(node, "training_mode");
  return {};
}

// --- LpNormalization, MeanVarianceNormalization, LRN ---------------------------------------------------------

Status infer_axis_norm(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_ASSIGN([[maybe_unused]] int64_t axis, c.axis(c.node().int_or("axis", -1), c.rank(0)));
  c.set(0, c.input(0));
  return {};
}
Status build_lp_norm(BuildContext &c) {
  const Shape shape = c.shape(0);
  const bool first = c.node().int_or("p", 2) == 1;
  NestBuilder nest(c, c.node().op);
  Rows rows(nest, shape, inside_axis(shape.size(), first_axis(c, shape.size())));
  Expr x = nest.load(c.input(0), rows.open());
  Expr norm = nest.reduce(Combine::kSum, first ? absolute(x) : x * x);
  if (!first) norm = square_root(norm);
  const Index at = rows.open();
  x = nest.load(c.input(0), at);
  nest.store(c.output(0), at, select(apply(ScalarOp::kEq, norm, norm.constant(0)), x.constant(0), x / norm));
  nest.finish();
  return {};
}

Status infer_mvn(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (const auto *axes = c.node().ints("axes"))
    for (int64_t a : *axes) {
      OPTC_ASSIGN([[maybe_unused]] int64_t axis, c.axis(a, c.rank(0)));
    }
  c.set(0, c.input(0));
  return {};
}
Status build_mvn(BuildContext &c) {
  const Shape shape = c.shape(0);
  const int64_t rank = static_cast<int64_t>(shape.size());
  std::vector<bool> inside(shape.size(), false);
  static const std::vector<int64_t> kImages = {0, 2, 3};
  const auto *given = c.node().ints("axes");
  for (int64_t a : given ? *given : kImages) inside[static_cast<size_t>(a < 0 ? a + rank : a)] = true;
  NestBuilder nest(c, c.node().op);
  Rows rows(nest, shape, inside);
  auto load = [&](const Index &at) { return nest.load(c.input(0), at); };
  const Moments m = moments(nest, rows, load);
  const Expr deviation = square_root(m.variance) + 1e-9;
  const Index at = rows.open();
  nest.store(c.output(0), at, (load(at) - m.mean) / deviation);
  nest.finish();
  return {};
}

Status infer_lrn(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) < 2) return c.invalid("the input must have batch and channels");
  if (c.node().int_or("size", 0) < 1) return c.invalid("attribute 'size' must be positive");
  c.set(0, c.input(0));
  return {};
}
Status build_lrn(BuildContext &c) {
  const Shape shape = c.shape(0);
  const int64_t size = c.node().int_or("size", 1);
  NestBuilder nest(c, c.node().op);
  const Index at = nest.outer(shape);
  const Dim w = nest.stage_loop("w", size);
  const Dim channel = at[1] + w - Dim((size - 1) / 2);
  Index near = at;
  near[1] = max(min(channel, shape[1] - Dim(1)), 0);
  const Expr neighbour = nest.load(c.input(0), near);
  const Expr inside = in_range(nest, channel, shape[1]);
  const Expr sum = nest.reduce(Combine::kSum, neighbour * neighbour, {}, inside);
  const Expr base = sum * (static_cast<double>(c.node().float_or("alpha", 1e-4f)) / static_cast<double>(size)) +
                    static_cast<double>(c.node().float_or("bias", 1));
  const Expr x = nest.load(c.input(0), at);
  nest.store(c.output(0), at, x / apply(ScalarOp::kPow, base, base.constant(c.node().float_or("beta", 0.75f))));
  nest.finish();
  return {};
}

Status drop_old(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  return drop_consumed_inputs(graph, node, diagnostics);
}

constexpr VersionStep kSince6[] = {{6, drop_old, nullptr}};
constexpr VersionStep kGroupSteps[] = {{21, scales_per_channel, nullptr}};  // down: emit/onnx/norm_chains.cc
constexpr VersionStep kBatchSteps[] = {{7, batch_norm_inference, nullptr},
                                       {9, batch_norm_spatial, nullptr},
                                       {14, batch_norm_training, batch_norm_only_infers}};

constexpr auto kForm = OpForm::kExpansion;
const OpDef kOps[] = {
    {"BatchNormalization", OpForm::kPointwise, 15, infer_batch_norm, build_batch_norm, kBatchSteps},
    {"GroupNormalization", kForm, 21, infer_group_norm, build_group_norm, kGroupSteps},
    {"InstanceNormalization", kForm, 22, infer_channel_norm, build_instance_norm, kSince6},
    {"LRN", kForm, 13, infer_lrn, build_lrn},
    {"LayerNormalization", kForm, 17, infer_layer_norm, build_layer_norm},
    {"LpNormalization", kForm, 22, infer_axis_norm, build_lp_norm},
    {"MeanVarianceNormalization", kForm, 13, infer_mvn, build_mvn},
    {"RMSNormalization", kForm, 23, infer_rms_norm, build_rms_norm},
};

}  // namespace

std::span<const OpDef> norm_ops() { return kOps; }

}  // namespace optc
