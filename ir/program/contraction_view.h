#pragma once
// Views of contractions that strategies work on: operands as a buffer, an offset and one stride a loop. Lowering
// chooses strategies with them, emit/ and evaluate/ read the same ones, so that the meaning of a strategy's operands is
// said once.

#include <optional>
#include <vector>

#include "ir/program/program.h"

namespace optc {

// address(element) = offset + sum over i of strides[i] * loops[i], in elements of the buffer's storage.
struct OperandView {
  BufferId buffer;
  ElementType element = ElementType::kUndefined;
  Dim offset;                // free of the loops
  std::vector<Dim> strides;  // one a loop, in the order of the list that was asked for
};

// The view of a scalar that is a load (perhaps behind exact casts) whose storage address is affine in all the given
// loops. nullopt otherwise, also when the load is indexed by other loop counters or gathered indices that are not in
// `free`.
std::optional<OperandView> affine_operand(const Program &program, ScalarId scalar, const std::vector<Loop> &loops);

// Several loops as one: the stride of the collapsed counter when stride[i] = stride[i+1] * extent[i+1] for all (loops
// of extent 1 aside). Empty list or all extents 1: stride 0.
std::optional<Dim> uniform_stride(const std::vector<Loop> &loops, const std::vector<Dim> &strides);
Dim total_extent(const std::vector<Loop> &loops);

// out[batch][m, n] = epilogue(sum_k a[batch][m, k] * b[batch][k, n]) with m, n and k each collapsed to one counter.
// Batch loops are those that both operands use and those that could not be collapsed into m.
struct GemmView {
  std::vector<Loop> batch, m, n, k;
  OperandView a, b;          // strides in the order batch.., m.., k..  /  batch.., k.., n..
  Dim rows, columns, inner;  // extents of the collapsed m, n, k
  Dim a_row, a_inner;        // strides of a by collapsed m and k
  Dim b_inner, b_column;     // strides of b by collapsed k and n
};
// For kernels with a kMatMul contraction. nullopt: the operands are not affine, or m, n or k do not collapse.
std::optional<GemmView> gemm_view(const Program &program, const Kernel &kernel);

// A convolution's operands: the input as the load inside the factor (padding is a select around it), and the weight,
// both buffers of the operand's own shape, read at its own index: nullopt where one is read under another shape, whose
// dims are not the sizes of the convolution.
struct ConvolutionView {
  BufferId input, weight, output;        // output invalid when the epilogue stores elsewhere (more than one buffer)
  Dim batch, in_channels, out_channels;  // whole, not per group
  std::vector<Dim> in_spatial, out_spatial;
  const Contraction *info = nullptr;
};
std::optional<ConvolutionView> convolution_view(const Program &program, const Kernel &kernel);

// The loops over output columns of a contraction, outermost first: n of a product; group and channel of a convolution.
std::vector<Loop> column_loops(const LoopNest &nest);
// The loops over output pixels of a convolution, outermost first: image, then space.
std::vector<Loop> pixel_loops(const LoopNest &nest);
// Whether each load and store of the stages behind the summing stage has one stride, 0 or 1, along the columns
// (vectorizable).
bool epilogue_is_row_wise(const Program &program, const Kernel &kernel);

}  // namespace optc
