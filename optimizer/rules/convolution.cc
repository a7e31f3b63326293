// conv.*: what scales or shifts channels behind a convolution goes into its weights.
#include <cmath>
#include <cstring>

#include "optimizer/rule.h"

namespace optc {
namespace {

bool f32(const Constant *c) { return c && c->type() == ElementType::kFloat32; }

// Scale and shift per output channel into weight [M, C/g, k...] and bias [M]; double inside, rounded once.
Result<bool> absorb(RuleContext &context, NodeId conv, NodeId tail, std::string_view rule, const std::vector<double> &scale,
                    const std::vector<double> &shift) {
  const Graph &graph = context.graph();
  const Node node = graph.node(conv);
  const Constant &w = *graph.constant(node.inputs[1]);
  const Constant *b = node.input(2).valid() ? graph.constant(node.inputs[2]) : nullptr;
  const int64_t channels = w.dims()[0], each = channels ? w.count() / channels : 0;
  std::vector<uint8_t> weight(w.size()), bias(static_cast<size_t>(channels) * 4);
  for (int64_t m = 0; m < channels; ++m) {
    for (int64_t i = 0; i < each; ++i) {
      const float v = static_cast<float>(static_cast<double>(w.as<float>()[m * each + i]) * scale[static_cast<size_t>(m)]);
      std::memcpy(weight.data() + 4 * (m * each + i), &v, 4);
    }
    const double old = b ? static_cast<double>(b->as<float>()[m]) : 0.0;
    const float v = static_cast<float>(old * scale[static_cast<size_t>(m)] + shift[static_cast<size_t>(m)]);
    std::memcpy(bias.data() + 4 * m, &v, 4);
  }
  auto change = context.rewriter().begin(rule, RewriteKind::kFuse, tail);
  change.numerics(NumericsClass::kReassociating);
  const ValueId new_w = change.constant(graph.value(node.inputs[1]).name + ":scaled",
                                        Constant::owned(ElementType::kFloat32, w.dims(), std::move(weight)));
  const ValueId new_b = change.constant(graph.value(node.inputs[1]).name + ":bias",
                                        Constant::owned(ElementType::kFloat32, {channels}, std::move(bias)));
  const NodeId made = change.create("Conv", {node.inputs[0], new_w, new_b}, node.attributes);
  change.replace(context.output(tail), change.output(made));
  change.erase(tail);
  change.erase(conv);
  OPTC_TRY(change.commit());
  return true;
}

// The Conv behind `v` with constant f32 weights and a result that only `reader` uses.
NodeId foldable_conv(RuleContext &context, ValueId v, NodeId reader, std::string_view rule) {
  const NodeId conv = context.producer(v, "Conv");
  if (!conv.valid()) return {};
  const Node &node = context.node(conv);
  if (!f32(context.constant(node.input(1))) || (node.input(2).valid() && !f32(context.constant(node.input(2))))) return {};
  if (!context.single_use(v)) {
    context.rewriter().missed(rule, reader, "the convolution's result is used elsewhere too");
    return {};
  }
  return conv;
}

Result<bool> batch_norm(RuleContext &context, NodeId n) {
  const Node &bn = context.node(n);
  if (bn.int_or("training_mode", 0) != 0) return false;
  for (size_t i = 1; i < bn.outputs.size(); ++i)
    if (bn.outputs[i].valid()) return false;
  const NodeId conv = foldable_conv(context, context.input(n, 0), n, "conv.bn");
  if (!conv.valid()) return false;
  const Constant *p[4];
  for (size_t i = 0; i < 4; ++i)
    if (!f32(p[i] = context.constant(context.input(n, i + 1)))) return false;
  const double epsilon = static_cast<double>(bn.float_or("epsilon", 1e-5f));
  std::vector<double> scale, shift;
  for (int64_t c = 0; c < p[0]->count(); ++c) {
    const double s = static_cast<double>(p[0]->as<float>()[c]) / std::sqrt(static_cast<double>(p[3]->as<float>()[c]) + epsilon);
    scale.push_back(s);
    shift.push_back(static_cast<double>(p[1]->as<float>()[c]) - static_cast<double>(p[2]->as<float>()[c]) * s);
    if (!std::isfinite(s) || !std::isfinite(shift.back())) {
      context.rewriter().missed("conv.bn", n, "the scale of a channel is not finite");
      return false;
    }
  }
  return absorb(context, conv, n, "conv.bn", scale, shift);
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
    if (!c || !context.producer(x, "Conv").valid()) continue;
    if (!(context.type(x) == context.type(context.output(n)))) continue;  // the constant would broadcast the result
    const NodeId conv = foldable_conv(context, x, n, "conv.affine");
    if (!conv.valid()) continue;
    const int64_t channels = context.constant(context.input(conv, 1))->dims()[0];
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

constexpr Rule kRules[] = {
    {"conv.bn", NumericsClass::kReassociating, "BatchNormalization", "BatchNormalization(Conv(x)) -> Conv with scaled weights and bias",
     "inference form, constant f32 weights and statistics, every channel's scale finite, the Conv's result used once", batch_norm},
    {"conv.affine", NumericsClass::kReassociating, "Mul Add Div Sub",
     "Conv(x) times, over, plus or minus a constant per channel -> Conv with other weights and bias",
     "constant f32 weights, the constant is per output channel or one number and broadcasts nothing, the Conv's result used once",
     channel_affine},
};

}  // namespace

std::span<const Rule> convolution_rules() { return kRules; }

}  // namespace optc
