#pragma once
// How much an agreement of results says: what rounding alone decides in a model, and whether its outputs depend on its
// inputs at all.

#include <string>
#include <vector>

#include "driver/compare.h"
#include "driver/run.h"
#include "driver/samples.h"

namespace optc {

// What rounding alone changes in an output of ONNX Runtime.
struct Rounding {
  double by_optimizations = 0;         // the largest difference that its own optimizations make
  double by_last_bits = 0;             // the same for weights and inputs changed in their last bits
  int64_t elements = 0;                // that differ by more than the tolerance in any of those
  void merge(const Rounding &other);   // the larger of each
  Tolerance widened(Tolerance) const;  // the tolerance with this slack
};
std::string describe(const Rounding &rounding);

// By output (so are `tolerances`): how far ONNX Runtime's answers are from `expected`, its own without optimizations,
// when it may optimize, and when float weights and inputs are changed in their last bits (three draws; a backward
// error: what a computation in another order amounts to). Zeros where it cannot be asked: above 2 GB, without Python's
// onnx.
std::vector<Rounding> rounding_of(const std::string &model, const Graph &graph, const std::vector<RuntimeValue> &inputs,
                                  const std::vector<RuntimeValue> &expected, const std::vector<Tolerance> &tolerances);

// By output, a remark where agreement says little: `actual` are the results on one set of inputs, `other` on other
// values of the same sizes. Empty text: the output depends on its inputs by more than the tolerance.
std::vector<std::string> little_said(const std::vector<RuntimeValue> &actual, const std::vector<RuntimeValue> &other);

}  // namespace optc
