// runtime/cpu/conv.h, conv_transposed.h, depthwise.h and winograd.h: convolutions of f32 (the first two of
// f64, too) with constant weights, over
// one to three spatial dims.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "evaluate/pack.h"
#include "ir/program/contraction_view.h"
#include "ir/program/nest_plan.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

// --- memory of a running task, as the plans of runtime/cpu/conv_plan.h have it

using Sizes = std::array<Dim, 3>;  // depth, height, width

Sizes output_of(const ConvolutionOperands &o) {
  const ConvolutionGeometry &g = o.geometry;
  auto length = [&](Dim in, size_t i) {
    const int64_t reach = (g.kernel[i] - 1) * g.dilations[i] + 1;
    return max(floor_div(in + Dim(g.pads_begin[i] + g.pads_end[i] - reach), Dim(g.strides[i])) + Dim(1), Dim(0));
  };
  return {length(o.depth, 0), length(o.height, 1), length(o.width, 2)};
}

// A padded copy of a band of rows, in each plane that a tap reads.
Dim direct_scratch_bytes(const ConvolutionGeometry &g, const Sizes &out, int64_t element) {
  const int64_t own = g.filters / g.groups;
  int64_t joined = 1;
  while (own * joined < 16 && g.groups % (joined * 2) == 0) joined *= 2;
  const int64_t channels = g.channels / (g.groups / joined);
  const Dim height = out[1], width = out[2];
  const Dim rows = min(max(ceil_div(Dim(256), max(width, Dim(1))), Dim(1)), max(height, Dim(1)));
  const Dim bands = max(ceil_div(height, rows), Dim(1));
  auto inputs = [&](Dim outputs, size_t i) {
    return (outputs - Dim(1)) * Dim(g.strides[i]) + Dim((g.kernel[i] - 1) * g.dilations[i] + 1);
  };
  const Dim pixels = inputs(ceil_div(height, bands), 1) * inputs(width, 2);
  return (max(pixels, Dim(0)) * Dim(g.kernel[0] * channels) + Dim(16)) * Dim(element);
}

// The greatest of the parts.
Dim transposed_scratch_bytes(const ConvolutionOperands &o, int64_t element) {
  const ConvolutionGeometry &g = o.geometry;
  const Dim in[3] = {o.depth, o.height, o.width};
  Dim bytes = 0;
  for (const TransposedPart &part : transposed_parts(g)) {
    if (part.empty) continue;
    Sizes out;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t reach = (g.kernel[i] - 1) * g.dilations[i] + 1;
      const Dim all = (in[i] - Dim(1)) * Dim(g.strides[i]) + Dim(reach - g.pads_begin[i] - g.pads_end[i]);
      out[i] = max(ceil_div(all - Dim(part.first[i]), Dim(g.strides[i])), Dim(0));
    }
    bytes = max(bytes, direct_scratch_bytes(part.direct, out, element));
  }
  return bytes;
}

// Transformed inputs and products of a block of tiles.
Dim winograd_scratch_bytes(const ConvolutionOperands &o, int64_t m) {
  const int64_t a = m + 2, c = o.geometry.channels, oc = o.geometry.filters;
  const Sizes out = output_of(o);
  const Dim tiles = o.batch * ceil_div(out[1], Dim(m)) * ceil_div(out[2], Dim(m));
  const int64_t most = std::clamp<int64_t>(1048576 / (a * a * (c + oc) * 4), 12, 48);
  const Dim block = ceil_div(tiles, max(ceil_div(tiles, Dim(most)), Dim(1)));
  return (Dim(a * a * ((c + 15) / 16 * 16 + (oc + 15) / 16 * 16)) * block + Dim(64)) * Dim(4);
}

// Sums between blocks of channels, of the product over pixels: a task has 192 rows at most.
Dim gemm_scratch_bytes(const ConvolutionOperands &o, int64_t element) {
  return o.geometry.channels > 1024 ? Dim(192 * ((o.geometry.filters + 63) / 64 * 64) * element) : Dim(0);
}

ConvolutionShape shape_of(const Program &program, const ConvolutionOperands &o) {
  ConvolutionShape shape;
  shape.element = bit_width(program.buffer(o.input).element()) / 8;
  static_cast<ConvolutionGeometry &>(shape) = o.geometry;
  const bool known = o.depth.is_constant() && o.height.is_constant() && o.width.is_constant() && !o.depth.is(0) &&
                     !o.height.is(0) && !o.width.is(0);
  shape.depth = o.depth.is_constant() ? o.depth.value() : 0;
  if (known) shape.height = o.height.value(), shape.width = o.width.value();
  return shape;
}

