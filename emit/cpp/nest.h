#pragma once
// Prints a loop nest as one C++ function: parallel outer loops, stages in order, the innermost loop (or the last outer
// one) in vector lanes.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "emit/cpp/names.h"
#include "emit/cpp/scalar_text.h"
#include "ir/program/contraction_view.h"
#include "ir/program/program.h"
#include "support/diagnostics.h"

namespace optc {

// Places of a bundle at which an index of the model can be out of range: text by number (number 0 is unused).
struct FaultPlaces {
  std::vector<std::string> texts{""};
  int add(std::string text) {
    texts.push_back(std::move(text));
    return static_cast<int>(texts.size()) - 1;
  }
};

// A printed kernel function: `static void NAME(const Env &env, <buffers>, <symbols>) { ... }`.
struct KernelText {
  std::string name;
  std::string parameters;         // the parameter list
  std::string text;               // comment and function
  std::string form;               // the function without its names: kernels of equal form may share one (without_names)
  std::string function;           // the one that this kernel runs: its own, or an earlier kernel's of the same form
  std::vector<BufferId> buffers;  // arguments in order
  std::vector<bool> written;      // parallel to buffers
  std::vector<const DimSymbol *> symbols;
  Dim scratch_bytes;  // row scratch for one task
  // More of it, as a formula of runtime/cpu's plans: before + the dims, separated by commas + after, in bytes. Empty:
  // none.
  std::string scratch_before, scratch_after;
  std::vector<Dim> scratch_dims;
  Dim scratch_formula;                 // what that formula comes to, in bytes, for the manifest
  std::set<std::string> plan_headers;  // the headers of plans that it uses: outside the instruction sets' namespaces
  int panels = 0;                      // OPTC_PANELS of runtime/cpu/gemm.h that it uses
  std::set<std::string> headers;       // runtime/cpu headers it needs beyond lanes.h: "gemm.h"
};

// The bit of OPTC_PANELS for panels of a width (16, 32, 48, 64).
int panel_bit(int width);

// The function of a library call that lowering gave the strategy "rnn".
KernelText print_recurrent(const Program &program, const Kernel &kernel);

// The C++ text of integer expressions over named symbols.
class DimText {
 public:
  virtual ~DimText() = default;
  std::string dim(Dim d, int weakest = kTernaryPrecedence);  // in parentheses if it binds weaker
  // The same for an amount of memory, by functions that do not overflow: "times(d.N, 4)".
  std::string size(Dim d);

 protected:
  virtual std::string symbol(const DimSymbol &symbol) = 0;

 private:
  Text atom(const DimAtom &atom);
  bool saturating_ = false;
};

class NestPrinter : private DimText {
 public:
  NestPrinter(const Program &program, const Kernel &kernel, FaultPlaces &places);
  KernelText print();

 private:
  // What a stage evaluates, operands first: a scalar, or (index valid) the checked value behind a kScalar symbol.
  struct Item {
    ScalarId id;
    const DimSymbol *index = nullptr;
  };
  struct StagePlan {
    std::vector<Loop> loops;           // without those of extent 1, contiguous ones joined
    const DimSymbol *lanes = nullptr;  // the loop that runs in lanes
    std::vector<Item> order;
    std::unordered_map<uint32_t, int> uses;     // by scalar
    std::unordered_map<uint32_t, int> depth;    // loops that must be open; by scalar
    std::unordered_map<uint32_t, int> deepest;  // of its users
    std::unordered_map<const DimSymbol *, int> index_deepest;
    std::set<uint32_t> always;  // evaluated in every iteration whatever the conditions are
    mutable std::unordered_map<uint32_t, bool>
        unproved;  // by scalar: holds a load that may only be evaluated when needed
  };
  struct Scope {  // what a C++ block has bound
    std::vector<uint32_t> values;
    std::vector<const DimSymbol *> indices;
    std::vector<std::string> rows;
  };

  // Analysis (nest_plan.cc)
  Dim fix(Dim d) const;  // symbols of dropped and joined loops replaced
  Dim offset_of(const Buffer &buffer, const std::vector<Dim> &index) const;
  Dim local_offset(const Local &local, const std::vector<Dim> &index) const;
  Dim load_offset(const Scalar &load) const;  // kLoad or kLocal
  void collect(StagePlan &plan, ScalarId id, std::set<uint32_t> &seen);
  void collect_dim(StagePlan &plan, Dim d, std::set<uint32_t> &seen);
  void mark_always(StagePlan &plan, ScalarId id);
  void mark_always_dim(StagePlan &plan, Dim d);
  void plan_stage(const Stage &stage, StagePlan &plan);
  void measure_stage(const Stage &stage, StagePlan &plan);
  void drop_unit_loops(std::vector<Loop> &loops);
  void follow_storage();
  void join_loops(std::vector<Loop> &loops);
  bool can_join(const Loop &a, const Loop &b) const;
  int dim_depth(StagePlan &plan, Dim d);
  int node_depth(StagePlan &plan, ScalarId id);
  bool proved(const Scalar &load) const;  // its index stays inside for every iteration of the loops
  bool contains_unproved(const StagePlan &plan, ScalarId id);
  bool lazy(const StagePlan &plan, ScalarId id);
  bool varies(ScalarId id);  // with the lanes loop lanes_
  bool dim_varies(Dim d);
  void set_lanes(const DimSymbol *lanes, bool columns);
  void choose_lanes();
  bool lanes_possible(const Stage &stage, const StagePlan &plan, int64_t &cost);
  bool lanes_value(const StagePlan &plan, ScalarId id, int64_t &cost, std::set<uint32_t> &seen);
  size_t reduction_level(const StageOutput &output, const StagePlan &plan) const;  // SIZE_MAX: no prefix of the loops

