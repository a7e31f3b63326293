// ai.onnx.preview.training: Adagrad, Adam, Momentum: one step of an optimizer on any number of tensors. The operands
// are R (learning rate), T (number of steps before this one), then a group of tensors each: the parameters X, their
// gradients G and the states. The outputs are the new parameters and states in the same groups.

#include <string>

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

// How many tensors are optimized; `groups` is the number of operands each (X, G and the states).
size_t tensor_count(size_t inputs, size_t groups) { return inputs > 2 ? (inputs - 2) / groups : 0; }

Status infer_step(InferContext &c, size_t groups) {
  const size_t n = tensor_count(c.input_count(), groups);
  if (n == 0 || c.input_count() != 2 + groups * n || c.output_count() != (groups - 1) * n)
    return c.invalid("the number of operands and results does not fit " + std::to_string(groups) +
                     " tensors a parameter");
  for (size_t i = 0; i < 2; ++i) {
    OPTC_TRY(c.require_shape(i));
    const Dim count = element_count(c.shape(i));
    if (!count.is(1)) return c.invalid("R and T must have one element");
  }
  for (size_t i = 0; i < n; ++i) {
    const size_t x = 2 + i;
    OPTC_TRY(c.require_shape(x));
    for (size_t g = 1; g < groups; ++g) {
      const size_t other = x + g * n;
      OPTC_TRY(c.require_shape(other));
      if (c.element(other) != c.element(x)) return c.invalid("a parameter and its tensors differ in element type");
      if (c.rank(other) != c.rank(x)) return c.invalid("a parameter and its tensors differ in rank");
      for (size_t k = 0; k < c.shape(x).size(); ++k)
        OPTC_TRY(c.same(c.shape(x)[k], c.shape(other)[k], "the dims of a parameter and its tensors"));
    }
    for (size_t g = 0; g + 1 < groups; ++g) c.set_tensor(i + g * n, c.element(x), c.shape(x));
  }
  return {};
}
Status infer_two(InferContext &c) { return infer_step(c, 3); }
Status infer_three(InferContext &c) { return infer_step(c, 4); }

// One kernel a parameter. `scalar` gives in f64 what depends on R and T only, `update` the new values of X and the
// states from the old ones (X, G, states).
using Scalars = std::function<std::vector<Expr>(Expr rate, Expr step)>;
using Update = std::function<std::vector<Expr>(const std::vector<Expr> &scalars, const std::vector<Expr> &old)>;

Status build_step(BuildContext &c, size_t groups, size_t scalar_count, const Scalars &scalar, const Update &update) {
  const size_t n = tensor_count(c.node().inputs.size(), groups);
  BufferId scalars = c.temporary("rates", ElementType::kFloat64, {Dim(static_cast<int64_t>(scalar_count))});
  {
    NestBuilder nest(c, "learning rate");
    const Expr rate = cast(nest.load(c.input(0), Dims(c.shape(0).size())), ElementType::kFloat64);
    const Expr step = cast(nest.load(c.input(1), Dims(c.shape(1).size())), ElementType::kFloat64);
    const std::vector<Expr> values = scalar(rate, step);
    for (size_t i = 0; i < values.size(); ++i) nest.store(scalars, {Dim(static_cast<int64_t>(i))}, values[i]);
    nest.finish();
  }
  for (size_t i = 0; i < n; ++i) {
    bool wanted = false;
    for (size_t g = 0; g + 1 < groups; ++g) wanted = wanted || c.has_output(i + g * n);
    if (!wanted) continue;
    NestBuilder nest(c, "step");
    const Dims index = nest.outer(c.shape(2 + i));
    std::vector<Expr> old, rates;
    for (size_t g = 0; g < groups; ++g) old.push_back(nest.load(c.input(2 + i + g * n), index));
    for (size_t k = 0; k < scalar_count; ++k)
      rates.push_back(cast(nest.load(scalars, {Dim(static_cast<int64_t>(k))}), old[0].type()));
    const std::vector<Expr> fresh = update(rates, old);
    for (size_t g = 0; g + 1 < groups; ++g)
      if (c.has_output(i + g * n)) nest.store(c.output(i + g * n), index, fresh[g]);
    nest.finish();
  }
  return {};
}

