// norm.*: the chains of LayerNorm and RMSNorm -> LayerNormalization, RMSNormalization.
#include <algorithm>
#include <cstring>

#include "optimizer/rules/chain.h"

namespace optc {
namespace {

// mean(v^2) over the trailing axes, or of a power of it: what `v` must be squared, and over which axis on.
struct MeanSquare {
  ValueId value;
  int64_t axis = 0;
};

// The first axis when the reduction keeps dims and runs over all axes from there on; nullopt otherwise.
std::optional<int64_t> trailing_axis(const RuleContext &context, NodeId mean) {
  const auto axes = reduced_axes(context, mean);
  if (!axes || axes->empty() || context.node(mean).int_or("keepdims", 1) == 0) return std::nullopt;
  const int64_t rank = context.type(context.input(mean, 0)).rank();
  for (size_t i = 0; i < axes->size(); ++i)
    if ((*axes)[i] != rank - static_cast<int64_t>(axes->size() - i)) return std::nullopt;
  return axes->front();
}

std::optional<MeanSquare> mean_square(const RuleContext &context, ValueId v, std::vector<NodeId> &nodes) {
  const NodeId mean = context.producer(v, "ReduceMean");
  if (!mean.valid()) return std::nullopt;
  const auto axis = trailing_axis(context, mean);
  if (!axis) return std::nullopt;
  const NodeId square = context.producer(context.input(mean, 0));
  if (!square.valid()) return std::nullopt;
  const std::string &op = context.node(square).op;
  const bool squares = (op == "Mul" && context.input(square, 0) == context.input(square, 1)) ||
                       (op == "Pow" && context.is_scalar(context.input(square, 1), 2) &&
                        context.type(context.input(square, 1)).rank() <= 1);
  if (!squares || !(context.type(context.input(square, 0)) == context.type(context.output(square))))
    return std::nullopt;
  nodes.push_back(mean);
  nodes.push_back(square);
  return MeanSquare{context.input(square, 0), *axis};
}

// n = numerator / sqrt(mean(d^2) + epsilon), as Div, as a product with Reciprocal(Sqrt) or with 1 / Sqrt.
struct Normalized {
  ValueId numerator;
  MeanSquare square;
  double epsilon = 0;
  std::vector<NodeId> nodes;  // n first
};

std::optional<Normalized> normalized(const RuleContext &context, NodeId n) {
  const ValueId out = context.output(n);
  if (!context.type(out).has_shape() || !context.is_model_float(out)) return std::nullopt;
  for (size_t side = 0; side < 2; ++side) {
    Normalized found;
    found.nodes.push_back(n);
    NodeId root;
    if (context.node(n).op == "Div") {
      if (side == 1) break;
      found.numerator = context.input(n, 0);
      root = context.producer(context.input(n, 1), "Sqrt");
    } else {
      found.numerator = context.input(n, side);
      const ValueId factor = context.input(n, 1 - side);
      const NodeId inverse = context.producer(factor);
      if (!inverse.valid()) continue;
      if (context.node(inverse).op == "Reciprocal")
        root = context.producer(context.input(inverse, 0), "Sqrt");
      else if (context.node(inverse).op == "Div" && context.is_scalar(context.input(inverse, 0), 1))
        root = context.producer(context.input(inverse, 1), "Sqrt");
      else
        continue;
      found.nodes.push_back(inverse);
    }
    if (!root.valid()) continue;
    found.nodes.push_back(root);
    ValueId inside = context.input(root, 0);
    if (const NodeId add = context.producer(inside, "Add"); add.valid()) {
      const auto sides = context.commuted(
          add, [&](ValueId c) { return context.scalar(c).has_value() && context.type(c).rank() <= 1; });
      if (!sides) continue;
      found.epsilon = *context.scalar(sides->second);
      inside = sides->first;
      found.nodes.push_back(add);
    }
    const auto square = mean_square(context, inside, found.nodes);
    if (!square || !(found.epsilon >= 0)) continue;
    found.square = *square;
    return found;
  }
  return std::nullopt;
}

bool has_dims(const RuleContext &context, ValueId v, const Shape &x, int64_t axis) {
  const Type &type = context.type(v);
  return type.has_shape() && *type.shape == Shape(x.begin() + axis, x.end());
}

// The only reader of `v` when it is an `op` whose other operand has exactly the normalized dims; the other operand.
std::optional<std::pair<NodeId, ValueId>> tail(const RuleContext &context, ValueId v, std::string_view op,
                                               const Shape &x, int64_t axis) {
  if (!context.single_use(v)) return std::nullopt;
  const NodeId reader = context.graph().value(v).uses[0].node;
  if (context.node(reader).op != op || context.node(reader).region != context.node(context.producer(v)).region)
    return std::nullopt;
  for (size_t side = 0; side < 2; ++side)
    if (context.input(reader, side) == v && context.input(reader, 1 - side) != v &&
        has_dims(context, context.input(reader, 1 - side), x, axis))
      return std::make_pair(reader, context.input(reader, 1 - side));
  return std::nullopt;
}

Result<bool> finish(RuleContext &context, std::string_view rule, std::string op, NodeId n, ValueId x, Normalized found,
                    bool bias) {
  if (!closed(context, found.nodes)) {
    context.rewriter().missed(rule, n, "a value inside the chain is used elsewhere too");
    return false;
  }
  const Shape shape = context.shape(x);
  const int64_t axis = found.square.axis;
  NodeId last = n;
  ValueId scale, shift;
  // In 16 bits the model rounds what is normalized before it is scaled, and again before the bias: those stay nodes of
  // their own, which lowering puts into the same kernel.
  const ElementType element = context.type(x).element;
  const bool wide = element == ElementType::kFloat32;
  if (const auto mul = wide ? tail(context, context.output(n), "Mul", shape, axis) : std::nullopt) {
    last = mul->first;
    scale = mul->second;
    if (bias)
      if (const auto add = tail(context, context.output(last), "Add", shape, axis)) {
        last = add->first;
        shift = add->second;
        found.nodes.push_back(mul->first);
      }
  }
  int64_t count = 1;
  std::vector<int64_t> dims;
  if (!scale.valid()) {
    for (size_t i = static_cast<size_t>(axis); i < shape.size(); ++i) {
      if (!shape[i].is_constant() || shape[i].value() <= 0 || shape[i].value() > (1 << 20) / count) {
        context.rewriter().missed(rule, n, "no scale follows, and the normalized dims are not fixed");
        return false;
      }
      dims.push_back(shape[i].value());
      count *= shape[i].value();
    }
  }
  if (!context.may_make(rule, n, op, element)) return false;
  auto change = context.rewriter().begin(rule, RewriteKind::kFuse, last);
  change.numerics(NumericsClass::kReassociating);
  if (!scale.valid()) {
    const Constant one = Constant::scalar(element, 1);
    std::vector<uint8_t> ones;
    for (int64_t i = 0; i < count; ++i) ones.insert(ones.end(), one.data(), one.data() + one.size());
    scale = change.constant("ones", Constant::owned(element, dims, std::move(ones)));
  }
  std::vector<ValueId> inputs{x, scale};
  if (shift.valid()) inputs.push_back(shift);
  const NodeId made = change.create(std::move(op), std::move(inputs),
                                    {{"axis", axis - static_cast<int64_t>(shape.size())},
                                     {"epsilon", static_cast<float>(found.epsilon)},
                                     {"stash_type", int64_t{1}}});
  change.replace(context.output(last), change.output(made));
  change.erase(last);
  for (NodeId node : found.nodes) change.erase(node);
  OPTC_TRY(change.commit());
  return true;
}

Result<bool> layer(RuleContext &context, NodeId n) {
  auto found = normalized(context, n);
  if (!found) return false;
  // The numerator and what is squared: x - mean(x), one node or two equal ones.
  const NodeId centred = context.producer(found->numerator, "Sub");
  if (!centred.valid() || found->square.value != found->numerator) return false;
  const ValueId x = context.input(centred, 0);
  const NodeId mean = context.producer(context.input(centred, 1), "ReduceMean");
  if (!mean.valid() || context.input(mean, 0) != x) return false;
  const auto axis = trailing_axis(context, mean);
  if (!axis || *axis != found->square.axis || !(context.type(x) == context.type(context.output(n)))) {
    context.rewriter().missed("norm.layer", n, "the two means run over different axes");
    return false;
  }
  found->nodes.push_back(centred);
  found->nodes.push_back(mean);
  return finish(context, "norm.layer", "LayerNormalization", n, x, std::move(*found), true);
}

Result<bool> rms(RuleContext &context, NodeId n) {
  auto found = normalized(context, n);
  if (!found || found->square.value != found->numerator ||
      !(context.type(found->numerator) == context.type(context.output(n))))
    return false;
  const NodeId centred = context.producer(found->numerator, "Sub");
  if (centred.valid()) {
    const NodeId mean = context.producer(context.input(centred, 1), "ReduceMean");
    if (mean.valid() && context.input(mean, 0) == context.input(centred, 0)) return false;  // norm.layer, or near it
  }
  const ValueId x = found->numerator;
  return finish(context, "norm.rms", "RMSNormalization", n, x, std::move(*found), false);
}

constexpr Rule kRules[] = {
    {"norm.layer", NumericsClass::kReassociating, "Div Mul",
     "(x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) [* scale [+ bias]] -> LayerNormalization",
     "f32, f16 or bf16 (in 16 bits scale and bias stay outside, the statistics are f32), both means over the same "
     "trailing axes with dims kept, inner values used nowhere else",
     layer},
    {"norm.rms", NumericsClass::kReassociating, "Div Mul",
     "x / sqrt(mean(x^2) + epsilon) [* scale] -> RMSNormalization",
     "f32, f16 or bf16 (in 16 bits the scale stays outside, the statistics are f32), the mean over trailing axes with "
     "dims kept and epsilon inside the root, inner values used nowhere else",
     rms},
};

}  // namespace

std::span<const Rule> norm_rules() { return kRules; }

}  // namespace optc
