#include "emit/cpp/scalar_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "emit/cpp/types.h"
#include "ir/constant_bits.h"

namespace optc {
namespace {

template <typename T>
Text float_text(T value, const char *suffix) {
  if (std::isnan(value)) return {"NAN"};
  if (std::isinf(value)) return {value > 0 ? "INFINITY" : "-INFINITY", value > 0 ? kAtomPrecedence : kUnaryPrecedence};
  std::string s = fmt::format("{}", value);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return {s + suffix, std::signbit(value) ? kUnaryPrecedence : kAtomPrecedence};
}

Text binary(const Text *a, const char *op, int precedence, bool lanes) {
  // Left-associative: the right operand must bind stronger.
  return {wrap(a[0], precedence) + " " + op + " " + wrap(a[1], precedence - 1), precedence, lanes};
}

Text call1(const std::string &function, const Text &a, bool lanes) {
  return {function + "(" + a.s + ")", kAtomPrecedence, lanes};
}

// An operand as a vector: a function of lanes takes no scalar.
std::string vectored(const Text &a, LaneClass lanes) { return a.lanes ? a.s : splat_text(a.s, lanes); }

Text call2(const std::string &function, const Text *a, bool lanes, LaneClass operand) {
  if (!lanes) return {function + "(" + a[0].s + ", " + a[1].s + ")"};
  return {function + "(" + vectored(a[0], operand) + ", " + vectored(a[1], operand) + ")", kAtomPrecedence, true};
}

bool is_literal(const Text &text) {
  return !text.lanes && !text.s.empty() && text.s != "NAN" && (std::isdigit(text.s[0]) || text.s[0] == '-');
}

Text cast_lanes(const Scalar &node, ElementType from, const Text &a) {
  const LaneClass source = lane_class(from), target = lane_class(node.type);
  const ElementType to = node.type;
  Text v = a;
  if (from == ElementType::kInt64) v.lanes = true;
  if (target == LaneClass::kFloat) {
    if (source == LaneClass::kMask) v = {"mask_f32(" + v.s + ")", kAtomPrecedence, true};
    if (source == LaneClass::kInt) v = {"to_f32(" + v.s + ")", kAtomPrecedence, true};
    if (to == ElementType::kFloat16) return {"round_to_f16(" + v.s + ")", kAtomPrecedence, true};
    if (to == ElementType::kBFloat16) return {"round_to_bf16(" + v.s + ")", kAtomPrecedence, true};
    return v;
  }
  if (target == LaneClass::kDouble) {
    if (source == LaneClass::kMask) v.s = wrap(v, kUnaryPrecedence) + " & 1";
    return {"to_f64(" + v.s + ")", kAtomPrecedence, true};
  }
  if (target == LaneClass::kMask) {
    if (source == LaneClass::kFloat) return {wrap(v, kAddPrecedence) + " != splat(0.0f)", kEqualityPrecedence, true};
    return {wrap(v, kAddPrecedence) + " != splat_i(0)", kEqualityPrecedence, true};
  }
  // to integers
  if (source == LaneClass::kMask) return {"(" + wrap(v, kUnaryPrecedence) + " & 1)", kAtomPrecedence, true};
  if (source == LaneClass::kFloat) {
    if (to == ElementType::kInt8) return {"to_i8(" + v.s + ")", kAtomPrecedence, true};
    if (to == ElementType::kUInt8) return {"to_u8(" + v.s + ")", kAtomPrecedence, true};
    return {"to_i32(" + v.s + ")", kAtomPrecedence, true};
  }
  switch (to) {
    case ElementType::kInt8:
      return {"wrap_i8(" + v.s + ")", kAtomPrecedence, true};
    case ElementType::kUInt8:
      return {"(" + wrap(v, kUnaryPrecedence) + " & 255)", kAtomPrecedence, true};
    case ElementType::kInt16:
      return {"wrap_i16(" + v.s + ")", kAtomPrecedence, true};
    case ElementType::kUInt16:
      return {"(" + wrap(v, kUnaryPrecedence) + " & 65535)", kAtomPrecedence, true};
    default:
      return v;
  }
}

Text cast_text(const Scalar &node, ElementType from, const Text &a) {
  const ElementType to = node.type;
  const CppType &type = cpp_type(to);
  if (to == from) return a;
  if (to == ElementType::kBool) return {wrap(a, kAddPrecedence) + " != 0", kEqualityPrecedence};
  if (is_small_float(to)) {
    // Integers and bool are exact in double up to 2^53; beyond, every small float has long overflowed.
    const bool narrow = is_float(from) || from == ElementType::kBool || bit_width(from) <= 16;
    const std::string value = narrow ? (is_float(from) ? a.s : "(float)" + wrap(a, kUnaryPrecedence))
                                     : "(double)" + wrap(a, kUnaryPrecedence);
    if (to == ElementType::kFloat16 || to == ElementType::kBFloat16)
      return {fmt::format("round_{}({})", type.suffix, value)};
    return {fmt::format("round_{}({}, {})", type.suffix, value, node.flag == 1 ? "false" : "true")};
  }
  if (is_float(to)) {
    if (to == ElementType::kFloat32 && is_small_float(from)) return a;
    return {fmt::format("({}){}", type.value, wrap(a, kUnaryPrecedence)), kUnaryPrecedence};
  }
  if (is_complex(to) || is_complex(from)) return a;
  const bool packed = type.per_byte > 1;
  if (is_float(from)) {
    if (packed) return {fmt::format("saturate_to_{}({})", type.suffix, a.s)};
    return {fmt::format("saturate_to<{}>({})", type.value, a.s)};
  }
  if (packed) return {fmt::format("wrap_to_{}((int64_t){})", type.suffix, wrap(a, kUnaryPrecedence))};
  return {fmt::format("({}){}", type.value, wrap(a, kUnaryPrecedence)), kUnaryPrecedence};
}

Text bitcast_text(ElementType to, ElementType from, const Text &a) {
  const CppType &source = cpp_type(from), &target = cpp_type(to);
  if (to == from) return a;
  std::string bits = is_small_float(from) ? fmt::format("to_{}({})", source.suffix, a.s) : a.s;
  if (is_small_float(to))
    return {
        fmt::format("from_{}(({}){})", target.suffix, target.storage, wrap({bits, kAtomPrecedence}, kUnaryPrecedence))};
  if (target.per_byte > 1) return {fmt::format("wrap_to_{}((int64_t)({}))", target.suffix, bits)};
  return {fmt::format("bits_as<{}>({})", target.value, bits)};
}

const char *math_name(ScalarOp op) {
  switch (op) {
    case ScalarOp::kExp:
      return "exp";
    case ScalarOp::kExpm1:
      return "expm1";
    case ScalarOp::kLog:
      return "log";
    case ScalarOp::kLog1p:
      return "log1p";
    case ScalarOp::kSin:
      return "sin";
    case ScalarOp::kCos:
      return "cos";
    case ScalarOp::kTan:
      return "tan";
    case ScalarOp::kAsin:
      return "asin";
    case ScalarOp::kAcos:
      return "acos";
    case ScalarOp::kAtan:
      return "atan";
    case ScalarOp::kSinh:
      return "sinh";
    case ScalarOp::kCosh:
      return "cosh";
    case ScalarOp::kTanh:
      return "tanh";
    case ScalarOp::kAsinh:
      return "asinh";
    case ScalarOp::kAcosh:
      return "acosh";
    case ScalarOp::kAtanh:
      return "atanh";
    case ScalarOp::kErf:
      return "erf";
    case ScalarOp::kSqrt:
      return "sqrt";
    case ScalarOp::kFloor:
      return "floor";
    case ScalarOp::kCeil:
      return "ceil";
    case ScalarOp::kTrunc:
      return "trunc";
    case ScalarOp::kPow:
      return "pow";
    default:
      return nullptr;
  }
}

}  // namespace

std::string wrap(const Text &text, int weakest) { return text.precedence > weakest ? "(" + text.s + ")" : text.s; }

const char *lane_type_name(LaneClass lanes) {
  return lanes == LaneClass::kFloat    ? "vf"
         : lanes == LaneClass::kDouble ? "vd"
         : lanes == LaneClass::kMask   ? "vm"
                                       : "vi";
}

std::string splat_text(const std::string &value, LaneClass lanes) {
  const char *splat = lanes == LaneClass::kFloat    ? "splat"
                      : lanes == LaneClass::kDouble ? "splat_d"
                      : lanes == LaneClass::kMask   ? "splat_m"
                                                    : "splat_i";
  return fmt::format("{}({})", splat, value);
}

Text constant_text(ElementType type, uint64_t bits) {
  switch (type) {
    case ElementType::kFloat64: {
      double d;
      std::memcpy(&d, &bits, 8);
      if (std::isnan(d) || std::isinf(d)) {
        Text t = float_text(d, "");
        return {"(double)" + t.s, kUnaryPrecedence};
      }
      return float_text(d, "");
    }
    case ElementType::kBool:
      return {bits ? "true" : "false"};
    case ElementType::kInt32: {
      const auto v = static_cast<int32_t>(static_cast<uint32_t>(bits));
      if (v == INT32_MIN) return {"INT32_MIN"};
      return {std::to_string(v), v < 0 ? kUnaryPrecedence : kAtomPrecedence};
    }
    case ElementType::kInt64: {
      const auto v = static_cast<int64_t>(bits);
      return {v == INT64_MIN ? "INT64_MIN" : fmt::format("int64_t{{{}}}", v)};
    }
    case ElementType::kUInt64:
      return {fmt::format("uint64_t{{{}u}}", bits)};
    case ElementType::kUInt32:
      return {fmt::format("uint32_t{{{}u}}", static_cast<uint32_t>(bits))};
    case ElementType::kInt8:
      return {fmt::format("int8_t{{{}}}", static_cast<int>(static_cast<int8_t>(bits)))};
    case ElementType::kInt16:
      return {fmt::format("int16_t{{{}}}", static_cast<int>(static_cast<int16_t>(bits)))};
    case ElementType::kInt4:
      return {fmt::format("int8_t{{{}}}", static_cast<int>(static_cast<int8_t>(static_cast<uint8_t>(bits << 4)) >> 4))};
    case ElementType::kInt2:
      return {fmt::format("int8_t{{{}}}", static_cast<int>(static_cast<int8_t>(static_cast<uint8_t>(bits << 6)) >> 6))};
    case ElementType::kUInt8:
    case ElementType::kUInt4:
    case ElementType::kUInt2:
      return {fmt::format("uint8_t{{{}}}", bits & 255)};
    case ElementType::kUInt16:
      return {fmt::format("uint16_t{{{}}}", bits & 65535)};
    case ElementType::kString:  // what a Pad fills with: strings and complex numbers have no other constants
      return {"OptcLibString{\"\", 0}"};
    case ElementType::kComplex64:
      return {"Complex64{}"};
    case ElementType::kComplex128:
      return {"Complex128{}"};
    default:
      return float_text(static_cast<float>(float_of_bits(type, bits)), "f");
  }
}

namespace {

// Of double operands: vd is a struct, which the compiler compares with no scalar, and its comparisons are of 64 bits a
// lane.
Text double_lanes(const Scalar &node, const Text *args) {
  const bool select = node.op == ScalarOp::kSelect;
  Text a[3];
  for (int k = 0; k < arity(node.op); ++k)
    a[k] = args[k].lanes || (select && k == 0) ? args[k]
                                               : Text{splat_text(args[k].s, LaneClass::kDouble), kAtomPrecedence, true};
  const auto call = [&](const std::string &function) {
    std::string list = a[0].s;
    for (int k = 1; k < arity(node.op); ++k) list += ", " + a[k].s;
    return Text{function + "(" + list + ")", kAtomPrecedence, true};
  };
  const auto compare = [&](const Text &left, const char *op, const Text &right) {
    return Text{fmt::format("narrow({} {} {})", wrap(left, kAddPrecedence), op, wrap(right, kAddPrecedence)),
                kAtomPrecedence, true};
  };
  switch (node.op) {
    case ScalarOp::kNeg:
      return {"-" + wrap(a[0], kAtomPrecedence), kUnaryPrecedence, true};
    case ScalarOp::kAdd:
      return binary(a, "+", kAddPrecedence, true);
    case ScalarOp::kSub:
      return binary(a, "-", kAddPrecedence, true);
    case ScalarOp::kMul:
      return binary(a, "*", kMulPrecedence, true);
    case ScalarOp::kDiv:
      return binary(a, "/", kMulPrecedence, true);
    case ScalarOp::kMin:
      return call("min");
    case ScalarOp::kMax:
      return call("max");
    case ScalarOp::kEq:
      return compare(a[0], "==", a[1]);
    case ScalarOp::kNe:
      return compare(a[0], "!=", a[1]);
    case ScalarOp::kLt:
      return compare(a[0], "<", a[1]);
    case ScalarOp::kLe:
      return compare(a[0], "<=", a[1]);
    case ScalarOp::kIsNan:
      return compare(a[0], "!=", a[0]);
    case ScalarOp::kIsInf:
      return compare(node.flag ? a[0] : call("abs"),
                     "==", {node.flag == 1 ? "splat_d(-INFINITY)" : "splat_d(INFINITY)", kAtomPrecedence, true});
    case ScalarOp::kSelect:
      return call("select");
    case ScalarOp::kFma:
      return call("fma");
    case ScalarOp::kAbs:
      return call("abs");
    case ScalarOp::kSqrt:
      return call("sqrt");
    case ScalarOp::kSign:
      return call("map<sign_of<double>>");
    case ScalarOp::kRound:
      return call("map<::nearbyint>");
    case ScalarOp::kSigmoid:
      return call("map<sigmoid_of<double>>");
    case ScalarOp::kCast:
      if (node.type == ElementType::kFloat32) return call("to_f32");
      if (node.type == ElementType::kBool)
        return compare(a[0], "!=", {splat_text("0.0", LaneClass::kDouble), kAtomPrecedence, true});
      return a[0];
    default:
      return call(std::string("map<::") + math_name(node.op) + ">");
  }
}

}  // namespace

Text operation_text(const Scalar &node, ElementType operand, const Text *a, bool lanes) {
  if (lanes && operand == ElementType::kFloat64) return double_lanes(node, a);
  const bool f32 = operand == ElementType::kFloat32 || is_small_float(operand), f64 = operand == ElementType::kFloat64;
  const bool floating = f32 || f64;
  const bool boolean = operand == ElementType::kBool;
  const LaneClass operand_lanes = lane_class(operand);
  switch (node.op) {
    case ScalarOp::kNeg:
      if (floating) return {"-" + wrap(a[0], kAtomPrecedence), kUnaryPrecedence, lanes};
      return call1(lanes ? "neg_i" : "neg_wrap", a[0], lanes);
    case ScalarOp::kAdd:
      return floating ? binary(a, "+", kAddPrecedence, lanes)
                      : call2(lanes ? "add_i" : "add_wrap", a, lanes, operand_lanes);
    case ScalarOp::kSub:
      return floating ? binary(a, "-", kAddPrecedence, lanes)
                      : call2(lanes ? "sub_i" : "sub_wrap", a, lanes, operand_lanes);
    case ScalarOp::kMul:
      return floating ? binary(a, "*", kMulPrecedence, lanes)
                      : call2(lanes ? "mul_i" : "mul_wrap", a, lanes, operand_lanes);
    case ScalarOp::kDiv:
      return floating ? binary(a, "/", kMulPrecedence, lanes) : call2("div_trunc", a, false, operand_lanes);
    case ScalarOp::kMod:
      return call2("mod_floor", a, false, operand_lanes);
    case ScalarOp::kFmod:
      return call2("mod_trunc", a, false, operand_lanes);
    case ScalarOp::kPow:
      if (f32) return call2("pow", a, lanes, operand_lanes);
      return call2(f64 ? "::pow" : "pow_wrap", a, false, operand_lanes);
    case ScalarOp::kMin:
    case ScalarOp::kMax: {
      const bool is_min = node.op == ScalarOp::kMin;
      if (operand == ElementType::kFloat32) {
        // With a constant that is no number less than itself one instruction is enough.
        if (is_literal(a[1]))
          return {fmt::format("{}({}, {})", is_min ? "min_num" : "max_num", a[0].s, a[1].s), kAtomPrecedence, lanes};
        if (is_literal(a[0]))
          return {fmt::format("{}({}, {})", is_min ? "min_num" : "max_num", a[1].s, a[0].s), kAtomPrecedence, lanes};
        return call2(is_min ? "min" : "max", a, lanes, operand_lanes);
      }
      return call2(lanes ? (is_min ? "min" : "max") : (is_min ? "min_of" : "max_of"), a, lanes, operand_lanes);
    }
    case ScalarOp::kEq:
      if (boolean && lanes)
        return {"~(" + vectored(a[0], operand_lanes) + " ^ " + vectored(a[1], operand_lanes) + ")", kUnaryPrecedence,
                true};
      return binary(a, "==", kEqualityPrecedence, lanes);
    case ScalarOp::kNe:
      return binary(a, "!=", kEqualityPrecedence, lanes);
    case ScalarOp::kLt:
      return binary(a, "<", kRelationPrecedence, lanes);
    case ScalarOp::kLe:
      return binary(a, "<=", kRelationPrecedence, lanes);
    case ScalarOp::kNot:
      return {(lanes ? "~" : "!") + wrap(a[0], kAtomPrecedence), kUnaryPrecedence, lanes};
    case ScalarOp::kAnd:
    case ScalarOp::kOr: {
      const bool is_and = node.op == ScalarOp::kAnd;
      if (lanes)
        return {"(" + wrap({vectored(a[0], LaneClass::kMask), a[0].lanes ? a[0].precedence : 0}, kUnaryPrecedence) +
                    (is_and ? " & " : " | ") +
                    wrap({vectored(a[1], LaneClass::kMask), a[1].lanes ? a[1].precedence : 0}, kUnaryPrecedence) + ")",
                kAtomPrecedence, true};
      return {wrap(a[0], kAddPrecedence) + (is_and ? " && " : " || ") + wrap(a[1], kAddPrecedence), kLogicPrecedence};
    }
    case ScalarOp::kXor:
      if (lanes)
        return {"(" + wrap({vectored(a[0], LaneClass::kMask), a[0].lanes ? a[0].precedence : 0}, kUnaryPrecedence) +
                    " ^ " +
                    wrap({vectored(a[1], LaneClass::kMask), a[1].lanes ? a[1].precedence : 0}, kUnaryPrecedence) + ")",
                kAtomPrecedence, true};
      return {wrap(a[0], kAddPrecedence) + " != " + wrap(a[1], kAddPrecedence), kEqualityPrecedence};
    case ScalarOp::kBitAnd:
    case ScalarOp::kBitOr:
    case ScalarOp::kBitXor: {
      const char *op = node.op == ScalarOp::kBitAnd ? " & " : node.op == ScalarOp::kBitOr ? " | " : " ^ ";
      // The operands promote to int; the result comes back to its own type.
      return {fmt::format("({})({}{}{})", cpp_type(node.type).value, wrap(a[0], kUnaryPrecedence), op,
                          wrap(a[1], kUnaryPrecedence)),
              kUnaryPrecedence};
    }
    case ScalarOp::kBitNot:
      return {fmt::format("({})~{}", cpp_type(node.type).value, wrap(a[0], kAtomPrecedence)), kUnaryPrecedence};
    case ScalarOp::kShl:
      return call2("shift_left", a, false, operand_lanes);
    case ScalarOp::kShr:
      return call2("shift_right", a, false, operand_lanes);
    case ScalarOp::kSelect: {
      const LaneClass result = lane_class(node.type);
      if (!lanes)
        return {
            wrap(a[0], kAddPrecedence) + " ? " + wrap(a[1], kLogicPrecedence) + " : " + wrap(a[2], kLogicPrecedence),
            kTernaryPrecedence};
      return {fmt::format("select({}, {}, {})", a[0].s, vectored(a[1], result), vectored(a[2], result)),
              kAtomPrecedence, true};
    }
    case ScalarOp::kFma:
      if (!floating) return {fmt::format("add_wrap(mul_wrap({}, {}), {})", a[0].s, a[1].s, a[2].s)};
      if (f64) return {fmt::format("::fma({}, {}, {})", a[0].s, a[1].s, a[2].s)};
      if (!lanes) return {fmt::format("fma({}, {}, {})", a[0].s, a[1].s, a[2].s)};
      return {fmt::format("fma({}, {}, {})", vectored(a[0], LaneClass::kFloat), vectored(a[1], LaneClass::kFloat),
                          vectored(a[2], LaneClass::kFloat)),
              kAtomPrecedence, true};
    case ScalarOp::kCast:
      return lanes ? cast_lanes(node, operand, a[0]) : cast_text(node, operand, a[0]);
    case ScalarOp::kBitcast:
      return bitcast_text(node.type, operand, a[0]);
    case ScalarOp::kIsNan:
      if (lanes) return call1("is_nan", a[0], true);
      return call1("isnan", a[0], false);
    case ScalarOp::kIsInf: {
      const char *sign = node.flag == 1 ? "-INFINITY" : "INFINITY";
      if (lanes)
        return {fmt::format("{}{}{} == splat({})", node.flag ? "" : "abs(",
                            node.flag ? wrap(a[0], kAddPrecedence) : a[0].s, node.flag ? "" : ")", sign),
                kEqualityPrecedence, true};
      if (node.flag) return {fmt::format("{} == {}", wrap(a[0], kAddPrecedence), sign), kEqualityPrecedence};
      return call1("isinf", a[0], false);
    }
    case ScalarOp::kAbs:
      return call1(lanes || operand == ElementType::kFloat32 ? "abs"
                   : f64                                     ? "fabs"
                   : floating                                ? "fabsf"
                                                             : "abs_wrap",
                   a[0], lanes);
    case ScalarOp::kSign:
      return call1(lanes || operand == ElementType::kFloat32 ? "sign" : "sign_of", a[0], lanes);
    case ScalarOp::kRound:
      return call1(f64 ? "::nearbyint" : "round_even", a[0], lanes);
    case ScalarOp::kSigmoid:
      return call1(f64 ? "sigmoid_of" : "sigmoid", a[0], lanes);
    default: {
      const char *name = math_name(node.op);
      if (f64) return call1(std::string("::") + name, a[0], false);
      // What runtime/cpu has for vectors it has for scalars, under one name.
      if (lanes_support(node, ElementType::kFloat32)) return call1(name, a[0], lanes);
      return call1(std::string("::") + name + "f", a[0], false);
    }
  }
}

std::string load_text(ElementType type, const std::string &pointer, const std::string &index) {
  const CppType &t = cpp_type(type);
  if (t.per_byte > 1) {
    if (type == ElementType::kFloat4E2M1) return fmt::format("from_f4e2m1(get_u4({}, {}))", pointer, index);
    return fmt::format("get_{}({}, {})", t.suffix, pointer, index);
  }
  if (type == ElementType::kBool) return fmt::format("({}[{}] != 0)", pointer, index);
  if (t.suffix) return fmt::format("from_{}({}[{}])", t.suffix, pointer, index);
  return fmt::format("{}[{}]", pointer, index);
}

std::string store_text(ElementType type, const std::string &pointer, const std::string &index,
                       const std::string &value) {
  const CppType &t = cpp_type(type);
  if (t.per_byte > 1) {
    const int bits = 8 / t.per_byte;
    if (type == ElementType::kFloat4E2M1) return fmt::format("put_4({}, {}, to_f4e2m1({}));", pointer, index, value);
    return fmt::format("put_{}({}, {}, (uint8_t)({}));", bits, pointer, index, value);
  }
  if (is_small_float(type)) return fmt::format("{}[{}] = to_{}({});", pointer, index, t.suffix, value);
  return fmt::format("{}[{}] = {};", pointer, index, value);
}

Text combine_text(Combine combine, ElementType type, const Text &a, const Text &b) {
  Scalar node;
  node.type = type;
  switch (combine) {
    case Combine::kStore:
      return b;
    case Combine::kSum:
      node.op = ScalarOp::kAdd;
      break;
    case Combine::kProduct:
      node.op = ScalarOp::kMul;
      break;
    case Combine::kMax:
      node.op = ScalarOp::kMax;
      break;
    case Combine::kMin:
      node.op = ScalarOp::kMin;
      break;
    case Combine::kAnd:
      node.op = type == ElementType::kBool ? ScalarOp::kAnd : ScalarOp::kBitAnd;
      break;
    case Combine::kOr:
      node.op = type == ElementType::kBool ? ScalarOp::kOr : ScalarOp::kBitOr;
      break;
  }
  const Text args[2] = {a, b};
  const bool lanes = a.lanes || b.lanes;
  Text result = operation_text(node, type, args, lanes);
  // Scatters combine in the storage type: a small float is rounded after each step.
  if (is_small_float(type) && !lanes) {
    const CppType &t = cpp_type(type);
    if (combine == Combine::kMax || combine == Combine::kMin) return result;
    return {fmt::format("round_{}({})", t.suffix, result.s)};
  }
  return result;
}

std::string identity_text(Combine combine, ElementType type) {
  const bool floating = is_float(type);
  const std::string value = cpp_type(type).value;
  switch (combine) {
    case Combine::kStore:
    case Combine::kSum:
    case Combine::kOr:
      return type == ElementType::kBool      ? "false"
             : type == ElementType::kFloat64 ? "0.0"
             : floating                      ? "0.0f"
                                             : value + "{0}";
    case Combine::kProduct:
      return type == ElementType::kFloat64 ? "1.0" : floating ? "1.0f" : value + "{1}";
    case Combine::kAnd:
      return type == ElementType::kBool ? "true" : "(" + value + ")~" + value + "{0}";
    case Combine::kMax:
      if (type == ElementType::kBool) return "false";
      return floating ? (type == ElementType::kFloat64 ? "(double)-INFINITY" : "-INFINITY")
                      : "std::numeric_limits<" + value + ">::min()";
    case Combine::kMin:
      if (type == ElementType::kBool) return "true";
      return floating ? (type == ElementType::kFloat64 ? "(double)INFINITY" : "INFINITY")
                      : "std::numeric_limits<" + value + ">::max()";
  }
  return "0";
}

}  // namespace optc
