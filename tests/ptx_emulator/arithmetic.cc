#include "tests/ptx_emulator/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/constant.h"

namespace optc::testing {

template <typename T>
uint64_t real_op(const PtxInstruction &i, uint64_t xb, uint64_t yb, uint64_t zb) {
  T x = as<T>(xb), y = as<T>(yb), z = as<T>(zb);
  switch (i.op) {
    case PtxOp::kAdd:
      return bits_of(T(x + y));
    case PtxOp::kSub:
      return bits_of(T(x - y));
    case PtxOp::kMulFloat:
      return bits_of(T(x * y));
    case PtxOp::kDiv:
      return bits_of(T(x / y));
    case PtxOp::kNeg:
      return bits_of(T(-x));
    case PtxOp::kAbs:
      return bits_of(T(std::fabs(x)));
    case PtxOp::kFma:
      return bits_of(T(std::fma(x, y, z)));
    case PtxOp::kSqrt:
      return bits_of(T(std::sqrt(x)));
    case PtxOp::kRcp:
      return bits_of(T(T(1) / x));
    case PtxOp::kEx2:
      return bits_of(T(std::exp2(x)));
    case PtxOp::kCopysign:
      return bits_of(T(std::copysign(y, x)));
    case PtxOp::kMin:
    case PtxOp::kMax:
      if (std::isnan(x) || std::isnan(y)) {
        if (i.nan) return bits_of(std::numeric_limits<T>::quiet_NaN());
        return std::isnan(x) ? yb : xb;
      }
      return bits_of(i.op == PtxOp::kMin ? std::min(x, y) : std::max(x, y));
    default:
      throw PtxFault("no real form");
  }
}
template uint64_t real_op<float>(const PtxInstruction &, uint64_t, uint64_t, uint64_t);
template uint64_t real_op<double>(const PtxInstruction &, uint64_t, uint64_t, uint64_t);

uint64_t integer_op(const PtxInstruction &i, uint64_t x, uint64_t y, uint64_t z) {
  const unsigned bytes = i.type == PtxType::kPred ? 1 : bytes_of(i.type), width = 8 * bytes;
  const bool s = is_signed(i.type);
  const int64_t sx = signed_value(x, bytes), sy = signed_value(y, bytes);
  const uint64_t ux = low_bits(x, bytes), uy = low_bits(y, bytes);
  auto wide = [&]() { return low_bits(s ? static_cast<uint64_t>(sx * sy) : ux * uy, 2 * bytes); };
  switch (i.op) {
    case PtxOp::kAdd:
      return low_bits(x + y, bytes);
    case PtxOp::kSub:
      return low_bits(x - y, bytes);
    case PtxOp::kMulLo:
      return low_bits(x * y, bytes);
    case PtxOp::kMadLo:
      return low_bits(x * y + z, bytes);
    case PtxOp::kMulWide:
      return wide();
    case PtxOp::kMadWide:
      return low_bits(wide() + z, 2 * bytes);
    case PtxOp::kMulHi: {
      if (s)
        return low_bits(static_cast<uint64_t>(static_cast<int64_t>((static_cast<__int128>(sx) * sy) >> width)), bytes);
      return low_bits(static_cast<uint64_t>((static_cast<unsigned __int128>(ux) * uy) >> width), bytes);
    }
    case PtxOp::kDiv:
    case PtxOp::kRem:
      if (uy == 0) throw PtxFault("division by zero");
      if (i.op == PtxOp::kDiv) return low_bits(s ? static_cast<uint64_t>(sx / sy) : ux / uy, bytes);
      return low_bits(s ? static_cast<uint64_t>(sx % sy) : ux % uy, bytes);
    case PtxOp::kNeg:
      return low_bits(-x, bytes);
    case PtxOp::kAbs:
      return low_bits(sx < 0 ? -x : x, bytes);
    case PtxOp::kMin:
      return s ? low_bits(static_cast<uint64_t>(std::min(sx, sy)), bytes) : std::min(ux, uy);
    case PtxOp::kMax:
      return s ? low_bits(static_cast<uint64_t>(std::max(sx, sy)), bytes) : std::max(ux, uy);
    case PtxOp::kAnd:
      return ux & uy;
    case PtxOp::kOr:
      return ux | uy;
    case PtxOp::kXor:
      return ux ^ uy;
    case PtxOp::kNot:
      return i.type == PtxType::kPred ? !(x & 1) : low_bits(~x, bytes);
    case PtxOp::kShl:
      return (y & 0xFFFFFFFF) >= width ? 0 : low_bits(x << (y & 0xFFFFFFFF), bytes);
    case PtxOp::kShr: {
      const uint64_t n = std::min<uint64_t>(y & 0xFFFFFFFF, width);
      if (s) return low_bits(static_cast<uint64_t>(sx >> std::min<uint64_t>(n, width - 1)), bytes);
      return n >= width ? 0 : ux >> n;
    }
    case PtxOp::kBfe: {
      const uint64_t at = y & 0xFF, length = z & 0xFF;
      const uint64_t ones = length >= 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1;
      if (s && (length == 0 || at + length > width)) throw PtxFault("a signed bit field beyond its register");
      const uint64_t field = at >= width ? 0 : (ux >> at) & ones;
      return s && (field >> (length - 1) & 1) ? field | ~ones : field;
    }
    case PtxOp::kPrmt: {
      const uint64_t both = (y << 32) | (x & 0xFFFFFFFF);
      uint64_t v = 0;
      for (int b = 0; b < 4; ++b) {
        const uint64_t selector = (z >> (4 * b)) & 15;
        uint64_t byte = (both >> (8 * (selector & 7))) & 0xFF;
        if (selector & 8) byte = byte & 0x80 ? 0xFF : 0;
        v |= byte << (8 * b);
      }
      return v;
    }
    default:
      throw PtxFault("no integer form");
  }
}

namespace {

// An integer result in a register wider than its type: extended by its sign (PTX ISA, operand size exceeding
// instruction-type size).
uint64_t widened(PtxType type, uint64_t v) {
  return is_signed(type) ? static_cast<uint64_t>(signed_value(v, bytes_of(type))) : low_bits(v, bytes_of(type));
}

uint64_t real_bits(PtxType type, double v) {
  switch (type) {
    case PtxType::kF32:
      return bits_of(static_cast<float>(v));
    case PtxType::kF64:
      return bits_of(v);
    case PtxType::kF16:
      return float_to_half(static_cast<float>(v));
    case PtxType::kBF16:
      return float_to_bfloat16(static_cast<float>(v));
    default:
      throw PtxFault("no such conversion");
  }
}

}  // namespace

uint64_t convert(const PtxInstruction &i, uint64_t x) {
  const unsigned to = bytes_of(i.type), from = bytes_of(i.from);
  if (i.type == PtxType::kTF32) {  // rna: to nearest, ties away from zero, 10 bits of fraction
    const uint32_t b = static_cast<uint32_t>(x);
    return (b & 0x7F800000) == 0x7F800000 ? b : (b + 0x1000) & 0xFFFFE000;
  }
  if (is_real(i.from)) {
    double v = i.from == PtxType::kF32    ? static_cast<double>(as<float>(x))
               : i.from == PtxType::kF64  ? as<double>(x)
               : i.from == PtxType::kBF16 ? bfloat16_to_float(static_cast<uint16_t>(x))
                                          : half_to_float(static_cast<uint16_t>(x));
    if (i.rounding) {
      v = i.rounding == 'n'   ? std::nearbyint(v)
          : i.rounding == 'z' ? std::trunc(v)
          : i.rounding == 'm' ? std::floor(v)
                              : std::ceil(v);
      if (!is_real(i.type)) {
        if (std::isnan(v)) return 0;
        if (is_signed(i.type)) {
          const double top = std::ldexp(1.0, static_cast<int>(8 * to - 1));
          if (v >= top) return (uint64_t{1} << (8 * to - 1)) - 1;
          if (v < -top) return widened(i.type, uint64_t{1} << (8 * to - 1));
          return widened(i.type, static_cast<uint64_t>(static_cast<int64_t>(v)));
        }
        if (v >= std::ldexp(1.0, static_cast<int>(8 * to))) return low_bits(~uint64_t{0}, to);
        return v <= 0 ? 0 : static_cast<uint64_t>(v);
      }
    }
    return real_bits(i.type, v);
  }
  if (is_real(i.type)) {
    if (i.type == PtxType::kF32)
      return bits_of(is_signed(i.from) ? static_cast<float>(signed_value(x, from))
                                       : static_cast<float>(low_bits(x, from)));
    return real_bits(i.type, is_signed(i.from) ? static_cast<double>(signed_value(x, from))
                                               : static_cast<double>(low_bits(x, from)));
  }
  return widened(i.type, is_signed(i.from) ? static_cast<uint64_t>(signed_value(x, from)) : low_bits(x, from));
}

}  // namespace optc::testing
