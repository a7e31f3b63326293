// com.microsoft: Attention and its relatives, with the projections, masks and caches that each has around the same
// core. Grouped queries stand in contrib_grouped.cc.
//
// A masked position is not excluded but gets mask_filter_value added (-10000 unless given), so that a row that is
// masked out entirely still gives what ONNX Runtime gives.

#include "ops/contrib_attention.h"

#include <limits>

namespace optc {

ValueId split_heads(Body &b, ValueId v, int64_t heads) {
  return b.transpose(b.reshape(v, {0, 0, heads, -1}), {0, 2, 1, 3});
}
ValueId join_heads(Body &b, ValueId v) { return b.reshape(b.transpose(v, {0, 2, 1, 3}), {0, 0, -1}); }

AttentionResult attention(Body &b, const AttentionCall &call, bool wants_present) {
  const bool packed = b.rank(call.q) == 3;
  Body::Attributes attributes;
  if (packed) attributes = {{"q_num_heads", call.heads}, {"kv_num_heads", call.key_heads}};
  if (call.causal) attributes.emplace_back("is_causal", int64_t{1});
  if (call.scale != 0) attributes.emplace_back("scale", call.scale);
  if (call.softcap != 0) attributes.emplace_back("softcap", call.softcap);
  std::vector<ValueId> inputs{call.q, call.k, call.v};
  if (call.mask.valid() || call.past_key.valid()) inputs.push_back(call.mask);
  if (call.past_key.valid()) inputs.insert(inputs.end(), {call.past_key, call.past_value});
  const std::vector<ValueId> made = b.ops("Attention", std::move(inputs), wants_present ? 3 : 1, std::move(attributes));
  AttentionResult result;
  result.y = packed ? made[0] : join_heads(b, made[0]);
  if (wants_present) {
    result.present_key = made[1];
    result.present_value = made[2];
  }
  return result;
}

namespace {

// What com.microsoft's operators say of masked positions.
struct MaskInput {
  size_t input;
  ValueId query;  // batch and length of the queries
  ValueId total;  // int64[1], the number of keys
  ElementType type;
};

// [batch, 1, 1 or length, total]: 0 where the mask is positive, mask_filter_value elsewhere; invalid without a mask.
Result<ValueId> additive_mask(Body &b, const MaskInput &m) {
  if (!b.has(m.input)) return ValueId();
  OPTC_TRY(b.need_rank(m.input, {1, 2, 3}));
  const ValueId mask = b.in(m.input);
  const ValueId zero = b.like(mask, 0);
  ValueId visible;
  if (b.rank(mask) == 1) {
    // Ends of the rows, and perhaps their beginnings: [batch] or [2 * batch].
    const std::optional<int64_t> length = b.fixed(mask, 0), batch = b.fixed(m.query, 0);
    if (length && batch && *length != *batch && *length != 2 * *batch)
      return b.unsupported(b.input_name(m.input) + " of " + std::to_string(*length) + " numbers for a batch of " +
                           std::to_string(*batch));
    const ValueId rows = b.dim(m.query, 0), axis = b.ints({0});
    const ValueId ends = b.op("Slice", {mask, b.ints({0}), rows, axis});
    // Where there are no beginnings the appended zeros are taken.
    const ValueId with_zeros = b.concat({mask, b.op("Expand", {zero, rows})}, 0);
    const ValueId begins = b.op("Slice", {with_zeros, rows, b.mul(rows, b.ints({2})), axis});
    const ValueId at = b.iota(m.total, b.element(mask));
    visible = b.op(
        "And", {b.op("Less", {at, b.unsqueeze(ends, {1})}), b.op("GreaterOrEqual", {at, b.unsqueeze(begins, {1})})});
    visible = b.unsqueeze(visible, {1, 2});
  } else {
    visible = b.op("Greater", {mask, zero});
    visible = b.unsqueeze(visible, b.rank(mask) == 2 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1});
  }
  const float filter = b.f("mask_filter_value", -10000.0f);
  return b.op("Where", {visible, b.number(m.type, 0), b.number(m.type, static_cast<double>(filter))});
}

ValueId sum_if_both(Body &b, ValueId x, ValueId y) { return x.valid() && y.valid() ? b.add(x, y) : x.valid() ? x : y; }

Result<int64_t> heads_of(Body &b) {
  const int64_t heads = b.i("num_heads", 0);
  if (heads < 1) return b.invalid("attribute 'num_heads' must be positive");
  return heads;
}

// The number of keys: the new ones (axis 1 of a packed tensor) and those of the past.
ValueId total_length(Body &b, ValueId keys, ValueId past_key) {
  const ValueId length = b.dim(keys, b.rank(keys) == 4 ? 2 : 1);
  return past_key.valid() ? b.add(length, b.dim(past_key, 2)) : length;
}

// What Attention, QAttention and PackedAttention do once queries, keys and values stand side by side in the last axis.
struct Projected {
  ValueId qkv;
  size_t mask, past, bias;  // numbers of inputs
  bool wants_present;
};
Status attend_projected(Body &b, const Projected &p) {
  OPTC_ASSIGN(const int64_t heads, heads_of(b));
  for (const char *flag : {"do_rotary", "past_present_share_buffer"})
    if (b.i(flag, 0) != 0) return b.unsupported("attribute '" + std::string(flag) + "' of " + b.node().op);
  std::vector<ValueId> parts;
  if (const std::vector<int64_t> *sizes = b.node().ints("qkv_hidden_sizes"); sizes && !sizes->empty()) {
    if (sizes->size() != 3 || (*sizes)[0] != (*sizes)[1])
      return b.invalid("qkv_hidden_sizes must be three sizes, the first two of them equal");
    for (int64_t size : *sizes)
      if (size < heads || size % heads != 0) return b.invalid("qkv_hidden_sizes must be multiples of num_heads");
    parts = b.ops("Split", {p.qkv, b.ints(*sizes)}, 3, {{"axis", int64_t{-1}}});
  } else {
    parts = b.ops("Split", {p.qkv}, 3, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}});
  }
  AttentionCall call;
  call.q = parts[0];
  call.k = parts[1];
  call.v = parts[2];
  call.heads = call.key_heads = heads;
  if (b.has(p.past)) {
    OPTC_TRY(b.need_rank(p.past, {5}));
    call.past_key = b.squeeze(b.slice(b.in(p.past), 0, 0, 1), {0});
    call.past_value = b.squeeze(b.slice(b.in(p.past), 0, 1, 2), {0});
  }
  call.causal = b.i("unidirectional", 0) != 0;
  call.scale = b.f("scale", 0);
  const ValueId total = total_length(b, call.k, call.past_key);
  OPTC_ASSIGN(call.mask, additive_mask(b, {p.mask, call.q, total, b.element(p.qkv)}));
  call.mask = sum_if_both(b, call.mask, b.in(p.bias));
  const AttentionResult result = attention(b, call, p.wants_present);
  b.give(0, result.y);
  if (p.wants_present)
    b.give(1, b.concat({b.unsqueeze(result.present_key, {0}), b.unsqueeze(result.present_value, {0})}, 0));
  return {};
}

