// optc verify MODEL: does the compiled model compute what ONNX Runtime (or another reference) computes?

#include <fmt/format.h>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "driver/compare.h"
#include "driver/oracle.h"
#include "driver/places.h"
#include "driver/run.h"
#include "driver/tensor_file.h"

namespace optc::cli {
namespace {

struct VerifyOptions : CommonOptions {
  std::string against = "ort";
  double rtol = -1, atol = 0;
  int sets = 2;
  bool bisect = false;
};

struct Checked {
  std::string output;
  Comparison comparison;  // the worst of all input sets
};

// The answers that `inputs` should give.
Result<std::vector<RuntimeValue>> expected_outputs(const VerifyOptions &o, const Graph &model,
                                                   const std::vector<RuntimeValue> &inputs,
                                                   const CompileOptions &options, Listener &listener,
                                                   std::string &reference, Diagnostics &diagnostics) {
  if (o.against == "ort") {
    OPTC_ASSIGN(OracleResult oracle, run_oracle(o.model, model, inputs, {}, diagnostics));
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
  if (exists(o.against + "/output_0.pb") || exists(o.against + "/output_0.npy")) {
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
  if (is_folder(o.against))
    return diagnostics.error(
        ErrorKind::kUsage, "--against " + o.against + ": the folder holds no output_0.pb", {},
        "a folder of answers has output_0.pb or output_0.npy, ..., in the order of the model's outputs, "
        "and with --inputs the inputs that they belong to");
  if (!exists(o.against))
    return diagnostics.error(ErrorKind::kUsage, "--against " + o.against + ": no such file or folder", {},
                             "ort, evaluate, a folder with output_0.pb, or another model");
  Diagnostics other(o.against);
  Result<Graph> other_model = load_model(o.against, options, listener, other);
  if (!other_model) {
    for (const Diagnostic &d : other.all()) (void)diagnostics.add(d);
    return other_model.failure();
  }
  reference = o.against + " on the evaluator";
  CompileOptions plain = options;
  plain.precision = ElementType::kFloat32;
  return run_model(o.against, *other_model, inputs, Engine::kEvaluate, 1, o.seed, plain, listener, diagnostics);
}

// Compares with the first `count` rewrites only; true: the results agree.
Result<bool> agrees(const VerifyOptions &o, const Graph &model, const std::vector<RuntimeValue> &inputs,
                    const std::vector<RuntimeValue> &expected, CompileOptions options, int64_t count,
                    Listener &listener, Diagnostics &diagnostics) {
  options.stop_after_rewrites = count;
  OPTC_ASSIGN(const auto actual,
              run_model(o.model, model, inputs, Engine::kEvaluate, 1, o.seed, options, listener, diagnostics));
  for (size_t i = 0; i < expected.size(); ++i)
    if (!compare(actual[i], expected[i], {o.rtol, o.atol}).ok) return false;
  return true;
}

// Binary search for the first rewrite after which the evaluator's results are wrong.
Status bisect(const VerifyOptions &o, const Graph &model, const std::vector<RuntimeValue> &inputs,
              const std::vector<RuntimeValue> &expected, const CompileOptions &options, Listener &listener,
              Diagnostics &diagnostics) {
  OPTC_ASSIGN(const Optimized full, optimize_model(model.clone(), options, listener, diagnostics));
  int64_t good = 0, bad = static_cast<int64_t>(full.records.size());
  std::string line = fmt::format("bisecting {} rewrites:", bad);
  OPTC_ASSIGN(const bool plain_ok, agrees(o, model, inputs, expected, options, 0, listener, diagnostics));
  OPTC_ASSIGN(const bool full_ok, agrees(o, model, inputs, expected, options, bad, listener, diagnostics));
  if (!plain_ok || full_ok) {
    print(line + (plain_ok ? " the evaluator agrees after all of them: the fault lies in the emitted code\n"
                           : " the evaluator differs without any rewrite: the fault lies in an operator\n"));
    return {};
  }
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    OPTC_ASSIGN(const bool ok, agrees(o, model, inputs, expected, options, middle, listener, diagnostics));
    line += fmt::format(" {} {} ·", middle, ok ? "ok" : "bad");
    (ok ? good : bad) = middle;
  }
  const RewriteRecord &culprit = full.records[bad - 1];
  std::string node =
      culprit.removed.empty() ? (culprit.created.empty() ? "" : culprit.created[0].name) : culprit.removed[0].name;
  print(line + fmt::format("\nculprit: rewrite {}, rule {} at node '{}'; --disable-pass={} avoids it\n", bad,
                           culprit.rule, node, culprit.rule));
  return {};
}

Status verify(VerifyOptions o, Diagnostics &diagnostics) {
  // 16-bit storage approximates: the tolerance of a 16-bit type for every output.
  if (o.rtol < 0 && o.precision != "f32") o.rtol = 2e-2;
  const std::unique_ptr<Listener> listener = make_listener(o);
  OPTC_ASSIGN(const Prepared prepared, prepare(o, *listener, diagnostics));
  const Graph &model = prepared.model;
  const CompileOptions &options = prepared.options;
  const auto &ids = model.region(Graph::main()).outputs;
  const Engine engine = o.engine == "evaluate" ? Engine::kEvaluate : Engine::kBundle;
  // Given inputs or answers are one set.
  const bool given =
      !o.inputs_folder.empty() || exists(o.against + "/output_0.pb") || exists(o.against + "/output_0.npy");
  const int sets = given ? 1 : o.sets;
  std::vector<Checked> checked(ids.size());
  std::string reference;
  std::vector<RuntimeValue> bad_inputs, bad_expected;
  for (int set = 0; set < sets; ++set) {
    OPTC_ASSIGN(const InputSet drawn, input_set(o, prepared, set, diagnostics));
    const std::vector<RuntimeValue> &inputs = drawn.values;
    OPTC_ASSIGN(const auto expected, expected_outputs(o, model, inputs, options, *listener, reference, diagnostics));
    OPTC_ASSIGN(const auto actual,
                run_model(o.model, model, inputs, engine, o.threads, o.seed, options, *listener, diagnostics));
    if (expected.size() != actual.size()) return diagnostics.error(ErrorKind::kMismatch, "another number of outputs");
    for (size_t i = 0; i < actual.size(); ++i) {
      const Comparison c = compare(actual[i], expected[i], {o.rtol, o.atol});
      Checked &worst = checked[i];
      const auto badness = [](const Comparison &x) {
        return x.range > 0 ? x.max_difference / x.range : x.max_difference;
      };
      if (worst.output.empty() || (worst.comparison.ok && !c.ok) ||
          (worst.comparison.ok == c.ok && badness(c) > badness(worst.comparison)))
        worst.comparison = c;
      worst.output =
          fmt::format("{} {}", model.value(ids[i]).name,
                      actual[i].kind == RuntimeValue::Kind::kTensor ? to_string(actual[i].tensor.shape()) : "");
      if (!c.ok && bad_inputs.empty()) {
        bad_inputs = inputs;
        bad_expected = expected;
      }
    }
  }
  bool ok = true;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Checked &c : checked) {
    ok = ok && c.comparison.ok;
    list.push_back({{"output", c.output},
                    {"ok", c.comparison.ok},
                    {"max_difference", c.comparison.max_difference},
                    {"range", c.comparison.range},
                    {"differing", c.comparison.differing},
                    {"count", c.comparison.count},
                    {"median_ulp", c.comparison.median_ulp},
                    {"same_argmax", c.comparison.same_argmax},
                    {"problem", c.comparison.problem}});
    if (o.format == "text")
      print(fmt::format("{} {}   {}\n", c.comparison.ok ? "ok  " : "FAIL", c.output, describe(c.comparison)));
  }
  if (o.format == "json") {
    print(nlohmann::ordered_json{{"schema_version", 1},
                                 {"ok", ok},
                                 {"against", reference},
                                 {"seed", o.seed},
                                 {"input_sets", sets},
                                 {"outputs", list}}
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
  } else if (!o.quiet) {
    print(fmt::format("{} {}, seed {}, {} input set{}\n", ok ? "verified against" : "differs from", reference, o.seed,
                      sets, sets == 1 ? "" : "s"));
  }
  if (ok) return {};
  // How much the model's own rounding decides: what ONNX Runtime's optimizations change.
  std::string sensitivity;
  if (o.against == "ort") {
    OracleOptions optimized;
    optimized.optimize = true;
    Diagnostics quiet;
    const Result<OracleResult> other = run_oracle(o.model, model, bad_inputs, optimized, quiet);
    for (size_t i = 0; other.ok() && i < ids.size() && i < other->outputs.size(); ++i) {
      if (checked[i].comparison.ok) continue;
      const Comparison c = compare(other->outputs[i], bad_expected[i], {o.rtol, o.atol});
      sensitivity =
          fmt::format("with its optimizations ONNX Runtime's own '{}': {}", model.value(ids[i]).name, describe(c));
      break;
    }
  }
  if (o.bisect) OPTC_TRY(bisect(o, model, bad_inputs, bad_expected, options, *listener, diagnostics));
  Diagnostic d;
  d.kind = ErrorKind::kMismatch;
  d.message = "outputs differ from " + reference;
  if (!sensitivity.empty()) d.notes.push_back(std::move(sensitivity));
  if (!o.bisect) d.help = "--bisect-passes finds the rewrite that is to blame";
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
                   "allowed difference relative to max |expected| (default by type: f32 1e-4, f16 2e-2; with "
                   "--precision=f16 or bf16 2e-2)")
      ->not_negative()
      ->type_name("X");
  verb->add_option("--atol", o->atol, "differences up to this are equal")->not_negative()->type_name("X");
  verb->add_option("--sets", o->sets, "sets of random inputs, of alternating sizes (default 2)")
      ->between(1, 100)
      ->type_name("N");
  verb->add_flag("--bisect-passes", o->bisect, "on a difference, find the first rewrite that makes it");
  add_run_options(*verb, *o);
  add_engine(*verb, *o);
  add_shape_options(*verb, *o);
  add_compile_options(*verb, *o);
  add_output_options(*verb, *o);
  verb->callback([o, &code] {
    Diagnostics diagnostics(o->model);
    const Status status = verify(*o, diagnostics);
    if (!status.ok())
      code = report(diagnostics, status.failure(), *o);
    else
      print_warnings(diagnostics, *o);
  });
}

}  // namespace optc::cli
