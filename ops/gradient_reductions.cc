// Derivatives of reductions and of what is made of them: softmax, normalizations, losses.

#include "ops/gradient.h"

namespace optc {
namespace {

std::vector<int64_t> axes_from(int64_t begin, int64_t end) {
  std::vector<int64_t> list;
  for (int64_t k = begin; k < end; ++k) list.push_back(k);
  return list;
}
ValueId mean_over(Body &b, ValueId v, const std::vector<int64_t> &axes) {
  return b.op("ReduceMean", {v, b.ints(axes)}, {{"keepdims", int64_t{1}}});
}

// A reduction of x along `axes`; adjoint and result with those axes at length 1.
struct Reduced {
  std::vector<int64_t> axes;  // none: the operator is the identity
  ValueId adjoint, y;
};

Result<Reduced> reduced(Derivative &d) {
  Body &b = d.b;
  const int64_t rank = b.rank(d.in(0));
  Reduced r;
  if (d.in(1).valid()) {
    OPTC_ASSIGN(r.axes, constant_ints(d, 1));
    for (int64_t &axis : r.axes) axis += axis < 0 ? rank : 0;
  }
  const bool all = r.axes.empty() && d.node.int_or("noop_with_empty_axes", 0) == 0;
  if (all) r.axes = axes_from(0, rank);
  const bool kept = d.node.int_or("keepdims", 1) != 0 || r.axes.empty();
  r.adjoint = kept ? d.d() : b.unsqueeze(d.d(), r.axes);
  r.y = kept ? d.out(0) : b.unsqueeze(d.out(0), r.axes);
  return r;
}

ValueId repeated(Derivative &d, ValueId v) { return d.b.op("Expand", {v, d.b.op("Shape", {d.in(0)})}); }

// The adjoint, repeated, times f(x, y).
template <ValueId (*factor)(Derivative &d, ValueId x, ValueId y)>
Status reduction(Derivative &d) {
  OPTC_ASSIGN(const Reduced r, reduced(d));
  const ValueId f = factor(d, d.in(0), r.y);
  return d.give(0, f.valid() ? d.b.mul(r.adjoint, f) : repeated(d, r.adjoint));
}
ValueId f_one(Derivative &, ValueId, ValueId) { return {}; }
ValueId f_sign(Derivative &d, ValueId x, ValueId) { return d.b.op("Sign", {x}); }
// 0 where the length is 0, as one of the derivatives from both sides, and as PyTorch has it.
ValueId f_length(Derivative &d, ValueId x, ValueId y) {
  Body &b = d.b;
  return b.div(x, b.op("Where", {b.op("Equal", {y, b.like(y, 0)}), b.like(y, 1), y}));
}
ValueId f_double(Derivative &d, ValueId x, ValueId) { return d.b.add(x, x); }
ValueId f_log_sum(Derivative &d, ValueId x, ValueId y) {
  return d.b.op("Expand", {d.b.op("Exp", {d.b.op("Neg", {y})}), d.b.op("Shape", {x})});
}
ValueId f_log_sum_exp(Derivative &d, ValueId x, ValueId y) { return d.b.op("Exp", {d.b.sub(x, y)}); }

// How many elements those axes have, as a scalar of that type.
ValueId count_of(Body &b, ValueId x, const std::vector<int64_t> &axes) {
  const ValueId sizes = b.op("Gather", {b.op("Shape", {x}), b.ints(axes)});
  return b.cast(b.op("ReduceProd", {sizes}, {{"keepdims", int64_t{0}}}), b.element(x));
}

Status reduce_mean(Derivative &d) {
  OPTC_ASSIGN(const Reduced r, reduced(d));
  if (r.axes.empty()) return d.give(0, r.adjoint);
  return d.give(0, repeated(d, d.b.div(r.adjoint, count_of(d.b, d.in(0), r.axes))));
}

// Elements that are the largest (or smallest) together share the adjoint.
Status extreme_of(Derivative &d, const std::vector<int64_t> &axes, ValueId adjoint, ValueId y) {
  Body &b = d.b;
  const ValueId there = b.cast(b.op("Equal", {d.in(0), y}), b.element(d.in(0)));
  return d.give(0, b.mul(there, b.div(adjoint, sum_over(b, there, axes))));
}
Status reduce_extreme(Derivative &d) {
  OPTC_ASSIGN(const Reduced r, reduced(d));
  if (r.axes.empty()) return d.give(0, r.adjoint);
  return extreme_of(d, r.axes, r.adjoint, r.y);
}

// The product of the others, which a division by the element itself would not give where it is 0.
Status reduce_prod(Derivative &d) {
  Body &b = d.b;
  OPTC_ASSIGN(const Reduced r, reduced(d));
  if (r.axes.empty()) return d.give(0, r.adjoint);
  if (r.axes.size() != 1) return d.unsupported("ReduceProd along more than one axis");
  const ValueId axis = b.value(Constant::scalar_int64(r.axes[0]));
  ValueId others = r.adjoint;
  for (int64_t reverse : {0, 1})
    others = b.mul(others, b.op("CumProd", {d.in(0), axis}, {{"exclusive", int64_t{1}}, {"reverse", reverse}}));
  return d.give(0, others);
}

Status global_average(Derivative &d) {
  const std::vector<int64_t> axes = axes_from(2, d.b.rank(d.in(0)));
  return d.give(0, repeated(d, d.b.div(d.d(), count_of(d.b, d.in(0), axes))));
}
Status global_max(Derivative &d) { return extreme_of(d, axes_from(2, d.b.rank(d.in(0))), d.d(), d.out(0)); }

Status softmax(Derivative &d) {
  Body &b = d.b;
  const ValueId mixed = sum_over(b, b.mul(d.d(), d.out(0)), {d.node.int_or("axis", -1)});
  return d.give(0, b.mul(d.out(0), b.sub(d.d(), mixed)));
}
ValueId log_softmax_adjoint(Body &b, ValueId adjoint, ValueId y, int64_t axis) {
  return b.sub(adjoint, b.mul(b.op("Exp", {y}), sum_over(b, adjoint, {axis})));
}
Status log_softmax(Derivative &d) {
  return d.give(0, log_softmax_adjoint(d.b, d.d(), d.out(0), d.node.int_or("axis", -1)));
}

// y = scale * (x - mean) / sqrt(variance + epsilon) + bias over `axes`; without a mean for RMSNormalization.
struct Normalized {
  ValueId normal, inverse;  // (x - mean) * inverse; 1 / sqrt(variance + epsilon)
};
Normalized normalized(Derivative &d, ValueId x, const std::vector<int64_t> &axes, bool centered, float epsilon) {
  Body &b = d.b;
  const ValueId middle = centered ? b.sub(x, mean_over(b, x, axes)) : x;
  const ValueId variance = mean_over(b, b.mul(middle, middle), axes);
  const ValueId root = b.op("Sqrt", {b.add(variance, b.like(x, static_cast<double>(epsilon)))});
  const ValueId inverse = b.op("Reciprocal", {root});
  return {b.mul(middle, inverse), inverse};
}
ValueId normalized_adjoint(Body &b, ValueId g, const Normalized &n, const std::vector<int64_t> &axes, bool centered) {
  ValueId inner = b.sub(g, b.mul(n.normal, mean_over(b, b.mul(g, n.normal), axes)));
  if (centered) inner = b.sub(inner, mean_over(b, g, axes));
  return b.mul(n.inverse, inner);
}

Status only_first_output(Derivative &d) {
  for (size_t i = 1; i < d.adjoints.size(); ++i)
    if (d.adjoints[i].valid()) return d.unsupported(d.node.op + "'s output " + std::to_string(i));
  return {};
}

template <bool centered>
Status layer_norm(Derivative &d) {
  Body &b = d.b;
  OPTC_TRY(only_first_output(d));
  const int64_t rank = b.rank(d.in(0));
  int64_t axis = d.node.int_or("axis", -1);
  axis += axis < 0 ? rank : 0;
  const std::vector<int64_t> axes = axes_from(axis, rank);
  const Normalized n = normalized(d, d.in(0), axes, centered, d.node.float_or("epsilon", 1e-5f));
  if (d.wants(0)) OPTC_TRY(d.give(0, normalized_adjoint(b, b.mul(d.d(), d.in(1)), n, axes, centered)));
  if (d.wants(1)) OPTC_TRY(d.give(1, b.mul(d.d(), n.normal)));
  return d.wants(2) ? d.give(2, d.d()) : Status();
}

// A vector of channels beside [batch, channels, ...], and what is left of such a tensor.
ValueId along_channels(Body &b, ValueId v, int64_t rank) { return b.unsqueeze(v, axes_from(1, rank - 1)); }
ValueId over_channels(Body &b, ValueId v) {
  std::vector<int64_t> axes = axes_from(1, b.rank(v));
  axes[0] = 0;
  return sum_over(b, v, std::move(axes), false);
}

Status instance_norm(Derivative &d) {
  Body &b = d.b;
  const int64_t rank = b.rank(d.in(0));
  const std::vector<int64_t> axes = axes_from(2, rank);
  const Normalized n = normalized(d, d.in(0), axes, true, d.node.float_or("epsilon", 1e-5f));
  if (d.wants(0)) {
    const ValueId g = b.mul(d.d(), along_channels(b, d.in(1), rank));
    OPTC_TRY(d.give(0, normalized_adjoint(b, g, n, axes, true)));
  }
  if (d.wants(1)) OPTC_TRY(d.give(1, over_channels(b, b.mul(d.d(), n.normal))));
  return d.wants(2) ? d.give(2, over_channels(b, d.d())) : Status();
}

Status group_norm(Derivative &d) {
  Body &b = d.b;
  const ValueId x = d.in(0), shape = b.op("Shape", {x});
  const int64_t groups = d.node.int_or("num_groups", 1), rank = b.rank(x);
  const auto grouped = [&](ValueId v) { return b.reshape(v, {0, groups, -1}); };
  const auto back = [&](ValueId v) { return b.op("Reshape", {v, shape}); };
  const Normalized n = normalized(d, grouped(x), {2}, true, d.node.float_or("epsilon", 1e-5f));
  if (d.wants(0)) {
    const ValueId g = grouped(b.mul(d.d(), along_channels(b, d.in(1), rank)));
    OPTC_TRY(d.give(0, back(normalized_adjoint(b, g, n, {2}, true))));
  }
  if (d.wants(1)) OPTC_TRY(d.give(1, over_channels(b, b.mul(d.d(), back(n.normal)))));
  return d.wants(2) ? d.give(2, over_channels(b, d.d())) : Status();
}

Status batch_norm(Derivative &d) {
  Body &b = d.b;
  OPTC_TRY(only_first_output(d));
  const ValueId x = d.in(0);
  const int64_t rank = b.rank(x);
  const float epsilon = d.node.float_or("epsilon", 1e-5f);
  const auto wide = [&](ValueId v) { return along_channels(b, b.cast(v, b.element(x)), rank); };
  const ValueId g = b.mul(d.d(), wide(d.in(1)));
  if (d.node.int_or("training_mode", 0) != 0) {
    std::vector<int64_t> axes = axes_from(1, rank);
    axes[0] = 0;
    const Normalized n = normalized(d, x, axes, true, epsilon);
    if (d.wants(0)) OPTC_TRY(d.give(0, normalized_adjoint(b, g, n, axes, true)));
    if (d.wants(1)) OPTC_TRY(d.give(1, b.cast(over_channels(b, b.mul(d.d(), n.normal)), b.element(d.in(1)))));
  } else {
    const ValueId variance = b.add(wide(d.in(4)), b.like(x, static_cast<double>(epsilon)));
    const ValueId inverse = b.op("Reciprocal", {b.op("Sqrt", {variance})});
    const ValueId normal = b.mul(b.sub(x, wide(d.in(3))), inverse), scaled = b.mul(g, inverse);
    if (d.wants(0)) OPTC_TRY(d.give(0, scaled));
    if (d.wants(1)) OPTC_TRY(d.give(1, b.cast(over_channels(b, b.mul(d.d(), normal)), b.element(d.in(1)))));
    if (d.wants(3)) OPTC_TRY(d.give(3, b.cast(b.op("Neg", {over_channels(b, scaled)}), b.element(d.in(3)))));
    if (d.wants(4)) {
      const ValueId half = b.mul(b.mul(scaled, normal), b.mul(inverse, b.like(x, -0.5)));
      OPTC_TRY(d.give(4, b.cast(over_channels(b, half), b.element(d.in(4)))));
    }
  }
  return d.wants(2) ? d.give(2, b.cast(over_channels(b, d.d()), b.element(d.in(2)))) : Status();
}

// The adjoint of the logarithms of probabilities [batch, classes, ...] in a loss of labels [batch, ...].
Result<ValueId> likelihood_adjoint(Derivative &d) {
  Body &b = d.b;
  const ValueId scores = d.in(0);
  const ElementType type = b.element(scores);
  const ValueId labels = b.cast(d.in(1), ElementType::kInt64);
  ValueId there;
  if (d.node.attribute("ignore_index"))
    there = b.op("Not", {b.op("Equal", {labels, b.number(ElementType::kInt64,
                                                         static_cast<double>(d.node.int_or("ignore_index", 0)))})});
  const ValueId label = there.valid() ? b.op("Where", {there, labels, b.number(ElementType::kInt64, 0)}) : labels;
  const ValueId one = b.op("Expand", {b.like(scores, 1), b.op("Shape", {labels})});
  ValueId weight = d.in(2).valid() ? b.op("Gather", {d.in(2), label}, {{"axis", int64_t{0}}}) : one;
  if (there.valid()) weight = b.op("Where", {there, weight, b.like(scores, 0)});
  const std::string_view kind = d.node.string_or("reduction", "mean");
  ValueId share = b.mul(d.d(), weight);
  if (kind == "mean") share = b.div(share, b.op("ReduceSum", {weight}, {{"keepdims", int64_t{0}}}));
  const ValueId values = b.concat({b.unsqueeze(b.number(type, 0), {0}), b.unsqueeze(b.number(type, -1), {0})}, 0);
  const ValueId chosen = b.op("OneHot", {label, b.dim(scores, 1), values}, {{"axis", int64_t{1}}});
  return b.mul(chosen, b.unsqueeze(share, {1}));
}

Status likelihood_loss(Derivative &d) {
  if (d.wants(2)) return d.unsupported(d.node.op + " by its weights");
  OPTC_ASSIGN(const ValueId part, likelihood_adjoint(d));
  return d.give(0, part);
}
Status cross_entropy(Derivative &d) {
  if (d.wants(2)) return d.unsupported(d.node.op + " by its weights");
  OPTC_ASSIGN(ValueId part, likelihood_adjoint(d));
  if (d.adjoints.size() > 1 && d.adjoints[1].valid()) part = d.b.add(part, d.adjoints[1]);
  const ValueId y = d.b.op("LogSoftmax", {d.in(0)}, {{"axis", int64_t{1}}});
  return d.give(0, log_softmax_adjoint(d.b, part, y, 1));
}

constexpr DerivativeRow kRows[] = {
    {"BatchNormalization", batch_norm},
    {"GlobalAveragePool", global_average},
    {"GlobalMaxPool", global_max},
    {"GroupNormalization", group_norm},
    {"InstanceNormalization", instance_norm},
    {"LayerNormalization", layer_norm<true>},
    {"LogSoftmax", log_softmax},
    {"NegativeLogLikelihoodLoss", likelihood_loss},
    {"RMSNormalization", layer_norm<false>},
    {"ReduceL1", reduction<f_sign>},
    {"ReduceL2", reduction<f_length>},
    {"ReduceLogSum", reduction<f_log_sum>},
    {"ReduceLogSumExp", reduction<f_log_sum_exp>},
    {"ReduceMax", reduce_extreme},
    {"ReduceMean", reduce_mean},
    {"ReduceMin", reduce_extreme},
    {"ReduceProd", reduce_prod},
    {"ReduceSum", reduction<f_one>},
    {"ReduceSumSquare", reduction<f_double>},
    {"Softmax", softmax},
    {"SoftmaxCrossEntropyLoss", cross_entropy},
};

}  // namespace

std::span<const DerivativeRow> reduction_derivatives() { return kRows; }

}  // namespace optc
