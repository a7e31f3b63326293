#include <cassert>

#include "ops/build.h"

namespace optc {

ElementType compute_type(ElementType storage) {
  switch (storage) {
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
    case ElementType::kFloat8E4M3FN:
    case ElementType::kFloat8E4M3FNUZ:
    case ElementType::kFloat8E5M2:
    case ElementType::kFloat8E5M2FNUZ:
    case ElementType::kFloat4E2M1:
    case ElementType::kFloat8E8M0:
      return ElementType::kFloat32;
    case ElementType::kUInt8:
    case ElementType::kInt8:
    case ElementType::kUInt16:
    case ElementType::kInt16:
    case ElementType::kUInt4:
    case ElementType::kInt4:
    case ElementType::kUInt2:
    case ElementType::kInt2:
      return ElementType::kInt32;
    default:
      return storage;
  }
}

Expr apply(ScalarOp op, Expr a) { return {&a.pool(), a.pool().unary(op, a.id())}; }
Expr apply(ScalarOp op, Expr a, Expr b) {
  assert(a.type() == b.type());
  return {&a.pool(), a.pool().binary(op, a.id(), b.id())};
}
Expr operator+(Expr a, Expr b) { return apply(ScalarOp::kAdd, a, b); }
Expr operator-(Expr a, Expr b) { return apply(ScalarOp::kSub, a, b); }
Expr operator*(Expr a, Expr b) { return apply(ScalarOp::kMul, a, b); }
Expr operator/(Expr a, Expr b) { return apply(ScalarOp::kDiv, a, b); }
Expr operator+(Expr a, double b) { return a + a.constant(b); }
Expr operator-(Expr a, double b) { return a - a.constant(b); }
Expr operator-(double a, Expr b) { return b.constant(a) - b; }
Expr operator*(Expr a, double b) { return a * a.constant(b); }
Expr operator/(Expr a, double b) { return a / a.constant(b); }
Expr operator/(double a, Expr b) { return b.constant(a) / b; }
Expr operator-(Expr a) { return apply(ScalarOp::kNeg, a); }
Expr select(Expr condition, Expr a, Expr b) {
  assert(a.type() == b.type());
  return {&a.pool(), a.pool().select(condition.id(), a.id(), b.id())};
}
Expr cast(Expr a, ElementType to, bool saturate) {
  return a.type() == to ? a : Expr(&a.pool(), a.pool().cast(a.id(), to, saturate));
}

std::vector<Dim> broadcast_index(const std::vector<Dim> &index, const Shape &operand, const Shape &output) {
  std::vector<Dim> result(operand.size());
  const size_t lead = index.size() - operand.size();
  for (size_t k = 0; k < operand.size(); ++k) {
    const Dim extent = operand[k], i = index[lead + k];
    if (extent.is(1)) {
      result[k] = 0;
    } else if (extent == output[lead + k]) {
      result[k] = i;
    } else {
      result[k] = min(i, extent - 1);
    }
  }
  return result;
}

Dim flatten_index(const std::vector<Dim> &index, const Shape &shape) {
  Dim linear = 0;
  for (size_t k = 0; k < index.size(); ++k) linear = linear * shape[k] + index[k];
  return linear;
}

std::vector<Dim> unflatten_index(Dim linear, const Shape &shape) {
  std::vector<Dim> index(shape.size());
  size_t first = 0;  // leading dims of length 1 take nothing of the linear index
  while (first < shape.size() && shape[first].is(1)) ++first;
  for (size_t k = shape.size(); k-- > first;) {
    if (shape[k].is(1) || shape[k].is(0)) continue;
    index[k] = k == first ? linear : mod(linear, shape[k]);
    linear = floor_div(linear, shape[k]);
  }
  return index;
}

}  // namespace optc
