// Random operators. The library makes uniform or normal numbers; what becomes of them is pointwise.

#include "ops/pointwise.h"

namespace optc {
namespace {

std::vector<std::pair<std::string, Attribute>> seed_of(const Node &node) {
  if (node.attribute("seed")) return {{"seed", node.float_or("seed", 0)}};
  return {};
}

ElementType type_or(const Node &node, ElementType fallback) {
  const int64_t given = node.int_or("dtype", 0);
  return given ? static_cast<ElementType>(given) : fallback;
}

Status infer_shaped(InferContext &c) {
  Shape shape;
  if (const auto *dims = c.node().ints("shape"))
    for (int64_t d : *dims) {
      if (d < 0) return c.invalid("attribute 'shape' has a negative dimension");
      shape.push_back(d);
    }
  c.set_tensor(0, type_or(c.node(), ElementType::kFloat32), std::move(shape));
  return {};
}
Status infer_like(InferContext &c) {
  c.set(0, Type::tensor(type_or(c.node(), c.element(0)), c.input(0).shape));
  return {};
}

template <bool normal>
Status build_random(BuildContext &c) {
  const BufferId draw = c.temporary("draw", ElementType::kFloat32, c.output_shape(0));
  c.library(normal ? "random_normal" : "random_uniform", {}, {draw}, seed_of(c.node()));
  const Node &n = c.node();
  const float low = normal ? n.float_or("mean", 0) : n.float_or("low", 0);
  const float factor = normal ? n.float_or("scale", 1) : n.float_or("high", 1) - low;
  const BufferId y = c.output(0);
  return c.pointwise_on({draw}, y, [&](NestBuilder &, std::vector<Expr> x) {
    const ElementType type = compute_type(c.output_type(0).element);
    const Expr draw_wide = is_float(type) ? cast(x[0], type) : x[0];
    return draw_wide * static_cast<double>(factor) + static_cast<double>(low);
  });
}

Status build_bernoulli(BuildContext &c) {
  const BufferId draw = c.temporary("draw", ElementType::kFloat32, c.output_shape(0));
  c.library("random_uniform", {}, {draw}, seed_of(c.node()));
  return c.pointwise_on({draw, c.input(0)}, c.output(0),
                        [](NestBuilder &, std::vector<Expr> x) { return is_below(cast(x[0], x[1].type()), x[1]); });
}

Status infer_multinomial(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) != 2) return c.invalid("the input must be [batch, classes]");
  c.set_tensor(0, static_cast<ElementType>(c.node().int_or("dtype", 6)),
               {c.shape(0)[0], c.node().int_or("sample_size", 1)});
  return {};
}
// The class of a sample: the first whose cumulated weight exceeds a uniform part of the total.
Status build_multinomial(BuildContext &c) {
  const Shape shape = c.shape(0), out = c.output_shape(0);
  const BufferId draw = c.temporary("draw", ElementType::kFloat32, out);
  c.library("random_uniform", {}, {draw}, seed_of(c.node()));
  const ElementType type = compute_type(c.input_type(0).element);
  const BufferId cumulated = c.temporary("cumulated", type, shape);
  {
    NestBuilder nest(c, "cumulated weights");
    nest.nest().sequential = true;
    const Dim k = nest.outer("k", shape[1]), b = nest.outer("b", shape[0]);
    const Expr first = apply(ScalarOp::kEq, nest.index(k), nest.constant(ElementType::kInt64, 0));
    const Expr weight = exponential(nest.load(c.input(0), {b, k}));
    nest.store(cumulated, {b, k},
               select(first, weight.constant(0), nest.load(cumulated, {b, max(k - Dim(1), 0)})) + weight);
    nest.finish();
  }
  NestBuilder nest(c, "samples");
  const std::vector<Dim> at = nest.outer(out);
  const Expr total = nest.load(cumulated, {at[0], shape[1] - Dim(1)});
  const Dim k = nest.stage_loop("k", shape[1]);
  const Expr reached = apply(ScalarOp::kLe, nest.load(cumulated, {at[0], k}), cast(nest.load(draw, at), type) * total);
  const Expr below = nest.reduce(Combine::kSum, cast(reached, ElementType::kInt64));
  nest.store(c.output(0), at, minimum(below, nest.index(shape[1] - Dim(1))));
  nest.finish();
  return {};
}

constexpr auto kForm = OpForm::kLibrary;
const OpDef kOps[] = {
    {"Bernoulli", kForm, 22, infer_like, build_bernoulli, {}, false},
    {"Multinomial", kForm, 22, infer_multinomial, build_multinomial, {}, false},
    {"RandomNormal", kForm, 22, infer_shaped, build_random<true>, {}, false},
    {"RandomNormalLike", kForm, 22, infer_like, build_random<true>, {}, false},
    {"RandomUniform", kForm, 22, infer_shaped, build_random<false>, {}, false},
    {"RandomUniformLike", kForm, 22, infer_like, build_random<false>, {}, false},
};

}  // namespace

std::span<const OpDef> random_ops() { return kOps; }

}  // namespace optc
