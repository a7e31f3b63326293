#pragma once
// What the verbs share: common options, where results, progress and errors are printed, exit codes.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/steps.h"
#include "driver/samples.h"
#include "driver/toolchain.h"
#include "support/diagnostics.h"
#include "support/staging.h"

namespace optc::cli {

inline constexpr const char *kVersion = "0.1.0";

// Options that most verbs take. Which of them a verb shows is the choice of its add_* calls.
struct CommonOptions {
  std::string model;
  std::vector<std::string> dims;        // "batch=1", "batch=1..8"
  std::vector<std::string> shapes;      // "x=1x3x224x224"
  std::vector<std::string> variants;    // "N=1,S=128"
  std::vector<std::string> aliases;     // "past_k=present_k", "past_*=present_*"
  std::vector<std::string> custom_ops;  // files of functions
  bool constant_defaults = false;
  std::vector<std::string> externs;  // "my.ops::Foo", "my.ops::Foo=float[N,3]"
  std::vector<std::string> inputs;   // "x=@file.npy"
  std::string inputs_folder;
  std::vector<std::string> disabled;
  std::vector<std::string> passes;     // none: all
  std::string start_from, stop_after;  // passes
  std::vector<std::string> targets = {"cpu"};
  std::string name;
  std::string engine = "bundle";
  std::string f32 = "3xtf32";
  std::string precision = "f32";
  std::string weights;                    // "int4:32"; empty: as they are
  std::vector<std::string> keep_weights;  // names, "decoder.*"
  std::string samples;
  std::vector<std::string> tuning;  // files of `optc tune`
  bool foreign_tuning = false;
  std::string format = "text";
  std::string color = "auto";
  uint64_t seed = 0;
  int level = 2;
  int threads = 1;
  bool quiet = false;
  int verbose = 0;
  std::string progress = "auto";
  std::string config, save_config, report, trace;  // files
  std::shared_ptr<StepRecord> record;              // null: nobody asked for it
};

void add_model(Verb &verb, CommonOptions &options);
// -v, -q, --color, --format, --report, --config, --save-config
void add_output_options(Verb &verb, CommonOptions &options, const std::vector<std::string> &forms = {"text", "json"});
void add_step_options(Verb &verb, CommonOptions &options);  // --progress, --trace
void add_disable_pass(Verb &verb, CommonOptions &options);
void add_pass_choice(Verb &verb, CommonOptions &options);     // --passes, --stop-after, --start-from
void add_weight_options(Verb &verb, CommonOptions &options);  // --quantize-weights, --keep-weights, --calibrate
void add_shape_options(Verb &verb, CommonOptions &options);   // --dim, --shape, --custom-op, --extern
// --target, --variant, -O, --disable-pass and the other choices of passes, --name
void add_compile_options(Verb &verb, CommonOptions &options);
void add_run_options(Verb &verb, CommonOptions &options);  // --inputs, --input, --seed, --threads
void add_engine(Verb &verb, CommonOptions &options);       // --engine

// The options as the driver takes them. kUsage on a form that is not understood.
Result<CompileOptions> compile_options(const CommonOptions &options, Diagnostics &diagnostics);
Result<SizeByName> given_sizes(const CommonOptions &options, Diagnostics &diagnostics);  // --dim NAME=VALUE only
Result<std::vector<std::pair<std::string, std::string>>> named_inputs(const CommonOptions &options,
                                                                      Diagnostics &diagnostics);

// A model with the options and the inputs that files or options name: what run, verify and bench start from.
struct Prepared {
  CompileOptions options;
  Graph model;
  InputSets inputs;
  // The file that says `model`: the user's, or, where its weights were quantized as it was read, one that was written.
  std::string file;
  std::shared_ptr<const ScratchFolder> scratch;  // where that lies
};
Result<Prepared> prepare(const CommonOptions &options, Listener &listener, Diagnostics &diagnostics);
// Inputs of a variant's sizes, from the same files and seed.
Result<InputSets> variant_inputs(const CommonOptions &options, const Prepared &prepared,
                                 const std::vector<DimPin> &variant, Diagnostics &diagnostics);
// Says, on stderr, that the first made inputs did not suit and which were taken.
void report_inputs(const InputSet &set, const CommonOptions &options);

// Progress: one finished line a step on stderr, none twice unless -v asks for all; on a terminal the running step shows
// on the last line with a bar or the time that it has taken. --progress=lines leaves that out, off both.
std::unique_ptr<Listener> make_listener(const CommonOptions &options);

// Prints all diagnostics on stderr; returns the exit code of `failure`.
int report(const Diagnostics &diagnostics, const Failure &failure, const CommonOptions &options);
void print_warnings(const Diagnostics &diagnostics, const CommonOptions &options);
// What the verb does once its options are read: `work`, between the files that --save-config, --trace and --report
// name; then its diagnostics are printed, and `code` is the exit code of its failure if it has one.
void on_parsed(Verb &verb, std::shared_ptr<CommonOptions> options, int &code,
               std::function<Status(Diagnostics &)> work);
// The word of a list that `word` was most likely meant to be; empty when none is near.
std::string nearest(const std::string &word, const std::vector<std::string> &list);
int run_usage_error(const std::string &message, const std::string &help = {});
void print(const std::string &text);             // to stdout
std::string file_name(const std::string &path);  // without its folder

// One function a verb: adds the subcommand and sets what runs when it is chosen; the callback leaves its exit code in
// `code`.
void add_compile(CommandLine &line, int &code);
void add_opt(CommandLine &line, int &code);
void add_run(CommandLine &line, int &code);
void add_verify(CommandLine &line, int &code);
void add_inspect(CommandLine &line, int &code);
void add_bench(CommandLine &line, int &code);
void add_tune(CommandLine &line, int &code);
void add_ops(CommandLine &line, int &code);
void add_convert(CommandLine &line, int &code);
void add_diff(CommandLine &line, int &code);
void add_reduce(CommandLine &line, int &code);
void add_explain(CommandLine &line, int &code);
// Both read the grammar of `line`, with all its verbs, when they are chosen.
void add_completion(CommandLine &line, int &code);
void add_doctor(CommandLine &line, int &code, const std::string &version);
void add_man(CommandLine &line, int &code, const std::string &version);

}  // namespace optc::cli
