#pragma once
// Random inputs of a Program, and how far two results lie apart.

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "evaluate/evaluate.h"
#include "tests/random_values.h"

namespace optc {

inline std::vector<RuntimeValue> random_inputs(const Program &program, const DimValues &sizes, std::mt19937 &random) {
  std::vector<RuntimeValue> inputs;
  for (BufferId b : program.inputs)
    inputs.push_back(RuntimeValue::of(random_tensor(program.buffer(b).type, sizes, random)));
  return inputs;
}

// The largest difference of two elements, by the largest magnitude of `want`. Infinite where the types or the shapes
// differ, or where NaNs and infinities do not stand at the same places.
inline double relative_difference(const Constant &want, const Constant &got) {
  if (want.type() != got.type() || want.dims() != got.dims()) return std::numeric_limits<double>::infinity();
  double worst = 0, range = 1e-30;
  for (int64_t i = 0; i < want.count(); ++i) {
    const double x = want.as_double(i), y = got.as_double(i);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) {
      if (x == y) continue;
      return std::numeric_limits<double>::infinity();
    }
    range = std::max(range, std::fabs(x));
    worst = std::max(worst, std::fabs(x - y));
  }
  return worst / range;
}

}  // namespace optc
