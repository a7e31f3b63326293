#pragma once
// Weights laid out for their kernels, with the packing functions of runtime/cpu (the layouts are documented there).

#include <array>
#include <cstdint>
#include <vector>

#include "ir/constant.h"
#include "ir/program/schedule.h"

namespace optc {

// B[k][n] at element offset + k * row_stride + n * column_stride of an f32, f64, f16 or bf16 constant, in the panels of
// runtime/cpu/gemm_plan.h, in its own type.
Constant pack_gemm(const Constant &b, int64_t offset, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride);

// The same of an int8 or uint8 constant, in the panels of runtime/cpu/gemm_i8_plan.h.
Constant pack_gemm_integer(const Constant &b, int64_t offset, int64_t k, int64_t n, int64_t row_stride,
                           int64_t column_stride);

// Weights [M, C/g, kd, kh, kw] of a convolution (a 2-D one has kd = 1, a 1-D one kh = 1, too), or [C, M/g, kd, kh, kw]
// of a transposed one, for one of the algorithms of runtime/cpu/conv_plan.h and conv_transposed_plan.h.
struct ConvolutionShape : ConvolutionGeometry {
  int64_t depth = 0, height = 0, width = 0;  // of the input; 0: not known
  int64_t element = 4;                       // bytes of an element: f32 or f64
};
enum class ConvolutionAlgorithm : uint8_t { kGemm, kDirect, kDepthwise, kWinograd2, kWinograd4, kTransposed };
// The algorithm that runtime/cpu's rule chooses; `strict` refuses F(4,3).
ConvolutionAlgorithm convolution_algorithm(const ConvolutionShape &shape, bool strict);
// Whether Winograd's algorithms can compute it, whatever the rule says.
bool winograd_can(const ConvolutionShape &shape);
// Whether the direct algorithm leaves out the taps outside the image instead of reading a border of zeros, of a known
// image whose channels lie innermost.
bool direct_convolution_skips(const ConvolutionShape &shape);
Constant pack_convolution(const Constant &weight, const ConvolutionShape &shape, ConvolutionAlgorithm algorithm);

// The direct convolutions that a transposed one is made of; empty: more than are worth it.
struct TransposedPart {
  ConvolutionGeometry direct;    // pads_end does not count: `outputs` tells their number
  std::array<int64_t, 3> first;  // the outputs are strides * q + first, ... of the transposed one, q = 0, 1, ...
  bool empty = false;            // no input reaches them
};
std::vector<TransposedPart> transposed_parts(const ConvolutionGeometry &geometry);

// One direction of a recurrent layer (runtime/cpu/rnn_plan.h): W, R and the biases of direction `direction` of ONNX's
// operands.
struct RecurrentShape {
  int64_t gates = 4, input = 0, hidden = 0;  // 4: LSTM, 3: GRU, 1: RNN
  bool linear_before_reset = false;
};
struct PackedRecurrent {
  Constant w, r, bias;
};
PackedRecurrent pack_recurrent(const RecurrentShape &shape, int64_t direction, const Constant &w, const Constant &r,
                               const Constant *bias);

// The same where W is [directions, input, gates * hidden] and R [directions, hidden, gates * hidden] of int8 or uint8.
PackedRecurrent pack_recurrent_integer(const RecurrentShape &shape, int64_t direction, const Constant &w,
                                       const Constant &r, const Constant *bias);
// R's columns lie in blocks of units, padded: their number, and the column of ONNX's R that one is (-1: none). Its
// scales and zero points, one a column, go with them.
int64_t recurrent_columns(const RecurrentShape &shape);
int64_t recurrent_column(const RecurrentShape &shape, int64_t ordered);

// Weights [M, C/g, kd, kh, kw] of int8 or uint8 by runtime/cpu/conv_i8_plan.h; `depthwise`: its layout for those.
Constant pack_convolution_integer(const Constant &weight, const ConvolutionGeometry &geometry, bool depthwise);

}  // namespace optc
