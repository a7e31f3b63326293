// com.microsoft: what is left of small operators, most of them standard ones before ONNX had them.

#include <tuple>

#include "ops/body.h"

namespace optc {
namespace {

template <const char *op>
Status same_operator(Body &b) {
  b.give(0, b.op(op, b.node().inputs, b.node().attributes));
  return {};
}
constexpr char kTrilu[] = "Trilu", kIdentity[] = "Identity";

Status gather_nd(Body &b) {
  b.give(0, b.op("GatherND", {b.in(0), b.cast(b.in(1), ElementType::kInt64)}));
  return {};
}

// The names of ONNX's modes changed.
Status grid_sample(Body &b) {
  const std::string_view mode = b.s("mode", "bilinear");
  if (mode != "bilinear" && mode != "nearest" && mode != "bicubic")
    return b.unsupported("mode '" + std::string(mode) + "'");
  // ONNX Runtime brings the position into the image, ONNX each of the pixels around it.
  if (mode == "bicubic" && b.s("padding_mode", "zeros") == "border")
    return b.unsupported("mode 'bicubic' with padding_mode 'border' of com.microsoft.GridSample");
  Body::Attributes attributes = b.pass({"align_corners", "padding_mode"});
  attributes.emplace_back("mode", std::string(mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode));
  b.give(0, b.op("GridSample", {b.in(0), b.in(1)}, std::move(attributes)));
  return {};
}

// pads may be [1, 2 * rank], the value a vector of one element.
Status pad(Body &b) {
  std::vector<ValueId> inputs{b.in(0), b.reshape(b.in(1), {-1})};
  if (b.has(2)) inputs.push_back(b.op("Reshape", {b.in(2), b.ints({})}));
  b.give(0, b.op("Pad", std::move(inputs), b.pass({"mode"})));
  return {};
}

Status expand_dims(Body &b) {
  b.give(0, b.op("Unsqueeze", {b.in(0), b.reshape(b.cast(b.in(1), ElementType::kInt64), {1})}));
  return {};
}

// Without a step it is 1; the bounds may be vectors of one element.
Status range(Body &b) {
  const auto scalar = [&](ValueId v) { return b.rank(v) == 0 ? v : b.op("Reshape", {v, b.ints({})}); };
  const ValueId step = b.has(2) ? scalar(b.in(2)) : b.like(b.in(0), 1);
  b.give(0, b.op("Range", {scalar(b.in(0)), scalar(b.in(1)), step}));
  return {};
}

// In the order in which the values come first, with the place of each element's value among them.
Status unique(Body &b) {
  const std::vector<ValueId> made = b.ops("Unique", {b.in(0)}, 4, {{"sorted", int64_t{0}}});
  b.give(0, made[0]);
  if (b.wants(1)) b.give(1, made[2]);
  if (b.wants(2)) b.give(2, made[3]);
  return {};
}

Status is_all_finite(Body &b) {
  const bool nan_only = b.i("isnan_only", 0) != 0, inf_only = b.i("isinf_only", 0) != 0;
  if (nan_only && inf_only) return b.invalid("isnan_only and isinf_only exclude each other");
  ValueId bad;
  for (size_t i = 0; i < b.input_count(); ++i) {
    if (!b.has(i)) continue;
    const ValueId x =
        b.cast(b.in(i), b.element(b.in(i)) == ElementType::kFloat64 ? ElementType::kFloat64 : ElementType::kFloat32);
    ValueId found;
    if (!inf_only) found = b.op("IsNaN", {x});
    if (!nan_only) {
      const ValueId infinite = b.op("IsInf", {x});
      found = found.valid() ? b.op("Or", {found, infinite}) : infinite;
    }
    const ValueId any = b.op("ReduceSum", {b.cast(found, ElementType::kInt32)}, {{"keepdims", int64_t{0}}});
    bad = bad.valid() ? b.op("Max", {bad, any}) : any;
  }
  b.give(0, b.op("Equal", {bad, b.like(bad, 0)}));
  return {};
}

// Complex numbers as pairs in the last axis: a * b, or a * conj(b).
template <bool conjugate>
Status complex_mul(Body &b) {
  for (size_t i : {0, 1}) OPTC_TRY(b.need_rank(i));
  ValueId parts[2][2];
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<ValueId> made =
        b.ops("Split", {b.in(i)}, 2, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}});
    parts[i][0] = made[0];
    parts[i][1] = made[1];
  }
  if (conjugate) parts[1][1] = b.op("Neg", {parts[1][1]});
  const ValueId real = b.sub(b.mul(parts[0][0], parts[1][0]), b.mul(parts[0][1], parts[1][1]));
  const ValueId imaginary = b.add(b.mul(parts[0][0], parts[1][1]), b.mul(parts[0][1], parts[1][0]));
  b.give(0, b.concat({real, imaginary}, -1));
  return {};
}

