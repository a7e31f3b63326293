// optc verify MODEL: does the compiled model compute what ONNX Runtime (or another reference) computes?

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "cli/internal_json.h"
#include "cli/kernel_report.h"
#include "cli/value_report.h"
#include "driver/aliases.h"
#include "driver/bisect.h"
#include "driver/compare.h"
#include "driver/crash_report.h"
#include "driver/oracle.h"
#include "driver/places.h"
#include "driver/quantized.h"
#include "driver/run.h"
#include "driver/sensitivity.h"
#include "driver/tensor_file.h"
#include "driver/tolerance.h"

namespace optc::cli {
namespace {

constexpr int kStateSteps = 3;      // runs of a model with states, each on what the one before has left
constexpr double kMuchSlack = 0.1;  // of an output's range: agreement within more says little

struct VerifyOptions : CommonOptions {
  std::string against = "ort";
  std::vector<std::string> rtol, atol;  // "1e-3", "OUTPUT=1e-3"
  int sets = 2;
  bool bisect = false, per_kernel = false, per_node = false, numerics = false;
  std::string culprit;
};

struct Checked {
  std::string output;
  Comparison comparison;    // the worst of all input sets
  Rounding rounding;        // asked where the tolerance alone does not do
  std::string little_said;  // why agreement says little; empty: it does not
};

// A folder of answers is one set.
bool has_answers(const std::string &folder) {
  return exists(folder + "/output_0.pb") || exists(folder + "/output_0.npy");
}

// Whether --against names something that can be asked.
Status check_reference(const VerifyOptions &o, Diagnostics &diagnostics) {
  if (o.against == "ort" || o.against == "evaluate" || has_answers(o.against)) return {};
  if (is_folder(o.against))
    return diagnostics.error(
        ErrorKind::kUsage, "--against " + o.against + ": the folder holds no output_0.pb", {},
        "a folder of answers has output_0.pb or output_0.npy, ..., in the order of the model's outputs, "
        "and with --inputs the inputs that they belong to");
  if (!exists(o.against))
    return diagnostics.error(ErrorKind::kUsage, "--against " + o.against + ": no such file or folder", {},
                             "ort, evaluate, a folder with output_0.pb, or another model");
  return {};
}

// "OUTPUT=1e-3" in parts; no output: for all of them. The last = counts: names may have some.
struct GivenTolerance {
  std::string output;
  double value = 0;
};
GivenTolerance tolerance_of(const std::string &text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos) return {"", std::strtod(text.c_str(), nullptr)};
  return {text.substr(0, equals), std::strtod(text.c_str() + equals + 1, nullptr)};
}

std::string wrong_tolerance(const std::string &text) {
  const size_t equals = text.rfind('=');
  const std::string number = equals == std::string::npos ? text : text.substr(equals + 1);
  char *end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  const bool good = equals != 0 && !number.empty() && *end == 0 && value >= 0 && value < 1e300;
  return good ? "" : "expected a number from 0 on, or OUTPUT=NUMBER";
}

// What --rtol or --atol say of all outputs; then of single ones.
void take_general(const std::vector<std::string> &given, double &value) {
  for (const std::string &text : given)
    if (const GivenTolerance t = tolerance_of(text); t.output.empty()) value = t.value;
}
Status take_single(const Graph &model, const std::vector<std::string> &given, const char *option,
                   double Tolerance::*field, std::vector<Tolerance> &all, Diagnostics &diagnostics) {
  const std::vector<ValueId> &outputs = model.region(Graph::main()).outputs;
  std::vector<std::string> names;
  for (const ValueId output : outputs) names.push_back(model.value(output).name);
  for (const std::string &text : given) {
    const GivenTolerance t = tolerance_of(text);
    if (t.output.empty()) continue;
    const auto at = std::find(names.begin(), names.end(), t.output);
    if (at == names.end()) {
      const std::string near = nearest(t.output, names);
      return diagnostics.error(
          ErrorKind::kUsage, fmt::format("{} {}: the model has no such output", option, text), {},
          near.empty() ? "`optc inspect MODEL` lists them" : fmt::format("did you mean {}?", near));
    }
    all[static_cast<size_t>(at - names.begin())].*field = t.value;
  }
  return {};
}

// The answers that `inputs` should give.
Result<std::vector<RuntimeValue>> expected_outputs(const VerifyOptions &o, const Prepared &prepared,
                                                   const std::vector<RuntimeValue> &inputs, Listener &listener,
                                                   std::string &reference, Diagnostics &diagnostics) {
  const Graph &model = prepared.model;
  const CompileOptions &options = prepared.options;
  if (o.against == "ort") {
    OPTC_ASSIGN(OracleResult oracle, run_oracle(prepared.file, model, inputs, {}, diagnostics));
    reference = "ONNX Runtime " + oracle.version;
    return std::move(oracle.outputs);
  }
  if (o.against == "evaluate") {
    CompileOptions plain = options;
    plain.level = 0;
    plain.precision = ElementType::kFloat32;
    reference = "the unoptimized model on the evaluator";
    return run_model(o.model, model, inputs, Engine::kEvaluate, 1, o.seed, plain, listener, diagnostics);
  }
  if (has_answers(o.against)) {
    reference = o.against;
    std::vector<RuntimeValue> outputs;
    const auto &ids = model.region(Graph::main()).outputs;
    for (size_t i = 0; i < ids.size(); ++i) {
      std::string path = fmt::format("{}/output_{}.pb", o.against, i);
      if (!exists(path)) path = fmt::format("{}/output_{}.npy", o.against, i);
      OPTC_ASSIGN(RuntimeValue value, read_value(path, model.value(ids[i]).type, diagnostics));
      outputs.push_back(std::move(value));
    }
    return outputs;
  }
  CompileOptions plain = options;
  plain.precision = ElementType::kFloat32;
  plain.weights = {};
  Diagnostics other(o.against);
  Result<Graph> other_model = load_model(o.against, plain, listener, other);
  if (!other_model) {
    for (const Diagnostic &d : other.all()) (void)diagnostics.add(d);
    return other_model.failure();
  }
  reference = o.against + " on the evaluator";
  return run_model(o.against, *other_model, inputs, Engine::kEvaluate, 1, o.seed, plain, listener, diagnostics);
}

// Whether the results with the first `count` steps only are right. A run that ends in an error has none.
bool agrees(const VerifyOptions &o, const Graph &model, const std::vector<RuntimeValue> &inputs,
            const std::vector<RuntimeValue> &expected, const std::vector<Tolerance> &tolerances, CompileOptions options,
            int64_t count, Engine engine, Listener &listener) {
  options.stop_after_rewrites = count;
  Diagnostics quiet(o.model);  // the error with all steps has been said
  const auto actual = run_model(o.model, model, inputs, engine, o.threads, o.seed, options, listener, quiet);
  if (!actual.ok()) return false;
  for (size_t i = 0; i < expected.size(); ++i)
    if (!compare((*actual)[i], expected[i], tolerances[i]).ok) return false;
  return true;
}

// Binary search for the first step, rewrite or step of lowering, with which the results are wrong: on the evaluator,
// and where that agrees with all of them, on bundles.
Status bisect(const VerifyOptions &o, const Graph &model, const std::vector<RuntimeValue> &inputs,
              const std::vector<RuntimeValue> &expected, const std::vector<Tolerance> &tolerances,
              const CompileOptions &options, Engine engine, Listener &listener, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::vector<CompileStep> steps, list_steps(model, options, listener, diagnostics));
  const int64_t all = static_cast<int64_t>(steps.size());
  const int64_t rewrites =
      std::count_if(steps.begin(), steps.end(), [](const CompileStep &step) { return !step.lowering; });
  print(fmt::format("bisecting {} rewrites and {} steps of lowering\n", rewrites, all - rewrites));
  auto right = [&](Engine on, int64_t count) {
    return agrees(o, model, inputs, expected, tolerances, options, count, on, listener);
  };
  Engine on = Engine::kEvaluate;
  if (!right(on, 0)) {
    print("the evaluator differs without any step: the fault lies in an operator\n");
    return {};
  }
  if (right(on, all)) {
    if (engine == Engine::kEvaluate) {
      print("the evaluator agrees now: the difference does not come back\n");
      return {};
    }
    on = engine;
    if (!right(on, 0)) {
      print(
          fmt::format("the evaluator agrees after all of them, the bundle differs without any: the fault lies in the "
                      "code of a kernel{}\n",
                      o.per_kernel ? "" : "; --per-kernel names it"));
      return {};
    }
    if (right(on, all)) {
      print("the bundle agrees now: the difference does not come back\n");
      return {};
    }
  }
  std::string line;
  OPTC_ASSIGN(const int64_t wrong, first_wrong_step(all, [&](int64_t count) -> Result<bool> {
                const bool ok = right(on, count);
                line += fmt::format(" {} {} ·", count, ok ? "ok" : "bad");
                return ok;
              }));
  const CompileStep &culprit = steps[static_cast<size_t>(wrong) - 1];
  print(fmt::format("{}:{}\n", on == Engine::kEvaluate ? "on the evaluator" : "on bundles", line));
  print(culprit.lowering ? fmt::format("culprit: step {}, {}, {}; --disable-pass={} avoids it\n", wrong, culprit.name,
                                       culprit.where, culprit.name)
                         : fmt::format("culprit: rewrite {}, rule {} at node '{}'; --disable-pass={} avoids it\n",
                                       wrong, culprit.name, culprit.where, culprit.name));
  return {};
}

