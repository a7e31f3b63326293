// Resize and Upsample. Along each resized axis a table says which input elements an output coordinate reads and with
// what weight; the result is the sum of products over the axes. The tables are constants where dims and scales are
// known at compile time, else a library function fills them. Whole-number nearest enlargements are plain index maps.

#include <cmath>
#include <cstring>

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/steps.h"
#include "ops/util.h"
#include "runtime/cpu/lib_resize.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

struct Operands {  // input numbers; Upsample has only scales
  size_t roi, scales, sizes;
};
Operands operands(const Node &node) { return node.op == "Upsample" ? Operands{9, 1, 9} : Operands{1, 2, 3}; }

std::string text(const Node &node, std::string_view name, std::string_view fallback) {
  if (node.op == "Upsample" && name == "coordinate_transformation_mode") return "asymmetric";
  if (node.op == "Upsample" && name == "nearest_mode") return "floor";
  return std::string(node.string_or(name, fallback));
}

bool is_empty(const Type &type) { return type.has_shape() && type.rank() == 1 && (*type.shape)[0].is(0); }

struct AxisPlan {
  Dim out;
  std::optional<double> scale;  // known at compile time
  double length = 0;            // of a scale: optc_lib_resize_length where `in` is a number
  double roi_start = 0, roi_end = 1;
  bool resized = true;
};

