#include "ops/ml_util.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/util.h"

namespace optc {

std::vector<float> floats_of(const Node &node, std::string_view name) {
  const auto *list = node.floats(name);
  return list ? *list : std::vector<float>();
}
std::vector<int64_t> ints_of(const Node &node, std::string_view name) {
  const auto *list = node.ints(name);
  return list ? *list : std::vector<int64_t>();
}
const std::vector<std::string> *strings_of(const Node &node, std::string_view name) {
  const Attribute *a = node.attribute(name);
  return a ? std::get_if<std::vector<std::string>>(a) : nullptr;
}

int64_t post_transform_of(const Node &node) {
  const std::string_view name = node.string_or("post_transform", "NONE");
  constexpr std::string_view kNames[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<int64_t>(i);
  return -1;
}

ClassLabels class_labels(const Node &node, std::string_view integers) {
  ClassLabels labels;
  if (const auto *strings = strings_of(node, "classlabels_strings")) labels.strings = *strings;
  if (labels.strings.empty()) labels.integers = ints_of(node, integers);
  return labels;
}

Status build_labels(BuildContext &c, BufferId winner, Dim rows, const ClassLabels &labels) {
  if (!c.has_output(0)) return {};
  if (!labels.strings.empty()) {
    c.library("string_labels", {winner}, {c.output(0)}, {{"labels", labels.strings}});
    return {};
  }
  const BufferId table = c.constant_buffer("labels", Constant::int64s(labels.integers));
  NestBuilder nest(c, "labels");
  const Dim i = nest.outer("i", rows);
  nest.store(c.output(0), {i}, nest.load(table, {nest.as_index(nest.load(winner, {i}), Dim(labels.count()))}));
  nest.finish();
  return {};
}

Result<Features> infer_features(InferContext &c) {
  OPTC_TRY(c.require_shape(0));
  if (c.rank(0) != 1 && c.rank(0) != 2) return c.invalid("the input must have rank 1 or 2");
  return Features{c.rank(0) == 2 ? c.shape(0)[0] : Dim(1), c.shape(0).back()};
}
Features features(const BuildContext &c) {
  const Shape &shape = c.shape(0);
  return {shape.size() == 2 ? shape[0] : Dim(1), shape.back()};
}

namespace {

// Strict order of keys, NaN behind all numbers.
bool before(const Constant &keys, int64_t i, int64_t j) {
  if (keys.type() == ElementType::kString)
    return keys.string_values()[static_cast<size_t>(i)] < keys.string_values()[static_cast<size_t>(j)];
  if (is_integer(keys.type())) return keys.as_int64(i) < keys.as_int64(j);
  const double a = keys.as_double(i), b = keys.as_double(j);
  return std::isnan(b) ? !std::isnan(a) : a < b;
}

Constant picked(const Constant &from, const std::vector<int64_t> &order) {
  const std::vector<int64_t> dims = {static_cast<int64_t>(order.size())};
  if (from.type() == ElementType::kString) {
    std::vector<std::string> strings;
    for (int64_t i : order) strings.push_back(from.string_values()[static_cast<size_t>(i)]);
    return Constant::strings(dims, std::move(strings));
  }
  const size_t width = static_cast<size_t>(bit_width(from.type())) / 8;
  std::vector<uint8_t> bytes;
  for (int64_t i : order) {
    const uint8_t *at = from.data() + static_cast<size_t>(i) * width;
    bytes.insert(bytes.end(), at, at + width);
  }
  return Constant::owned(from.type(), dims, std::move(bytes));
}

}  // namespace

LookupTable lookup_table(const Constant &keys, const Constant &values) {
  std::vector<int64_t> order(static_cast<size_t>(keys.count()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return before(keys, i, j); });
  std::vector<int64_t> last;
  for (size_t i = 0; i < order.size(); ++i)
    if (i + 1 == order.size() || before(keys, order[i], order[i + 1])) last.push_back(order[i]);
  return {picked(keys, last), picked(values, last)};
}

}  // namespace optc
