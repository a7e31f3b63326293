#include "driver/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

namespace optc {
namespace {

int mantissa_bits(ElementType type) {
  switch (type) {
    case ElementType::kFloat64:
      return 52;
    case ElementType::kFloat32:
      return 23;
    case ElementType::kFloat16:
      return 10;
    case ElementType::kBFloat16:
      return 7;
    default:
      return 3;
  }
}

Comparison problem(std::string text) {
  Comparison result;
  result.problem = std::move(text);
  return result;
}

// Complex tensors are compared as twice as many real numbers.
struct Numbers {
  const Constant &tensor;
  double at(int64_t i) const {
    if (tensor.type() == ElementType::kComplex64) return tensor.as<float>()[i];
    if (tensor.type() == ElementType::kComplex128) return tensor.as<double>()[i];
    return tensor.as_double(i);
  }
};

Comparison compare_tensors(const Constant &actual, const Constant &expected, const Tolerance &tolerance) {
  if (actual.type() != expected.type())
    return problem(fmt::format("element type {}, expected {}", to_string(actual.type()), to_string(expected.type())));
  if (actual.dims() != expected.dims())
    return problem(fmt::format("dims {}, expected {}", to_string(actual.shape()), to_string(expected.shape())));
  const ElementType type = expected.type();
  Comparison result;
  result.count = expected.count();
  if (type == ElementType::kString) {
    for (int64_t i = 0; i < result.count; ++i)
      result.differing += actual.string_values()[i] != expected.string_values()[i];
    result.ok = result.differing <= tolerance.slack_elements;
    if (!result.ok) result.problem = fmt::format("{} of {} strings differ", result.differing, result.count);
    return result;
  }
  const bool exact = !is_float(type) && !is_complex(type);
  if (exact && bit_width(type) == 64) {  // beyond double's precision
    for (int64_t i = 0; i < result.count; ++i) {
      const int64_t a = actual.as<int64_t>()[i], e = expected.as<int64_t>()[i];
      result.range = std::max(result.range, std::fabs(static_cast<double>(e)));
      result.max_difference =
          std::max(result.max_difference, std::fabs(static_cast<double>(a) - static_cast<double>(e)));
      result.differing += a != e;
    }
    result.ok = result.differing <= tolerance.slack_elements;
    if (tolerance.absolute > 0) result.ok = result.ok || result.max_difference <= tolerance.absolute;
    result.allowed = tolerance.absolute;
    return result;
  }
  const Numbers a{actual}, e{expected};
  const int64_t numbers = is_complex(type) ? 2 * result.count : result.count;
  int64_t other_class = 0;
  for (int64_t i = 0; i < numbers; ++i) {
    const double x = a.at(i), y = e.at(i);
    if (std::isnan(x) != std::isnan(y) || (std::isinf(y) && x != y) || (std::isinf(x) && x != y)) ++other_class;
    result.nan += std::isnan(y);
    if (std::isfinite(y)) result.range = std::max(result.range, std::fabs(y));
  }
  const double relative = exact                              ? 0
                          : tolerance.relative_to_range >= 0 ? tolerance.relative_to_range
                                                             : std::max(default_tolerance(type), tolerance.floor);
  result.allowed = std::max(relative * result.range, tolerance.absolute) + (exact ? 0 : tolerance.slack);
  std::vector<float> ulps;
  double product = 0, square_x = 0, square_y = 0;
  const int bits = mantissa_bits(type);
  for (int64_t i = 0; i < numbers; ++i) {
    const double x = a.at(i), y = e.at(i);
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    const double difference = std::fabs(x - y);
    result.max_difference = std::max(result.max_difference, difference);
    result.differing += difference > result.allowed;
    if (!exact) {
      int exponent = 0;
      std::frexp(y, &exponent);
      const double ulp = difference / std::ldexp(1.0, std::max(exponent, -125) - 1 - bits);
      ulps.push_back(static_cast<float>(ulp));
      result.max_ulp = std::max(result.max_ulp, ulp);
      product += x * y;
      square_x += x * x;
      square_y += y * y;
    }
  }
  if (!ulps.empty()) {
    std::nth_element(ulps.begin(), ulps.begin() + ulps.size() / 2, ulps.end());
    result.median_ulp = ulps[ulps.size() / 2];
  }
  if (square_x > 0 && square_y > 0 && std::isfinite(square_x) && std::isfinite(square_y))
    result.cosine = std::clamp(product / std::sqrt(square_x) / std::sqrt(square_y), -1.0, 1.0);
  if (!exact && !is_complex(type) && expected.rank() >= 1 && expected.dims().back() > 1) {
    const int64_t width = expected.dims().back();
    for (int64_t row = 0; row + width <= result.count; row += width) {
      int64_t best_a = row, best_e = row;
      for (int64_t i = row; i < row + width; ++i) {
        if (a.at(i) > a.at(best_a)) best_a = i;
        if (e.at(i) > e.at(best_e)) best_e = i;
      }
      if (best_a != best_e && e.at(best_e) - e.at(best_a) > result.allowed) result.same_argmax = false;
    }
  }
  result.differing += other_class;
  result.ok = result.differing <= (exact ? tolerance.slack_elements : 0);
  if (other_class)
    result.problem =
        fmt::format("{} of {} elements are NaN or infinite in one of the two only", other_class, result.count);
  return result;
}

}  // namespace

double relative(const Comparison &c) { return c.range > 0 ? c.max_difference / c.range : c.max_difference; }

double default_tolerance(ElementType type) {
  switch (type) {
    case ElementType::kFloat64:
    case ElementType::kComplex128:
      return 1e-6;
    case ElementType::kFloat32:
    case ElementType::kComplex64:
      return 1e-4;
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
      return 2e-2;
    default:
      return is_float(type) ? 0.25 : 0;
  }
}

Comparison compare(const RuntimeValue &actual, const RuntimeValue &expected, const Tolerance &tolerance) {
  if (actual.kind != expected.kind) return problem("another kind of value (tensor, sequence, optional, map)");
  if (expected.kind == RuntimeValue::Kind::kTensor) return compare_tensors(actual.tensor, expected.tensor, tolerance);
  if (actual.items.size() != expected.items.size())
    return problem(fmt::format("{} elements, expected {}", actual.items.size(), expected.items.size()));
  if (expected.kind == RuntimeValue::Kind::kMap)
    if (Comparison keys = compare_tensors(actual.tensor, expected.tensor, tolerance); !keys.ok) {
      keys.problem = "the keys of a map: " + describe(keys);
      return keys;
    }
  Comparison worst;
  worst.ok = true;
  for (size_t i = 0; i < expected.items.size(); ++i) {
    Comparison item = compare(actual.items[i], expected.items[i], tolerance);
    if (!item.problem.empty()) item.problem = fmt::format("element {}: {}", i, item.problem);
    if (!item.ok) return item;
    item.differing += worst.differing;
    item.count += worst.count;
    item.nan += worst.nan;
    if (item.max_difference >= worst.max_difference)
      worst = item;
    else
      std::tie(worst.differing, worst.count, worst.nan) = std::tuple(item.differing, item.count, item.nan);
  }
  return worst;
}

std::string describe(const Comparison &c) {
  if (!c.problem.empty()) return c.problem;
  if (c.max_difference == 0 && c.differing == 0) return fmt::format("equal ({} elements)", c.count);
  std::string text = fmt::format("max |Δ| {:.2g} of range {:.3g}", c.max_difference, c.range);
  if (c.median_ulp > 0) text += fmt::format(", {:.2g} ulp median", c.median_ulp);
  if (c.differing > 0) text = fmt::format("{} of {} differ, ", c.differing, c.count) + text;
  return text;
}

}  // namespace optc
