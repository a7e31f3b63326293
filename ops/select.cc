// NonZero, Compress, Unique, TopK, NonMaxSuppression, DynamicTimeWarping (library functions that find sizes), and
// ConstantOfShape, EyeLike, Range.

#include <cmath>

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/steps.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

int64_t bound_of(Dim count) { return upper_bound(count); }

Status infer_nonzero(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  c.set_tensor(0, ElementType::kInt64, {c.rank(0), c.run_time_size(0, 1, bound_of(element_count(c.shape(0))))});
  return {};
}
Status build_nonzero(BuildContext &c) {
  c.library("nonzero", {c.input(0)}, {c.output(0)}, {}, {single_symbol(c.output_shape(0)[1])});
  return {};
}

Status infer_compress(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  if (c.rank(1) != 1) return c.invalid("condition must be a vector");
  if (!c.node().attribute("axis")) {
    c.set_tensor(0, c.element(0), {c.run_time_size(0, 0, bound_of(element_count(c.shape(0))))});
    return {};
  }
  OPTC_ASSIGN(int64_t axis, c.axis(c.node().int_or("axis", 0), c.rank(0)));
  Shape out = c.shape(0);
  out[static_cast<size_t>(axis)] =
      c.run_time_size(0, static_cast<size_t>(axis), bound_of(out[static_cast<size_t>(axis)]));
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}
// The attributes that say which axis a library function works along; absent stays absent.
std::vector<std::pair<std::string, Attribute>> axis_attributes(const Node &node) {
  std::vector<std::pair<std::string, Attribute>> attributes;
  if (node.attribute("axis")) attributes.push_back({"axis", node.int_or("axis", 0)});
  return attributes;
}
Status build_compress(BuildContext &c) {
  int64_t axis = c.node().int_or("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(c.shape(0).size());
  c.library("compress", {c.input(0), c.input(1)}, {c.output(0)}, axis_attributes(c.node()),
            {single_symbol(c.output_shape(0)[static_cast<size_t>(axis)])});
  return {};
}

Status infer_unique(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  Shape out = {element_count(c.shape(0))};
  int64_t axis = 0;
  if (c.node().attribute("axis")) {
    OPTC_ASSIGN(axis, c.axis(c.node().int_or("axis", 0), c.rank(0)));
    out = c.shape(0);
  }
  const size_t at = static_cast<size_t>(axis);
  const Dim whole = out[at];
  Dim found;  // one symbol for all outputs, kept by the first that is there
  if (c.has_output(0)) {
    found = c.run_time_size(0, at, bound_of(whole));
  } else {
    found = c.run_time_size(c.has_output(1) ? 1 : 3, 0, bound_of(whole));
  }
  out[at] = found;
  c.set_tensor(0, c.element(0), std::move(out));
  c.set_tensor(1, ElementType::kInt64, {found});
  c.set_tensor(2, ElementType::kInt64, {whole});
  c.set_tensor(3, ElementType::kInt64, {found});
  return {};
}
Status build_unique(BuildContext &c) {
  std::vector<BufferId> outputs;
  const DimSymbol *found = nullptr;
  int64_t axis = c.node().int_or("axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(c.shape(0).size());
  for (size_t i = 0; i < 4; ++i) {
    outputs.push_back(c.has_output(i) ? c.output(i) : BufferId());
    if (c.has_output(i) && i != 2) found = single_symbol(c.output_shape(i)[i == 0 ? static_cast<size_t>(axis) : 0]);
  }
  auto attributes = axis_attributes(c.node());
  attributes.push_back({"sorted", c.node().int_or("sorted", 1)});
  c.library("unique", {c.input(0)}, outputs, attributes, {found});
  return {};
}

Status infer_topk(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) == 0) return c.invalid("the input must have rank 1 or more");
  OPTC_TRY(c.require_shape(1));
  OPTC_ASSIGN(int64_t axis, c.axis(c.node().int_or("axis", -1), c.rank(0)));
  OPTC_ASSIGN([[maybe_unused]] Dim one, c.same(element_count(c.shape(1)), 1, "the number of elements of K"));
  const size_t at = static_cast<size_t>(axis);
  Shape out = c.shape(0);
  const Dims *k = c.elements(1);
  if (k && k->size() == 1) {
    if (proved_less(out[at], (*k)[0]))
      return c.invalid("k is " + (*k)[0].str() + ", the axis has " + out[at].str() + " elements");
    if (upper_bound((*k)[0]) < 0) return c.invalid("k is negative");
    out[at] = (*k)[0];
  } else {
    out[at] = c.run_time_size(c.has_output(0) ? 0 : 1, at, bound_of(out[at]));
  }
  c.set_tensor(0, c.element(0), out);
  c.set_tensor(1, ElementType::kInt64, std::move(out));
  return {};
}
Status build_topk(BuildContext &c) {
  int64_t axis = c.node().int_or("axis", -1);
  if (axis < 0) axis += static_cast<int64_t>(c.shape(0).size());
  std::vector<const DimSymbol *> defines;
  if (!c.elements(1))
    defines.push_back(single_symbol(c.output_shape(c.has_output(0) ? 0 : 1)[static_cast<size_t>(axis)]));
  c.library("topk", {c.input(0), c.input(1)},
            {c.has_output(0) ? c.output(0) : BufferId(), c.has_output(1) ? c.output(1) : BufferId()},
            {{"axis", axis}, {"largest", c.node().int_or("largest", 1)}, {"sorted", c.node().int_or("sorted", 1)}},
            defines);
  return {};
}
Status topk_k(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  return attribute_to_input(graph, node, "k", 1, diagnostics);
}
Status topk_k_down(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  return input_to_attribute(graph, node, 1, "k", diagnostics, true);
}
Status topk_smallest_down(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (graph.node(node).int_or("largest", 1) == 0)
    return cannot_lower(graph, node, "TopK of the smallest", 11, diagnostics);
  graph.remove_attribute(node, "largest");
  graph.remove_attribute(node, "sorted");
  return {};
}

