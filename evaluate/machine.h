#pragma once
// Machine: one run of a Program. Holds the value of every buffer and symbol, frees a buffer after the last kernel that
// uses it.
//
// Blocks are shared freely (a loop-carried value, the result of a branch, the caller's input): who writes to a shared
// block gets a copy first.

#include <string>
#include <vector>

#include "evaluate/library.h"
#include "evaluate/nest.h"

namespace optc::evaluate_detail {

class Machine : public NestHost {
 public:
  Machine(const Program &program, const EvaluateOptions &options, Diagnostics &diagnostics);
  Result<std::vector<RuntimeValue>> run(const std::vector<RuntimeValue> &inputs);

  const Program &program() const override { return program_; }
  const SymbolValues &symbols() const override { return symbols_; }
  bool readable(BufferId id, Tensor &out) override;
  bool writable(BufferId id, Tensor &out) override;

 private:
  Status set_inputs(const std::vector<RuntimeValue> &inputs);
  Status set_input(size_t i, const RuntimeValue &value);
  Status check_constraints();
  void find_last_uses();
  Status run_sequence(const std::vector<KernelId> &order, bool main);
  Status run_kernel(const Kernel &kernel);
  Status run_library(const Kernel &kernel, const LibraryCall &call);
  Status run_if(const Kernel &kernel, const ControlFlow &control);
  Status run_loop(const Kernel &kernel, const ControlFlow &control);
  Status finish_scan(const ControlFlow &control, size_t scan, BufferId output, const std::vector<Tensor> &slices);
  // The buffer holds what the slot holds from now on. Sizes of its shape that `defines` lists (null: every kData
  // symbol) are taken from the value's dims.
  Status assign(BufferId id, const Slot &value, const std::vector<const DimSymbol *> *defines);
  Status take_sizes(BufferId id, const std::vector<int64_t> &dims, const std::vector<const DimSymbol *> *defines);
  Result<Slot> slot_of(BufferId id);
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
  std::vector<size_t> last_use_;  // position in the main order, by root buffer
  std::vector<size_t> pending_constraints_;
  std::vector<uint32_t> prepared_;  // roots that the running kernel may write without a copy
  const Kernel *kernel_ = nullptr;
  ErrorKind said_ = ErrorKind::kInternal;
};

}  // namespace optc::evaluate_detail
