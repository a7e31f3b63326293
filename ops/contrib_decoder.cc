// com.microsoft: blocks of recent decoders: gates, norms of branches, attention without a softmax and the convolution
// before it, positions of images and videos.

#include <limits>
#include <string>

#include "ops/body.h"

namespace optc {
namespace {

constexpr ElementType kReal = ElementType::kFloat32;
constexpr int64_t kMaxTable = int64_t{1} << 20;

ValueId real(Body &b, ValueId v) { return b.cast(v, kReal); }
ValueId shaped_as(Body &b, ValueId v, ValueId like) { return b.op("Reshape", {v, b.op("Shape", {like})}); }

// x over the root of the mean of its squares along the last axis.
ValueId rms_normalized(Body &b, ValueId x, float epsilon) {
  const ValueId mean = b.op("ReduceMean", {b.mul(x, x), b.ints({-1})});
  return b.div(x, b.op("Sqrt", {b.add(mean, b.like(x, static_cast<double>(epsilon)))}));
}

// Each run of as many elements as the scale has is normalized, scaled, and multiplied by an activation of the gate.
Status gated_rms_norm(Body &b) {
  OPTC_TRY(b.need_rank(0));
  OPTC_TRY(b.need_rank(1, {1}));
  const std::string_view activation = b.s("activation", "silu");
  if (activation != "silu" && activation != "swish" && activation != "sigmoid")
    return b.unsupported("activation '" + std::string(activation) + "'");
  if (b.rank(b.in(0)) < 1) return b.invalid(b.input_name(0) + " must have an axis");
  std::vector<int64_t> lead(static_cast<size_t>(b.rank(b.in(0)) - 1), 0);
  lead.push_back(-1);
  const ValueId groups = b.concat({b.ints(std::move(lead)), b.dim(b.in(1), 0)}, 0);
  const ValueId x = real(b, b.op("Reshape", {b.in(0), groups}));
  const ValueId normal = b.mul(rms_normalized(b, x, b.f("epsilon", 1e-5f)), real(b, b.in(1)));
  const ValueId z = real(b, b.in(2)), open = b.op("Sigmoid", {z});
  const ValueId gate = activation == "sigmoid" ? open : b.mul(z, open);
  b.give(0, b.cast(b.mul(shaped_as(b, normal, b.in(0)), gate), b.element(b.in(0))));
  return {};
}

// [..., branches, width] of what is given so or as [..., branches * width].
Result<ValueId> branches_of(Body &b, size_t input) {
  const int64_t count = b.i("num_branches", 0);
  const int rank = b.rank(b.in(input));
  if (count < 0 || count > kMaxTable || rank < (count > 0 ? 1 : 2))
    return b.invalid("attribute 'num_branches' does not fit " + b.input_name(input));
  if (count == 0) return b.in(input);
  std::vector<int64_t> sizes(static_cast<size_t>(rank - 1), 0);
  sizes.push_back(count);
  sizes.push_back(-1);
  return b.reshape(b.in(input), std::move(sizes));
}

Status branchwise_rms_norm(Body &b) {
  OPTC_TRY(b.need_rank(0));
  OPTC_ASSIGN(const ValueId x, branches_of(b, 0));
  ValueId y = rms_normalized(b, real(b, x), b.f("epsilon", 1e-5f));
  if (b.has(1)) {
    OPTC_TRY(b.need_rank(1, {1, 2}));
    ValueId scale = real(b, b.in(1));
    // A number for each element of a branch, or of all.
    if (b.rank(scale) == 1) scale = b.op("Reshape", {scale, b.concat({b.ints({-1}), b.dim(x, -1)}, 0)});
    y = b.mul(y, scale);
  }
  b.give(0, b.cast(shaped_as(b, y, b.in(0)), b.element(b.in(0))));
  return {};
}

// Weights of branches, [..., C], [..., C, 1], [..., C, H] or [..., C * H], beside branches [..., C, H].
Result<ValueId> branch_weights(Body &b, size_t input, ValueId branches) {
  OPTC_TRY(b.need_rank(input));
  const ValueId w = real(b, b.in(input));
  if (b.rank(w) == b.rank(branches)) return w;
  if (b.rank(w) != b.rank(branches) - 1) return b.invalid(b.input_name(input) + " does not fit the branches");
  std::vector<int64_t> lead(static_cast<size_t>(b.rank(w) - 1), 0);
  return b.op("Reshape",
              {w, b.concat({b.ints(std::move(lead)), b.dim(branches, b.rank(branches) - 2), b.ints({-1})}, 0)});
}

Status hyper_pre_mix(Body &b) {
  OPTC_TRY(b.need_rank(0));
  OPTC_ASSIGN(const ValueId x, branches_of(b, 0));
  OPTC_ASSIGN(const ValueId weights, branch_weights(b, 1, x));
  const ValueId sum = b.op("ReduceSum", {b.mul(real(b, x), weights), b.ints({-2})}, {{"keepdims", int64_t{0}}});
  const ValueId scale = b.number(kReal, static_cast<double>(b.f("reduction_scale", 1)));
  b.give(0, b.cast(b.mul(sum, scale), b.element(x)));
  return {};
}

Status hyper_post_mix(Body &b) {
  OPTC_TRY(b.need_rank(0));
  OPTC_ASSIGN(const ValueId x, branches_of(b, 0));
  OPTC_ASSIGN(const ValueId weights, branch_weights(b, 2, x));
  ValueId kept = real(b, x);
  if (b.has(3)) {
    OPTC_TRY(b.need_rank(3));
    std::vector<int64_t> perm;
    for (int64_t k = 0; k < b.rank(b.in(3)); ++k) perm.push_back(k);
    if (perm.size() < 2) return b.invalid(b.input_name(3) + " must have two axes or more");
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    kept = b.matmul(b.transpose(real(b, b.in(3)), std::move(perm)), kept);
  }
  const ValueId added = b.mul(weights, b.unsqueeze(real(b, b.in(1)), {-2}));
  b.give(0, b.cast(shaped_as(b, b.add(kept, added), b.in(0)), b.element(x)));
  return {};
}

Status gated_add(Body &b) {
  if (b.has(3)) return b.unsupported("gate_weight of GatedAdd");
  b.give(0, b.add(b.in(0), b.mul(b.in(1), b.in(2))));
  return {};
}

Status linear_attention_gate(Body &b) {
  const ElementType type = b.element(b.in(0));
  const ValueId soft = b.op("Softplus", {b.add(real(b, b.in(0)), real(b, b.in(1)))});
  if (b.wants(0)) b.give(0, b.cast(b.mul(soft, real(b, b.in(2))), type));
  if (b.wants(1)) {
    if (!b.has(3)) return b.invalid(b.input_name(3) + " is required for the second output");
    b.give(1, b.cast(b.op("Sigmoid", {real(b, b.in(3))}), type));
  }
  return {};
}

Status swiglu(Body &b) {
  ValueId gate = b.in(0), linear = b.in(1);
  const ElementType type = b.element(gate);
  if (!b.has(1)) {
    const std::vector<ValueId> half = b.ops("Split", {gate}, 2, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}});
    gate = half[0];
    linear = half[1];
  }
  gate = real(b, gate);
  linear = real(b, linear);
  const double limit = static_cast<double>(b.f("limit", 0)), beta = static_cast<double>(b.f("activation_beta", 0));
  if (limit > 0) {
    gate = b.op("Min", {gate, b.number(kReal, limit)});
    linear = b.op("Clip", {linear, b.number(kReal, -limit), b.number(kReal, limit)});
  }
  const ValueId scaled = b.mul(gate, b.number(kReal, static_cast<double>(b.f("activation_alpha", 1))));
  ValueId open = b.mul(gate, b.op("Sigmoid", {scaled}));
  if (b.i("round_activation", 0) != 0) open = real(b, b.cast(open, type));
  if (beta != 0) linear = b.add(linear, b.number(kReal, beta));
  b.give(0, b.cast(b.mul(open, linear), type));
  return {};
}

