// Slice and Pad.

#include <algorithm>

#include "ops/build.h"
#include "ops/conditions.h"
#include "ops/elements.h"
#include "ops/registry.h"
#include "ops/steps.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;
constexpr int64_t kFar = int64_t{1} << 40;    // an end beyond this means "to the end"
constexpr int64_t kUnlikely = 1'000'000'000;  // exporters write that, or INT32_MAX, for "to the end"

// --- Slice
// ----------------------------------------------------------------------------------------------------------------------

struct SliceAxis {
  Dim start = 0;
  int64_t step = 1;
  Dim count;
};

// value + (value < 0 ? extent : 0), clamped to [low, extent + high_offset]; nullopt when its sign is not known.
std::optional<Dim> bound(Dim value, Dim extent, int64_t low, int64_t high_offset) {
  const Dim high = extent + high_offset;
  if (value.is_constant() && value.value() >= kFar) return high;
  if (value.is_constant() && value.value() <= -kFar) return Dim(low);
  if (lower_bound(value) >= 0) return min(value, high);
  if (upper_bound(value) < 0) return max(value + extent, low);
  // A difference of an extent and something (N - k): its sign is open, but it cannot pass the end.
  return std::nullopt;
}

// The slice of each dimension when starts, ends (expressions), axes and steps (numbers) are known; nullopt when only
// the run knows.
std::optional<std::vector<SliceAxis>> resolve_slice(const Shape &in, const Dims *starts, const Dims *ends,
                                                    const std::optional<std::vector<int64_t>> &axes,
                                                    const std::optional<std::vector<int64_t>> &steps) {
  if (!starts || !ends || !axes || !steps) return std::nullopt;
  std::vector<SliceAxis> result(in.size());
  for (size_t k = 0; k < in.size(); ++k) result[k].count = in[k];
  for (size_t j = 0; j < axes->size(); ++j) {
    const size_t k = static_cast<size_t>((*axes)[j]);
    SliceAxis &slice = result[k];
    slice.step = (*steps)[j];
    const Dim extent = in[k];
    if (slice.step > 0) {
      auto start = bound((*starts)[j], extent, 0, 0), end = bound((*ends)[j], extent, 0, 0);
      if (!start || !end) return std::nullopt;
      slice.start = *start;
      slice.count = max(ceil_div(*end - *start, slice.step), 0);
    } else {
      // The start is clamped to [0, extent - 1], the end to [-1, extent - 1].
      auto start = bound((*starts)[j], extent, 0, -1), end = bound((*ends)[j], extent, -1, -1);
      if (!start || !end) return std::nullopt;
      slice.start = *start;
      slice.count = max(ceil_div(*start - *end, -slice.step), 0);
      if (lower_bound(extent) < 1) slice.count = min(slice.count, extent);
    }
  }
  return result;
}

// Axes and steps as numbers, axes in [0, rank) and each once; nullopt when only the run knows them.
template <typename Context>
std::optional<std::vector<int64_t>> slice_axes(Context &c, int64_t rank, std::optional<int64_t> count) {
  if (!c.has_input(3)) {
    if (!count) return std::nullopt;
    std::vector<int64_t> axes;
    for (int64_t j = 0; j < *count; ++j) axes.push_back(j);
    return axes;
  }
  auto axes = static_ints(c.elements(3));
  if (!axes) axes = constant_ints(c.constant(3));
  if (axes)
    for (int64_t &axis : *axes) axis += axis < 0 ? rank : 0;
  return axes;
}
template <typename Context>
std::optional<std::vector<int64_t>> slice_steps(Context &c, std::optional<int64_t> count) {
  if (!c.has_input(4) && !count) return std::nullopt;
  if (!c.has_input(4)) return std::vector<int64_t>(static_cast<size_t>(*count), 1);
  auto steps = static_ints(c.elements(4));
  if (!steps) steps = constant_ints(c.constant(4));
  constexpr int64_t kFar = int64_t{1} << 40;  // longer than any dimension: such steps take one element
  if (steps)
    for (int64_t &step : *steps) step = std::clamp(step, -kFar, kFar);
  return steps;
}

