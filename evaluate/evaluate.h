#pragma once
// evaluate/: runs a Program inside the compiler, block by block along the innermost axis, every index checked. Used by
// constant folding, by `verify` of graph rewrites, by `optc run --engine=evaluate` and by the conformance runner.
// Matrix products and convolutions call the kernels of runtime/cpu, library operators its lib_*.h functions.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
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
  // A run that would take more work is refused (kIo), before the kernel that would exceed it: operations on one element
  // each, of which the interpreter does about 1e9 a second. Iterations of loops and sizes that data decides are counted
  // as they come, calls of library functions by the elements that they get and give. 0: no bound.
  int64_t max_work = 0;
  int64_t *work = nullptr;  // not null: the work that was done, or with which it was refused, is added to it
  // The Program is lowered, and runs with all that lowering decided about memory: each buffer lives in its place for
  // its lifetime and begins without values; reading what was never written, what was overwritten in place, or a place
  // that belongs to others is a fault (kInternal) that names kernel, buffer and index. So is an output with an element
  // that was never written.
  bool as_lowered = false;
  uint64_t seed = 0;                                          // for random operators without a seed of their own
  std::function<void(int64_t done, int64_t total)> progress;  // hears of each kernel of the main sequence; may be empty
};

// Outputs in the Program's order. Faults of the model (index out of range, dims that do not match) are kFault; wrong
// inputs kUsage. inputs[i] absent: the input's default.
Result<std::vector<RuntimeValue>> evaluate(const Program &program, const std::vector<RuntimeValue> &inputs,
                                           const EvaluateOptions &options, Diagnostics &diagnostics);

// The bytes of a root buffer as a bundle holds them: by its order and padding, elements of less than a byte packed.
struct StoredBuffer {
  BufferId root;
  const uint8_t *bytes = nullptr;  // null: no memory yet
};
struct BufferValue {
  BufferId buffer;
  Constant value;  // by logical index
};
using SymbolValueList = std::vector<std::pair<uint32_t, int64_t>>;  // by DimSymbol::id

// Runs one kernel, of the main sequence or of a body, on memory that somebody else filled, for these sizes. Values of
// what it writes, of control flow its outputs (for which, and for what its bodies write, `memory` has nothing);
// elements that it does not write keep what `memory` holds. The memory stays as it is, and must outlive the call only.
Result<std::vector<BufferValue>> evaluate_kernel(const Program &program, KernelId kernel,
                                                 const SymbolValueList &symbols,
                                                 const std::vector<StoredBuffer> &memory,
                                                 const EvaluateOptions &options, Diagnostics &diagnostics);
// The value that a buffer has in the bytes of its root, which the result may share; nullopt where its size is not
// known or it does not lie inside of them.
std::optional<Constant> stored_value(const Program &program, BufferId buffer, const SymbolValueList &symbols,
                                     const uint8_t *root_bytes);

// The values of a node's outputs when all its inputs are constants: builds and evaluates it. For folding.
Result<std::vector<RuntimeValue>> evaluate_node(const Graph &graph, NodeId node, Diagnostics &diagnostics);

}  // namespace optc
