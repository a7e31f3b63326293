// view.*: chains of operators that only give the same elements other dims.
#include "optimizer/rules/chain.h"

namespace optc {
namespace {

bool is_view(const std::string &op) {
  return op == "Reshape" || op == "Flatten" || op == "Squeeze" || op == "Unsqueeze";
}

// The element count and order never change along the chain: where it comes back to a type it had, what lies between did
// nothing.
Result<bool> round_trip(RuleContext &context, NodeId n) {
  const ValueId out = context.output(n);
  // Without axes the sizes of each run decide what goes: a written model must ask them again.
  if (context.node(n).op == "Squeeze" && !context.input(n, 1).valid()) return false;
  for (const Use &use : context.graph().value(out).uses)
    if (use.kind == UseKind::kRegionOutput) return false;
  ValueId v = context.input(n, 0);
  for (int steps = 0; steps < 16; ++steps) {
    if (context.type(v).has_shape() && context.type(v) == context.type(out)) {
      auto change = context.rewriter().begin("view.round_trip", RewriteKind::kRemove, n);
      change.replace(out, v);
      change.erase(n);
      OPTC_TRY(change.commit());
      return true;
    }
    const NodeId inner = context.producer(v);
    if (!inner.valid() || !is_view(context.node(inner).op)) return false;
    v = context.input(inner, 0);
  }
  return false;
}

// Reshape of a view: the shape says all, unless a 0 copies a dim of the view.
Result<bool> reshape(RuleContext &context, NodeId n) {
  const NodeId inner = context.producer(context.input(n, 0));
  if (!inner.valid() || !is_view(context.node(inner).op)) return false;
  const Constant *shape = context.constant(context.input(n, 1));
  if (!shape) return false;
  for (int64_t i = 0; i < shape->count(); ++i)
    if (shape->as_int64(i) == 0) {
      context.rewriter().missed("view.reshape", n, "a 0 in the shape copies a dim of the inner view");
      return false;
    }
  auto change = context.rewriter().begin("view.reshape", RewriteKind::kFuse, n);
  const bool only = context.single_use(context.output(inner));
  const NodeId made =
      change.create("Reshape", {context.input(inner, 0), context.input(n, 1)}, context.node(n).attributes);
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  if (only) change.erase(inner);
  OPTC_TRY(change.commit());
  return true;
}

constexpr Rule kRules[] = {
    {"view.round_trip", NumericsClass::kExact, "Reshape Flatten Squeeze Unsqueeze",
     "a chain of views that ends with the type it had before -> the value it had it in",
     "only Reshape, Flatten, Squeeze, Unsqueeze between; dims equal for every value of the symbols", round_trip},
    {"view.reshape", NumericsClass::kExact, "Reshape", "Reshape of a view -> Reshape of the view's operand",
     "the shape is constant and copies no dim (no 0)", reshape},
};

}  // namespace

std::span<const Rule> view_rules() { return kRules; }

}  // namespace optc