// Starts or ends as expressions; numbers that say "to the end" saturate. Null when only the run knows them.
template <typename Context>
std::shared_ptr<const Dims> slice_bounds(Context &c, size_t input) {
  if (const Dims *elements = c.elements(input)) return std::make_shared<const Dims>(*elements);
  const Constant *constant = c.constant(input);
  return constant ? constant_bounds(*constant) : nullptr;
}

// An end as far as exporters write for "to the end" bounds a dim of the model's inputs (which each run checks), so that
// what is sliced keeps the dim's name: min(N, 1000000000) would meet N in every later broadcast.
void bound_extents(InferContext &c, const Shape &in, const Dims *starts, const Dims *ends,
                   const std::optional<std::vector<int64_t>> &axes, const std::optional<std::vector<int64_t>> &steps) {
  if (!starts || !ends || !axes || !steps || !(c.node().region == Graph::main())) return;
  for (size_t j = 0; j < axes->size(); ++j) {
    const Dim extent = in[static_cast<size_t>((*axes)[j])], far = (*steps)[j] > 0 ? (*ends)[j] : (*starts)[j];
    const DimSymbol *symbol = single_symbol(extent);
    if (!symbol || symbol->kind != SymbolKind::kModel || !far.is_constant()) continue;
    if (far.value() >= kUnlikely && far.value() < kFar && far.value() < symbol->max && far.value() >= symbol->min)
      c.dims().set_bounds(symbol, symbol->min, far.value());
  }
}

const Shape *known_shape(InferContext &c, size_t i) { return c.has_input(i) && c.has_shape(i) ? &c.shape(i) : nullptr; }
const Shape *known_shape(BuildContext &c, size_t i) { return c.has_input(i) ? &c.shape(i) : nullptr; }

// How many axes are cut, as the length of one of the lists tells it; nullopt where only the run knows any.
template <typename Context>
std::optional<int64_t> slice_count(Context &c) {
  for (const size_t i : {size_t{1}, size_t{3}, size_t{2}, size_t{4}}) {
    const Shape *list = known_shape(c, i);
    if (!list) continue;
    if (list->empty()) return 1;
    if ((*list)[0].is_constant()) return (*list)[0].value();
  }
  return std::nullopt;
}

// That the lists are as long as one another; lengths that the run finds are checked there.
Status check_lists(InferContext &c, const std::optional<int64_t> &count) {
  OPTC_TRY(c.require_shape(1));
  constexpr const char *kLists[] = {"", "starts", "ends", "axes", "steps"};
  for (size_t i = 1; i < 5; ++i) {
    if (!c.has_input(i) || !c.has_shape(i)) continue;
    if (c.rank(i) > 1) return c.invalid(std::string(kLists[i]) + " must be a vector");
    if (count) OPTC_TRY(has_length(c, i, kLists[i], *count, "axes"));
  }
  if (count && *count > c.rank(0)) return c.invalid("more axes are cut than there are dimensions");
  return {};
}