// Notes a set's comparison where it is the worst so far.
void keep_worst(Checked &worst, std::string output, const Comparison &c, const Rounding &rounding) {
  const auto badness = [](const Comparison &x) { return x.range > 0 ? x.max_difference / x.range : x.max_difference; };
  if (!worst.output.empty() && worst.comparison.ok != c.ok
          ? c.ok
          : !worst.output.empty() && badness(c) <= badness(worst.comparison))
    return;
  worst.output = std::move(output);
  worst.comparison = c;
  worst.rounding = rounding;
}

// The inputs of a run behind another one: what that one has left in the states, and all else from `drawn`.
std::vector<RuntimeValue> carried(const std::vector<StatePosition> &states, std::vector<RuntimeValue> drawn,
                                  const std::vector<RuntimeValue> &left) {
  for (const StatePosition &state : states) drawn[state.input] = left[state.output];
  return drawn;
}

std::string result_of(const Checked &c) {
  std::string text = describe(c.comparison);
  const double slack = c.rounding.widened({}).slack;
  if (slack > 0 || c.rounding.elements > 0) text += "; " + describe(c.rounding);
  const std::string remark = slack > kMuchSlack * c.comparison.range ? "rounding alone decides it" : c.little_said;
  if (!remark.empty()) text += "; says little: " + remark;
  return text;
}