// Squared or plain Euclidean distances of all pairs of rows.
Status cdist(Body &b) {
  for (size_t i : {0, 1}) OPTC_TRY(b.need_rank(i, {2}));
  const std::string_view metric = b.s("metric", "sqeuclidean");
  if (metric != "sqeuclidean" && metric != "euclidean") return b.unsupported("metric '" + std::string(metric) + "'");
  const ValueId apart = b.sub(b.unsqueeze(b.in(0), {1}), b.unsqueeze(b.in(1), {0}));
  const ValueId squares = b.op("ReduceSum", {b.mul(apart, apart), b.ints({2})}, {{"keepdims", int64_t{0}}});
  b.give(0, metric == "euclidean" ? b.op("Sqrt", {squares}) : squares);
  return {};
}

// Rows of a table; what the other inputs say concerns training.
Status torch_embedding(Body &b) {
  b.give(0, b.op("Gather", {b.in(0), b.in(1)}, {{"axis", int64_t{0}}}));
  return {};
}

// All windows of `size` along a dimension, each `step` behind the one before; the window becomes the last dimension.
Status unfold_tensor(Body &b) {
  OPTC_TRY(b.need_rank(0));
  const int64_t rank = b.rank(b.in(0)), size = b.i("size", 0), step = b.i("step", 1);
  int64_t axis = b.i("dim", -1);
  axis += axis < 0 ? rank : 0;
  if (axis < 0 || axis >= rank) return b.invalid("attribute 'dim' is out of range for " + to_string(b.type(b.in(0))));
  if (size < 1 || step < 1) return b.invalid("attributes 'size' and 'step' must be positive");
  const ValueId count = b.add(b.div(b.sub(b.dim(b.in(0), axis), b.ints({size})), b.ints({step})), b.ints({1}));
  const ValueId begins = b.mul(b.iota(count, ElementType::kInt64), b.ints({step}));
  const ValueId at = b.add(b.unsqueeze(begins, {1}), b.iota(b.ints({size}), ElementType::kInt64));
  ValueId y = b.op("Gather", {b.in(0), at}, {{"axis", axis}});  // [..., count, size, ...]
  std::vector<int64_t> perm;
  for (int64_t k = 0; k <= rank; ++k)
    if (k != axis + 1) perm.push_back(k);
  perm.push_back(axis + 1);
  b.give(0, axis == rank - 1 ? y : b.transpose(y, std::move(perm)));
  return {};
}

// The transform of real numbers over the last axis: half of the spectrum, as pairs.
Status rfft(Body &b) {
  OPTC_TRY(b.need_rank(0));
  if (b.i("signal_ndim", 1) != 1 || b.i("normalized", 0) != 0 || b.i("onesided", 1) != 1)
    return b.unsupported("Rfft with other attributes than signal_ndim = 1, normalized = 0, onesided = 1");
  const ValueId axis = b.value(Constant::scalar_int64(b.rank(b.in(0)) - 1));
  b.give(0, b.op("DFT", {b.unsqueeze(b.in(0), {-1}), ValueId(), axis}, {{"onesided", int64_t{1}}}));
  return {};
}

// Where CropAndResize samples one axis of an image of `size` (int64[1]): [rois, count] of positions.
ValueId crop_positions(Body &b, ValueId begin, ValueId end, ValueId size, ValueId count) {
  const ElementType type = b.element(begin);
  const ValueId one = b.ints({1}), last = b.cast(b.sub(size, one), type), gaps = b.sub(count, one);
  const ValueId apart = b.div(b.mul(b.sub(end, begin), last), b.cast(b.op("Max", {gaps, one}), type));
  const ValueId spread = b.add(b.mul(begin, last), b.mul(b.iota(count, type), apart));
  const ValueId middle = b.mul(b.mul(b.add(begin, end), b.number(type, 0.5)), last);
  return b.op("Where", {b.op("Greater", {gaps, b.ints({0})}), spread, middle});
}

