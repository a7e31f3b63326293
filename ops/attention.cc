// Attention (opset 23 and later) and RotaryEmbedding.

#include <cmath>
#include <limits>

#include "ops/conditions.h"
#include "ops/pointwise.h"
#include "ops/util.h"

namespace optc {
namespace {

using Index = std::vector<Dim>;

// Q, K, V as [batch, heads, sequence, width], whichever of the two forms they have.
struct Heads {
  Dim batch, heads, length, width;
  bool packed = false;  // [batch, sequence, heads * width]
  Index at(Dim b, Dim h, Dim i, Dim d) const { return packed ? Index{b, i, h * width + d} : Index{b, h, i, d}; }
};
std::optional<Heads> heads_of(const Shape &shape, int64_t heads) {
  if (shape.size() == 4) return Heads{shape[0], shape[1], shape[2], shape[3], false};
  if (shape.size() != 3 || heads <= 0) return std::nullopt;
  const auto width = exact_div(shape[2], heads);
  if (!width && shape[2].is_constant()) return std::nullopt;
  return Heads{shape[0], heads, shape[1], width ? *width : floor_div(shape[2], heads), true};
}
// A division that could not be proved exact is checked at run time.
void constrain_width(InferContext &c, size_t input, const Heads &heads) {
  if (heads.packed && heads.width * heads.heads != c.shape(input)[2])
    c.constrain(c.shape(input)[2], heads.width * heads.heads);
}

struct Operands {
  Heads q, k, v;
  Dim past, total;
};

enum Input : size_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kValidKeys };

std::optional<Operands> operands(const Node &node, const Shape &q, const Shape &k, const Shape &v, const Shape *past) {
  const int64_t query_heads = node.int_or("q_num_heads", 0), key_heads = node.int_or("kv_num_heads", 0);
  const auto query = heads_of(q, query_heads), key = heads_of(k, key_heads), value = heads_of(v, key_heads);
  if (!query || !key || !value || (past && past->size() != 4)) return std::nullopt;
  Operands o{*query, *key, *value, past ? (*past)[2] : Dim(0), 0};
  o.total = o.past + o.k.length;
  return o;
}

// Query heads a key head.
Dim repeats_of(const Operands &o) {
  if (o.k.heads.is(0)) return 0;
  const auto exact = exact_div(o.q.heads, o.k.heads);
  return exact ? *exact : floor_div(o.q.heads, o.k.heads);
}

Status check_past(InferContext &c, size_t input, const Heads &heads, Dim past, const char *what) {
  OPTC_TRY(c.require_shape(input));
  const Shape shape = c.shape(input), expected = {heads.batch, heads.heads, past, heads.width};
  if (shape.size() != 4) return c.invalid(std::string(what) + " must have rank 4");
  for (size_t k = 0; k < 4; ++k) {
    OPTC_ASSIGN([[maybe_unused]] Dim size,
                c.same(shape[k], expected[k], "dimension " + std::to_string(k) + " of " + what));
  }
  return {};
}

// A mask broadcasts to the scores, but for its last dimension, which may end before the keys do.
Status check_mask(InferContext &c, const Operands &o) {
  if (c.has_input(kMask)) {
    OPTC_TRY(c.require_shape(kMask));
    const Shape mask = c.shape(kMask), scores = {o.q.batch, o.q.heads, o.q.length, o.total};
    if (mask.size() > 4) return c.invalid("attn_mask has more dimensions than the scores");
    for (size_t m = 0; m + 1 < mask.size(); ++m)
      OPTC_TRY(broadcasts_to(c, mask[m], scores[4 - mask.size() + m], "a dimension of attn_mask"));
    if (!mask.empty()) OPTC_TRY(at_most(c, mask.back(), o.total, "the length of attn_mask"));
  }
  if (!c.has_input(kValidKeys)) return {};
  OPTC_TRY(c.require_shape(kValidKeys));
  if (c.rank(kValidKeys) != 1) return c.invalid("nonpad_kv_seqlen must have one dimension");
  OPTC_ASSIGN([[maybe_unused]] Dim batch,
              c.same(c.shape(kValidKeys)[0], o.q.batch, "the length of nonpad_kv_seqlen and the batch"));
  // What the model says of them; each run checks the others.
  if (const auto fixed = constant_ints(c.constant(kValidKeys)))
    for (int64_t keys : *fixed)
      if (keys < 0 || proved_less(o.total, keys))
        return c.invalid("nonpad_kv_seqlen says " + std::to_string(keys) + " valid keys of " + o.total.str());
  return {};
}

Status infer_attention(InferContext &c) {
  for (size_t i = 0; i < 3; ++i) OPTC_TRY(c.require_shape(i));
  if (c.has_input(kPastKey) != c.has_input(kPastValue)) return c.invalid("past_key and past_value go together");
  if (c.has_input(kPastKey)) OPTC_TRY(c.require_shape(kPastKey));
  const auto o =
      operands(c.node(), c.shape(0), c.shape(1), c.shape(2), c.has_input(kPastKey) ? &c.shape(kPastKey) : nullptr);
  if (!o)
    return c.invalid(
        "Q, K and V must have rank 4, or rank 3 with q_num_heads and kv_num_heads that divide the hidden sizes");
  OPTC_ASSIGN([[maybe_unused]] Dim batch, c.same(o->q.batch, o->k.batch, "the batch of Q and K"));
  OPTC_ASSIGN([[maybe_unused]] Dim values, c.same(o->k.batch, o->v.batch, "the batch of K and V"));
  OPTC_ASSIGN([[maybe_unused]] Dim heads, c.same(o->k.heads, o->v.heads, "the number of heads of K and V"));
  OPTC_ASSIGN([[maybe_unused]] Dim width, c.same(o->q.width, o->k.width, "the head sizes of Q and K"));
  OPTC_ASSIGN([[maybe_unused]] Dim length, c.same(o->k.length, o->v.length, "the lengths of K and V"));
  for (size_t i = 0; i < 3; ++i) constrain_width(c, i, i == 0 ? o->q : i == 1 ? o->k : o->v);
  if (c.has_input(kPastKey)) {
    OPTC_TRY(check_past(c, kPastKey, o->k, o->past, "past_key"));
    OPTC_TRY(check_past(c, kPastValue, o->v, o->past, "past_value"));
  }
  OPTC_TRY(check_mask(c, *o));
  const Dim repeats = repeats_of(*o);
  if (repeats * o->k.heads != o->q.heads) {
    if (o->q.heads.is_constant() && o->k.heads.is_constant())
      return c.invalid("the number of query heads is not a multiple of that of the key heads");
    c.constrain(o->q.heads, repeats * o->k.heads);
  }
  const ElementType type = c.element(0);
  if (o->q.packed) {
    c.set_tensor(0, type, {o->q.batch, o->q.length, o->q.heads * o->v.width});
  } else {
    c.set_tensor(0, type, {o->q.batch, o->q.heads, o->q.length, o->v.width});
  }
  c.set_tensor(1, c.element(1), {o->k.batch, o->k.heads, o->total, o->k.width});
  c.set_tensor(2, c.element(2), {o->v.batch, o->v.heads, o->total, o->v.width});
  c.set_tensor(3, type, {o->q.batch, o->q.heads, o->q.length, o->total});
  return {};
}

// present = past then new, as [batch, heads, total, width].
BufferId emit_present(BuildContext &c, size_t input, size_t past_input, size_t output, const Heads &heads, Dim past) {
  const Shape shape = {heads.batch, heads.heads, past + heads.length, heads.width};
  const BufferId present =
      c.has_output(output) ? c.output(output) : c.temporary("present", c.input_type(input).element, shape);
  if (c.has_input(past_input)) {
    NestBuilder nest(c, "past");
    const Index at = nest.outer(c.shape(past_input));
    nest.store(present, at, nest.load_raw(c.input(past_input), at));
    nest.finish();
  }
  NestBuilder nest(c, "present");
  const Index at = nest.outer({heads.batch, heads.heads, heads.length, heads.width});
  nest.store(present, {at[0], at[1], at[2] + past, at[3]},
             nest.load_raw(c.input(input), heads.at(at[0], at[1], at[2], at[3])));
  nest.finish();
  return present;
}

Status build_attention(BuildContext &c) {
  const Node &node = c.node();
  const bool has_past = c.has_input(kPastKey);
  const Shape past_shape = has_past ? c.shape(kPastKey) : Shape();
  Operands o = *operands(node, c.shape(0), c.shape(1), c.shape(2), has_past ? &past_shape : nullptr);
  BufferId keys = c.input(kKey), values = c.input(kValue);
  Heads key_heads = o.k, value_heads = o.v;
  if (has_past || c.has_output(1)) keys = emit_present(c, kKey, kPastKey, 1, o.k, o.past);
  if (has_past || c.has_output(2)) values = emit_present(c, kValue, kPastValue, 2, o.v, o.past);
  if (has_past || c.has_output(1)) key_heads.packed = false;
  if (has_past || c.has_output(2)) value_heads.packed = false;

  const ElementType type = compute_type(c.input_type(0).element);
  const Dim repeats = repeats_of(o), total = o.total;
  const bool causal = node.int_or("is_causal", 0) != 0;
  const float softcap = node.float_or("softcap", 0);
  const int64_t left = node.int_or("left_window_size", -1), right = node.int_or("right_window_size", -1);
  const int64_t mode = node.int_or("qk_matmul_output_mode", 0);
  NestBuilder nest(c, "attention");
  const Dim b = nest.outer("b", o.q.batch), g = nest.outer("g", o.k.heads), r = nest.outer("r", repeats),
            i = nest.outer("i", o.q.length);
  const Dim h = g * repeats + r;
  auto output_scores = [&](int64_t when, Dim j, Expr value) {
    if (c.has_output(3) && mode == when) nest.store(c.output(3), {b, h, i, j}, value);
  };
  Contraction info;
  info.kind = ContractionKind::kAttention;

  const LocalId product = nest.local_row("product", type, {total});
  Dim j = nest.stage_loop("j", total), d = nest.stage_loop("d", o.q.width);
  const Expr q = nest.load(c.input(kQuery), o.q.at(b, h, i, d)), k = nest.load(keys, key_heads.at(b, g, j, d));
  info.query = q.id();
  info.key = k.id();
  info.k = {single_symbol(j), single_symbol(d)};
  nest.store_local(product, {j}, q * k, Combine::kSum);
  nest.end_stage();

  j = nest.stage_loop("j", total);
  Expr scale;
  if (node.attribute("scale")) {
    scale = nest.constant(type, node.float_or("scale", 1));
  } else if (o.q.width.is_constant()) {
    scale = nest.constant(type, 1 / std::sqrt(static_cast<double>(o.q.width.value())));
  } else {
    scale = 1.0 / square_root(cast(nest.index(o.q.width), type));
  }
  info.scale = scale.id();
  Expr score = nest.load_local(product, {j}) * scale;
  output_scores(0, j, score);
  if (softcap != 0) score = apply(ScalarOp::kTanh, score / softcap) * softcap;
  output_scores(1, j, score);
  const Expr excluded = nest.constant(type, -std::numeric_limits<double>::infinity());
  bool plain = true;  // `info` can say it
  Expr visible;
  if (c.has_input(kMask)) {
    const Shape mask_shape = c.shape(kMask);
    const Shape scores_shape = {o.q.batch, o.q.heads, o.q.length, total};
    Index at;
    const Index full = {b, h, i, j};
    for (size_t m = 0; m < mask_shape.size(); ++m) {
      const size_t to = 4 - mask_shape.size() + m;
      const Dim extent = mask_shape[m];
      if (to == 3) {  // a mask that is too short excludes the keys behind it
        if (extent != total) {
          visible = both(visible, is_below(nest.index(j), nest.index(extent)));
          plain = false;
        }
        at.push_back(extent == total ? j : min(j, extent - Dim(1)));
      } else {
        at.push_back(extent.is(1) ? Dim(0) : extent == scores_shape[to] ? full[to] : min(full[to], extent - Dim(1)));
      }
    }
    const Expr mask = nest.load(c.input(kMask), at);
    info.mask = mask.id();
    if (mask.type() == ElementType::kBool) {
      visible = both(visible, mask);
    } else {
      score = score + cast(mask, type);
    }
  }
  // The position of a query among the keys.
  Expr offset = nest.index(o.past);
  if (c.has_input(kValidKeys)) {
    plain = false;
    // Not more keys than there are: checked as an index is.
    const Expr valid = nest.index(nest.as_index(nest.load(c.input(kValidKeys), {b}), total + Dim(1)));
    visible = both(visible, is_below(nest.index(j), valid));
    if (!has_past) offset = valid - nest.index(o.q.length);
  }
  const Expr position = nest.index(i) + offset, key = nest.index(j);
  if (causal) visible = both(visible, less_equal(key, position));
  if (left >= 0) visible = both(visible, less_equal(position - static_cast<double>(left), key));
  if (right >= 0) visible = both(visible, less_equal(key, position + static_cast<double>(right)));
  if (left >= 0 || right >= 0) plain = false;
  if (visible.valid()) score = select(visible, score, excluded);
  output_scores(2, j, score);
  const LocalId scores = nest.local_row("scores", type, {total});
  nest.store_local(scores, {j}, score);
  nest.end_stage();

  j = nest.stage_loop("j", total);
  Expr top = nest.reduce(Combine::kMax, nest.load_local(scores, {j}));
  // A query that sees no key gives 0, not exp(-inf - (-inf)) / 0.
  const bool may_be_empty = visible.valid() || c.has_input(kMask);
  if (may_be_empty) top = select(apply(ScalarOp::kEq, top, excluded), top.constant(0), top);
  const LocalId weights = nest.local_row("weights", type, {total});
  j = nest.stage_loop("j", total);
  nest.store_local(weights, {j}, exponential(nest.load_local(scores, {j}) - top));
  nest.end_stage();
  j = nest.stage_loop("j", total);
  const Expr sum = nest.reduce(Combine::kSum, nest.load_local(weights, {j}));
  const Expr none = apply(ScalarOp::kEq, sum, sum.constant(0));
  auto normalized = [&](Expr x) {
    if (may_be_empty) return select(none, x.constant(0), x / sum);
    if (lower_bound(total) >= 1) return x / sum;
    // The product of no probabilities and no values.
    return select(apply(ScalarOp::kEq, nest.index(total), nest.index(0)), x.constant(0), x / sum);
  };
  if (c.has_output(3) && mode == 3) {
    j = nest.stage_loop("j", total);
    output_scores(3, j, normalized(nest.load_local(weights, {j})));
    nest.end_stage();
  }
  const LocalId result = nest.local_row("result", type, {o.v.width});
  j = nest.stage_loop("j", total);
  Dim e = nest.stage_loop("e", o.v.width);
  const Expr v = nest.load(values, value_heads.at(b, g, j, e));
  if (v.type() != type) plain = false;  // V has a type of its own
  info.value = v.id();
  info.batch = {single_symbol(b), single_symbol(g), single_symbol(r)};
  info.m = {single_symbol(i)};
  info.n = {single_symbol(j), single_symbol(e)};
  nest.store_local(result, {e}, nest.load_local(weights, {j}) * cast(v, type), Combine::kSum);
  nest.end_stage();
  e = nest.stage_loop("e", o.v.width);
  Heads out = o.q;
  out.width = o.v.width;
  nest.store(c.output(0), out.at(b, h, i, e), normalized(nest.load_local(result, {e})));
  info.causal = causal;
  info.causal_offset = o.past;
  info.softcap = softcap;
  info.masked_rows = may_be_empty ? MaskedRows::kZeroResult : MaskedRows::kNaN;
  if (plain && !c.has_output(3)) nest.nest().contraction = info;
  nest.finish();
  return {};
}

// --- RotaryEmbedding -----------------------------------------------------------------------------------------

Status infer_rotary(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const auto heads = heads_of(c.shape(0), c.node().int_or("num_heads", 0));
  if (!heads) return c.invalid("X must have rank 4, or rank 3 with num_heads that divides its last dimension");
  constrain_width(c, 0, *heads);
  for (size_t i = 1; i < 3; ++i) {
    OPTC_TRY(c.require_shape(i));
    if (c.rank(i) != (c.has_input(3) ? 2 : 3))
      return c.invalid("the caches have rank 2 with position_ids and rank 3 without");
  }
  const int64_t given = c.node().int_or("rotary_embedding_dim", 0);
  if (given < 0) return c.invalid("rotary_embedding_dim is negative");
  OPTC_TRY(at_most(c, given, heads->width, "rotary_embedding_dim"));
  for (size_t k = 0; k < c.shape(1).size(); ++k) {
    OPTC_ASSIGN([[maybe_unused]] Dim size, c.same(c.shape(2)[k], c.shape(1)[k], "a dimension of the two caches"));
  }
  const Dim rotated = given > 0 ? Dim(given) : heads->width;
  OPTC_ASSIGN([[maybe_unused]] Dim even,
              c.same(rotated, floor_div(rotated, 2) * Dim(2), "the rotated width and twice its half"));
  OPTC_ASSIGN([[maybe_unused]] Dim half, c.same(c.shape(1).back(), floor_div(rotated, 2),
                                                "the width of the caches and half of the rotated width"));
  const size_t places = c.has_input(3) ? 3 : 1;  // of the rows of the caches, or of what says them
  OPTC_TRY(c.require_shape(places));
  if (c.has_input(3) && c.rank(3) != 2) return c.invalid("position_ids must have rank 2");
  OPTC_TRY(broadcasts_to(c, c.shape(places)[0], heads->batch, "the batch of the positions"));
  OPTC_TRY(broadcasts_to(c, c.shape(places)[1], heads->length, "the length of the positions"));
  c.set(0, c.input(0));
  return {};
}
Status build_rotary(BuildContext &c) {
  const Heads x = *heads_of(c.shape(0), c.node().int_or("num_heads", 0));
  const int64_t given = c.node().int_or("rotary_embedding_dim", 0);
  const Dim rotated = given > 0 ? Dim(given) : x.width, half = floor_div(rotated, 2);
  const bool interleaved = c.node().int_or("interleaved", 0) != 0;
  NestBuilder nest(c, "rotary embedding");
  const Dim b = nest.outer("b", x.batch), h = nest.outer("h", x.heads), s = nest.outer("s", x.length);
  Dim d = nest.stage_loop("d", half);
  Index cache = {b, s, d};
  if (c.has_input(3)) {
    const Shape ids = c.shape(3);
    const Index at = broadcast_index({b, s}, ids, {x.batch, x.length});
    cache = {nest.as_index(nest.load(c.input(3), at), c.shape(1)[0]), d};
  } else {
    cache = broadcast_index(cache, c.shape(1), {x.batch, x.length, half});
  }
  const Dim first = interleaved ? d * Dim(2) : d, second = interleaved ? d * Dim(2) + Dim(1) : d + half;
  const Expr p = nest.load(c.input(0), x.at(b, h, s, first)), q = nest.load(c.input(0), x.at(b, h, s, second));
  const Expr cosine = nest.load(c.input(1), cache), sine = nest.load(c.input(2), cache);
  nest.store(c.output(0), x.at(b, h, s, first), p * cosine - q * sine);
  nest.store(c.output(0), x.at(b, h, s, second), p * sine + q * cosine);
  nest.end_stage();
  if (rotated != x.width) {
    d = nest.stage_loop("d", x.width - rotated);
    const Index at = x.at(b, h, s, d + rotated);
    nest.store(c.output(0), at, nest.load_raw(c.input(0), at));
  }
  nest.finish();
  return {};
}

const OpDef kOps[] = {
    {"Attention", OpForm::kContraction, 25, infer_attention, build_attention},
    {"RotaryEmbedding", OpForm::kPointwise, 23, infer_rotary, build_rotary},
};

}  // namespace

std::span<const OpDef> attention_ops() { return kOps; }

}  // namespace optc