Status microsoft_attention(Body &b) {
  OPTC_TRY(b.need_rank(0, {3}));
  if (b.has(6)) return b.unsupported("past_sequence_length of com.microsoft.Attention");
  ValueId qkv = b.matmul(b.in(0), b.in(1));
  if (b.has(2)) qkv = b.add(qkv, b.in(2));
  return attend_projected(b, {qkv, 3, 4, 5, b.wants(1)});
}

Status quantized_attention(Body &b) {
  OPTC_TRY(b.need_rank(0, {3}));
  std::vector<ValueId> operands{b.in(0), b.in(1)};
  if (b.has(6) || b.has(7)) operands.push_back(b.in(6));
  if (b.has(7)) operands.push_back(b.in(7));
  const ValueId scale = b.mul(b.in(3), b.in(4));
  const ValueId product = b.cast(b.op("MatMulInteger", std::move(operands)), b.element(b.in(3)));
  return attend_projected(b, {b.add(b.mul(product, scale), b.in(2)), 5, 8, SIZE_MAX, b.wants(1)});
}

// Tokens of all sequences one after the other, without padding: each sees those of its own sequence.
Result<ValueId> same_sequence(Body &b, ValueId tokens, size_t cumulated) {
  OPTC_TRY(b.need_rank(cumulated, {1}));
  const ValueId at = b.iota(b.dim(tokens, 0), b.element(b.in(cumulated)));
  // The sequence of a token: how many ends lie at or before it. The first entry is 0 and counts once for all.
  const ValueId after = b.op("GreaterOrEqual", {b.unsqueeze(at, {1}), b.in(cumulated)});
  const ValueId sequence =
      b.op("ReduceSum", {b.cast(after, ElementType::kInt32), b.ints({1})}, {{"keepdims", int64_t{0}}});
  return b.op("Equal", {b.unsqueeze(sequence, {1}), b.unsqueeze(sequence, {0})});
}