// Crops of images, their corners at the corners of the boxes; positions outside of the image give a number.
Status crop_and_resize(Body &b) {
  OPTC_TRY(b.need_rank(0, {4}));
  OPTC_TRY(b.need_rank(1, {2}));
  const std::string_view mode = b.s("mode", "bilinear");
  if (mode != "bilinear" && mode != "nearest") return b.unsupported("mode '" + std::string(mode) + "'");
  const ValueId x = b.in(0), crop = b.cast(b.in(3), ElementType::kInt64);
  const ElementType type = b.element(x);
  std::vector<ValueId> corners;  // y1, x1, y2, x2: [rois, 1]
  for (int64_t k = 0; k < 4; ++k) corners.push_back(b.reshape(b.slice(b.in(1), 1, k, k + 1), {0, 1}));
  ValueId at[2], inside, size[2];
  for (int64_t k = 0; k < 2; ++k) {
    const size_t i = static_cast<size_t>(k);
    size[i] = b.dim(x, 2 + k);
    at[i] = crop_positions(b, corners[i], corners[i + 2], size[i], b.slice(crop, 0, k, k + 1));
    at[i] = b.unsqueeze(at[i], {k == 0 ? 2 : 1});  // [rois, height, 1] and [rois, 1, width]
    const ValueId last = b.cast(b.sub(size[i], b.ints({1})), type);
    const ValueId here =
        b.op("And", {b.op("GreaterOrEqual", {at[i], b.number(type, 0)}), b.op("LessOrEqual", {at[i], last})});
    inside = inside.valid() ? b.op("And", {inside, here}) : here;
  }
  const ValueId image = b.unsqueeze(b.cast(b.in(2), ElementType::kInt64), {1, 2}), pixels = b.channels_last(x);
  const ValueId grid = b.concat({b.dim(b.in(1), 0), crop}, 0);
  // The pixels at whole positions: [rois, height, width, channels].
  const auto pixel = [&](ValueId y, ValueId x_at) {
    std::vector<ValueId> index;
    for (ValueId v : {image, y, x_at}) index.push_back(b.unsqueeze(b.op("Expand", {v, grid}), {3}));
    return b.op("GatherND", {pixels, b.concat(std::move(index), 3)});
  };
  const auto whole = [&](const char *op, size_t i) {
    const ValueId v = b.cast(b.op(op, {at[i]}), ElementType::kInt64);
    return b.op("Min", {b.op("Max", {v, b.ints({0})}), b.sub(size[i], b.ints({1}))});
  };
  ValueId y;
  if (mode == "nearest") {
    y = pixel(whole("Round", 0), whole("Round", 1));
  } else {
    const ValueId top = whole("Floor", 0), bottom = whole("Ceil", 0), left = whole("Floor", 1),
                  right = whole("Ceil", 1);
    const auto mix = [&](ValueId p, ValueId q, size_t i) {
      const ValueId share = b.unsqueeze(b.sub(at[i], b.op("Floor", {at[i]})), {3});
      return b.add(p, b.mul(b.sub(q, p), share));
    };
    y = mix(mix(pixel(top, left), pixel(top, right), 1), mix(pixel(bottom, left), pixel(bottom, right), 1), 0);
  }
  const ValueId outside = b.number(type, static_cast<double>(b.f("extrapolation_value", 0)));
  b.give(0, b.channels_first(b.op("Where", {b.unsqueeze(inside, {3}), y, outside})));
  return {};
}

// The result without pads, of which they are cut off.
Status conv_transpose_with_dynamic_pads(Body &b) {
  OPTC_TRY(b.need_rank(0));
  const int64_t spatial = b.rank(b.in(0)) - 2;
  if (spatial < 1) return b.invalid(b.input_name(0) + " must have rank 3 or more");
  if (b.s("auto_pad", "NOTSET") != "NOTSET")
    return b.unsupported("attribute 'auto_pad' of ConvTransposeWithDynamicPads");
  std::vector<ValueId> inputs{b.in(0), b.in(1)};
  if (b.has(3)) inputs.push_back(b.in(3));
  ValueId y = b.op("ConvTranspose", std::move(inputs),
                   b.pass({"dilations", "group", "kernel_shape", "output_padding", "strides"}));
  if (b.has(2)) {
    std::vector<int64_t> axes;
    for (int64_t k = 0; k < spatial; ++k) axes.push_back(2 + k);
    const ValueId size = b.op("Shape", {y}, {{"start", int64_t{2}}});
    const ValueId pads = b.reshape(b.in(2), {2, spatial});
    const auto side = [&](int64_t k) { return b.squeeze(b.slice(pads, 0, k, k + 1), {0}); };
    y = b.op("Slice", {y, side(0), b.sub(size, side(1)), b.ints(std::move(axes))});
  }
  b.give(0, y);
  return {};
}

