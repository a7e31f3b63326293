// GridSample, AffineGrid, RoiAlign, MaxRoiPool, DeformConv, Col2Im: sampling at computed positions. AffineGrid is
// loops, the others library functions (runtime/cpu/lib_image.h). ImageDecoder (runtime/cpu/lib_image_decoder.h).

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;

Status build_call(BuildContext &c, const char *function) {
  std::vector<BufferId> inputs;
  for (size_t i = 0; i < c.node().inputs.size(); ++i) inputs.push_back(c.has_input(i) ? c.input(i) : BufferId());
  c.library(function, inputs, {c.output(0)}, c.node().attributes);
  return {};
}

Status infer_grid_sample(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  const Shape x = c.shape(0), grid = c.shape(1);
  if (x.size() < 3 || grid.size() != x.size()) return c.invalid("X and grid must have one rank of 3 or more");
  if (!is_number(c.element(0)) && c.node().string_or("mode", "linear") != "nearest")
    return c.unsupported("values between those of " + std::string(onnx_name(c.element(0))) + " are not supported");
  OPTC_TRY(c.same(grid.back(), static_cast<int64_t>(x.size()) - 2, "the last dimension of grid"));
  OPTC_TRY(c.same(grid[0], x[0], "the batch of X and grid"));
  Shape out = {x[0], x[1]};
  out.insert(out.end(), grid.begin() + 1, grid.end() - 1);
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}
Status build_grid_sample(BuildContext &c) { return build_call(c, "grid_sample"); }

Status infer_affine_grid(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_ASSIGN(int64_t length, input_length(c, 1));
  if (length != 4 && length != 5) return c.invalid("size must have 4 or 5 entries");
  if (c.rank(0) != 3) return c.invalid("theta must have rank 3");
  OPTC_ASSIGN([[maybe_unused]] Dim rows, c.same(c.shape(0)[1], length - 2, "the rows of theta"));
  OPTC_ASSIGN([[maybe_unused]] Dim columns, c.same(c.shape(0)[2], length - 1, "the columns of theta"));
  const Dims *size = c.elements(1);
  Shape out = {c.shape(0)[0]};
  for (int64_t k = 2; k < length; ++k)
    out.push_back(size ? (*size)[static_cast<size_t>(k)] : c.run_time_size(0, static_cast<size_t>(k) - 1));
  out.push_back(length - 2);
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}

// grid[n, d.., i] = sum over j of theta[n, i, j] * p_j + theta[n, i, last], p_j the coordinate in [-1, 1] of the j-th
// axis from the end; where corners are aligned an axis of one element lies at -1, as in ONNX's reference.
Status build_affine_grid(BuildContext &c) {
  const Shape out = c.output_shape(0);
  const size_t axes = out.size() - 2;
  if (!c.elements(1)) {
    std::vector<const DimSymbol *> symbols = {nullptr, nullptr};
    for (size_t k = 1; k <= axes; ++k) symbols.push_back(single_symbol(out[k]));
    c.library("value_sizes", {BufferId(), c.input(1)}, {}, {}, symbols);
  }
  const bool align = c.node().int_or("align_corners", 0) != 0;
  NestBuilder nest(c, "affine grid");
  Dims i = nest.outer(out);
  const ElementType type = compute_type(c.input_type(0).element);
  Expr sum = nest.load(c.input(0), {i[0], i.back(), static_cast<int64_t>(axes)});
  for (size_t j = 0; j < axes; ++j) {
    const Dim position = i[axes - j], extent = out[axes - j];
    Expr at = cast(nest.index(position), type);
    if (align) {
      at = at * 2.0 / cast(nest.index(max(extent - 1, 1)), type) - 1.0;
    } else {
      at = (at * 2.0 + 1.0) / cast(nest.index(extent), type) - 1.0;
    }
    sum = sum + nest.load(c.input(0), {i[0], i.back(), static_cast<int64_t>(j)}) * at;
  }
  nest.store(c.output(0), i, sum);
  nest.finish();
  return {};
}