// What is known at compile time of each axis. An output dim that is not: nullopt in `out_known`.
template <typename Context>
std::vector<std::optional<AxisPlan>> plan_axes(Context &c, const Shape &in, const Type &scales_type) {
  const Operands at = operands(c.node());
  const size_t rank = in.size();
  std::vector<std::optional<AxisPlan>> plans(rank);
  std::vector<int64_t> axes;
  if (const auto *given = c.node().ints("axes"); given && !given->empty()) {
    axes = *given;
    for (int64_t &axis : axes) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
  } else {
    for (size_t k = 0; k < rank; ++k) axes.push_back(static_cast<int64_t>(k));
  }
  std::vector<bool> listed(rank, false);
  for (int64_t axis : axes) listed[static_cast<size_t>(axis)] = true;
  for (size_t k = 0; k < rank; ++k)
    if (!listed[k]) plans[k] = AxisPlan{in[k], 1.0, 0, 0, 1, false};
  const Constant *roi = c.constant(at.roi);
  const bool crop = text(c.node(), "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize";
  if (crop && !roi) return plans;
  if (c.has_input(at.scales) && !is_empty(scales_type)) {
    const Constant *scales = c.constant(at.scales);
    if (!scales || scales->count() != static_cast<int64_t>(axes.size())) return plans;
    for (size_t j = 0; j < axes.size(); ++j) {
      const size_t k = static_cast<size_t>(axes[j]);
      const double scale = scales->as_double(static_cast<int64_t>(j));
      AxisPlan plan;
      plan.scale = scale;
      if (in[k].is_constant()) {
        plan.length = optc_lib_resize_length(scale, in[k].value());
        plan.out = static_cast<int64_t>(std::floor(std::min(plan.length, 0x1p62)));
      } else if (scale == std::floor(scale)) {
        plan.out = in[k] * static_cast<int64_t>(scale);
      } else if (1 / scale == std::floor(1 / scale)) {
        plan.out = floor_div(in[k], static_cast<int64_t>(1 / scale));
      } else {
        continue;  // in * scale, rounded down: found at run time
      }
      plan.resized = scale != 1 || crop;
      plans[k] = plan;
    }
  } else if (c.has_input(at.sizes)) {
    const Dims *sizes = c.elements(at.sizes);
    const std::string policy = text(c.node(), "keep_aspect_ratio_policy", "stretch");
    if (!sizes || sizes->size() != axes.size()) return plans;
    double common = 0;
    if (policy != "stretch") {
      for (size_t j = 0; j < axes.size(); ++j) {
        const Dim from = in[static_cast<size_t>(axes[j])], to = (*sizes)[j];
        if (!from.is_constant() || !to.is_constant() || from.is(0)) return plans;
        const double scale = static_cast<double>(to.value()) / static_cast<double>(from.value());
        if (j == 0 || (policy == "not_larger" ? scale < common : scale > common)) common = scale;
      }
    }
    for (size_t j = 0; j < axes.size(); ++j) {
      const size_t k = static_cast<size_t>(axes[j]);
      AxisPlan plan;
      plan.out = (*sizes)[j];
      if (policy != "stretch") {
        plan.scale = common;
        plan.out = static_cast<int64_t>(std::floor(common * static_cast<double>(in[k].value()) + 0.5));
      } else if (plan.out == in[k]) {
        plan.scale = 1;
      } else if (in[k].is_constant() && plan.out.is_constant() && !in[k].is(0)) {
        plan.scale = static_cast<double>(plan.out.value()) / static_cast<double>(in[k].value());
      }
      if (plan.out.is_constant()) plan.length = static_cast<double>(plan.out.value());
      plan.resized = crop || plan.scale != 1.0;
      plans[k] = plan;
    }
  }
  if (crop && roi->count() == 2 * static_cast<int64_t>(axes.size()))
    for (size_t j = 0; j < axes.size(); ++j) {
      auto &plan = plans[static_cast<size_t>(axes[j])];
      if (!plan) continue;
      plan->roi_start = roi->as_double(static_cast<int64_t>(j));
      plan->roi_end = roi->as_double(static_cast<int64_t>(axes.size() + j));
    }
  return plans;
}

Status infer_resize(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  const Shape in = c.shape(0);
  const Operands at = operands(c.node());
  const bool by_scales = c.has_input(at.scales) && !is_empty(c.input(at.scales));
  const bool by_sizes = c.has_input(at.sizes) && !is_empty(c.input(at.sizes));
  if (by_scales == by_sizes)
    return c.invalid(by_scales ? "both scales and sizes are given" : "neither scales nor sizes are given");
  const std::string mode = text(c.node(), "mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "cubic" && mode != "bilinear")
    return c.invalid("mode '" + mode + "' is not known");
  if (mode != "nearest" && !is_number(c.element(0)))
    return c.unsupported("values between those of " + std::string(onnx_name(c.element(0))) + " are not supported");
  size_t count = in.size();
  if (const auto *axes = c.node().ints("axes"); axes && !axes->empty()) {
    count = axes->size();
    for (int64_t axis : *axes) OPTC_TRY(c.axis(axis, c.rank(0), "axes"));
  }
  const Constant *scales = c.constant(at.scales);
  if (by_scales && scales) {
    if (scales->count() != static_cast<int64_t>(count)) return c.invalid("scales must have one entry an axis");
    for (int64_t j = 0; j < scales->count(); ++j)
      if (!(scales->as_double(j) > 0))
        return c.invalid("a scale is not positive");
      else if (!(scales->as_double(j) < 0x1p53))
        return c.invalid("a scale is too large");
  }
  if (const Dims *sizes = by_sizes ? c.elements(at.sizes) : nullptr) {
    if (sizes->size() != count) return c.invalid("sizes must have one entry an axis");
    for (Dim d : *sizes)
      if (upper_bound(d) < 0) return c.invalid("a size is negative");
  }
  auto plans = plan_axes(c, in, c.input(at.scales));
  Shape out;
  for (size_t k = 0; k < in.size(); ++k) out.push_back(plans[k] ? plans[k]->out : c.run_time_size(0, k));
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}

// A whole-number nearest enlargement (or a copy): the input index, or nullopt.
std::optional<Dim> nearest_index(const Node &node, const AxisPlan &plan, Dim i) {
  if (!plan.resized) return i;
  if (!plan.scale || *plan.scale < 1 || *plan.scale != std::floor(*plan.scale) || *plan.scale > 1e6)
    return std::nullopt;
  const int64_t s = static_cast<int64_t>(*plan.scale);
  const std::string coordinates = text(node, "coordinate_transformation_mode", "half_pixel"),
                    nearest = text(node, "nearest_mode", "round_prefer_floor");
  // (i + 0.5) / s - 0.5 rounds to i / s (both halves included: round(x.5 - 0.5 / s) stays in the block).
  if (coordinates == "asymmetric" && (nearest == "floor" || nearest == "simple")) return floor_div(i, s);
  if (coordinates == "half_pixel" && (nearest == "round_prefer_floor" || nearest == "round_prefer_ceil"))
    return floor_div(i, s);
  return std::nullopt;
}

struct Table {
  Dim taps = 1;
  BufferId index, weight;  // invalid: the axis copies
  bool by_tap = false;     // [taps, out] and int32 indices; else [out, taps] and int64, made by the library
};

std::vector<std::pair<std::string, Attribute>> library_attributes(const Node &node) {
  std::vector<std::pair<std::string, Attribute>> attributes = {
      {"mode", text(node, "mode", "nearest")},
      {"coordinate_transformation_mode", text(node, "coordinate_transformation_mode", "half_pixel")},
      {"nearest_mode", text(node, "nearest_mode", "round_prefer_floor")},
      {"keep_aspect_ratio_policy", text(node, "keep_aspect_ratio_policy", "stretch")},
      {"antialias", node.int_or("antialias", 0)},
      {"exclude_outside", node.int_or("exclude_outside", 0)},
      {"cubic_coeff_a", node.float_or("cubic_coeff_a", -0.75f)}};
  if (const auto *axes = node.ints("axes"); axes && !axes->empty()) attributes.push_back({"axes", *axes});
  return attributes;
}

Table constant_table(BuildContext &c, const AxisPlan &plan, int64_t in, size_t k) {
  const Node &node = c.node();
  OptcLibResizeAxis axis{};
  axis.mode = optc_lib_resize_mode(text(node, "mode", "nearest").c_str());
  axis.coordinates = optc_lib_resize_coordinates(text(node, "coordinate_transformation_mode", "half_pixel").c_str());
  axis.nearest = optc_lib_resize_nearest(text(node, "nearest_mode", "round_prefer_floor").c_str());
  axis.antialias = node.int_or("antialias", 0) != 0;
  axis.exclude_outside = node.int_or("exclude_outside", 0) != 0;
  axis.cubic_a = node.float_or("cubic_coeff_a", -0.75f);
  axis.in = in;
  axis.out = plan.out.value();
  axis.scale = *plan.scale;
  axis.length = plan.length;
  axis.roi_start = plan.roi_start;
  axis.roi_end = plan.roi_end;
  const int64_t taps = optc_lib_resize_taps(&axis), count = axis.out * taps;
  std::vector<int64_t> index_values(static_cast<size_t>(count));
  std::vector<float> weight_values(static_cast<size_t>(count));
  optc_lib_resize_table(&axis, taps, index_values.data(), weight_values.data());
  // Taps outermost, so that neighbouring outputs find theirs side by side; indices in 32 bits, which lanes hold.
  std::vector<uint8_t> index(static_cast<size_t>(count) * 4), weight(static_cast<size_t>(count) * 4);
  for (int64_t i = 0; i < axis.out; ++i)
    for (int64_t t = 0; t < taps; ++t) {
      const int32_t at = static_cast<int32_t>(index_values[static_cast<size_t>(i * taps + t)]);
      const size_t to = static_cast<size_t>(t * axis.out + i) * 4;
      std::memcpy(index.data() + to, &at, 4);
      std::memcpy(weight.data() + to, &weight_values[static_cast<size_t>(i * taps + t)], 4);
    }
  const std::string suffix = std::to_string(k);
  return {
      taps,
      c.constant_buffer("index" + suffix, Constant::owned(ElementType::kInt32, {taps, axis.out}, std::move(index))),
      c.constant_buffer("weight" + suffix, Constant::owned(ElementType::kFloat32, {taps, axis.out}, std::move(weight))),
      true};
}

Status build_resize(BuildContext &c) {
  const Node &node = c.node();
  const Operands at = operands(node);
  const Shape in = c.shape(0), out = c.output_shape(0);
  const size_t rank = in.size();
  const auto plans = plan_axes(c, in, c.has_input(at.scales) ? c.input_type(at.scales) : Type());
  const bool nearest = text(node, "mode", "nearest") == "nearest";
  const bool crop = text(node, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize";

  bool all_simple = nearest;
  for (size_t k = 0; k < rank; ++k) all_simple = all_simple && plans[k] && nearest_index(node, *plans[k], Dim(0));
  if (all_simple)
    return c.index_map(c.input(0), c.output(0), [&](const Dims &i) {
      Dims from;
      for (size_t k = 0; k < rank; ++k) from.push_back(*nearest_index(node, *plans[k], i[k]));
      return from;
    });

  // Which axes need the run: unknown scale or size, or symbolic dims.
  const auto is_fixed = [&](size_t k) {
    return plans[k] && plans[k]->scale && plans[k]->out.is_constant() && in[k].is_constant() &&
           in[k].value() <= INT32_MAX;
  };
  std::vector<Table> tables(rank);
  std::vector<BufferId> inputs = {
      c.input(0), c.has_input(at.roi) ? c.input(at.roi) : BufferId(),
      c.has_input(at.scales) && !is_empty(c.input_type(at.scales)) ? c.input(at.scales) : BufferId(),
      c.has_input(at.sizes) && !is_empty(c.input_type(at.sizes)) ? c.input(at.sizes) : BufferId()};
  bool found_sizes = false;
  std::vector<const DimSymbol *> defines(2 * rank, nullptr);
  for (size_t k = 0; k < rank; ++k) {
    if (is_fixed(k) || (plans[k] && !plans[k]->resized)) continue;
    if (!plans[k]) {
      defines[k] = single_symbol(out[k]);
      found_sizes = true;
    }
    const bool wide =
        node.int_or("antialias", 0) != 0 || !plans[k] || !plans[k]->scale;  // an axis may turn out to copy: one tap
    if (nearest) {
      tables[k].taps = 1;
    } else if (wide) {
      tables[k].taps = c.program().dims->new_symbol(SymbolKind::kData, "taps" + std::to_string(k), 0);
      defines[rank + k] = single_symbol(tables[k].taps);
      found_sizes = true;
    } else {
      tables[k].taps = text(node, "mode", "nearest") == "cubic" ? 4 : 2;
    }
  }
  if (found_sizes) c.library("resize_sizes", inputs, {}, library_attributes(node), defines);
  int64_t combinations = 1;
  for (size_t k = 0; k < rank; ++k) {
    if (plans[k] && !plans[k]->resized) continue;
    if (is_fixed(k)) {
      tables[k] = constant_table(c, *plans[k], in[k].value(), k);
    } else {
      tables[k].index = c.temporary("index" + std::to_string(k), ElementType::kInt64, {out[k], tables[k].taps});
      tables[k].weight = c.temporary("weight" + std::to_string(k), ElementType::kFloat32, {out[k], tables[k].taps});
      auto attributes = library_attributes(node);
      attributes.push_back({"table_axis", static_cast<int64_t>(k)});
      c.library("resize_table_of_axis", inputs, {tables[k].index, tables[k].weight}, attributes);
    }
    combinations = tables[k].taps.is_constant() && combinations <= 64 ? combinations * tables[k].taps.value() : 1000;
  }

  NestBuilder nest(c, "resize");
  Dims i = nest.outer(out);
  const ElementType stored = c.input_type(0).element;
  const ElementType type = stored == ElementType::kFloat64 ? ElementType::kFloat64 : ElementType::kFloat32;
  Expr outside;
  // The element at one tap of each axis, times its weights.
  const auto tap_value = [&](const std::vector<Dim> &tap) {
    Dims from = i;
    Expr weight;
    for (size_t k = 0; k < rank; ++k) {
      if (!tables[k].index.valid()) continue;
      const Dims place = tables[k].by_tap ? Dims{tap[k], i[k]} : Dims{i[k], tap[k]};
      Expr index = nest.load(tables[k].index, place);
      if (crop) {
        Expr beyond = less(index, index.constant(0));
        outside = outside.valid() ? apply(ScalarOp::kOr, outside, beyond) : beyond;
        index = apply(ScalarOp::kMax, index, index.constant(0));
      }
      from[k] = nest.as_index(index, in[k]);
      if (nearest) continue;
      Expr w = cast(nest.load(tables[k].weight, place), type);
      weight = weight.valid() ? weight * w : w;
    }
    if (nearest) return crop ? nest.load(c.input(0), from) : nest.load_raw(c.input(0), from);
    Expr value = cast(nest.load(c.input(0), from), type);
    return weight.valid() ? value * weight : value;
  };
  Expr result;
  if (nearest) {
    result = tap_value(Dims(rank, Dim(0)));
  } else if (combinations <= 16) {
    Dims tap(rank, Dim(0));
    for (;;) {
      Expr value = tap_value(tap);
      result = result.valid() ? result + value : value;
      size_t k = rank;
      while (k-- > 0) {
        if (!tables[k].index.valid()) continue;
        tap[k] = tap[k] + 1;
        if (tap[k].value() < tables[k].taps.value()) break;
        tap[k] = 0;
      }
      if (k == static_cast<size_t>(-1)) break;
    }
  } else {
    Dims tap(rank, Dim(0));
    for (size_t k = 0; k < rank; ++k)
      if (tables[k].index.valid()) tap[k] = nest.stage_loop("t" + std::to_string(k), tables[k].taps);
    result = nest.reduce(Combine::kSum, tap_value(tap));
    if (crop) {  // a coordinate is outside for all of its taps or none
      outside = Expr();
      tap_value(Dims(rank, Dim(0)));
    }
  }
  if (crop && outside.valid())
    result = select(outside, result.constant(node.float_or("extrapolation_value", 0)), result);
  nest.store(c.output(0), i, result);
  nest.finish();
  return {};
}

// Whether no scale shrinks an axis (kUp), or none enlarges one.
template <bool kUp>
bool all_go(const Constant &scales) {
  for (int64_t i = 0; i < scales.count(); ++i)
    if (kUp ? !(scales.as_double(i) >= 1) : !(scales.as_double(i) <= 1)) return false;
  return true;
}
// Resize-10 had only X and scales; its coordinates are asymmetric, and "nearest" rounds down for enlargements and up
// for reductions.
Status resize_from_10(Graph &graph, NodeId node, Diagnostics &) {
  const ValueId scales = graph.node(node).input(1);
  graph.set_input(node, 1, ValueId());
  graph.set_input(node, 2, scales);
  graph.set_attribute(node, "coordinate_transformation_mode", std::string("asymmetric"));
  std::string nearest = "simple";
  if (const Constant *constant = graph.constant(scales)) {
    if (all_go<true>(*constant))
      nearest = "floor";
    else if (all_go<false>(*constant))
      nearest = "ceil";
  }
  graph.set_attribute(node, "nearest_mode", nearest);
  return {};
}
// Whether "nearest" of Resize-10 rounds as the node says.
bool rounds_as_10(const Graph &graph, const Node &node) {
  const std::string_view nearest = node.string_or("nearest_mode", "round_prefer_floor");
  if (nearest == "simple") return true;
  const Constant *scales = graph.constant(node.input(2));
  return scales && ((nearest == "floor" && all_go<true>(*scales)) || (nearest == "ceil" && all_go<false>(*scales)));
}
Status resize_to_10(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Node &n = graph.node(node);
  const std::string_view mode = n.string_or("mode", "nearest");
  if (n.string_or("coordinate_transformation_mode", "half_pixel") != "asymmetric" || n.input(3).valid() ||
      (mode != "linear" && !(mode == "nearest" && rounds_as_10(graph, n))))
    return cannot_lower(graph, node, "this Resize", 11, diagnostics);
  const ValueId scales = n.input(2);
  graph.set_input(node, 2, ValueId());
  graph.set_input(node, 1, scales);
  for (const char *name :
       {"coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside", "extrapolation_value"})
    graph.remove_attribute(node, name);
  return {};
}
Status resize_to_17(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Node &n = graph.node(node);
  if (n.ints("axes") || n.int_or("antialias", 0) != 0 ||
      n.string_or("keep_aspect_ratio_policy", "stretch") != "stretch")
    return cannot_lower(graph, node, "axes, antialias and keep_aspect_ratio_policy of Resize", 18, diagnostics);
  graph.remove_attribute(node, "antialias");
  graph.remove_attribute(node, "keep_aspect_ratio_policy");
  return {};
}
Status not_symmetric(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (graph.node(node).string_or("coordinate_transformation_mode", "half_pixel") == "half_pixel_symmetric")
    return cannot_lower(graph, node, "half_pixel_symmetric of Resize", 19, diagnostics);
  return {};
}
// Resize-11 and -13 wanted roi (and 11 scales) to be there; an empty tensor says "absent".
Status empty_operands(Graph &graph, NodeId node, Diagnostics &) {
  for (size_t i = 1; i <= 2; ++i)
    if (!graph.node(node).input(i).valid())
      graph.set_input(node, i,
                      graph.add_constant(graph.unique_name(graph.node(node).name + "_empty"), Constant::floats({})));
  return {};
}
Status upsample_1(Graph &graph, NodeId node,
                  Diagnostics &diagnostics) {  // height_scale, width_scale of a rank-4 tensor
  const Node &n = graph.node(node);
  if (!n.attribute("height_scale")) return {};
  const std::vector<float> scales = {1, 1, n.float_or("height_scale", 1), n.float_or("width_scale", 1)};
  graph.set_attribute(node, "scales", scales);
  graph.remove_attribute(node, "height_scale");
  graph.remove_attribute(node, "width_scale");
  if (graph.node(node).string_or("mode", "nearest") == "bilinear")
    graph.set_attribute(node, "mode", std::string("linear"));
  (void)diagnostics;
  return {};
}
Status upsample_scales(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  return attribute_to_input(graph, node, "scales", 1, diagnostics);
}
Status upsample_scales_down(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  const Constant *scales = graph.constant(graph.node(node).input(1));
  if (!scales) return cannot_lower(graph, node, "an Upsample by computed scales", 9, diagnostics);
  std::vector<float> values;
  for (int64_t i = 0; i < scales->count(); ++i) values.push_back(static_cast<float>(scales->as_double(i)));
  graph.set_input(node, 1, ValueId());
  graph.set_attribute(node, "scales", values);
  return {};
}

const VersionStep kResizeSteps[] = {{11, resize_from_10, resize_to_10},
                                    {13, nullptr, empty_operands},
                                    {18, nullptr, resize_to_17},
                                    {19, nullptr, not_symmetric}};
const VersionStep kUpsampleSteps[] = {{7, upsample_1, nullptr}, {9, upsample_scales, upsample_scales_down}};

const OpDef kOps[] = {
    {"Resize", OpForm::kIndex, 19, infer_resize, build_resize, kResizeSteps},
    {"Upsample", OpForm::kIndex, 10, infer_resize, build_resize, kUpsampleSteps},
};

}  // namespace

std::span<const OpDef> resize_ops() { return kOps; }

}  // namespace optc
