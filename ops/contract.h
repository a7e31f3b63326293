#pragma once
// Sums of products over labelled dimensions: MatMul, Gemm, Einsum and the integer products are all one kernel form.

#include <functional>
#include <map>
#include <vector>

#include "ops/build.h"

namespace optc {

// A buffer whose dimension i runs over labels[i]; a label may repeat (a diagonal). A dimension of length 1 broadcasts.
struct Factor {
  BufferId buffer;
  std::vector<int> labels;
};
using LabelIndex = std::map<int, Dim>;  // the loop counter (or 0) of each label

struct Product {
  std::vector<Factor> factors;  // one or two
  std::vector<int> out;         // labels of the result's dimensions
  std::map<int, Dim> extents;   // of every label
  // The factor's element as it is multiplied, given the loaded one in compute type (zero points); may be empty.
  std::function<Expr(NestBuilder &, size_t factor, Expr value, const LabelIndex &)> prepare;
  // The result's element, given the sum; may be empty.
  std::function<Expr(NestBuilder &, Expr sum, const LabelIndex &)> finish;
  BufferId result;
};
// Emits out[..] = finish(sum over the labels that are not in `out` of the product). Fills LoopNest::contraction.
void contract(BuildContext &context, const Product &product);

}  // namespace optc