Status infer_nms(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  if (c.rank(0) != 3 || c.rank(1) != 3) return c.invalid("boxes and scores must have rank 3");
  OPTC_TRY(c.same(c.shape(0)[0], c.shape(1)[0], "the batch of boxes and scores"));
  OPTC_TRY(c.same(c.shape(0)[1], c.shape(1)[2], "the number of boxes"));
  OPTC_TRY(c.same(c.shape(0)[2], 4, "the length of a box"));
  c.set_tensor(0, ElementType::kInt64, {c.run_time_size(0, 0, bound_of(element_count(c.shape(1)))), 3});
  return {};
}
Status build_nms(BuildContext &c) {
  std::vector<BufferId> inputs;
  for (size_t i = 0; i < 5; ++i) inputs.push_back(c.has_input(i) ? c.input(i) : BufferId());
  c.library("nms", inputs, {c.output(0)}, {{"center_point_box", c.node().int_or("center_point_box", 0)}},
            {single_symbol(c.output_shape(0)[0])});
  return {};
}

// --- ConstantOfShape, EyeLike, Range
// --------------------------------------------------------------------------------------------

const Constant *fill_constant(const Node &node) {
  const Attribute *attribute = node.attribute("value");
  return attribute ? std::get_if<Constant>(attribute) : nullptr;
}

Status infer_constant_of_shape(InferContext &c) {
  const Constant *value = fill_constant(c.node());
  if (value && value->count() != 1) return c.invalid("value must have one element");
  const ElementType type = value ? value->type() : ElementType::kFloat32;
  Shape out;
  if (const Dims *sizes = c.elements(0)) {
    for (Dim d : *sizes) {
      if (d.is_constant() && d.value() < 0) return c.invalid("the shape has the entry " + d.str());
      out.push_back(d);
    }
  } else {
    OPTC_ASSIGN(int64_t length, input_length(c, 0));
    for (int64_t k = 0; k < length; ++k) out.push_back(c.run_time_size(0, static_cast<size_t>(k)));
  }
  const bool small = out.empty() || (out.size() == 1 && out[0].is_constant() && out[0].value() <= 64);
  const int64_t n = out.empty() ? 1 : small ? out[0].value() : 0;
  c.set_tensor(0, type, std::move(out));
  if (small && (is_integer(type) || type == ElementType::kBool))
    c.set_elements(0, Dims(static_cast<size_t>(n), Dim(value ? value->as_int64(0) : 0)));
  return {};
}
Status build_constant_of_shape(BuildContext &c) {
  if (!c.elements(0) && !c.output_shape(0).empty())
    c.library("value_sizes", {BufferId(), c.input(0)}, {}, {}, output_symbols(c, 0));
  const Constant *value = fill_constant(c.node());
  NestBuilder nest(c, "fill");
  Dims i = nest.outer(c.output_shape(0));
  const ElementType type = c.output_type(0).element;
  if (value) {
    BufferId one = c.constant_buffer("value", value->reshaped({}));
    nest.store(c.output(0), i, nest.load_raw(one, {}));
  } else {
    nest.store(c.output(0), i, nest.constant(compute_type(type), 0));
  }
  nest.finish();
  return {};
}

Status infer_eye_like(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) != 2) return c.invalid("the input must have rank 2");
  const int64_t type = c.node().int_or("dtype", static_cast<int64_t>(c.element(0)));
  c.set_tensor(0, static_cast<ElementType>(type), c.shape(0));
  return {};
}
Status build_eye_like(BuildContext &c) {
  NestBuilder nest(c, "eye");
  Dims i = nest.outer(c.output_shape(0));
  const ElementType type = compute_type(c.output_type(0).element);
  Expr hit = equal(nest.index(i[1] - i[0]), nest.index(c.node().int_or("k", 0)));
  nest.store(c.output(0), i, select(hit, nest.constant(type, 1), nest.constant(type, 0)));
  nest.finish();
  return {};
}