Schedule schedule_of(const Program &program, ConvolutionAlgorithm algorithm, const ConvolutionOperands &o) {
  const ConvolutionShape shape = shape_of(program, o);
  switch (algorithm) {
    case ConvolutionAlgorithm::kGemm:
      return ConvolutionGemmSchedule{o, gemm_scratch_bytes(o, shape.element)};
    case ConvolutionAlgorithm::kDirect:
      if (o.channel_stride.is(1) && direct_convolution_skips(shape))
        return ConvolutionDirectSchedule{o, 0};  // it reads the image where it lies
      return ConvolutionDirectSchedule{o, direct_scratch_bytes(o.geometry, output_of(o), shape.element)};
    case ConvolutionAlgorithm::kTransposed:
      return ConvolutionTransposedSchedule{o, transposed_scratch_bytes(o, shape.element)};
    case ConvolutionAlgorithm::kDepthwise:
      return ConvolutionDepthwiseSchedule{
          o, o.geometry.kernel[2] <= 7 && o.geometry.strides[2] <= 2 && o.geometry.dilations[2] == 1};
    case ConvolutionAlgorithm::kWinograd2:
      return ConvolutionWinogradSchedule{o, 2, winograd_scratch_bytes(o, 2)};
    case ConvolutionAlgorithm::kWinograd4:
      return ConvolutionWinogradSchedule{o, 4, winograd_scratch_bytes(o, 4)};
  }
  return {};
}

ConvolutionAlgorithm algorithm_for(const ConvolutionShape &shape, LoweringOptions::Winograd winograd) {
  const ConvolutionAlgorithm rule = convolution_algorithm(shape, winograd != LoweringOptions::Winograd::kAuto);
  const bool off = winograd == LoweringOptions::Winograd::kOff;
  return off && rule == ConvolutionAlgorithm::kWinograd2 ? ConvolutionAlgorithm::kDirect : rule;
}

bool winograd_allowed(ConvolutionAlgorithm algorithm, LoweringOptions::Winograd winograd) {
  return winograd == LoweringOptions::Winograd::kAuto ||
         (winograd == LoweringOptions::Winograd::kStrict && algorithm == ConvolutionAlgorithm::kWinograd2);
}

ConvolutionAlgorithm algorithm_of(const Schedule &schedule) {
  if (std::holds_alternative<ConvolutionTransposedSchedule>(schedule)) return ConvolutionAlgorithm::kTransposed;
  if (std::holds_alternative<ConvolutionGemmSchedule>(schedule)) return ConvolutionAlgorithm::kGemm;
  if (std::holds_alternative<ConvolutionDepthwiseSchedule>(schedule)) return ConvolutionAlgorithm::kDepthwise;
  if (const auto *winograd = std::get_if<ConvolutionWinogradSchedule>(&schedule))
    return winograd->tile == 4 ? ConvolutionAlgorithm::kWinograd4 : ConvolutionAlgorithm::kWinograd2;
  return ConvolutionAlgorithm::kDirect;
}

// Whether products of weights with the zeros of a border are zero.
template <class T>
bool all_finite(const Constant &weight) {
  const T *w = weight.as<T>();
  return std::all_of(w, w + weight.count(), [](T f) { return std::isfinite(f); });
}
bool all_finite(const Constant &weight) {
  return weight.type() == ElementType::kFloat64 ? all_finite<double>(weight) : all_finite<float>(weight);
}

}  // namespace

bool channels_innermost(const Buffer &b) {
  if (!b.order.empty()) return b.order.back() == 1 && b.order.front() == 0;
  if (b.shape()[1].is(1)) return true;
  return std::all_of(b.shape().begin() + 2, b.shape().end(), [](Dim d) { return d.is(1); });
}

ConvolutionOperands convolution_operands(const ConvolutionView &view, const std::vector<Dim> &strides,
                                         bool line_is_column) {
  const Contraction &info = *view.info;
  const size_t spatial = info.kernel.size();
  const size_t first = spatial == 1 && line_is_column ? 1 : 3 - spatial;
  ConvolutionOperands o;
  o.input = view.input;
  o.batch = view.batch;
  o.image_stride = strides[0];
  o.channel_stride = strides[1];
  o.geometry.channels = view.in_channels.value();
  o.geometry.filters = view.out_channels.value();
  o.geometry.groups = info.group;
  Dim sizes[3] = {1, 1, 1}, steps[3];
  for (size_t i = 0; i < spatial; ++i) {
    const size_t at = first + i;
    sizes[at] = view.in_spatial[i];
    steps[at] = strides[2 + i];
    o.geometry.kernel[at] = info.kernel[i];
    o.geometry.strides[at] = info.strides[i];
    o.geometry.dilations[at] = info.dilations[i];
    o.geometry.pads_begin[at] = info.pads_begin[i];
    o.geometry.pads_end[at] = info.pads_end[i];
  }
  if (spatial == 1 && line_is_column) steps[2] = steps[1];
  if (spatial == 1 && !line_is_column) steps[1] = sizes[2] * steps[2];
  o.depth = sizes[0];
  o.height = sizes[1];
  o.width = sizes[2];
  o.plane_stride = steps[0];
  o.row_stride = steps[1];
  o.pixel_stride = steps[2];
  return o;
}

