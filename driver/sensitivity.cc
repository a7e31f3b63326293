#include "driver/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>

#include "driver/oracle.h"

namespace optc {

void Rounding::merge(const Rounding &other) {
  by_optimizations = std::max(by_optimizations, other.by_optimizations);
  by_last_bits = std::max(by_last_bits, other.by_last_bits);
  elements = std::max(elements, other.elements);
}

Tolerance Rounding::widened(Tolerance tolerance) const {
  // ONNX Runtime's answers and ours are both that far from the exact ones.
  tolerance.slack = std::max(by_optimizations, 2 * by_last_bits);
  tolerance.slack_elements = elements;
  return tolerance;
}

std::string describe(const Rounding &r) {
  if (r.by_optimizations == 0 && r.by_last_bits == 0) return "ONNX Runtime's own optimizations do not change it";
  return fmt::format(
      "ONNX Runtime's own optimizations change it by {:.2g}, weights changed in their last bits by {:.2g}",
      r.by_optimizations, r.by_last_bits);
}

std::vector<Rounding> rounding_of(const std::string &model, const Graph &graph, const std::vector<RuntimeValue> &inputs,
                                  const std::vector<RuntimeValue> &expected, const std::vector<Tolerance> &tolerances) {
  std::vector<Rounding> all(expected.size());
  constexpr int kDraws = 3;
  for (int draw = -1; draw < kDraws; ++draw) {
    OracleOptions options;
    options.optimize = draw < 0;
    options.perturb = draw;
    Diagnostics quiet;  // what it cannot do so says nothing about the model
    const Result<OracleResult> other = run_oracle(model, graph, inputs, options, quiet);
    for (size_t i = 0; other.ok() && i < std::min(expected.size(), other->outputs.size()); ++i) {
      const Comparison c = compare(other->outputs[i], expected[i], tolerances[i]);
      double &by = draw < 0 ? all[i].by_optimizations : all[i].by_last_bits;
      by = std::max(by, c.max_difference);
      all[i].elements = std::max(all[i].elements, c.differing);
    }
  }
  return all;
}

std::vector<std::string> little_said(const std::vector<RuntimeValue> &actual, const std::vector<RuntimeValue> &other) {
  std::vector<std::string> remarks(actual.size());
  for (size_t i = 0; i < actual.size() && i < other.size(); ++i) {
    if (actual[i].kind != RuntimeValue::Kind::kTensor) continue;
    const Comparison c = compare(other[i], actual[i], {});
    const ElementType type = actual[i].tensor.type();
    if (c.count == 0)
      remarks[i] = "it is empty";
    else if (c.nan == c.count)
      remarks[i] = "every element is NaN";
    else if (!c.problem.empty() || c.nan > 0)
      continue;  // other sizes, other elements that are NaN: it depends on its inputs
    else if (c.max_difference == 0 && c.differing == 0)
      remarks[i] = "it is the same for other inputs";
    else if ((is_float(type) || is_complex(type)) && c.max_difference <= 10 * default_tolerance(type) * c.range)
      remarks[i] = fmt::format("other inputs change it by {:.1g} of its range alone", c.max_difference / c.range);
  }
  return remarks;
}

}  // namespace optc
