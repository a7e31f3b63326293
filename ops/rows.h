#pragma once
// Kernels over rows: some dimensions are shared outer loops, the others are run over by each stage (reductions,
// softmax, norms).

#include <string>
#include <vector>

#include "ops/build.h"
#include "ops/registry.h"

namespace optc {

class Rows {
 public:
  // Makes the outer loops over the dimensions of `shape` that are not inside.
  Rows(NestBuilder &nest, Shape shape, std::vector<bool> inside);
  std::vector<Dim> open();                         // opens a stage over the inside dimensions: the full index
  std::vector<Dim> outer(bool keep_inside) const;  // the outer index, with 0 for (or without) the inside dimensions
  std::vector<Dim> row(const std::vector<Dim> &index) const;  // the inside part of a full index
  Shape row_shape() const;
  Dim count() const;  // elements of a row

 private:
  NestBuilder &nest_;
  Shape shape_;
  std::vector<bool> inside_;
  std::vector<Dim> outer_;
};

// Centred moments of a row: mean and the mean of the squared distances from it, for `load` giving the element at a full
// index.
struct Moments {
  Expr mean, variance;
};
template <typename Load>
Moments moments(NestBuilder &nest, Rows &rows, const Load &load) {
  std::vector<Dim> at = rows.open();
  const Expr sum = nest.reduce(Combine::kSum, load(at));
  const Expr count = cast(nest.index(rows.count()), sum.type());
  const Expr mean = sum / count;
  at = rows.open();
  const Expr distance = load(at) - mean;
  return {mean, nest.reduce(Combine::kSum, distance * distance) / count};
}

std::vector<bool> inside_from(size_t rank, int64_t first);  // dimensions first..rank-1
std::vector<bool> inside_axis(size_t rank, int64_t axis);   // one dimension

}  // namespace optc