Status packed_attention(Body &b) {
  OPTC_TRY(b.need_rank(0, {2}));
  if (b.has(5)) return b.unsupported("attention_bias of com.microsoft.PackedAttention");
  OPTC_ASSIGN(const int64_t heads, heads_of(b));
  const ValueId qkv = b.unsqueeze(b.add(b.matmul(b.in(0), b.in(1)), b.in(2)), {0});
  std::vector<ValueId> parts;
  if (const std::vector<int64_t> *sizes = b.node().ints("qkv_hidden_sizes"); sizes && sizes->size() == 3)
    parts = b.ops("Split", {qkv, b.ints(*sizes)}, 3, {{"axis", int64_t{-1}}});
  else
    parts = b.ops("Split", {qkv}, 3, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}});
  AttentionCall call;
  call.q = parts[0];
  call.k = parts[1];
  call.v = parts[2];
  call.heads = call.key_heads = heads;
  call.scale = b.f("scale", 0);
  OPTC_ASSIGN(call.mask, same_sequence(b, b.in(0), 4));
  b.give(0, b.squeeze(attention(b, call, false).y, {0}));
  return {};
}

Status packed_multi_head_attention(Body &b) {
  OPTC_TRY(b.need_rank(0, {2, 4}));
  if (b.has(6)) return b.unsupported("attention_bias of com.microsoft.PackedMultiHeadAttention");
  if (b.has(1) != b.has(2) || b.has(1) == (b.rank(b.in(0)) == 4))
    return b.invalid("key and value are given with a query of rank 2, and left out with packed ones of rank 4");
  OPTC_ASSIGN(const int64_t heads, heads_of(b));
  std::vector<ValueId> parts{b.in(0), b.in(1), b.in(2)};
  if (!b.has(1))  // [tokens, heads, 3, width]
    for (int64_t k = 0; k < 3; ++k) parts[static_cast<size_t>(k)] = b.reshape(b.slice(b.in(0), 2, k, k + 1), {0, -1});
  if (b.has(3)) {
    const std::vector<ValueId> sizes{b.dim(parts[0], 1), b.dim(parts[1], 1), b.dim(parts[2], 1)};
    const std::vector<ValueId> biases = b.ops("Split", {b.in(3), b.concat(sizes, 0)}, 3, {{"axis", int64_t{0}}});
    for (size_t k = 0; k < 3; ++k) parts[k] = b.add(parts[k], biases[k]);
  }
  AttentionCall call;
  call.q = b.unsqueeze(parts[0], {0});
  call.k = b.unsqueeze(parts[1], {0});
  call.v = b.unsqueeze(parts[2], {0});
  call.heads = call.key_heads = heads;
  call.scale = b.f("scale", 0);
  OPTC_ASSIGN(call.mask, same_sequence(b, parts[0], 5));
  b.give(0, b.squeeze(attention(b, call, false).y, {0}));
  return {};
}

// Adds the parts of a bias [q | k | v] to packed tensors.
void add_biases(Body &b, size_t bias, AttentionCall &call) {
  if (!b.has(bias)) return;
  const std::vector<ValueId> sizes{b.dim(call.q, 2), b.dim(call.k, 2), b.dim(call.v, 2)};
  const std::vector<ValueId> parts = b.ops("Split", {b.in(bias), b.concat(sizes, 0)}, 3, {{"axis", int64_t{0}}});
  call.q = b.add(call.q, parts[0]);
  call.k = b.add(call.k, parts[1]);
  call.v = b.add(call.v, parts[2]);
}

// scale * q k^T + mask, which is what ONNX Runtime gives as the product of queries and keys.
ValueId masked_scores(Body &b, const AttentionCall &call) {
  const bool packed = b.rank(call.q) == 3;
  const ValueId q = packed ? split_heads(b, call.q, call.heads) : call.q;
  ValueId k = packed ? split_heads(b, call.k, call.heads) : call.k;
  if (call.past_key.valid()) k = b.concat({call.past_key, k}, 2);
  ValueId scale;
  if (call.scale != 0) {
    scale = b.like(q, static_cast<double>(call.scale));
  } else {
    scale = b.op("Reciprocal", {b.op("Sqrt", {b.cast(b.dim(q, 3), b.element(q))})});
  }
  const ValueId scores = b.mul(b.matmul(q, b.transpose(k, {0, 1, 3, 2})), scale);
  return call.mask.valid() ? b.add(scores, call.mask) : scores;
}

