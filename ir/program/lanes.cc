#include "ir/program/lanes.h"

namespace optc {
namespace {

// Functions of one float that runtime/cpu (simd.h, math.h) has for vectors and scalars alike. Of double they are those
// of the C library, lane by lane.
bool vector_math(ScalarOp op) {
  switch (op) {
    case ScalarOp::kSqrt:
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kTrunc:
    case ScalarOp::kRound:
    case ScalarOp::kAbs:
    case ScalarOp::kSign:
      return true;
    default:
      return is_transcendental(op);
  }
}

}  // namespace

LaneClass lane_class(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
      return LaneClass::kFloat;
    case ElementType::kFloat64:
      return LaneClass::kDouble;
    case ElementType::kInt32:
    case ElementType::kInt16:
    case ElementType::kUInt16:
    case ElementType::kInt8:
    case ElementType::kUInt8:
    case ElementType::kInt64:
      return LaneClass::kInt;  // i64: loop counters only, see NestPlan
    case ElementType::kBool:
      return LaneClass::kMask;
    default:
      return LaneClass::kNone;
  }
}

bool lanes_support(const Scalar &node, ElementType operand) {
  const bool f64 = operand == ElementType::kFloat64, floats = operand == ElementType::kFloat32 || f64,
             i32 = operand == ElementType::kInt32;
  const LaneClass lanes = lane_class(operand);
  switch (node.op) {
    case ScalarOp::kConstant:
    case ScalarOp::kIndex:
    case ScalarOp::kLoad:
    case ScalarOp::kLocal:
      return lane_class(node.type) != LaneClass::kNone;
    case ScalarOp::kNeg:
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kMul:
    case ScalarOp::kMin:
    case ScalarOp::kMax:
      return floats || i32;
    case ScalarOp::kDiv:
    case ScalarOp::kFma:
    case ScalarOp::kIsNan:
    case ScalarOp::kIsInf:
      return floats;
    case ScalarOp::kNot:
    case ScalarOp::kAnd:
    case ScalarOp::kOr:
    case ScalarOp::kXor:
      return lanes == LaneClass::kMask;
    case ScalarOp::kEq:
    case ScalarOp::kNe:
    case ScalarOp::kLt:
    case ScalarOp::kLe:
      return floats || lanes == LaneClass::kFloat || lanes == LaneClass::kInt;
    case ScalarOp::kSelect:
      return lane_class(node.type) != LaneClass::kNone && node.type != ElementType::kInt64;
    case ScalarOp::kCast: {
      const ElementType to = node.type;
      if (to == ElementType::kInt64) return false;
      if (f64) return to == ElementType::kFloat32 || to == ElementType::kFloat64 || to == ElementType::kBool;
      if (lane_class(to) == LaneClass::kNone || lanes == LaneClass::kNone) return false;
      if (lanes == LaneClass::kFloat && (to == ElementType::kInt16 || to == ElementType::kUInt16)) return false;
      return true;
    }
    case ScalarOp::kAbs:
      return floats || i32;
    default:
      return floats && vector_math(node.op);
  }
}

}  // namespace optc