// Rounded to the type of X after each of its steps.
Status scaled_silu(Body &b) {
  if (b.has(1)) OPTC_TRY(b.need_rank(1, {0}));
  const ElementType type = b.element(b.in(0));
  const ValueId scale = b.has(1) ? real(b, b.in(1)) : b.number(kReal, static_cast<double>(b.f("alpha", 1)));
  const ValueId z = b.cast(b.mul(real(b, b.in(0)), scale), type);
  b.give(0, b.mul(z, b.op("Sigmoid", {z})));
  return {};
}

// Rotary positions of three kinds (time, height, width): each column of the tables is taken at the position of one.
Status multimodal_rotary(Body &b) {
  OPTC_TRY(b.need_rank(0, {3, 4}));
  OPTC_TRY(b.need_rank(1, {3}));
  if (b.f("scale", 1) != 1) return b.unsupported("attribute 'scale' of MRotaryEmbedding");
  if (b.i("is_packed_batching", 0) != 0) return b.unsupported("attribute 'is_packed_batching' of MRotaryEmbedding");
  const Attribute *given = b.node().attribute("mrope_section");
  const std::vector<int64_t> section = std::get<std::vector<int64_t>>(*given);
  int64_t half = 0;
  for (int64_t s : section) half = s < 0 || s > kMaxTable ? kMaxTable + 1 : half + s;
  if (section.size() != 3 || half < 1 || half > kMaxTable)
    return b.invalid("attribute 'mrope_section' must be three lengths whose sum is the width of the tables");
  const int64_t layout = b.i("mrope_layout", 0);
  if (layout != 0 && layout != 1) return b.invalid("attribute 'mrope_layout' must be 0 or 1");
  std::vector<int64_t> kind;  // of each column
  for (int64_t c = 0; c < half; ++c) {
    if (layout == 0)
      kind.push_back(c < section[0] ? 0 : c < section[0] + section[1] ? 1 : 2);
    else
      kind.push_back(c % 3 != 0 && c < section[static_cast<size_t>(c % 3)] * 3 ? c % 3 : 0);
  }
  const ValueId kinds = b.ints(std::move(kind));
  const auto table = [&](ValueId cache) {  // [batch, length, half]
    const ValueId rows = b.op("Gather", {cache, b.in(1)}, {{"axis", int64_t{0}}});
    const auto of = [&](int64_t k) { return b.squeeze(b.slice(rows, 0, k, k + 1), {0}); };
    const auto is = [&](int64_t k) { return b.op("Equal", {kinds, b.ints({k})}); };
    return b.op("Where", {is(1), of(1), b.op("Where", {is(2), of(2), of(0)})});
  };
  const bool packed = b.rank(b.in(0)) == 3;
  const int64_t heads = b.i("num_heads", 0), width = b.i("rotary_embedding_dim", 0);
  ValueId x = b.in(0);
  if (packed) {
    if (width > 0 && heads < 1) return b.invalid("rotary_embedding_dim needs num_heads");
    x = b.transpose(heads > 0 ? b.reshape(x, {0, 0, heads, -1}) : b.reshape(x, {0, 0, -1, 2 * half}), {0, 2, 1, 3});
  }
  Body::Attributes attributes{{"interleaved", b.i("interleaved", 0)}};
  if (width > 0) attributes.emplace_back("rotary_embedding_dim", width);
  ValueId y = b.op("RotaryEmbedding", {x, table(b.in(2)), table(b.in(3))}, std::move(attributes));
  if (packed) y = shaped_as(b, b.transpose(y, {0, 2, 1, 3}), b.in(0));
  b.give(0, y);
  return {};
}