Status infer_roi_align(InferContext &c) {
  for (size_t i = 0; i < 3; ++i) OPTC_TRY(c.require_shape(i));
  if (c.rank(0) != 4 || c.rank(1) != 2 || c.rank(2) != 1)
    return c.invalid("X must have rank 4, rois 2 and batch_indices 1");
  OPTC_TRY(c.same(c.shape(1)[1], 4, "the length of a region"));
  OPTC_TRY(c.same(c.shape(1)[0], c.shape(2)[0], "the number of regions"));
  const int64_t h = c.node().int_or("output_height", 1), w = c.node().int_or("output_width", 1);
  if (h < 1 || w < 1) return c.invalid("output_height and output_width must be positive");
  c.set_tensor(0, c.element(0), {c.shape(1)[0], c.shape(0)[1], h, w});
  return {};
}
Status build_roi_align(BuildContext &c) {
  auto attributes = c.node().attributes;
  attributes.push_back(
      {"half_pixel", int64_t{c.node().string_or("coordinate_transformation_mode", "half_pixel") == "half_pixel"}});
  c.library("roi_align", {c.input(0), c.input(1), c.input(2)}, {c.output(0)}, attributes);
  return {};
}
// Before 16 the coordinates had no half-pixel shift.
Status roi_align_16(Graph &graph, NodeId node, Diagnostics &) {
  graph.set_attribute(node, "coordinate_transformation_mode", std::string("output_half_pixel"));
  return {};
}
Status roi_align_10(Graph &graph, NodeId node, Diagnostics &diagnostics) {
  if (graph.node(node).string_or("coordinate_transformation_mode", "half_pixel") != "output_half_pixel")
    return diagnostics.error(ErrorKind::kUnsupported,
                             "RoiAlign with half_pixel coordinates cannot be said in opsets below 16",
                             graph.describe(node));
  graph.remove_attribute(node, "coordinate_transformation_mode");
  return {};
}

Status infer_max_roi_pool(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  OPTC_TRY(c.require_shape(1));
  const auto *pooled = c.node().ints("pooled_shape");
  if (c.rank(0) != 4 || c.rank(1) != 2 || !pooled || pooled->size() != 2 || (*pooled)[0] < 1 || (*pooled)[1] < 1)
    return c.invalid("X must have rank 4, rois rank 2, pooled_shape two entries");
  OPTC_TRY(c.same(c.shape(1)[1], 5, "the length of a region"));
  c.set_tensor(0, c.element(0), {c.shape(1)[0], c.shape(0)[1], (*pooled)[0], (*pooled)[1]});
  return {};
}
Status build_max_roi_pool(BuildContext &c) { return build_call(c, "max_roi_pool"); }

Status infer_deform_conv(InferContext &c) {
  for (size_t i = 0; i < 3; ++i) OPTC_TRY(c.require_shape(i));
  if (c.rank(0) != 4 || c.rank(1) != 4 || c.rank(2) != 4)
    return c.unsupported("DeformConv of other than two spatial dimensions");
  const Shape x = c.shape(0), w = c.shape(1), offset = c.shape(2);
  const int64_t group = c.node().int_or("group", 1), offset_group = c.node().int_or("offset_group", 1);
  if (group < 1 || offset_group < 1) return c.invalid("group and offset_group must be positive");
  OPTC_TRY(c.same(x[1], w[1] * group, "the channel count of the input and of the weight times group"));
  OPTC_TRY(c.same(offset[1], w[2] * w[3] * (2 * offset_group), "the channels of offset"));
  OPTC_TRY(c.same(offset[0], x[0], "the batch of offset"));
  for (const auto &[name, entries] : {std::pair{"strides", 2u}, {"dilations", 2u}, {"pads", 4u}})
    if (const auto *list = c.node().ints(name); list && list->size() != entries)
      return c.invalid(std::string(name) + " must have " + std::to_string(entries) + " entries");
  OPTC_TRY(c.same(w[0], floor_div(w[0], group) * group, "the number of filters and a multiple of group"));
  OPTC_TRY(c.same(x[1], floor_div(x[1], offset_group) * offset_group,
                  "the channel count of the input and a multiple of offset_group"));
  if (c.has_input(3)) {
    OPTC_TRY(c.require_shape(3));
    if (c.rank(3) != 1) return c.invalid("the bias must be a vector");
    OPTC_TRY(c.same(c.shape(3)[0], w[0], "the length of the bias"));
  }
  if (c.has_input(4)) {
    OPTC_TRY(c.require_shape(4));
    if (c.rank(4) != 4) return c.invalid("the mask must have rank 4");
    const Shape mask = c.shape(4), expected = {x[0], w[2] * w[3] * offset_group, offset[2], offset[3]};
    for (size_t k = 0; k < 4; ++k) OPTC_TRY(c.same(mask[k], expected[k], "a dimension of the mask"));
  }
  std::string error;
  auto window = resolve_window(c.node(), {x[2], x[3]}, {w[2], w[3]}, WindowCount::kWhole, error);
  if (!window) return c.invalid(error);
  OPTC_ASSIGN(Dim h, c.same(window->out[0], offset[2], "the height of offset"));
  OPTC_ASSIGN(Dim v, c.same(window->out[1], offset[3], "the width of offset"));
  c.set_tensor(0, c.element(0), {x[0], w[0], h, v});
  return {};
}
Status build_deform_conv(BuildContext &c) { return build_call(c, "deform_conv"); }

