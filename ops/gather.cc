// Gather, GatherElements, GatherND, ScatterElements, Scatter, ScatterND, TensorScatter, OneHot.

#include "ops/build.h"
#include "ops/conditions.h"
#include "ops/registry.h"
#include "ops/steps.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

Status infer_gather(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  const Shape data = c.shape(0), indices = c.shape(1);
  OPTC_ASSIGN(int64_t axis, c.axis(c.node().int_or("axis", 0), c.rank(0)));
  Shape out(data.begin(), data.begin() + axis);
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), data.begin() + axis + 1, data.end());
  c.set_tensor(0, c.element(0), std::move(out));
  if (const Constant *at = c.constant(1); at && data[static_cast<size_t>(axis)].is_constant()) {
    const int64_t n = data[static_cast<size_t>(axis)].value();
    for (int64_t k = 0; k < at->count(); ++k)
      if (at->as_int64(k) < -n || at->as_int64(k) >= n)
        return c.invalid("index " + std::to_string(at->as_int64(k)) + " is out of range for dimension " +
                         std::to_string(axis) + " of " + std::to_string(n));
  }
  const Dims *elements = c.elements(0);
  if (!elements || data.size() != 1 || indices.size() > 1) return {};
  auto at = static_ints(c.elements(1));
  if (!at) return {};
  Dims picked;
  for (int64_t i : *at) {
    const int64_t n = static_cast<int64_t>(elements->size());
    if (i < -n || i >= n)
      return c.invalid("index " + std::to_string(i) + " is out of range for " + std::to_string(n) + " elements");
    picked.push_back((*elements)[static_cast<size_t>(i < 0 ? i + n : i)]);
  }
  c.set_elements(0, std::move(picked));
  return {};
}

