#pragma once
// model.cpp of a bundle: what the C ABI tells of the model, the reading of its dims, and the schedule of its kernels.

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emit/cpp/nest.h"
#include "ir/program/program.h"

namespace optc {

struct PlacedBuffer {
  BufferId buffer;
  Dim bytes;
  size_t first = 0, last = 0;
  int64_t offset = -1;  // -1: found at run time
};

class ModelPrinter : private DimText {
 public:
  ModelPrinter(const Program &program, std::string name, Diagnostics &diagnostics);

  // Prints kernels and schedule. Fails when something has no C++ form.
  Status print();

  // Results
  std::vector<KernelText> kernels;        // functions of kernels_*.inc, in order of first call
  std::vector<const Kernel *> kernel_of;  // parallel
  std::vector<PlacedBuffer> placed;
  int64_t arena_bytes = -1, lower_bound_bytes = -1;
  std::vector<std::pair<BufferId, uint64_t>> constants;  // with their offsets in the weights
  uint64_t weights_bytes = 0;                            // header included; 0: none
  int64_t cuda_weights = -1;                             // where the GPU's part of them begins; -1: no GPU half
  std::vector<std::string> library_functions;
  std::string model_source(const std::string &include_name, const std::string &manifest_literal,
                           const std::string &weights_spec) const;
  std::string shape_text(const Shape &shape) const;  // "[N, 3, 224, 224]"
  const std::vector<const DimSymbol *> &model_symbols() const { return model_symbols_; }

 private:
  std::string symbol(const DimSymbol &symbol) override;
  void line(const std::string &text);
  void open(const std::string &text);
  void close(const std::string &tail = "}");
  BufferId root(BufferId id, Dim *byte_offset = nullptr) const;
  Dim buffer_bytes(BufferId id) const;
  bool needs_run_time_size(Dim d) const;  // a size that a kernel finds
  std::string pointer(BufferId id, bool written);
  std::string declare(BufferId root_id);
  uint64_t constant_offset(BufferId id);
  void collect_symbols_of_program();
  void place();
  void life(const std::vector<KernelId> &order, size_t fixed, bool inside);
  void prepare_memory(const Kernel &kernel);
  void define(const DimSymbol &symbol, const std::string &value);
  void after_definitions();
  void sequence(const std::vector<KernelId> &order);
  void print_kernel_call(const Kernel &kernel);
  void print_library(const Kernel &kernel, const LibraryCall &call);
  void print_control(const Kernel &kernel, const ControlFlow &control);
  void copy(BufferId from, BufferId to);
  void print_bind();
  void print_infos();
  std::string dims_list(const Shape &shape);

  const Program &program_;
  std::string name_;
  Diagnostics &diagnostics_;
  FaultPlaces places_;
  NameScope fields_, names_;
  std::unordered_map<const DimSymbol *, std::string> symbol_fields_;
  std::vector<const DimSymbol *> model_symbols_, data_symbols_;
  std::set<const DimSymbol *> known_;
  std::vector<bool> outputs_set_, constraints_set_;
  std::unordered_map<uint32_t, std::string> pointers_;  // by root buffer
  std::unordered_map<uint32_t, size_t> placed_index_;
  std::unordered_map<uint32_t, size_t> grown_;  // slot by root buffer
  std::unordered_map<uint32_t, std::pair<size_t, size_t>> lives_;
  std::unordered_map<const void *, uint64_t> constant_offsets_;
  std::string declarations_, body_, bind_, infos_;
  std::vector<std::string> step_names_;
  std::vector<std::string> problems_;
  std::vector<std::string> row_scratches_;  // bytes of row scratch of a task, by kernel
  std::set<std::string> plan_headers_;
  bool direct_ = true;  // dims are fields "d.x"; else the caller's names
  int indent_ = 1;
};

}  // namespace optc
