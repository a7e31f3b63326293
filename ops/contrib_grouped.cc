// com.microsoft: GroupQueryAttention, with its cache, masks and rotary positions, and RotaryEmbedding.

#include "ops/contrib_attention.h"

#include <limits>

namespace optc {
namespace {

// x [batch, heads, length, width], rotated at `positions` [batch, length].
ValueId rotated(Body &b, ValueId x, ValueId cosines, ValueId sines, ValueId positions, bool interleaved,
                int64_t rotated_width) {
  Body::Attributes attributes{{"interleaved", int64_t{interleaved}}};
  if (rotated_width > 0) attributes.emplace_back("rotary_embedding_dim", rotated_width);
  return b.op("RotaryEmbedding", {x, cosines, sines, positions}, std::move(attributes));
}

// 2 * the width of the tables where that is less than the heads' width, or may be.
Result<int64_t> rotated_width(Body &b, ValueId cosines, std::optional<int64_t> head_width) {
  const std::optional<int64_t> half = b.fixed(cosines, 1);
  if (!half) return b.unsupported("the width of cos_cache is not known before the model runs");
  return head_width && *head_width == *half * 2 ? 0 : *half * 2;
}

Status rotary_embedding(Body &b) {
  OPTC_TRY(b.need_rank(0, {3, 4}));
  OPTC_TRY(b.need_rank(1, {1, 2}));
  OPTC_TRY(b.need_rank(2, {2}));
  OPTC_TRY(b.need_rank(3, {2}));
  if (b.f("scale", 1) != 1 && b.f("scale", 1) != 0) return b.unsupported("attribute 'scale' of RotaryEmbedding");
  if (b.i("is_packed_batching", 0) != 0) return b.unsupported("attribute 'is_packed_batching' of RotaryEmbedding");
  const ValueId x = b.in(0), cosines = b.in(2), sines = b.in(3);
  const bool packed = b.rank(x) == 3;
  const int64_t given = b.i("rotary_embedding_dim", 0), heads = b.i("num_heads", 0);
  ValueId positions = b.in(1);
  if (b.rank(positions) == 1) {  // one offset for all
    const ValueId length = b.dim(x, packed ? 1 : 2);
    const ValueId row = b.add(b.iota(length, ElementType::kInt64), positions);
    positions = b.op("Expand", {row, b.concat({b.dim(x, 0), length}, 0)});
  }
  ValueId split = x;
  if (packed) {
    if (given > 0) {
      if (heads < 1) return b.invalid("rotary_embedding_dim needs num_heads");
      split = b.reshape(x, {0, 0, heads, -1});
    } else {  // heads are as wide as the tables say
      OPTC_ASSIGN(const int64_t width, rotated_width(b, cosines, std::nullopt));
      split = b.reshape(x, {0, 0, -1, width});
    }
    split = b.transpose(split, {0, 2, 1, 3});
  }
  const ValueId y = rotated(b, split, cosines, sines, positions, b.i("interleaved", 0) != 0, given);
  b.give(0, packed ? join_heads(b, y) : y);
  return {};
}

// One call of GroupQueryAttention. Lengths are int64.
struct Grouped {
  int64_t heads = 0, key_heads = 0;
  ValueId q, k, v;       // [batch, heads or key_heads, length, width]
  ValueId length;        // [1]: new tokens
  ValueId filled;        // [batch]: keys before the new ones
  ValueId valid;         // [batch]: keys before and with the new ones, without padding
  ValueId keys, values;  // with the cache: [batch, key_heads, total, width]
};

Status take_heads(Body &b, Grouped &g) {
  g.heads = b.i("num_heads", 0);
  g.key_heads = b.i("kv_num_heads", 0);
  if (g.heads < 1 || g.key_heads < 1 || g.heads % g.key_heads != 0)
    return b.invalid("num_heads must be a multiple of kv_num_heads");
  OPTC_TRY(b.need_rank(0, {3}));
  if (b.has(1) != b.has(2)) return b.invalid("key and value go together");
  std::vector<ValueId> parts;
  if (b.has(1)) {
    for (size_t k = 0; k < 3; ++k) {
      OPTC_TRY(b.need_rank(k, {3}));
      parts.push_back(b.reshape(b.in(k), {0, 0, k == 0 ? g.heads : g.key_heads, -1}));
    }
  } else {
    const ValueId all = b.reshape(b.in(0), {0, 0, g.heads + 2 * g.key_heads, -1});
    parts = b.ops("Split", {all, b.ints({g.heads, g.key_heads, g.key_heads})}, 3, {{"axis", int64_t{2}}});
  }
  // Queries and keys may be normalized, head by head.
  const char *epsilons[2] = {"q_norm_epsilon", "k_norm_epsilon"};
  for (size_t k = 0; k < 2; ++k)
    if (b.has(14 + k))
      parts[k] = b.op("RMSNormalization", {parts[k], b.in(14 + k)},
                      {{"axis", int64_t{-1}}, {"epsilon", b.f(epsilons[k], b.f("qk_norm_epsilon", 1e-6f))}});
  ValueId *targets[3] = {&g.q, &g.k, &g.v};
  for (size_t k = 0; k < 3; ++k) *targets[k] = b.transpose(parts[k], {0, 2, 1, 3});
  return {};
}

// Whether a cache is a buffer of one length, which the model declares to go out as it came in.
bool keeps_length(const Body &b, size_t past, size_t present) {
  const ValueId out = b.node().output(present);
  return out.valid() && b.fixed(b.in(past), 2) && b.fixed(b.in(past), 2) == b.fixed(out, 2);
}

// The cache with the new keys (or values) written behind those that are there; where it may be shorter than `total`, it
// grows.
ValueId cached(Body &b, ValueId past, ValueId fresh, ValueId total, ValueId filled, bool grows) {
  if (!grows) return b.op("TensorScatter", {past, fresh, filled}, {{"axis", int64_t{-2}}});
  const ValueId missing = b.sub(b.op("Max", {b.dim(past, 2), total}), b.dim(past, 2));
  const ValueId grown = b.op("Pad", {past, b.concat({b.ints({0, 0, 0, 0, 0, 0}), missing, b.ints({0})}, 0)});
  return b.op("TensorScatter", {grown, fresh, filled}, {{"axis", int64_t{-2}}});
}

// bool [batch, 1, length, total]: which keys a query sees.
ValueId visible_keys(Body &b, const Grouped &g, ValueId positions) {
  const ValueId key = b.unsqueeze(b.iota(b.dim(g.keys, 2), ElementType::kInt64), {0, 1, 2});
  const ValueId valid = b.unsqueeze(g.valid, {1, 2, 3});
  if (b.i("causal", 1) == 0) return b.op("Less", {key, valid});
  ValueId position = b.unsqueeze(positions, {1, 3});  // [batch, 1, length, 1]
  // The rows of a prompt may end in padding, which sees what the last token before it does.
  if (b.fixed(g.q, 2) != 1) position = b.op("Min", {position, b.sub(valid, b.ints({1}))});
  ValueId visible = b.op("LessOrEqual", {key, position});
  if (const int64_t window = b.i("local_window_size", -1); window >= 0) {
    const ValueId first = b.sub(position, b.ints({window}));
    visible = b.op("And", {visible, b.op("Greater", {key, first})});
  }
  return visible;
}

// attention_bias, which may be shorter than a cache of fixed size, as long as the keys.
ValueId padded_bias(Body &b, ValueId bias, ValueId keys) {
  const ValueId missing = b.sub(b.dim(keys, 2), b.dim(bias, 3));
  return b.op("Pad", {bias, b.concat({b.ints({0, 0, 0, 0, 0, 0, 0}), missing}, 0)});
}

// Softmax over the keys and one more score that takes its share and has no value: `sink` [heads], or 0.
ValueId attention_with_sink(Body &b, const Grouped &g, ValueId mask, ValueId sink) {
  const int64_t repeats = g.heads / g.key_heads;
  const ElementType type = b.element(g.q);
  const ValueId width = b.dim(g.q, 3), batch = b.dim(g.q, 0), total = b.dim(g.keys, 2);
  const auto grouped = [&](ValueId v, ValueId last) {  // [batch, heads, length, last] by key heads
    return b.op("Reshape", {v, b.concat({batch, b.ints({g.key_heads, repeats}), g.length, last}, 0)});
  };
  ValueId scale;
  if (const float given = b.f("scale", 0); given != 0)
    scale = b.number(type, static_cast<double>(given));
  else
    scale = b.op("Reciprocal", {b.op("Sqrt", {b.cast(width, type)})});
  const ValueId keys = b.transpose(b.unsqueeze(g.keys, {2}), {0, 1, 2, 4, 3});
  ValueId scores = b.matmul(grouped(b.mul(g.q, scale), width), keys);
  scores = b.op("Reshape", {scores, b.concat({batch, b.ints({g.heads}), g.length, total}, 0)});
  if (const float softcap = b.f("softcap", 0); softcap != 0) {
    const ValueId cap = b.number(type, static_cast<double>(softcap));
    scores = b.mul(b.op("Tanh", {b.div(scores, cap)}), cap);
  }
  scores = b.add(scores, mask);
  const ValueId one = sink.valid() ? b.unsqueeze(sink, {1, 2}) : b.number(type, 0);
  const ValueId column = b.op("Expand", {one, b.concat({batch, b.ints({g.heads}), g.length, b.ints({1})}, 0)});
  const ValueId weights = b.op("Softmax", {b.concat({scores, column}, 3)}, {{"axis", int64_t{-1}}});
  const ValueId y = b.matmul(grouped(b.slice(weights, 3, 0, -1), total), b.unsqueeze(g.values, {2}));
  return join_heads(b, b.op("Reshape", {y, b.concat({batch, b.ints({g.heads}), g.length, width}, 0)}));
}

Status check_plain(Body &b) {
  for (const char *name : {"kv_cache_bit_width", "qk_output", "sliding_window_cache"})
    if (b.i(name, 0) != 0) return b.unsupported("attribute '" + std::string(name) + "' of GroupQueryAttention");
  for (const char *name : {"k_quant_type", "v_quant_type"})
    if (b.s(name, "NONE") != "NONE") return b.unsupported("a quantized cache of GroupQueryAttention");
  for (size_t i : {12, 13, 16})
    if (b.has(i)) return b.unsupported(b.input_name(i) + " of GroupQueryAttention");
  for (size_t i : {3, 4})
    if (b.has(i) && b.element(b.in(i)) != b.element(b.in(0)))
      return b.unsupported("a cache of another type than the query's");
  if (b.has(3) != b.has(4)) return b.invalid("past_key and past_value go together");
  return {};
}

Status group_query_attention(Body &b) {
  OPTC_TRY(check_plain(b));
  Grouped g;
  OPTC_TRY(take_heads(b, g));
  OPTC_TRY(b.need_rank(5, {1, 2}));
  g.length = b.dim(b.in(0), 1);
  const ValueId total = b.reshape(b.cast(b.in(6), ElementType::kInt64), {1});
  const ValueId last = b.reshape(b.cast(b.in(5), ElementType::kInt64), {-1});
  g.valid = b.add(last, b.ints({1}));
  if (b.has(3)) {
    // A first prompt starts at 0, whatever padding its rows have.
    g.filled = b.op("Where", {b.op("Equal", {total, g.length}), b.ints({0}), b.sub(g.valid, g.length)});
  } else {
    g.filled = b.sub(last, last);
  }
  const ValueId positions = b.add(b.unsqueeze(g.filled, {1}), b.iota(g.length, ElementType::kInt64));
  if (b.i("do_rotary", 0) != 0) {
    if (!b.has(7) || !b.has(8)) return b.invalid("do_rotary needs cos_cache and sin_cache");
    OPTC_ASSIGN(const int64_t width, rotated_width(b, b.in(7), b.fixed(g.q, 3)));
    const ValueId at = b.has(9) ? b.in(9) : positions;
    const bool interleaved = b.i("rotary_interleaved", 0) != 0;
    g.q = rotated(b, g.q, b.in(7), b.in(8), at, interleaved, width);
    g.k = rotated(b, g.k, b.in(7), b.in(8), at, interleaved, width);
  }
  // Both are as long as one another, so that what is said of one holds for both.
  const bool grows = b.has(3) && !keeps_length(b, 3, 1) && !keeps_length(b, 4, 2);
  g.keys = b.has(3) ? cached(b, b.in(3), g.k, total, g.filled, grows) : g.k;
  g.values = b.has(4) ? cached(b, b.in(4), g.v, total, g.filled, grows) : g.v;
  ValueId mask = visible_keys(b, g, positions);
  const bool sink = b.has(11) || b.i("smooth_softmax", 0) == 1;
  if (sink || b.has(10)) {
    const ElementType type = b.element(g.q);
    const ValueId bias = b.has(10) ? padded_bias(b, b.in(10), g.keys) : b.number(type, 0);
    mask = b.op("Where", {mask, bias, b.number(type, -std::numeric_limits<double>::infinity())});
  }
  if (sink) {
    b.give(0, attention_with_sink(b, g, mask, b.in(11)));
  } else {
    AttentionCall call;
    call.q = g.q;
    call.k = g.keys;
    call.v = g.values;
    call.heads = g.heads;
    call.key_heads = g.key_heads;
    call.mask = mask;
    call.scale = b.f("scale", 0);
    call.softcap = b.f("softcap", 0);
    b.give(0, attention(b, call, false).y);
  }
  if (b.wants(1)) b.give(1, g.keys);
  if (b.wants(2)) b.give(2, g.values);
  return {};
}

constexpr OpDef kOps[] = {
    body_row("com.microsoft.GroupQueryAttention",
             {"query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache? "
              "position_ids? attention_bias? head_sink? k_scale? v_scale? q_norm_weight? k_norm_weight? query_seqlens?",
              "output present_key? present_value? output_qk?",
              "num_heads:i! kv_num_heads:i! causal:b do_rotary:b rotary_interleaved:b local_window_size:i scale:f "
              "softcap:f smooth_softmax:i qk_norm_epsilon:f q_norm_epsilon:f k_norm_epsilon:f qk_output:i "
              "kv_cache_bit_width:i k_quant_type:s v_quant_type:s sliding_window_cache:b"},
             group_query_attention),
    body_row("com.microsoft.RotaryEmbedding",
             {"input position_ids cos_cache sin_cache", "output",
              "interleaved:b is_packed_batching:b num_heads:i rotary_embedding_dim:i scale:f"},
             rotary_embedding),
};

}  // namespace

std::span<const OpDef> contrib_grouped_ops() { return kOps; }

}  // namespace optc
