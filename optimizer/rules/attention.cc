// attention.*: softmax(q k^T * scale + mask) v as one operator, optc.Attention (ops/fused_attention.cc), which has the
// exporters' guard against rows that are masked out entirely as an attribute.
#include <cmath>

#include "optimizer/rule.h"

namespace optc {
namespace {

// Strips products with one number: x * s -> x, factor *= s.
ValueId strip_scale(const RuleContext &context, ValueId v, double &factor, std::vector<NodeId> &nodes) {
  for (;;) {
    const NodeId mul = context.producer(v, "Mul"), div = context.producer(v, "Div");
    if (mul.valid()) {
      const auto pair = context.commuted(
          mul, [&](ValueId c) { return context.scalar(c).has_value() && context.type(c).rank() <= 1; });
      if (!pair) return v;
      factor *= *context.scalar(pair->second);
      nodes.push_back(mul);
      v = pair->first;
    } else if (div.valid() && context.scalar(context.input(div, 1)) &&
               context.type(context.input(div, 1)).rank() <= 1 && *context.scalar(context.input(div, 1)) != 0) {
      factor /= *context.scalar(context.input(div, 1));
      nodes.push_back(div);
      v = context.input(div, 0);
    } else {
      return v;
    }
  }
}

bool rank4(const RuleContext &context, ValueId v) { return context.type(v).has_shape() && context.type(v).rank() == 4; }

Result<bool> scaled_mask(RuleContext &context, NodeId n) {
  constexpr std::string_view kName = "attention.scaled_mask";
  if (!rank4(context, context.output(n)) || !context.is_model_float(context.output(n))) return false;
  std::vector<NodeId> nodes{n};
  ValueId p = context.input(n, 0);
  const ValueId v = context.input(n, 1);
  // Where(IsNaN(p), 0, p): rows without any key give 0.
  bool guarded = false;
  if (const NodeId where = context.producer(p, "Where"); where.valid()) {
    const NodeId is_nan = context.producer(context.input(where, 0), "IsNaN");
    if (!is_nan.valid() || context.input(is_nan, 0) != context.input(where, 2) ||
        !context.is_scalar(context.input(where, 1), 0))
      return false;
    p = context.input(where, 2);
    nodes.push_back(where);
    nodes.push_back(is_nan);
    guarded = true;
  }
  const NodeId softmax = context.producer(p, "Softmax");
  if (!softmax.valid()) return false;
  const int64_t axis = context.node(softmax).int_or("axis", -1);
  if (axis != -1 && axis != 3) {
    context.rewriter().missed(kName, n, "the softmax runs over another axis than the keys");
    return false;
  }
  nodes.push_back(softmax);
  ValueId scores = context.input(softmax, 0);
  double scale = 1;
  ValueId mask;
  NodeId product;
  std::vector<NodeId> post;
  scores = strip_scale(context, scores, scale, post);
  if (const NodeId add = context.producer(scores, "Add"); add.valid()) {
    if (!post.empty()) return false;  // a scale behind the mask would scale the mask too
    double ignored = 1;
    std::vector<NodeId> stripped;
    for (size_t side = 0; side < 2 && !product.valid(); ++side) {
      ignored = 1;
      stripped.clear();
      const NodeId found =
          context.producer(strip_scale(context, context.input(add, side), ignored, stripped), "MatMul");
      if (!found.valid() || !(context.type(context.input(add, side)) == context.type(context.output(add)))) continue;
      product = found;
      mask = context.input(add, 1 - side);
    }
    if (!product.valid()) return false;
    scale *= ignored;
    nodes.push_back(add);
    nodes.insert(nodes.end(), stripped.begin(), stripped.end());
  } else {
    product = context.producer(scores, "MatMul");
    nodes.insert(nodes.end(), post.begin(), post.end());
  }
  if (!product.valid() || !rank4(context, context.output(product))) return false;
  nodes.push_back(product);
  // Everything between must end here; what else reads it would have to compute it again.
  for (size_t i = 1; i < nodes.size(); ++i)
    if (!context.used_only_by(context.output(nodes[i]), nodes)) {
      context.rewriter().missed(kName, n, "the scores or probabilities are used elsewhere too");
      return false;
    }
  const ValueId q = strip_scale(context, context.input(product, 0), scale, nodes);
  const ValueId kt = strip_scale(context, context.input(product, 1), scale, nodes);
  if (!rank4(context, q) || !rank4(context, kt) || !rank4(context, v)) return false;
  const float factor = static_cast<float>(scale);
  if (!std::isfinite(factor) || (factor == 0 ? scale != 0 : !std::isnormal(factor))) return false;
  if (mask.valid() && context.type(mask).rank() > 4) return false;
  // Heads and batches must be one for one: a product that broadcasts keys is another thing.
  for (size_t d = 0; d < 2; ++d)
    if (!(context.shape(q)[d] == context.shape(kt)[d]) || !(context.shape(q)[d] == context.shape(v)[d])) return false;
  if (!context.may_make(kName, n, "optc.Attention", context.type(q).element)) return false;
  auto change = context.rewriter().begin(kName, RewriteKind::kFuse, n);
  change.numerics(NumericsClass::kReassociating);
  const NodeId k = change.create("Transpose", {kt}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  std::vector<ValueId> inputs{q, change.output(k), v};
  if (mask.valid()) inputs.push_back(mask);
  const NodeId made =
      change.create("optc.Attention", inputs, {{"scale", factor}, {"zero_masked_rows", int64_t{guarded}}});
  change.replace(context.output(n), change.output(made));
  // Scales of q and k are shared with nothing, or stay for their other readers.
  std::vector<NodeId> erased;
  for (NodeId node : nodes)
    if (node == n || context.used_only_by(context.output(node), nodes)) erased.push_back(node);
  for (NodeId node : erased) change.erase(node);
  OPTC_TRY(change.commit());
  return true;
}

constexpr Rule kRules[] = {
    {"attention.scaled_mask", NumericsClass::kReassociating, "MatMul",
     "MatMul(Softmax(scale * MatMul(q, k^T) + mask), v), scales before or behind the product, with or without the "
     "guard "
     "Where(IsNaN(p), 0, p) -> optc.Attention(q, k, v, mask)",
     "rank 4, f32, f16 or bf16 (scores and sums then are f32, unrounded), softmax over the keys, batch and heads of q, "
     "k and v equal, inner values used nowhere else",
     scaled_mask},
};

}  // namespace

std::span<const Rule> attention_rules() { return kRules; }

}  // namespace optc
