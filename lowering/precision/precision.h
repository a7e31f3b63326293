#pragma once
// Storage in 16 bits (--precision). Between fusion and the choice of strategies, f32 temporaries and f32 constants
// become f16 or bf16 in memory: every load of such a buffer widens to f32, every store rounds once, and all arithmetic
// stays as it was. What the caller gives and takes keeps its type. A buffer stays f32 when
//   * it is not read and written by loop nests alone (library calls, control flow, scatters), or shares bytes with one
//   that is not;
//   * its values steer discrete results: gathered indices, conversions to integers; or the angles of sin, cos and tan;
//   * its values may leave f16's range or grid by construction (range.h): fills of -3.4e38, sums of squares, positions
//   as floats;
//   * a rounding of it could make an infinity or a NaN where f32 has none, or turn a comparison (poles.h): divisors
//   that may cancel or underflow, arguments of logarithms and roots, exponents, operands of remainders and of ==;
//   * it is a constant beyond f16's range or all in its subnormals, or a small one that no contraction multiplies;
//   * measured on samples it costs too much (LoweringOptions::keep_f32);
//   * on a CPU, a contraction multiplies it: those strategies read f32 panels;
//   * a contraction multiplies it with one that stays f32 for its values.
// On a GPU, the caller's f32 operand beside a 16-bit one is rounded as it is read, so that the product runs on 16-bit
// tensor cores.
//
// Attention masks stay f32 by the range rule, so a softmax sees the fills that the model states.

#include "ir/program/program.h"
#include "lowering/lower.h"

namespace optc {

// Behind it, for a GPU: values that only 16 bits are kept of take shorter formulas (rounded.cc).
void shorten_rounded(Program &program, Steps &steps);
void choose_storage(Program &program, const LoweringOptions &options, Steps &steps, PrecisionReport &report);

}  // namespace optc
