#include "emit/ptx/math.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <cmath>
#include <initializer_list>
#include <limits>

namespace optc::ptx {

namespace {

using llvm::Intrinsic::ID;

Value number(Value like, double v) { return llvm::ConstantFP::get(like->getType(), v); }

// Horner's scheme, coefficients from the constant term up.
Value polynomial(Builder &b, Value x, std::initializer_list<double> coefficients) {
  Value sum = nullptr;
  for (auto c = std::rbegin(coefficients); c != std::rend(coefficients); ++c)
    sum = sum ? b.fma(sum, x, number(x, *c)) : number(x, *c);
  return sum;
}

Value abs(Builder &b, Value x) { return b.call(llvm::Intrinsic::fabs, {x->getType()}, {x}); }
// `magnitude` is not negative: its sign bit is 0.
Value with_sign(Builder &b, Value magnitude, Value sign) {
  Value bit = b.ir.CreateAnd(b.ir.CreateBitCast(sign, b.t_i32()), b.i32(int64_t{0x80000000}));
  return b.ir.CreateBitCast(b.ir.CreateOr(b.ir.CreateBitCast(magnitude, b.t_i32()), bit), b.t_f32());
}
Value select(Builder &b, Value c, Value x, Value y) { return b.ir.CreateSelect(c, x, y); }
Value greater(Builder &b, Value x, double y) { return b.ir.CreateFCmpOGT(x, number(x, y)); }
Value less(Builder &b, Value x, double y) { return b.ir.CreateFCmpOLT(x, number(x, y)); }
// Clamps numbers and leaves NaN alone.
Value clamp(Builder &b, Value x, double low, double high) {
  x = select(b, greater(b, x, high), number(x, high), x);
  return select(b, less(b, x, low), number(x, low), x);
}
// Where no subnormal result matters: flushing them spares the scaling that the special function unit needs otherwise.
Value ex2(Builder &b, Value x) { return b.pure_asm("ex2.approx.ftz.f32 $0, $1;", "=f,f", b.t_f32(), {x}); }

// x * factor; where x is a product by a constant, one product.
Value scaled(Builder &b, Value x, double factor) {
  if (auto *product = llvm::dyn_cast<llvm::BinaryOperator>(x);
      product && product->getOpcode() == llvm::Instruction::FMul)
    for (unsigned side = 0; side < 2; ++side)
      if (const auto *c = llvm::dyn_cast<llvm::ConstantFP>(product->getOperand(side)))
        return b.ir.CreateFMul(product->getOperand(1 - side),
                               number(x, static_cast<double>(c->getValueAPF().convertToFloat()) * factor));
  return b.ir.CreateFMul(x, number(x, factor));
}

constexpr double kLog2E = 1.4426950408889634;

// tanh where |x| < 0.625: x + x^3 P(x^2)
Value tanh_near_zero(Builder &b, Value x) {
  Value square = b.ir.CreateFMul(x, x);
  Value p = polynomial(b, square, {-0.333332839, 0.133314912, -0.0537434953, 0.020650579, -0.00571703656});
  return b.fma(b.ir.CreateFMul(square, x), p, x);
}

// Within one unit in the last place; below 2^-126: 0.
Value fast_reciprocal(Builder &b, Value x) { return b.pure_asm("rcp.approx.ftz.f32 $0, $1;", "=f,f", b.t_f32(), {x}); }

}  // namespace

Value exp2_f32(Builder &b, Value x) { return b.pure_asm("ex2.approx.f32 $0, $1;", "=f,f", b.t_f32(), {x}); }

Value reciprocal_f32(Builder &b, Value x) { return b.call(llvm::Intrinsic::nvvm_rcp_rn_f, {}, {x}); }

// x = n ln 2 + r: 2^n comes from the low bits of a rounded sum, 2^r from the special function unit. n stays in
// [-126, 127]; beyond, r grows and 2^r brings the subnormal result, 0 or infinity in one rounding.
Value exp_f32(Builder &b, Value x) {
  constexpr double kRound = 12582912.0 + 127;  // 1.5 * 2^23: the sum's low bits are n + 127
  Value shifted = b.fma(x, number(x, 1.4426950216293335), number(x, kRound));
  shifted = b.call(llvm::Intrinsic::maximum, {x->getType()}, {shifted, number(x, kRound - 126)});
  shifted = b.call(llvm::Intrinsic::minimum, {x->getType()}, {shifted, number(x, kRound + 127)});
  Value n = b.ir.CreateFSub(number(x, kRound), shifted);  // -n, exact
  Value r = b.fma(x, number(x, 1.4426950216293335), n);
  r = b.fma(x, number(x, 1.9259629911266175e-8), r);
  return b.ir.CreateFMul(ex2(b, r), b.ir.CreateBitCast(b.shl(b.ir.CreateBitCast(shifted, b.t_i32()), 23), b.t_f32()));
}

Value expm1_f32(Builder &b, Value x) {
  // |x| < 0.35: x + x^2 P(x)
  Value p = polynomial(b, x, {0.5, 0.166666668, 0.041666342, 0.00833327175, 0.00139420479, 0.000199150163});
  Value small = b.fma(b.ir.CreateFMul(x, x), p, x);
  Value large = b.ir.CreateFSub(exp_f32(b, x), number(x, 1));
  return select(b, less(b, abs(b, x), 0.35), small, large);
}

Value log_f32(Builder &b, Value x) {
  Value tiny = less(b, x, std::numeric_limits<float>::min());
  Value scaled = select(b, tiny, b.ir.CreateFMul(x, number(x, 8388608.0)), x);
  Value bits = b.ir.CreateBitCast(scaled, b.t_i32());
  // x = 2^n * (1 + f), 1 + f in [sqrt(1/2), sqrt(2))
  Value exponent = b.ir.CreateAnd(b.sub(bits, b.i32(0x3F3504F3)), b.i32(static_cast<int32_t>(0xFF800000)));
  Value f = b.ir.CreateFSub(b.ir.CreateBitCast(b.sub(bits, exponent), b.t_f32()), number(x, 1));
  Value n = b.ir.CreateSIToFP(b.ir.CreateAShr(exponent, b.i32(23)), b.t_f32());
  n = b.ir.CreateFAdd(n, select(b, tiny, number(x, -23), number(x, 0)));
  Value p = polynomial(
      b, f,
      {0.333333167, -0.250008104, 0.200022861, -0.166245531, 0.141811961, -0.131287676, 0.128816224, -0.0785954587});
  Value square = b.ir.CreateFMul(f, f);
  Value tail = b.fma(square, number(x, -0.5), b.ir.CreateFMul(b.ir.CreateFMul(square, f), p));
  tail = b.fma(n, number(x, -2.12194440e-4), tail);
  Value result = b.fma(n, number(x, 0.693359375), b.ir.CreateFAdd(f, tail));
  const double infinity = std::numeric_limits<double>::infinity();
  result = select(b, b.ir.CreateFCmpOEQ(x, number(x, infinity)), x, result);
  result = select(b, b.ir.CreateFCmpOEQ(x, number(x, 0)), number(x, -infinity), result);
  Value nan = number(x, std::numeric_limits<double>::quiet_NaN());
  return select(b, b.ir.CreateFCmpULT(x, number(x, 0)), nan, result);  // negative or NaN
}

Value log1p_f32(Builder &b, Value x) {
  // log(u) + (x - (u - 1)) / u with u = 1 + x (Kahan): the second term repairs the rounding of u.
  Value u = b.ir.CreateFAdd(number(x, 1), x);
  Value repair = b.ir.CreateFDiv(b.ir.CreateFSub(x, b.ir.CreateFSub(u, number(x, 1))), u);
  Value ordinary = b.ir.CreateAnd(greater(b, u, 0), less(b, u, std::numeric_limits<double>::infinity()));
  Value result = b.ir.CreateFAdd(log_f32(b, u), select(b, ordinary, repair, number(x, 0)));
  return select(b, less(b, abs(b, x), 1e-7), x, result);
}

Value tanh_f32(Builder &b, Value x) {
  Value a = abs(b, x);
  Value e = exp_f32(b, b.ir.CreateFMul(clamp(b, a, 0, 20), number(x, 2)));
  Value large = b.ir.CreateFSub(number(x, 1), b.ir.CreateFDiv(number(x, 2), b.ir.CreateFAdd(e, number(x, 1))));
  return select(b, less(b, a, 0.625), tanh_near_zero(b, x), with_sign(b, large, x));
}

Value erf_f32(Builder &b, Value x) {
  Value a = abs(b, x);
  Value square = b.ir.CreateFMul(x, x);  // |x| < 1: x P(x^2)
  Value small = b.ir.CreateFMul(x, polynomial(b, square,
                                              {1.12837917, -0.376126271, 0.112836002, -0.0268544446, 0.00518953534,
                                               -0.000802084128, 7.88911952e-05}));
  // 1 <= |x| <= 4: log2(erfc) is a smooth function
  Value t = clamp(b, a, 0, 4.0);
  Value l = polynomial(b, t,
                       {0.000294828968, -1.62975655, -0.91328311, -0.156732943, 0.0366063028, -0.00617817208,
                        0.000669104648, -3.65215443e-05, 3.62587372e-07});
  Value large = b.ir.CreateFSub(number(x, 1), ex2(b, l));
  return select(b, less(b, a, 1), small, with_sign(b, large, x));
}

Value one_plus_erf_f32(Builder &b, Value x) {
  // log2(erfc) by a polynomial that falls to minus infinity; weighted so that erfc errs by at most 6e-8 absolutely.
  Value t = abs(b, x);
  Value e = ex2(b, polynomial(b, t,
                              {2.17139924e-08, -1.6279093, -0.918409824, -0.148506641, 0.0283018798, -0.000825157796,
                               -0.00146038574, 0.000436945353, -4.43529643e-05}));
  return select(b, less(b, x, 0), e, b.ir.CreateFSub(number(x, 2), e));
}

Value one_plus_tanh_f32(Builder &b, Value x) {
  // 2 / (1 + exp(-2x))
  Value e = exp_f32(b, b.ir.CreateFMul(x, number(x, -2)));
  return b.ir.CreateFMul(number(x, 2), fast_reciprocal(b, b.ir.CreateFAdd(number(x, 1), e)));
}

Value divide_f32(Builder &b, Value x, Value y, Value inverse) {
  Value q = b.ir.CreateFMul(x, inverse);
  Value rest = b.fma(b.ir.CreateFNeg(q), y, x);
  Value better = b.fma(rest, inverse, q);
  return select(b, b.ir.CreateFCmpUNO(better, better), q, better);
}

Value sigmoid_f32(Builder &b, Value x) {
  Value e = exp_f32(b, b.ir.CreateFNeg(x));
  return fast_reciprocal(b, b.ir.CreateFAdd(number(x, 1), e));
}

Value exp_rounded_f32(Builder &b, Value x) { return ex2(b, scaled(b, x, kLog2E)); }

Value sigmoid_rounded_f32(Builder &b, Value x) {
  return fast_reciprocal(b, b.ir.CreateFAdd(ex2(b, scaled(b, x, -kLog2E)), number(x, 1)));
}

Value tanh_rounded_f32(Builder &b, Value x) {
  Value e = ex2(b, b.ir.CreateFMul(x, number(x, 2 * kLog2E)));
  Value large = b.fma(fast_reciprocal(b, b.ir.CreateFAdd(e, number(x, 1))), number(x, -2), number(x, 1));
  return select(b, less(b, abs(b, x), 0.625), tanh_near_zero(b, x), large);
}

Value divide_rounded_f32(Builder &b, Value x, Value y) {
  return b.pure_asm("div.full.f32 $0, $1, $2;", "=f,f,f", b.t_f32(), {x, y});
}

Value sin_f32(Builder &b, Value x, bool cosine) {
  // Reduction in f64: x = n * pi/2 + r. The quotient fits 64 bits for every x whose fraction means anything.
  Value wide = b.ir.CreateFPExt(x, b.ir.getDoubleTy());
  Value n = b.call(llvm::Intrinsic::rint, {wide->getType()}, {b.ir.CreateFMul(wide, number(wide, M_2_PI))});
  Value r = b.fma(n, number(wide, -1.57079632679489655800e+00), wide);
  r = b.fma(n, number(wide, -6.12323399573676603587e-17), r);
  Value f = b.ir.CreateFPTrunc(r, b.t_f32());
  Value quadrant = b.ir.CreateTrunc(
      b.call(llvm::Intrinsic::fptosi_sat, {b.t_i64(), wide->getType()}, {clamp(b, n, -9e15, 9e15)}), b.t_i32());
  if (cosine) quadrant = b.add(quadrant, 1);
  Value square = b.ir.CreateFMul(f, f);
  Value s = b.fma(b.ir.CreateFMul(square, f),
                  polynomial(b, square, {-0.166666666, 0.00833332927, -0.000198392961, 2.71793984e-06}), f);
  Value c = polynomial(b, square, {1.0, -0.5, 0.0416666463, -0.00138873371, 2.44348442e-05});
  Value odd = b.ir.CreateICmpNE(b.and_(quadrant, 1), b.i32(0));
  Value v = select(b, odd, c, s);
  Value flip = b.ir.CreateICmpNE(b.and_(quadrant, 2), b.i32(0));
  return select(b, flip, b.ir.CreateFNeg(v), v);
}

Value atan_f32(Builder &b, Value x) {
  Value a = abs(b, x);
  Value steep = greater(b, a, 1);
  Value t = select(b, steep, b.ir.CreateFDiv(number(x, 1), a), a);
  Value square = b.ir.CreateFMul(t, t);
  Value p = polynomial(b, square,
                       {-0.333333274, 0.199996926, -0.142801307, 0.110602445, -0.0881884831, 0.0675957213,
                        -0.0449464459, 0.022760341, -0.00742263771, 0.00113487833});
  Value v = b.fma(b.ir.CreateFMul(square, t), p, t);
  v = select(b, steep, b.ir.CreateFSub(number(x, M_PI_2), v), v);
  return with_sign(b, v, x);
}

Value asin_f32(Builder &b, Value x, bool cosine) {
  // asin x = atan(x / sqrt((1 - x)(1 + x))); the quotient at |x| = 1 is infinite and gives pi/2.
  Value one = number(x, 1);
  Value under = b.ir.CreateFMul(b.ir.CreateFSub(one, x), b.ir.CreateFAdd(one, x));
  Value root = b.call(llvm::Intrinsic::sqrt, {x->getType()}, {under});
  if (!cosine) return atan_f32(b, b.ir.CreateFDiv(x, root));
  // acos x = 2 atan(sqrt(1 - x) / sqrt(1 + x))
  Value top = b.call(llvm::Intrinsic::sqrt, {x->getType()}, {b.ir.CreateFSub(one, x)});
  Value bottom = b.call(llvm::Intrinsic::sqrt, {x->getType()}, {b.ir.CreateFAdd(one, x)});
  return b.ir.CreateFMul(number(x, 2), atan_f32(b, b.ir.CreateFDiv(top, bottom)));
}

Value exp_f64(Builder &b, Value x) {
  llvm::Type *type = x->getType();
  Value inside = clamp(b, x, -760.0, 720.0);
  Value n = b.call(llvm::Intrinsic::rint, {type}, {b.ir.CreateFMul(inside, number(x, 1.4426950408889634074))});
  Value r = b.fma(n, number(x, -6.93147180369123816490e-01), inside);
  r = b.fma(n, number(x, -1.90821492927058770002e-10), r);
  // Taylor series to degree 13: |r| <= ln 2 / 2, remainder below 2^-58
  Value p = polynomial(b, r,
                       {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
                        1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0});
  Value whole = b.call(llvm::Intrinsic::fptosi_sat, {b.t_i64(), type}, {n});
  Value half = b.ir.CreateAShr(whole, b.i64(1));
  auto scale = [&](Value v, Value e) {
    Value bits = b.ir.CreateShl(b.ir.CreateAdd(e, b.i64(1023)), b.i64(52));
    return b.ir.CreateFMul(v, b.ir.CreateBitCast(bits, type));
  };
  return scale(scale(p, half), b.ir.CreateSub(whole, half));
}

Value log_f64(Builder &b, Value x) {
  llvm::Type *type = x->getType();
  Value tiny = less(b, x, std::numeric_limits<double>::min());
  Value scaled = select(b, tiny, b.ir.CreateFMul(x, number(x, 18014398509481984.0)), x);  // 2^54
  Value bits = b.ir.CreateBitCast(scaled, b.t_i64());
  Value exponent =
      b.ir.CreateAnd(b.ir.CreateSub(bits, b.i64(0x3FE6A09E667F3BCD)), b.i64(static_cast<int64_t>(0xFFF0000000000000)));
  Value m = b.ir.CreateBitCast(b.ir.CreateSub(bits, exponent), type);
  Value n = b.ir.CreateSIToFP(b.ir.CreateAShr(exponent, b.i64(52)), type);
  n = b.ir.CreateFAdd(n, select(b, tiny, number(x, -54), number(x, 0)));
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.1716: odd series to s^21, remainder below 2^-58
  Value s = b.ir.CreateFDiv(b.ir.CreateFSub(m, number(x, 1)), b.ir.CreateFAdd(m, number(x, 1)));
  Value square = b.ir.CreateFMul(s, s);
  Value p = polynomial(
      b, square, {2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21});
  Value log_m = b.fma(b.ir.CreateFMul(square, s), p, b.ir.CreateFMul(s, number(x, 2)));
  log_m = b.fma(n, number(x, 1.90821492927058770002e-10), log_m);
  Value result = b.fma(n, number(x, 6.93147180369123816490e-01), log_m);
  const double infinity = std::numeric_limits<double>::infinity();
  result = select(b, b.ir.CreateFCmpOEQ(x, number(x, infinity)), x, result);
  result = select(b, b.ir.CreateFCmpOEQ(x, number(x, 0)), number(x, -infinity), result);
  return select(b, b.ir.CreateFCmpULT(x, number(x, 0)), number(x, std::numeric_limits<double>::quiet_NaN()), result);
}

// |x|^y = exp(y log |x|), with the sign and the exceptions of C's pow. In f64 the result is within about |y log x| *
// 2^-52 relatively.
Value pow_f64(Builder &b, Value x, Value y) {
  const double infinity = std::numeric_limits<double>::infinity();
  llvm::Type *type = x->getType();
  Value a = abs(b, x);
  Value exponent = b.ir.CreateFMul(y, log_f64(b, a));
  Value magnitude = exp_f64(b, exponent);
  Value whole = b.call(llvm::Intrinsic::trunc, {type}, {y});
  Value is_whole = b.ir.CreateFCmpOEQ(whole, y);
  Value half = b.ir.CreateFMul(y, number(y, 0.5));
  Value is_odd = b.ir.CreateAnd(is_whole, b.ir.CreateFCmpUNE(b.call(llvm::Intrinsic::trunc, {type}, {half}), half));
  Value negative = b.ir.CreateICmpSLT(b.ir.CreateBitCast(x, b.t_i64()), b.i64(0));
  Value result = select(b, b.ir.CreateAnd(negative, is_odd), b.ir.CreateFNeg(magnitude), magnitude);
  // a negative finite base to a fraction
  Value bad =
      b.ir.CreateAnd(b.ir.CreateAnd(less(b, x, 0), b.ir.CreateFCmpOGT(x, number(x, -infinity))),
                     b.ir.CreateNot(b.ir.CreateOr(is_whole, b.ir.CreateFCmpOEQ(abs(b, y), number(y, infinity)))));
  result = select(b, bad, number(x, std::numeric_limits<double>::quiet_NaN()), result);
  Value one = b.ir.CreateOr(b.ir.CreateFCmpOEQ(y, number(y, 0)), b.ir.CreateFCmpOEQ(x, number(x, 1)));
  one = b.ir.CreateOr(
      one, b.ir.CreateAnd(b.ir.CreateFCmpOEQ(x, number(x, -1)), b.ir.CreateFCmpOEQ(abs(b, y), number(y, infinity))));
  return select(b, one, number(x, 1), result);
}

Value pow_f32(Builder &b, Value x, Value y) {
  llvm::Type *wide = b.ir.getDoubleTy();
  return b.ir.CreateFPTrunc(pow_f64(b, b.ir.CreateFPExt(x, wide), b.ir.CreateFPExt(y, wide)), b.t_f32());
}

}  // namespace optc::ptx
