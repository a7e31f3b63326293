// com.microsoft: what ONNX Runtime's tools make of encoders and of the loops around decoders, most of it for GPUs:
// masks and positions that are added to scores, sequences without their padding, scores of tokens that would repeat.

#include <cmath>
#include <limits>

#include "ops/body.h"

namespace optc {
namespace {

// Softmax over all axes from `axis` on, of scores with a mask added.
Status bias_softmax(Body &b) {
  OPTC_TRY(b.need_rank(0));
  const ValueId x = b.in(0);
  const int rank = b.rank(x);
  int64_t axis = b.i("axis", 1);
  axis += axis < 0 ? rank : 0;
  if (axis < 0 || axis >= rank) return b.invalid("attribute 'axis' is out of range for " + to_string(b.type(x)));
  const ValueId sum = b.add(x, b.in(1));
  if (axis == rank - 1) {
    b.give(0, b.op("Softmax", {sum}, {{"axis", int64_t{-1}}}));
    return {};
  }
  const ValueId rows = b.op("Softmax", {b.op("Flatten", {sum}, {{"axis", axis}})}, {{"axis", int64_t{1}}});
  b.give(0, b.op("Reshape", {rows, b.op("Shape", {x})}));
  return {};
}

// The distance of each key from each query in buckets: exact up to a half of them, then by the logarithm of the
// distance (arXiv 1910.10683, section 2.1). int64 [queries, keys].
ValueId distance_buckets(Body &b, ValueId queries, ValueId keys, int64_t buckets, bool both_ways,
                         int64_t max_distance) {
  const ValueId apart =
      b.sub(b.iota(keys, ElementType::kInt64), b.unsqueeze(b.iota(queries, ElementType::kInt64), {1}));
  const ValueId zero = b.ints({0});
  ValueId base, distance;
  if (both_ways) {
    buckets /= 2;
    base = b.op("Where", {b.op("Greater", {apart, zero}), b.ints({buckets}), zero});
    distance = b.op("Abs", {apart});
  } else {
    distance = b.op("Neg", {b.op("Min", {apart, zero})});
  }
  const int64_t exact = buckets / 2;
  const ElementType real = ElementType::kFloat32;
  const ValueId ratio =
      b.div(b.cast(b.op("Max", {distance, b.ints({1})}), real), b.number(real, static_cast<double>(exact)));
  const float span = std::log(static_cast<float>(max_distance) / static_cast<float>(exact));
  const ValueId steps = b.mul(b.div(b.op("Log", {ratio}), b.number(real, static_cast<double>(span))),
                              b.number(real, static_cast<double>(buckets - exact)));
  ValueId far = b.add(b.cast(steps, ElementType::kInt64), b.ints({exact}));
  far = b.op("Min", {far, b.ints({buckets - 1})});
  const ValueId bucket = b.op("Where", {b.op("Less", {distance, b.ints({exact})}), distance, far});
  return base.valid() ? b.add(bucket, base) : bucket;
}

// A learned number for each bucket and head. The table's bytes are those of [heads, buckets], whatever its shape says.
Status relative_position_bias(Body &b) {
  OPTC_TRY(b.need_rank(0, {2}));
  const auto buckets = b.fixed(b.in(0), 0);
  const int64_t max_distance = b.i("max_distance", 0);
  const bool both_ways = b.i("is_bidirectional", 0) != 0;
  if (!buckets) return b.unsupported("the size of " + b.input_name(0) + " is not known before the model runs");
  const int64_t exact = (both_ways ? *buckets / 2 : *buckets) / 2;
  if (exact < 1 || max_distance <= exact)
    return b.invalid("max_distance must be larger than the " + std::to_string(exact) + " exact buckets of the table");
  const auto count = [&](size_t i) { return b.reshape(b.cast(b.in(i), ElementType::kInt64), {1}); };
  const ValueId table = b.op("Reshape", {b.in(0), b.concat({b.dim(b.in(0), 1), b.dim(b.in(0), 0)}, 0)});
  const ValueId at = distance_buckets(b, count(1), count(2), *buckets, both_ways, max_distance);
  b.give(0, b.unsqueeze(b.op("Gather", {table, at}, {{"axis", int64_t{1}}}), {0}));
  return {};
}

// Rows [tokens, ...] put where token_offset [batch, length] says, zeros behind them: [batch, length, ...].
ValueId padded(Body &b, ValueId rows, ValueId token_offset) {
  const ValueId count = b.dim(rows, 0), shape = b.op("Shape", {token_offset});
  const ValueId behind = b.op("Shape", {rows}, {{"start", int64_t{1}}});
  const ValueId flat = b.cast(b.reshape(token_offset, {-1}), ElementType::kInt64);
  const ValueId places = b.op("Slice", {flat, b.ints({0}), count, b.ints({0})});
  const ValueId all = b.unsqueeze(b.op("Size", {token_offset}), {0});
  const ValueId empty = b.op("Expand", {b.like(rows, 0), b.concat({all, behind}, 0)});
  const ValueId filled = b.op("ScatterND", {empty, b.unsqueeze(places, {1}), rows});
  return b.op("Reshape", {filled, b.concat({shape, behind}, 0)});
}

Status restore_padding(Body &b) {
  OPTC_TRY(b.need_rank(0, {2}));
  OPTC_TRY(b.need_rank(1, {2}));
  b.give(0, padded(b, b.in(0), b.in(1)));
  return {};
}

// The tokens of all sequences one after the other, and where they stood: first those of tokens, then those of padding.
Status remove_padding(Body &b) {
  OPTC_TRY(b.need_rank(0, {3}));
  OPTC_TRY(b.need_rank(1, {1}));
  const ValueId x = b.in(0), counts = b.cast(b.in(1), ElementType::kInt64);
  const ValueId places = b.iota(b.dim(x, 1), ElementType::kInt64);
  const ValueId there = b.op("Less", {b.unsqueeze(places, {0}), b.unsqueeze(counts, {1})});  // [batch, length]
  const auto where = [&](ValueId mask) { return b.reshape(b.op("NonZero", {b.reshape(mask, {-1})}), {-1}); };
  const ValueId tokens = where(there), padding = where(b.op("Not", {there}));
  const ValueId rows = b.op("Reshape", {x, b.concat({b.ints({-1}), b.dim(x, 2)}, 0)});
  b.give(0, b.op("Gather", {rows, tokens}, {{"axis", int64_t{0}}}));
  const ElementType type = b.element(b.in(1));
  if (b.wants(1)) b.give(1, b.cast(b.op("Reshape", {b.concat({tokens, padding}, 0), b.op("Shape", {there})}), type));
  if (b.wants(2)) {
    const ValueId sums = b.op("CumSum", {counts, b.value(Constant::scalar_int64(0))});
    b.give(2, b.cast(b.concat({b.ints({0}), sums}, 0), type));
  }
  if (b.wants(3)) b.give(3, b.cast(b.op("ReduceMax", {counts, b.ints({0})}), type));
  return {};
}

// Positions' bias, gated by two numbers that each query gives.
Status gated_relative_position_bias(Body &b) {
  const bool packed = b.has(6);
  OPTC_TRY(b.need_rank(0, {packed ? 2 : 3}));
  const int64_t heads = b.i("num_heads", 0);
  if (heads < 1) return b.invalid("attribute 'num_heads' must be positive");
  const ValueId x = packed ? padded(b, b.in(0), b.in(6)) : b.in(0);
  const ValueId split = b.transpose(b.reshape(b.add(x, b.in(1)), {0, 0, heads, -1}), {0, 2, 1, 3});
  const ValueId gates = b.add(b.matmul(split, b.in(3)), b.in(4));  // [batch, heads, length, 2 * n]
  const ValueId pairs = b.reshape(gates, {0, 0, 0, 2, -1});
  const ValueId open =
      b.op("Sigmoid", {b.op("ReduceSum", {pairs, b.ints({-1})}, {{"keepdims", int64_t{0}}})});  // [..., 2]
  const ValueId u = b.slice(open, 3, 0, 1), r = b.slice(open, 3, 1, 2);
  const ValueId gate =
      b.add(b.mul(u, b.sub(b.mul(r, b.in(5)), b.like(r, 1))), b.like(r, 2));  // [batch, heads, length, 1]
  b.give(0, b.mul(gate, b.in(2)));
  return {};
}

// Queries and keys turned by angles, whose other halves are given too.
Status gemma_rotary(Body &b) {
  const ElementType type = b.element(b.in(1));
  const auto waves = [&](const char *op) { return b.unsqueeze(b.cast(b.op(op, {b.in(0)}), type), {1}); };
  const ValueId sine = waves("Sin"), cosine = waves("Cos");
  for (size_t i : {0, 1})
    if (b.wants(i)) b.give(i, b.add(b.mul(b.in(1 + 2 * i), cosine), b.mul(b.in(2 + 2 * i), sine)));
  return {};
}

// Scores of -inf for tokens that would end a run of n tokens that stands in the sequence already.
Status ngram_repeat_block(Body &b) {
  OPTC_TRY(b.need_rank(0, {2}));
  OPTC_TRY(b.need_rank(1, {2}));
  const int64_t n = b.i("ngram_size", 0);
  if (n < 1 || n > (int64_t{1} << 20)) return b.invalid("attribute 'ngram_size' must be positive");
  const ValueId ids = b.cast(b.in(0), ElementType::kInt64), scores = b.in(1), zero = b.ints({0});
  const ValueId first = b.sub(b.dim(ids, 1), b.ints({n - 1}));  // of the last n - 1 tokens
  const ValueId count = b.op("Max", {first, zero});             // runs that stand in the sequence
  const ValueId begins = b.iota(count, ElementType::kInt64);
  const Body::Attributes columns{{"axis", int64_t{1}}};
  const ValueId next = b.op("Gather", {ids, b.add(begins, b.ints({n - 1}))}, columns);  // [batch, count]
  const ElementType type = b.element(scores);
  const double infinity = std::numeric_limits<double>::infinity();
  ValueId update = b.op("Expand", {b.number(type, -infinity), b.op("Shape", {next})});
  if (n > 1) {
    const ValueId inside = b.iota(b.ints({n - 1}), ElementType::kInt64);
    const ValueId runs = b.op("Gather", {ids, b.add(b.unsqueeze(begins, {1}), inside)}, columns);
    const ValueId last = b.op("Min", {b.add(inside, count), b.sub(b.dim(ids, 1), b.ints({1}))});
    const ValueId tail = b.op("Gather", {ids, last}, columns);
    const ValueId same = b.cast(b.op("Equal", {runs, b.unsqueeze(tail, {1})}), ElementType::kInt32);
    const ValueId all = b.op("ReduceMin", {same, b.ints({-1})}, {{"keepdims", int64_t{0}}});
    update = b.op("Where", {b.cast(all, ElementType::kBool), update, b.number(type, infinity)});
  }
  b.give(0, b.op("ScatterElements", {scores, next, update}, {{"axis", int64_t{1}}, {"reduction", std::string("min")}}));
  return {};
}

constexpr OpDef kOps[] = {
    body_row("com.microsoft.BiasSoftmax", {"data bias", "output", "axis:i is_inner_broadcast:b!"}, bias_softmax),
    body_row("com.microsoft.GatedRelativePositionBias",
             {"query_layer query_bias rel_pos weight bias eco_a token_offset?", "output", "num_heads:i!"},
             gated_relative_position_bias),
    body_row("com.microsoft.GemmaRotaryEmbedding", {"emb q q_rot k k_rot", "output1 output2", ""}, gemma_rotary),
    body_row("com.microsoft.NGramRepeatBlock", {"input_ids scores", "scores_out", "ngram_size:i!"}, ngram_repeat_block),
    body_row("com.microsoft.RelativePositionBias",
             {"bias_table query_length key_length", "output", "is_bidirectional:b max_distance:i!"},
             relative_position_bias),
    body_row("com.microsoft.RemovePadding",
             {"input sequence_token_count", "output token_offset cumulated_seq_len max_seq_len", ""}, remove_padding),
    body_row("com.microsoft.RestorePadding", {"input token_offset", "output", ""}, restore_padding),
};

}  // namespace

std::span<const OpDef> contrib_encoder_ops() { return kOps; }

}  // namespace optc