Status infer_slice(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (!c.has_input(1) || !c.has_input(2)) return c.invalid("Slice needs starts and ends");
  const Shape in = c.shape(0);
  const std::optional<int64_t> count = slice_count(c);
  OPTC_TRY(check_lists(c, count));
  const auto starts = slice_bounds(c, 1), ends = slice_bounds(c, 2);
  const auto axes = slice_axes(c, c.rank(0), count), steps = slice_steps(c, count);
  if (axes) {
    std::vector<bool> seen(in.size(), false);
    for (int64_t axis : *axes) {
      if (axis < 0 || axis >= c.rank(0))
        return c.invalid("an axis is out of range for rank " + std::to_string(in.size()));
      if (seen[static_cast<size_t>(axis)]) return c.invalid("an axis is listed twice");
      seen[static_cast<size_t>(axis)] = true;
    }
  }
  if (steps)
    for (int64_t step : *steps)
      if (step == 0) return c.invalid("a step is 0");
  bound_extents(c, in, starts.get(), ends.get(), axes, steps);
  auto slices = resolve_slice(in, starts.get(), ends.get(), axes, steps);
  Shape out;
  for (size_t k = 0; k < in.size(); ++k) {
    bool touched = !axes;
    if (axes)
      for (int64_t axis : *axes) touched = touched || static_cast<size_t>(axis) == k;
    out.push_back(slices ? (*slices)[k].count : touched ? c.run_time_size(0, k) : in[k]);
  }
  const Dims *elements = c.elements(0);
  bool fixed = slices && elements && is_static(in) && is_static(out);
  for (size_t k = 0; fixed && k < in.size(); ++k) fixed = (*slices)[k].start.is_constant();
  if (fixed) {
    Dims kept;
    const int64_t count_out = element_count(out).value();
    for (int64_t e = 0; e < count_out; ++e) {
      int64_t rest = e, from = 0, stride = 1;
      for (size_t k = in.size(); k-- > 0;) {
        from += ((*slices)[k].start.value() + rest % out[k].value() * (*slices)[k].step) * stride;
        rest /= out[k].value();
        stride *= in[k].value();
      }
      kept.push_back((*elements)[static_cast<size_t>(from)]);
    }
    c.set_tensor(0, c.element(0), std::move(out));
    c.set_elements(0, std::move(kept));
    return {};
  }
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}

Status build_slice(BuildContext &c) {
  const Shape in = c.shape(0), out = c.output_shape(0);
  const std::optional<int64_t> count = slice_count(c);
  auto axes = slice_axes(c, static_cast<int64_t>(in.size()), count);
  const auto starts = slice_bounds(c, 1), ends = slice_bounds(c, 2);
  auto slices = resolve_slice(in, starts.get(), ends.get(), axes, slice_steps(c, count));
  if (slices)
    return c.index_map(c.input(0), c.output(0), [&](const Dims &i) {
      Dims from = i;
      for (size_t k = 0; k < i.size(); ++k) from[k] = (*slices)[k].start + i[k] * (*slices)[k].step;
      return from;
    });
  const int64_t rank = static_cast<int64_t>(in.size());
  BufferId plan = c.temporary("plan", ElementType::kInt64, {2 * rank});
  std::vector<BufferId> inputs = {c.input(0), c.input(1), c.input(2), c.has_input(3) ? c.input(3) : BufferId(),
                                  c.has_input(4) ? c.input(4) : BufferId()};
  std::vector<const DimSymbol *> symbols;
  for (size_t k = 0; k < out.size(); ++k)
    symbols.push_back(is_run_time_size(out[k]) && !(out[k] == in[k]) ? single_symbol(out[k]) : nullptr);
  c.library("slice_sizes", inputs, {plan}, {}, symbols);
  NestBuilder nest(c, "slice");
  Dims i = nest.outer(out), from = i;
  for (int64_t k = 0; k < rank; ++k) {
    const size_t at = static_cast<size_t>(k);
    if (out[at] == in[at]) continue;
    from[at] = nest.as_index(nest.load(plan, {k}) + nest.index(i[at]) * nest.load(plan, {rank + k}), in[at]);
  }
  nest.store(c.output(0), i, nest.load_raw(c.input(0), from));
  nest.finish();
  return {};
}

