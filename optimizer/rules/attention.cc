// attention.*: softmax(q k^T * scale + mask) v as one operator, optc.Attention (ops/fused_attention.cc), which has the
// exporters' guard against rows that are masked out entirely as an attribute; keys and values that heads share; rotary
// positions.
#include <cmath>

#include "optimizer/rules/chain.h"
#include "optimizer/rules/view.h"

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

// K or V that an exporter repeats for the heads that share them: Reshape(Expand(k [B,G,T,D] -> [B,G,1,T,D] ->
// [B,G,H/G,T,D]) -> [B,H,T,D]); invalid: it is something else.
ValueId repeated(const RuleContext &context, ValueId v) {
  const NodeId join = context.producer(v);
  if (!is_view(context, join)) return {};
  const ValueId wide = context.input(join, 0);
  const NodeId expand = context.producer(wide, "Expand");
  if (!expand.valid() || !rank4(context, v) || !context.type(wide).has_shape() || context.type(wide).rank() != 5)
    return {};
  const ValueId single = context.input(expand, 0);
  const NodeId part = context.producer(single);
  if (!is_view(context, part)) return {};
  const ValueId k = context.input(part, 0);
  if (!rank4(context, k) || !context.type(single).has_shape() || context.type(single).rank() != 5) return {};
  const Shape &from = context.shape(k), &one = context.shape(single), &many = context.shape(wide),
              &to = context.shape(v);
  if (!one[2].is(1) || !from[1].is_constant() || !many[2].is_constant() || !to[1].is_constant()) return {};
  if (to[1].value() != from[1].value() * many[2].value()) return {};
  for (const auto &[d, e] : {std::pair<size_t, size_t>{0, 0}, {1, 1}, {2, 3}, {3, 4}})
    if (!(from[d] == one[e]) || !(from[d] == many[e]) || (d != 1 && !(from[d] == to[d]))) return {};
  return k;
}

Result<bool> grouped(RuleContext &context, NodeId n) {
  const Node node = context.node(n);
  const ValueId k = repeated(context, node.inputs[1]), v = repeated(context, node.inputs[2]);
  if (!k.valid() || !v.valid()) return false;
  if (!(context.shape(k)[1] == context.shape(v)[1])) {
    context.rewriter().missed("attention.grouped", n, "keys and values are shared by other numbers of heads");
    return false;
  }
  auto change = context.rewriter().begin("attention.grouped", RewriteKind::kFuse, n);
  std::vector<ValueId> inputs = node.inputs;
  inputs[1] = k;
  inputs[2] = v;
  const NodeId made = change.create(node.op, std::move(inputs), node.attributes);
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  OPTC_TRY(change.commit());
  return true;
}

// Cosines or sines of rotary positions [B,1,S,D]: a view of elementwise nodes on Concat(t, t) along the last axis.
// `chain`: the nodes behind the Concat but the view, the last one first.
struct Angles {
  ValueId half;  // t [B,S,D/2]
  std::vector<NodeId> chain;
};
std::optional<Angles> angles(const RuleContext &context, ValueId v) {
  if (!rank4(context, v) || !context.shape(v)[1].is(1)) return std::nullopt;
  const NodeId view = context.producer(v);
  if (!is_view(context, view)) return std::nullopt;
  ValueId at = context.input(view, 0);
  if (!context.type(at).has_shape() || context.type(at).rank() != 3) return std::nullopt;
  for (const auto &[d, e] : {std::pair<size_t, size_t>{0, 0}, {1, 2}, {2, 3}})
    if (!(context.shape(at)[d] == context.shape(v)[e])) return std::nullopt;
  Angles angles;
  for (int steps = 0; steps < 8; ++steps) {
    const NodeId n = context.producer(at);
    if (!n.valid()) return std::nullopt;
    const Node &node = context.node(n);
    if (node.op == "Concat") {
      if (node.inputs.size() != 2 || node.inputs[0] != node.inputs[1]) return std::nullopt;
      const int64_t axis = node.int_or("axis", 0);
      if ((axis != 2 && axis != -1) || !context.type(node.inputs[0]).has_shape()) return std::nullopt;
      angles.half = node.inputs[0];
      return angles;
    }
    const bool scaled =
        node.op == "Mul" && context.scalar(context.input(n, 1)) && context.type(context.input(n, 1)).rank() == 0;
    if (node.op != "Cos" && node.op != "Sin" && node.op != "Cast" && !scaled) return std::nullopt;
    angles.chain.push_back(n);
    at = node.inputs[0];
  }
  return std::nullopt;
}

