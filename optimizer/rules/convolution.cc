// conv.*, matmul.bn: what scales or shifts channels behind a convolution or a product goes into its weights.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "optimizer/rule.h"

namespace optc {
namespace {

bool f32(const Constant *c) { return c && c->type() == ElementType::kFloat32; }

// The output channel that each weight belongs to.
struct ChannelOf {
  int64_t channels = 0;
  int64_t inner = 1, per_group = 0, rows = 0;  // weight [rows * groups, per_group, inner] where per_group > 0
  int64_t operator()(int64_t i) const {
    if (per_group == 0) return i / inner % channels;
    return i / (per_group * inner) / rows * per_group + i / inner % per_group;
  }
};

ChannelOf channel_of(const Node &node, const Constant &w) {
  ChannelOf of;
  const std::vector<int64_t> dims = w.dims();
  if (node.op == "ConvTranspose") {  // [C, M/group, k...]
    const int64_t groups = node.int_or("group", 1);
    for (size_t d = 2; d < dims.size(); ++d) of.inner *= dims[d];
    of.per_group = dims[1];
    of.channels = dims[1] * groups;
    of.rows = std::max<int64_t>(1, dims[0] / groups);
  } else if (node.op == "Conv" || node.int_or("transB", 0) != 0) {  // [M, ...]
    of.channels = dims[0];
    of.inner = dims[0] ? w.count() / dims[0] : 1;
  } else {  // [K, M]
    of.channels = dims[1];
  }
  return of;
}

// Whether channels scaled by these numbers still compute what the scaled result is. A scale of 0 would hide that inf *
// 0 is NaN; weights that overflow, or all sink into denormals, lose what the unscaled product keeps; and where a scale
// makes them huge, partial sums overflow that cancel before they are scaled.
bool keeps_range(const Constant &w, const ChannelOf &of, const std::vector<double> &scale) {
  constexpr double kHuge = 1e18, kSmallest = 0x1p-126;
  std::vector<double> most(scale.size(), 0.0);  // the largest scaled weight of a channel
  for (int64_t i = 0; i < w.count(); ++i) {
    const double v = std::fabs(static_cast<double>(w.as<float>()[i]));
    if (!std::isfinite(v)) return false;
    const size_t channel = static_cast<size_t>(of(i));
    most[channel] = std::max(most[channel], v * std::fabs(scale[channel]));
  }
  for (size_t c = 0; c < scale.size(); ++c) {
    if (!std::isfinite(scale[c]) || scale[c] == 0) return false;
    if (most[c] != 0 && most[c] < kSmallest) return false;
    if (most[c] > kHuge && std::fabs(scale[c]) > 1) return false;
  }
  return true;
}

// Scale and shift per output channel into weight and bias of a Conv, ConvTranspose, Gemm or MatMul (which becomes a
// Gemm); double inside, rounded once. The bias, when there is one, has an element a channel, or one for all.
Result<bool> absorb(RuleContext &context, NodeId root, NodeId tail, std::string_view rule,
                    const std::vector<double> &scale, const std::vector<double> &shift) {
  const Graph &graph = context.graph();
  const Node node = graph.node(root);
  const Constant &w = *graph.constant(node.inputs[1]);
  const Constant *b = context.constant(node.input(2));
  const ChannelOf of = channel_of(node, w);
  const double beta = node.op == "Gemm" ? static_cast<double>(node.float_or("beta", 1.0f)) : 1.0;
  if (!keeps_range(w, of, scale)) {
    context.rewriter().missed(rule, tail, "scaled weights would leave the range of f32, or a scale is 0");
    return false;
  }
  std::vector<uint8_t> weight(w.size()), bias(static_cast<size_t>(of.channels) * 4);
  for (int64_t i = 0; i < w.count(); ++i) {
    const float v = static_cast<float>(static_cast<double>(w.as<float>()[i]) * scale[static_cast<size_t>(of(i))]);
    std::memcpy(weight.data() + 4 * i, &v, 4);
  }
  for (int64_t m = 0; m < of.channels; ++m) {
    const double old = b ? beta * static_cast<double>(b->as<float>()[b->count() == 1 ? 0 : m]) : 0.0;
    const float v = static_cast<float>(old * scale[static_cast<size_t>(m)] + shift[static_cast<size_t>(m)]);
    if (!std::isfinite(v)) {
      context.rewriter().missed(rule, tail, "the bias of a channel would not be finite");
      return false;
    }
    std::memcpy(bias.data() + 4 * m, &v, 4);
  }
  auto change = context.rewriter().begin(rule, RewriteKind::kFuse, tail);
  change.numerics(NumericsClass::kReassociating);
  const ValueId new_w = change.constant(graph.value(node.inputs[1]).name + ":scaled",
                                        Constant::owned(ElementType::kFloat32, w.dims(), std::move(weight)));
  const ValueId new_b = change.constant(graph.value(node.inputs[1]).name + ":bias",
                                        Constant::owned(ElementType::kFloat32, {of.channels}, std::move(bias)));
  const bool product = node.op == "MatMul";
  std::vector<std::pair<std::string, Attribute>> attributes = node.attributes;
  if (product) attributes = {{"alpha", 1.0f}, {"beta", 1.0f}, {"transA", int64_t{0}}, {"transB", int64_t{0}}};
  for (auto &[name, value] : attributes)
    if (name == "beta") value = 1.0f;
  const NodeId made = change.create(product ? "Gemm" : node.op, {node.inputs[0], new_w, new_b}, std::move(attributes));
  change.replace(context.output(tail), change.output(made));
  change.erase(tail);
  change.erase(root);
  OPTC_TRY(change.commit());
  return true;
}

bool convolves(const std::string &op) { return op == "Conv" || op == "ConvTranspose"; }
bool multiplies(const std::string &op) { return op == "Gemm" || op == "MatMul"; }

// The node behind `v` of a wanted operator, with constant f32 weights and a result that only `reader` uses.
NodeId foldable(RuleContext &context, ValueId v, NodeId reader, std::string_view rule,
                bool (*wanted)(const std::string &)) {
  const NodeId root = context.producer(v);
  if (!root.valid() || !wanted(context.node(root).op)) return {};
  const Node &node = context.node(root);
  const Constant *w = context.constant(node.input(1)), *b = context.constant(node.input(2));
  if (!f32(w) || (node.input(2).valid() && !f32(b))) return {};
  if (multiplies(node.op)) {
    // Gemm may add a whole matrix; only a row of it belongs to channels.
    if (w->dims().size() != 2 || !context.type(v).has_shape() || context.type(v).rank() != 2) return {};
    if (b && b->count() != 1 && b->count() != channel_of(node, *w).channels) return {};
    if (b && b->count() != 1 && b->dims().back() != b->count()) return {};
  }
  if (!context.single_use(v)) {
    context.rewriter().missed(rule, reader, "the " + node.op + "'s result is used elsewhere too");
    return {};
  }
  return root;
}

Result<bool> batch_norm(RuleContext &context, NodeId n, std::string_view rule, bool (*wanted)(const std::string &)) {
  const Node &bn = context.node(n);
  if (bn.int_or("training_mode", 0) != 0) return false;
  for (size_t i = 1; i < bn.outputs.size(); ++i)
    if (bn.outputs[i].valid()) return false;
  const NodeId conv = foldable(context, context.input(n, 0), n, rule, wanted);
  if (!conv.valid()) return false;
  const int64_t channels = channel_of(context.node(conv), *context.constant(context.input(conv, 1))).channels;
  const Constant *p[4];
  for (size_t i = 0; i < 4; ++i)
    if (!f32(p[i] = context.constant(context.input(n, i + 1))) || p[i]->count() != channels) return false;
  const double epsilon = static_cast<double>(bn.float_or("epsilon", 1e-5f));
  std::vector<double> scale, shift;
  for (int64_t c = 0; c < p[0]->count(); ++c) {
    const double s =
        static_cast<double>(p[0]->as<float>()[c]) / std::sqrt(static_cast<double>(p[3]->as<float>()[c]) + epsilon);
    scale.push_back(s);
    shift.push_back(static_cast<double>(p[1]->as<float>()[c]) - static_cast<double>(p[2]->as<float>()[c]) * s);
    if (!std::isfinite(s) || !std::isfinite(shift.back())) {
      context.rewriter().missed(rule, n, "the scale of a channel is not finite");
      return false;
    }
  }
  return absorb(context, conv, n, rule, scale, shift);
}
Result<bool> conv_batch_norm(RuleContext &context, NodeId n) { return batch_norm(context, n, "conv.bn", convolves); }
Result<bool> matmul_batch_norm(RuleContext &context, NodeId n) {
  return batch_norm(context, n, "matmul.bn", multiplies);
}

// A constant per channel: shape [M, 1...] or [1, M, 1...] under a result of rank r, or one element.
std::optional<std::vector<double>> per_channel(const Constant *c, size_t rank, int64_t channels) {
  if (!f32(c)) return std::nullopt;
  std::vector<double> values;
  if (c->count() == 1 && c->rank() <= static_cast<int>(rank)) {
    values.assign(static_cast<size_t>(channels), static_cast<double>(c->as<float>()[0]));
    return values;
  }
  const size_t r = c->dims().size();
  if (c->count() != channels || r > rank || r + 1 < rank) return std::nullopt;
  const size_t axis = r == rank ? 1 : 0;
  if (c->dims()[axis] != channels) return std::nullopt;
  for (int64_t i = 0; i < channels; ++i) values.push_back(static_cast<double>(c->as<float>()[i]));
  return values;
}

Result<bool> channel_affine(RuleContext &context, NodeId n) {
  const std::string op = context.node(n).op;
  const bool commutes = op == "Mul" || op == "Add";
  for (size_t side = 0; side < (commutes ? 2u : 1u); ++side) {
    const ValueId x = context.input(n, side);
    const Constant *c = context.constant(context.input(n, 1 - side));
    if (!c || !context.producer(x).valid() || !convolves(context.node(context.producer(x)).op)) continue;
    if (!(context.type(x) == context.type(context.output(n)))) continue;  // the constant would broadcast the result
    const NodeId conv = foldable(context, x, n, "conv.affine", convolves);
    if (!conv.valid()) continue;
    const int64_t channels = channel_of(context.node(conv), *context.constant(context.input(conv, 1))).channels;
    const auto values = per_channel(c, context.shape(x).size(), channels);
    if (!values) continue;
    std::vector<double> scale(static_cast<size_t>(channels), 1.0), shift(static_cast<size_t>(channels), 0.0);
    for (size_t i = 0; i < scale.size(); ++i) {
      const double v = (*values)[i];
      if (!std::isfinite(v) || (op == "Div" && v == 0)) return false;
      if (op == "Mul") scale[i] = v;
      if (op == "Div") scale[i] = 1.0 / v;
      if (op == "Add") shift[i] = v;
      if (op == "Sub") shift[i] = -v;
    }
    return absorb(context, conv, n, "conv.affine", scale, shift);
  }
  return false;
}

// [K, N] with each column times the constant's number for it, or over it; rounded once.
Constant scaled_columns(const Constant &w, const Constant &factor, bool over) {
  return Constant::made(
      w.type(), w.dims(), over ? "columns_over" : "columns_times", {w, factor}, [=](const Constant::Sink &sink) {
        const Constant plain = w.plain();
        const auto columns = static_cast<size_t>(w.dims()[1]);
        std::vector<float> row(columns);
        for (const float *from = plain.as<float>(), *end = from + plain.count(); from != end; from += columns) {
          for (size_t j = 0; j < columns; ++j) {
            const double f = static_cast<double>(factor.as<float>()[factor.count() == 1 ? 0 : j]);
            row[j] = static_cast<float>(over ? static_cast<double>(from[j]) / f : static_cast<double>(from[j]) * f);
          }
          if (!sink(row.data(), 4 * columns)) return false;
        }
        return true;
      });
}

// A constant f32 operand that has an element for each of the last `columns` places, or one for all.
const Constant *per_column(RuleContext &context, ValueId v, size_t rank, int64_t columns) {
  const Constant *c = context.constant(v);
  if (!f32(c) || c->dims().size() > rank || (c->count() != 1 && c->count() != columns)) return nullptr;
  return c->count() == 1 || c->dims().back() == columns ? c : nullptr;
}

// MatMul(x, w) times or over a constant per column, with or without a bias between them. Only what is written as a
// model gains by it: a kernel of a bundle scales what it stores, and its weights stay where they lie in the model.
Result<bool> column_scale(RuleContext &context, NodeId n) {
  constexpr std::string_view kRule = "matmul.scale";
  if (!context.options().operators.has) return false;
  const bool over = context.node(n).op == "Div";
  for (size_t side = 0; side < (over ? 1u : 2u); ++side) {
    const ValueId x = context.input(n, side);
    NodeId product = context.producer(x, "MatMul"), sum = context.producer(x, "Add");
    ValueId added;
    for (size_t k = 0; sum.valid() && k < 2 && !product.valid(); ++k) {
      product = context.producer(context.input(sum, k), "MatMul");
      added = context.input(sum, 1 - k);
    }
    if (!product.valid() || !context.single_use(x) || !context.single_use(context.output(product))) continue;
    const ValueId weights = context.input(product, 1);
    const Constant *w = context.constant(weights);
    if (!f32(w) || w->dims().size() != 2 || w->count() == 0 || !context.type(x).has_shape()) continue;
    const size_t rank = context.shape(x).size();
    if (!(context.type(x) == context.type(context.output(n))) ||
        !(context.type(x) == context.type(context.output(product))))
      continue;
    const int64_t columns = w->dims()[1];
    const Constant *factor = per_column(context, context.input(n, 1 - side), rank, columns);
    const Constant *bias = sum.valid() ? per_column(context, added, rank, columns) : nullptr;
    if (!factor || (sum.valid() && !bias)) continue;
    if (context.graph().value(weights).uses.size() != 1) {
      context.rewriter().missed(kRule, n, "the weights are used elsewhere too");
      return false;
    }
    const auto size = static_cast<size_t>(columns);
    std::vector<double> scale(size);
    std::vector<float> shifted(bias ? size : 0);
    for (size_t j = 0; j < size; ++j) {
      const double f = static_cast<double>(factor->as<float>()[factor->count() == 1 ? 0 : j]);
      scale[j] = over ? 1.0 / f : f;
      if (!bias) continue;
      const double b = static_cast<double>(bias->as<float>()[bias->count() == 1 ? 0 : j]);
      shifted[j] = static_cast<float>(over ? b / f : b * f);
    }
    const bool finite = std::all_of(shifted.begin(), shifted.end(), [](float v) { return std::isfinite(v); });
    if (!finite || !keeps_range(*w, channel_of(context.node(product), *w), scale)) {
      context.rewriter().missed(kRule, n, "scaled weights would leave the range of f32, or a scale is 0");
      return false;
    }
    auto change = context.rewriter().begin(kRule, RewriteKind::kFuse, n);
    change.numerics(NumericsClass::kReassociating);
    const std::string name = context.graph().value(weights).name;
    const ValueId scaled = change.constant(name + ":scaled", scaled_columns(*w, *factor, over));
    NodeId made = change.create("MatMul", {context.input(product, 0), scaled});
    if (bias)
      made = change.create("Add", {change.output(made), change.constant(name + ":bias", Constant::floats(shifted))});
    change.replace(context.output(n), change.output(made));
    change.erase(n);
    if (bias) change.erase(sum);
    change.erase(product);
    OPTC_TRY(change.commit());
    return true;
  }
  return false;
}

// The padding of a Pad in the dims of space, begin and end, as a Conv would have it; nullopt: it is no such padding.
std::optional<std::vector<int64_t>> zero_padding(RuleContext &context, NodeId pad, int64_t rank) {
  const Node &node = context.node(pad);
  const auto *mode = node.attribute("mode") ? std::get_if<std::string>(node.attribute("mode")) : nullptr;
  const Constant *pads = context.constant(context.input(pad, 1)), *axes = context.constant(context.input(pad, 3));
  const auto value = context.scalar(context.input(pad, 2));
  if ((mode && *mode != "constant") || !pads || (context.input(pad, 3).valid() && !axes)) return std::nullopt;
  if (context.input(pad, 2).valid() && (!value || *value != 0 || std::signbit(*value))) return std::nullopt;
  const int64_t count = axes ? axes->count() : rank;
  if (pads->count() != 2 * count) return std::nullopt;
  std::vector<int64_t> all(static_cast<size_t>(2 * (rank - 2)), 0);
  for (int64_t i = 0; i < 2 * count; ++i) {
    int64_t axis = axes ? axes->as_int64(i % count) : i % count;
    if (axis < 0) axis += rank;
    const int64_t amount = pads->as_int64(i);
    if (amount < 0 || amount > INT32_MAX || axis < 0 || axis >= rank || (axis < 2 && amount != 0)) return std::nullopt;
    if (axis >= 2) all[static_cast<size_t>(axis - 2 + (i < count ? 0 : rank - 2))] += amount;
  }
  return all;
}

// Conv(Pad(x)) -> Conv with that padding
Result<bool> padding(RuleContext &context, NodeId n) {
  const NodeId pad = context.producer(context.input(n, 0), "Pad");
  if (!pad.valid() || !context.type(context.input(n, 0)).has_shape()) return false;
  const Node &node = context.node(n);
  const int64_t rank = static_cast<int64_t>(context.shape(context.input(n, 0)).size());
  const auto *how = node.attribute("auto_pad") ? std::get_if<std::string>(node.attribute("auto_pad")) : nullptr;
  if (rank < 3 || (how && *how != "NOTSET" && *how != "VALID")) return false;
  auto pads = zero_padding(context, pad, rank);
  if (!pads) return false;
  if (!context.single_use(context.output(pad))) {
    context.rewriter().missed("conv.pad", n, "the padded tensor is used elsewhere too");
    return false;
  }
  // 0 times an infinite weight is NaN, and padding of the Conv's own is not multiplied.
  const Constant *w = context.constant(node.input(1));
  if (!w || !is_float(w->type())) return false;
  for (int64_t i = 0; i < w->count(); ++i)
    if (!std::isfinite(w->as_double(i))) return false;
  if (const auto *own = node.ints("pads"); own && (!how || *how == "NOTSET"))
    for (size_t i = 0; i < own->size() && i < pads->size(); ++i) (*pads)[i] += (*own)[i];
  std::vector<std::pair<std::string, Attribute>> attributes = node.attributes;
  bool written = false;
  for (auto &[name, value] : attributes) {
    if (name == "auto_pad") value = std::string("NOTSET");
    if (name == "pads") {
      value = *pads;
      written = true;
    }
  }
  if (!written) attributes.emplace_back("pads", *pads);
  std::vector<ValueId> inputs = node.inputs;
  inputs[0] = context.input(pad, 0);
  auto change = context.rewriter().begin("conv.pad", RewriteKind::kFuse, n);
  const NodeId made = change.create("Conv", std::move(inputs), std::move(attributes));
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  change.erase(pad);
  OPTC_TRY(change.commit());
  return true;
}

constexpr Rule kRules[] = {
    {"conv.pad", NumericsClass::kExact, "Conv", "Conv(Pad(x)) -> Conv with that padding",
     "constant padding with +0 in the dims of space, none of it negative; constant finite weights; auto_pad NOTSET or "
     "VALID; the padded tensor used once",
     padding},
    {"conv.bn", NumericsClass::kReassociating, "BatchNormalization",
     "BatchNormalization(Conv(x)) -> Conv with scaled weights and bias; ConvTranspose likewise",
     "inference form, constant f32 weights and statistics, every channel's scale finite, the Conv's result used once",
     conv_batch_norm},
    {"conv.affine", NumericsClass::kReassociating, "Mul Add Div Sub",
     "Conv(x) or ConvTranspose(x) times, over, plus or minus a constant per channel -> the same with other weights and "
     "bias",
     "constant f32 weights, the constant is per output channel or one number and broadcasts nothing, the Conv's result "
     "used "
     "once",
     channel_affine},
    {"matmul.bn", NumericsClass::kReassociating, "BatchNormalization",
     "BatchNormalization(Gemm(x) or MatMul(x, w)) -> Gemm with scaled weights and bias",
     "rank 2, inference form, constant f32 weights, bias and statistics, the bias per column, every column's scale "
     "finite, "
     "the product used once",
     matmul_batch_norm},
    {"matmul.scale", NumericsClass::kReassociating, "Mul Div",
     "MatMul(x, w), or MatMul(x, w) + b, times or over a constant -> the same with other w and b",
     "the result is to be a model, w a constant [K, N] of f32 that nothing else reads, b and the factor one number or "
     "one a column, every column's scale finite, product and sum used once",
     column_scale},
};

}  // namespace

std::span<const Rule> convolution_rules() { return kRules; }

}  // namespace optc
