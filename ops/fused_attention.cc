// optc.Attention: what the rule attention.scaled_mask makes of the exporters' chains.
//
//   Y = softmax(scale * Q K^T + mask, keys) V     Q [B,H,S,D]  K [B,G,T,D]  V [B,G,T,E]  mask broadcasts to [B,H,S,T]
//   Y [B,H,S,E]
//
// H / G heads of Q, one after another, share a head of K and V; H = G, or both are numbers and G divides H.
// attributes: scale (float), zero_masked_rows (1: a row's probabilities are 0 where they would be NaN, as
// Where(IsNaN(p), 0, p) makes them). The mask is additive (float) or bool (false excludes). Scores and sums are f32
// (f64 for f64).
#include <limits>

#include "ops/build.h"
#include "ops/registry.h"

namespace optc {
namespace {

Status infer(InferContext &c) {
  for (size_t i = 0; i < 3; ++i) {
    OPTC_TRY(c.require_shape(i));
    if (c.rank(i) != 4) return c.invalid("optc.Attention needs operands of rank 4");
  }
  const Dim heads = c.shape(0)[1], shared = c.shape(1)[1];
  const bool divides = heads.is_constant() && shared.is_constant() && shared.value() > 0 &&
                       heads.value() % shared.value() == 0 && c.shape(2)[1] == shared;
  if (!(heads == shared) && !divides) return c.invalid("optc.Attention needs heads of K and V that divide those of Q");
  Shape shape = c.shape(0);
  shape[3] = c.shape(2)[3];
  c.set_tensor(0, c.element(0), std::move(shape));
  return {};
}

Status build(BuildContext &c) {
  const Shape q_shape = c.shape(0), k_shape = c.shape(1), v_shape = c.shape(2), out_shape = c.output_shape(0);
  const ElementType type = compute_type(c.input_type(0).element);
  NestBuilder nest(c, "attention");
  const bool grouped = !(q_shape[1] == k_shape[1]);
  const Dim group = grouped ? floor_div(q_shape[1], k_shape[1]) : Dim(1);
  const Dim b = nest.outer("b", q_shape[0]), g = nest.outer("h", k_shape[1]),
            r = grouped ? nest.outer("r", group) : Dim(0), i = nest.outer("i", q_shape[2]);
  const Dim h = grouped ? g * group + r : g;
  const Dim keys = k_shape[2], inner = q_shape[3], width = v_shape[3];
  const LocalId product = nest.local_row("product", type, {keys}), scores = nest.local_row("scores", type, {keys});
  Contraction info;
  info.kind = ContractionKind::kAttention;
  const bool guarded = c.node().int_or("zero_masked_rows", 0) != 0;
  info.masked_rows = guarded ? MaskedRows::kZeroProbabilities : MaskedRows::kNaN;

  Dim j = nest.stage_loop("j", keys), d = nest.stage_loop("d", inner);
  const Expr q = nest.load(c.input(0), {b, h, i, d}), k = nest.load(c.input(1), {b, g, j, d});
  info.query = q.id();
  info.key = k.id();
  info.k = {single_symbol(j), single_symbol(d)};
  nest.store_local(product, {j}, q * k, Combine::kSum);
  nest.end_stage();

  j = nest.stage_loop("j", keys);
  const Expr scale = nest.constant(type, static_cast<double>(c.node().float_or("scale", 1.0f)));
  info.scale = scale.id();
  Expr score = nest.load_local(product, {j}) * scale;
  if (c.has_input(3)) {
    const Shape scores_shape{q_shape[0], q_shape[1], q_shape[2], keys};
    const std::vector<Dim> at = broadcast_index({b, h, i, j}, c.shape(3), scores_shape);
    const Expr mask = nest.load(c.input(3), at);
    info.mask = mask.id();
    if (c.input_type(3).element == ElementType::kBool)
      score = select(mask, score, nest.constant(type, -std::numeric_limits<double>::infinity()));
    else
      score = score + cast(mask, type);
  }
  nest.store_local(scores, {j}, score);
  nest.end_stage();

  j = nest.stage_loop("j", keys);
  const Expr top = nest.reduce(Combine::kMax, nest.load_local(scores, {j}));
  j = nest.stage_loop("j", keys);
  // exp(s - max), kept; a row of -inf alone would give NaN: -inf - (-inf).
  const LocalId weights = nest.local_row("weights", type, {keys});
  nest.store_local(weights, {j}, apply(ScalarOp::kExp, nest.load_local(scores, {j}) - top));
  nest.end_stage();
  j = nest.stage_loop("j", keys);
  const Expr sum = nest.reduce(Combine::kSum, nest.load_local(weights, {j}));
  const LocalId result = nest.local_row("result", type, {width});
  j = nest.stage_loop("j", keys);
  Dim e = nest.stage_loop("e", width);
  const Expr v = nest.load(c.input(2), {b, g, j, e});
  info.value = v.id();
  info.batch = {single_symbol(b), single_symbol(g)};
  if (grouped) info.batch.push_back(single_symbol(r));
  info.m = {single_symbol(i)};
  info.n = {single_symbol(j), single_symbol(e)};
  // All probabilities of a row are NaN, or none: where their sum is.
  const Expr masked = apply(ScalarOp::kIsNan, sum);
  Expr weight = nest.load_local(weights, {j});
  if (guarded) weight = select(masked, weight.constant(0), weight);
  nest.store_local(result, {e}, weight * v, Combine::kSum);
  nest.end_stage();
  e = nest.stage_loop("e", width);
  Expr y = nest.load_local(result, {e}) / sum;
  if (guarded) y = select(masked, nest.load_local(result, {e}), y);
  if (lower_bound(keys) < 1)  // the product of no probabilities and no values
    y = select(apply(ScalarOp::kEq, nest.index(keys), nest.index(0)), y.constant(0), y);
  nest.store(c.output(0), {b, h, i, e}, y);
  nest.nest().contraction = info;
  nest.finish();
  return {};
}

constexpr OpDef kOps[] = {{"optc.Attention", OpForm::kContraction, 1, infer, build}};

}  // namespace

std::span<const OpDef> fused_attention_ops() { return kOps; }

}  // namespace optc
