#pragma once
// The toolchain as a library: what the command line does, for any host. Each function is one step or a chain of them;
// progress goes to a Listener, errors to the Diagnostics sink, results are values.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emit/quantized_weights.h"
#include "evaluate/evaluate.h"
#include "importer/importer.h"
#include "ir/graph/graph.h"
#include "ir/graph/rewriter.h"
#include "ir/program/program.h"
#include "ir/program/schedule_choice.h"
#include "lowering/tuning.h"
#include "optimizer/weight_quantization.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// Hears of steps as they happen. Every begin has one end, unless the step fails.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void begin(std::string_view step) = 0;
  virtual void progress(int64_t done, int64_t total) = 0;  // of the step that runs
  virtual void end(std::string_view step, const std::string &facts, double seconds) = 0;
  virtual bool wants_details() const { return false; }  // also a line a rule, not only one a step
};

// Constant weights of products in 8 or 4 bits (driver/weight_cost.h): part of the model from its loading on, so that
// whatever reads it sees the same numbers.
struct WeightQuantization {
  WeightFormat format{0, 0};      // bits of 0: none
  std::vector<std::string> keep;  // names of weights that stay as they are; a * stands for any text
  bool measure = true;            // false: `keep` says all, as it was found before
  QuantizedWeights made;          // what came of it, once it was settled
};

struct PassRun;  // optimizer/optimize.h

struct CompileOptions {
  ImportOptions import;
  int level = 2;                                  // 0: no rewrites and no fusion; 1 and more: all
  std::vector<std::string> disabled;              // passes and rules that are left out
  std::vector<std::string> targets = {"cpu"};     // "cpu", "sm_80", "sm_90a", ...
  std::string name;                               // of the bundle; empty: the model's stem as a C identifier
  std::string f32 = "3xtf32";                     // f32 products on a GPU: "3xtf32", "tf32", "ieee"
  ElementType precision = ElementType::kFloat32;  // storage of f32 tensors: kFloat32, kFloat16 or kBFloat16
  std::string samples;  // folder of inputs on which the cost of `precision` and `weights` is measured; empty:
                        // random ones
  WeightQuantization weights;
  bool force = false;                // replace files in the bundle's folder that were changed by others
  bool dry_run = false;              // compile_model writes nothing, and says what it would
  bool embed_weights = false;        // in the library, instead of a file beside it
  bool probe = false;                // the bundle tells of each kernel (driver/kernel_watch.h)
  int64_t stop_after_rewrites = -1;  // for bisection: only so many rewrites are allowed; negative: all
  // Sizes for which the bundle also has code of its own, behind guards: each a list of pins that narrow the model.
  std::vector<std::vector<DimPin>> variants;
  // Inputs and outputs that are one memory of the caller: "past=present"; a * on both sides stands for the same text.
  std::vector<std::string> aliases;
  // Measured choices of schedules (driver/tuning_cache.h); null: all are the cost model's.
  std::shared_ptr<const TuningTable> tuning;
  // Of the optimizer's passes (optimizer/optimize.h, where these stand with the same names).
  std::vector<std::string> only;  // not empty: these passes and rules, and no others
  std::string start_from, stop_after;
  std::function<Status(const PassRun &)> after_pass;
  int64_t opset = 0;  // the result is to be written in this version of ai.onnx: no rewrite needs more; 0: compiled
};

// Whether GPU targets are asked for: `run`, `verify` and `bench` then mean the Program that is lowered for them.
bool has_gpu_target(const CompileOptions &options);

// Counts that describe a Graph to a reader.
struct GraphFacts {
  int64_t nodes = 0, parameters = 0, parameter_bytes = 0;
};
GraphFacts facts_of(const Graph &graph);
// "input image [N,3,224,224] f32", all inputs or outputs, comma-separated.
std::string describe_inputs(const Graph &graph);
std::string describe_outputs(const Graph &graph);

struct Optimized {
  Graph graph;
  GraphFacts before;
  std::vector<RewriteRecord> records;
  std::vector<MissedRewrite> missed;
};

struct BundleFacts {
  std::string folder, name;
  int64_t files = 0, weight_bytes = 0;
  int64_t kernels = 0, arena_bytes = -1, bound_bytes = -1;  // bytes are -1 where they depend on dims
  QuantizedWeights weights;
  int64_t peak_bytes = -1;  // the arena's most over the ranges of the dims; -1: some have no bound
  struct Variant {
    std::string sizes;  // "N=1,S=128"
    int64_t kernels = 0, arena_bytes = -1;
  };
  std::vector<Variant> variants;
  int64_t bytes = 0, code_bytes = 0;  // of all files; of those that a compiler reads
  double build_seconds = 0;           // about, of one core: optimized, by g++
};

// `settled`, when given, gets what options.weights came to: a second load by it gives the same, measuring nothing.
Result<Graph> load_model(const std::string &path, const CompileOptions &options, Listener &listener,
                         Diagnostics &diagnostics, WeightQuantization *settled = nullptr);
// `made` (may be null) gets the rewrites, on an error too: then the last one is to blame.
Result<Optimized> optimize_model(Graph graph, const CompileOptions &options, Listener &listener,
                                 Diagnostics &diagnostics, std::vector<RewriteRecord> *made = nullptr);
// With 16-bit storage its cost is measured first (storage_cost.h) and said to the listener.
// gpu: the Program for GPU targets. `kept`, when given, gets the names of the tensors that stay f32 with 16-bit
// storage, and why.
Result<Program> lower_model(const Graph &graph, const CompileOptions &options, Listener &listener,
                            Diagnostics &diagnostics, bool gpu = false,
                            std::vector<std::pair<std::string, std::string>> *kept = nullptr);
// The model for the sizes of a variant alone, optimized and lowered for the CPU. kUsage where a size lies outside what
// `options` leaves open.
// `choices`, when given, gets what was weighed.
Result<Program> lower_variant(const std::string &path, const CompileOptions &options, const std::vector<DimPin> &sizes,
                              Listener &listener, Diagnostics &diagnostics,
                              std::vector<ScheduleChoice> *choices = nullptr);
std::string describe(const std::vector<DimPin> &sizes);  // "N=1,S=1..64"
// All of it: model file to bundle folder.
Result<BundleFacts> compile_model(const std::string &path, const std::string &folder, const CompileOptions &options,
                                  Listener &listener, Diagnostics &diagnostics);

// That optc can run the model: an error, which says what to do, where operators are left to an application (--extern).
Status check_runnable(const CompileOptions &options, Diagnostics &diagnostics);

// A compiled and built bundle in the cache folder, made anew only when the model, the options or optc itself changed.
struct BuiltBundle {
  std::string folder, name, library;
};
Result<BuiltBundle> build_model(const std::string &path, const CompileOptions &options, Listener &listener,
                                Diagnostics &diagnostics);

// "97.5 MiB": powers of 1024, three digits.
std::string format_bytes(double bytes);
std::string format_count(int64_t count);  // "25.6 M", "412"

}  // namespace optc
