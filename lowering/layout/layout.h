#pragma once
// Storage order of spatial tensors: channels last (NHWC, NDHWC, NWC) for the temporaries that convolutions and poolings
// read and write, and for what maps connect with them. Logical indices do not change, only Buffer::order does; a
// conversion of the caller's row-major input or output is a copy kernel, made only where a convolution would otherwise
// walk a row-major tensor.

#include "ir/program/program.h"
#include "lowering/lower.h"

namespace optc {

void choose_layout(Program &program, const LoweringOptions &options, Steps &steps);

// On GPUs: constant weights of convolutions with the input channel innermost, as the input has it, so that both are
// fetched 16 bytes at a time, and f32 weights [K, N] of products as [N, K]. The bytes of the constant are in the order
// of its buffer from here on (its dims stay the logical ones).
void order_weights(Program &program, Steps &steps);

// On GPUs, once tensors are stored as they will be: a convolution of 16-bit products whose channels are no multiple of
// 8 reads a copy of its image in which what a window has of a line lies together (two dims of space of known sizes).
void lay_out_windows(Program &program, const LoweringOptions &options, Steps &steps);

}  // namespace optc
