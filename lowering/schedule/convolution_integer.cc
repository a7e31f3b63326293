// runtime/cpu/conv_i8.h and conv_i8_depthwise.h: convolutions of int8 and uint8 in int32 with constant weights.
#include <algorithm>

#include "evaluate/pack.h"
#include "ir/program/contraction_view.h"
#include "ir/program/nest_plan.h"
#include "lowering/schedule/schedule.h"
#include "runtime/cpu/conv_i8_plan.h"

namespace optc {

std::vector<Schedule> integer_convolution_schedules(const Program &program, const Kernel &kernel,
                                                    const ConvolutionView &view) {
  const auto zeros = zero_points(program, kernel, view);
  const size_t spatial = view.info->kernel.size();
  if (!zeros || view.info->transposed || spatial < 1 || spatial > 3 || !view.in_channels.is_constant() ||
      !view.out_channels.is_constant() || program.buffer(view.weight).kind != BufferKind::kConstant)
    return {};
  // What stands for a pixel outside must be a byte.
  const bool is_signed = program.buffer(view.input).element() == ElementType::kInt8;
  if (zeros->a.value < (is_signed ? -128 : 0) || zeros->a.value > (is_signed ? 127 : 255)) return {};
  const LoopNest &nest = *kernel.nest();
  if (!NestPlan(program, kernel).plan_epilogue({}, pixel_loops(nest), column_loops(nest))) return {};
  ConvolutionIntegerSchedule schedule;
  schedule.operands = convolution_operands(view, storage_strides(program.buffer(view.input)), false);
  schedule.zeros = *zeros;
  const ConvolutionGeometry &g = schedule.operands.geometry;
  const int64_t taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
  schedule.depthwise = g.groups > 1 && g.groups == g.channels && g.filters == g.channels && spatial < 3 &&
                       taps <= kOptcConvI8DepthwiseTaps && channels_innermost(program.buffer(view.input));
  if (!schedule.depthwise)
    schedule.scratch_bytes =
        integer_gemm_scratch(convolution_outputs(schedule.operands), Dim(g.channels / g.groups * taps), true);
  return {schedule};
}

void prepare(const Program &program, const Kernel &kernel, const AddConstant &add,
             ConvolutionIntegerSchedule &schedule) {
  const Buffer &weight = program.buffer(convolution_view(program, kernel)->weight);
  const std::string name = weight.name;
  schedule.operands.weight.buffer =
      add(name, pack_convolution_integer(weight.constant, schedule.operands.geometry, schedule.depthwise));
}

}  // namespace optc