struct MultiHeadInputs {
  size_t bias, mask, attention_bias, past_key, past_value;
};
// Queries, keys and values in whichever of the forms that MultiHeadAttention takes.
Status take_heads(Body &b, AttentionCall &call) {
  OPTC_TRY(b.need_rank(0, {3, 5}));
  if (b.rank(b.in(0)) == 5) {  // [batch, length, heads, 3, width]
    if (b.has(1) || b.has(2)) return b.invalid("a packed query of rank 5 goes without key and value");
    ValueId *parts[] = {&call.q, &call.k, &call.v};
    for (int64_t k = 0; k < 3; ++k) *parts[k] = b.reshape(b.slice(b.in(0), 3, k, k + 1), {0, 0, -1});
    return {};
  }
  if (!b.has(1)) return b.invalid("key is missing, and the query is not packed");
  OPTC_TRY(b.need_rank(1, {3, 4, 5}));
  call.q = b.in(0);
  if (b.rank(b.in(1)) == 5) {  // [batch, length, heads, 2, width]
    if (b.has(2)) return b.invalid("a packed key of rank 5 goes without value");
    call.k = b.reshape(b.slice(b.in(1), 3, 0, 1), {0, 0, -1});
    call.v = b.reshape(b.slice(b.in(1), 3, 1, 2), {0, 0, -1});
    return {};
  }
  if (!b.has(2)) return b.invalid("value is missing");
  OPTC_TRY(b.need_rank(2, {b.rank(b.in(1))}));
  call.k = b.in(1);
  call.v = b.in(2);
  return {};
}

Status multi_head(Body &b, AttentionCall call, const MultiHeadInputs &in) {
  if (b.has(in.past_key) != b.has(in.past_value)) return b.invalid("past_key and past_value go together");
  call.past_key = b.in(in.past_key);
  call.past_value = b.in(in.past_value);
  if (b.rank(call.k) == 4) {  // of a cross attention, computed before: [batch, heads, length, width]
    if (b.has(in.bias) || call.past_key.valid()) return b.unsupported("bias or past beside keys of rank 4");
    call.q = split_heads(b, call.q, call.heads);
  } else {
    add_biases(b, in.bias, call);
  }
  call.scale = b.f("scale", 0);
  const ValueId total = total_length(b, call.k, call.past_key);
  OPTC_ASSIGN(call.mask, additive_mask(b, {in.mask, b.in(0), total, b.element(call.q)}));
  call.mask = sum_if_both(b, call.mask, b.in(in.attention_bias));
  const int query_axis = b.rank(call.q) == 4 ? 2 : 1;
  if (call.causal && !b.same_dim(call.q, query_axis, call.k, query_axis)) {
    // Where there are not as many queries as new keys, ONNX Runtime lets the last query see all keys.
    const ValueId queries = b.dim(call.q, query_axis), at = b.iota(queries, ElementType::kInt64);
    ValueId first = call.past_key.valid() ? b.add(at, b.dim(call.past_key, 2)) : at;
    first = b.op("Where", {b.op("Equal", {at, b.sub(queries, b.ints({1}))}), total, first});
    const ValueId visible =
        b.op("LessOrEqual", {b.iota(total, ElementType::kInt64), b.unsqueeze(first, {1})});  // [length, total]
    const ElementType type = b.element(call.q);
    const ValueId excluded = b.number(type, -std::numeric_limits<double>::infinity());
    const ValueId others = call.mask.valid() ? call.mask : b.number(type, 0);
    call.mask = b.op("Where", {visible, others, excluded});
    call.causal = false;
  }
  const bool wants_present = b.wants(1) || b.wants(2);
  const AttentionResult result = attention(b, call, wants_present);
  b.give(0, result.y);
  if (b.wants(1)) b.give(1, result.present_key);
  if (b.wants(2)) b.give(2, result.present_value);
  if (b.wants(3)) {
    if (b.i("unidirectional", 0) != 0) return b.unsupported("the product of queries and keys of a causal attention");
    b.give(3, masked_scores(b, call));
  }
  return {};
}

Status multi_head_attention(Body &b) {
  if (b.has(8) || b.has(9)) return b.unsupported("past_sequence_length and cache_indirection of MultiHeadAttention");
  AttentionCall call;
  OPTC_ASSIGN(call.heads, heads_of(b));
  call.key_heads = call.heads;
  OPTC_TRY(take_heads(b, call));
  call.causal = b.i("unidirectional", 0) != 0;
  return multi_head(b, call, {3, 4, 5, 6, 7});
}

