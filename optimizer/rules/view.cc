// view.*: chains of operators that only give the same elements other dims.
#include <algorithm>
#include <numeric>
#include <optional>

#include "optimizer/rules/chain.h"
#include "optimizer/rules/view.h"

namespace optc {

bool is_view(const RuleContext &context, NodeId node) {
  if (!node.valid()) return false;
  const std::string &op = context.node(node).op;
  return op == "Reshape" || op == "Flatten" || op == "Squeeze" || op == "Unsqueeze";
}

std::optional<std::vector<int64_t>> target_shape(const RuleContext &context, ValueId operand, ValueId value) {
  if (!context.type(value).has_shape() || !context.type(operand).has_shape()) return std::nullopt;
  return target_shape(context, context.shape(operand), context.shape(value));
}

std::optional<std::vector<int64_t>> target_shape(const RuleContext &context, const Shape &from, const Shape &to) {
  constexpr size_t kNone = SIZE_MAX;
  size_t symbolic = 0, moved = kNone;  // moved: not the operand's dim of that place
  for (size_t d = 0; d < to.size(); ++d) {
    if (to[d].is(0)) return std::nullopt;
    if (to[d].is_constant()) continue;
    ++symbolic;
    if (d < from.size() && from[d] == to[d]) continue;
    if (moved != kNone) return std::nullopt;
    moved = d;
  }
  std::vector<int64_t> target;
  for (size_t d = 0; d < to.size(); ++d) {
    const bool found = symbolic == 1 || d == moved;
    // Beside a dim that is copied a -1 says nothing where that dim is 0.
    if (!to[d].is_constant() && !found && moved != kNone && lower_bound(to[d]) < 1 && !context.fails_at_zero(to[d]))
      return std::nullopt;
    target.push_back(to[d].is_constant() ? to[d].value() : found ? -1 : 0);
  }
  return target;
}

namespace {

// Without axes the sizes of each run decide what goes: a written model must ask them again.
bool squeezes_by_sizes(const RuleContext &context, NodeId node) {
  return context.node(node).op == "Squeeze" && !context.input(node, 1).valid();
}

// The element count and order never change along the chain: where it comes back to a type it had, what lies between did
// nothing.
Result<bool> round_trip(RuleContext &context, NodeId n) {
  const ValueId out = context.output(n);
  if (squeezes_by_sizes(context, n)) return false;
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
    if (!is_view(context, inner)) return false;
    v = context.input(inner, 0);
  }
  return false;
}

// Whether the shape that a Reshape asks for is an operand of the run: only the Reshape itself can say that the elements
// do not fit it.
bool asks_the_run(const RuleContext &context, NodeId n) {
  if (context.node(n).op != "Reshape") return false;
  const ValueId shape = context.input(n, 1);
  return !context.constant(shape) && !context.graph().value(shape).elements;
}

// A view of a view: the dims say all. A constant shape stays as it is unless a 0 in it copies a dim of the inner view.
Result<bool> chain(RuleContext &context, NodeId n) {
  const NodeId inner = context.producer(context.input(n, 0));
  if (!is_view(context, inner) || squeezes_by_sizes(context, n) || asks_the_run(context, n)) return false;
  const bool only = context.single_use(context.output(inner));
  const Constant *shape = context.node(n).op == "Reshape" ? context.constant(context.input(n, 1)) : nullptr;
  bool copies = shape == nullptr;
  for (int64_t i = 0; shape && i < shape->count(); ++i) copies |= shape->as_int64(i) == 0;
  const auto target = target_shape(context, context.input(inner, 0), context.output(n));
  if (copies && !only) return false;
  if (copies && !target) {
    context.rewriter().missed("view.reshape", n, "the shape copies a dim of the inner view, or several are symbolic");
    return false;
  }
  auto change = context.rewriter().begin("view.reshape", RewriteKind::kFuse, n);
  std::vector<std::pair<std::string, Attribute>> attributes{{"allowzero", int64_t{0}}};
  if (!copies) attributes = context.node(n).attributes;
  const ValueId dims =
      copies ? change.constant(context.node(n).name + ":shape", Constant::int64s(*target)) : context.input(n, 1);
  const NodeId made = change.create("Reshape", {context.input(inner, 0), dims}, std::move(attributes));
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  if (only) change.erase(inner);
  OPTC_TRY(change.commit());
  return true;
}

// The shape is computed, but what it comes to is known up to what a Reshape finds by itself.
Result<bool> known_shape(RuleContext &context, NodeId n) {
  if (context.constant(context.input(n, 1)) || asks_the_run(context, n)) return false;
  const auto target = target_shape(context, context.input(n, 0), context.output(n));
  if (!target) {
    context.rewriter().missed("view.known_shape", n,
                              "several dims are symbolic and not the operand's, or one is and another may be 0");
    return false;
  }
  auto change = context.rewriter().begin("view.known_shape", RewriteKind::kReplace, n);
  const ValueId dims = change.constant(context.node(n).name + ":shape", Constant::int64s(*target));
  const NodeId made = change.create("Reshape", {context.input(n, 0), dims}, {{"allowzero", int64_t{0}}});
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  OPTC_TRY(change.commit());
  return true;
}

// A constant of a Slice that may be left out: its numbers, or `fallback` for each of `count`.
std::optional<std::vector<int64_t>> numbers(const RuleContext &context, ValueId v, size_t count, bool positions,
                                            int64_t fallback) {
  std::vector<int64_t> list(count, fallback);
  if (!v.valid()) {
    if (positions) std::iota(list.begin(), list.end(), 0);
    return list;
  }
  const Constant *c = context.constant(v);
  if (!c || c->count() != static_cast<int64_t>(count)) return std::nullopt;
  for (size_t i = 0; i < count; ++i) list[i] = c->as_int64(static_cast<int64_t>(i));
  return list;
}

struct SliceNumbers {
  std::vector<int64_t> starts, ends, axes, steps;
};
std::optional<SliceNumbers> slice_numbers(const RuleContext &context, NodeId n) {
  const Constant *starts = context.constant(context.input(n, 1));
  if (!starts || !context.type(context.input(n, 0)).has_shape()) return std::nullopt;
  const auto count = static_cast<size_t>(starts->count());
  const auto s = numbers(context, context.input(n, 1), count, false, 0),
             e = numbers(context, context.input(n, 2), count, false, 0),
             a = numbers(context, context.input(n, 3), count, true, 0),
             t = numbers(context, context.input(n, 4), count, false, 1);
  if (!s || !e || !a || !t) return std::nullopt;
  SliceNumbers slice{*s, *e, *a, *t};
  const int64_t rank = context.type(context.input(n, 0)).rank();
  for (int64_t &axis : slice.axes) {
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return std::nullopt;
  }
  return slice;
}

// Slices of other axes, one behind the other, are one; also where several read the first: it goes with the last.
Result<bool> slices(RuleContext &context, NodeId n) {
  const NodeId inner = context.producer(context.input(n, 0), "Slice");
  if (!inner.valid()) return false;
  auto first = slice_numbers(context, inner);
  const auto second = slice_numbers(context, n);
  if (!first || !second) return false;
  for (const Use &use : context.graph().value(context.output(inner)).uses) {
    const bool sliced = use.kind == UseKind::kOperand && use.index == 0 && context.node(use.node).op == "Slice";
    const auto other = sliced ? slice_numbers(context, use.node) : std::nullopt;
    if (!other) {
      context.rewriter().missed("view.slices", n, "the first slice is used elsewhere too");
      return false;
    }
    for (const int64_t axis : other->axes)
      if (std::find(first->axes.begin(), first->axes.end(), axis) != first->axes.end()) {
        context.rewriter().missed("view.slices", n, "both cut one axis");
        return false;
      }
  }
  const bool last = context.single_use(context.output(inner));
  const auto join = [](std::vector<int64_t> &to, const std::vector<int64_t> &more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  join(first->starts, second->starts);
  join(first->ends, second->ends);
  join(first->axes, second->axes);
  join(first->steps, second->steps);
  auto change = context.rewriter().begin("view.slices", RewriteKind::kFuse, n);
  const std::string name = context.node(n).name;
  const auto list = [&](const char *what, const std::vector<int64_t> &values) {
    return change.constant(name + ":" + what, Constant::int64s(values));
  };
  const NodeId made =
      change.create("Slice", {context.input(inner, 0), list("starts", first->starts), list("ends", first->ends),
                              list("axes", first->axes), list("steps", first->steps)});
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  if (last) change.erase(inner);
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

// Unsqueeze(a reduction of x without its axes) at those axes -> the reduction that keeps them
Result<bool> kept_axes(RuleContext &context, NodeId n) {
  const NodeId reduction = context.producer(context.input(n, 0));
  const Constant *added = context.constant(context.input(n, 1));
  if (!reduction.valid() || !added || context.node(reduction).op.rfind("Reduce", 0) != 0 ||
      context.node(reduction).int_or("keepdims", 1) != 0 || !context.type(context.output(n)).has_shape())
    return false;
  const auto axes = reduced_axes(context, reduction);
  if (!axes || axes->empty() || added->count() != static_cast<int64_t>(axes->size())) return false;
  std::vector<int64_t> at;
  for (int64_t i = 0; i < added->count(); ++i) {
    const int64_t axis = added->as_int64(i);
    at.push_back(axis < 0 ? axis + static_cast<int64_t>(context.shape(context.output(n)).size()) : axis);
  }
  std::sort(at.begin(), at.end());
  if (at != *axes) return false;
  if (!context.single_use(context.output(reduction))) return false;
  std::vector<std::pair<std::string, Attribute>> attributes = context.node(reduction).attributes;
  for (auto &[name, value] : attributes)
    if (name == "keepdims") value = int64_t{1};
  auto change = context.rewriter().begin("view.kept_axes", RewriteKind::kFuse, n);
  const NodeId made = change.create(context.node(reduction).op, context.node(reduction).inputs, std::move(attributes));
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  change.erase(reduction);
  OPTC_TRY(change.commit());
  return true;
}

constexpr Rule kRules[] = {
    {"view.round_trip", NumericsClass::kExact, "Reshape Flatten Squeeze Unsqueeze",
     "a chain of views that ends with the type it had before -> the value it had it in",
     "only Reshape, Flatten, Squeeze, Unsqueeze between; dims equal for every value of the symbols", round_trip},
    {"view.reshape", NumericsClass::kExact, "Reshape Flatten Squeeze Unsqueeze",
     "a view of a view -> Reshape of the inner view's operand",
     "the shape is constant and copies no dim (no 0); or the inner view is used nowhere else and at most one dim is "
     "symbolic, or all that are stand where the operand has them",
     chain},
    {"view.known_shape", NumericsClass::kExact, "Reshape", "Reshape to a computed shape -> Reshape to a constant one",
     "at most one dim is symbolic, or all that are stand where the operand has them; none is 0", known_shape},
    {"view.slices", NumericsClass::kExact, "Slice", "Slice(Slice(x)) over other axes -> one Slice",
     "constant starts, ends, axes and steps; only such slices read the first", slices},
    {"view.moved_axis", NumericsClass::kExact, "Squeeze", "Squeeze(Transpose(Unsqueeze(x))) -> Transpose(x)",
     "constant axes, the dims that go are those that were put in, inner values used nowhere else", moved_axis},
    {"view.kept_axes", NumericsClass::kExact, "Unsqueeze",
     "Unsqueeze(a reduction of x that drops its axes) -> the reduction that keeps them",
     "constant axes, the same ones; the reduction's result used once", kept_axes},
};

}  // namespace

std::span<const Rule> view_rules() { return kRules; }

}  // namespace optc
