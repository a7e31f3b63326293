#include "optimizer/rules/chain.h"

#include <algorithm>
#include <cmath>

namespace optc {
namespace {

constexpr int kMaxDepth = 8;

bool take(const RuleContext &context, NodeId n, FactorList &product, size_t limit, int depth) {
  if (depth > kMaxDepth) return false;
  product.nodes.push_back(n);
  const bool division = context.node(n).op == "Div";
  for (size_t i = 0; i < 2; ++i) {
    const ValueId v = context.input(n, i);
    if (const auto number = context.scalar(v);
        number && context.type(v).rank() <= context.type(context.output(n)).rank()) {
      if (division && i == 0) return false;
      product.number *= division ? 1 / *number : *number;
      continue;
    }
    if (division && i == 1) return false;
    NodeId inner = context.producer(v, "Mul");
    if (!inner.valid()) inner = context.producer(v, "Div");
    const bool number_below =
        inner.valid() && (context.scalar(context.input(inner, 1)) || context.scalar(context.input(inner, 0)));
    if (inner.valid() && context.single_use(v) && (context.node(inner).op == "Mul" || number_below)) {
      if (!take(context, inner, product, limit, depth + 1)) return false;
    } else {
      product.factors.push_back(v);
    }
    if (product.factors.size() > limit) return false;
  }
  return true;
}

std::optional<Polynomial> multiply(const Polynomial &a, const Polynomial &b) {
  Polynomial c{};
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 4; ++j) {
      const double term = a[i] * b[j];
      if (term == 0) continue;
      if (i + j > 3) return std::nullopt;
      c[i + j] += term;
    }
  return c;
}

std::optional<Polynomial> polynomial(const RuleContext &context, ValueId v, ValueId x, std::vector<NodeId> &nodes,
                                     int depth) {
  if (v == x) return Polynomial{0, 1, 0, 0};
  if (const auto number = context.scalar(v)) {
    if (context.type(v).rank() > context.type(x).rank()) return std::nullopt;  // would raise the rank
    return Polynomial{*number, 0, 0, 0};
  }
  const NodeId n = context.producer(v);
  if (!n.valid() || depth > kMaxDepth) return std::nullopt;
  const std::string &op = context.node(n).op;
  if (op == "Neg") {
    auto a = polynomial(context, context.input(n, 0), x, nodes, depth + 1);
    if (!a) return std::nullopt;
    for (double &c : *a) c = -c;
    nodes.push_back(n);
    return a;
  }
  if (op != "Add" && op != "Sub" && op != "Mul" && op != "Div" && op != "Pow") return std::nullopt;
  auto a = polynomial(context, context.input(n, 0), x, nodes, depth + 1);
  if (!a) return std::nullopt;
  std::optional<Polynomial> result;
  if (op == "Div" || op == "Pow") {
    const auto number = context.scalar(context.input(n, 1));
    if (!number || context.type(context.input(n, 1)).rank() > context.type(x).rank()) return std::nullopt;
    if (op == "Div") {
      if (*number == 0) return std::nullopt;
      for (double &c : *a) c /= *number;
      result = a;
    } else {
      if (*number != 2 && *number != 3) return std::nullopt;
      result = multiply(*a, *a);
      if (result && *number == 3) result = multiply(*result, *a);
    }
  } else {
    auto b = polynomial(context, context.input(n, 1), x, nodes, depth + 1);
    if (!b) return std::nullopt;
    if (op == "Mul") {
      result = multiply(*a, *b);
    } else {
      for (size_t i = 0; i < 4; ++i) (*a)[i] += op == "Add" ? (*b)[i] : -(*b)[i];
      result = a;
    }
  }
  if (result && std::find(nodes.begin(), nodes.end(), n) == nodes.end()) nodes.push_back(n);
  return result;
}

}  // namespace

std::optional<FactorList> take_product(const RuleContext &context, NodeId root, size_t limit) {
  const std::string &op = context.node(root).op;
  if (op != "Mul" && op != "Div") return std::nullopt;
  FactorList product;
  if (!take(context, root, product, limit, 0) || !std::isfinite(product.number)) return std::nullopt;
  return product;
}

std::optional<Polynomial> take_polynomial(const RuleContext &context, ValueId v, ValueId x,
                                          std::vector<NodeId> &nodes) {
  return polynomial(context, v, x, nodes, 0);
}

bool near(ElementType element, double a, double b, double relative) {
  constexpr double kDouble = 1e-15;  // a few roundings
  return std::fabs(a - b) <= (element == ElementType::kFloat64 ? kDouble : relative) * std::fabs(b);
}

bool closed(const RuleContext &context, const std::vector<NodeId> &nodes) {
  for (size_t i = 1; i < nodes.size(); ++i)
    for (ValueId v : context.node(nodes[i]).outputs)
      if (v.valid() && !context.used_only_by(v, nodes)) return false;
  return true;
}

std::optional<std::vector<int64_t>> reduced_axes(const RuleContext &context, NodeId reduction) {
  const ValueId x = context.input(reduction, 0), axes = context.input(reduction, 1);
  if (!context.type(x).has_shape()) return std::nullopt;
  const int64_t rank = context.type(x).rank();
  std::vector<int64_t> list;
  const Constant *constant = context.constant(axes);
  if (axes.valid() && !constant) return std::nullopt;
  if (constant)
    for (int64_t i = 0; i < constant->count(); ++i) list.push_back(constant->as_int64(i));
  if (list.empty()) {
    if (context.node(reduction).int_or("noop_with_empty_axes", 0) != 0) return list;
    for (int64_t i = 0; i < rank; ++i) list.push_back(i);
  }
  for (int64_t &axis : list) {
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return std::nullopt;
  }
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace optc
