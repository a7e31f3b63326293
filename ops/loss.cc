// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.

#include "ops/pointwise.h"
#include "ops/rows.h"
#include "ops/util.h"

namespace optc {
namespace {

using Index = std::vector<Dim>;

Status infer_loss(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  if (c.rank(0) < 2 || c.rank(1) != c.rank(0) - 1) return c.invalid("scores are [N, C, ...] and labels [N, ...]");
  for (size_t k = 0; k < c.shape(1).size(); ++k) {
    OPTC_ASSIGN([[maybe_unused]] Dim d,
                c.same(c.shape(1)[k], c.shape(0)[k == 0 ? 0 : k + 1], "the dimensions of scores and labels"));
  }
  if (c.has_input(2)) {
    OPTC_TRY(c.require_shape(2));
    if (c.rank(2) != 1) return c.invalid("the weights must be a vector");
    OPTC_ASSIGN([[maybe_unused]] Dim classes,
                c.same(c.shape(2)[0], c.shape(0)[1], "the number of weights and of classes"));
  }
  const std::string_view reduction = c.node().string_or("reduction", "mean");
  if (reduction != "none" && reduction != "mean" && reduction != "sum")
    return c.invalid("attribute 'reduction' must be none, mean or sum");
  c.set_tensor(0, c.element(0), reduction == "none" ? c.shape(1) : Shape());
  c.set(1, c.input(0));
  return {};
}

// -logarithms[n, label, ...] * weight[label], 0 where the label is ignored; reduced as the attribute says.
Status emit_loss(BuildContext &c, BufferId logarithms) {
  const Shape labels = c.shape(1), scores = c.shape(0);
  const std::string_view reduction = c.node().string_or("reduction", "mean");
  const bool has_ignored = c.node().attribute("ignore_index") != nullptr;
  const int64_t ignored = c.node().int_or("ignore_index", 0);
  NestBuilder nest(c, c.node().op);
  const Index at = reduction == "none" ? nest.outer(labels) : nest.stage_loops(labels);
  Expr label = cast(nest.load(c.input(1), at), ElementType::kInt64), skip;
  if (has_ignored) {
    skip = equal(label, Expr(&label.pool(), label.pool().constant_int(ElementType::kInt64, ignored)));
    label = select(skip, label.constant(0), label);
  }
  const Dim position = nest.as_index(label, scores[1]);
  Index from = at;
  from.insert(from.begin() + 1, position);
  Expr loss = -nest.load(logarithms, from);
  Expr weight = c.has_input(2) ? cast(nest.load(c.input(2), {position}), loss.type()) : loss.constant(1);
  if (c.has_input(2)) loss = loss * weight;
  if (has_ignored) {
    loss = select(skip, loss.constant(0), loss);
    weight = select(skip, loss.constant(0), weight);
  }
  if (reduction == "none") {
    nest.store(c.output(0), at, loss);
  } else if (reduction == "sum") {
    nest.store(c.output(0), {}, nest.reduce(Combine::kSum, loss));
  } else {
    const std::vector<Expr> sums = nest.reduce_all({{Combine::kSum, loss}, {Combine::kSum, weight}});
    nest.store(c.output(0), {}, sums[0] / sums[1]);
  }
  nest.finish();
  return {};
}

Status build_nll(BuildContext &c) { return emit_loss(c, c.input(0)); }

Status build_cross_entropy(BuildContext &c) {
  const Shape shape = c.shape(0);
  const ElementType type = compute_type(c.input_type(0).element);
  // The logarithms stay in the compute type for the loss; the second output is rounded.
  const BufferId wide = c.temporary("log_prob", type, shape);
  NestBuilder nest(c, "log softmax");
  Rows rows(nest, shape, inside_axis(shape.size(), 1));
  const BufferId x = c.input(0);
  const Expr highest = nest.reduce(Combine::kMax, nest.load(x, rows.open()));
  const Expr sum = nest.reduce(Combine::kSum, exponential(nest.load(x, rows.open()) - highest));
  const Expr shift = logarithm(sum);
  const Index at = rows.open();
  const Expr y = nest.load(x, at) - highest - shift;
  nest.store(wide, at, y);
  if (c.has_output(1)) nest.store(c.output(1), at, y);
  nest.finish();
  return emit_loss(c, wide);
}

const OpDef kOps[] = {
    {"NegativeLogLikelihoodLoss", OpForm::kExpansion, 22, infer_loss, build_nll},
    {"SoftmaxCrossEntropyLoss", OpForm::kExpansion, 13, infer_loss, build_cross_entropy},
};

}  // namespace

std::span<const OpDef> loss_ops() { return kOps; }

}  // namespace optc