Status infer_range(InferContext &c) {
  for (size_t i = 0; i < 3; ++i) {
    if (!c.has_input(i)) return c.invalid("Range needs start, limit and delta");
    if (c.element(i) != c.element(0)) return c.invalid("start, limit and delta must have one type");
  }
  const Dims *start = c.elements(0), *limit = c.elements(1), *delta = c.elements(2);
  std::optional<Dim> count;
  if (start && limit && delta && start->size() == 1 && limit->size() == 1 && delta->size() == 1 &&
      (*delta)[0].is_constant()) {
    const int64_t by = (*delta)[0].value();
    if (by == 0) return c.invalid("delta is 0");
    count = by > 0 ? max(ceil_div((*limit)[0] - (*start)[0], by), 0) : max(ceil_div((*start)[0] - (*limit)[0], -by), 0);
  } else if (c.constant(0) && c.constant(1) && c.constant(2) && is_float(c.element(0))) {
    const double by = c.constant(2)->as_double(0);
    if (by == 0) return c.invalid("delta is 0");
    const double n = std::ceil((c.constant(1)->as_double(0) - c.constant(0)->as_double(0)) / by);
    if (!(n < 1e12)) return c.invalid("the range has too many elements");
    count = Dim(n > 0 ? static_cast<int64_t>(n) : 0);
  }
  if (!count) count = c.run_time_size(0, 0);
  c.set_tensor(0, c.element(0), {*count});
  if (start && delta && count->is_constant() && count->value() <= 64) {
    Dims elements;
    for (int64_t i = 0; i < count->value(); ++i) elements.push_back((*start)[0] + (*delta)[0] * i);
    c.set_elements(0, std::move(elements));
  }
  return {};
}
Status build_range(BuildContext &c) {
  const Dim count = c.output_shape(0)[0];
  const ElementType stored = c.output_type(0).element;
  const Dims *start = c.elements(0), *delta = c.elements(2);
  if (is_run_time_size(count) && !(start && c.elements(1) && delta && (*delta)[0].is_constant()))
    c.library("range_sizes", {c.input(0), c.input(1), c.input(2)}, {}, {}, {single_symbol(count)});
  NestBuilder nest(c, "range");
  Dims i = nest.outer(c.output_shape(0));
  const auto scalar = [&](size_t input, const Dims *known) {
    if (known && known->size() == 1) return cast(nest.index((*known)[0]), compute_type(stored));
    return nest.load(c.input(input), c.shape(input).empty() ? Dims{} : Dims{0});
  };
  Expr first = scalar(0, start), by = scalar(2, delta);
  nest.store(c.output(0), i, first + cast(nest.index(i[0]), compute_type(stored)) * by);
  nest.finish();
  return {};
}

const VersionStep kTopkSteps[] = {{10, topk_k, topk_k_down}, {11, nullptr, topk_smallest_down}};

// com.microsoft.DynamicTimeWarping: the cheapest path through a matrix of costs.
Status infer_time_warping(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.element(0) != ElementType::kFloat32) return c.invalid("the input must be float");
  if (c.rank(0) != 2 && c.rank(0) != 3) return c.invalid("the input must have rank 2, or rank 3 with one matrix");
  if (c.rank(0) == 3) OPTC_TRY(c.same(c.shape(0)[0], 1, "the number of matrices"));
  const size_t last = c.shape(0).size() - 1;
  c.set_tensor(0, ElementType::kInt32, {2, c.run_time_size(0, 1, bound_of(c.shape(0)[last - 1] + c.shape(0)[last]))});
  return {};
}
Status build_time_warping(BuildContext &c) {
  c.library("time_warping", {c.input(0)}, {c.output(0)}, {}, {single_symbol(c.output_shape(0)[1])});
  return {};
}

const OpDef kOps[] = {
    {"NonZero", OpForm::kLibrary, 13, infer_nonzero, build_nonzero},
    {"Compress", OpForm::kLibrary, 28, infer_compress, build_compress},
    {"Unique", OpForm::kLibrary, 28, infer_unique, build_unique},
    {"TopK", OpForm::kLibrary, 24, infer_topk, build_topk, kTopkSteps},
    {"NonMaxSuppression", OpForm::kLibrary, 11, infer_nms, build_nms},
    {"com.microsoft.DynamicTimeWarping",
     OpForm::kLibrary,
     1,
     infer_time_warping,
     build_time_warping,
     {},
     true,
     {"input", "output", ""}},
    {"ConstantOfShape", OpForm::kIndex, 25, infer_constant_of_shape, build_constant_of_shape},
    {"EyeLike", OpForm::kIndex, 22, infer_eye_like, build_eye_like},
    {"Range", OpForm::kIndex, 27, infer_range, build_range},
};

}  // namespace

std::span<const OpDef> select_ops() { return kOps; }

}  // namespace optc
