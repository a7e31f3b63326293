#pragma once
// The values inside of a model beside ONNX Runtime's, by name (`verify --per-node`): those of the main graph that are
// still there after the rewrites, on the evaluator, and how far each is from what the unoptimized model gives.

#include <string>
#include <vector>

#include "driver/compare.h"
#include "driver/toolchain.h"

namespace optc {

struct ValueFinding {
  std::string value, node, op;  // its name; that of the node that makes it in the model, and the operator
  Comparison comparison;        // by the tolerance of its type and what rounding alone changes
};

struct ValueReport {
  std::vector<ValueFinding> values;   // in the model's order
  size_t removed = 0;                 // values of the model that no rewritten one stands for
  size_t not_compared = 0;            // no tensors, of types that NumPy lacks, or not made by the model's file
  std::string reference;              // "ONNX Runtime 1.23"
  const ValueFinding *first() const;  // beyond its bound; null: none
};

// `storage` is as in tolerance.h. `inputs` are of the imported `model` in the file `path`. The values are asked in
// parts, so that few gigabytes of them are in memory at a time. A value that leaves `given` is compared again with what
// a change of weights and inputs in their last bits makes of it in ONNX Runtime on top, as outputs are (sensitivity.h).
// kIo, kUsage: as run_oracle.
Result<ValueReport> compare_values(const std::string &path, const Graph &model, const std::vector<RuntimeValue> &inputs,
                                   const CompileOptions &options, const Tolerance &given, ElementType storage,
                                   Listener &listener, Diagnostics &diagnostics);

// Writes the part of the model that makes report.first() of values before it that are right: FOLDER/culprit.onnx, with
// their numbers as input_0.npy, ..., and ONNX Runtime's answer as output_0.npy. Gives the number of its nodes.
Result<int64_t> write_culprit(const std::string &path, const Graph &model, const std::vector<RuntimeValue> &inputs,
                              const ValueReport &report, const std::string &folder, Diagnostics &diagnostics);

}  // namespace optc
