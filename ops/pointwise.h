#pragma once
// Shared by the files of pointwise operators.

#include <functional>
#include <vector>

#include "ops/build.h"
#include "ops/registry.h"

namespace optc {

// Output 0 has input 0's type (and elements).
Status infer_same(InferContext &context);
// Output 0 is the broadcast of the first `count` inputs (0: all) with that element type.
Status infer_broadcast(InferContext &context, ElementType element, size_t count = 0);
// Sets output 0's elements as a function of those of the inputs (which broadcast), when all are known. The function
// gives nullopt when the value is no Dim.
void propagate(InferContext &context, const std::function<std::optional<Dim>(const std::vector<Dim> &)> &f);

// Version steps shared by many operators.
Status drop_consumed_inputs(Graph &graph, NodeId node, Diagnostics &diagnostics);
// Before opset 7: attributes `broadcast` and `axis` of two-operand operators; here the second operand gets trailing
// ones.
Status legacy_broadcast(Graph &graph, NodeId node, Diagnostics &diagnostics);

inline Expr maximum(Expr a, Expr b) { return apply(ScalarOp::kMax, a, b); }
inline Expr minimum(Expr a, Expr b) { return apply(ScalarOp::kMin, a, b); }
inline Expr is_below(Expr a, Expr b) { return apply(ScalarOp::kLt, a, b); }
inline Expr is_below(Expr a, double b) { return is_below(a, a.constant(b)); }
inline Expr is_above(Expr a, double b) { return is_below(a.constant(b), a); }
inline Expr exponential(Expr a) { return apply(ScalarOp::kExp, a); }
inline Expr logarithm(Expr a) { return apply(ScalarOp::kLog, a); }
inline Expr square_root(Expr a) { return apply(ScalarOp::kSqrt, a); }
inline Expr absolute(Expr a) {
  return is_unsigned_integer(a.type()) || a.type() == ElementType::kBool ? a : apply(ScalarOp::kAbs, a);
}
Expr sigmoid(Expr x);
Expr softplus(Expr x);  // log(1 + e^x) without overflow
Expr gelu(Expr x, bool tanh_form);

}  // namespace optc