Status slice_to_inputs(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  OPTC_TRY(attribute_to_input(graph, node, "starts", 1, diagnostics));
  OPTC_TRY(attribute_to_input(graph, node, "ends", 2, diagnostics));
  return attribute_to_input(graph, node, "axes", 3, diagnostics);
}
Status slice_to_attributes(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (const Constant *steps = graph.constant(graph.node(node).input(4))) {
    for (int64_t i = 0; i < steps->count(); ++i)
      if (steps->as_int64(i) != 1) return cannot_lower(graph, node, "a Slice with steps", 10, diagnostics);
    graph.set_input(node, 4, ValueId());
  } else if (graph.node(node).input(4).valid()) {
    return cannot_lower(graph, node, "a Slice with steps", 10, diagnostics);
  }
  OPTC_TRY(input_to_attribute(graph, node, 3, "axes", diagnostics));
  OPTC_TRY(input_to_attribute(graph, node, 2, "ends", diagnostics));
  return input_to_attribute(graph, node, 1, "starts", diagnostics);
}

// --- Pad
// ------------------------------------------------------------------------------------------------------------------------

struct AxisPads {
  std::optional<Dim> begin = Dim(0), end = Dim(0);  // nullopt: only the run knows it
  bool none() const { return begin && end && begin->is(0) && end->is(0); }
};

struct PadPlan {
  std::vector<AxisPads> axes;  // of every dimension
  bool whole = true;           // every pad is known
};

// Nullopt where pads and axes do not fit one another or the rank. Where only the run knows which axes are padded,
// nothing is known of any.
template <typename Context>
std::optional<PadPlan> resolve_pads(Context &c, size_t rank) {
  const AxisPads unknown{std::nullopt, std::nullopt};
  std::vector<int64_t> axes;
  if (c.has_input(3)) {
    auto given = static_ints(c.elements(3));
    if (!given) given = constant_ints(c.constant(3));
    if (!given) return PadPlan{std::vector<AxisPads>(rank, unknown), false};
    axes = *given;
  } else {
    for (size_t k = 0; k < rank; ++k) axes.push_back(static_cast<int64_t>(k));
  }
  const Dims *known = c.elements(1);
  if (known && known->size() != 2 * axes.size()) return std::nullopt;
  const auto pads = known_entries(c.graph(), c.node().input(1), static_cast<int64_t>(2 * axes.size()));
  PadPlan plan{std::vector<AxisPads>(rank), true};
  std::vector<int64_t> seen;
  for (size_t j = 0; j < axes.size(); ++j) {
    const int64_t axis = axes[j] < 0 ? axes[j] + static_cast<int64_t>(rank) : axes[j];
    if (axis < 0 || axis >= static_cast<int64_t>(rank) || std::count(seen.begin(), seen.end(), axis))
      return std::nullopt;
    seen.push_back(axis);
    plan.axes[static_cast<size_t>(axis)] = {pads[j], pads[axes.size() + j]};
    plan.whole = plan.whole && pads[j] && pads[axes.size() + j];
  }
  return plan;
}

// What negative pads leave of a dimension. By wrapping, it is that which goes round, as in ONNX Runtime: ONNX does not
// say whether the cut comes first. The other modes give the same either way.
Dim kept(Dim extent, Dim begin, Dim end) { return extent + min(begin, 0) + min(end, 0); }

Status infer_pad(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape in = c.shape(0);
  const std::string mode(c.node().string_or("mode", "constant"));
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    return c.invalid("mode '" + mode + "' is not known");
  const auto plan = resolve_pads(c, in.size());
  if (!plan) return c.invalid("pads do not fit the axes");
  Shape out;
  for (size_t k = 0; k < in.size(); ++k) {
    if (!plan->axes[k].begin || !plan->axes[k].end) {
      out.push_back(c.run_time_size(0, k));
      continue;
    }
    const Dim begin = *plan->axes[k].begin, end = *plan->axes[k].end;
    out.push_back(in[k] + begin + end);
    if (mode == "reflect" && (proved_at_least(begin, max(in[k], 1)) || proved_at_least(end, max(in[k], 1))))
      return c.invalid("reflect: a pad of dimension " + std::to_string(k) + " is not smaller than the dimension, " +
                       in[k].str());
    if (out[k].is_constant() && out[k].value() < 0)
      return c.invalid("dimension " + std::to_string(k) + " becomes negative");
    OPTC_TRY(at_most(c, 0, out[k], "a negative pad"));
    if (mode == "reflect" && !plan->axes[k].none())
      for (Dim pad : {begin, end})
        OPTC_TRY(at_most(c, pad, max(in[k] - 1, 0), "a pad of dimension " + std::to_string(k) + " by reflection"));
    // Every element of the result is one of the operand's.
    if ((mode == "edge" || mode == "wrap") && lower_bound(in[k]) < 1 &&
        !(upper_bound(begin) <= 0 && upper_bound(end) <= 0))
      OPTC_TRY(at_most(c, min(out[k], 1), mode == "wrap" ? kept(in[k], begin, end) : in[k],
                       "the result of a pad by " + mode));
  }
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}

