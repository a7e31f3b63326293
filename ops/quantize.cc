// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.

#include <algorithm>
#include <cmath>

#include "ops/conditions.h"
#include "ops/pointwise.h"
#include "ops/quantized.h"
#include "ops/rows.h"
#include "ops/steps.h"

namespace optc {

Expr quantize_rounded(Expr rounded, Expr zero_point, ElementType to, bool saturate) {
  if (!is_integer(to))
    return cast(zero_point.valid() ? rounded + cast(zero_point, rounded.type()) : rounded, to, saturate);
  const int width = bit_width(to);
  const bool is_signed = is_signed_integer(to);
  const double low = is_signed ? -std::pow(2.0, width - 1) : 0, high = std::pow(2.0, is_signed ? width - 1 : width) - 1;
  if (zero_point.valid()) rounded = rounded + cast(zero_point, rounded.type());
  rounded = minimum(maximum(rounded, rounded.constant(low)), rounded.constant(high));
  return cast(rounded, ElementType::kInt32);
}

namespace {

// Where the scale (or zero point) of an element lies: one for all, one an index of the axis, or one a block along the
// axis. A vector of a length that is not known may be of either of the first two kinds.
Expr of_element(BuildContext &c, NestBuilder &nest, size_t input, const std::vector<Dim> &at, const Shape &x) {
  const Shape shape = c.shape(input);
  const int64_t rank = static_cast<int64_t>(at.size());
  int64_t axis = c.node().int_or("axis", 1);
  if (axis < 0) axis += rank;
  if (shape.empty() || (shape.size() == 1 && shape[0].is(1))) {
    if (c.constant(input)) return c.operand(nest, input, at, Shape());
    return nest.load(c.input(input), std::vector<Dim>(shape.size()));
  }
  const int64_t block = c.node().int_or("block_size", 0);
  if (block > 0 && shape.size() == at.size()) {
    std::vector<Dim> index = at;
    index[static_cast<size_t>(axis)] = floor_div(index[static_cast<size_t>(axis)], block);
    return nest.load(c.input(input), index);
  }
  if (axis >= rank) return nest.load(c.input(input), {0});  // the axis of a whole tensor's scale says nothing
  const size_t k = static_cast<size_t>(axis);
  return nest.load(c.input(input), broadcast_index({at[k]}, shape, {x[k]}));
}

// A zero point has the form of the scale, or is one for all.
Status check_zero_point(InferContext &c) {
  if (!c.has_input(2) || !c.has_shape(2)) return {};
  const Shape &zero = c.shape(2), &scale = c.shape(1);
  if (zero.empty() || (zero.size() == 1 && zero[0].is(1))) return {};
  if (zero.size() == 1 && scale.empty()) {
    OPTC_ASSIGN([[maybe_unused]] Dim one, c.same(zero[0], 1, "the length of the zero point"));
    return {};
  }
  if (zero.size() != scale.size()) return c.invalid("the zero point must have the shape of the scale");
  for (size_t k = 0; k < zero.size(); ++k) {
    OPTC_ASSIGN([[maybe_unused]] Dim d, c.same(zero[k], scale[k], "the dimensions of zero point and scale"));
  }
  return {};
}

Status check_parameters(InferContext &c) {
  if (!c.has_shape(0) || !c.has_shape(1)) return {};
  OPTC_TRY(check_zero_point(c));
  const Shape &x = c.shape(0), &scale = c.shape(1);
  const int64_t block = c.node().int_or("block_size", 0);
  if (scale.empty() || (scale.size() == 1 && scale[0].is(1) && block == 0)) return {};
  const bool may_be_whole = scale.size() == 1 && block == 0 && lower_bound(scale[0]) <= 1;
  const int64_t given = c.node().int_or("axis", 1);
  if (may_be_whole && (given >= c.rank(0) || given < -c.rank(0))) {
    OPTC_ASSIGN([[maybe_unused]] Dim one, c.same(scale[0], 1, "the length of a scale for all"));
    return {};
  }
  OPTC_ASSIGN(const int64_t axis, c.axis(given, c.rank(0)));
  const size_t a = static_cast<size_t>(axis);
  if (block > 0) {
    if (scale.size() != x.size()) return c.invalid("the scale of blocks must have the rank of the input");
    for (size_t k = 0; k < x.size(); ++k) {
      OPTC_ASSIGN([[maybe_unused]] Dim d,
                  c.same(scale[k], k == a ? ceil_div(x[k], block) : x[k], "the dimensions of input and scale"));
    }
    return {};
  }
  if (scale.size() != 1) return c.invalid("the scale must be a scalar or a vector, or block_size be given");
  if (may_be_whole) {
    return broadcasts_to(c, scale[0], x[a], "a scale");
  }
  OPTC_ASSIGN([[maybe_unused]] Dim d, c.same(scale[0], x[a], "the length of the scale and of the axis"));
  return {};
}

ElementType quantized_type(const Node &node, bool has_zero_point, ElementType zero_point) {
  if (has_zero_point) return zero_point;
  const int64_t given = node.int_or("output_dtype", 0);
  return given ? static_cast<ElementType>(given) : ElementType::kUInt8;
}

// What numbers are quantized to.
bool is_quantized_type(int64_t type) {
  using E = ElementType;
  constexpr E kTypes[] = {E::kInt8,           E::kUInt8,      E::kInt16,          E::kUInt16, E::kFloat8E4M3FN,
                          E::kFloat8E4M3FNUZ, E::kFloat8E5M2, E::kFloat8E5M2FNUZ, E::kInt4,   E::kUInt4,
                          E::kInt2,           E::kUInt2,      E::kFloat4E2M1};
  return std::any_of(std::begin(kTypes), std::end(kTypes), [&](E t) { return static_cast<int64_t>(t) == type; });
}

Status infer_quantize(InferContext &c) {
  OPTC_TRY(check_parameters(c));
  if (const int64_t given = c.node().int_or("output_dtype", 0)) {
    if (!is_quantized_type(given))
      return c.invalid("output_dtype " + std::to_string(given) + " is no type that numbers are quantized to");
    if (c.has_input(2) && static_cast<int64_t>(c.element(2)) != given)
      return c.invalid("output_dtype is " + std::string(to_string(static_cast<ElementType>(given))) +
                       ", the zero point " + std::string(to_string(c.element(2))));
  }
  c.set(0, Type::tensor(quantized_type(c.node(), c.has_input(2), c.element(2)), c.input(0).shape));
  return {};
}
Status build_quantize(BuildContext &c) {
  const ElementType to = c.output_type(0).element;
  const Shape shape = c.output_shape(0);
  const bool saturate = c.node().int_or("saturate", 1) != 0;
  // The quotient is rounded to the precision of the division: that of the scale, or as the attribute says.
  ElementType precision = static_cast<ElementType>(c.node().int_or("precision", 0));
  if (precision == ElementType::kUndefined) precision = c.input_type(1).element;
  if (precision == ElementType::kFloat8E8M0) precision = ElementType::kFloat32;
  NestBuilder nest(c, c.node().op);
  const std::vector<Dim> at = nest.outer(shape);
  const Expr scale = cast(of_element(c, nest, 1, at, shape), compute_type(precision));
  Expr y = cast(nest.load(c.input(0), at), scale.type()) / scale;
  y = cast(cast(y, precision), compute_type(precision));
  if (is_integer(to)) y = apply(ScalarOp::kRound, y);
  const Expr zero_point = c.has_input(2) && is_integer(to) ? of_element(c, nest, 2, at, shape) : Expr();
  nest.store(c.output(0), at, quantize_rounded(y, zero_point, to, saturate));
  nest.finish();
  return {};
}

Status infer_dequantize(InferContext &c) {
  OPTC_TRY(check_parameters(c));
  const int64_t given = c.node().int_or("output_dtype", 0);
  using E = ElementType;
  constexpr E kTypes[] = {E::kFloat32, E::kFloat16, E::kFloat64, E::kBFloat16};
  if (given &&
      std::none_of(std::begin(kTypes), std::end(kTypes), [&](E t) { return static_cast<int64_t>(t) == given; }))
    return c.invalid("output_dtype " + std::to_string(given) + " is none of the types that a scale has");
  c.set(0, Type::tensor(given ? static_cast<ElementType>(given) : c.element(1), c.input(0).shape));
  return {};
}
Status build_dequantize(BuildContext &c) {
  NestBuilder nest(c, c.node().op);
  const Shape shape = c.output_shape(0);
  const std::vector<Dim> at = nest.outer(shape);
  Expr x = nest.load(c.input(0), at);
  if (c.has_input(2)) x = x - of_element(c, nest, 2, at, shape);
  const Expr scale = of_element(c, nest, 1, at, shape);
  nest.store(c.output(0), at, cast(x, scale.type()) * scale);
  nest.finish();
  return {};
}

Status infer_dynamic(InferContext &c) {
  c.set(0, Type::tensor(ElementType::kUInt8, c.input(0).shape));
  c.set_tensor(1, ElementType::kFloat32, {});
  c.set_tensor(2, ElementType::kUInt8, {});
  return {};
}
Status build_dynamic(BuildContext &c) {
  const Shape shape = c.shape(0);
  const BufferId scale = c.has_output(1) ? c.output(1) : c.temporary("scale", ElementType::kFloat32, {});
  const BufferId zero = c.has_output(2) ? c.output(2) : c.temporary("zero_point", ElementType::kUInt8, {});
  {
    NestBuilder nest(c, "scale and zero point");
    const std::vector<Dim> at = nest.stage_loops(shape);
    const Expr x = nest.load(c.input(0), at);
    const std::vector<Expr> ends = nest.reduce_all({{Combine::kMax, x}, {Combine::kMin, x}});
    const Expr high = maximum(ends[0], x.constant(0)), low = minimum(ends[1], x.constant(0));
    Expr s = (high - low) / 255;
    s = select(apply(ScalarOp::kEq, s, s.constant(0)), s.constant(1), s);
    nest.store(scale, {}, s);
    nest.store(zero, {}, quantize_rounded(apply(ScalarOp::kRound, -low / s), {}, ElementType::kUInt8, true));
    nest.finish();
  }
  NestBuilder nest(c, "quantize");
  const std::vector<Dim> at = nest.outer(shape);
  const Expr x = apply(ScalarOp::kRound, nest.load(c.input(0), at) / nest.load(scale, {}));
  nest.store(c.output(0), at, quantize_rounded(x, nest.load(zero, {}), ElementType::kUInt8, true));
  nest.finish();
  return {};
}

// Before 13 a tensor had one scale.
Status one_scale(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const ValueId scale = graph.node(node).input(1);
  const auto &shape = graph.value(scale).type.shape;
  if (!shape || shape->size() > 1 || (shape->size() == 1 && !(*shape)[0].is(1)))
    return cannot_lower(graph, node, "a scale for each index of an axis", 13, diagnostics);
  graph.remove_attribute(node, "axis");
  return {};
}

constexpr VersionStep kSteps[] = {{13, nullptr, one_scale}};
constexpr auto kForm = OpForm::kPointwise;
const OpDef kOps[] = {
    {"DequantizeLinear", kForm, 28, infer_dequantize, build_dequantize, kSteps},
    {"DynamicQuantizeLinear", OpForm::kReduction, 11, infer_dynamic, build_dynamic},
    {"QuantizeLinear", kForm, 28, infer_quantize, build_quantize, kSteps},
};

}  // namespace

std::span<const OpDef> quantize_ops() { return kOps; }

}  // namespace optc
