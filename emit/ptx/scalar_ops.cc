// The operations of scalar expressions: arithmetic, functions, comparisons, casts, and what reductions combine with.

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <algorithm>
#include <limits>
#include "emit/ptx/math.h"
#include "emit/ptx/scalars.h"

namespace optc::ptx {

namespace {

// bf16 lies in a register as its bits; arithmetic is f32's, rounded once.
Value from_bf16(Builder &b, Value bits) {
  return b.ir.CreateBitCast(b.ir.CreateShl(b.ir.CreateZExt(bits, b.t_i32()), b.i32(16)), b.t_f32());
}
Value to_bf16(Builder &b, Value f32) {
  return b.ir.CreateBitCast(b.call(llvm::Intrinsic::nvvm_f2bf16_rn, {}, {f32}),
                            register_type(b, ElementType::kBFloat16));
}

}  // namespace

Value identity(Builder &b, Combine how, ElementType type) {
  if (type == ElementType::kBFloat16) return to_bf16(b, identity(b, how, ElementType::kFloat32));
  llvm::Type *r = register_type(b, type);
  const bool real = r->isFloatingPointTy();
  const unsigned bits = r->getPrimitiveSizeInBits();
  auto integer = [&](llvm::APInt v) -> Value { return llvm::ConstantInt::get(r, v); };
  switch (how) {
    case Combine::kProduct:
      return real ? static_cast<Value>(llvm::ConstantFP::get(r, 1.0)) : integer(llvm::APInt(bits, 1));
    case Combine::kMax:
      if (real) return llvm::ConstantFP::getInfinity(r, true);
      return integer(is_signed_integer(type) ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt(bits, 0));
    case Combine::kMin:
      if (real) return llvm::ConstantFP::getInfinity(r, false);
      return integer(is_signed_integer(type) ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getAllOnes(bits));
    case Combine::kAnd:
      return integer(llvm::APInt::getAllOnes(bits));
    case Combine::kStore:
    case Combine::kSum:
    case Combine::kOr:
      break;
  }
  return llvm::Constant::getNullValue(r);
}

namespace {

Value extreme(Builder &b, ElementType type, Value x, Value y, bool maximum) {
  if (type == ElementType::kFloat32)
    return b.call(maximum ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, {x->getType()}, {x, y});
  if (x->getType()->isFloatingPointTy()) {
    Value first = maximum ? b.ir.CreateFCmpOGT(x, y) : b.ir.CreateFCmpOLT(x, y);
    first = b.ir.CreateOr(first, b.ir.CreateFCmpUNO(x, x));
    return b.ir.CreateSelect(first, x, y);
  }
  Value less = is_signed_integer(type) ? b.ir.CreateICmpSLT(x, y) : b.ir.CreateICmpULT(x, y);
  return maximum ? b.ir.CreateSelect(less, y, x) : b.ir.CreateSelect(less, x, y);
}

}  // namespace

Value combine(Builder &b, Combine how, ElementType type, Value x, Value y) {
  if (type == ElementType::kBFloat16 && how != Combine::kStore)
    return to_bf16(b, combine(b, how, ElementType::kFloat32, from_bf16(b, x), from_bf16(b, y)));
  const bool real = x->getType()->isFloatingPointTy();
  switch (how) {
    case Combine::kStore:
      return y;
    case Combine::kSum:
      if (type == ElementType::kBool) return b.ir.CreateOr(x, y);
      return real ? b.ir.CreateFAdd(x, y) : b.ir.CreateAdd(x, y);
    case Combine::kProduct:
      return real ? b.ir.CreateFMul(x, y) : b.ir.CreateMul(x, y);
    case Combine::kMax:
      return extreme(b, type, x, y, true);
    case Combine::kMin:
      return extreme(b, type, x, y, false);
    case Combine::kAnd:
      return b.ir.CreateAnd(x, y);
    case Combine::kOr:
      return b.ir.CreateOr(x, y);
  }
  return y;
}

// --- Index expressions
// ------------------------------------------------------------------------------------------------------------

Value Scope::unary(const Scalar &s, ElementType from, Value a) {
  Builder &b = k_.b;
  llvm::IRBuilder<> &ir = b.ir;
  const bool real = wide_float(from);
  llvm::Type *type = a->getType();
  auto number = [&](double v) -> Value {
    return real ? static_cast<Value>(llvm::ConstantFP::get(type, v))
                : llvm::ConstantInt::get(type, static_cast<uint64_t>(static_cast<int64_t>(v)), true);
  };
  // Through f64 and back, for functions that are rare.
  auto in_f64 = [&](const std::function<Value(Value)> &f) {
    return ir.CreateFPTrunc(f(ir.CreateFPExt(a, ir.getDoubleTy())), type);
  };
  auto d = [&](double v) -> Value { return llvm::ConstantFP::get(ir.getDoubleTy(), v); };
  auto near_zero = [&](Value v, Value otherwise) {
    Value small = ir.CreateFCmpOLT(b.call(llvm::Intrinsic::fabs, {v->getType()}, {v}), d(1e-4));
    return ir.CreateSelect(small, v, otherwise);
  };
  auto simple = [&](llvm::Intrinsic::ID id) { return real ? b.call(id, {type}, {a}) : a; };
  const bool f32 = from == ElementType::kFloat32, rounded = f32 && s.flag == kRounded;
  switch (s.op) {
    case ScalarOp::kNeg:
      return real ? ir.CreateFNeg(a) : ir.CreateNeg(a);
    case ScalarOp::kAbs:
      if (real) return simple(llvm::Intrinsic::fabs);
      return is_signed_integer(from) ? ir.CreateSelect(ir.CreateICmpSLT(a, number(0)), ir.CreateNeg(a), a) : a;
    case ScalarOp::kSign:
      if (real) {
        Value v = ir.CreateSelect(ir.CreateFCmpOGT(a, number(0)), number(1), a);
        return ir.CreateSelect(ir.CreateFCmpOLT(a, number(0)), number(-1), v);
      }
      if (!is_signed_integer(from)) return ir.CreateZExt(ir.CreateICmpNE(a, number(0)), type);
      return ir.CreateSelect(ir.CreateICmpSLT(a, number(0)), number(-1),
                             ir.CreateZExt(ir.CreateICmpSGT(a, number(0)), type));
    case ScalarOp::kFloor:
      return simple(llvm::Intrinsic::floor);
    case ScalarOp::kCeil:
      return simple(llvm::Intrinsic::ceil);
    case ScalarOp::kRound:
      return simple(llvm::Intrinsic::rint);
    case ScalarOp::kTrunc:
      return simple(llvm::Intrinsic::trunc);
    case ScalarOp::kSqrt:
      return simple(llvm::Intrinsic::sqrt);
    case ScalarOp::kExp:
      if (rounded) return exp_rounded_f32(b, a);
      return f32 ? exp_f32(b, a) : exp_f64(b, a);
    case ScalarOp::kExpm1:
      return expm1_f32(b, a);
    case ScalarOp::kLog:
      return f32 ? log_f32(b, a) : log_f64(b, a);
    case ScalarOp::kLog1p:
      return log1p_f32(b, a);
    case ScalarOp::kSin:
      return sin_f32(b, a, false);
    case ScalarOp::kCos:
      return sin_f32(b, a, true);
    case ScalarOp::kTan:
      return ir.CreateFDiv(sin_f32(b, a, false), sin_f32(b, a, true));
    case ScalarOp::kAsin:
      return asin_f32(b, a, false);
    case ScalarOp::kAcos:
      return asin_f32(b, a, true);
    case ScalarOp::kAtan:
      return atan_f32(b, a);
    case ScalarOp::kSinh:
    case ScalarOp::kCosh:
      return in_f64([&](Value x) {
        Value e = exp_f64(b, x), inverse = exp_f64(b, ir.CreateFNeg(x));
        if (s.op == ScalarOp::kCosh) return ir.CreateFMul(ir.CreateFAdd(e, inverse), d(0.5));
        return near_zero(x, ir.CreateFMul(ir.CreateFSub(e, inverse), d(0.5)));
      });
    case ScalarOp::kAsinh:
      return in_f64([&](Value x) {
        Value m = b.call(llvm::Intrinsic::fabs, {x->getType()}, {x});
        Value root = b.call(llvm::Intrinsic::sqrt, {x->getType()}, {b.fma(x, x, d(1))});
        Value l = log_f64(b, ir.CreateFAdd(m, root));
        return near_zero(x, b.call(llvm::Intrinsic::copysign, {x->getType()}, {l, x}));
      });
    case ScalarOp::kAcosh:
      return in_f64([&](Value x) {
        Value root = b.call(llvm::Intrinsic::sqrt, {x->getType()}, {b.fma(x, x, d(-1))});
        return log_f64(b, ir.CreateFAdd(x, root));
      });
    case ScalarOp::kAtanh:
      return in_f64([&](Value x) {
        Value q = ir.CreateFDiv(ir.CreateFAdd(d(1), x), ir.CreateFSub(d(1), x));
        return near_zero(x, ir.CreateFMul(log_f64(b, q), d(0.5)));
      });
    case ScalarOp::kTanh:
      if (rounded) return tanh_rounded_f32(b, a);
      if (f32) return tanh_f32(b, a);
      {
        Value m = b.call(llvm::Intrinsic::fabs, {type}, {a});
        Value e = exp_f64(b, ir.CreateFMul(m, d(2)));
        Value large = ir.CreateFSub(d(1), ir.CreateFDiv(d(2), ir.CreateFAdd(e, d(1))));
        large = b.call(llvm::Intrinsic::copysign, {type}, {large, a});
        Value small = b.fma(ir.CreateFMul(ir.CreateFMul(a, a), a), d(-1.0 / 3), a);
        return ir.CreateSelect(ir.CreateFCmpOLT(m, d(1e-3)), small, large);
      }
    case ScalarOp::kErf:
      return erf_f32(b, a);
    case ScalarOp::kSigmoid:
      if (rounded) return sigmoid_rounded_f32(b, a);
      if (f32) return sigmoid_f32(b, a);
      return ir.CreateFDiv(d(1), ir.CreateFAdd(d(1), exp_f64(b, ir.CreateFNeg(a))));
    case ScalarOp::kNot:
    case ScalarOp::kBitNot:
      return ir.CreateNot(a);
    case ScalarOp::kIsNan:
      return real ? ir.CreateFCmpUNO(a, a) : static_cast<Value>(ir.getFalse());
    case ScalarOp::kIsInf: {
      if (!real) return ir.getFalse();
      Value plus = ir.CreateFCmpOEQ(a, llvm::ConstantFP::getInfinity(type, false));
      Value minus = ir.CreateFCmpOEQ(a, llvm::ConstantFP::getInfinity(type, true));
      return s.flag == 1 ? minus : s.flag == 2 ? plus : ir.CreateOr(plus, minus);
    }
    case ScalarOp::kCast:
      return cast(from, s.type, a);
    case ScalarOp::kBitcast:  // a bool is one bit in a register, a byte elsewhere
      if (from == ElementType::kBool) a = ir.CreateZExt(a, ir.getInt8Ty());
      if (s.type == ElementType::kBool) return ir.CreateICmpNE(a, llvm::Constant::getNullValue(a->getType()));
      return ir.CreateBitCast(a, register_type(b, s.type));
    default:
      return a;
  }
}

Value Scope::binary(const Scalar &s, ElementType from, Value x, Value y) {
  Builder &b = k_.b;
  llvm::IRBuilder<> &ir = b.ir;
  llvm::Type *type = x->getType();
  const bool real = wide_float(from), sign = is_signed_integer(from);
  auto zero = [&]() -> Value { return llvm::Constant::getNullValue(type); };
  auto compare = [&](llvm::CmpInst::Predicate f, llvm::CmpInst::Predicate i, llvm::CmpInst::Predicate u) {
    return real ? ir.CreateFCmp(f, x, y) : ir.CreateICmp(sign ? i : u, x, y);
  };
  // A divisor for which LLVM's division is defined; the caller repairs 0 and -1.
  auto safe = [&]() {
    Value bad = ir.CreateICmpEQ(y, zero());
    if (sign) bad = ir.CreateOr(bad, ir.CreateICmpEQ(y, llvm::Constant::getAllOnesValue(type)));
    return ir.CreateSelect(bad, llvm::ConstantInt::get(type, 1), y);
  };
  auto float_mod = [&]() {
    // C's fmod; f32 in f64, where one step is exact for quotients up to 2^29, two up to 2^52
    llvm::Type *wide = ir.getDoubleTy();
    Value p = from == ElementType::kFloat32 ? ir.CreateFPExt(x, wide) : x;
    Value q = from == ElementType::kFloat32 ? ir.CreateFPExt(y, wide) : y;
    Value quotient = b.call(llvm::Intrinsic::trunc, {wide}, {ir.CreateFDiv(p, q)});
    Value r = b.fma(ir.CreateFNeg(quotient), q, p);
    Value q_abs = b.call(llvm::Intrinsic::fabs, {wide}, {q});
    // the quotient may have been rounded up
    Value p_negative = ir.CreateFCmpOLT(p, llvm::ConstantFP::get(wide, 0));
    Value wrong = ir.CreateSelect(p_negative, ir.CreateFCmpOGT(r, llvm::ConstantFP::get(wide, 0)),
                                  ir.CreateFCmpOLT(r, llvm::ConstantFP::get(wide, 0)));
    Value fix = ir.CreateSelect(p_negative, ir.CreateFSub(r, q_abs), ir.CreateFAdd(r, q_abs));
    r = ir.CreateSelect(wrong, fix, r);
    Value infinite = ir.CreateFCmpOEQ(q_abs, llvm::ConstantFP::getInfinity(wide, false));
    Value finite =
        ir.CreateFCmpONE(b.call(llvm::Intrinsic::fabs, {wide}, {p}), llvm::ConstantFP::getInfinity(wide, false));
    r = ir.CreateSelect(ir.CreateAnd(infinite, finite), p, r);
    r = b.call(llvm::Intrinsic::copysign, {wide}, {r, p});
    return from == ElementType::kFloat32 ? ir.CreateFPTrunc(r, type) : r;
  };
  switch (s.op) {
    case ScalarOp::kAdd:
      return real ? ir.CreateFAdd(x, y) : ir.CreateAdd(x, y);
    case ScalarOp::kSub:
      return real ? ir.CreateFSub(x, y) : ir.CreateSub(x, y);
    case ScalarOp::kMul:
      return real ? ir.CreateFMul(x, y) : ir.CreateMul(x, y);
    case ScalarOp::kDiv: {
      if (from == ElementType::kFloat32 && s.flag == kRounded) return divide_rounded_f32(b, x, y);
      if (real) return ir.CreateFDiv(x, y);
      Value q = sign ? ir.CreateSDiv(x, safe()) : ir.CreateUDiv(x, safe());
      if (sign) q = ir.CreateSelect(ir.CreateICmpEQ(y, llvm::Constant::getAllOnesValue(type)), ir.CreateNeg(x), q);
      return ir.CreateSelect(ir.CreateICmpEQ(y, zero()), zero(), q);
    }
    case ScalarOp::kMod:
    case ScalarOp::kFmod: {
      Value r, differs;
      if (real) {
        r = float_mod();
        if (s.op == ScalarOp::kFmod) return r;
        differs = ir.CreateXor(ir.CreateFCmpOLT(r, zero()), ir.CreateFCmpOLT(y, zero()));
        differs = ir.CreateAnd(differs, ir.CreateFCmpONE(r, zero()));
        return ir.CreateSelect(differs, ir.CreateFAdd(r, y), r);
      }
      r = sign ? ir.CreateSRem(x, safe()) : ir.CreateURem(x, safe());
      r = ir.CreateSelect(ir.CreateICmpEQ(y, zero()), zero(), r);
      if (s.op == ScalarOp::kFmod || !sign) return r;
      differs = ir.CreateAnd(ir.CreateICmpSLT(ir.CreateXor(r, y), zero()), ir.CreateICmpNE(r, zero()));
      return ir.CreateSelect(differs, ir.CreateAdd(r, y), r);
    }
    case ScalarOp::kPow:
      if (from == ElementType::kFloat32) return pow_f32(b, x, y);
      if (real) return pow_f64(b, x, y);
      {
        // Integers: by squaring; a negative exponent gives 0 unless the base is 1 or -1.
        Value one = llvm::ConstantInt::get(type, 1);
        Value negative = sign ? ir.CreateICmpSLT(y, zero()) : static_cast<Value>(ir.getFalse());
        Value magnitude = ir.CreateSelect(negative, ir.CreateNeg(y), y);
        Values r{one, x, magnitude};
        for (unsigned i = 0; i < type->getPrimitiveSizeInBits() && i < 64; ++i) {
          Value odd = ir.CreateTrunc(r[2], ir.getInt1Ty());
          r[0] = ir.CreateSelect(odd, ir.CreateMul(r[0], r[1]), r[0]);
          r[1] = ir.CreateMul(r[1], r[1]);
          r[2] = ir.CreateLShr(r[2], one);
        }
        Value unit = ir.CreateICmpEQ(x, one);
        if (sign) unit = ir.CreateOr(unit, ir.CreateICmpEQ(x, llvm::Constant::getAllOnesValue(type)));
        return ir.CreateSelect(ir.CreateAnd(negative, ir.CreateNot(unit)), zero(), r[0]);
      }
    case ScalarOp::kMin:
      return extreme(b, from, x, y, false);
    case ScalarOp::kMax:
      return extreme(b, from, x, y, true);
    case ScalarOp::kEq:
      return compare(llvm::CmpInst::FCMP_OEQ, llvm::CmpInst::ICMP_EQ, llvm::CmpInst::ICMP_EQ);
    case ScalarOp::kNe:
      return compare(llvm::CmpInst::FCMP_UNE, llvm::CmpInst::ICMP_NE, llvm::CmpInst::ICMP_NE);
    case ScalarOp::kLt:
      return compare(llvm::CmpInst::FCMP_OLT, llvm::CmpInst::ICMP_SLT, llvm::CmpInst::ICMP_ULT);
    case ScalarOp::kLe:
      return compare(llvm::CmpInst::FCMP_OLE, llvm::CmpInst::ICMP_SLE, llvm::CmpInst::ICMP_ULE);
    case ScalarOp::kAnd:
    case ScalarOp::kBitAnd:
      return ir.CreateAnd(x, y);
    case ScalarOp::kOr:
    case ScalarOp::kBitOr:
      return ir.CreateOr(x, y);
    case ScalarOp::kXor:
    case ScalarOp::kBitXor:
      return ir.CreateXor(x, y);
    case ScalarOp::kShl:
    case ScalarOp::kShr: {
      Value width = llvm::ConstantInt::get(type, type->getPrimitiveSizeInBits());
      Value inside = ir.CreateICmpULT(y, width);
      Value amount = ir.CreateSelect(inside, y, zero());
      Value v = s.op == ScalarOp::kShl ? ir.CreateShl(x, amount)
                : sign                 ? ir.CreateAShr(x, amount)
                                       : ir.CreateLShr(x, amount);
      return ir.CreateSelect(inside, v, zero());
    }
    default:
      return x;
  }
}

Value Scope::cast(ElementType from, ElementType to, Value a) {
  Builder &b = k_.b;
  llvm::IRBuilder<> &ir = b.ir;
  if (from == to) return a;
  if (from == ElementType::kBFloat16) return cast(ElementType::kFloat32, to, from_bf16(b, a));  // exact
  const bool from_real = is_float(from), to_real = is_float(to);
  llvm::Type *type = register_type(b, to);
  if (to == ElementType::kBool) {
    Value zero = llvm::Constant::getNullValue(a->getType());
    return from_real ? ir.CreateFCmpUNE(a, zero) : ir.CreateICmpNE(a, zero);
  }
  if (to == ElementType::kBFloat16) return to_bf16(b, cast(from, ElementType::kFloat32, a));
  if (from_real && to_real) {
    return bit_width(to) > bit_width(from) ? ir.CreateFPExt(a, type) : ir.CreateFPTrunc(a, type);
  }
  if (from_real) {
    return b.call(is_signed_integer(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
                  {type, a->getType()}, {a});
  }
  const bool sign = is_signed_integer(from);
  if (to_real) return sign ? ir.CreateSIToFP(a, type) : ir.CreateUIToFP(a, type);
  return sign ? ir.CreateSExtOrTrunc(a, type) : ir.CreateZExtOrTrunc(a, type);
}

}  // namespace optc::ptx
