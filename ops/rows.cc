#include "ops/rows.h"

namespace optc {

Rows::Rows(NestBuilder &nest, Shape shape, std::vector<bool> inside)
    : nest_(nest), shape_(std::move(shape)), inside_(std::move(inside)), outer_(shape_.size()) {
  for (size_t k = 0; k < shape_.size(); ++k)
    if (!inside_[k]) outer_[k] = nest_.outer("i" + std::to_string(k), shape_[k]);
}

std::vector<Dim> Rows::open() {
  std::vector<Dim> index = outer_;
  nest_.stage_loop("none", 1);  // a stage even if every inside dimension has length 1
  for (size_t k = 0; k < shape_.size(); ++k)
    if (inside_[k]) index[k] = nest_.stage_loop("r" + std::to_string(k), shape_[k]);
  return index;
}

std::vector<Dim> Rows::outer(bool keep_inside) const {
  std::vector<Dim> index;
  for (size_t k = 0; k < shape_.size(); ++k)
    if (!inside_[k] || keep_inside) index.push_back(outer_[k]);
  return index;
}

std::vector<Dim> Rows::row(const std::vector<Dim> &index) const {
  std::vector<Dim> part;
  for (size_t k = 0; k < shape_.size(); ++k)
    if (inside_[k]) part.push_back(index[k]);
  return part;
}

Shape Rows::row_shape() const { return row(shape_); }
Dim Rows::count() const { return element_count(row_shape()); }

std::vector<bool> inside_from(size_t rank, int64_t first) {
  std::vector<bool> inside(rank, false);
  for (size_t k = static_cast<size_t>(first); k < rank; ++k) inside[k] = true;
  return inside;
}
std::vector<bool> inside_axis(size_t rank, int64_t axis) {
  std::vector<bool> inside(rank, false);
  inside[static_cast<size_t>(axis)] = true;
  return inside;
}

}  // namespace optc