Status build_pad(BuildContext &c) {
  const Shape in = c.shape(0), out = c.output_shape(0);
  const std::string mode(c.node().string_or("mode", "constant"));
  const auto plan = resolve_pads(c, in.size());
  if (!plan) return c.invalid("pads do not fit the axes");
  BufferId begins;
  if (!plan->whole) {
    begins = c.temporary("begins", ElementType::kInt64, {static_cast<int64_t>(in.size())});
    c.library("pad_sizes", {c.input(0), c.input(1), c.has_input(3) ? c.input(3) : BufferId()}, {begins},
              {{"mode", mode}}, own_symbols(c, 0));
  }
  NestBuilder nest(c, "pad");
  Dims i = nest.outer(out), from = i;
  Expr inside;
  for (size_t k = 0; k < i.size(); ++k) {
    const Dim extent = in[k];
    const AxisPads &pads = plan->axes[k];
    if (pads.none()) continue;
    Dim at;
    if (pads.begin && pads.end) {
      at = i[k] - *pads.begin;
      if (proved_at_least(at, 0) && proved_less(at, extent)) {
        from[k] = at;
        continue;
      }
    } else {
      // The symbol lies in [0, extent of the padded tensor + what is cut); shifted back below.
      Expr moved = nest.index(i[k]) - nest.load(begins, {static_cast<int64_t>(k)});
      Expr last = nest.index(extent - 1), zero = nest.index(0);
      Expr period = nest.index(max(extent * 2 - 2, 1));
      if (mode == "constant") {
        inside = both(inside, both(less_equal(zero, moved), less_equal(moved, last)));
      } else if (mode == "reflect") {
        Expr m = apply(ScalarOp::kMod, moved, period);
        moved = apply(ScalarOp::kMin, m, period - m);
      } else if (mode == "wrap") {
        Expr begin = nest.load(begins, {static_cast<int64_t>(k)}), end = nest.index(out[k] - extent) - begin;
        Expr cut = apply(ScalarOp::kMin, begin, zero);
        Expr round = nest.index(extent) + cut + apply(ScalarOp::kMin, end, zero);
        moved = apply(ScalarOp::kMod, moved + cut, apply(ScalarOp::kMax, round, nest.index(1))) - cut;
      }
      // Of an empty input the index is 0, and `inside` holds nowhere.
      const Dim bound = mode == "constant" ? max(extent, 1) : extent;
      from[k] = nest.as_index(apply(ScalarOp::kMax, apply(ScalarOp::kMin, moved, last), zero), bound);
      continue;
    }
    if (mode == "constant") {
      inside = both(inside, in_range(nest, at, extent));
      from[k] = clamp(at, 0, extent - 1);
    } else if (mode == "reflect") {
      const Dim last = extent - 1, period = max(last * 2, 1);
      // Margins of no more than the tensor are met once at either end.
      const bool once = proved_at_least(last, *pads.begin) && proved_at_least(last, *pads.end);
      const Dim m = once ? max(at, -at) : mod(at, period);
      from[k] = extent.is(1) ? Dim(0) : min(m, period - m);
      if (!extent.is_constant()) from[k] = min(from[k], last);
    } else if (mode == "wrap") {
      const Dim cut = min(*pads.begin, 0);
      from[k] = mod(at + cut, kept(extent, *pads.begin, *pads.end)) - cut;
    } else {
      from[k] = clamp(at, 0, extent - 1);
    }
  }
  if (!inside.valid()) {
    nest.store(c.output(0), i, nest.load_raw(c.input(0), from));
    nest.finish();
    return {};
  }
  // An empty input has no element to clamp to: only the fill remains.
  bool empty = false;
  for (Dim d : in) empty = empty || d.is(0);
  const ElementType type = compute_type(c.input_type(0).element);
  Expr fill_value = nest.constant(type, 0);
  if (c.has_input(2)) fill_value = nest.load(c.input(2), c.shape(2).empty() ? Dims{} : Dims{0});
  nest.store(c.output(0), i, empty ? fill_value : select(inside, nest.load(c.input(0), from), fill_value));
  nest.finish();
  return {};
}

