// Operators of one operand: elementary functions, rounding, sign, logic.

#include "ops/pointwise.h"

namespace optc {
namespace {

template <ScalarOp op>
Status build_unary(BuildContext &c) {
  return c.pointwise({0}, 0, [](NestBuilder &, std::vector<Expr> x) { return apply(op, x[0]); });
}

Status infer_abs(InferContext &c) {
  c.set(0, c.input(0));
  propagate(c, [](const std::vector<Dim> &x) -> std::optional<Dim> {
    if (lower_bound(x[0]) >= 0) return x[0];
    return upper_bound(x[0]) <= 0 ? std::optional<Dim>(-x[0]) : std::nullopt;
  });
  return {};
}
Status build_abs(BuildContext &c) {
  return c.pointwise({0}, 0, [](NestBuilder &, std::vector<Expr> x) { return absolute(x[0]); });
}

Status infer_neg(InferContext &c) {
  c.set(0, c.input(0));
  propagate(c, [](const std::vector<Dim> &x) -> std::optional<Dim> { return -x[0]; });
  return {};
}

Status infer_not(InferContext &c) {
  c.set(0, c.input(0));
  propagate(c, [](const std::vector<Dim> &x) -> std::optional<Dim> { return Dim(1) - x[0]; });
  return {};
}

Status infer_changed(InferContext &c) {  // the type of input 0, elements not known
  c.set(0, c.input(0));
  return {};
}

Status build_reciprocal(BuildContext &c) {
  return c.pointwise({0}, 0, [](NestBuilder &, std::vector<Expr> x) { return 1.0 / x[0]; });
}

Status infer_predicate(InferContext &c) {
  c.set(0, Type::tensor(ElementType::kBool, c.input(0).shape));
  return {};
}
Status build_is_nan(BuildContext &c) {
  return c.pointwise({0}, 0, [](NestBuilder &, std::vector<Expr> x) { return apply(ScalarOp::kIsNan, x[0]); });
}
Status build_is_inf(BuildContext &c) {
  const bool negative = c.node().int_or("detect_negative", 1) != 0,
             positive = c.node().int_or("detect_positive", 1) != 0;
  return c.pointwise({0}, 0, [&](NestBuilder &, std::vector<Expr> x) {
    return Expr(&x[0].pool(), x[0].pool().is_inf(x[0].id(), negative, positive));
  });
}

Status build_identity(BuildContext &c) {
  c.alias(0, c.input(0));
  return {};
}

constexpr VersionStep kSince6[] = {{6, drop_consumed_inputs, nullptr}};

constexpr auto kForm = OpForm::kPointwise;
const OpDef kOps[] = {
    {"Abs", kForm, 13, infer_abs, build_abs, kSince6},
    {"Acos", kForm, 22, infer_changed, build_unary<ScalarOp::kAcos>},
    {"Acosh", kForm, 22, infer_changed, build_unary<ScalarOp::kAcosh>},
    {"Asin", kForm, 22, infer_changed, build_unary<ScalarOp::kAsin>},
    {"Asinh", kForm, 22, infer_changed, build_unary<ScalarOp::kAsinh>},
    {"Atan", kForm, 22, infer_changed, build_unary<ScalarOp::kAtan>},
    {"Atanh", kForm, 22, infer_changed, build_unary<ScalarOp::kAtanh>},
    {"BitwiseNot", kForm, 18, infer_changed, build_unary<ScalarOp::kBitNot>},
    {"Ceil", kForm, 13, infer_same, build_unary<ScalarOp::kCeil>, kSince6},
    {"Cos", kForm, 22, infer_changed, build_unary<ScalarOp::kCos>},
    {"Cosh", kForm, 22, infer_changed, build_unary<ScalarOp::kCosh>},
    {"Erf", kForm, 13, infer_changed, build_unary<ScalarOp::kErf>},
    {"Exp", kForm, 13, infer_changed, build_unary<ScalarOp::kExp>, kSince6},
    {"Floor", kForm, 13, infer_same, build_unary<ScalarOp::kFloor>, kSince6},
    {"Identity", kForm, 25, infer_same, build_identity},
    {"IsInf", kForm, 20, infer_predicate, build_is_inf},
    {"IsNaN", kForm, 20, infer_predicate, build_is_nan},
    {"Log", kForm, 13, infer_changed, build_unary<ScalarOp::kLog>, kSince6},
    {"Neg", kForm, 13, infer_neg, build_unary<ScalarOp::kNeg>, kSince6},
    {"Not", kForm, 1, infer_not, build_unary<ScalarOp::kNot>},
    {"Reciprocal", kForm, 13, infer_changed, build_reciprocal, kSince6},
    {"Round", kForm, 22, infer_same, build_unary<ScalarOp::kRound>},
    {"Sign", kForm, 13, infer_changed, build_unary<ScalarOp::kSign>},
    {"Sin", kForm, 22, infer_changed, build_unary<ScalarOp::kSin>},
    {"Sinh", kForm, 22, infer_changed, build_unary<ScalarOp::kSinh>},
    {"Sqrt", kForm, 13, infer_changed, build_unary<ScalarOp::kSqrt>, kSince6},
    {"Tan", kForm, 22, infer_changed, build_unary<ScalarOp::kTan>},
    {"Tanh", kForm, 13, infer_changed, build_unary<ScalarOp::kTanh>, kSince6},
};

}  // namespace

std::span<const OpDef> unary_ops() { return kOps; }

}  // namespace optc
