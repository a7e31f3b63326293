// Derivatives of operators that work element by element.

#include <cmath>

#include "ops/gradient.h"

namespace optc {
namespace {

ValueId above(Body &b, ValueId x, double limit) { return b.op("Greater", {x, b.like(x, limit)}); }
ValueId only(Body &b, ValueId mask, ValueId v) { return b.op("Where", {mask, v, b.like(v, 0)}); }
ValueId square(Body &b, ValueId v) { return b.mul(v, v); }
ValueId one_less(Body &b, ValueId v) { return b.sub(b.like(v, 1), v); }
ValueId scaled(Body &b, ValueId v, double by) { return b.mul(v, b.like(v, by)); }
ValueId shifted(Body &b, ValueId v, double by) { return b.add(v, b.like(v, by)); }
double attribute(const Derivative &d, std::string_view name, float fallback) {
  return static_cast<double>(d.node.float_or(name, fallback));
}

// A rule of the factor f(x, y) by which the adjoint is multiplied.
template <ValueId (*factor)(Derivative &d, ValueId x, ValueId y)>
Status by_factor(Derivative &d) {
  return d.give(0, d.b.mul(d.d(), factor(d, d.in(0), d.out(0))));
}
// One of a factor that counts only where a mask holds; nothing elsewhere, whatever the adjoint is.
template <ValueId (*mask)(Derivative &d, ValueId x)>
Status where(Derivative &d) {
  return d.give(0, only(d.b, mask(d, d.in(0)), d.d()));
}
template <const char *op, bool negative = false>
ValueId function(Derivative &d, ValueId x, ValueId) {
  const ValueId v = d.b.op(op, {x});
  return negative ? d.b.op("Neg", {v}) : v;
}
constexpr char kSign[] = "Sign", kCos[] = "Cos", kSin[] = "Sin", kCosh[] = "Cosh", kSinh[] = "Sinh",
               kSigmoid[] = "Sigmoid", kReciprocal[] = "Reciprocal";

ValueId f_result(Derivative &, ValueId, ValueId y) { return y; }
ValueId f_sqrt(Derivative &d, ValueId, ValueId y) { return d.b.div(d.b.like(y, 0.5), y); }
ValueId f_reciprocal(Derivative &d, ValueId, ValueId y) { return d.b.op("Neg", {square(d.b, y)}); }
ValueId f_sigmoid(Derivative &d, ValueId, ValueId y) { return d.b.mul(y, one_less(d.b, y)); }
ValueId f_tanh(Derivative &d, ValueId, ValueId y) { return one_less(d.b, square(d.b, y)); }
ValueId f_tan(Derivative &d, ValueId, ValueId y) { return shifted(d.b, square(d.b, y), 1); }
ValueId f_softsign(Derivative &d, ValueId x, ValueId) {
  return d.b.op("Reciprocal", {square(d.b, shifted(d.b, d.b.op("Abs", {x}), 1))});
}
ValueId bell(Body &b, ValueId x, double factor, double exponent) {
  return scaled(b, b.op("Exp", {scaled(b, square(b, x), exponent)}), factor);
}
ValueId f_erf(Derivative &d, ValueId x, ValueId) { return bell(d.b, x, 2 / std::sqrt(M_PI), -1); }
ValueId f_gelu(Derivative &d, ValueId x, ValueId) {
  Body &b = d.b;
  if (d.node.string_or("approximate", "none") == "tanh") {
    const double k = std::sqrt(2 / M_PI), c = 0.044715;
    const ValueId cube = scaled(b, b.mul(square(b, x), x), c);
    const ValueId t = b.op("Tanh", {scaled(b, b.add(x, cube), k)});
    const ValueId slope = scaled(b, shifted(b, scaled(b, square(b, x), 3 * c), 1), 0.5 * k);
    return b.add(scaled(b, shifted(b, t, 1), 0.5), b.mul(b.mul(x, one_less(b, square(b, t))), slope));
  }
  const ValueId share = scaled(b, shifted(b, b.op("Erf", {scaled(b, x, std::sqrt(0.5))}), 1), 0.5);
  return b.add(share, b.mul(x, bell(b, x, 1 / std::sqrt(2 * M_PI), -0.5)));
}
ValueId f_mish(Derivative &d, ValueId x, ValueId) {
  Body &b = d.b;
  const ValueId t = b.op("Tanh", {b.op("Softplus", {x})});
  return b.add(t, b.mul(b.mul(x, one_less(b, square(b, t))), b.op("Sigmoid", {x})));
}
ValueId f_swish(Derivative &d, ValueId x, ValueId) {
  Body &b = d.b;
  const ValueId z = scaled(b, x, attribute(d, "alpha", 1)), s = b.op("Sigmoid", {z});
  return b.add(s, b.mul(z, b.mul(s, one_less(b, s))));
}
ValueId f_hard_sigmoid(Derivative &d, ValueId x, ValueId y) {
  Body &b = d.b;
  const ValueId inside = b.op("And", {above(b, y, 0), b.op("Less", {y, b.like(y, 1)})});
  return only(b, inside, b.op("Expand", {b.like(x, attribute(d, "alpha", 0.2f)), b.op("Shape", {x})}));
}
ValueId f_hard_swish(Derivative &d, ValueId x, ValueId) {
  Body &b = d.b;
  const ValueId middle = shifted(b, scaled(b, x, 1.0 / 3), 0.5);
  return b.op("Where", {above(b, x, 3), b.like(x, 1), only(b, above(b, x, -3), middle)});
}
ValueId f_elu(Derivative &d, ValueId x, ValueId y) {
  return d.b.op("Where", {above(d.b, x, 0), d.b.like(x, 1), shifted(d.b, y, attribute(d, "alpha", 1))});
}
ValueId f_selu(Derivative &d, ValueId x, ValueId y) {
  const double alpha = attribute(d, "alpha", 1.67326319f), gamma = attribute(d, "gamma", 1.05070102f);
  return d.b.op("Where", {above(d.b, x, 0), d.b.like(x, gamma), shifted(d.b, y, alpha * gamma)});
}
ValueId f_celu(Derivative &d, ValueId x, ValueId) {
  const double alpha = attribute(d, "alpha", 1);
  return d.b.op("Where", {above(d.b, x, 0), d.b.like(x, 1), d.b.op("Exp", {scaled(d.b, x, 1 / alpha)})});
}
ValueId f_leaky(Derivative &d, ValueId x, ValueId) {
  const ValueId below = d.b.op("Less", {x, d.b.like(x, 0)});
  return d.b.op("Where", {below, d.b.like(x, attribute(d, "alpha", 0.01f)), d.b.like(x, 1)});
}
ValueId root_below(Derivative &d, ValueId v) { return d.b.op("Reciprocal", {d.b.op("Sqrt", {v})}); }
ValueId f_asin(Derivative &d, ValueId x, ValueId) { return root_below(d, one_less(d.b, square(d.b, x))); }
ValueId f_acos(Derivative &d, ValueId x, ValueId y) { return d.b.op("Neg", {f_asin(d, x, y)}); }
ValueId f_atan(Derivative &d, ValueId x, ValueId) { return d.b.op("Reciprocal", {shifted(d.b, square(d.b, x), 1)}); }
ValueId f_asinh(Derivative &d, ValueId x, ValueId) { return root_below(d, shifted(d.b, square(d.b, x), 1)); }
ValueId f_acosh(Derivative &d, ValueId x, ValueId) { return root_below(d, shifted(d.b, square(d.b, x), -1)); }
ValueId f_atanh(Derivative &d, ValueId x, ValueId) { return d.b.op("Reciprocal", {one_less(d.b, square(d.b, x))}); }

ValueId m_relu(Derivative &d, ValueId x) { return above(d.b, x, 0); }
ValueId m_thresholded(Derivative &d, ValueId x) { return above(d.b, x, attribute(d, "alpha", 1)); }
ValueId m_shrink(Derivative &d, ValueId x) { return above(d.b, d.b.op("Abs", {x}), attribute(d, "lambd", 0.5f)); }

Status identity(Derivative &d) { return d.give(0, d.d()); }
Status negative(Derivative &d) { return d.give(0, d.b.op("Neg", {d.d()})); }
Status cast(Derivative &d) { return d.give(0, d.b.cast(d.d(), d.b.element(d.in(0)))); }

// Within both bounds, those included.
Status clip(Derivative &d) {
  Body &b = d.b;
  if (d.wants(1) || d.wants(2)) return d.unsupported("Clip by its bounds");
  ValueId inside;
  for (size_t i : {1, 2}) {
    if (!d.in(i).valid()) continue;
    const ValueId here = b.op(i == 1 ? "GreaterOrEqual" : "LessOrEqual", {d.in(0), d.in(i)});
    inside = inside.valid() ? b.op("And", {inside, here}) : here;
  }
  return d.give(0, inside.valid() ? only(b, inside, d.d()) : d.d());
}

Status dropout(Derivative &d) {
  Body &b = d.b;
  const Constant *training = b.constant(d.in(2));
  if (!d.in(2).valid() || (training && training->as_int64(0) == 0)) return identity(d);
  if (!d.out(1).valid()) return d.unsupported("Dropout in training mode without its mask output");
  const ValueId ratio = d.in(1).valid() ? b.cast(d.in(1), b.element(d.in(0))) : b.like(d.in(0), 0.5);
  return d.give(0, b.div(only(b, d.out(1), d.d()), one_less(b, ratio)));
}

Status add(Derivative &d) {
  for (size_t i = 0; i < d.node.inputs.size(); ++i) OPTC_TRY(d.give(i, d.d()));
  return {};
}
Status sub(Derivative &d) {
  OPTC_TRY(d.give(0, d.d()));
  return d.wants(1) ? d.give(1, d.b.op("Neg", {d.d()})) : Status();
}
Status mul(Derivative &d) {
  for (size_t i : {0, 1})
    if (d.wants(i)) OPTC_TRY(d.give(i, d.b.mul(d.d(), d.in(1 - i))));
  return {};
}
Status div(Derivative &d) {
  Body &b = d.b;
  const ValueId share = b.div(d.d(), d.in(1));
  if (d.wants(0)) OPTC_TRY(d.give(0, share));
  return d.wants(1) ? d.give(1, b.op("Neg", {b.mul(share, d.out(0))})) : Status();
}
Status mean(Derivative &d) {
  const ValueId share = scaled(d.b, d.d(), 1.0 / static_cast<double>(d.node.inputs.size()));
  for (size_t i = 0; i < d.node.inputs.size(); ++i) OPTC_TRY(d.give(i, share));
  return {};
}

Status pow(Derivative &d) {
  Body &b = d.b;
  const ValueId x = d.in(0), e = b.cast(d.in(1), b.element(x));
  if (d.wants(0)) {  // x^0 does not change, at 0 either
    const ValueId none = b.op("Equal", {e, b.like(e, 0)});
    const ValueId slope = b.mul(e, b.op("Pow", {x, shifted(b, e, -1)}));
    OPTC_TRY(d.give(0, b.mul(d.d(), b.op("Where", {none, b.like(x, 0), slope}))));
  }
  if (!d.wants(1)) return {};
  const ValueId slope = b.mul(d.out(0), b.op("Log", {x}));
  return d.give(1, b.cast(b.mul(d.d(), only(b, above(b, x, 0), slope)), b.element(d.in(1))));
}

// Operands that are the largest (or smallest) together share the adjoint.
Status extreme(Derivative &d) {
  Body &b = d.b;
  std::vector<ValueId> shares;
  ValueId count;
  for (ValueId v : d.node.inputs) {
    shares.push_back(b.cast(b.op("Equal", {v, d.out(0)}), b.element(v)));
    count = count.valid() ? b.add(count, shares.back()) : shares.back();
  }
  const ValueId each = b.div(d.d(), count);
  for (size_t i = 0; i < shares.size(); ++i)
    if (d.wants(i)) OPTC_TRY(d.give(i, b.mul(each, shares[i])));
  return {};
}

Status choose(Derivative &d) {
  Body &b = d.b;
  const ValueId none = b.like(d.d(), 0);
  if (d.wants(1)) OPTC_TRY(d.give(1, b.op("Where", {d.in(0), d.d(), none})));
  return d.wants(2) ? d.give(2, b.op("Where", {d.in(0), none, d.d()})) : Status();
}

Status prelu(Derivative &d) {
  Body &b = d.b;
  const ValueId below = b.op("Less", {d.in(0), b.like(d.in(0), 0)});
  if (d.wants(0)) OPTC_TRY(d.give(0, b.op("Where", {below, b.mul(d.d(), d.in(1)), d.d()})));
  return d.wants(1) ? d.give(1, only(b, below, b.mul(d.d(), d.in(0)))) : Status();
}

constexpr DerivativeRow kRows[] = {
    {"Abs", by_factor<function<kSign>>},
    {"Acos", by_factor<f_acos>},
    {"Acosh", by_factor<f_acosh>},
    {"Add", add},
    {"Asin", by_factor<f_asin>},
    {"Asinh", by_factor<f_asinh>},
    {"Atan", by_factor<f_atan>},
    {"Atanh", by_factor<f_atanh>},
    {"Cast", cast},
    {"CastLike", cast},
    {"Ceil", nullptr},
    {"Celu", by_factor<f_celu>},
    {"Clip", clip},
    {"Cos", by_factor<function<kSin, true>>},
    {"Cosh", by_factor<function<kSinh>>},
    {"Div", div},
    {"Dropout", dropout},
    {"Elu", by_factor<f_elu>},
    {"Erf", by_factor<f_erf>},
    {"Exp", by_factor<f_result>},
    {"Floor", nullptr},
    {"Gelu", by_factor<f_gelu>},
    {"HardSigmoid", by_factor<f_hard_sigmoid>},
    {"HardSwish", by_factor<f_hard_swish>},
    {"Identity", identity},
    {"LeakyRelu", by_factor<f_leaky>},
    {"Log", by_factor<function<kReciprocal>>},
    {"Max", extreme},
    {"Mean", mean},
    {"Min", extreme},
    {"Mish", by_factor<f_mish>},
    {"Mul", mul},
    {"Neg", negative},
    {"PRelu", prelu},
    {"Pow", pow},
    {"Reciprocal", by_factor<f_reciprocal>},
    {"Relu", where<m_relu>},
    {"Round", nullptr},
    {"Selu", by_factor<f_selu>},
    {"Shrink", where<m_shrink>},
    {"Sigmoid", by_factor<f_sigmoid>},
    {"Sign", nullptr},
    {"Sin", by_factor<function<kCos>>},
    {"Sinh", by_factor<function<kCosh>>},
    {"Softplus", by_factor<function<kSigmoid>>},
    {"Softsign", by_factor<f_softsign>},
    {"Sqrt", by_factor<f_sqrt>},
    {"Sub", sub},
    {"Sum", add},
    {"Swish", by_factor<f_swish>},
    {"Tan", by_factor<f_tan>},
    {"Tanh", by_factor<f_tanh>},
    {"ThresholdedRelu", where<m_thresholded>},
    {"Where", choose},
};

}  // namespace

std::span<const DerivativeRow> pointwise_derivatives() { return kRows; }

}  // namespace optc