// Whether `v` is x[..., from : from + half] of a rank 4 value.
bool is_half(const RuleContext &context, ValueId v, ValueId x, int64_t from, int64_t half) {
  const NodeId slice = context.producer(v, "Slice");
  if (!slice.valid() || context.input(slice, 0) != x || !rank4(context, v) || !context.shape(v)[3].is(half))
    return false;
  const auto start = context.scalar(context.input(slice, 1)), axis = context.scalar(context.input(slice, 3)),
             step = context.scalar(context.input(slice, 4));
  return start && axis && (*axis == 3 || *axis == -1) && (!context.input(slice, 4).valid() || (step && *step == 1)) &&
         (*start == static_cast<double>(from) || *start == static_cast<double>(from - 2 * half));
}

// x * cos + Concat(-x[half:], x[:half]) * sin -> RotaryEmbedding(x, cos of half the width, sin of half the width)
Result<bool> rotary(RuleContext &context, NodeId n) {
  constexpr std::string_view kName = "attention.rotary";
  if (!rank4(context, context.output(n)) || !context.is_model_float(context.output(n))) return false;
  const NodeId left = context.producer(context.input(n, 0), "Mul"),
               right = context.producer(context.input(n, 1), "Mul");
  if (!left.valid() || !right.valid()) return false;
  for (size_t i = 0; i < 8; ++i) {
    const NodeId plain = i & 1 ? right : left, turned = i & 1 ? left : right;
    const ValueId x = context.input(plain, i >> 1 & 1), cosine = context.input(plain, 1 - (i >> 1 & 1)),
                  swapped = context.input(turned, i >> 2 & 1), sine = context.input(turned, 1 - (i >> 2 & 1));
    const NodeId concat = context.producer(swapped, "Concat");
    if (!concat.valid() || context.node(concat).inputs.size() != 2 || !rank4(context, x) ||
        !context.shape(x)[3].is_constant() || context.shape(x)[3].value() % 2 != 0)
      continue;
    const int64_t axis = context.node(concat).int_or("axis", 0), half = context.shape(x)[3].value() / 2;
    const NodeId negation = context.producer(context.input(concat, 0), "Neg");
    if ((axis != 3 && axis != -1) || !negation.valid() ||
        !is_half(context, context.input(negation, 0), x, half, half) ||
        !is_half(context, context.input(concat, 1), x, 0, half))
      continue;
    const auto c = angles(context, cosine), s = angles(context, sine);
    if (!c || !s || !(context.type(x) == context.type(context.output(n)))) {
      context.rewriter().missed(kName, n, "the halves of the cosines or of the sines are not seen to be equal");
      continue;
    }
    const std::vector<NodeId> nodes{n, plain, turned, concat, negation};
    if (!closed(context, nodes)) {
      context.rewriter().missed(kName, n, "an inner value is used elsewhere too");
      continue;
    }
    if (!context.may_make(kName, n, "RotaryEmbedding", context.type(x).element)) return false;
    auto change = context.rewriter().begin(kName, RewriteKind::kFuse, n);
    change.numerics(NumericsClass::kReassociating);
    const auto of_half = [&](const Angles &a) {
      ValueId v = a.half;
      for (size_t k = a.chain.size(); k-- > 0;) {
        const Node node = context.node(a.chain[k]);
        std::vector<ValueId> inputs = node.inputs;
        inputs[0] = v;
        v = change.output(change.create(node.op, std::move(inputs), node.attributes));
      }
      return v;
    };
    const ValueId cosines = of_half(*c), sines = of_half(*s);
    const NodeId made =
        change.create("RotaryEmbedding", {x, cosines, sines},
                      {{"interleaved", int64_t{0}}, {"num_heads", int64_t{0}}, {"rotary_embedding_dim", int64_t{0}}});
    change.replace(context.output(n), change.output(made));
    for (const NodeId node : nodes) change.erase(node);
    OPTC_TRY(change.commit());
    return true;
  }
  return false;
}

constexpr Rule kRules[] = {
    {"attention.scaled_mask", NumericsClass::kReassociating, "MatMul",
     "MatMul(Softmax(scale * MatMul(q, k^T) + mask), v), scales before or behind the product, with or without the "
     "guard "
     "Where(IsNaN(p), 0, p) -> optc.Attention(q, k, v, mask)",
     "rank 4, f32, f16 or bf16 (scores and sums then are f32, unrounded), softmax over the keys, batch and heads of q, "
     "k and v equal, inner values used nowhere else",
     scaled_mask},
    {"attention.grouped", NumericsClass::kExact, "optc.Attention",
     "optc.Attention of keys and values that Expand repeats for the heads that share them -> of the keys and values",
     "numbers of heads are constant, both are repeated for the same number of heads", grouped},
    {"attention.rotary", NumericsClass::kReassociating, "Add",
     "x * cos + Concat(-x[half:], x[:half]) * sin -> RotaryEmbedding(x, cos, sin)",
     "rank 4, even width; cos and sin are computed element by element of Concat(t, t); inner values used nowhere else",
     rotary},
};

}  // namespace

std::span<const Rule> attention_rules() { return kRules; }

}  // namespace optc
