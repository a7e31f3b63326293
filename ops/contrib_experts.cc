// com.microsoft: mixtures of experts. A router gives each token the k experts of its largest scores; a token's result
// is the sum of theirs, weighted. Said by products with the weights of all experts, of which those that were not chosen
// count for nothing.

#include <limits>

#include "ops/contrib_blocks.h"

namespace optc {
namespace {

// [experts, out, in] and [experts, out] (invalid when absent).
struct Projection {
  ValueId weights, bias;
};

struct Experts {
  Projection gate, down, up;   // first, second and third of the operator's; `up` may be absent
  ValueId selection, mixture;  // [tokens, experts]: scores; the weights if they are not made of the scores
  bool normalized;             // the weights of the chosen are those of a softmax of their scores alone, or sum to 1
};

// x: [tokens, in] or [experts, tokens, in].
ValueId project(Body &b, ValueId x, const Projection &p) {
  const ValueId y = b.matmul(x, b.transpose(p.weights, {0, 2, 1}));
  return p.bias.valid() ? b.add(y, b.unsqueeze(b.cast(p.bias, b.element(y)), {1})) : y;
}

// G * sigmoid(alpha * G) * (L + beta), both clamped.
ValueId swiglu(Body &b, ValueId gate, ValueId linear) {
  const float limit = b.f("swiglu_limit", std::numeric_limits<float>::infinity());
  if (limit < std::numeric_limits<float>::infinity()) {
    const ValueId most = b.like(gate, static_cast<double>(limit)), least = b.like(gate, -static_cast<double>(limit));
    gate = b.op("Min", {gate, most});
    linear = b.op("Clip", {linear, least, most});
  }
  const ValueId scaled = b.mul(gate, b.like(gate, static_cast<double>(b.f("activation_alpha", 1))));
  const float beta = b.f("activation_beta", 0);
  if (beta != 0) linear = b.add(linear, b.like(linear, static_cast<double>(beta)));
  return b.mul(b.mul(gate, b.op("Sigmoid", {scaled})), linear);
}

// Every `step`-th element of the last axis from `begin` on.
ValueId every(Body &b, ValueId v, int64_t begin, int64_t step) {
  return b.op("Slice",
              {v, b.ints({begin}), b.ints({std::numeric_limits<int64_t>::max()}), b.ints({-1}), b.ints({step})});
}

// What the experts make of x [tokens, in] between their first and their second projection.
Result<ValueId> hidden(Body &b, ValueId x, const Experts &e) {
  const std::string_view kind = b.s("activation_type", "relu");
  const int64_t fusion = b.i("swiglu_fusion", 0);
  const ValueId first = project(b, x, e.gate);
  if (kind == "swiglu") {
    if (b.i("swiglu_limit_after_activation", 0) != 0) return b.unsupported("swiglu_limit_after_activation");
    if (fusion == 0) {
      if (!e.up.weights.valid()) return b.invalid("swiglu with swiglu_fusion 0 needs the third weights");
      return swiglu(b, first, project(b, x, e.up));
    }
    if (fusion != 1 && fusion != 2) return b.invalid("swiglu_fusion must be 0, 1 or 2");
    if (fusion == 1) return swiglu(b, every(b, first, 0, 2), every(b, first, 1, 2));
    const std::vector<ValueId> half = b.ops("Split", {first}, 2, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}});
    return swiglu(b, half[0], half[1]);
  }
  ValueId y;
  if (kind == "relu") y = b.op("Relu", {first});
  if (kind == "gelu") y = b.op("Gelu", {first});
  if (kind == "silu") y = b.mul(first, b.op("Sigmoid", {first}));
  if (kind == "identity") y = first;
  if (!y.valid()) return b.unsupported("activation '" + std::string(kind) + "'");
  return e.up.weights.valid() ? b.mul(y, project(b, x, e.up)) : y;
}

