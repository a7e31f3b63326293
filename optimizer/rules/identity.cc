// identity.*: nodes that change nothing, and chains of views that are one view.
#include <cmath>
#include <numeric>

#include "optimizer/rules/zero_sign.h"

namespace optc {
namespace {

Result<bool> forward(RuleContext &context, NodeId n, std::string_view rule, ValueId value) {
  const ValueId out = context.output(n);
  // An output of the model or of a body is the result of a node there, and of one output alone.
  for (const Use &use : context.graph().value(out).uses)
    if (use.kind == UseKind::kRegionOutput) {
      if (context.graph().value(value).kind != ValueKind::kNodeOutput) return false;
      for (const Use &other : context.graph().value(value).uses)
        if (other.kind == UseKind::kRegionOutput) return false;
      if (context.node(context.graph().value(value).producer).region != context.node(n).region) return false;
    }
  auto change = context.rewriter().begin(rule, RewriteKind::kRemove, n);
  change.replace(out, value);
  change.erase(n);
  OPTC_TRY(change.commit());
  return true;
}

bool same_type(const RuleContext &context, ValueId a, ValueId b) {
  return context.type(a).has_shape() && context.type(a) == context.type(b);
}

bool others_unused(const RuleContext &context, NodeId n) {
  for (size_t i = 1; i < context.node(n).outputs.size(); ++i)
    if (context.node(n).outputs[i].valid() && !context.graph().value(context.node(n).outputs[i]).uses.empty())
      return false;
  return true;
}

Result<bool> identity(RuleContext &context, NodeId n) {
  return forward(context, n, "identity.identity", context.input(n, 0));
}

Result<bool> dropout(RuleContext &context, NodeId n) {
  if (!others_unused(context, n)) return false;
  const ValueId training = context.input(n, 2);
  const auto ratio = context.scalar(context.input(n, 1));
  if (training.valid() && !context.is_scalar(training, 0) && !(ratio && *ratio == 0)) return false;
  return forward(context, n, "identity.dropout", context.input(n, 0));
}

// Operators that do nothing when the result has the operand's type: the same elements in the same order.
Result<bool> same(RuleContext &context, NodeId n) {
  const Node &node = context.node(n);
  const ValueId x = context.input(n, 0);
  if (node.outputs.size() != 1 || !x.valid() || !same_type(context, x, context.output(n))) return false;
  // Without axes the sizes of each run decide what goes: a written model must ask them again.
  if (node.op == "Squeeze" && !context.input(n, 1).valid()) {
    for (const Dim d : *context.type(x).shape)
      if (!d.is_constant()) return false;
  }
  // Slice and Pad of equal shape could still reverse or shift.
  if (node.op == "Slice") {
    const Constant *steps = context.constant(context.input(n, 4));
    if (context.input(n, 4).valid() && !steps) return false;
    for (int64_t i = 0; steps && i < steps->count(); ++i)
      if (steps->as_int64(i) < 0) return false;
  }
  if (node.op == "Pad") {
    const Constant *pads = context.constant(context.input(n, 1));
    if (!pads) return false;
    for (int64_t i = 0; i < pads->count(); ++i)
      if (pads->as_int64(i) != 0) return false;
  }
  return forward(context, n, "identity.same", x);
}

Result<bool> one_operand(RuleContext &context, NodeId n) {
  if (context.node(n).inputs.size() != 1 || !same_type(context, context.input(n, 0), context.output(n))) return false;
  return forward(context, n, "identity.one_operand", context.input(n, 0));
}

Result<bool> one_part(RuleContext &context, NodeId n) {
  if (context.node(n).outputs.size() != 1 || !same_type(context, context.input(n, 0), context.output(n))) return false;
  return forward(context, n, "identity.one_part", context.input(n, 0));
}

// What it gives it leaves as it is.
Result<bool> idempotent(RuleContext &context, NodeId n) {
  const ValueId x = context.input(n, 0);
  if (!context.producer(x, context.node(n).op).valid() || !same_type(context, x, context.output(n))) return false;
  return forward(context, n, "identity.idempotent", x);
}

bool all_equal(const Constant &c, double value, bool negative_zero) {
  for (int64_t i = 0; i < c.count(); ++i)
    if (c.as_double(i) != value || (value == 0 && is_float(c.type()) && std::signbit(c.as_double(i)) != negative_zero))
      return false;
  return c.count() > 0;
}

// x - 0, x + (-0), x * 1, x / 1, x and true, x or false; x + 0 for integers, and for floats, where -0 + 0 is +0, when
// nothing can tell.
Result<bool> neutral(RuleContext &context, NodeId n) {
  const std::string &op = context.node(n).op;
  const bool commutes = op != "Sub" && op != "Div";
  for (size_t side = 0; side < (commutes ? 2u : 1u); ++side) {
    const ValueId x = context.input(n, side), c = context.input(n, 1 - side);
    const Constant *value = context.constant(c);
    if (!value || is_complex(value->type()) || value->type() == ElementType::kString || value->count() > 65536 ||
        !same_type(context, x, context.output(n)))
      continue;
    const bool integer = !is_float(value->type());
    const bool neutral_value = op == "Add" ? (integer ? all_equal(*value, 0, false) : all_equal(*value, 0, true))
                               : op == "Sub" || op == "Or" || op == "Xor" ? all_equal(*value, 0, false)
                                                                          : all_equal(*value, 1, false);
    if (neutral_value) return forward(context, n, "identity.neutral", x);
    if (op != "Add" || !all_equal(*value, 0, false)) continue;
    const std::string reader = tells_zeros_apart(context, context.output(n));
    if (reader.empty()) return forward(context, n, "identity.neutral", x);
    context.rewriter().missed("identity.neutral", n, "-0 + 0 is +0, and the sign of a zero reaches " + reader);
  }
  return false;
}

// Concat(a, Concat(b, c)) along one axis -> Concat(a, b, c)
Result<bool> nested_concat(RuleContext &context, NodeId n) {
  const Node &node = context.node(n);
  if (!context.type(context.output(n)).has_shape()) return false;
  const int64_t rank = static_cast<int64_t>(context.shape(context.output(n)).size());
  const auto axis = [&](NodeId concat) {
    const int64_t at = context.node(concat).int_or("axis", 0);
    return at < 0 ? at + rank : at;
  };
  std::vector<ValueId> operands;
  std::vector<NodeId> inner;
  for (ValueId v : node.inputs) {
    const NodeId other = context.producer(v, "Concat");
    if (!other.valid() || !context.single_use(v) || axis(other) != axis(n)) {
      operands.push_back(v);
      continue;
    }
    const std::vector<ValueId> &theirs = context.node(other).inputs;
    operands.insert(operands.end(), theirs.begin(), theirs.end());
    inner.push_back(other);
  }
  if (inner.empty()) return false;
  auto change = context.rewriter().begin("identity.nested_concat", RewriteKind::kFuse, n);
  const NodeId made = change.create("Concat", std::move(operands), {{"axis", axis(n)}});
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  for (NodeId other : inner) change.erase(other);
  OPTC_TRY(change.commit());
  return true;
}

// Where(Not(c), a, b) -> Where(c, b, a)
Result<bool> negated_choice(RuleContext &context, NodeId n) {
  const NodeId negation = context.producer(context.input(n, 0), "Not");
  if (!negation.valid()) return false;
  auto change = context.rewriter().begin("identity.negated_choice", RewriteKind::kFuse, n);
  const bool only = context.single_use(context.output(negation));
  const NodeId made = change.create("Where", {context.input(negation, 0), context.input(n, 2), context.input(n, 1)});
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  if (only) change.erase(negation);
  OPTC_TRY(change.commit());
  return true;
}

Result<bool> transpose_pair(RuleContext &context, NodeId n) {
  const NodeId inner = context.producer(context.input(n, 0), "Transpose");
  if (!inner.valid()) return false;
  const auto *outer_perm = context.node(n).ints("perm"), *inner_perm = context.node(inner).ints("perm");
  if (!outer_perm || !inner_perm || outer_perm->size() != inner_perm->size()) return false;
  std::vector<int64_t> perm;
  for (int64_t p : *outer_perm) perm.push_back((*inner_perm)[static_cast<size_t>(p)]);
  auto change = context.rewriter().begin("identity.transpose_pair", RewriteKind::kFuse, n);
  const NodeId made = change.create("Transpose", {context.input(inner, 0)}, {{"perm", perm}});
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  if (context.used_only_by(context.output(inner), std::span<const NodeId>(&n, 1))) change.erase(inner);
  OPTC_TRY(change.commit());
  return true;
}

Result<bool> transpose_nothing(RuleContext &context, NodeId n) {
  const auto *perm = context.node(n).ints("perm");
  if (!perm) return false;
  for (size_t i = 0; i < perm->size(); ++i)
    if ((*perm)[i] != static_cast<int64_t>(i)) return false;
  return forward(context, n, "identity.transpose_nothing", context.input(n, 0));
}

// A float Cast to a wider type and back is the identity.
Result<bool> cast_pair(RuleContext &context, NodeId n) {
  const NodeId inner = context.producer(context.input(n, 0), "Cast");
  if (!inner.valid()) return false;
  const ElementType from = context.type(context.input(inner, 0)).element,
                    middle = context.type(context.output(inner)).element, to = context.type(context.output(n)).element;
  const bool widens =
      (is_float(from) && bit_width(from) <= 16 &&
       (middle == ElementType::kFloat32 || middle == ElementType::kFloat64)) ||
      (from == ElementType::kFloat32 && middle == ElementType::kFloat64) ||
      (is_integer(from) && is_integer(middle) && is_signed_integer(middle) && bit_width(middle) > bit_width(from)) ||
      (from == ElementType::kBool && (is_integer(middle) || is_float(middle)));
  if (from != to || !widens) return false;
  // Back in float8e5m2, the only type of 8 bits with infinities that saturate, an infinity becomes the largest number.
  if (from == ElementType::kFloat8E5M2 && context.node(n).int_or("saturate", 1) != 0) return false;
  return forward(context, n, "identity.cast_pair", context.input(inner, 0));
}

constexpr Rule kRules[] = {
    {"identity.identity", NumericsClass::kExact, "Identity", "Identity(x) -> x",
     "x is not both an input and the model's output", identity},
    {"identity.dropout", NumericsClass::kExact, "Dropout", "Dropout(x) -> x",
     "inference: no training_mode, mask unused", dropout},
    {"identity.same", NumericsClass::kExact,
     "Cast CastLike Reshape Flatten Squeeze Unsqueeze Expand Tile Slice Pad Concat",
     "a view or cast whose result has the operand's type and shape -> the operand",
     "the element order is kept: no negative step, no padding; dims equal for every value of the symbols", same},
    {"identity.one_operand", NumericsClass::kExact, "Concat Sum Max Min Mean",
     "Concat(x), Sum(x), Max(x), Min(x), Mean(x) -> x", "one operand", one_operand},
    {"identity.one_part", NumericsClass::kExact, "Split", "Split(x) into one part -> x", "the part has the type of x",
     one_part},
    {"identity.idempotent", NumericsClass::kExact, "Relu Ceil Floor Round Sign Abs",
     "Relu(Relu(x)) -> Relu(x), and alike", "always", idempotent},
    {"identity.neutral", NumericsClass::kExact, "Add Sub Mul Div And Or Xor",
     "x - 0, x * 1, x / 1, x + (-0), integer x + 0, x and true, x or false, x xor false -> x",
     "the constant does not broadcast x to a larger shape; a float x + (+0), which makes +0 of -0, goes where only "
     "sums "
     "of products and functions that know one zero read it",
     neutral},
    {"identity.nested_concat", NumericsClass::kExact, "Concat", "Concat(a, Concat(b, c)) -> Concat(a, b, c)",
     "along one axis, the inner result used once", nested_concat},
    {"identity.negated_choice", NumericsClass::kExact, "Where", "Where(Not(c), a, b) -> Where(c, b, a)", "always",
     negated_choice},
    {"identity.transpose_nothing", NumericsClass::kExact, "Transpose",
     "Transpose with the identity permutation -> the operand", "always", transpose_nothing},
    {"identity.transpose_pair", NumericsClass::kExact, "Transpose", "Transpose(Transpose(x)) -> one Transpose",
     "always", transpose_pair},
    {"identity.cast_pair", NumericsClass::kExact, "Cast", "Cast to a wider type and back -> x",
     "the middle type holds every value exactly, and no infinity saturates on the way back", cast_pair},
};

}  // namespace

std::span<const Rule> identity_rules() { return kRules; }

}  // namespace optc
