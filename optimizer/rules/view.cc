// view.*: chains of operators that only give the same elements other dims.
#include <algorithm>
#include <optional>

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

// The axes that an Unsqueeze or a Squeeze names, counted in `rank` dims; nothing where they are not constants.
std::optional<std::vector<bool>> named_axes(const RuleContext &context, NodeId n, size_t rank) {
  const Constant *axes = context.constant(context.input(n, 1));
  if (!axes) return std::nullopt;
  std::vector<bool> named(rank, false);
  for (int64_t i = 0; i < axes->count(); ++i) {
    const int64_t axis = axes->as_int64(i) + (axes->as_int64(i) < 0 ? static_cast<int64_t>(rank) : 0);
    if (axis < 0 || axis >= static_cast<int64_t>(rank)) return std::nullopt;
    named[static_cast<size_t>(axis)] = true;
  }
  return named;
}

// Dims of 1 are put in, moved, and taken out again: the order of the others is all that remains.
Result<bool> moved_axis(RuleContext &context, NodeId n) {
  const NodeId transpose = context.producer(context.input(n, 0), "Transpose");
  if (!transpose.valid() || !context.single_use(context.output(transpose))) return false;
  const NodeId unsqueeze = context.producer(context.input(transpose, 0), "Unsqueeze");
  if (!unsqueeze.valid() || !context.single_use(context.output(unsqueeze))) return false;
  const auto *perm = context.node(transpose).ints("perm");
  if (!perm) return false;
  const auto added = named_axes(context, unsqueeze, perm->size()), removed = named_axes(context, n, perm->size());
  if (!added || !removed) return false;
  std::vector<int64_t> rest;
  for (size_t d = 0; d < perm->size(); ++d) {
    const auto from = static_cast<size_t>((*perm)[d]);
    if ((*added)[from] != (*removed)[d]) {
      context.rewriter().missed("view.moved_axis", n, "the dims that go are not those that were put in");
      return false;
    }
    if (!(*added)[from]) rest.push_back((*perm)[d] - std::count(added->begin(), added->begin() + (*perm)[d], true));
  }
  auto change = context.rewriter().begin("view.moved_axis", RewriteKind::kFuse, n);
  const NodeId made = change.create("Transpose", {context.input(unsqueeze, 0)}, {{"perm", rest}});
  change.replace(context.output(n), change.output(made));
  for (NodeId node : {n, transpose, unsqueeze}) change.erase(node);
  OPTC_TRY(change.commit());
  return true;
}

constexpr Rule kRules[] = {
    {"view.round_trip", NumericsClass::kExact, "Reshape Flatten Squeeze Unsqueeze",
     "a chain of views that ends with the type it had before -> the value it had it in",
     "only Reshape, Flatten, Squeeze, Unsqueeze between; dims equal for every value of the symbols", round_trip},
    {"view.reshape", NumericsClass::kExact, "Reshape", "Reshape of a view -> Reshape of the view's operand",
     "the shape is constant and copies no dim (no 0)", reshape},
    {"view.moved_axis", NumericsClass::kExact, "Squeeze", "Squeeze(Transpose(Unsqueeze(x))) -> Transpose(x)",
     "constant axes, the dims that go are those that were put in, inner values used nowhere else", moved_axis},
};

}  // namespace

std::span<const Rule> view_rules() { return kRules; }

}  // namespace optc