Dim convolution_outputs(const ConvolutionOperands &operands) {
  const Sizes out = output_of(operands);
  return operands.batch * out[0] * out[1] * out[2];
}

std::vector<Schedule> convolution_schedules(const Program &program, const Kernel &kernel,
                                            const LoweringOptions &options) {
  const auto view = convolution_view(program, kernel);
  if (view && view->integer) return integer_convolution_schedules(program, kernel, *view);
  const auto type = [&](BufferId b) { return program.buffer(b).element(); };
  const bool f64 = view && type(view->input) == ElementType::kFloat64;
  if (!view || (!f64 && !is_f32(program, view->input)) || type(view->weight) != type(view->input) ||
      program.buffer(view->weight).kind != BufferKind::kConstant)
    return {};
  const size_t spatial = view->info->kernel.size();
  if (spatial < 1 || spatial > 3 || !view->in_channels.is_constant() || !view->out_channels.is_constant()) return {};
  const LoopNest &nest = *kernel.nest();
  if (!NestPlan(program, kernel).plan_epilogue({}, pixel_loops(nest), column_loops(nest))) return {};
  std::vector<Schedule> list;
  const std::vector<Dim> strides = storage_strides(program.buffer(view->input));
  if (view->info->transposed) {
    const ConvolutionOperands operands = convolution_operands(*view, strides, true);
    if (!transposed_parts(operands.geometry).empty() && all_finite(program.buffer(view->weight).constant))
      list.push_back(schedule_of(program, ConvolutionAlgorithm::kTransposed, operands));
    return list;
  }
  const ConvolutionOperands operands = convolution_operands(*view, strides, false);
  const ConvolutionAlgorithm best = algorithm_for(shape_of(program, operands), options.winograd);
  // The templates leave out taps outside the image, or spread a weight over a tile: right where 0 * weight is 0.
  const auto pads = [](int64_t n) { return n > 0; };
  const ConvolutionGeometry &g = operands.geometry;
  if ((std::any_of(g.pads_begin.begin(), g.pads_begin.end(), pads) ||
       std::any_of(g.pads_end.begin(), g.pads_end.end(), pads)) &&
      !all_finite(program.buffer(view->weight).constant))
    return {};
  // One filter of one pixel: the nest itself sums along the channels in lanes, where a panel would have one column.
  if (best == ConvolutionAlgorithm::kGemm && operands.geometry.filters == 1) return {};
  if (best != ConvolutionAlgorithm::kDirect) {
    if (!channels_innermost(program.buffer(view->input))) return {};
    list.push_back(schedule_of(program, best, operands));
  }
  list.push_back(schedule_of(program, ConvolutionAlgorithm::kDirect, convolution_operands(*view, strides, true)));
  // What the rule does not take, a measurement may.
  if (channels_innermost(program.buffer(view->input)) && !f64 && winograd_can(shape_of(program, operands)))
    for (const auto algorithm : {ConvolutionAlgorithm::kWinograd2, ConvolutionAlgorithm::kWinograd4})
      if (algorithm != best && winograd_allowed(algorithm, options.winograd))
        list.push_back(schedule_of(program, algorithm, operands));
  return list;
}

bool reads_any_strides(const Program &program, const ConvolutionView &view, const LoweringOptions &options) {
  if (view.integer) return false;
  if (view.info->transposed) return true;
  ConvolutionShape shape =
      shape_of(program, convolution_operands(view, std::vector<Dim>(view.in_spatial.size() + 2), false));
  if (options.target == LoweringOptions::Target::kGpu) shape.height = shape.width = 0;
  return algorithm_for(shape, options.winograd) == ConvolutionAlgorithm::kDirect;
}

void prepare_convolution(const Program &program, const Kernel &kernel, const AddConstant &add, Schedule &schedule) {
  ConvolutionOperands &operands = *convolution(schedule);
  const Buffer &weight = program.buffer(convolution_view(program, kernel)->weight);
  const std::string name = weight.name;
  operands.weight.buffer =
      add(name, pack_convolution(weight.constant, shape_of(program, operands), algorithm_of(schedule)));
}

}  // namespace optc