// A depthwise convolution that looks back only, with the positions before the first from a state.
Status causal_conv(Body &b) {
  for (size_t i : {0, 1}) OPTC_TRY(b.need_rank(i));
  for (const char *name :
       {"state_update_capacity", "state_window", "state_length", "input_channel_offset", "input_channels"})
    if (b.i(name, 0) != 0) return b.unsupported("attribute '" + std::string(name) + "' of CausalConvWithState");
  const bool last = b.i("channels_last", 0) != 0;
  if (b.i("ndim", 1) != 1) return b.unsupported("attribute 'ndim' of CausalConvWithState");
  if (b.i("state_channels_last", -1) != -1 && (b.i("state_channels_last", -1) != 0) != last)
    return b.unsupported("attribute 'state_channels_last' of CausalConvWithState");
  OPTC_TRY(b.need_rank(0, {3}));
  const std::string activation(b.s("activation", "none"));
  if (activation != "none" && activation != "silu" && activation != "swish")
    return b.unsupported("activation '" + activation + "'");
  const int64_t dilation = b.i("dilation", 1);
  const auto turned = [&](ValueId v) { return last && v.valid() ? b.transpose(v, {0, 2, 1}) : v; };
  const ValueId x = turned(b.in(0)), past = turned(b.in(3));
  if (dilation == 1) {
    const std::vector<ValueId> y =
        b.ops("CausalConvWithState", {x, b.in(1), b.in(2), past}, b.wants(1) ? 2 : 1, {{"activation", activation}});
    b.give(0, turned(y[0]));
    if (b.wants(1)) b.give(1, turned(y[1]));
    return {};
  }
  const auto channels = b.fixed(b.in(1), 0), kernel = b.fixed(b.in(1), 2);
  if (!channels || !kernel)
    return b.unsupported("the size of " + b.input_name(1) + " is not known before the model runs");
  if (dilation < 1 || dilation > kMaxTable || *kernel < 1 || *kernel > kMaxTable)
    return b.invalid("attribute 'dilation' must be positive");
  const int64_t length = (*kernel - 1) * dilation;
  ValueId state = past;
  if (!state.valid()) state = b.op("Expand", {b.like(x, 0), b.concat({b.dim(x, 0), b.dim(x, 1), b.ints({length})}, 0)});
  const ValueId line = b.concat({state, x}, 2);
  std::vector<ValueId> inputs{line, b.in(1)};
  if (b.has(2)) inputs.push_back(b.in(2));
  ValueId y = b.op("Conv", std::move(inputs), {{"group", *channels}, {"dilations", std::vector<int64_t>{dilation}}});
  if (activation != "none") y = b.mul(y, b.op("Sigmoid", {y}));
  b.give(0, turned(y));
  if (b.wants(1))
    b.give(1, turned(b.op("Slice", {line, b.dim(x, 2), b.ints({std::numeric_limits<int64_t>::max()}), b.ints({2})})));
  return {};
}