  // Printing (nest_printer.cc, nest_values.cc)
  std::string symbol(const DimSymbol &symbol) override;
  void line(const std::string &text);
  void open(const std::string &text);
  void close(const std::string &tail = "}");
  std::string buffer_name(BufferId id);
  Text value(ScalarId id);
  Text node_text(ScalarId id);
  Text memory_node(const Scalar &s);
  Text lazy_select(const Scalar &s);
  Text bind(ScalarId id, const Text &text);
  void bind_index(const DimSymbol &symbol);
  void hoist(StagePlan &plan, int depth);
  void bind_rows(StagePlan &plan, const Stage &stage, int depth);
  std::string row_pointer(const std::string &base, Dim rest, const char *type, bool force);
  std::string local_value_type(const Local &local) const;
  void declare_local(LocalId id);
  void print_outer();
  void print_body();
  void print_stage(size_t index);
  void print_loops(const Stage &stage, StagePlan &plan, size_t depth);
  void begin_reductions(const Stage &stage, StagePlan &plan, size_t level);
  void end_reductions(const Stage &stage, StagePlan &plan, size_t level);
  bool lanes_accumulator(const StageOutput &output, const StagePlan &plan) const;
  bool wide_accumulator(const StageOutput &output, const StagePlan &plan) const;
  void print_output(StagePlan &plan, const StageOutput &output, size_t index);
  void print_store(const StageOutput &output);
  void print_local_store(StagePlan &plan, const StageOutput &output, size_t index);
  std::string grain_text(Dim inner);
  // Contractions by a strategy of runtime/cpu (nest_contraction.cc). False: the nest is not of the form; nothing was
  // printed.
  bool print_contraction();
  bool print_gemm(const GemmView &view);
  bool print_convolution(const ConvolutionView &view);
  bool print_attention();
  bool plan_epilogue(const std::vector<Loop> &batch, const std::vector<Loop> &rows, const std::vector<Loop> &columns);
  void print_epilogue(size_t batch_loops, size_t row_loops);
  void decode(const std::string &counter, size_t first, size_t count);
  bool stores_plain_rows(Dim columns) const;
  std::string header_comment();

  const Program &program_;
  const Kernel &kernel_;
  const LoopNest &nest_;
  FaultPlaces &places_;
  NameScope names_{NameScope::Use::kKernel};
  std::unordered_map<const DimSymbol *, Dim> fixed_;
  std::unordered_map<const DimSymbol *, int> level_;  // of the loops open or planned in the current stage
  std::unordered_map<const DimSymbol *, std::string> symbol_names_;
  std::vector<const DimSymbol *> parameters_;  // model symbols used
  std::unordered_map<uint32_t, std::string> buffer_names_;
  std::vector<BufferId> buffers_;
  std::vector<std::string> local_names_;
  std::vector<bool> local_declared_;
  std::unordered_map<uint32_t, Text> bound_;
  std::unordered_map<const DimSymbol *, std::string> bound_index_;
  std::unordered_map<std::string, std::string> bound_rows_;  // pointer expression -> its name
  std::vector<Scope> scopes_;
  std::unordered_map<uint32_t, bool> varies_;
  std::unordered_map<size_t, std::string> accumulators_;  // by output number of the stage
  std::vector<Loop> outer_;
  std::vector<StagePlan> plans_;
  std::set<uint32_t> written_buffers_;
  bool columns_ = false;              // the last outer loop runs in lanes
  const DimSymbol *lanes_ = nullptr;  // lanes loop that is open
  std::string lane_count_;            // its number of lanes: empty outside
  bool serial_ = false;               // no parallel loop
  StagePlan *plan_ = nullptr;
  std::string out_;
  int indent_ = 0;
  Dim scratch_bytes_;
  std::string scratch_name_;  // of the row scratch in the current function
  bool uses_scratch_ = false;
  std::string prologue_;  // what stands before the function
  KernelText text_;       // what strategies add: headers, scratch formulas
};

}  // namespace optc
