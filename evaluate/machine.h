#pragma once
// Machine: one run of a Program. Holds the value of every buffer and symbol, frees a buffer after the last kernel that
// uses it.
//
// Blocks are shared freely (a loop-carried value, the result of a branch, the caller's input): who writes to a shared
// block gets a copy first.

#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

#include "evaluate/library.h"
#include "evaluate/nest.h"
#include "evaluate/places.h"

namespace optc::evaluate_detail {

class Machine : public NestHost {
 public:
  Machine(const Program &program, const EvaluateOptions &options, Diagnostics &diagnostics);
  Result<std::vector<RuntimeValue>> run(const std::vector<RuntimeValue> &inputs);
  // evaluate_kernel and stored_value, on a Machine of their own.
  Result<std::vector<BufferValue>> run_alone(KernelId kernel, const SymbolValueList &symbols,
                                             const std::vector<StoredBuffer> &memory);
  std::optional<Constant> value_of(BufferId buffer, const SymbolValueList &symbols, const uint8_t *root_bytes);

  const Program &program() const override { return program_; }
  const SymbolValues &symbols() const override { return symbols_; }
  bool readable(BufferId id, Tensor &out, std::string &reason) override;
  bool writable(BufferId id, Tensor &out) override;
  bool takes_over(BufferId id) const override {
    return std::find(replacements_.begin(), replacements_.end(), id) != replacements_.end();
  }
  bool spend(double work) override;

 private:
  bool bind(const StoredBuffer &stored, bool copy);
  Status set_inputs(const std::vector<RuntimeValue> &inputs);
  Status set_input(size_t i, const RuntimeValue &value);
  Status set_states();
  Status check_constraints();
  void find_last_uses();
  Status run_sequence(const std::vector<KernelId> &order, bool main);
  Status run_kernel(const Kernel &kernel);
  // A body of control flow. As lowered, what its kernels write holds nothing when it begins.
  Status run_body(const std::vector<KernelId> &body);
  void find_writers();
  bool is_whole_view(BufferId id) const;  // of all of its root's bytes
  // As lowered: why the root, which needs that many cells, may not be touched now; else empty.
  std::string out_of_place(BufferId root, int64_t stored) const;
  Status check_written(BufferId id, const Tensor &tensor);
  void end_replacing();
  Status run_library(const Kernel &kernel, const LibraryCall &call);
  Status run_if(const Kernel &kernel, const ControlFlow &control);
  Status run_loop(const Kernel &kernel, const ControlFlow &control);
  Status finish_scan(const ControlFlow &control, size_t scan, BufferId output, const std::vector<Tensor> &slices);
  // The buffer holds what the slot holds from now on. Sizes of its shape that `defines` lists (null: every kData
  // symbol) are taken from the value's dims.
  Status assign(BufferId id, const Slot &value, const std::vector<const DimSymbol *> *defines);
  Status take_sizes(BufferId id, const std::vector<int64_t> &dims, const std::vector<const DimSymbol *> *defines);
  Result<Slot> slot_of(BufferId id);  // what it holds, every element of it written
  Result<int64_t> read_scalar(BufferId id);
  void set_scalar(BufferId id, int64_t value);

  BufferId root(BufferId id) const;
  bool evaluate_dims(const Shape &shape, std::vector<int64_t> &out) const;
  bool layout(const Buffer &buffer, Tensor &tensor) const;  // dims, strides, stored
  bool load_constant(BufferId id);
  Failure fault(const std::string &message);
  Failure internal(const std::string &message);
  // Memory for a tensor of these dims; kIo, with its size, where there is not enough or max_bytes does not allow it.
  Result<Tensor> allocate(const Buffer &buffer, std::vector<int64_t> dims);
  Failure no_memory(const Buffer &buffer, const std::vector<int64_t> &dims, bool forbidden);
  std::string place(const Kernel &kernel) const;

  const Program &program_;
  const EvaluateOptions &options_;
  Diagnostics &diagnostics_;
  SymbolValues symbols_;
  std::vector<Slot> slots_;
  std::vector<size_t> last_use_;                // position in the main order, by root buffer
  std::vector<std::vector<KernelId>> writers_;  // by root buffer; as lowered only
  std::vector<size_t> pending_constraints_;
  // Of a loop: the sizes that an iteration finds anew, and the constraints that speak of them.
  struct BodySizes {
    std::vector<const DimSymbol *> symbols;
    std::vector<size_t> constraints;
  };
  std::unordered_map<const ControlFlow *, BodySizes> body_sizes_;
  const BodySizes &body_sizes(const ControlFlow &control);
  void forget_iteration(const ControlFlow &control);
  std::vector<uint32_t> prepared_;  // roots that the running kernel may write without a copy
  // Written views of the whole of a buffer that an earlier kernel wrote: new values in the bytes of operands
  // (lowering/buffers). As lowered only.
  std::unordered_set<uint32_t> takes_place_;
  std::vector<BufferId> replacements_;  // what the running kernel writes in the bytes of operands
  Places places_;
  size_t step_ = 0;  // position in the main order
  const Kernel *kernel_ = nullptr;
  double work_ = 0;  // done so far
  ErrorKind said_ = ErrorKind::kInternal;
};

}  // namespace optc::evaluate_detail
