// Activations.

#include <limits>

#include "ops/pointwise.h"

namespace optc {
namespace {

Status infer_type(InferContext &c) {
  c.set(0, c.input(0));
  return {};
}

using Formula = Expr (*)(const Node &, Expr);
template <Formula formula>
Status build_formula(BuildContext &c) {
  return c.pointwise({0}, 0, [&](NestBuilder &, std::vector<Expr> x) { return formula(c.node(), x[0]); });
}

Expr relu(const Node &, Expr x) { return maximum(x, x.constant(0)); }
Expr leaky_relu(const Node &n, Expr x) { return select(is_below(x, 0), x * n.float_or("alpha", 0.01f), x); }
Expr elu(const Node &n, Expr x) {
  return select(is_below(x, 0), apply(ScalarOp::kExpm1, x) * n.float_or("alpha", 1), x);
}
Expr selu(const Node &n, Expr x) {
  const double alpha = n.float_or("alpha", 1.67326319217681884765625f),
               gamma = n.float_or("gamma", 1.05070102214813232421875f);
  return select(is_above(x, 0), x * gamma, apply(ScalarOp::kExpm1, x) * alpha * gamma);
}
Expr celu(const Node &n, Expr x) {
  const double alpha = n.float_or("alpha", 1);
  return maximum(x, x.constant(0)) + minimum(apply(ScalarOp::kExpm1, x / alpha) * alpha, x.constant(0));
}
Expr gelu_op(const Node &n, Expr x) { return gelu(x, n.string_or("approximate", "none") == "tanh"); }
Expr mish(const Node &, Expr x) { return x * apply(ScalarOp::kTanh, softplus(x)); }
Expr hard_sigmoid(const Node &n, Expr x) {
  const Expr line = x * n.float_or("alpha", 0.2f) + n.float_or("beta", 0.5f);
  return maximum(minimum(line, x.constant(1)), x.constant(0));
}
Expr hard_swish(const Node &, Expr x) {
  return x * maximum(minimum(x * (1.0 / 6) + 0.5, x.constant(1)), x.constant(0));
}
Expr swish(const Node &n, Expr x) { return x * sigmoid(x * n.float_or("alpha", 1)); }
Expr softplus_op(const Node &, Expr x) { return softplus(x); }
Expr softsign(const Node &, Expr x) { return x / (absolute(x) + 1); }
Expr sigmoid_op(const Node &, Expr x) { return sigmoid(x); }
Expr thresholded_relu(const Node &n, Expr x) { return select(is_above(x, n.float_or("alpha", 1)), x, x.constant(0)); }
Expr shrink(const Node &n, Expr x) {
  const double lambda = n.float_or("lambd", 0.5f), bias = n.float_or("bias", 0);
  if (!is_float(x.type())) x = cast(x, ElementType::kFloat64);  // the attributes are real numbers
  return select(is_below(x, -lambda), x + bias, select(is_above(x, lambda), x - bias, x.constant(0)));
}

// The slope broadcasts to the input, says ONNX; a larger one is taken as ONNX Runtime takes it: both broadcast.
Status infer_prelu(InferContext &c) {
  if (c.has_shape(0) && c.has_shape(1)) return infer_broadcast(c, c.element(0));
  return infer_type(c);
}
Status build_prelu(BuildContext &c) {
  return c.pointwise({0, 1}, 0, [](NestBuilder &, std::vector<Expr> x) {
    if (is_unsigned_integer(x[0].type())) return x[0];
    return select(is_below(x[0], 0), x[0] * x[1], x[0]);
  });
}
// Before opset 7 a slope of one dimension belonged to the channels (axis 1), whatever follows them.
Status prelu_channels(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  graph.remove_attribute(node, "consumed_inputs");
  const Node &n = graph.node(node);
  const Type x = graph.value(n.inputs[0]).type, slope = graph.value(n.inputs[1]).type;
  if (!x.has_shape() || !slope.has_shape() || slope.rank() != 1 || x.rank() < 3 || (*slope.shape)[0].is(1)) return {};
  graph.set_attribute(node, "broadcast", int64_t{1});
  graph.set_attribute(node, "axis", int64_t{1});
  return legacy_broadcast(graph, node, diagnostics);
}

// Opset 6: attributes min and max; 11: inputs.
Status clip_bounds(Graph &graph, NodeId node, Diagnostics &) {
  const Node &n = graph.node(node);
  const Type type = graph.value(n.inputs[0]).type;
  const char *names[2] = {"min", "max"};
  for (size_t k = 0; k < 2; ++k) {
    const Attribute *a = n.attribute(names[k]);
    if (!a || !std::holds_alternative<float>(*a)) continue;
    const float bound = std::get<float>(*a);
    // The attribute's default, the largest float, bounds nothing but infinity; it is kept, as the version says.
    const std::string name = graph.unique_name(n.name + "_" + names[k]);
    graph.set_input(node, 1 + k, graph.add_constant(name, Constant::scalar(type.element, bound)));
    graph.remove_attribute(node, names[k]);
  }
  return {};
}
Status clip_attributes(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Node &n = graph.node(node);
  const char *names[2] = {"min", "max"};
  for (size_t k = 0; k < 2; ++k) {
    const ValueId v = n.input(1 + k);
    if (!v.valid()) continue;
    const Constant *c = graph.constant(v);
    if (!c || c->count() != 1 || !is_float(c->type()))
      return diagnostics.error(ErrorKind::kUnsupported, "Clip by values that are not constant needs opset 11",
                               graph.describe(node));
  }
  for (size_t k = 2; k-- > 0;) {
    const ValueId v = n.input(1 + k);
    if (!v.valid()) continue;
    graph.set_attribute(node, names[k], static_cast<float>(graph.constant(v)->as_double(0)));
    graph.set_input(node, 1 + k, ValueId());
  }
  return {};
}
Status infer_clip(InferContext &c) {
  for (size_t i = 1; i < 3; ++i)
    if (c.has_input(i) && c.has_shape(i) && !element_count(c.shape(i)).is(1) && element_count(c.shape(i)).is_constant())
      return c.invalid(std::string("input '") + (i == 1 ? "min" : "max") + "' must be a scalar");
  c.set(0, c.input(0));
  if (const std::vector<Dim> *x = c.elements(0)) {
    const std::vector<Dim> *low = c.elements(1), *high = c.elements(2);
    if ((c.has_input(1) && (!low || low->size() != 1)) || (c.has_input(2) && (!high || high->size() != 1))) return {};
    std::vector<Dim> result;
    for (Dim d : *x) {
      if (low) d = max(d, (*low)[0]);
      if (high) d = min(d, (*high)[0]);
      result.push_back(d);
    }
    c.set_elements(0, std::move(result));
  }
  return {};
}
// The largest number of a type of floats.
double largest_number(ElementType type) {
  if (type == ElementType::kFloat16) return 65504;
  if (type == ElementType::kBFloat16) return 0x1.fep127;
  return type == ElementType::kFloat64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
}

// An absent bound is the lowest or the largest number, so that an infinity becomes a number (ONNX, Clip-6 and later).
Status build_clip(BuildContext &c) {
  std::vector<size_t> inputs = {0};
  if (c.has_input(1)) inputs.push_back(1);
  if (c.has_input(2)) inputs.push_back(2);
  const ElementType type = c.input_type(0).element;
  return c.pointwise(inputs, 0, [&](NestBuilder &nest, std::vector<Expr> v) {
    Expr x = v[0];
    size_t next = 1;
    const auto absent = [&](double bound) { return nest.constant(x.type(), bound); };
    if (c.has_input(1) || is_float(type)) x = maximum(x, c.has_input(1) ? v[next++] : absent(-largest_number(type)));
    if (c.has_input(2) || is_float(type)) x = minimum(x, c.has_input(2) ? v[next++] : absent(largest_number(type)));
    return x;
  });
}

// SwiGLU and the like are functions of ONNX and expand at import.

constexpr VersionStep kSince6[] = {{6, drop_consumed_inputs, nullptr}};
constexpr VersionStep kPreluSteps[] = {{7, prelu_channels, nullptr}};
constexpr VersionStep kClipSteps[] = {{6, drop_consumed_inputs, nullptr}, {11, clip_bounds, clip_attributes}};

constexpr auto kForm = OpForm::kPointwise;
const OpDef kOps[] = {
    {"Celu", kForm, 28, infer_type, build_formula<celu>},
    {"Clip", kForm, 13, infer_clip, build_clip, kClipSteps},
    {"Elu", kForm, 22, infer_type, build_formula<elu>, kSince6},
    {"Gelu", kForm, 20, infer_type, build_formula<gelu_op>},
    {"HardSigmoid", kForm, 22, infer_type, build_formula<hard_sigmoid>, kSince6},
    {"HardSwish", kForm, 22, infer_type, build_formula<hard_swish>},
    {"LeakyRelu", kForm, 16, infer_type, build_formula<leaky_relu>, kSince6},
    {"Mish", kForm, 22, infer_type, build_formula<mish>},
    {"PRelu", kForm, 16, infer_prelu, build_prelu, kPreluSteps},
    {"Relu", kForm, 14, infer_type, build_formula<relu>, kSince6},
    {"Selu", kForm, 22, infer_type, build_formula<selu>, kSince6},
    {"Shrink", kForm, 9, infer_type, build_formula<shrink>},
    {"Sigmoid", kForm, 13, infer_type, build_formula<sigmoid_op>, kSince6},
    {"Softplus", kForm, 22, infer_type, build_formula<softplus_op>},
    {"Softsign", kForm, 22, infer_type, build_formula<softsign>},
    {"Swish", kForm, 24, infer_type, build_formula<swish>},
    {"ThresholdedRelu", kForm, 22, infer_type, build_formula<thresholded_relu>},
};

}  // namespace

std::span<const OpDef> activation_ops() { return kOps; }

}  // namespace optc
