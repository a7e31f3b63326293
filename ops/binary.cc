// Operators of two or more operands that broadcast: arithmetic, comparison, logic, bits, variadic, Where.

#include "ops/pointwise.h"
#include "ops/steps.h"

namespace optc {
namespace {

using Pair = Expr (*)(BuildContext &, Expr, Expr);
template <Pair f>
Status build_pair(BuildContext &c) {
  return c.pointwise({0, 1}, 0, [&](NestBuilder &, std::vector<Expr> x) { return f(c, x[0], x[1]); });
}
template <ScalarOp op>
Status build_binary(BuildContext &c) {
  return c.pointwise({0, 1}, 0, [](NestBuilder &, std::vector<Expr> x) { return apply(op, x[0], x[1]); });
}

using DimPair = std::optional<Dim> (*)(Dim, Dim);
template <DimPair f>
Status infer_arithmetic(InferContext &c) {
  OPTC_TRY(infer_broadcast(c, c.element(0)));
  propagate(c, [](const std::vector<Dim> &x) { return f(x[0], x[1]); });
  return {};
}
template <DimPair f>
Status infer_comparison(InferContext &c) {
  OPTC_TRY(infer_broadcast(c, ElementType::kBool));
  propagate(c, [](const std::vector<Dim> &x) { return f(x[0], x[1]); });
  return {};
}

std::optional<Dim> add(Dim a, Dim b) { return a + b; }
std::optional<Dim> subtract(Dim a, Dim b) { return a - b; }
std::optional<Dim> multiply(Dim a, Dim b) { return a * b; }
std::optional<Dim> divide(Dim a, Dim b) {  // ONNX truncates; for a >= 0 and b > 0 that is the floor
  if (b.is(-1)) return std::nullopt;       // the lowest number has no opposite: the evaluator wraps it
  if (a.is_constant() && b.is_constant() && !b.is(0)) return Dim(a.value() / b.value());
  if (lower_bound(b) < 1) return std::nullopt;
  if (const auto exact = exact_div(a, b)) return exact;
  if (lower_bound(a) >= 0) return floor_div(a, b);
  return std::nullopt;
}
std::optional<Dim> remainder(Dim a, Dim b) {
  return lower_bound(b) >= 1 && lower_bound(a) >= 0 ? std::optional<Dim>(mod(a, b)) : std::nullopt;
}
std::optional<Dim> nothing(Dim, Dim) { return std::nullopt; }
std::optional<Dim> less(Dim a, Dim b) {
  if (proved_less(a, b)) return Dim(1);
  return proved_at_least(a, b) ? std::optional<Dim>(Dim(0)) : std::nullopt;
}
std::optional<Dim> greater(Dim a, Dim b) { return less(b, a); }
std::optional<Dim> less_or_equal(Dim a, Dim b) {
  if (proved_at_least(b, a)) return Dim(1);
  return proved_less(b, a) ? std::optional<Dim>(Dim(0)) : std::nullopt;
}
std::optional<Dim> greater_or_equal(Dim a, Dim b) { return less_or_equal(b, a); }
std::optional<Dim> equal(Dim a, Dim b) {
  if (a == b) return Dim(1);
  return proved_less(a, b) || proved_less(b, a) ? std::optional<Dim>(Dim(0)) : std::nullopt;
}
std::optional<Dim> both(Dim a, Dim b) { return min(a, b); }
std::optional<Dim> either(Dim a, Dim b) { return max(a, b); }

Expr greater_of(BuildContext &, Expr a, Expr b) { return is_below(b, a); }
Expr greater_or_equal_of(BuildContext &, Expr a, Expr b) { return apply(ScalarOp::kLe, b, a); }

Status build_equal(BuildContext &c) {
  if (c.input_type(0).element == ElementType::kString) {
    c.library("string_equal", {c.input(0), c.input(1)}, {c.output(0)});
    return {};
  }
  return build_binary<ScalarOp::kEq>(c);
}

Expr mod_of(BuildContext &c, Expr a, Expr b) {
  return apply(c.node().int_or("fmod", 0) ? ScalarOp::kFmod : ScalarOp::kMod, a, b);
}

// The type of the base; a whole exponent that is constant needs no power function.
Status build_pow(BuildContext &c) {
  const ElementType base = compute_type(c.input_type(0).element), exponent = compute_type(c.input_type(1).element);
  const Constant *constant = c.constant(1);
  if (constant && constant->count() == 1 && is_float(base)) {
    const double e = constant->as_double(0);
    if (e == 1 || e == 2 || e == 3 || e == 0.5 || e == -1) {
      return c.pointwise({0}, 0, [&](NestBuilder &, std::vector<Expr> v) {
        const Expr x = v[0];
        if (e == 1) return x;
        if (e == 2) return x * x;
        if (e == 3) return x * x * x;
        if (e == -1) return 1.0 / x;
        const Expr infinity = x.constant(__builtin_inf());  // pow(-inf, 0.5) is inf, pow(-0, 0.5) is +0
        return select(apply(ScalarOp::kEq, x, -infinity), infinity, square_root(x) + 0.0);
      });
    }
  }
  return c.pointwise({0, 1}, 0, [&](NestBuilder &, std::vector<Expr> v) {
    ElementType type = base;
    if (is_float(exponent) && (!is_float(base) || exponent == ElementType::kFloat64)) type = ElementType::kFloat64;
    return apply(ScalarOp::kPow, cast(v[0], type), cast(v[1], type));
  });
}

// Signed shifts right keep the sign; shifts by the width or more give 0 (or -1).
Status build_bit_shift(BuildContext &c) {
  const bool left = c.node().string_or("direction", "LEFT") == "LEFT";
  const ElementType storage = c.output_type(0).element;
  const int width = bit_width(storage);
  return c.pointwise({0, 1}, 0, [&](NestBuilder &, std::vector<Expr> v) {
    const Expr shifted = apply(left ? ScalarOp::kShl : ScalarOp::kShr, v[0], v[1]);
    const Expr inside = apply(ScalarOp::kAnd, apply(ScalarOp::kLe, v[1].constant(0), v[1]), is_below(v[1], width));
    Expr outside = v[0].constant(0);
    if (!left && is_signed_integer(storage)) outside = select(is_below(v[0], 0), v[0].constant(-1), outside);
    return select(inside, shifted, outside);
  });
}

// --- Variadic ------------------------------------------------------------------------------------------------

template <ScalarOp op, bool mean = false>
Status build_variadic(BuildContext &c) {
  std::vector<size_t> inputs;
  for (size_t i = 0; i < c.node().inputs.size(); ++i) inputs.push_back(i);
  if (inputs.size() == 1) {
    c.alias(0, c.input(0));
    return {};
  }
  return c.pointwise(inputs, 0, [](NestBuilder &, std::vector<Expr> x) {
    Expr result = x[0];
    for (size_t i = 1; i < x.size(); ++i) result = apply(op, result, x[i]);
    return mean ? result / static_cast<double>(x.size()) : result;
  });
}
using DimFold = Dim (*)(Dim, Dim);
// The operands of Sum, Max, Min and Mean: one at least, none absent.
Status infer_variadic(InferContext &c) {
  if (c.input_count() == 0) return c.invalid("at least one input is needed");
  for (size_t i = 0; i < c.input_count(); ++i)
    if (!c.has_input(i)) return c.invalid("input " + std::to_string(i) + " is absent");
  return infer_broadcast(c, c.element(0));
}
template <DimFold f>
Status infer_extreme(InferContext &c) {
  OPTC_TRY(infer_variadic(c));
  propagate(c, [](const std::vector<Dim> &x) -> std::optional<Dim> {
    Dim result = x[0];
    for (size_t i = 1; i < x.size(); ++i) result = f(result, x[i]);
    return result;
  });
  return {};
}
Dim largest(Dim a, Dim b) { return max(a, b); }
Dim smallest(Dim a, Dim b) { return min(a, b); }
Dim total(Dim a, Dim b) { return a + b; }

// --- Where ---------------------------------------------------------------------------------------------------

Status infer_where(InferContext &c) {
  OPTC_TRY(infer_broadcast(c, c.element(1)));
  propagate(c, [](const std::vector<Dim> &x) -> std::optional<Dim> {
    if (x[1] == x[2]) return x[1];
    if (!x[0].is_constant()) return std::nullopt;
    return x[0].value() ? x[1] : x[2];
  });
  return {};
}
Status build_where(BuildContext &c) {
  if (c.output_type(0).element == ElementType::kString) {
    c.library("string_where", {c.input(0), c.input(1), c.input(2)}, {c.output(0)});
    return {};
  }
  return c.pointwise({0, 1, 2}, 0, [](NestBuilder &, std::vector<Expr> x) { return select(x[0], x[1], x[2]); });
}

constexpr VersionStep kSince7[] = {{7, legacy_broadcast, nullptr}};
// Before 8 the operands of Max, Mean, Min and Sum had one shape.
Status equal_shapes(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const std::vector<ValueId> &operands = graph.node(node).inputs;
  for (ValueId v : operands) {
    const auto &first = graph.value(operands[0]).type, &other = graph.value(v).type;
    if (!other.has_shape() || first != other)
      return cannot_lower(graph, node, "operands of different shapes", 8, diagnostics);
  }
  return {};
}
constexpr VersionStep kVariadic[] = {{6, drop_consumed_inputs, nullptr}, {8, nullptr, equal_shapes}};

constexpr auto kForm = OpForm::kPointwise;
const OpDef kOps[] = {
    {"Add", kForm, 14, infer_arithmetic<add>, build_binary<ScalarOp::kAdd>, kSince7},
    {"And", kForm, 7, infer_comparison<both>, build_binary<ScalarOp::kAnd>, kSince7},
    {"BitShift", kForm, 28, infer_arithmetic<nothing>, build_bit_shift},
    {"BitwiseAnd", kForm, 18, infer_arithmetic<nothing>, build_binary<ScalarOp::kBitAnd>},
    {"BitwiseOr", kForm, 18, infer_arithmetic<nothing>, build_binary<ScalarOp::kBitOr>},
    {"BitwiseXor", kForm, 18, infer_arithmetic<nothing>, build_binary<ScalarOp::kBitXor>},
    {"Div", kForm, 14, infer_arithmetic<divide>, build_binary<ScalarOp::kDiv>, kSince7},
    {"Equal", kForm, 19, infer_comparison<equal>, build_equal, kSince7},
    {"Greater", kForm, 13, infer_comparison<greater>, build_pair<greater_of>, kSince7},
    {"GreaterOrEqual", kForm, 16, infer_comparison<greater_or_equal>, build_pair<greater_or_equal_of>},
    {"Less", kForm, 13, infer_comparison<less>, build_binary<ScalarOp::kLt>, kSince7},
    {"LessOrEqual", kForm, 16, infer_comparison<less_or_equal>, build_binary<ScalarOp::kLe>},
    {"Max", kForm, 13, infer_extreme<largest>, build_variadic<ScalarOp::kMax>, kVariadic},
    {"Mean", kForm, 13, infer_variadic, build_variadic<ScalarOp::kAdd, true>, kVariadic},
    {"Min", kForm, 13, infer_extreme<smallest>, build_variadic<ScalarOp::kMin>, kVariadic},
    {"Mod", kForm, 28, infer_arithmetic<remainder>, build_pair<mod_of>},
    {"Mul", kForm, 14, infer_arithmetic<multiply>, build_binary<ScalarOp::kMul>, kSince7},
    {"Or", kForm, 7, infer_comparison<either>, build_binary<ScalarOp::kOr>, kSince7},
    {"Pow", kForm, 15, infer_arithmetic<nothing>, build_pow, kSince7},
    {"Sub", kForm, 14, infer_arithmetic<subtract>, build_binary<ScalarOp::kSub>, kSince7},
    {"Sum", kForm, 13, infer_extreme<total>, build_variadic<ScalarOp::kAdd>, kVariadic},
    {"Where", kForm, 16, infer_where, build_where},
    {"Xor", kForm, 7, infer_comparison<nothing>, build_binary<ScalarOp::kXor>, kSince7},
};

}  // namespace

std::span<const OpDef> binary_ops() { return kOps; }

}  // namespace optc
