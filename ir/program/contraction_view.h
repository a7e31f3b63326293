#pragma once
// Views of contractions that schedules hold: operands as a buffer, an offset and one stride a loop. Said once: lowering
// chooses schedules with them, and the verifier of Programs asks whether a schedule still says the same.

#include <optional>
#include <vector>

#include "ir/program/program.h"

namespace optc {

// The view of a scalar that is a load (perhaps behind exact casts) whose storage address is affine in all the given
// loops. nullopt otherwise, also when the load is indexed by other loop counters or gathered indices that are not in
// `free`.
std::optional<OperandView> affine_operand(const Program &program, ScalarId scalar, const std::vector<Loop> &loops);

// Several loops as one: the stride of the collapsed counter when stride[i] = stride[i+1] * extent[i+1] for all (loops
// of extent 1 aside). Empty list or all extents 1: stride 0.
std::optional<Dim> uniform_stride(const std::vector<Loop> &loops, const std::vector<Dim> &strides);
Dim total_extent(const std::vector<Loop> &loops);
// Whether `d` depends on a loop's counter or on a value that is computed.
bool uses_any_loop(Dim d);

// A factor of a product: the element as it is stored (perhaps behind exact casts), and the zero point that is
// subtracted from it in int32; invalid: none.
struct FactorParts {
  ScalarId element, zero;
};
FactorParts factor_parts(const Program &program, ScalarId factor);

// For kernels with a kMatMul contraction; of the stored elements, without zero points. nullopt: the operands are not
// affine, or m, n or k do not collapse.
std::optional<GemmView> gemm_view(const Program &program, const Kernel &kernel);
// The same of the loads `lhs` and `rhs`, which its factors are made of.
std::optional<GemmView> gemm_view(const Program &program, const Kernel &kernel, ScalarId lhs, ScalarId rhs);

// A convolution's operands: the input as the load inside the factor (padding is a select around it), and the weight,
// both buffers of the operand's own shape, read at its own index: nullopt where one is read under another shape, whose
// dims are not the sizes of the convolution.
struct ConvolutionView {
  BufferId input, weight, output;        // output invalid when the epilogue stores elsewhere (more than one buffer)
  Dim batch, in_channels, out_channels;  // whole, not per group
  std::vector<Dim> in_spatial, out_spatial;
  const Contraction *info = nullptr;
  bool integer = false;  // a sum in int32
};
std::optional<ConvolutionView> convolution_view(const Program &program, const Kernel &kernel);

// A depthwise convolution (a filter a channel) of one or two dims whose factors are plain loads of f32, f16 or bf16,
// multiplied and summed in f32, with stages of stores behind the sum: its loops by role, at most one each (none where
// the extent is 1), the taps as rows and columns of the kernel. nullopt for all others.
struct DepthwiseView {
  ConvolutionView view;
  ElementType element = ElementType::kUndefined;  // of the input as it is stored
  std::vector<Loop> images, channels, rows, columns, taps;
  int64_t together = 1;  // so many channels of a pixel can be fetched at once: 4, 2 or 1
};
std::optional<DepthwiseView> depthwise_view(const Program &program, const Kernel &kernel);
// The input pixels of a line that a strip reaches over.
int64_t strip_reach(const ConvolutionStripsSchedule &schedule);
// Whether emit/ptx/depthwise.cc can run it: a block of up to 256 threads in whole warps, a reach of 31 pixels at most
// (a bit each), weights of a block in 32 KiB of shared memory.
bool is_strip(const ConvolutionStripsSchedule &schedule);

// For kernels with a kAttention contraction: all but the scratch. nullopt: an operand is not f32 or has no such
// strides, the scale is computed, or something stands behind the weighted sum.
std::optional<AttentionSchedule> attention_view(const Program &program, const Kernel &kernel);

// The loops over output columns of a contraction, outermost first: n of a product; group and channel of a convolution.
std::vector<Loop> column_loops(const LoopNest &nest);
// The loops over output pixels of a convolution, outermost first: image, then space.
std::vector<Loop> pixel_loops(const LoopNest &nest);
// For a product (or a convolution) of int8 and uint8 in int32: nullopt for all others, and where a zero point is
// computed, is of another type or runs along the sum.
std::optional<ZeroPoints> zero_points(const Program &program, const Kernel &kernel, const GemmView &view);
std::optional<ZeroPoints> zero_points(const Program &program, const Kernel &kernel, const ConvolutionView &view);
inline bool is_byte(ElementType type) { return type == ElementType::kInt8 || type == ElementType::kUInt8; }

// Of a product in f32 or f64: whether its operands are laid out in that type before they are multiplied
// (runtime/cpu/gemm_stored.h), because they are stored in 16 bits or A does not run along the sum.
bool widens(const GemmView &view);

// Whether each load and store of the stages behind the summing stage has one stride, 0 or 1, along the columns
// (vectorizable).
bool epilogue_is_row_wise(const Program &program, const Kernel &kernel);

}  // namespace optc
