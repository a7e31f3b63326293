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
#include "ir/program/nest_plan.h"
#include "ir/program/program.h"
#include "support/diagnostics.h"

struct OptcPanels;  // runtime/cpu/gemm_plan.h

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
  std::string function;           // the one that this kernel runs
  bool defines = false;           // no earlier kernel runs it: `text` is its text
  std::vector<BufferId> buffers;  // arguments in order
  std::vector<bool> written;      // parallel to buffers
  std::vector<const DimSymbol *> symbols;
  Dim scratch_bytes;                   // row scratch for one task
  std::set<std::string> plan_headers;  // the headers of plans that it uses: outside the instruction sets' namespaces
  int panels = 0;                      // OPTC_PANELS of runtime/cpu/gemm.h that it uses
  std::set<std::string> headers;       // runtime/cpu headers it needs beyond lanes.h: "gemm.h"
};

// The bits of OPTC_PANELS for the widths of `panels` (16, 32, 48, 64); and what stands for none of them.
int panel_bits(const OptcPanels &panels);
constexpr int kNoPanels = 256;

// The function of a library call whose schedule is a RecurrentSchedule.
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

class NestPrinter : private DimText, private NestPlan {
 public:
  NestPrinter(const Program &program, const Kernel &kernel, FaultPlaces &places);
  // Fails, as a fault of optc, when the kernel has not the form that its schedule says.
  Result<KernelText> print(Diagnostics &diagnostics);

 private:
  struct Scope {  // what a C++ block has bound
    std::vector<uint32_t> values;
    std::vector<const DimSymbol *> indices;
    std::vector<std::string> rows;
  };

  // Printing (nest_printer.cc, nest_values.cc)
  std::string symbol(const DimSymbol &symbol) override;
  void line(const std::string &text);
  void open(const std::string &text);
  void close(const std::string &tail = "}");
  // The parameter of a buffer, a new one at the first time: `role`, or what role_name says.
  std::string buffer_name(BufferId id, const char *role = nullptr);
  Text value(ScalarId id);
  Text node_text(ScalarId id);
  Text memory_node(const Scalar &s);
  Text lazy_select(const Scalar &s);
  std::string lanes_dim(Dim d);
  std::optional<Text> load_inside(const Scalar &select);
  Text bind(ScalarId id, const Text &text);
  void bind_index(const DimSymbol &symbol, const std::string &condition);
  std::string needed(const Item &item, int depth);
  bool surely_inside(ScalarId id);
  void hoist(StagePlan &plan, int depth);
  void bind_rows(StagePlan &plan, const Stage &stage, int depth);
  std::string row_pointer(const std::string &base, Dim rest, const char *type, bool force);
  std::string local_value_type(const Local &local) const;
  void declare_local(LocalId id);
  void print_outer();
  void print_transpose();
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
  // As the kernel's schedule says (nest_contraction.cc). False: the nest is not of the form that lowering found.
  bool print_template();
  bool print_plain();
  bool print_as(const std::monostate &) { return print_plain(); }
  bool print_as(const MapSchedule &) { return print_plain(); }
  bool print_as(const RowsSchedule &) { return print_plain(); }
  bool print_as(const LoopsSchedule &) { return print_plain(); }
  bool print_as(const GemmSchedule &schedule);
  bool print_as(const GemmBlocksSchedule &schedule);
  bool print_as(const ConvolutionGemmSchedule &schedule);
  bool print_as(const ConvolutionDirectSchedule &schedule);
  bool print_as(const ConvolutionDepthwiseSchedule &schedule);
  bool print_as(const ConvolutionWinogradSchedule &schedule);
  bool print_as(const ConvolutionTransposedSchedule &schedule);
  bool print_as(const ConvolutionIntegerSchedule &schedule);
  bool print_as(const AttentionSchedule &schedule);
  bool print_as(const RecurrentSchedule &) { return false; }       // of library calls
  bool print_as(const GemmTensorCoreSchedule &) { return false; }  // of a GPU
  bool print_as(const GemmWarpgroupSchedule &) { return false; }
  bool print_as(const ConvolutionWarpgroupSchedule &) { return false; }
  bool print_as(const ConvolutionStripsSchedule &) { return false; }
  bool print_as(const RecurrentStepsSchedule &) { return false; }
  bool print_as(const LibrarySchedule &) { return false; }
  bool print_integer_gemm(const GemmSchedule &schedule);
  // `zeros`, `is_signed`: of a convolution of bytes.
  bool print_convolution(const ConvolutionOperands &operands, const char *header, const std::string &function,
                         Dim scratch, const ZeroPoints *zeros = nullptr, bool is_signed = false);
  std::string zero_point_text(const ZeroPoint &zero, const std::vector<Loop> &batch);
  // The address of the first element of an operand in the batch at hand: "x + i * 64".
  Dim iterations(const std::vector<Loop> &loops) const;
  std::string batch_base(const std::string &name, const OperandView &operand, const std::vector<Loop> &batch);
  void name_loads(size_t first_stage);
  void name_stores();
  void use_task_scratch(Dim bytes);
  void print_epilogue(size_t batch_loops, size_t row_loops);
  std::string open_tiles(const std::string &tasks, const std::vector<Loop> &batch, size_t row_loops,
                         const std::string &scratch);
  void decode(const std::string &counter, size_t first, size_t count);
  std::string header_comment();

  FaultPlaces &places_;
  NameScope names_{NameScope::Use::kKernel};
  std::unordered_map<const DimSymbol *, std::string> symbol_names_;
  std::vector<const DimSymbol *> parameters_;  // model symbols used
  std::unordered_map<uint32_t, std::string> buffer_names_;
  std::vector<BufferId> buffers_;
  std::vector<std::string> local_names_;
  std::vector<bool> local_declared_;
  std::unordered_map<uint32_t, Text> bound_;
  std::unordered_map<const DimSymbol *, std::string> bound_index_;
  std::unordered_map<std::string, std::string> bound_rows_;  // pointer expression -> its name
  std::unordered_map<uint32_t, bool> inside_;                // by scalar: surely_inside
  std::vector<Scope> scopes_;
  std::unordered_map<size_t, std::string> accumulators_;  // by output number of the stage
  std::string lane_count_;                                // its number of lanes: empty outside
  StagePlan *plan_ = nullptr;
  std::string out_;
  int indent_ = 0;
  Dim scratch_bytes_;
  std::string scratch_name_;  // of the row scratch in the current function
  bool uses_scratch_ = false;
  std::string prologue_;  // what stands before the function
  KernelText text_;       // what templates add: headers, panels
};

}  // namespace optc