// ONNX's own, whose function takes a rate for each head.
Status linear_attention(Body &b) {
  if (b.i("state_window", 0) != 0) return b.unsupported("attribute 'state_window' of LinearAttention");
  std::vector<ValueId> inputs = b.node().inputs;
  const int64_t heads = b.i("kv_num_heads", 0);
  if (b.has(5)) {
    const ValueId rate = b.in(5);
    inputs[5] = b.op("Expand", {rate, b.concat({b.dim(rate, 0), b.dim(rate, 1), b.ints({heads})}, 0)});
  }
  Body::Attributes attributes = b.pass({"chunk_size", "kv_num_heads", "q_num_heads", "update_rule"});
  if (b.f("scale", 0) != 0) attributes.emplace_back("scale", b.f("scale", 0));
  const std::vector<ValueId> y = b.ops("LinearAttention", std::move(inputs), b.wants(1) ? 2 : 1, std::move(attributes));
  b.give(0, y[0]);
  if (b.wants(1)) b.give(1, y[1]);
  return {};
}

constexpr OpDef kOps[] = {
    body_row("com.microsoft.BranchwiseRMSNorm", {"X scale?", "Y", "epsilon:f num_branches:i"}, branchwise_rms_norm),
    body_row("com.microsoft.CausalConvWithState",
             {"input weight bias? past_state?", "output present_state state_update",
              "activation:s channels_last:b dilation:i input_channel_offset:i input_channels:i ndim:i "
              "state_channels_last:b state_length:i state_update_capacity:i state_window:i"},
             causal_conv),
    body_row("com.microsoft.GatedAdd", {"X Y gate gate_weight?", "output", ""}, gated_add),
    body_row("com.microsoft.GatedRMSNorm", {"X scale gate", "Y", "activation:s epsilon:f"}, gated_rms_norm),
    body_row("com.microsoft.HyperConnectionPostMix",
             {"streams block_output post_mix stream_mix?", "output", "num_branches:i"}, hyper_post_mix),
    body_row("com.microsoft.HyperConnectionPreMix", {"streams pre_mix", "output", "num_branches:i reduction_scale:f"},
             hyper_pre_mix),
    body_row("com.microsoft.LinearAttention",
             {"query key value past_state? decay? beta?", "output present_state",
              "chunk_size:i kv_num_heads:i! q_num_heads:i! scale:f state_window:i update_rule:s"},
             linear_attention),
    body_row("com.microsoft.LinearAttentionGate", {"a dt_bias decay_scale b?", "decay beta", ""},
             linear_attention_gate),
    body_row("com.microsoft.MRotaryEmbedding",
             {"input position_ids cos_cache sin_cache", "output",
              "interleaved:b is_packed_batching:b mrope_layout:i mrope_section:is! num_heads:i rotary_embedding_dim:i "
              "scale:f"},
             multimodal_rotary),
    body_row("com.microsoft.ScaledSiLU", {"X scale?", "Y", "alpha:f"}, scaled_silu),
    body_row("com.microsoft.SwiGLU",
             {"gate up?", "output", "activation_alpha:f activation_beta:f limit:f round_activation:b"}, swiglu),
};

}  // namespace

std::span<const OpDef> contrib_decoder_ops() { return kOps; }

}  // namespace optc
