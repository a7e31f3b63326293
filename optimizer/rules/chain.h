#pragma once
// Matching of arithmetic chains: products of factors and polynomials of one value, whatever order an exporter wrote
// them in.

#include <array>
#include <optional>
#include <vector>

#include "optimizer/rule.h"

namespace optc {

// A product taken apart: value = number * factors[0] * factors[1] * ..., through Mul, and Div by a number.
struct FactorList {
  double number = 1;
  std::vector<ValueId> factors;
  std::vector<NodeId> nodes;  // what was taken apart, the root first
};
// Inner products are taken apart when only the product itself reads them. At most `limit` factors.
std::optional<FactorList> take_product(const RuleContext &context, NodeId root, size_t limit = 3);

// c[0] + c[1] x + c[2] x^2 + c[3] x^3, through Add, Sub, Mul, Div by a number, Neg and Pow.
using Polynomial = std::array<double, 4>;
// nullopt: not such a polynomial of x. Nodes between are appended to `nodes`.
std::optional<Polynomial> take_polynomial(const RuleContext &context, ValueId v, ValueId x, std::vector<NodeId> &nodes);

// |a - b| <= relative * |b| for a constant of a chain over `element`. 2e-6: rounded to f32 once or twice. A chain of
// doubles has its constants to the last digits but one, whatever `relative` says.
bool near(ElementType element, double a, double b, double relative = 2e-6);

// Only the first node's output is read from outside.
bool closed(const RuleContext &context, const std::vector<NodeId> &nodes);

// The axes of a reduction when they are known constants, brought to [0, rank), sorted; nullopt otherwise.
std::optional<std::vector<int64_t>> reduced_axes(const RuleContext &context, NodeId reduction);

}  // namespace optc
