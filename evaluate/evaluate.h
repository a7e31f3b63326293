#pragma once
// evaluate/: runs a Program inside the compiler, block by block along the innermost axis, every index checked. Used by
// constant folding, by `verify` of graph rewrites, by `optc run --engine=evaluate` and by the conformance runner.
// Matrix products and convolutions call the kernels of runtime/cpu, library operators its lib_*.h functions.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/constant.h"
#include "ir/program/program.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// A run-time value: a tensor (as an immutable Constant), or a sequence / optional / map of values.
struct RuntimeValue {
  enum class Kind : uint8_t { kAbsent, kTensor, kSequence, kOptional, kMap } kind = Kind::kAbsent;
  Constant tensor;
  std::vector<RuntimeValue> items;                // sequence; optional: none or one; map: values (keys in `tensor`)
  ElementType element = ElementType::kUndefined;  // of an empty sequence's tensors

  static RuntimeValue of(Constant tensor) {
    RuntimeValue value;
    value.kind = Kind::kTensor;
    value.tensor = std::move(tensor);
    return value;
  }
};

struct EvaluateOptions {
  bool use_runtime_kernels = true;       // false: every contraction by the interpreter (slow, independent of runtime/)
  int64_t max_bytes = int64_t{1} << 36;  // refuse buffers beyond this
  uint64_t seed = 0;                     // for random operators without a seed of their own
  std::function<void(int64_t done, int64_t total)> progress;  // hears of each kernel of the main sequence; may be empty
};

// Outputs in the Program's order. Faults of the model (index out of range, dims that do not match) are kFault; wrong
// inputs kUsage. inputs[i] absent: the input's default.
Result<std::vector<RuntimeValue>> evaluate(const Program &program, const std::vector<RuntimeValue> &inputs,
                                           const EvaluateOptions &options, Diagnostics &diagnostics);

// The values of a node's outputs when all its inputs are constants: builds and evaluates it. For folding.
Result<std::vector<RuntimeValue>> evaluate_node(const Graph &graph, NodeId node, Diagnostics &diagnostics);

}  // namespace optc
