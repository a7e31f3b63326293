#pragma once
// model.cpp of a bundle: what the C ABI tells of the model, the reading of its dims, and the schedule of its kernels.

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emit/cpp/emit.h"
#include "emit/cpp/extern_functions.h"
#include "emit/cpp/nest.h"
#include "emit/cpp/weight_pool.h"
#include "ir/program/device_schedule.h"
#include "ir/program/placement.h"
#include "ir/program/program.h"
#include "ir/program/uses.h"

namespace optc {

struct PlacedBuffer {
  BufferId buffer;
  Dim bytes;
  size_t first = 0, last = 0;
  int64_t offset = -1;  // -1: found at run time
};

// Row scratch of one kernel: memory for each of its running tasks.
struct RowScratch {
  std::string kernel;
  std::string text;     // bytes for one task, as C++ over the run's dims
  Dim bytes;            // the same as a dim
  size_t at = 0;        // the kernel's place in the main sequence
  int64_t offset = -1;  // for one thread, when sizes are constant; base: where the buffers end that live then
  int64_t base = 0;
};

// The elements of the tensors inside an object; f32 where nothing is known of them.
ElementType leaf_element(const Type &type);

// For the schedule of a Program some of whose kernels run on a GPU.
struct GpuHost {
  const DeviceSchedule *schedule = nullptr;        // null: all kernels run on the CPU
  const std::vector<BufferId> *buffers = nullptr;  // numbered as in the GPU's tables
};

// How the code finds what lies outside of it, as C++.
struct ModelPlaces {
  std::string name;                  // of the bundle
  std::string weights;               // the initializer of a WeightsSpec
  std::string declarations;          // of embedded data, before all else
  std::string manifest = "nullptr";  // the embedded text; else it is a file
};

// A long schedule is divided: its struct then stands in model.h, and each part of `execute` in a file of its own, so
// that no compiler meets one function of thousands of calls.
struct ModelSources {
  std::string header;                                      // of model.h; empty: all is in model.cpp
  std::vector<std::pair<std::string, std::string>> files;  // "model.cpp" first, with their text
};

class ModelPrinter;

// A further schedule of the same bundle: the GPU's Program, or a variant for some sizes.
struct ModelEntry {
  const ModelPrinter *printer = nullptr;
  std::string title;    // of its struct
  std::string prefix;   // of its kernels' files
  std::string comment;  // above the struct
  std::string sizes;    // of a variant: "N=1,S=128"; empty: it is none
  std::string guard;    // of a variant: when it takes over, over the dims `d` of Model
};

class ModelPrinter : private DimText {
 public:
  // `name` makes the namespace of the kernels: NAME_code. `weights` gets the constants that the Program reads.
  ModelPrinter(const Program &program, std::string name, WeightPool &weights, Diagnostics &diagnostics, bool probe,
               GpuHost gpu = {});

  // The functions of the application that the bundle declares; set before print().
  std::vector<ExternFunction> externs;

  // Prints kernels and schedule. Fails when something has no C++ form.
  Status print();

  // Results
  std::vector<KernelText> kernels;        // functions of kernels_*.inc, in order of first call
  std::vector<const Kernel *> kernel_of;  // parallel
  std::vector<PlacedBuffer> placed;
  std::vector<RowScratch> row_scratches;  // in the order of the kernels
  // With the row scratch of one thread; every further thread adds its own. -1: sizes depend on the dims.
  int64_t arena_bytes = -1, lower_bound_bytes = -1;
  int64_t cuda_weights = -1;  // where the GPU's part of the weights begins; -1: no GPU half
  std::vector<std::string> library_functions;
  // The sources of the schedule, with those of the bundle's further entries.
  ModelSources model_sources(const std::string &include_name, const ModelPlaces &places,
                             const std::vector<ModelEntry> &others) const;
  // "d.N == 1 && d.S >= 1 && d.S <= 64" over this model's dims; empty where it knows no symbol of one of the names.
  std::string guard(const std::vector<SizeRange> &sizes);
  MemoryPlan memory_plan() const;
  const std::string &name() const { return name_; }
  std::string shape_text(const Shape &shape) const;  // "[N, 3, 224, 224]"
  const std::vector<const DimSymbol *> &model_symbols() const { return model_symbols_; }

