#pragma once
// Mathematical functions as LLVM IR. No device library is needed on the user's machine. f32 functions are within about
// 2 ulp (pow and the trigonometric functions compute in f64 inside); edges follow the C library: NaN in, NaN out;
// infinities and zeros exact. Polynomials are minimax fits (Lawson's iteratively reweighted least squares) over the
// interval that each comment names.

#include "emit/ptx/builder.h"

namespace optc::ptx {

Value exp2_f32(Builder &b, Value x);  // one ex2.approx: relative error 2^-22, subnormal results kept
Value exp_f32(Builder &b, Value x);
Value expm1_f32(Builder &b, Value x);
Value log_f32(Builder &b, Value x);
Value log1p_f32(Builder &b, Value x);
Value tanh_f32(Builder &b, Value x);
Value erf_f32(Builder &b, Value x);
Value sigmoid_f32(Builder &b, Value x);
// 1 + erf(x) and 1 + tanh(x), within about 1e-7 absolutely: cheaper than the function alone, which must be exact near
// 0.
Value one_plus_erf_f32(Builder &b, Value x);
Value one_plus_tanh_f32(Builder &b, Value x);
// For results that are rounded to 16 bits: relative errors of about 2^-21 + |x| 2^-24, subnormal results are 0.
Value exp_rounded_f32(Builder &b, Value x);
Value tanh_rounded_f32(Builder &b, Value x);
Value sigmoid_rounded_f32(Builder &b, Value x);
Value divide_rounded_f32(Builder &b, Value x, Value y);
// x / y by y's correctly rounded reciprocal, for a y that many x share: correctly rounded (Markstein 1990) where x is
// not below 2^-100 and y's reciprocal is finite; zeros, infinities and NaN as x / y has them.
Value divide_f32(Builder &b, Value x, Value y, Value inverse);
Value sin_f32(Builder &b, Value x, bool cosine);  // exact reduction up to 2^30, less accurate beyond
Value atan_f32(Builder &b, Value x);
Value asin_f32(Builder &b, Value x, bool cosine);  // cosine: acos
Value pow_f32(Builder &b, Value x, Value y);
Value exp_f64(Builder &b, Value x);
Value log_f64(Builder &b, Value x);
Value pow_f64(Builder &b, Value x, Value y);
Value reciprocal_f32(Builder &b, Value x);  // rcp.rn

}  // namespace optc::ptx
