// The operations of lanes (lanes.cc has their memory).
#include <cmath>
#include <cstring>
#include <limits>

#include "evaluate/lanes.h"

namespace optc::evaluate_detail {

namespace {

using E = ElementType;

// The nearest f32 with ties to odd: rounding it once more to a format of fewer than 23 mantissa bits gives what
// rounding the double directly would (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
// algorithms using rounding to odd", 2008).
float round_to_odd(double value) {
  float nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) {
    if (std::isinf(nearest) && std::isfinite(value)) return std::copysign(std::numeric_limits<float>::max(), nearest);
    return nearest;
  }
  uint32_t bits;
  std::memcpy(&bits, &nearest, 4);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // truncate towards zero
  bits |= 1;
  std::memcpy(&nearest, &bits, 4);
  return nearest;
}

struct Range {
  double low, high;
};
// The range of an integer type as doubles; the upper bound of 64-bit types is 2^63 or 2^64, which no value reaches.
Range float_range(E type) {
  switch (type) {
    case E::kInt8:
      return {-128, 127};
    case E::kUInt8:
      return {0, 255};
    case E::kInt16:
      return {-32768, 32767};
    case E::kUInt16:
      return {0, 65535};
    case E::kInt32:
      return {-2147483648.0, 2147483647.0};
    case E::kUInt32:
      return {0, 4294967295.0};
    case E::kInt64:
      return {-9223372036854775808.0, 9223372036854775808.0};
    case E::kUInt64:
      return {0, 18446744073709551616.0};
    case E::kInt4:
      return {-8, 7};
    case E::kUInt4:
      return {0, 15};
    case E::kInt2:
      return {-2, 1};
    case E::kUInt2:
      return {0, 3};
    default:
      return {0, 1};
  }
}

template <typename T>
int64_t float_to_integer(E type, Range range, T value) {
  if (value != value) return 0;
  const double v = std::trunc(static_cast<double>(value));
  if (type == E::kInt64) {
    if (v >= range.high) return std::numeric_limits<int64_t>::max();
    if (v <= range.low) return std::numeric_limits<int64_t>::min();
    return static_cast<int64_t>(v);
  }
  if (type == E::kUInt64) {
    if (v >= range.high) return -1;  // all bits
    if (v <= 0) return 0;
    return static_cast<int64_t>(static_cast<uint64_t>(v));
  }
  if (v >= range.high) return static_cast<int64_t>(range.high);
  if (v <= range.low) return static_cast<int64_t>(range.low);
  return static_cast<int64_t>(v);
}

}  // namespace

// --- Operations
// --------------------------------------------------------------------------------------------------------

