// Normalizations of ONNX Runtime: with a residual or embeddings added before, and SimplifiedLayerNormalization, which
// it writes in ONNX's own domain.

#include <string>

#include "ops/body.h"

namespace optc {
namespace {

// 1 / sqrt(mean of squares + epsilon) over the axes from `axis` on, in f32 (f64 for f64).
ValueId inverse_rms(Body &b, ValueId x, int64_t axis, float epsilon) {
  const int rank = b.rank(x);
  if (b.element(x) != ElementType::kFloat64) x = b.cast(x, ElementType::kFloat32);
  std::vector<int64_t> axes;
  for (int64_t k = axis < 0 ? axis + rank : axis; k < rank; ++k) axes.push_back(k);
  const ValueId mean = b.op("ReduceMean", {b.mul(x, x), b.ints(std::move(axes))});
  const ValueId root = b.op("Sqrt", {b.add(mean, b.like(x, static_cast<double>(epsilon)))});
  return b.op("Reciprocal", {root});
}

Status simplified_norm(Body &b) {
  OPTC_TRY(b.need_rank(0));
  const int64_t axis = b.i("axis", -1);
  const float epsilon = b.f("epsilon", 1e-5f);
  if (axis < -b.rank(b.in(0)) || axis >= b.rank(b.in(0)))
    return b.invalid("attribute 'axis' is out of range for " + to_string(b.type(b.in(0))));
  // RMSNormalization gives the scale's type, this the input's.
  const ValueId y = b.op("RMSNormalization", {b.in(0), b.in(1)}, b.pass({"axis", "epsilon", "stash_type"}));
  b.give(0, b.cast(y, b.element(b.in(0))));
  if (b.wants(1)) b.give(1, inverse_rms(b, b.in(0), axis, epsilon));
  return {};
}

ValueId sum_of(Body &b, size_t bias) {
  const ValueId sum = b.add(b.in(0), b.in(1));
  return b.has(bias) ? b.add(sum, b.in(bias)) : sum;
}

Status skip_layer_norm(Body &b) {
  const ValueId sum = sum_of(b, 4);
  std::vector<ValueId> inputs{sum, b.in(2)};
  if (b.has(3)) inputs.push_back(b.in(3));
  const size_t outputs = b.wants(2) ? 3 : b.wants(1) ? 2 : 1;
  const std::vector<ValueId> norm = b.ops("LayerNormalization", std::move(inputs), outputs,
                                          {{"axis", int64_t{-1}}, {"epsilon", b.f("epsilon", 1e-12f)}});
  for (size_t i = 0; i < outputs; ++i) b.give(i, norm[i]);
  if (b.wants(3)) b.give(3, sum);
  return {};
}

Status skip_simplified_norm(Body &b) {
  OPTC_TRY(b.need_rank(0));
  const float epsilon = b.f("epsilon", 1e-12f);
  const ValueId sum = sum_of(b, 3);
  b.give(0, b.op("RMSNormalization", {sum, b.in(2)}, {{"axis", int64_t{-1}}, {"epsilon", epsilon}}));
  if (b.wants(2)) b.give(2, inverse_rms(b, sum, -1, epsilon));
  if (b.wants(3)) b.give(3, sum);
  return {};
}

// The rows of a table at `ids`; tables of EmbedLayerNormalization are float, those of its quantized form are 8-bit with
// one scale and zero point.
struct Table {
  ValueId rows, scale, zero_point;
};
ValueId dequantized(Body &b, ValueId q, ValueId scale, ValueId zero_point) {
  return scale.valid() ? b.op("DequantizeLinear", {q, scale, zero_point}) : q;
}
ValueId rows_at(Body &b, const Table &table, ValueId ids) {
  return dequantized(b, b.op("Gather", {table.rows, ids}, {{"axis", int64_t{0}}}), table.scale, table.zero_point);
}

struct Embedding {
  Table word, position, segment, gamma, beta;
  ValueId position_ids;
};
Status embed_norm(Body &b, const Embedding &e) {
  const ValueId ids = b.in(0), segment_ids = b.in(1), mask = b.in(7);
  ValueId position;
  if (e.position_ids.valid()) {
    position = rows_at(b, e.position, e.position_ids);
  } else {
    const ValueId first = b.op("Slice", {e.position.rows, b.ints({0}), b.dim(ids, 1), b.ints({0})});
    position = dequantized(b, first, e.position.scale, e.position.zero_point);
  }
  ValueId sum = b.add(rows_at(b, e.word, ids), position);
  if (segment_ids.valid()) {
    if (!e.segment.rows.valid()) return b.invalid("segment_ids are given, but no segment_embedding");
    sum = b.add(sum, rows_at(b, e.segment, segment_ids));
  }
  const ValueId gamma = dequantized(b, e.gamma.rows, e.gamma.scale, e.gamma.zero_point);
  const ValueId beta = dequantized(b, e.beta.rows, e.beta.scale, e.beta.zero_point);
  b.give(0,
         b.op("LayerNormalization", {sum, gamma, beta}, {{"axis", int64_t{-1}}, {"epsilon", b.f("epsilon", 1e-12f)}}));
  if (b.wants(1)) {
    // The number of ones of each row of the mask, 0 without a mask.
    ValueId count;
    if (mask.valid()) {
      const ValueId ones = b.cast(b.op("Equal", {mask, b.like(mask, 1)}), ElementType::kInt32);
      count = b.op("ReduceSum", {ones, b.ints({1})}, {{"keepdims", int64_t{0}}});
    } else {
      count = b.op("Expand", {b.number(ElementType::kInt32, 0), b.dim(ids, 0)});
    }
    b.give(1, count);
  }
  if (b.wants(2)) b.give(2, sum);
  return {};
}
Status embed_layer_norm(Body &b) {
  Embedding e;
  e.word.rows = b.in(2);
  e.position.rows = b.in(3);
  e.segment.rows = b.in(4);
  e.gamma.rows = b.in(5);
  e.beta.rows = b.in(6);
  e.position_ids = b.in(8);
  return embed_norm(b, e);
}
Status qembed_layer_norm(Body &b) {
  Embedding e;
  Table *tables[] = {&e.word, &e.position, &e.segment, &e.gamma, &e.beta};
  for (size_t k = 0; k < 5; ++k) *tables[k] = {b.in(2 + k), b.in(8 + k), b.in(13 + k)};
  return embed_norm(b, e);
}

// Group normalization of x, which has its channels at axis 1 or, `last`, at the end; then SiLU when it is asked for.
Result<ValueId> group_norm_of(Body &b, ValueId x, bool last) {
  const ElementType type = b.element(x);
  // Scale and bias may be f32 beside 16-bit data.
  const bool mixed = b.element(b.in(1)) != type;
  ValueId y = last ? b.channels_first(x) : x;
  if (mixed) y = b.cast(y, b.element(b.in(1)));
  y = b.op("GroupNormalization", {y, b.in(1), b.in(2)},
           {{"num_groups", b.i("groups", 0)}, {"epsilon", b.f("epsilon", 1e-5f)}});
  const int64_t activation = b.i("activation", 0);
  if (activation == 1) y = b.mul(y, b.op("Sigmoid", {y}));
  if (activation != 0 && activation != 1) return b.unsupported("activation " + std::to_string(activation));
  if (mixed) y = b.cast(y, type);
  return last ? b.channels_last(y) : y;
}
Status group_norm(Body &b) {
  OPTC_TRY(b.need_rank(0, {4}));
  OPTC_ASSIGN(const ValueId y, group_norm_of(b, b.in(0), b.i("channels_last", 1) != 0));
  b.give(0, y);
  return {};
}
Status skip_group_norm(Body &b) {
  OPTC_TRY(b.need_rank(0, {4}));
  OPTC_TRY(b.need_rank(3, {2, 4}));
  const bool last = b.i("channels_last", 1) != 0;
  ValueId skip = b.in(3);
  if (b.rank(skip) == 2) skip = b.unsqueeze(skip, last ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 3});
  ValueId sum = b.add(b.in(0), skip);
  if (b.has(4)) sum = b.add(sum, last ? b.in(4) : b.unsqueeze(b.in(4), {1, 2}));
  OPTC_ASSIGN(const ValueId y, group_norm_of(b, sum, last));
  b.give(0, y);
  if (b.wants(1)) b.give(1, sum);
  return {};
}

constexpr OpDef kOps[] = {
    body_row("SimplifiedLayerNormalization", {"X scale", "Y inv_std_var?", "axis:i epsilon:f stash_type:i"},
             simplified_norm),
    body_row(
        "com.microsoft.EmbedLayerNormalization",
        {"input_ids segment_ids? word_embedding position_embedding segment_embedding? gamma beta mask? position_ids?",
         "output mask_index? embedding_sum?", "epsilon:f mask_index_type:i"},
        embed_layer_norm),
    body_row("com.microsoft.GroupNorm", {"X gamma beta", "Y", "activation:i! channels_last:b epsilon:f groups:i!"},
             group_norm),
    body_row(
        "com.microsoft.QEmbedLayerNormalization",
        {"input_ids segment_ids? word_embedding_quant position_embedding_quant segment_embedding_quant? gamma_quant "
         "beta_quant mask? word_embedding_scale position_embedding_scale segment_embedding_scale? gamma_scale "
         "beta_scale word_embedding_zero_point position_embedding_zero_point segment_embedding_zero_point? "
         "gamma_zero_point beta_zero_point",
         "layernorm_out mask_index_out?", "epsilon:f"},
        qembed_layer_norm),
    body_row("com.microsoft.SkipGroupNorm",
             {"X gamma beta skip bias?", "Y S?", "activation:i! channels_last:b epsilon:f groups:i!"}, skip_group_norm),
    body_row("com.microsoft.SkipLayerNormalization",
             {"input skip gamma beta? bias?", "output mean? inv_std_var? input_skip_bias_sum?", "epsilon:f"},
             skip_layer_norm),
    body_row("com.microsoft.SkipSimplifiedLayerNormalization",
             {"input skip gamma bias?", "output mean? inv_std_var? input_skip_bias_sum?", "epsilon:f"},
             skip_simplified_norm),
};

}  // namespace

std::span<const OpDef> contrib_norm_ops() { return kOps; }

}  // namespace optc