Status verify(VerifyOptions o, Diagnostics &diagnostics) {
  OPTC_TRY(check_reference(o, diagnostics));
  if (o.per_node && o.against != "ort")
    return diagnostics.error(ErrorKind::kUsage,
                             "--per-node compares with ONNX Runtime (--against=ort), which gives the "
                             "values inside of a model");
  if (!o.culprit.empty() && !o.per_node)
    return diagnostics.error(ErrorKind::kUsage, "--culprit goes with --per-node, which finds the values to write");
  const bool by_default = o.rtol.empty() && o.atol.empty();
  const std::unique_ptr<Listener> listener = make_listener(o);
  OPTC_ASSIGN(Prepared prepared, prepare(o, *listener, diagnostics));
  const Graph &model = prepared.model;
  const CompileOptions &options = prepared.options;
  const auto &ids = model.region(Graph::main()).outputs;
  const Engine engine = o.engine == "evaluate" ? Engine::kEvaluate : Engine::kBundle;
  std::optional<CrashReport> crash;
  std::optional<WatchedBundle> watched;
  if (o.per_kernel || o.numerics) {
    if (engine == Engine::kEvaluate)
      return diagnostics.error(ErrorKind::kUsage,
                               "--per-kernel and --check-numerics watch a bundle, not --engine=evaluate");
    OPTC_ASSIGN(watched, build_watched(o.model, options, o.threads, *listener, diagnostics));
    crash.emplace();
  }
  WatchReport kernels;
  const auto watch = [&](const std::vector<RuntimeValue> &inputs, bool constructs) -> Status {
    WatchOptions watch_options{o.per_kernel, o.numerics && !constructs, constructs};
    KernelFinding last;
    watch_options.before_crash = [&](const KernelFinding &known) {
      last = known;
      crash->set(crash_text(known, false));
    };
    const Status ran = watch_bundle(watched->made_of, *watched->bundle, inputs, watch_options, kernels, diagnostics);
    if (!ran.ok()) {
      if (o.format == "text") print(ended_text(kernels));
      return ran;
    }
    if (!kernels.difference) {
      last.problem = "the bundle crashes behind it";
      crash->set(crash_text(last, true));
    }
    return {};
  };
  // Given inputs or answers are one set.
  const bool given_inputs = !prepared.inputs.made() || has_answers(o.against);
  const int general_sets = given_inputs ? 1 : o.sets;
  std::vector<InputSets> of_variants;  // a set of the sizes of each variant follows
  for (size_t i = 0; i < options.variants.size() && !given_inputs; ++i) {
    OPTC_ASSIGN(InputSets inputs, variant_inputs(o, prepared, options.variants[i], diagnostics));
    of_variants.push_back(std::move(inputs));
  }
  const int sets = general_sets + static_cast<int>(of_variants.size());
  OPTC_ASSIGN(const std::vector<StatePosition> states, find_states(model, options.aliases, diagnostics));
  const int steps_of_set = states.empty() || given_inputs ? 1 : kStateSteps;
  std::vector<Checked> checked(ids.size());
  std::string reference, sizes;
  nlohmann::ordered_json size_list = nlohmann::ordered_json::array();
  std::vector<RuntimeValue> bad_inputs, bad_expected;
  std::optional<CrossedSteps> steps;
  // Products of operands in TF32 are as exact as those of f16.
  const ElementType storage = options.precision == ElementType::kFloat32 && has_gpu_target(options) && o.f32 == "tf32"
                                  ? ElementType::kFloat16
                                  : options.precision;
  Tolerance given;
  take_general(o.rtol, given.relative_to_range);
  take_general(o.atol, given.absolute);
  std::vector<Tolerance> tolerances = output_tolerances(model, given, storage);
  OPTC_TRY(take_single(model, o.rtol, "--rtol", &Tolerance::relative_to_range, tolerances, diagnostics));
  OPTC_TRY(take_single(model, o.atol, "--atol", &Tolerance::absolute, tolerances, diagnostics));
  std::vector<Rounding> rounding(ids.size());
  struct Answers {
    std::vector<RuntimeValue> inputs, actual, expected;
  };
  std::vector<Answers> answers;
  for (int run = 0; run < sets * steps_of_set; ++run) {
    const int set = run / steps_of_set;
    const bool further = run % steps_of_set > 0;
    std::vector<RuntimeValue> expected;
    const auto with_states = [&](const std::vector<RuntimeValue> &values) {
      return further ? carried(states, values, answers.back().actual) : values;
    };
    const auto ask = [&](const InputSet &tried, Diagnostics &said) -> Status {
      OPTC_ASSIGN(expected, expected_outputs(o, prepared, with_states(tried.values), *listener, reference, said));
      return {};
    };
    std::optional<InputSets> grown;
    if (further) {
      OPTC_ASSIGN(grown, variant_inputs(o, prepared, state_sizes(model, states, answers.back().actual), diagnostics));
    }
    InputSets &source = grown                ? *grown
                        : set < general_sets ? prepared.inputs
                                             : of_variants[static_cast<size_t>(set - general_sets)];
    OPTC_ASSIGN(const InputSet drawn, source.fitting(model, set, ask, diagnostics));
    report_inputs(drawn, o);
    const std::vector<RuntimeValue> inputs = with_states(drawn.values);
    if (!drawn.sizes.empty()) {
      sizes += (run == 0 ? ": " : "; ") + describe(drawn.sizes);
      size_list.push_back(drawn.sizes);
    }
    if (watched) OPTC_TRY(watch(inputs, false));
    const auto ran = run_model(o.model, model, inputs, engine, o.threads, o.seed, options, *listener, diagnostics);
    if (!ran.ok()) {
      const ErrorKind kind = ran.failure().kind;
      // A step may make an error where there is none without it.
      if (o.bisect && (kind == ErrorKind::kInternal || kind == ErrorKind::kFault ||
                       (kind == ErrorKind::kInvalid &&
                        agrees(o, model, inputs, expected, tolerances, options, 0, Engine::kEvaluate, *listener))))
        OPTC_TRY(bisect(o, model, inputs, expected, tolerances, options, engine, *listener, diagnostics));
      return ran.failure();
    }
    const std::vector<RuntimeValue> &actual = *ran;
    if (expected.size() != actual.size()) return diagnostics.error(ErrorKind::kMismatch, "another number of outputs");
    // Where rounding alone decides more than the tolerance, ONNX Runtime itself shows it. A draw may miss a selection
    // that tips (of two nearly equal scores), so what one set shows holds for all.
    bool agree = true;
    for (size_t i = 0; i < actual.size(); ++i) agree = agree && compare(actual[i], expected[i], tolerances[i]).ok;
    if (o.against == "ort" && by_default && !agree) {
      const std::vector<Rounding> here = rounding_of(prepared.file, model, inputs, expected, tolerances);
      for (size_t i = 0; i < rounding.size(); ++i) rounding[i].merge(here[i]);
    }
    if (run == 0 && o.against == "ort" && is_quantized(model)) steps = crossed_steps(model, inputs, options, *listener);
    if (run == 0 && prepared.inputs.made()) {
      Diagnostics quiet;  // values that do not suit say nothing
      if (const auto other = prepared.inputs.other_values(model, drawn, quiet); other.ok()) {
        const auto results =
            run_model(o.model, model, other->values, engine, o.threads, o.seed, options, *listener, quiet);
        const auto remarks = results.ok() ? little_said(actual, *results) : std::vector<std::string>();
        for (size_t i = 0; i < remarks.size(); ++i) checked[i].little_said = remarks[i];
      }
    }
    answers.push_back({inputs, actual, std::move(expected)});
  }
  for (const Answers &set : answers)
    for (size_t i = 0; i < ids.size(); ++i) {
      const Comparison c = compare(set.actual[i], set.expected[i], rounding[i].widened(tolerances[i]));
      std::string output = model.value(ids[i]).name;
      if (set.actual[i].kind == RuntimeValue::Kind::kTensor) output += ' ' + to_string(set.actual[i].tensor.shape());
      keep_worst(checked[i], std::move(output), c, rounding[i]);
      if (!c.ok && bad_inputs.empty()) {
        bad_inputs = set.inputs;
        bad_expected = set.expected;
      }
    }
  // Each kernel is right, and the outputs are not: an If or a loop may have copied something wrong.
  if (watched && o.per_kernel && !kernels.difference && !bad_inputs.empty()) OPTC_TRY(watch(bad_inputs, true));
  std::optional<ValueReport> values;
  if (o.per_node) {
    const std::vector<RuntimeValue> &inputs = bad_inputs.empty() ? answers.front().inputs : bad_inputs;
    OPTC_ASSIGN(values, compare_values(prepared.file, model, inputs, options, given, storage, *listener, diagnostics));
    if (!o.culprit.empty() && values->first()) {
      OPTC_ASSIGN(const int64_t nodes, write_culprit(prepared.file, model, inputs, *values, o.culprit, diagnostics));
      if (o.format == "text" && !o.quiet)
        print(
            fmt::format("wrote {0}/culprit.onnx ({1} node{2}): optc verify {0}/culprit.onnx --inputs {0} --against "
                        "{0}\n",
                        o.culprit, nodes, nodes == 1 ? "" : "s"));
    }
  }
  bool ok = true;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Checked &c : checked) {
    ok = ok && c.comparison.ok;
    list.push_back({{"output", c.output},
                    {"ok", c.comparison.ok},
                    {"max_difference", c.comparison.max_difference},
                    {"allowed", c.comparison.allowed},
                    {"range", c.comparison.range},
                    {"differing", c.comparison.differing},
                    {"count", c.comparison.count},
                    {"median_ulp", c.comparison.median_ulp},
                    {"same_argmax", c.comparison.same_argmax},
                    {"problem", c.comparison.problem},
                    {"says_little", c.little_said}});
    if (o.format == "text")
      print(fmt::format("{} {}   {}\n", c.comparison.ok ? "ok  " : "FAIL", c.output, result_of(c)));
  }
  const bool all_say_little =
      std::all_of(checked.begin(), checked.end(), [](const Checked &c) { return !c.little_said.empty(); });
  if (o.format == "text" && steps) print("     " + describe(*steps) + "\n");
  if (o.format == "text" && all_say_little && !o.quiet)
    print("     no output depends on these inputs: --inputs DIR or --input NAME=@FILE gives ones that suit\n");
  const bool values_ok = !values || !values->first();
  const bool kernels_ok = !kernels.difference && !kernels.nan && !kernels.infinity;
  if (o.format == "json") {
    nlohmann::ordered_json quantized;
    if (steps && steps->uncompared.empty())
      quantized = {{"values", steps->values}, {"crossed", steps->crossed}, {"by_more", steps->by_more}};
    nlohmann::ordered_json json{{"schema_version", 1},   {"ok", ok && kernels_ok && values_ok},
                                {"against", reference},  {"seed", o.seed},
                                {"input_sets", sets},    {"steps", steps_of_set},
                                {"sizes", size_list},    {"outputs", list},
                                {"quantized", quantized}};
    if (watched) json["kernels"] = nlohmann::ordered_json::parse(kernel_json(kernels, o.per_kernel, o.numerics));
    if (values) json["values"] = nlohmann::ordered_json::parse(value_json(*values));
    print(json_text(json));
  } else if (!o.quiet) {
    print(fmt::format("{} {}, seed {}, {} input set{}{}{}\n", ok ? "verified against" : "differs from", reference,
                      o.seed, sets, sets == 1 ? "" : "s",
                      steps_of_set > 1 ? fmt::format(" of {} steps", steps_of_set) : "", sizes));
  }
  if (watched && o.format == "text") print(kernel_text(kernels, o.per_kernel, o.numerics, o.quiet));
  if (values && o.format == "text") print(value_text(*values, o.verbose > 0, o.quiet));
  if (ok && kernels_ok && values_ok) return {};
  if (ok && !kernels_ok) return diagnostics.error(ErrorKind::kMismatch, kernel_summary(kernels));
  if (ok) return diagnostics.error(ErrorKind::kMismatch, value_summary(*values));
  // How much the model's own rounding decides.
  std::string sensitivity;
  if (o.against == "ort") {
    if (!by_default) rounding = rounding_of(prepared.file, model, bad_inputs, bad_expected, tolerances);
    for (size_t i = 0; i < checked.size() && sensitivity.empty(); ++i)
      if (!checked[i].comparison.ok)
        sensitivity = fmt::format("output '{}': {}", model.value(ids[i]).name, describe(rounding[i]));
  }
  if (o.bisect)
    OPTC_TRY(bisect(o, model, bad_inputs, bad_expected, tolerances, options, engine, *listener, diagnostics));
  Diagnostic d;
  d.kind = ErrorKind::kMismatch;
  d.message = "outputs differ from " + reference;
  if (!sensitivity.empty()) d.notes.push_back(std::move(sensitivity));
  if (o.per_kernel) d.notes.push_back(kernel_summary(kernels));
  if (!values_ok) d.notes.push_back(value_summary(*values));
  if (!o.bisect)
    d.help = o.per_kernel ? "--bisect-passes finds the step that is to blame"
                          : "--bisect-passes finds the step that is to blame, --per-kernel the kernel";
  return diagnostics.add(std::move(d));
}

}  // namespace