// One new query, key and value a row. The cache is a buffer of a fixed length, filled up to past_sequence_length: the
// new ones are written behind, and the rest of the buffer is not seen.
Status attend_in_buffer(Body &b, AttentionCall call) {
  if (!b.has(5) || !b.has(6) || !b.has(7))
    return b.invalid("past_present_share_buffer needs past_key, past_value and past_sequence_length");
  OPTC_TRY(b.need_rank(5, {4}));
  if (b.rank(call.k) != 3) return b.invalid("past_present_share_buffer needs key and value of rank 3");
  add_biases(b, 10, call);
  const ValueId past = b.reshape(b.cast(b.in(7), ElementType::kInt64), {1}),
                at = b.op("Expand", {past, b.dim(call.q, 0)});
  const Body::Attributes lengths{{"axis", int64_t{-2}}};
  const ValueId keys = b.op("TensorScatter", {b.in(5), split_heads(b, call.k, call.heads), at}, lengths);
  const ValueId values = b.op("TensorScatter", {b.in(6), split_heads(b, call.v, call.heads), at}, lengths);
  const ElementType type = b.element(call.q);
  OPTC_ASSIGN(ValueId mask, additive_mask(b, {3, call.q, b.add(past, b.ints({1})), type}));
  mask = sum_if_both(b, mask, b.in(4));
  const ValueId length = b.dim(keys, 2);
  const ValueId visible = b.op("LessOrEqual", {b.iota(length, ElementType::kInt64), past});
  call.mask = visible;
  if (mask.valid()) {  // as long as the keys that are seen
    const ValueId missing = b.sub(length, b.dim(mask, 3));
    mask = b.op("Pad", {mask, b.concat({b.ints({0, 0, 0, 0, 0, 0, 0}), missing}, 0)});
    call.mask = b.op("Where", {visible, mask, b.number(type, -std::numeric_limits<double>::infinity())});
  } else {
    call.mask = b.unsqueeze(visible, {0, 1, 2});
  }
  call.q = split_heads(b, call.q, call.heads);
  call.k = keys;
  call.v = values;
  call.scale = b.f("scale", 0);
  b.give(0, attention(b, call, false).y);
  if (b.wants(1)) b.give(1, keys);
  if (b.wants(2)) b.give(2, values);
  return {};
}

// One query a batch, which sees all keys there are.
Status decoder_masked_multi_head_attention(Body &b) {
  if (b.has(9)) return b.unsupported("cache_indirection of DecoderMaskedMultiHeadAttention");
  AttentionCall call;
  OPTC_ASSIGN(call.heads, heads_of(b));
  call.key_heads = call.heads;
  OPTC_TRY(b.need_rank(0, {3}));
  if (b.has(1)) {
    OPTC_TRY(take_heads(b, call));
  } else {
    const std::vector<ValueId> parts =
        b.ops("Split", {b.in(0)}, 3, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}});
    call.q = parts[0];
    call.k = parts[1];
    call.v = parts[2];
  }
  if (b.i("past_present_share_buffer", 0) != 0) return attend_in_buffer(b, call);
  return multi_head(b, call, {10, 3, 4, 5, 6});
}

#define OPTC_MASKED "mask_filter_value:f num_heads:i! scale:f"
constexpr OpDef kOps[] = {
    body_row("com.microsoft.Attention",
             {"input weights bias? mask_index? past? attention_bias? past_sequence_length?", "output present?",
              OPTC_MASKED
              " unidirectional:b qkv_hidden_sizes:is do_rotary:b rotary_embedding_dim:i past_present_share_buffer:b"},
             microsoft_attention),
    body_row("com.microsoft.DecoderMaskedMultiHeadAttention",
             {"query key? value? mask_index? attention_bias? past_key? past_value? past_sequence_length? beam_width? "
              "cache_indirection? bias?",
              "output present_key? present_value? qk?", OPTC_MASKED " output_qk:b past_present_share_buffer:b"},
             decoder_masked_multi_head_attention),
    body_row("com.microsoft.MultiHeadAttention",
             {"query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? past_sequence_length? "
              "cache_indirection?",
              "output present_key? present_value? qk?", OPTC_MASKED " unidirectional:b"},
             multi_head_attention),
    body_row("com.microsoft.PackedAttention",
             {"input weights bias token_offset cumulative_sequence_length attention_bias?", "output",
              "num_heads:i! qkv_hidden_sizes:is scale:f"},
             packed_attention),
    body_row("com.microsoft.PackedMultiHeadAttention",
             {"query key? value? bias? token_offset cumulative_sequence_length attention_bias?", "output", OPTC_MASKED},
             packed_multi_head_attention),
    body_row("com.microsoft.QAttention",
             {"input weight bias input_scale weight_scale mask_index? input_zero_point? weight_zero_point? past?",
              "output present?", OPTC_MASKED " unidirectional:b do_rotary:b past_present_share_buffer:b"},
             quantized_attention),
};
#undef OPTC_MASKED

}  // namespace

std::span<const OpDef> contrib_attention_ops() { return kOps; }

}  // namespace optc