Status paddings_renamed(Graph &graph, NodeId node, Diagnostics &) {  // Pad-1 spelled the attribute "paddings"
  if (const Attribute *paddings = graph.node(node).attribute("paddings")) {
    graph.set_attribute(node, "pads", Attribute(*paddings));
    graph.remove_attribute(node, "paddings");
  }
  return {};
}
Status pads_to_input(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  OPTC_TRY(attribute_to_input(graph, node, "pads", 1, diagnostics));
  return attribute_to_input(graph, node, "value", 2, diagnostics);
}
Status pads_to_attribute(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (const ValueId value = graph.node(node).input(2); value.valid()) {
    const Constant *constant = graph.constant(value);
    if (!constant) return cannot_lower(graph, node, "a Pad with a computed value", 11, diagnostics);
    graph.set_attribute(node, "value", static_cast<float>(constant->as_double(0)));
    graph.set_input(node, 2, ValueId());
  }
  return input_to_attribute(graph, node, 1, "pads", diagnostics);
}
Status no_pad_axes(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Node &n = graph.node(node);
  if (!n.input(3).valid()) return {};
  const Constant *axes = graph.constant(n.input(3)), *pads = graph.constant(n.input(1));
  const Type &type = graph.value(n.input(0)).type;
  if (!axes || !pads || !type.has_shape() || pads->count() != 2 * axes->count())
    return cannot_lower(graph, node, "a Pad with axes", 18, diagnostics);
  const int64_t rank = type.rank();
  std::vector<int64_t> all(static_cast<size_t>(2 * rank), 0);
  for (int64_t j = 0; j < axes->count(); ++j) {
    const int64_t axis = axes->as_int64(j) < 0 ? axes->as_int64(j) + rank : axes->as_int64(j);
    all[static_cast<size_t>(axis)] = pads->as_int64(j);
    all[static_cast<size_t>(rank + axis)] = pads->as_int64(axes->count() + j);
  }
  graph.set_input(node, 3, ValueId());
  graph.set_input(node, 1, graph.add_constant(graph.unique_name(n.name + "_pads"), Constant::int64s(all)));
  return {};
}
Status no_wrap(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (graph.node(node).string_or("mode", "constant") == "wrap")
    return cannot_lower(graph, node, "mode wrap", 19, diagnostics);
  return {};
}

const VersionStep kSliceSteps[] = {{10, slice_to_inputs, slice_to_attributes}};
const VersionStep kPadSteps[] = {{2, paddings_renamed, nullptr},
                                 {11, pads_to_input, pads_to_attribute},
                                 {18, nullptr, no_pad_axes},
                                 {19, nullptr, no_wrap}};

const OpDef kOps[] = {
    {"Slice", OpForm::kIndex, 13, infer_slice, build_slice, kSliceSteps},
    {"Pad", OpForm::kIndex, 25, infer_pad, build_pad, kPadSteps},
};

}  // namespace

std::span<const OpDef> slice_ops() { return kOps; }

}  // namespace optc