// The weight of each expert for each token, [tokens, experts]; 0 where it was not chosen.
ValueId routing(Body &b, const Experts &e, int64_t k) {
  const ValueId scores = b.cast(e.selection, ElementType::kFloat32);
  const std::vector<ValueId> best = b.ops("TopK", {scores, b.ints({k})}, 2, {{"axis", int64_t{-1}}});
  const Body::Attributes last{{"axis", int64_t{-1}}};
  ValueId weights;
  if (e.mixture.valid()) {
    weights = b.op("GatherElements", {b.cast(e.mixture, ElementType::kFloat32), best[1]}, last);
    if (e.normalized) weights = b.div(weights, b.op("ReduceSum", {weights, b.ints({-1})}));
  } else if (e.normalized) {
    weights = b.op("Softmax", {best[0]}, last);
  } else {
    weights = b.op("GatherElements", {b.op("Softmax", {scores}, last), best[1]}, last);
  }
  const ValueId none = b.op("Expand", {b.like(scores, 0), b.op("Shape", {scores})});
  return b.op("ScatterElements", {none, best[1], weights}, last);
}

Status mixture(Body &b, const Experts &e) {
  OPTC_TRY(b.need_rank(0, {2, 3}));
  OPTC_TRY(b.need_rank(1, {2}));
  const int64_t k = b.i("k", 1);
  if (b.i("use_sparse_mixer", 0) != 0) return b.unsupported("attribute 'use_sparse_mixer' of " + b.node().op);
  const auto experts = b.fixed(e.gate.weights, 0);
  if (k < 1 || (experts && k > *experts))
    return b.invalid("attribute 'k' must be between 1 and the number of experts, it is " + std::to_string(k));
  ValueId x = b.in(0);
  if (b.rank(x) == 3) {
    const ValueId width = b.dim(x, 2);
    x = b.op("Reshape", {x, b.concat({b.ints({-1}), width}, 0)});
  }
  OPTC_ASSIGN(const ValueId inner, hidden(b, x, e));
  const ValueId all = project(b, inner, e.down);  // [experts, tokens, out]
  const ValueId share =
      b.unsqueeze(b.cast(b.transpose(routing(b, e, k), {1, 0}), b.element(all)), {2});  // [experts, tokens, 1]
  const ValueId none = b.like(all, 0);
  const ValueId counted = b.op("Where", {b.op("Equal", {share, none}), none, b.mul(all, share)});
  const ValueId sum = b.op("ReduceSum", {counted, b.ints({0})}, {{"keepdims", int64_t{0}}});
  b.give(0, b.rank(b.in(0)) == 3 ? b.op("Reshape", {sum, b.op("Shape", {b.in(0)})}) : sum);
  return {};
}

Status moe(Body &b) {
  for (size_t i : {2, 4, 6})
    if (b.has(i)) OPTC_TRY(b.need_rank(i, {3}));
  return mixture(b, {{b.in(2), b.in(3)},
                     {b.in(4), b.in(5)},
                     {b.in(6), b.in(7)},
                     b.in(1),
                     ValueId(),
                     b.i("normalize_routing_weights", 0) != 0});
}

// Weights of integers, [experts, out, in * bits / 8] bytes, with a scale a row or a block of a row.
Result<ValueId> integer_weights(Body &b, size_t input, size_t scale, size_t zero, std::string_view bits_name) {
  OPTC_TRY(b.need_rank(input, {3}));
  if (!b.has(scale)) return b.unsupported(b.node().op + " without scales");
  OPTC_TRY(b.need_rank(scale, {2, 3}));
  const int64_t bits = b.i(bits_name, b.i("expert_weight_bits", 4)), block = b.i("block_size", 0);
  if (bits != 2 && bits != 4 && bits != 8) return b.unsupported("weights of " + std::to_string(bits) + " bits");
  const auto rows = b.fixed(b.in(input), 1), bytes = b.fixed(b.in(input), 2);
  if (!rows || !bytes)
    return b.unsupported("the size of " + b.input_name(input) + " is not known before the model runs");
  const int64_t inner = *bytes * 8 / bits;
  const bool by_row = b.rank(b.in(scale)) == 2;
  if (!by_row && block < 1) return b.invalid(b.input_name(scale) + " has blocks, attribute 'block_size' is absent");
  const int64_t length = by_row ? inner : block, blocks = length > 0 ? inner / length : 0;
  if (length < 1 || blocks * length != inner)
    return b.invalid("attribute 'block_size' does not divide the " + std::to_string(inner) + " columns of " +
                     b.input_name(input));
  const ValueId q = packed_integers(b, b.in(input), bits);
  const ValueId scales = by_row ? b.unsqueeze(b.in(scale), {2}) : b.in(scale);
  ValueId zeros;
  if (b.has(zero)) {
    OPTC_TRY(b.need_rank(zero, {b.rank(b.in(scale))}));
    zeros = unpacked(b, b.in(zero), bits);
    zeros = b.slice(zeros, -1, 0, by_row ? *rows : blocks);
    if (by_row) zeros = b.unsqueeze(zeros, {2});
  } else {
    const ValueId middle = b.number(ElementType::kUInt8, static_cast<double>(1 << (bits - 1)));
    zeros = b.op("Expand", {middle, b.op("Shape", {scales})});
  }
  const ValueId weights = b.op("DequantizeLinear", {q, scales, b.cast(zeros, b.element(q))},
                               {{"axis", int64_t{2}}, {"block_size", length}});
  return b.cast(weights, b.element(b.in(0)));
}

