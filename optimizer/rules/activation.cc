// activation.*: chains that exporters write for one activation -> ONNX's operator of that name.
#include <algorithm>
#include <cmath>

#include "optimizer/rules/chain.h"

namespace optc {
namespace {

bool is_float_tensor(const RuleContext &context, ValueId v) {
  return context.type(v).has_shape() && is_float(context.type(v).element);
}

Result<bool> replace(RuleContext &context, std::string_view rule, const std::vector<NodeId> &nodes, std::string op,
                     ValueId x, std::vector<std::pair<std::string, Attribute>> attributes) {
  const NodeId root = nodes.front();
  if (!(context.type(x) == context.type(context.output(root)))) return false;
  if (!closed(context, nodes)) {
    context.rewriter().missed(rule, root, "a value inside the chain is used elsewhere too");
    return false;
  }
  if (!context.may_make(rule, root, op, context.type(x).element)) return false;
  auto change = context.rewriter().begin(rule, RewriteKind::kFuse, root);
  change.numerics(NumericsClass::kReassociating);
  const NodeId made = change.create(std::move(op), {x}, std::move(attributes));
  change.replace(context.output(root), change.output(made));
  for (NodeId n : nodes) change.erase(n);
  OPTC_TRY(change.commit());
  return true;
}

// The factors of a product: x and one other value, with a number. Tries both orders.
template <typename F>
Result<bool> with_two_factors(RuleContext &context, NodeId n, F f) {
  if (!is_float_tensor(context, context.output(n))) return false;
  const auto product = take_product(context, n, 2);
  if (!product || product->factors.size() != 2) return false;
  for (size_t side = 0; side < 2; ++side) {
    OPTC_ASSIGN(const bool fired, f(*product, product->factors[side], product->factors[1 - side]));
    if (fired) return true;
  }
  return false;
}

void append(std::vector<NodeId> &nodes, const std::vector<NodeId> &more) {
  for (NodeId n : more)
    if (std::find(nodes.begin(), nodes.end(), n) == nodes.end()) nodes.push_back(n);
}

// 0.5 x (1 + f(p(x))) with f = Erf or Tanh: the nodes, and the polynomial p.
std::optional<Polynomial> gelu_inner(const RuleContext &context, const FactorList &product, ValueId x, ValueId gate,
                                     std::string_view function, std::vector<NodeId> &nodes) {
  double number = product.number;
  const NodeId add = context.producer(gate, "Add");
  if (!add.valid()) return std::nullopt;
  const auto sides = context.commuted(add, [&](ValueId c) { return context.scalar(c).has_value(); });
  if (!sides) return std::nullopt;
  const double one = *context.scalar(sides->second);
  const ElementType element = context.type(x).element;
  // number * (one + s * f(p)): the usual form has one = 1, number = 0.5; some write (0.5 + 0.5 f).
  NodeId inner = context.producer(sides->first, function);
  double scale = 1;
  nodes = product.nodes;
  nodes.push_back(add);
  if (!inner.valid()) {
    const NodeId mul = context.producer(sides->first, "Mul");
    if (!mul.valid()) return std::nullopt;
    const auto parts = context.commuted(mul, [&](ValueId c) { return context.scalar(c).has_value(); });
    if (!parts) return std::nullopt;
    scale = *context.scalar(parts->second);
    inner = context.producer(parts->first, function);
    if (!inner.valid()) return std::nullopt;
    nodes.push_back(mul);
  }
  if (!near(element, number * one, 0.5) || !near(element, number * scale, 0.5)) return std::nullopt;
  nodes.push_back(inner);
  std::vector<NodeId> more;
  const auto polynomial = take_polynomial(context, context.input(inner, 0), x, more);
  if (!polynomial) return std::nullopt;
  append(nodes, more);
  return polynomial;
}

Result<bool> gelu_erf(RuleContext &context, NodeId n) {
  return with_two_factors(context, n, [&](const FactorList &product, ValueId x, ValueId gate) -> Result<bool> {
    std::vector<NodeId> nodes;
    const auto p = gelu_inner(context, product, x, gate, "Erf", nodes);
    if (!p) return false;
    if ((*p)[0] != 0 || (*p)[2] != 0 || (*p)[3] != 0 || !near(context.type(x).element, (*p)[1], 0.70710678118654752)) {
      context.rewriter().missed("activation.gelu_erf", n, "the argument of Erf is not x / sqrt(2)");
      return false;
    }
    return replace(context, "activation.gelu_erf", nodes, "Gelu", x, {{"approximate", std::string("none")}});
  });
}

Result<bool> gelu_tanh(RuleContext &context, NodeId n) {
  return with_two_factors(context, n, [&](const FactorList &product, ValueId x, ValueId gate) -> Result<bool> {
    std::vector<NodeId> nodes;
    const auto p = gelu_inner(context, product, x, gate, "Tanh", nodes);
    if (!p) return false;
    const double root = 0.79788456080286536;  // sqrt(2 / pi)
    const ElementType element = context.type(x).element;
    if ((*p)[0] != 0 || (*p)[2] != 0 || !near(element, (*p)[1], root) ||
        !near(element, (*p)[3], root * 0.044715, 5e-6)) {
      context.rewriter().missed("activation.gelu_tanh", n, "the argument of Tanh is not sqrt(2/pi) (x + 0.044715 x^3)");
      return false;
    }
    return replace(context, "activation.gelu_tanh", nodes, "Gelu", x, {{"approximate", std::string("tanh")}});
  });
}

Result<bool> swish(RuleContext &context, NodeId n) {
  return with_two_factors(context, n, [&](const FactorList &product, ValueId x, ValueId gate) -> Result<bool> {
    const NodeId sigmoid = context.producer(gate, "Sigmoid");
    if (!sigmoid.valid() || product.number != 1) return false;
    std::vector<NodeId> nodes = product.nodes, more;
    nodes.push_back(sigmoid);
    const auto p = take_polynomial(context, context.input(sigmoid, 0), x, more);
    if (!p || (*p)[0] != 0 || (*p)[2] != 0 || (*p)[3] != 0) return false;
    const float alpha = static_cast<float>((*p)[1]);
    if (!std::isnormal(alpha)) {  // 0 * inf would be NaN where x * sigmoid(x * huge) is 0
      context.rewriter().missed("activation.swish", n, "alpha is out of the range of f32");
      return false;
    }
    if (!near(context.type(x).element, static_cast<double>(alpha), (*p)[1])) {
      context.rewriter().missed("activation.swish", n, "the attribute alpha of Swish has the digits of f32 alone");
      return false;
    }
    append(nodes, more);
    return replace(context, "activation.swish", nodes, "Swish", x, {{"alpha", alpha}});
  });
}

Result<bool> mish(RuleContext &context, NodeId n) {
  return with_two_factors(context, n, [&](const FactorList &product, ValueId x, ValueId gate) -> Result<bool> {
    const NodeId tanh = context.producer(gate, "Tanh");
    if (!tanh.valid() || product.number != 1) return false;
    const NodeId softplus = context.producer(context.input(tanh, 0), "Softplus");
    if (!softplus.valid() || context.input(softplus, 0) != x) return false;
    std::vector<NodeId> nodes = product.nodes;
    append(nodes, {tanh, softplus});
    return replace(context, "activation.mish", nodes, "Mish", x, {});
  });
}

// x * clip(x + 3, 0, 6) / 6, or x * HardSigmoid(x, 1/6, 1/2).
Result<bool> hard_swish(RuleContext &context, NodeId n) {
  return with_two_factors(context, n, [&](const FactorList &product, ValueId x, ValueId gate) -> Result<bool> {
    constexpr std::string_view kName = "activation.hard_swish";
    std::vector<NodeId> nodes = product.nodes;
    const ElementType element = context.type(x).element;
    if (const NodeId sigmoid = context.producer(gate, "HardSigmoid"); sigmoid.valid()) {
      if (product.number != 1 || context.input(sigmoid, 0) != x) return false;
      const Node &node = context.node(sigmoid);
      if (!near(element, static_cast<double>(node.float_or("alpha", 0.2f)), 1.0 / 6) ||
          !near(element, static_cast<double>(node.float_or("beta", 0.5f)), 0.5))
        return false;
      nodes.push_back(sigmoid);
      return replace(context, kName, nodes, "HardSwish", x, {});
    }
    const NodeId clip = context.producer(gate, "Clip");
    if (!clip.valid()) return false;
    nodes.push_back(clip);
    std::vector<NodeId> more;
    const auto p = take_polynomial(context, context.input(clip, 0), x, more);
    const auto low = context.scalar(context.input(clip, 1)), high = context.scalar(context.input(clip, 2));
    if (!p || !low || !high || (*p)[0] == 0 || (*p)[1] != 1 || (*p)[2] != 0 || (*p)[3] != 0) return false;
    if ((*p)[0] != 3 || *low != 0 || *high != 6 || !near(element, product.number, 1.0 / 6)) {
      context.rewriter().missed(kName, n, "the numbers are not those of hard-swish: x clip(x + 3, 0, 6) / 6");
      return false;
    }
    append(nodes, more);
    return replace(context, kName, nodes, "HardSwish", x, {});
  });
}

// Exp(x - max) / sum of it, both over one axis.
Result<bool> softmax(RuleContext &context, NodeId n) {
  constexpr std::string_view kName = "activation.softmax";
  const NodeId exp = context.producer(context.input(n, 0), "Exp"),
               sum = context.producer(context.input(n, 1), "ReduceSum");
  if (!exp.valid() || !sum.valid() || context.input(sum, 0) != context.output(exp)) return false;
  const NodeId sub = context.producer(context.input(exp, 0), "Sub");
  if (!sub.valid()) return false;
  const ValueId x = context.input(sub, 0);
  const NodeId max = context.producer(context.input(sub, 1), "ReduceMax");
  if (!max.valid() || context.input(max, 0) != x || !is_float_tensor(context, x)) return false;
  const auto a = reduced_axes(context, sum), b = reduced_axes(context, max);
  if (!a || !b || *a != *b || a->size() != 1 || context.node(sum).int_or("keepdims", 1) == 0 ||
      context.node(max).int_or("keepdims", 1) == 0) {
    context.rewriter().missed(kName, n, "the maximum and the sum do not run over one same axis");
    return false;
  }
  return replace(context, kName, {n, exp, sum, sub, max}, "Softmax", x, {{"axis", (*a)[0]}});
}

constexpr auto kReassociating = NumericsClass::kReassociating;
constexpr Rule kRules[] = {
    {"activation.gelu_erf", kReassociating, "Mul Div", "0.5 x (1 + erf(x / sqrt 2)) in any order -> Gelu",
     "the numbers are those of Gelu within 2e-6 (1e-15 in f64), inner values used nowhere else", gelu_erf},
    {"activation.gelu_tanh", kReassociating, "Mul Div",
     "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) in any order -> Gelu(approximate = tanh)",
     "the numbers are those of Gelu, inner values used nowhere else", gelu_tanh},
    {"activation.swish", kReassociating, "Mul", "x sigmoid(alpha x) -> Swish",
     "sigmoid used nowhere else, alpha a normal number of f32 (in f64 exactly)", swish},
    {"activation.mish", kReassociating, "Mul", "x tanh(softplus(x)) -> Mish", "inner values used nowhere else", mish},
    {"activation.hard_swish", kReassociating, "Mul Div",
     "x clip(x + 3, 0, 6) / 6, or x HardSigmoid(x, 1/6, 1/2) -> HardSwish",
     "the numbers are exactly these, inner values used nowhere else", hard_swish},
    {"activation.softmax", kReassociating, "Div", "exp(x - max(x)) / sum(exp(x - max(x))) -> Softmax",
     "maximum and sum over one same axis, kept", softmax},
};

}  // namespace

std::span<const Rule> activation_rules() { return kRules; }

}  // namespace optc
