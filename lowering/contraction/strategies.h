#pragma once
// Strategies: how each kernel is run. A strategy's name, parameters and packed constants are all that emit/ needs
// beside the loop nest, which stays the meaning.
//
//   gemm               kMatMul, f32, rows of A with unit stride in k; operands by gemm_view(). b_constant 1: packed[0]
//   is B in the layout of
//                      runtime/cpu/gemm_plan.h; b_constant 0: B is read where it lies (or packed while it runs).
//   conv.gemm, conv.direct, conv.depthwise, conv.winograd2, conv.winograd4
//                      kConvolution, f32, one or two spatial dims (one: height 1), operands by convolution_view(),
//                      every store with unit stride along the channels; the input channels last, except for
//                      conv.direct, which reads any strides; packed[0] is the weight as runtime/cpu/conv_plan.h lays it
//                      out. Parameters: c, oc, groups, kh, kw, sh, sw, dh, dw, pad_top, pad_left, pad_bottom,
//                      pad_right; batch and spatial sizes are the input buffer's dims.
//   attention          kAttention, f32: runtime/cpu/attention.h; query, key, value, mask by affine_operand() over {b,
//   h, i, d}, {b, h, j, d},
//                      {b, h, j, e}, {b, h, i, j}, the loops in the order of the nest; scale and zero_masked_rows in
//                      the contraction.
//   rnn                the library call "rnn", f32, by runtime/cpu/rnn.h: packed holds W, R and bias of each direction
//   (runtime/cpu/rnn_plan.h),
//                      scratch[0] the sums of all steps. Parameters: gates (4 LSTM, 3 GRU, 1 RNN), input, hidden,
//                      directions, layout, reverse.
//   pointwise          one stage of stores
//   rows               several stages, each over at most one loop of the row
//   loops              anything else
//
// "in_place" 0 forbids that the result overwrites an operand (a kernel that reads an operand after it stored).

#include "ir/program/program.h"
#include "lowering/lower.h"

namespace optc {

void choose_strategies(Program &program, const LoweringOptions &options, Steps &steps);
// Kernel::cost for every kernel, as expressions of the dims: the bytes of the buffers that it reads and writes, each
// once, and its arithmetic operations (a product and its sum are two, exp and its like 20).
void estimate_costs(Program &program);

}  // namespace optc