Status q_moe(Body &b) {
  if (b.s("quant_type", "int") != "int")
    return b.unsupported("quant_type '" + std::string(b.s("quant_type", "")) + "' of QMoE");
  if (b.i("weights_prepacked", -1) == 1)
    return b.unsupported("weights that are packed for one device (weights_prepacked)");
  for (size_t i = 15; i < b.input_count(); ++i)
    if (b.has(i)) return b.unsupported(b.input_name(i) + " of QMoE");
  Experts e;
  e.selection = b.in(1);
  e.mixture = b.in(14);
  // Without router_weights ONNX Runtime's CPU form takes the softmax of the chosen whatever the attribute says.
  e.normalized = !b.has(14) || b.i("normalize_routing_weights", 0) != 0;
  OPTC_ASSIGN(e.gate.weights, integer_weights(b, 2, 3, 11, "fc1_expert_weight_bits"));
  OPTC_ASSIGN(e.down.weights, integer_weights(b, 5, 6, 12, "fc2_expert_weight_bits"));
  if (b.has(8)) {
    OPTC_ASSIGN(e.up.weights, integer_weights(b, 8, 9, 13, "fc3_expert_weight_bits"));
  }
  e.gate.bias = b.in(4);
  e.down.bias = b.in(7);
  e.up.bias = b.in(10);
  return mixture(b, e);
}

constexpr OpDef kOps[] = {
    body_row("com.microsoft.MoE",
             {"input router_probs fc1_experts_weights fc1_experts_bias? fc2_experts_weights fc2_experts_bias? "
              "fc3_experts_weights? fc3_experts_bias?",
              "output",
              "activation_alpha:f activation_beta:f activation_type:s k:i normalize_routing_weights:b swiglu_fusion:i "
              "swiglu_limit:f swiglu_limit_after_activation:b use_sparse_mixer:b"},
             moe),
    body_row("com.microsoft.QMoE",
             {"input router_probs fc1_experts_weights fc1_scales? fc1_experts_bias? fc2_experts_weights fc2_scales? "
              "fc2_experts_bias? fc3_experts_weights? fc3_scales? fc3_experts_bias? fc1_zero_points? "
              "fc2_zero_points? fc3_zero_points? router_weights? fc1_global_scale? fc2_global_scale? fc1_act_scale? "
              "fc2_act_scale? fc1_act_block_scale? fc2_act_block_scale?",
              "output",
              "accuracy_level:i activation_alpha:f activation_beta:f activation_type:s block_size:i "
              "expert_weight_bits:i fc1_expert_weight_bits:i fc2_expert_weight_bits:i fc3_expert_weight_bits:i k:i "
              "normalize_routing_weights:b quant_type:s swiglu_fusion:i swiglu_limit:f "
              "swiglu_limit_after_activation:b use_sparse_mixer:b weights_prepacked:i"},
             q_moe),
};

}  // namespace

std::span<const OpDef> contrib_experts_ops() { return kOps; }

}  // namespace optc