 private:
  std::string symbol(const DimSymbol &symbol) override;
  void line(const std::string &text);
  void open(const std::string &text);
  void close(const std::string &tail = "}");
  BufferId root(BufferId id) const { return uses_.root(id); }
  Dim buffer_bytes(BufferId id) const { return storage_bytes(program_.buffer(id)); }
  bool needs_run_time_size(Dim d) const;  // a size that a kernel finds
  std::string pointer(BufferId id, bool written);
  std::string declare(BufferId root_id);
  void collect_symbols_of_program();
  Status place();
  Status collect_scratch(const std::vector<KernelId> &order, size_t fixed, bool inside);
  void give_scratch(const Kernel &kernel, const KernelText &text);
  void place_constant();
  std::vector<int64_t> ends_by_step() const;
  std::string plan_source() const;
  std::vector<const DimSymbol *> growing_lengths() const;
  std::string print_laid_out();
  std::vector<std::string> open_dims() const;  // without an upper bound, on which the arena depends
  void prepare_memory(const Kernel &kernel);
  void define(const DimSymbol &symbol, const std::string &value);
  void after_definitions();
  void print_condition(const DimConstraint &condition);
  void sequence(const std::vector<KernelId> &order);
  // `target`: of a kernel on a GPU, where the code finds what it was made for.
  void print_probe(KernelId kernel, bool after, const std::string &target = {});
  void device_sequence();
  void print_copies(const std::vector<DeviceCopy> &copies);
  void next_part();
  std::string declared(BufferId id);
  // The struct `title` and its execute: the whole, or the calls of its parts, or part `part`.
  // `takes`: of a variant, when it takes over.
  std::string struct_source(const std::string &title, const ModelPlaces &places, const std::string &takes) const;
  std::string execute_source(const std::string &title) const;
  std::string part_source(const std::string &title, size_t part) const;
  std::string part_head(const std::string &title) const;
  void share_functions();
  void print_kernel_call(const Kernel &kernel);
  void print_library(const Kernel &kernel, const LibraryCall &call);
  void print_extern(const Kernel &kernel, const LibraryCall &call);
  std::string constant_attribute(const Constant &c, size_t number);
  void print_control(const Kernel &kernel, const ControlFlow &control);
  void print_if(const ControlFlow &control);
  void print_loop(const Kernel &kernel, const ControlFlow &control);
  void print_carry(const ControlFlow &control);
  void take_sizes(const ControlFlow &control, BufferId from, BufferId to);
  bool defines(const ControlFlow &control, const DimSymbol *s) const;
  void hold(BufferId id);
  bool is_object(BufferId id) const {  // strings too
    const Type &type = program_.buffer(id).type;
    return !type.is_tensor() || type.element == ElementType::kString;
  }
  void declare_object(BufferId id, const std::string &name);
  bool all_known(Dim d) const;
  size_t new_slot();  // of the growing region, for a value that is no buffer
  void copy(BufferId from, BufferId to);
  void print_bind();
  bool of_inputs(Dim d) const;
  void print_capacity(const DimSymbol &capacity, const std::string &field);
  void print_infos();
  std::string dims_list(const Shape &shape);

  const Program &program_;
  const Uses uses_;
  std::string name_;
  WeightPool &weights_;
  Diagnostics &diagnostics_;
  const bool probe_;
  GpuHost gpu_;
  FaultPlaces places_;
  NameScope fields_, names_{NameScope::Use::kSchedule};
  std::unordered_map<const DimSymbol *, std::string> symbol_fields_;
  std::vector<const DimSymbol *> model_symbols_, data_symbols_;
  // What the text printed so far has done, on every path to this place: sizes that it found, outputs whose dims it
  // told, conditions that it tested, strings that it made (by root buffer).
  struct Progress {
    std::set<const DimSymbol *> known;
    std::vector<bool> outputs_set, constraints_set;
    std::set<uint32_t> strings_made;
  };
  static Progress common(const Progress &a, const Progress &b);
  Progress progress_;
  std::unordered_map<uint32_t, std::string> pointers_;  // by root buffer
  std::unordered_map<uint32_t, size_t> placed_index_;
  std::unordered_map<uint32_t, size_t> grown_;  // slot by root buffer
  std::string declarations_, body_, bind_, infos_;
  // Of a schedule in several parts: what was printed of the earlier ones, and the variables that outlive a part.
  struct Part {
    std::string declarations, body;
  };
  std::vector<Part> parts_;
  std::string state_;
  std::unordered_map<uint32_t, std::string> variables_;  // of all parts, by root buffer
  bool divided_ = false;
  std::vector<std::string> step_names_;
  std::vector<std::string> problems_;
  size_t grown_scratch_ = SIZE_MAX;  // slot of the row scratch whose size a kernel finds
  std::unordered_map<const Kernel *, KernelText> texts_;
  std::unordered_map<std::string, std::string> functions_;    // names by form, of those that several kernels run
  std::set<std::string> defined_;                             // functions that a kernel before runs
  std::unordered_map<const Kernel *, size_t> scratch_index_;  // in row_scratches
  size_t extra_slots_ = 0;
  bool uses_objects_ = false;
  bool direct_ = true;  // dims are fields "d.x"; else the caller's names
  int indent_ = 1;
};

}  // namespace optc
