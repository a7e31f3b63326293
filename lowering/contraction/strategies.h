#pragma once
// Strategies: how each kernel is run. A strategy's name, parameters and packed constants are all that emit/ needs beside the loop nest, which
// stays the meaning.
//
//   gemm               kMatMul, f32, rows of A with unit stride in k. packed = {B in the layout of runtime/cpu/gemm_plan.h} when B is a
//                      constant without batch; else B is packed while it runs (parameter "b_constant" 0).
//   conv.pointwise     1x1, stride 1, no padding, one group, channels last: a gemm over pixels. packed as gemm.
//   conv.direct, conv.winograd4, conv.winograd2, conv.depthwise, conv.grouped   channels last, f32; packed as runtime/cpu/conv_plan.h says
//   attention          runtime/cpu/attention.h
//   pointwise          one stage of stores
//   rows               several stages over one row
//   loops              anything else
//
// "in_place" 0 forbids that the result overwrites an operand (a kernel that reads an operand after it stored).

#include "ir/program/program.h"
#include "lowering/lower.h"

namespace optc {

void choose_strategies(Program &program, const LoweringOptions &options);
// Kernel::cost for every kernel, as expressions of the dims.
void estimate_costs(Program &program);

}  // namespace optc