namespace {

template <typename T>
T float_min(T a, T b) {
  return a != a ? a : b != b ? b : b < a ? b : a;
}
template <typename T>
T float_max(T a, T b) {
  return a != a ? a : b != b ? b : a < b ? b : a;
}
template <typename T>
T sigmoid(T x) {
  const double v = static_cast<double>(x);
  if (v >= 0) return static_cast<T>(1 / (1 + std::exp(-v)));
  const double e = std::exp(v);
  return static_cast<T>(e / (1 + e));
}
// The remainder with the sign of the divisor.
template <typename T>
T floor_mod(T a, T b) {
  T r = std::fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  if (r == 0) r = std::copysign(T(0), b);
  return r;
}
template <typename T>
T sign_of(T x) {
  return x > 0 ? T(1) : x < 0 ? T(-1) : x;  // NaN and the zeros stay
}

template <typename T>
bool float_unary(ScalarOp op, const T *a, T *out, int n) {
#define OPTC_LOOP(expression)            \
  for (int i = 0; i < n; ++i) {          \
    const T x = a[i];                    \
    out[i] = static_cast<T>(expression); \
  }                                      \
  return true
  switch (op) {
    case ScalarOp::kNeg:
      OPTC_LOOP(-x);
    case ScalarOp::kAbs:
      OPTC_LOOP(std::fabs(x));
    case ScalarOp::kSign:
      OPTC_LOOP(sign_of(x));
    case ScalarOp::kFloor:
      OPTC_LOOP(std::floor(x));
    case ScalarOp::kCeil:
      OPTC_LOOP(std::ceil(x));
    case ScalarOp::kRound:
      OPTC_LOOP(std::nearbyint(x));
    case ScalarOp::kTrunc:
      OPTC_LOOP(std::trunc(x));
    case ScalarOp::kSqrt:
      OPTC_LOOP(std::sqrt(x));
    case ScalarOp::kExp:
      OPTC_LOOP(std::exp(x));
    case ScalarOp::kExpm1:
      OPTC_LOOP(std::expm1(x));
    case ScalarOp::kLog:
      OPTC_LOOP(std::log(x));
    case ScalarOp::kLog1p:
      OPTC_LOOP(std::log1p(x));
    case ScalarOp::kSin:
      OPTC_LOOP(std::sin(x));
    case ScalarOp::kCos:
      OPTC_LOOP(std::cos(x));
    case ScalarOp::kTan:
      OPTC_LOOP(std::tan(x));
    case ScalarOp::kAsin:
      OPTC_LOOP(std::asin(x));
    case ScalarOp::kAcos:
      OPTC_LOOP(std::acos(x));
    case ScalarOp::kAtan:
      OPTC_LOOP(std::atan(x));
    case ScalarOp::kSinh:
      OPTC_LOOP(std::sinh(x));
    case ScalarOp::kCosh:
      OPTC_LOOP(std::cosh(x));
    case ScalarOp::kTanh:
      OPTC_LOOP(std::tanh(x));
    case ScalarOp::kAsinh:
      OPTC_LOOP(std::asinh(x));
    case ScalarOp::kAcosh:
      OPTC_LOOP(std::acosh(x));
    case ScalarOp::kAtanh:
      OPTC_LOOP(std::atanh(x));
    case ScalarOp::kErf:
      OPTC_LOOP(std::erf(x));
    case ScalarOp::kSigmoid:
      OPTC_LOOP(sigmoid(x));
    default:
      return false;
  }
#undef OPTC_LOOP
}

template <typename T>
bool float_binary(ScalarOp op, const T *a, const T *b, T *out, int n) {
#define OPTC_LOOP(expression)            \
  for (int i = 0; i < n; ++i) {          \
    const T x = a[i], y = b[i];          \
    out[i] = static_cast<T>(expression); \
  }                                      \
  return true
  switch (op) {
    case ScalarOp::kAdd:
      OPTC_LOOP(x + y);
    case ScalarOp::kSub:
      OPTC_LOOP(x - y);
    case ScalarOp::kMul:
      OPTC_LOOP(x * y);
    case ScalarOp::kDiv:
      OPTC_LOOP(x / y);
    case ScalarOp::kMod:
      OPTC_LOOP(floor_mod(x, y));
    case ScalarOp::kFmod:
      OPTC_LOOP(std::fmod(x, y));
    case ScalarOp::kPow:
      OPTC_LOOP(std::pow(x, y));
    case ScalarOp::kMin:
      OPTC_LOOP(float_min(x, y));
    case ScalarOp::kMax:
      OPTC_LOOP(float_max(x, y));
    default:
      return false;
  }
#undef OPTC_LOOP
}

template <typename T>
bool compare(ScalarOp op, const T *a, const T *b, int64_t *out, int n) {
  switch (op) {
    case ScalarOp::kEq:
      for (int i = 0; i < n; ++i) out[i] = a[i] == b[i];
      return true;
    case ScalarOp::kNe:
      for (int i = 0; i < n; ++i) out[i] = a[i] != b[i];
      return true;
    case ScalarOp::kLt:
      for (int i = 0; i < n; ++i) out[i] = a[i] < b[i];
      return true;
    case ScalarOp::kLe:
      for (int i = 0; i < n; ++i) out[i] = a[i] <= b[i];
      return true;
    default:
      return false;
  }
}

// Powers wrap; a negative exponent gives the truncated quotient 1 / x^|y|.
int64_t integer_pow(int64_t base, int64_t exponent, bool is_signed) {
  if (is_signed && exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent & 1 ? -1 : 1;
    return 0;
  }
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (uint64_t e = static_cast<uint64_t>(exponent); e; e >>= 1) {
    if (e & 1) result *= factor;
    factor *= factor;
  }
  return static_cast<int64_t>(result);
}

int64_t integer_divide(int64_t x, int64_t y) {
  if (y == 0) return 0;
  if (y == -1) return static_cast<int64_t>(-static_cast<uint64_t>(x));
  return x / y;
}
int64_t integer_remainder(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
int64_t integer_floor_mod(int64_t x, int64_t y) {
  const int64_t r = integer_remainder(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

bool integer_unary(ScalarOp op, E type, const int64_t *a, int64_t *out, int n) {
  const bool is_unsigned = is_unsigned_integer(type) || type == E::kBool;
  switch (op) {
    case ScalarOp::kNeg:
      for (int i = 0; i < n; ++i) out[i] = static_cast<int64_t>(-static_cast<uint64_t>(a[i]));
      return true;
    case ScalarOp::kAbs:
      for (int i = 0; i < n; ++i)
        out[i] = a[i] < 0 && !is_unsigned ? static_cast<int64_t>(-static_cast<uint64_t>(a[i])) : a[i];
      return true;
    case ScalarOp::kSign:
      for (int i = 0; i < n; ++i) out[i] = is_unsigned ? a[i] != 0 : (a[i] > 0) - (a[i] < 0);
      return true;
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kRound:
    case ScalarOp::kTrunc:
      for (int i = 0; i < n; ++i) out[i] = a[i];
      return true;
    case ScalarOp::kNot:
      for (int i = 0; i < n; ++i) out[i] = !a[i];
      return true;
    case ScalarOp::kBitNot:
      for (int i = 0; i < n; ++i) out[i] = ~a[i];
      return true;
    default:
      return false;
  }
}

bool integer_binary(ScalarOp op, E type, const int64_t *a, const int64_t *b, int64_t *out, int n) {
  const bool wide = type == E::kUInt64;
  const bool is_signed = is_signed_integer(type);
  const int width = type == E::kBool ? 1 : bit_width(type);
#define OPTC_LOOP(expression)                                                    \
  for (int i = 0; i < n; ++i) {                                                  \
    const int64_t x = a[i], y = b[i];                                            \
    const uint64_t ux = static_cast<uint64_t>(x), uy = static_cast<uint64_t>(y); \
    (void)x, (void)y, (void)ux, (void)uy;                                        \
    out[i] = static_cast<int64_t>(expression);                                   \
  }                                                                              \
  return true
  switch (op) {
    case ScalarOp::kAdd:
      OPTC_LOOP(ux + uy);
    case ScalarOp::kSub:
      OPTC_LOOP(ux - uy);
    case ScalarOp::kMul:
      OPTC_LOOP(ux * uy);
    case ScalarOp::kDiv:
      if (wide) {
        OPTC_LOOP(uy == 0 ? 0 : ux / uy);
      }
      OPTC_LOOP(integer_divide(x, y));
    case ScalarOp::kMod:
      if (wide) {
        OPTC_LOOP(uy == 0 ? 0 : ux % uy);
      }
      OPTC_LOOP(integer_floor_mod(x, y));
    case ScalarOp::kFmod:
      if (wide) {
        OPTC_LOOP(uy == 0 ? 0 : ux % uy);
      }
      OPTC_LOOP(integer_remainder(x, y));
    case ScalarOp::kPow:
      OPTC_LOOP(integer_pow(x, y, is_signed));
    case ScalarOp::kMin:
      if (wide) {
        OPTC_LOOP(ux < uy ? x : y);
      }
      OPTC_LOOP(x < y ? x : y);
    case ScalarOp::kMax:
      if (wide) {
        OPTC_LOOP(ux > uy ? x : y);
      }
      OPTC_LOOP(x > y ? x : y);
    case ScalarOp::kAnd:
      OPTC_LOOP(x != 0 && y != 0);
    case ScalarOp::kOr:
      OPTC_LOOP(x != 0 || y != 0);
    case ScalarOp::kXor:
      OPTC_LOOP((x != 0) != (y != 0));
    case ScalarOp::kBitAnd:
      OPTC_LOOP(x & y);
    case ScalarOp::kBitOr:
      OPTC_LOOP(x | y);
    case ScalarOp::kBitXor:
      OPTC_LOOP(x ^ y);
    case ScalarOp::kShl:
      OPTC_LOOP(uy >= static_cast<uint64_t>(width) ? 0 : ux << uy);
    case ScalarOp::kShr:
      if (is_signed) {
        OPTC_LOOP(uy >= static_cast<uint64_t>(width) ? (x < 0 ? -1 : 0) : x >> uy);
      }
      OPTC_LOOP(uy >= static_cast<uint64_t>(width) ? 0 : ux >> uy);
    default:
      return false;
  }
#undef OPTC_LOOP
}

void cast_lanes(E from, E to, bool saturate, const Register &a, int n, Register &out) {
  const LaneClass source = lane_class(from), target = lane_class(to);
  const bool wide = from == E::kUInt64;
  if (target == LaneClass::kHandle || source == LaneClass::kHandle) {
    for (int i = 0; i < n; ++i) out.handle[i] = a.handle[i];
    return;
  }
  if (target == LaneClass::kInt) {
    if (source == LaneClass::kInt) {
      for (int i = 0; i < n; ++i) out.i64[i] = wrap_integer(to, a.i64[i]);
    } else if (to == E::kBool) {
      for (int i = 0; i < n; ++i) out.i64[i] = source == LaneClass::kF32 ? a.f32[i] != 0 : a.f64[i] != 0;
    } else {
      const Range range = float_range(to);
      if (source == LaneClass::kF32) {
        // In place is allowed only lane by lane from the end, because the lanes widen; registers are never shared.
        for (int i = 0; i < n; ++i) out.i64[i] = float_to_integer(to, range, a.f32[i]);
      } else {
        for (int i = 0; i < n; ++i) out.i64[i] = float_to_integer(to, range, a.f64[i]);
      }
    }
    return;
  }
  if (target == LaneClass::kF64) {
    if (source == LaneClass::kF32) {
      for (int i = 0; i < n; ++i) out.f64[i] = a.f32[i];
    } else if (source == LaneClass::kF64) {
      for (int i = 0; i < n; ++i) out.f64[i] = a.f64[i];
    } else {
      for (int i = 0; i < n; ++i)
        out.f64[i] = wide ? static_cast<double>(static_cast<uint64_t>(a.i64[i])) : static_cast<double>(a.i64[i]);
    }
    return;
  }
  if (to == E::kFloat32) {
    if (source == LaneClass::kF32) {
      for (int i = 0; i < n; ++i) out.f32[i] = a.f32[i];
    } else if (source == LaneClass::kF64) {
      for (int i = 0; i < n; ++i) out.f32[i] = static_cast<float>(a.f64[i]);
    } else {
      for (int i = 0; i < n; ++i)
        out.f32[i] = wide ? static_cast<float>(static_cast<uint64_t>(a.i64[i])) : static_cast<float>(a.i64[i]);
    }
    return;
  }
  for (int i = 0; i < n; ++i) {
    float value;
    if (source == LaneClass::kF32) {
      value = a.f32[i];
    } else if (source == LaneClass::kF64) {
      value = std::isinf(static_cast<float>(a.f64[i])) ? static_cast<float>(a.f64[i]) : round_to_odd(a.f64[i]);
    } else if (const int64_t whole = a.i64[i]; whole < int64_t{1} << 53 && whole > (wide ? -1 : -(int64_t{1} << 53))) {
      value = round_to_odd(static_cast<double>(whole));  // exact; a uint64 of 2^63 or more is a negative lane
    } else {
      value = wide ? static_cast<float>(static_cast<uint64_t>(a.i64[i])) : static_cast<float>(a.i64[i]);
    }
    out.f32[i] = round_small(to, value, saturate);
  }
}

void bitcast_lanes(E from, E to, const Register &a, int n, Register &out) {
  alignas(8) uint8_t memory[kLanes * 8];
  store_lanes(from, memory, Offsets{0, 1, nullptr}, n, a, nullptr);
  load_lanes(to, memory, Offsets{0, 1, nullptr}, n, out);
}

template <typename T>
void inf_lanes(uint8_t flag, const T *a, int64_t *out, int n) {
  for (int i = 0; i < n; ++i) out[i] = std::isinf(a[i]) && (flag == 0 || (flag == 1) == (a[i] < 0));
}

void merge_poison(const Register *a, const Register *b, const Register *c, int n, Register &out) {
  out.poisoned = true;
  for (int i = 0; i < n; ++i) {
    uint8_t p = a->poisoned ? a->poison[i] : 0;
    if (b && b->poisoned) p |= b->poison[i];
    if (c && c->poisoned) p |= c->poison[i];
    out.poison[i] = p;
  }
}

void select_lanes(LaneClass lanes, const Register &condition, const Register &a, const Register &b, int n,
                  Register &out) {
  switch (lanes) {
    case LaneClass::kF32:
      for (int i = 0; i < n; ++i) out.f32[i] = condition.i64[i] ? a.f32[i] : b.f32[i];
      break;
    case LaneClass::kF64:
      for (int i = 0; i < n; ++i) out.f64[i] = condition.i64[i] ? a.f64[i] : b.f64[i];
      break;
    case LaneClass::kInt:
      for (int i = 0; i < n; ++i) out.i64[i] = condition.i64[i] ? a.i64[i] : b.i64[i];
      break;
    case LaneClass::kHandle:
      for (int i = 0; i < n; ++i) out.handle[i] = condition.i64[i] ? a.handle[i] : b.handle[i];
      break;
  }
  out.poisoned = condition.poisoned || a.poisoned || b.poisoned;
  if (!out.poisoned) return;
  for (int i = 0; i < n; ++i) {
    const Register &taken = condition.i64[i] ? a : b;
    out.poison[i] =
        static_cast<uint8_t>((condition.poisoned ? condition.poison[i] : 0) | (taken.poisoned ? taken.poison[i] : 0));
  }
}

}  // namespace

void apply_lanes(ScalarOp op, E type, E from, uint8_t flag, const Register *a, const Register *b, const Register *c,
                 int n, Register &out) {
  const LaneClass lanes = lane_class(from);
  if (op == ScalarOp::kSelect) {
    select_lanes(lane_class(type), *a, *b, *c, n, out);
    return;
  }
  out.poisoned = false;
  if (a->poisoned || (b && b->poisoned) || (c && c->poisoned)) merge_poison(a, b, c, n, out);
  switch (op) {
    case ScalarOp::kCast:
      cast_lanes(from, type, flag != 1, *a, n, out);
      return;
    case ScalarOp::kBitcast:
      bitcast_lanes(from, type, *a, n, out);
      return;
    case ScalarOp::kIsNan:
      for (int i = 0; i < n; ++i)
        out.i64[i] =
            lanes == LaneClass::kF32 ? std::isnan(a->f32[i]) : lanes == LaneClass::kF64 && std::isnan(a->f64[i]);
      return;
    case ScalarOp::kIsInf:
      if (lanes == LaneClass::kF32)
        inf_lanes(flag, a->f32, out.i64, n);
      else if (lanes == LaneClass::kF64)
        inf_lanes(flag, a->f64, out.i64, n);
      else
        std::memset(out.i64, 0, sizeof(out.i64));
      return;
    case ScalarOp::kFma:
      if (lanes == LaneClass::kF32) {
        for (int i = 0; i < n; ++i) out.f32[i] = std::fma(a->f32[i], b->f32[i], c->f32[i]);
      } else if (lanes == LaneClass::kF64) {
        for (int i = 0; i < n; ++i) out.f64[i] = std::fma(a->f64[i], b->f64[i], c->f64[i]);
      } else {
        for (int i = 0; i < n; ++i)
          out.i64[i] = static_cast<int64_t>(static_cast<uint64_t>(a->i64[i]) * static_cast<uint64_t>(b->i64[i]) +
                                            static_cast<uint64_t>(c->i64[i]));
      }
      normalize_lanes(type, n, out);
      return;
    case ScalarOp::kEq:
    case ScalarOp::kNe:
    case ScalarOp::kLt:
    case ScalarOp::kLe:
      if (lanes == LaneClass::kF32) {
        compare(op, a->f32, b->f32, out.i64, n);
      } else if (lanes == LaneClass::kF64) {
        compare(op, a->f64, b->f64, out.i64, n);
      } else if (lanes == LaneClass::kInt) {
        if (from == E::kUInt64)
          compare(op, reinterpret_cast<const uint64_t *>(a->i64), reinterpret_cast<const uint64_t *>(b->i64), out.i64,
                  n);
        else
          compare(op, a->i64, b->i64, out.i64, n);
      } else if (from == E::kString) {
        for (int i = 0; i < n; ++i) {
          const int order =
              static_cast<const std::string *>(a->handle[i])->compare(*static_cast<const std::string *>(b->handle[i]));
          out.i64[i] = op == ScalarOp::kEq   ? order == 0
                       : op == ScalarOp::kNe ? order != 0
                       : op == ScalarOp::kLt ? order < 0
                                             : order <= 0;
        }
      }
      return;
    default:
      break;
  }
  const bool unary = arity(op) == 1;
  switch (lanes) {
    case LaneClass::kF32:
      if (unary)
        float_unary(op, a->f32, out.f32, n);
      else
        float_binary(op, a->f32, b->f32, out.f32, n);
      break;
    case LaneClass::kF64:
      if (unary)
        float_unary(op, a->f64, out.f64, n);
      else
        float_binary(op, a->f64, b->f64, out.f64, n);
      break;
    case LaneClass::kInt:
      if (unary)
        integer_unary(op, from, a->i64, out.i64, n);
      else
        integer_binary(op, from, a->i64, b->i64, out.i64, n);
      break;
    case LaneClass::kHandle:
      break;
  }
  normalize_lanes(type, n, out);
}

}  // namespace optc::evaluate_detail