Status infer_col2im(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) != 3) return c.invalid("the input must have rank 3");
  if (!is_number(c.element(0)))
    return c.unsupported("sums of " + std::string(onnx_name(c.element(0))) + " are not supported");
  OPTC_ASSIGN(int64_t axes, input_length(c, 1));
  for (const char *name : {"dilations", "strides"})
    if (const auto *list = c.node().ints(name); list && static_cast<int64_t>(list->size()) != axes)
      return c.invalid(std::string(name) + " must have one entry an axis");
  if (const auto *pads = c.node().ints("pads"); pads && static_cast<int64_t>(pads->size()) != 2 * axes)
    return c.invalid("pads must have two entries an axis");
  const Dims *image = c.elements(1), *block = c.elements(2);
  Shape out = {c.shape(0)[0]};
  std::optional<Dim> channels;
  if (block) channels = exact_div(c.shape(0)[1], product(*block, 0, block->size()));
  out.push_back(channels ? *channels : c.run_time_size(0, 1));
  for (int64_t k = 0; k < axes; ++k)
    out.push_back(image ? (*image)[static_cast<size_t>(k)] : c.run_time_size(0, static_cast<size_t>(k) + 2));
  c.set_tensor(0, c.element(0), std::move(out));
  return {};
}
Status build_col2im(BuildContext &c) {
  c.library("col2im", {c.input(0), c.input(1), c.input(2)}, {c.output(0)}, c.node().attributes, output_symbols(c, 0));
  return {};
}

Status infer_image_decoder(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) != 1) return c.invalid("encoded_stream must be a vector of bytes");
  const std::string pixels(c.node().string_or("pixel_format", "RGB"));
  if (pixels != "RGB" && pixels != "BGR" && pixels != "Grayscale")
    return c.invalid("pixel_format '" + pixels + "' is not known", "it is RGB, BGR or Grayscale");
  c.set_tensor(0, ElementType::kUInt8,
               {c.run_time_size(0, 0), c.run_time_size(0, 1), pixels == "Grayscale" ? int64_t{1} : int64_t{3}});
  return {};
}
Status build_image_decoder(BuildContext &c) {
  const Shape &out = c.output_shape(0);
  c.library("image_decoder", {c.input(0)}, {c.output(0)}, c.node().attributes,
            {single_symbol(out[0]), single_symbol(out[1])});
  return {};
}

// The names of two of GridSample's modes changed.
constexpr std::pair<std::string_view, std::string_view> kGridModes[] = {{"bilinear", "linear"}, {"bicubic", "cubic"}};
template <bool kUp>
Status rename_grid_mode(Graph &graph, NodeId node, Diagnostics &) {
  const std::string mode(graph.node(node).string_or("mode", ""));
  for (const auto &[before, since] : kGridModes)
    if (mode == (kUp ? before : since)) graph.set_attribute(node, "mode", std::string(kUp ? since : before));
  return {};
}

const VersionStep kGridSampleSteps[] = {{20, rename_grid_mode<true>, rename_grid_mode<false>}};
const VersionStep kRoiAlignSteps[] = {{16, roi_align_16, roi_align_10}};

const OpDef kOps[] = {
    {"GridSample", OpForm::kLibrary, 22, infer_grid_sample, build_grid_sample, kGridSampleSteps},
    {"AffineGrid", OpForm::kIndex, 20, infer_affine_grid, build_affine_grid},
    {"RoiAlign", OpForm::kLibrary, 22, infer_roi_align, build_roi_align, kRoiAlignSteps},
    {"MaxRoiPool", OpForm::kLibrary, 22, infer_max_roi_pool, build_max_roi_pool},
    {"DeformConv", OpForm::kLibrary, 22, infer_deform_conv, build_deform_conv},
    {"ImageDecoder", OpForm::kLibrary, 20, infer_image_decoder, build_image_decoder},
    {"Col2Im", OpForm::kLibrary, 18, infer_col2im, build_col2im},
};

}  // namespace

std::span<const OpDef> image_ops() { return kOps; }

}  // namespace optc