void add_verify(CommandLine &line, int &code) {
  auto o = std::make_shared<VerifyOptions>();
  Verb *verb = line.add_verb("verify", "check that the compiled model computes what the model says");
  verb->footer("Example: optc verify model.onnx --bisect-passes");
  add_model(*verb, *o);
  verb->add_option("--against", o->against,
                   "ort (ONNX Runtime, its optimizations off), evaluate (no rewrites), a folder with output_0.pb ..., "
                   "or another model")
      ->type_name("WHAT");
  verb->add_option("--rtol", o->rtol,
                   "allowed difference relative to max |expected| (default by type: f32 1e-4; f16 2e-2, also of "
                   "an f32 output that depends on f16; with "
                   "--precision=f16 or bf16, or --fp32=tf32 on a GPU, 2e-2; on top what rounding alone changes in ONNX "
                   "Runtime: its "
                   "optimizations, weights changed in their last bits); NAME=X is for one output (repeatable)")
      ->check(wrong_tolerance)
      ->type_name("[NAME=]X");
  verb->add_option("--atol", o->atol, "differences up to this are equal; NAME=X is for one output (repeatable)")
      ->check(wrong_tolerance)
      ->type_name("[NAME=]X");
  verb->add_option("--sets", o->sets, "sets of random inputs, of alternating sizes (default 2)")
      ->between(1, 100)
      ->type_name("N");
  verb->add_flag("--bisect-passes", o->bisect,
                 "on a difference, find the first step that makes it: a rewrite, or a fusion, layout, storage or "
                 "strategy of lowering");
  verb->add_flag("--per-kernel", o->per_kernel,
                 "compare each kernel of the bundle with the evaluator, on the bundle's own inputs of that kernel, and "
                 "name the first that differs");
  verb->add_flag("--per-node", o->per_node,
                 "compare the values inside of the model that are left by the rewrites with ONNX Runtime's, by name, "
                 "and name the first beyond its bound");
  verb->add_option("--culprit", o->culprit,
                   "with --per-node: write the nodes that make the first such value to DIR/culprit.onnx, with their "
                   "inputs and the right answer")
      ->type_name("DIR");
  verb->add_flag("--check-numerics", o->numerics,
                 "name the first kernel that makes a NaN or an infinity of inputs that have none");
  add_run_options(*verb, *o);
  add_engine(*verb, *o);
  add_shape_options(*verb, *o);
  add_compile_options(*verb, *o);
  add_step_options(*verb, *o);
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return verify(*o, diagnostics); });
}

}  // namespace optc::cli