Status build_gather(BuildContext &c) {
  const Shape data = c.shape(0), indices = c.shape(1);
  int64_t axis = c.node().int_or("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(data.size());
  const size_t a = static_cast<size_t>(axis);
  const Dims *known = c.elements(1);
  if (known && known->size() == 1) {  // one index: a view with a fixed coordinate
    Dim at = (*known)[0];
    if (upper_bound(at) < 0) at = at + data[a];
    if (proved_in_range(at, data[a]))
      return c.index_map(c.input(0), c.output(0), [&](const Dims &i) {
        Dims from(i.begin(), i.begin() + axis);
        from.push_back(at);
        from.insert(from.end(), i.begin() + axis + static_cast<int64_t>(indices.size()), i.end());
        return from;
      });
  }
  NestBuilder nest(c, "gather");
  Dims i = nest.outer(c.output_shape(0));
  Dims at(i.begin() + axis, i.begin() + axis + static_cast<int64_t>(indices.size()));
  Dims from(i.begin(), i.begin() + axis);
  from.push_back(wrapped_index(nest, nest.load(c.input(1), at), data[a]));
  from.insert(from.end(), i.begin() + axis + static_cast<int64_t>(indices.size()), i.end());
  nest.store(c.output(0), i, nest.load_raw(c.input(0), from));
  nest.finish();
  return {};
}

// Input 1 (indices) is no longer than input 0 on any axis but `axis`, where its elements say what is meant.
Status indices_fit(InferContext &c, int64_t axis) {
  const Shape data = c.shape(0), indices = c.shape(1);
  for (size_t k = 0; k < data.size(); ++k)
    if (static_cast<int64_t>(k) != axis)
      OPTC_TRY(at_most(c, indices[k], data[k], "dimension " + std::to_string(k) + " of indices"));
  return {};
}

Status infer_gather_elements(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  if (c.rank(0) != c.rank(1)) return c.invalid("data and indices must have one rank");
  OPTC_ASSIGN(const int64_t axis, c.axis(c.node().int_or("axis", 0), c.rank(0)));
  OPTC_TRY(indices_fit(c, axis));
  c.set_tensor(0, c.element(0), c.shape(1));
  return {};
}

Status build_gather_elements(BuildContext &c) {
  int64_t axis = c.node().int_or("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(c.shape(0).size());
  NestBuilder nest(c, "gather elements");
  Dims i = nest.outer(c.output_shape(0)), from = i;
  from[static_cast<size_t>(axis)] =
      wrapped_index(nest, nest.load(c.input(1), i), c.shape(0)[static_cast<size_t>(axis)]);
  nest.store(c.output(0), i, nest.load_raw(c.input(0), from));
  nest.finish();
  return {};
}

// How many numbers an index of GatherND has. Where only the run knows the last dimension of indices, the data's rank
// may leave one number, which the run then checks.
Result<int64_t> gathered_depth(InferContext &c, int64_t batch) {
  const Dim width = c.shape(1).back();
  if (width.is_constant()) return width.value();
  const int64_t least = std::max<int64_t>(lower_bound(width), 1),
                most = std::min<int64_t>(upper_bound(width), c.rank(0) - batch);
  if (least != most)
    return c.unsupported("the rank of the result depends on the last dimension of indices, " + width.str() +
                             ", which only the run decides",
                         "declare the shape of the result in the model, or pin the dimension with --dim");
  OPTC_TRY(c.same(width, least, "the last dimension of indices"));
  return least;
}

Status infer_gather_nd(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  const Shape data = c.shape(0), indices = c.shape(1);
  const int64_t batch = c.node().int_or("batch_dims", 0);
  if (indices.empty()) return c.invalid("indices must have rank 1 or more");
  OPTC_ASSIGN(const int64_t depth, gathered_depth(c, batch));
  if (batch < 0 || batch >= c.rank(1) || batch + depth > c.rank(0) || depth < 0)
    return c.invalid("batch_dims and the depth of indices do not fit the data's rank");
  Shape out(indices.begin(), indices.end() - 1);
  for (size_t k = 0; k < static_cast<size_t>(batch); ++k) {
    OPTC_ASSIGN(out[k], c.same(data[k], indices[k], "a batch dimension"));
  }
  out.insert(out.end(), data.begin() + batch + depth, data.end());
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}

Status build_gather_nd(BuildContext &c) {
  const Shape data = c.shape(0), indices = c.shape(1);
  const size_t batch = static_cast<size_t>(c.node().int_or("batch_dims", 0)),
               depth = data.size() + indices.size() - 1 - batch - c.output_shape(0).size();
  NestBuilder nest(c, "gather nd");
  Dims i = nest.outer(c.output_shape(0));
  const int64_t prefix = static_cast<int64_t>(indices.size()) - 1;
  Dims at(i.begin(), i.begin() + prefix), from(i.begin(), i.begin() + static_cast<int64_t>(batch));
  at.push_back(0);
  for (size_t k = 0; k < depth; ++k) {
    at.back() = static_cast<int64_t>(k);
    from.push_back(wrapped_index(nest, nest.load(c.input(1), at), data[batch + k]));
  }
  from.insert(from.end(), i.begin() + prefix, i.end());
  nest.store(c.output(0), i, nest.load_raw(c.input(0), from));
  nest.finish();
  return {};
}

Result<Combine> reduction(BuildContext &c) {
  const std::string_view name = c.node().string_or("reduction", "none");
  if (name == "none") return Combine::kStore;
  if (name == "add") return Combine::kSum;
  if (name == "mul") return Combine::kProduct;
  if (name == "max") return Combine::kMax;
  if (name == "min") return Combine::kMin;
  return c.invalid("reduction '" + std::string(name) + "' is not known");
}

Dims same_index(const Dims &i) { return i; }

// Writes update[i] to out[to] as the reduction says; the nest is sequential, since indices may repeat.
Status scatter(BuildContext &c, NestBuilder &nest, const Dims &to, BufferId update, const Dims &from) {
  OPTC_ASSIGN(Combine how, reduction(c));
  nest.nest().sequential = true;
  if (how == Combine::kStore) {
    nest.store(c.output(0), to, nest.load_raw(update, from));
  } else {
    nest.combine(c.output(0), to, nest.load(update, from), how);
  }
  nest.finish();
  return {};
}

Status infer_scatter_elements(InferContext &c) {
  for (size_t i = 0; i < 3; ++i) OPTC_TRY(c.require_shape(i));
  if (c.rank(0) != c.rank(1) || c.rank(1) != c.rank(2))
    return c.invalid("data, indices and updates must have one rank");
  OPTC_ASSIGN(const int64_t axis, c.axis(c.node().int_or("axis", 0), c.rank(0)));
  OPTC_TRY(indices_fit(c, axis));
  for (size_t k = 0; k < c.shape(1).size(); ++k)
    OPTC_TRY(c.same(c.shape(1)[k], c.shape(2)[k], "a dimension of indices and updates"));
  c.set_tensor(0, c.element(0), c.shape(0));
  return {};
}

Status build_scatter_elements(BuildContext &c) {
  OPTC_TRY(copy_into(c, "copy", c.input(0), c.output(0), same_index));
  int64_t axis = c.node().int_or("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(c.shape(0).size());
  NestBuilder nest(c, "scatter elements");
  Dims i = nest.outer(c.shape(1)), to = i;
  to[static_cast<size_t>(axis)] = wrapped_index(nest, nest.load(c.input(1), i), c.shape(0)[static_cast<size_t>(axis)]);
  return scatter(c, nest, to, c.input(2), i);
}

Status infer_scatter_nd(InferContext &c) {
  for (size_t i = 0; i < 3; ++i) OPTC_TRY(c.require_shape(i));
  const Shape data = c.shape(0), indices = c.shape(1), updates = c.shape(2);
  if (indices.empty()) return c.invalid("indices must have rank 1 or more");
  const int64_t depth = c.rank(1) - 1 + c.rank(0) - c.rank(2);  // as the ranks say
  if (depth >= 0) OPTC_TRY(c.same(indices.back(), depth, "the last dimension of indices"));
  if (depth < 0 || depth > c.rank(0) || c.rank(2) != c.rank(1) - 1 + c.rank(0) - depth)
    return c.invalid("the ranks of data, indices and updates do not fit");
  for (size_t k = 0; k < updates.size(); ++k) {
    const size_t prefix = indices.size() - 1;
    OPTC_TRY(c.same(updates[k], k < prefix ? indices[k] : data[k - prefix + static_cast<size_t>(depth)],
                    "a dimension of updates"));
  }
  c.set_tensor(0, c.element(0), data);
  // Shape arithmetic that replaces entries of a shape.
  const Dims *elements = c.elements(0), *values = c.elements(2);
  const Constant *at = c.constant(1);
  if (elements && values && at && depth == 1 && c.node().string_or("reduction", "none") == "none" &&
      static_cast<int64_t>(values->size()) == at->count()) {
    Dims changed = *elements;
    const int64_t n = static_cast<int64_t>(changed.size());
    for (int64_t i = 0; i < at->count(); ++i) {
      const int64_t k = at->as_int64(i) < 0 ? at->as_int64(i) + n : at->as_int64(i);
      if (k < 0 || k >= n) return c.invalid("index " + std::to_string(at->as_int64(i)) + " is out of range");
      changed[static_cast<size_t>(k)] = (*values)[static_cast<size_t>(i)];
    }
    c.set_elements(0, std::move(changed));
  }
  return {};
}

Status build_scatter_nd(BuildContext &c) {
  OPTC_TRY(copy_into(c, "copy", c.input(0), c.output(0), same_index));
  const Shape data = c.shape(0), indices = c.shape(1);
  const size_t depth = indices.size() - 1 + data.size() - c.shape(2).size();
  NestBuilder nest(c, "scatter nd");
  Dims i = nest.outer(c.shape(2));
  const int64_t prefix = static_cast<int64_t>(indices.size()) - 1;
  Dims at(i.begin(), i.begin() + prefix), to;
  at.push_back(0);
  for (size_t k = 0; k < depth; ++k) {
    at.back() = static_cast<int64_t>(k);
    to.push_back(wrapped_index(nest, nest.load(c.input(1), at), data[k]));
  }
  to.insert(to.end(), i.begin() + prefix, i.end());
  return scatter(c, nest, to, c.input(2), i);
}

Status infer_tensor_scatter(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  if (c.rank(0) != c.rank(1)) return c.invalid("past_cache and update must have one rank");
  OPTC_ASSIGN(int64_t axis, c.axis(c.node().int_or("axis", -2), c.rank(0)));
  if (axis == 0) return c.invalid("axis cannot be the batch");
  for (size_t k = 0; k < c.shape(0).size(); ++k)
    if (static_cast<int64_t>(k) != axis)
      OPTC_TRY(c.same(c.shape(0)[k], c.shape(1)[k], "a dimension of past_cache and update"));
  if (c.has_input(2)) {
    OPTC_TRY(c.require_shape(2));
    if (c.rank(2) != 1) return c.invalid("write_indices must be a vector");
    OPTC_TRY(c.same(c.shape(2)[0], c.shape(0)[0], "the length of write_indices and the batch"));
  }
  if (c.node().string_or("mode", "linear") != "circular")
    OPTC_TRY(at_most(c, c.shape(1)[static_cast<size_t>(axis)], c.shape(0)[static_cast<size_t>(axis)],
                     "the length of the update"));
  c.set_tensor(0, c.element(0), c.shape(0));
  return {};
}

Status build_tensor_scatter(BuildContext &c) {
  OPTC_TRY(copy_into(c, "copy", c.input(0), c.output(0), same_index));
  int64_t axis = c.node().int_or("axis", -2);
  if (axis < 0) axis += static_cast<int64_t>(c.shape(0).size());
  const size_t a = static_cast<size_t>(axis);
  const Dim extent = c.shape(0)[a];
  NestBuilder nest(c, "tensor scatter");
  Dims i = nest.outer(c.shape(1)), to = i;
  if (c.has_input(2)) {
    Expr at = nest.load(c.input(2), {i[0]}) + nest.index(i[a]);
    if (c.node().string_or("mode", "linear") == "circular") at = apply(ScalarOp::kMod, at, nest.index(max(extent, 1)));
    to[a] = nest.as_index(at, extent);
  } else if (c.node().string_or("mode", "linear") == "circular") {
    to[a] = mod(i[a], extent);
  }
  nest.nest().sequential = true;
  nest.store(c.output(0), to, nest.load_raw(c.input(1), i));
  nest.finish();
  return {};
}

Status infer_one_hot(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  OPTC_TRY(c.require_shape(2));
  const int64_t rank = c.rank(0) + 1;
  OPTC_ASSIGN(int64_t axis, c.axis(c.node().int_or("axis", -1), rank));
  OPTC_ASSIGN([[maybe_unused]] Dim one, c.same(element_count(c.shape(1)), 1, "the number of elements of depth"));
  if (c.rank(2) != 1) return c.invalid("values must have rank 1");
  OPTC_ASSIGN([[maybe_unused]] Dim two, c.same(c.shape(2)[0], 2, "the number of values"));
  Dim depth;
  if (const Dims *known = c.elements(1); known && known->size() == 1) {
    depth = (*known)[0];
  } else if (const Constant *constant = c.constant(1); constant && constant->count() == 1) {
    depth = constant->as_int64(0);
  } else {
    depth = c.run_time_size(0, static_cast<size_t>(axis));
  }
  if (depth.is_constant() && depth.value() < 0) return c.invalid("depth is negative");
  Shape out = c.shape(0);
  out.insert(out.begin() + axis, depth);
  c.set_tensor(0, c.element(2), std::move(out));
  return {};
}

Status build_one_hot(BuildContext &c) {
  int64_t axis = c.node().int_or("axis", -1);
  if (axis < 0) axis += static_cast<int64_t>(c.output_shape(0).size());
  const Dim depth = c.output_shape(0)[static_cast<size_t>(axis)];
  if (is_run_time_size(depth) && !c.elements(1) && !c.constant(1)) {
    BufferId wide = c.temporary("depth", ElementType::kInt64, {1});
    NestBuilder nest(c, "depth");
    nest.store(wide, {0}, cast(nest.load(c.input(1), c.shape(1).empty() ? Dims{} : Dims{0}), ElementType::kInt64));
    nest.finish();
    c.library("value_sizes", {BufferId(), wide}, {}, {}, {single_symbol(depth)});
  }
  NestBuilder nest(c, "one hot");
  Dims i = nest.outer(c.output_shape(0)), at = i;
  const Dim position = i[static_cast<size_t>(axis)];
  at.erase(at.begin() + axis);
  Expr index = cast(nest.load(c.input(0), at), ElementType::kInt64);
  index = select(less(index, index.constant(0)), index + nest.index(depth), index);
  Expr hit = equal(index, nest.index(position));
  nest.store(c.output(0), i, select(hit, nest.load(c.input(2), {1}), nest.load(c.input(2), {0})));
  nest.finish();
  return {};
}

Status no_reduction_16(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (graph.node(node).string_or("reduction", "none") != "none")
    return cannot_lower(graph, node, "a reduction in a scatter", 16, diagnostics);
  graph.remove_attribute(node, "reduction");
  return {};
}
Status no_reduction_18(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const std::string_view how = graph.node(node).string_or("reduction", "none");
  if (how == "max" || how == "min") return cannot_lower(graph, node, "reduction max and min", 18, diagnostics);
  return {};
}
// Scatter of opset 9 is ScatterElements of opset 11 under its older name.
Status older_name(Graph &graph, NodeId node, Diagnostics &) {
  graph.set_op(node, "Scatter");
  return {};
}
Status gather_nd_batch(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (graph.node(node).int_or("batch_dims", 0) != 0) return cannot_lower(graph, node, "batch_dims", 12, diagnostics);
  graph.remove_attribute(node, "batch_dims");
  return {};
}

const VersionStep kScatterSteps[] = {{16, nullptr, no_reduction_16}, {18, nullptr, no_reduction_18}};
const VersionStep kScatterElementsSteps[] = {
    {11, nullptr, older_name}, {16, nullptr, no_reduction_16}, {18, nullptr, no_reduction_18}};
const VersionStep kGatherNdSteps[] = {{12, nullptr, gather_nd_batch}};

const OpDef kOps[] = {
    {"Gather", OpForm::kIndex, 13, infer_gather, build_gather},
    {"GatherElements", OpForm::kIndex, 13, infer_gather_elements, build_gather_elements},
    {"GatherND", OpForm::kIndex, 13, infer_gather_nd, build_gather_nd, kGatherNdSteps},
    {"Scatter", OpForm::kIndex, 11, infer_scatter_elements, build_scatter_elements},
    {"ScatterElements", OpForm::kIndex, 18, infer_scatter_elements, build_scatter_elements, kScatterElementsSteps},
    {"ScatterND", OpForm::kIndex, 18, infer_scatter_nd, build_scatter_nd, kScatterSteps},
    {"TensorScatter", OpForm::kIndex, 24, infer_tensor_scatter, build_tensor_scatter},
    {"OneHot", OpForm::kIndex, 28, infer_one_hot, build_one_hot},
};

}  // namespace

std::span<const OpDef> gather_ops() { return kOps; }

}  // namespace optc
