// Cast, CastLike, BitCast and Dropout.

#include <cmath>

#include "ops/float_elements.h"
#include "ops/pointwise.h"

namespace optc {
namespace {

// Floating-point numbers that are known are cut to whole ones.
void propagate_floats(InferContext &c, ElementType to) {
  if (to != ElementType::kInt32 && to != ElementType::kInt64) return;
  const auto numbers = known_floats(c.graph(), c.node().input(0));
  if (!numbers) return;
  const double limit = to == ElementType::kInt32 ? 0x1p31 : 0x1p53;
  std::vector<Dim> result;
  for (const double x : *numbers) {
    if (!(std::fabs(x) < limit)) return;  // NaN too: what the run makes of it
    result.push_back(static_cast<int64_t>(x));
  }
  c.set_elements(0, std::move(result));
}

// Elements keep their meaning under a cast between integer types that holds them; to bool they become 0 or 1.
void propagate_cast(InferContext &c, ElementType to) {
  const std::vector<Dim> *elements = c.elements(0);
  if (!elements) return propagate_floats(c, to);
  std::vector<Dim> result;
  for (Dim d : *elements) {
    if (to == ElementType::kBool) {
      if (!d.is_constant() && lower_bound(d) <= 0 && upper_bound(d) >= 0) return;
      result.push_back(d.is_constant() && d.value() == 0 ? 0 : 1);
      continue;
    }
    if (!is_integer(to) || bit_width(to) < 32) return;
    if (d.is_constant() && bit_width(to) == 32 && d.value() != static_cast<int32_t>(d.value())) return;
    if (is_unsigned_integer(to) && lower_bound(d) < 0) return;
    result.push_back(d);
  }
  c.set_elements(0, std::move(result));
}

Status infer_to(InferContext &c, ElementType to) {
  if (!c.input(0).is_tensor()) return c.invalid("input 0 must be a tensor");
  c.set(0, Type::tensor(to, c.input(0).shape));
  propagate_cast(c, to);
  return {};
}

Status infer_cast(InferContext &c) {
  const int64_t to = c.node().int_or("to", 0);
  if (to < 1 || to > static_cast<int64_t>(ElementType::kInt2)) return c.invalid("attribute 'to' names no element type");
  return infer_to(c, static_cast<ElementType>(to));
}
Status infer_cast_like(InferContext &c) {
  if (!c.input(1).is_tensor()) return c.invalid("input 1 must be a tensor");
  return infer_to(c, c.element(1));
}

Status build_cast(BuildContext &c) {
  const ElementType from = c.input_type(0).element, to = c.output_type(0).element;
  if (from == to) {
    c.alias(0, c.input(0));
    return {};
  }
  if (from == ElementType::kString || to == ElementType::kString) {
    c.library("string_cast", {c.input(0)}, {c.output(0)}, {{"to", static_cast<int64_t>(to)}});
    return {};
  }
  if (is_complex(from) || is_complex(to)) return c.unsupported("casts of complex numbers are not supported");
  const bool saturate = c.node().int_or("saturate", 1) != 0;
  const std::string_view mode = c.node().string_or("round_mode", "up");
  return c.pointwise({0}, 0, [&](NestBuilder &, std::vector<Expr> v) {
    Expr x = v[0];
    // To a type of less than a byte, whole numbers keep their low bits.
    if (is_integer(to) && bit_width(to) < 8 && is_float(x.type())) x = cast(x, ElementType::kInt32);
    if (to == ElementType::kFloat8E8M0 && mode != "up" && is_float(x.type())) {
      // The scalar cast rounds up to a power of two: cut the mantissa (after adding half of its range) before.
      ScalarPool &pool = x.pool();
      Expr bits(&pool, pool.bitcast(cast(x, ElementType::kFloat32).id(), ElementType::kUInt32));
      const Expr nan = apply(ScalarOp::kIsNan, x), infinite = apply(ScalarOp::kIsInf, x);
      Expr rounded = mode == "nearest" ? bits + static_cast<double>(0x400000) : bits;
      rounded = apply(ScalarOp::kBitAnd, rounded, rounded.constant(4286578688.0));
      bits = select(apply(ScalarOp::kOr, nan, infinite), bits, rounded);
      x = Expr(&pool, pool.bitcast(bits.id(), ElementType::kFloat32));
    }
    return cast(x, to, saturate);
  });
}

// Opsets 1 to 5 named the type.
Status cast_names(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Attribute *to = graph.node(node).attribute("to");
  if (!to || !std::holds_alternative<std::string>(*to)) return {};
  std::string name = std::get<std::string>(*to);
  for (char &ch : name)
    if (ch >= 'A' && ch <= 'Z') ch = static_cast<char>(ch - 'A' + 'a');
  for (int type = 1; type <= static_cast<int>(ElementType::kInt2); ++type)
    if (onnx_name(static_cast<ElementType>(type)) == name) {
      graph.set_attribute(node, "to", static_cast<int64_t>(type));
      return {};
    }
  return diagnostics.error(ErrorKind::kInvalid, "attribute 'to' names no element type: " + name, graph.describe(node));
}

// --- BitCast: the bits as another type of the same width -----------------------------------------------------

Status infer_bit_cast(InferContext &c) {
  const int64_t to = c.node().int_or("to", 0);
  if (to < 1 || to > static_cast<int64_t>(ElementType::kInt2)) return c.invalid("attribute 'to' names no element type");
  const ElementType type = static_cast<ElementType>(to);
  if (bit_width(type) == 0 || bit_width(type) != bit_width(c.element(0)))
    return c.invalid("a bit cast needs types of one width");
  c.set(0, Type::tensor(type, c.input(0).shape));
  return {};
}
Status build_bit_cast(BuildContext &c) {
  NestBuilder nest(c, c.node().op);
  const std::vector<Dim> at = nest.outer(c.output_shape(0));
  const Expr x = nest.load_raw(c.input(0), at);
  nest.store(c.output(0), at, Expr(&x.pool(), x.pool().bitcast(x.id(), c.output_type(0).element)));
  nest.finish();
  return {};
}

// --- Dropout -------------------------------------------------------------------------------------------------

Status infer_dropout(InferContext &c) {
  c.set(0, c.input(0));
  c.set(1, Type::tensor(ElementType::kBool, c.input(0).shape));
  return {};
}
Status build_dropout(BuildContext &c) {
  bool trains = c.has_input(2);
  if (const Constant *training = c.constant(2)) trains = training->count() != 1 || training->as_int64(0) != 0;
  if (const Constant *ratio = c.constant(1); ratio && ratio->count() == 1 && ratio->as_double(0) == 0) trains = false;
  if (trains) {
    c.library("dropout", {c.input(0), c.input(1), c.input(2)}, {c.output(0), c.output(1)},
              {{"seed", c.node().int_or("seed", 0)}});
    return {};
  }
  c.alias(0, c.input(0));
  if (!c.has_output(1)) return {};
  return c.pointwise({}, 1, [](NestBuilder &nest, std::vector<Expr>) { return nest.constant(ElementType::kBool, 1); });
}
// Opset 7 and 10: attribute ratio, inference only; before: also is_test.
Status dropout_ratio(Graph &graph, NodeId node, Diagnostics &) {
  graph.remove_attribute(node, "consumed_inputs");
  graph.remove_attribute(node, "is_test");
  const float ratio = graph.node(node).float_or("ratio", 0.5f);
  graph.remove_attribute(node, "ratio");
  const std::string name = graph.unique_name(graph.node(node).name + "_ratio");
  graph.set_input(node, 1, graph.add_constant(name, Constant::scalar(ElementType::kFloat32, ratio)));
  return {};
}
Status dropout_attribute(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Node &n = graph.node(node);
  const Constant *ratio = graph.constant(n.input(1));
  if (n.input(2).valid() || (n.input(1).valid() && !ratio))
    return diagnostics.error(ErrorKind::kUnsupported, "Dropout in training mode needs opset 12", graph.describe(node));
  if (ratio) graph.set_attribute(node, "ratio", static_cast<float>(ratio->as_double(0)));
  graph.remove_attribute(node, "seed");
  graph.set_input(node, 1, ValueId());
  return {};
}

constexpr VersionStep kCastSteps[] = {{6, cast_names, nullptr}};
constexpr VersionStep kDropoutSteps[] = {{12, dropout_ratio, dropout_attribute}};

const OpDef kOps[] = {
    {"BitCast", OpForm::kPointwise, 26, infer_bit_cast, build_bit_cast},
    {"Cast", OpForm::kPointwise, 28, infer_cast, build_cast, kCastSteps},
    {"CastLike", OpForm::kPointwise, 25, infer_cast_like, build_cast},
    {"Dropout", OpForm::kPointwise, 22, infer_dropout, build_dropout, kDropoutSteps},
};

}  // namespace

std::span<const OpDef> cast_ops() { return kOps; }

}  // namespace optc