Expr square_root(Expr a) { return apply(ScalarOp::kSqrt, a); }

Status build_adagrad(BuildContext &c) {
  const Node &node = c.node();
  const double decay = node.float_or("decay_factor", 0), epsilon = node.float_or("epsilon", 0),
               norm = node.float_or("norm_coefficient", 0);
  return build_step(
      c, 3, 1, [&](Expr rate, Expr step) { return std::vector<Expr>{rate / (step * decay + 1)}; },
      [&](const std::vector<Expr> &rate, const std::vector<Expr> &old) {
        const Expr x = old[0], g = x * norm + old[1], h = old[2] + g * g;
        return std::vector<Expr>{x - rate[0] * g / (square_root(h) + epsilon), h};
      });
}

Status build_adam(BuildContext &c) {
  const Node &node = c.node();
  const double alpha = node.float_or("alpha", 0.9f), beta = node.float_or("beta", 0.999f),
               epsilon = node.float_or("epsilon", 0), norm = node.float_or("norm_coefficient", 0),
               after = node.float_or("norm_coefficient_post", 0);
  // In f64: 1 - beta^T loses half of f32's digits in the first steps.
  const auto rates = [&](Expr rate, Expr step) {
    const Expr corrected = rate * square_root(1 - apply(ScalarOp::kPow, step.constant(beta), step)) /
                           (1 - apply(ScalarOp::kPow, step.constant(alpha), step));
    return std::vector<Expr>{select(less(step.constant(0), step), corrected, rate)};
  };
  return build_step(c, 4, 1, rates, [&](const std::vector<Expr> &rate, const std::vector<Expr> &old) {
    const Expr x = old[0], g = x * norm + old[1];
    const Expr v = old[2] * alpha + g * (1 - alpha), h = old[3] * beta + g * g * (1 - beta);
    const Expr stepped = x - rate[0] * (v / (square_root(h) + epsilon));
    return std::vector<Expr>{after == 0 ? stepped : stepped * (1 - after), v, h};
  });
}

Status infer_momentum(InferContext &c) {
  const std::string_view mode = c.node().string_or("mode", "");
  if (mode != "standard" && mode != "nesterov")
    return c.invalid("mode '" + std::string(mode) + "' is neither standard nor nesterov");
  return infer_two(c);
}
Status build_momentum(BuildContext &c) {
  const Node &node = c.node();
  const double alpha = node.float_or("alpha", 0), beta = node.float_or("beta", 0),
               norm = node.float_or("norm_coefficient", 0);
  const bool nesterov = node.string_or("mode", "") == "nesterov";
  const auto rates = [&](Expr rate, Expr step) {  // the first gradient counts in full
    return std::vector<Expr>{rate, select(less(step.constant(0), step), step.constant(beta), step.constant(1))};
  };
  return build_step(c, 3, 2, rates, [&](const std::vector<Expr> &rate, const std::vector<Expr> &old) {
    const Expr x = old[0], g = x * norm + old[1], v = old[2] * alpha + rate[1] * g;
    return std::vector<Expr>{x - rate[0] * (nesterov ? g + v * alpha : v), v};
  });
}

const OpDef kOps[] = {
    {"ai.onnx.preview.training.Adagrad", OpForm::kPointwise, 1, infer_two, build_adagrad},
    {"ai.onnx.preview.training.Adam", OpForm::kPointwise, 1, infer_three, build_adam},
    {"ai.onnx.preview.training.Momentum", OpForm::kPointwise, 1, infer_momentum, build_momentum},
};

}  // namespace

std::span<const OpDef> training_ops() { return kOps; }

}  // namespace optc
