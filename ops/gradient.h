#pragma once
// ai.onnx.preview.training.Gradient: what the chain rule asks of each operator between xs and y. A rule writes, from
// the adjoints of a node's outputs (the derivatives of y by them), the adjoints of its inputs, in standard operators.
//
// To add one: a function and its row in the gradient_*.cc of its family. Its test is a generator in
// tests/python/gradient.

#include <span>
#include <string_view>
#include <vector>

#include "ops/body.h"

namespace optc {

struct Derivative {
  Body &b;                        // writes in front of the Gradient node
  Node node;                      // as it stands in the Graph
  std::vector<ValueId> adjoints;  // of the outputs; invalid: zero
  std::vector<bool> wanted;       // the inputs whose adjoints are asked for
  std::vector<ValueId> results;   // of the inputs; invalid: zero

  ValueId in(size_t i) const { return node.input(i); }
  ValueId out(size_t i) const { return node.output(i); }
  ValueId d() const { return adjoints[0]; }
  bool wants(size_t i) const { return i < wanted.size() && wanted[i]; }
  // The adjoint of input i, summed over the axes along which the operator repeated it.
  Status give(size_t i, ValueId adjoint);
  Failure unsupported(std::string what);  // "the derivative of ...", at the forward node
};

struct DerivativeRow {
  std::string_view op;
  Status (*rule)(Derivative &);  // null: zero everywhere
};
std::span<const DerivativeRow> pointwise_derivatives();
std::span<const DerivativeRow> product_derivatives();
std::span<const DerivativeRow> reduction_derivatives();
std::span<const DerivativeRow> shape_derivatives();

// Zeros of v's type and sizes.
ValueId zeros_like(Body &b, ValueId v);
ValueId sum_over(Body &b, ValueId v, std::vector<int64_t> axes, bool keep = true);
// The elements of a constant input of integers; an error where it is not one.
Result<std::vector<int64_t>> constant_ints(Derivative &d, size_t input);
// Rows `updates` added where `places` (any rank) says along `axis`, of which there are `size` (int64[1]), to zeros:
// what Gather reads, turned around.
ValueId scattered(Body &b, ValueId updates, ValueId places, ValueId size, int64_t axis, int places_rank);

}  // namespace optc
