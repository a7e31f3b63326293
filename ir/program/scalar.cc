#include "ir/program/scalar.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "ir/constant_bits.h"

namespace optc {
namespace {

struct OpInfo {
  int arity;
  std::string_view name;
};
constexpr OpInfo kOps[] = {
#define OPTC_X(name, arity, spelling) {arity, spelling},
    OPTC_SCALAR_OPS(OPTC_X)
#undef OPTC_X
};

bool is_comparison(ScalarOp op) {
  return op == ScalarOp::kEq || op == ScalarOp::kNe || op == ScalarOp::kLt || op == ScalarOp::kLe;
}

}  // namespace

int arity(ScalarOp op) { return kOps[static_cast<size_t>(op)].arity; }
std::string_view to_string(ScalarOp op) { return kOps[static_cast<size_t>(op)].name; }

bool is_transcendental(ScalarOp op) {
  switch (op) {
    case ScalarOp::kExp:
    case ScalarOp::kExpm1:
    case ScalarOp::kLog:
    case ScalarOp::kLog1p:
    case ScalarOp::kSin:
    case ScalarOp::kCos:
    case ScalarOp::kTan:
    case ScalarOp::kAsin:
    case ScalarOp::kAcos:
    case ScalarOp::kAtan:
    case ScalarOp::kSinh:
    case ScalarOp::kCosh:
    case ScalarOp::kTanh:
    case ScalarOp::kAsinh:
    case ScalarOp::kAcosh:
    case ScalarOp::kAtanh:
    case ScalarOp::kErf:
    case ScalarOp::kSigmoid:
    case ScalarOp::kPow:
      return true;
    default:
      return false;
  }
}

ScalarId ScalarPool::add_node(Scalar node) {
  std::string key;
  auto put = [&key](const void *data, size_t size) { key.append(static_cast<const char *>(data), size); };
  const uint8_t head[3] = {static_cast<uint8_t>(node.op), static_cast<uint8_t>(node.type), node.flag};
  put(head, 3);
  for (ScalarId a : node.args) put(&a.index, 4);
  put(&node.bits, 8);
  put(&node.buffer.index, 4);
  put(&node.local.index, 4);
  auto put_dim = [&](Dim d) {
    const int64_t v = d.is_constant() ? d.value() : 0;
    const DimNode *n = d.node();
    put(&v, 8);
    put(&n, sizeof n);
  };
  put_dim(node.index_value);
  for (Dim d : node.index) put_dim(d);
  auto [it, fresh] = interned_.emplace(std::move(key), ScalarId(nodes_.size()));
  if (fresh) nodes_.push_back(std::move(node));
  return it->second;
}

ScalarId ScalarPool::constant_bits(ElementType type, uint64_t bits) {
  Scalar s;
  s.type = type;
  s.bits = bits;
  return add_node(std::move(s));
}

ScalarId ScalarPool::constant(ElementType type, double value) {
  if (is_float(type)) return constant_bits(type, bits_of_float(type, value));
  return constant_int(type, static_cast<int64_t>(value));
}

ScalarId ScalarPool::constant_int(ElementType type, int64_t value) {
  if (is_float(type)) return constant(type, static_cast<double>(value));
  return constant_bits(type, bits_of_integer(type, static_cast<uint64_t>(value)));
}

ScalarId ScalarPool::index(Dim value) {
  if (value.is_constant()) return constant_int(ElementType::kInt64, value.value());
  Scalar s;
  s.op = ScalarOp::kIndex;
  s.type = ElementType::kInt64;
  s.index_value = value;
  return add_node(std::move(s));
}

ScalarId ScalarPool::load(BufferId buffer, ElementType type, std::vector<Dim> index) {
  Scalar s;
  s.op = ScalarOp::kLoad;
  s.type = type;
  s.buffer = buffer;
  s.index = std::move(index);
  return add_node(std::move(s));
}

ScalarId ScalarPool::local(LocalId local, ElementType type, std::vector<Dim> index) {
  Scalar s;
  s.op = ScalarOp::kLocal;
  s.type = type;
  s.local = local;
  s.index = std::move(index);
  return add_node(std::move(s));
}

ScalarId ScalarPool::unary(ScalarOp op, ScalarId a) {
  const Scalar &x = at(a);
  // Integers are their own floor; -(-x) = x and not(not x) = x for every input.
  if (!is_float(x.type) &&
      (op == ScalarOp::kFloor || op == ScalarOp::kCeil || op == ScalarOp::kRound || op == ScalarOp::kTrunc))
    return a;
  if ((op == ScalarOp::kNeg || op == ScalarOp::kNot || op == ScalarOp::kBitNot) && x.op == op) return x.args[0];
  if (x.op == ScalarOp::kConstant) {
    if (op == ScalarOp::kNeg)
      return is_float(x.type) ? constant_bits(x.type, bits_of_float(x.type, -float_of_bits(x.type, x.bits)))
                              : constant_bits(x.type, bits_of_integer(x.type, ~x.bits + 1));
    if (op == ScalarOp::kNot) return constant_bits(ElementType::kBool, x.bits == 0);
    if (op == ScalarOp::kSqrt && is_float(x.type))
      return x.type == ElementType::kFloat32
                 ? constant(x.type, std::sqrt(static_cast<float>(float_of_bits(x.type, x.bits))))
                 : constant(x.type, std::sqrt(float_of_bits(x.type, x.bits)));
  }
  Scalar s;
  s.op = op;
  s.type = op == ScalarOp::kIsNan || op == ScalarOp::kIsInf || op == ScalarOp::kNot ? ElementType::kBool : x.type;
  s.args[0] = a;
  return add_node(std::move(s));
}

ScalarId ScalarPool::is_inf(ScalarId a, bool negative, bool positive) {
  if (!negative && !positive) return constant_bits(ElementType::kBool, 0);
  Scalar s;
  s.op = ScalarOp::kIsInf;
  s.type = ElementType::kBool;
  s.flag = negative && positive ? 0 : negative ? 1 : 2;
  s.args[0] = a;
  return add_node(std::move(s));
}

ScalarId ScalarPool::binary(ScalarOp op, ScalarId a, ScalarId b) {
  const Scalar x = at(a), y = at(b);
  const ElementType type = x.type;
  const bool float_type = is_float(type);
  const bool constants = x.op == ScalarOp::kConstant && y.op == ScalarOp::kConstant;
  if (constants && float_type) {
    const double p = float_of_bits(type, x.bits), q = float_of_bits(type, y.bits);
    std::optional<double> r;
    // f32 results of one double operation on f32 operands round correctly for + - * /.
    if (op == ScalarOp::kAdd) r = p + q;
    if (op == ScalarOp::kSub) r = p - q;
    if (op == ScalarOp::kMul) r = p * q;
    if (op == ScalarOp::kDiv) r = p / q;
    if (r) return constant(type, *r);
    if (op == ScalarOp::kLt) return constant_bits(ElementType::kBool, p < q);
    if (op == ScalarOp::kLe) return constant_bits(ElementType::kBool, p <= q);
    if (op == ScalarOp::kEq) return constant_bits(ElementType::kBool, p == q);
    if (op == ScalarOp::kNe) return constant_bits(ElementType::kBool, p != q);
  }
  if (constants && !float_type) {
    const int64_t p = integer_of_bits(type, x.bits), q = integer_of_bits(type, y.bits);
    const bool is_signed = is_signed_integer(type);
    const bool less = is_signed ? p < q : x.bits < y.bits;
    switch (op) {
      case ScalarOp::kAdd:
        return constant_bits(type, bits_of_integer(type, x.bits + y.bits));
      case ScalarOp::kSub:
        return constant_bits(type, bits_of_integer(type, x.bits - y.bits));
      case ScalarOp::kMul:
        return constant_bits(type, bits_of_integer(type, x.bits * y.bits));
      case ScalarOp::kMin:
        return less ? a : b;
      case ScalarOp::kMax:
        return less ? b : a;
      case ScalarOp::kEq:
        return constant_bits(ElementType::kBool, x.bits == y.bits);
      case ScalarOp::kNe:
        return constant_bits(ElementType::kBool, x.bits != y.bits);
      case ScalarOp::kLt:
        return constant_bits(ElementType::kBool, less);
      case ScalarOp::kLe:
        return constant_bits(ElementType::kBool, less || x.bits == y.bits);
      case ScalarOp::kAnd:
        return constant_bits(ElementType::kBool, x.bits && y.bits);
      case ScalarOp::kOr:
        return constant_bits(ElementType::kBool, x.bits || y.bits);
      default:
        break;
    }
  }
  auto is_int_constant = [&](const Scalar &s, uint64_t v) {
    return s.op == ScalarOp::kConstant && !float_type && s.bits == v;
  };
  auto is_float_constant = [&](const Scalar &s, double v) {
    return s.op == ScalarOp::kConstant && float_type && float_of_bits(type, s.bits) == v &&
           !std::signbit(float_of_bits(type, s.bits));
  };
  switch (op) {
    case ScalarOp::kAdd:
      if (is_int_constant(x, 0)) return b;  // for floats -0 + 0 = +0: not an identity
      if (is_int_constant(y, 0)) return a;
      break;
    case ScalarOp::kSub:
      if (is_int_constant(y, 0) || is_float_constant(y, 0)) return a;  // x - (+0) = x, -0 included
      break;
    case ScalarOp::kMul:
      if (is_int_constant(x, 1) || is_float_constant(x, 1)) return b;
      if (is_int_constant(y, 1) || is_float_constant(y, 1)) return a;
      break;
    case ScalarOp::kDiv:
      if (is_int_constant(y, 1) || is_float_constant(y, 1)) return a;
      break;
    case ScalarOp::kMin:
    case ScalarOp::kMax:
    case ScalarOp::kBitAnd:
    case ScalarOp::kBitOr:
      if (a == b) return a;
      break;
    case ScalarOp::kAnd:
      if (x.op == ScalarOp::kConstant) return x.bits ? b : a;
      if (y.op == ScalarOp::kConstant) return y.bits ? a : b;
      if (a == b) return a;
      break;
    case ScalarOp::kOr:
      if (x.op == ScalarOp::kConstant) return x.bits ? a : b;
      if (y.op == ScalarOp::kConstant) return y.bits ? b : a;
      if (a == b) return a;
      break;
    default:
      break;
  }
  // Comparisons of indices that the algebra can decide.
  if (type == ElementType::kInt64 && (op == ScalarOp::kLt || op == ScalarOp::kLe)) {
    auto dim = [](const Scalar &s) -> std::optional<Dim> {
      if (s.op == ScalarOp::kIndex) return s.index_value;
      if (s.op == ScalarOp::kConstant) return Dim(static_cast<int64_t>(s.bits));
      return std::nullopt;
    };
    const auto p = dim(x), q = dim(y);
    if (p && q) {
      const Dim right = op == ScalarOp::kLe ? *q + Dim(1) : *q;
      if (proved_less(*p, right)) return constant_bits(ElementType::kBool, 1);
      if (proved_at_least(*p, right)) return constant_bits(ElementType::kBool, 0);
    }
  }
  Scalar s;
  s.op = op;
  s.type = is_comparison(op) || op == ScalarOp::kAnd || op == ScalarOp::kOr || op == ScalarOp::kXor ? ElementType::kBool
                                                                                                    : type;
  s.args[0] = a;
  s.args[1] = b;
  return add_node(std::move(s));
}

ScalarId ScalarPool::select(ScalarId condition, ScalarId a, ScalarId b) {
  const Scalar &c = at(condition);
  if (c.op == ScalarOp::kConstant) return c.bits ? a : b;
  if (a == b) return a;
  Scalar s;
  s.op = ScalarOp::kSelect;
  s.type = at(a).type;
  s.args[0] = condition;
  s.args[1] = a;
  s.args[2] = b;
  return add_node(std::move(s));
}

ScalarId ScalarPool::fma(ScalarId a, ScalarId b, ScalarId c) {
  Scalar s;
  s.op = ScalarOp::kFma;
  s.type = at(a).type;
  s.args[0] = a;
  s.args[1] = b;
  s.args[2] = c;
  return add_node(std::move(s));
}

ScalarId ScalarPool::cast(ScalarId a, ElementType to, bool saturate) {
  const Scalar x = at(a);
  if (x.type == to) return a;
  // An exact widening followed by the way back is nothing: f16 -> f32 -> f16.
  if (x.op == ScalarOp::kCast && at(x.args[0]).type == to) {
    const ElementType from = to, wide = x.type;
    const bool widens = (wide == ElementType::kFloat32 && is_float(from) && bit_width(from) < 32) ||
                        (wide == ElementType::kFloat64 && is_float(from) && bit_width(from) < 64) ||
                        (is_integer(wide) && is_integer(from) && bit_width(wide) > bit_width(from) &&
                         (is_signed_integer(wide) || is_unsigned_integer(from)));
    // Where infinities saturate on the way back, they do not come back (the other formats that saturate have none).
    const bool saturates = to == ElementType::kFloat8E5M2 && saturate;
    if (widens && !saturates) return x.args[0];
  }
  if (x.op == ScalarOp::kConstant) {
    const bool from_float = is_float(x.type), to_float = is_float(to);
    if (from_float && to == ElementType::kBool) return constant_bits(to, float_of_bits(x.type, x.bits) != 0);
    if (from_float && to_float && to != ElementType::kFloat8E8M0) {
      const double v = float_of_bits(x.type, x.bits);
      if (bit_width(to) >= 16) return constant(to, v);
      return constant_bits(to, float_to_small_float(to, static_cast<float>(v), saturate));
    }
    if (!from_float && !to_float) {
      if (to == ElementType::kBool) return constant_bits(to, x.bits != 0);
      return constant_bits(to, bits_of_integer(to, static_cast<uint64_t>(integer_of_bits(x.type, x.bits))));
    }
    if (!from_float && (to == ElementType::kFloat64 || to == ElementType::kFloat32)) {
      const int64_t v = integer_of_bits(x.type, x.bits);
      if (to == ElementType::kFloat32)
        return constant(to, x.type == ElementType::kUInt64 ? static_cast<float>(x.bits) : static_cast<float>(v));
      return constant(to, x.type == ElementType::kUInt64 ? static_cast<double>(x.bits) : static_cast<double>(v));
    }
  }
  Scalar s;
  s.op = ScalarOp::kCast;
  s.type = to;
  s.flag = saturate ? 0 : 1;
  s.args[0] = a;
  return add_node(std::move(s));
}

ScalarId ScalarPool::bitcast(ScalarId a, ElementType to) {
  const Scalar &x = at(a);
  if (x.type == to) return a;
  if (x.op == ScalarOp::kConstant) return constant_bits(to, x.bits);
  Scalar s;
  s.op = ScalarOp::kBitcast;
  s.type = to;
  s.args[0] = a;
  return add_node(std::move(s));
}

}  // namespace optc