// Words as rows of characters: the convolution of a word's characters, of which each filter gives its greatest value.
// A word ends with the last character that is positive, is as long as the window at least, and is 0 when it begins with
// none. A character that the table lacks is 0.
Status word_conv_embedding(Body &b) {
  const ValueId words = b.cast(b.in(0), ElementType::kInt64), filters = b.in(1), table = b.in(3);
  OPTC_TRY(b.need_rank(0, {2}));
  OPTC_TRY(b.need_rank(1, {4}));
  OPTC_TRY(b.need_rank(2, {1}));
  OPTC_TRY(b.need_rank(3, {2}));
  for (const auto &[name, v, axis] : {std::tuple{"embedding_size", filters, 0},
                                      {"conv_window_size", filters, 2},
                                      {"char_embedding_size", table, 1}}) {
    const int64_t said = b.i(name, -1), is = b.fixed(v, axis).value_or(said);
    if (said != -1 && said != is)
      return b.invalid("attribute '" + std::string(name) + "' is " + std::to_string(said) + ", but the operand has " +
                       std::to_string(is));
  }
  const ValueId zero = b.ints({0}), window = b.dim(filters, 2), known = b.dim(table, 0), length = b.dim(words, 1);
  const ValueId positive = b.op("Greater", {words, zero});
  const ValueId letters =
      b.op("ReduceSum", {b.cast(positive, ElementType::kInt64), b.ints({1})}, {{"keepdims", int64_t{1}}});
  const ValueId there = b.op("And", {b.op("GreaterOrEqual", {words, zero}), b.op("Less", {words, known})});
  const ValueId rows = b.op("Gather", {table, b.op("Where", {there, words, zero})});  // [words, length, channels]
  const ValueId characters = b.op("Where", {b.unsqueeze(there, {2}), rows, b.like(table, 0)});
  const ValueId sums = b.squeeze(b.op("Conv", {b.unsqueeze(characters, {1}), filters, b.in(2)}), {3});
  const ValueId places = b.add(b.sub(length, window), b.ints({1}));
  const ValueId inside =
      b.op("LessOrEqual", {b.iota(places, ElementType::kInt64), b.op("Max", {b.sub(letters, window), zero})});
  const ValueId kept = b.op("Where", {b.unsqueeze(inside, {1}), b.op("Tanh", {sums}), b.like(sums, -1)});
  const ValueId best = b.op("ReduceMax", {kept, b.ints({2})}, {{"keepdims", int64_t{0}}});
  b.give(0, b.op("Where", {b.slice(positive, 1, 0, 1), best, b.like(best, 0)}));
  return {};
}

constexpr OpDef kOps[] = {
    body_row("com.microsoft.CDist", {"A B", "C", "metric:s"}, cdist),
    body_row("com.microsoft.ComplexMul", {"A B", "C", ""}, complex_mul<false>),
    body_row("com.microsoft.ComplexMulConj", {"A B", "C", ""}, complex_mul<true>),
    body_row("com.microsoft.ConvTransposeWithDynamicPads",
             {"X W Pads? B?", "Y", "auto_pad:s dilations:is group:i kernel_shape:is output_padding:is strides:is"},
             conv_transpose_with_dynamic_pads),
    body_row("com.microsoft.CropAndResize", {"X rois batch_indices crop_size", "Y", "extrapolation_value:f mode:s"},
             crop_and_resize),
    body_row("com.microsoft.ExpandDims", {"X axis", "Y", ""}, expand_dims),
    body_row("com.microsoft.GatherND", {"data indices", "output", ""}, gather_nd),
    body_row("com.microsoft.GridSample", {"X Grid", "Y", "align_corners:b mode:s padding_mode:s"}, grid_sample),
    body_row("com.microsoft.IsAllFinite", {"input*", "output", "isinf_only:b isnan_only:b"}, is_all_finite),
    body_row("com.microsoft.Pad", {"data pads value?", "output", "mode:s"}, pad),
    body_row("com.microsoft.Range", {"start limit delta?", "Y", ""}, range),
    body_row("com.microsoft.Rfft", {"X", "Y", "normalized:b onesided:b signal_ndim:i"}, rfft),
    body_row("com.microsoft.SampleOp", {"X", "Y", ""}, same_operator<kIdentity>),
    body_row("com.microsoft.TorchEmbedding", {"weight indices padding_idx? scale_grad_by_freq?", "Y", ""},
             torch_embedding),
    body_row("com.microsoft.Trilu", {"X k?", "Y", "upper:b"}, same_operator<kTrilu>),
    body_row("com.microsoft.UnfoldTensor", {"input", "output", "dim:i size:i! step:i"}, unfold_tensor),
    body_row("com.microsoft.Unique", {"x", "y idx? counts?", ""}, unique),
    body_row("com.microsoft.WordConvEmbedding",
             {"Sequence W B C", "Y", "char_embedding_size:i conv_window_size:i embedding_size:i"}, word_conv_embedding),
};

}  // namespace

std::span<const OpDef> contrib_misc_ops() { return kOps; }

}  // namespace optc
