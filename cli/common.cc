#include "cli/common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/config_file.h"
#include "cli/internal_json.h"
#include "driver/places.h"
#include "driver/tuning_cache.h"
#include "emit/onnx/export.h"
#include "ir/program/gpu_machine.h"
#include "optimizer/optimize.h"
#include "support/staging.h"

namespace optc::cli {
namespace {

bool colored(const CommonOptions &options, int file) {
  if (options.color == "always") return true;
  if (options.color == "never" || std::getenv("NO_COLOR")) return false;
  return isatty(file) != 0;
}

nlohmann::ordered_json json_of(const Diagnostic &d) {
  nlohmann::ordered_json json{{"schema_version", 1},
                              {"severity", d.severity == Severity::kError ? "error" : "warning"}};
  if (d.severity == Severity::kError) json.update({{"kind", to_string(d.kind)}, {"exit_code", exit_code(d.kind)}});
  json.update({{"message", d.message}, {"file", d.file}, {"node", d.node}});
  json.update({{"places", d.places}, {"notes", d.notes}, {"help", d.help}});
  return json;
}

// A line of JSON for programs that asked for it.
void print_json(const Diagnostic &d) {
  const nlohmann::ordered_json json = json_of(d);
  std::fputs((json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n").c_str(), stderr);
}

bool split(const std::string &text, char at, std::string &left, std::string &right) {
  const size_t where = text.rfind(at);
  if (where == std::string::npos || where == 0) return false;
  left = text.substr(0, where);
  right = text.substr(where + 1);
  return true;
}

bool parse_number(const std::string &text, int64_t &value) {
  if (text.empty()) return false;
  char *end = nullptr;
  value = std::strtoll(text.c_str(), &end, 10);
  return *end == 0 && value >= 0 && value < kDimOverflow;
}

// "NAME=8" or "NAME=1..8"
// "my.ops::Foo=float[N,3],int64[]".
bool parse_extern(const std::string &text, ExternOperator &external) {
  const size_t colons = text.find("::"), equals = std::min(text.find('='), text.size());
  if (colons == std::string::npos || colons == 0 || colons + 2 >= equals) return false;
  external.domain = text.substr(0, colons);
  external.name = text.substr(colons + 2, equals - colons - 2);
  for (char c : external.domain + external.name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.' && c != '-') return false;
  for (size_t at = equals + 1; at <= text.size();) {
    const size_t open = text.find('[', at), end = text.find(']', at);
    if (open == std::string::npos || end == std::string::npos || open > end) return false;
    const std::string element = text.substr(at, open - at);
    ElementType type = element_type_from_string(element);
    for (int number = 1; number <= static_cast<int>(ElementType::kInt2); ++number)
      if (const auto e = static_cast<ElementType>(number); onnx_name(e) == element) type = e;
    if (type == ElementType::kUndefined) return false;
    std::vector<std::string> dims;
    for (size_t from = open + 1; from < end;) {
      const size_t to = std::min(text.find(',', from), end);
      dims.push_back(text.substr(from, to - from));
      from = to + 1;
    }
    external.outputs.emplace_back(type, std::move(dims));
    if (end + 1 < text.size() && text[end + 1] != ',') return false;
    at = end + 2;
  }
  return true;
}

bool parse_pin(const std::string &text, DimPin &pin) {
  std::string range;
  if (!split(text, '=', pin.name, range)) return false;
  const size_t dots = range.find("..");
  const std::string last = dots == std::string::npos ? range : range.substr(dots + 2);
  return parse_number(range.substr(0, dots), pin.min) && parse_number(last, pin.max) && pin.min <= pin.max;
}

// "int8", "int4:64", "int4,activations=int8".
bool parse_weights(const std::string &given, WeightFormat &format) {
  const size_t comma = given.find(',');
  const std::string text = given.substr(0, comma);
  if (comma != std::string::npos && given.substr(comma) != ",activations=int8") return false;
  const size_t colon = text.find(':');
  const std::string type = text.substr(0, colon);
  if (type != "int8" && type != "int4") return false;
  format = type == "int8" ? WeightFormat{8, 0} : WeightFormat{4, 32};
  format.activations = comma != std::string::npos;
  if (colon == std::string::npos) return true;
  constexpr int64_t kLargest = 1 << 16;
  return parse_number(text.substr(colon + 1), format.block) && format.block > 0 && format.block % 8 == 0 &&
         format.block <= kLargest;
}

}  // namespace

// The sections of a verb's help.
constexpr const char *kPrinting = "Printing", *kShapes = "Reading the model", *kCompiling = "Compiling",
                     *kInputs = "Inputs", *kOptions = "Options as a file";

void add_model(Verb &verb, CommonOptions &o) {
  verb.add_option("MODEL", o.model, "the ONNX model: .onnx, .onnxtxt (ONNX's text), .json or .textproto")
      ->required()
      ->type_name("");
}

void add_output_options(Verb &verb, CommonOptions &o, const std::vector<std::string> &forms) {
  verb.add_flag("-v,--verbose", o.verbose, "say more")->group(kPrinting);
  verb.add_flag("-q,--quiet", o.quiet, "print nothing but errors and results")->group(kPrinting);
  verb.add_option("--color", o.color, "auto, always or never (NO_COLOR is honoured)")
      ->one_of({"auto", "always", "never"})
      ->type_name("WHEN")
      ->group(kPrinting);
  verb.add_option("--format", o.format,
                  fmt::format("text, {}json (one object on stdout)", forms.size() > 2 ? "markdown or " : "or "))
      ->one_of(forms)
      ->type_name("FORM")
      ->group(kPrinting);
  verb.add_option("--report", o.report,
                  "write what the command did as JSON: options, steps with their times, errors and warnings, exit code")
      ->type_name("FILE")
      ->group(kPrinting);
  verb.add_option("--config", o.config,
                  "read options from a file, one a line, as `dim = batch=1`; those of the command line count more")
      ->type_name("FILE")
      ->group(kOptions);
  verb.add_option("--save-config", o.save_config, "write the options that are given here to a file for --config")
      ->type_name("FILE")
      ->group(kOptions);
}

void add_step_options(Verb &verb, CommonOptions &o) {
  verb.add_option("--progress", o.progress,
                  "of steps: auto (a bar on a terminal, a line when one ends), lines (no bar) or off")
      ->one_of({"auto", "lines", "off"})
      ->type_name("WHEN")
      ->group(kPrinting);
  verb.add_option("--trace", o.trace, "write when each step and pass ran, for chrome://tracing or ui.perfetto.dev")
      ->type_name("FILE")
      ->group(kPrinting);
}

void add_shape_options(Verb &verb, CommonOptions &o) {
  verb.add_option("--dim", o.dims, "a named dimension: batch=1, or a range batch=1..8 (repeatable)")
      ->type_name("NAME=N")
      ->group(kShapes);
  verb.add_option(
          "--shape", o.shapes,
          "the shape of an input: x=1x3x224x224; a dim may be a name or a range: x=Nx3x32..512x32..512 (repeatable)")
      ->type_name("NAME=DIMS")
      ->group(kShapes);
  verb.add_flag("--constant-defaults", o.constant_defaults,
                "inputs that have a default (an initializer of the same name) are constants: no caller may replace it, "
                "and it is folded")
      ->group(kShapes);
  verb.add_option("--custom-op", o.custom_ops,
                  "functions in ONNX's text form that say operators of other domains in standard ones (repeatable)")
      ->type_name("FILE")
      ->group(kShapes);
  verb.add_option("--extern", o.externs,
                  "leave an operator to a C function of the application; with the types of its results where the model "
                  "does not declare them: my.ops::Foo=float[N,3],int64[N] (repeatable)")
      ->type_name("DOMAIN::OP[=TYPES]")
      ->group(kShapes);
}

void add_disable_pass(Verb &verb, CommonOptions &o) {
  verb.add_option("--disable-pass", o.disabled, "leave out a pass, a rule or a step of lowering, by name (repeatable)")
      ->type_name("NAME")
      ->group(kCompiling);
}

void add_pass_choice(Verb &verb, CommonOptions &o) {
  const std::vector<std::string> passes = list_passes();
  std::string names;
  for (const std::string &pass : passes) names += (names.empty() ? "" : ", ") + pass;
  verb.add_option("--passes", o.passes,
                  "run these passes or rules and no others, by name (repeatable, comma-separated); the passes, in the "
                  "order in which they run: " +
                      names)
      ->delimiter(',')
      ->type_name("NAME")
      ->group(kCompiling);
  verb.add_option("--stop-after", o.stop_after, "stop behind the first run of this pass")
      ->one_of(passes)
      ->type_name("PASS")
      ->group(kCompiling);
  verb.add_option("--start-from", o.start_from,
                  "begin with this pass: goes on with a model that --stop-after the pass before it has left")
      ->one_of(passes)
      ->type_name("PASS")
      ->group(kCompiling);
}

void add_weight_options(Verb &verb, CommonOptions &o) {
  verb.add_option(
          "--quantize-weights", o.weights,
          "constant weights of products in fewer bits, one scale (and a zero point where that is nearer) for so "
          "many numbers of a sum: int4 (blocks of 32: one scale is then a fifth of the bytes, and a large number "
          "coarsens 31 others alone), int4:64, int8 (a scale a column), int8:32; with ,activations=int8 what f32 "
          "products multiply by them is rounded in the same blocks while the model runs, else it stays as it is; "
          "weights that alone change an output by more than 1 % (int8; 2 % with activations) or 20 % (int4) of its "
          "range on sample inputs stay, by name")
      ->check([](const std::string &text) -> std::string {
        WeightFormat format;
        return parse_weights(text, format)
                   ? ""
                   : "'" + text +
                         "': expected int8 or int4, with a block of a multiple of 8 numbers: int4:32, and "
                         "perhaps ,activations=int8";
      })
      ->type_name("TYPE[:BLOCK][,activations=int8]")
      ->group(kCompiling);
  verb.add_option("--keep-weights", o.keep_weights,
                  "weights that --quantize-weights leaves as they are, by name; a * stands for any text (repeatable)")
      ->type_name("NAME")
      ->group(kCompiling);
  verb.add_option(
          "--calibrate", o.samples,
          "a folder of inputs (as --inputs) on which the cost of --precision and --quantize-weights is measured; "
          "else random ones")
      ->type_name("DIR")
      ->group(kCompiling);
}

void add_compile_options(Verb &verb, CommonOptions &o) {
  verb.add_option("--target", o.targets,
                  "cpu (always there), GPUs " + gpu_target_names() + " (repeatable, comma-separated)")
      ->delimiter(',')
      ->type_name("TARGET")
      ->group(kCompiling);
  verb.add_option("--variant", o.variants,
                  "code of its own for some sizes of open dims, beside the general one: batch=1,length=128, or a range "
                  "batch=1..8 (repeatable; the first that fits a run takes it)")
      ->type_name("NAME=N,...")
      ->group(kCompiling);
  verb.add_option("--alias", o.aliases,
                  "an input and an output that are one memory of the caller, a cache that is appended to in place or a "
                  "hidden state: past_k=present_k, or 'past_*=present_*' for all pairs of that form (repeatable)")
      ->type_name("INPUT=OUTPUT")
      ->group(kCompiling);
  verb.add_option("--fp32", o.f32, "f32 products on a GPU: 3xtf32 (default, near f32's accuracy), tf32 or ieee")
      ->one_of({"3xtf32", "tf32", "ieee"})
      ->type_name("FORM")
      ->group(kCompiling);
  verb.add_option("--precision", o.precision,
                  "how f32 tensors are stored: f32 (default), f16 or bf16; arithmetic stays f32, and so do tensors "
                  "whose rounding changes an output by more than 1 % of its range on sample inputs")
      ->one_of({"f32", "f16", "bf16"})
      ->type_name("TYPE")
      ->group(kCompiling);
  add_weight_options(verb, o);
  verb.add_option("--tuning-cache", o.tuning,
                  "a file of `optc tune`: kernels of the forms that it has run as it was measured (repeatable)")
      ->type_name("FILE")
      ->group(kCompiling);
  verb.add_flag("--foreign-tuning", o.foreign_tuning,
                "take a tuning cache of another processor too, for a bundle that is to run on that one")
      ->group(kCompiling);
  verb.add_option("-O", o.level, "0: no rewrites, no fusion; 1..3: all (default 2)")
      ->between(0, 3)
      ->type_name("LEVEL")
      ->group(kCompiling);
  add_disable_pass(verb, o);
  add_pass_choice(verb, o);
  verb.add_option("--name", o.name, "the bundle's name, a C identifier (default: the model's stem)")
      ->check([](const std::string &text) -> std::string {
        if (is_bundle_name(text)) return "";
        const std::string near = text.empty() ? "" : name_of_model(text + ".onnx");
        return "'" + text + "' cannot be a bundle's name" + (near.empty() ? "" : "; '" + near + "' can");
      })
      ->type_name("NAME")
      ->group(kCompiling);
}

void add_run_options(Verb &verb, CommonOptions &o) {
  verb.add_option("--inputs", o.inputs_folder, "a folder with input_0.pb or .npy, ..., or NAME.npy")
      ->type_name("DIR")
      ->group(kInputs);
  verb.add_option("--input", o.inputs, "one input from a file: x=@file.npy (repeatable)")
      ->type_name("NAME=@FILE")
      ->group(kInputs);
  verb.add_option("--seed", o.seed, "of random inputs, where no file gives them")->type_name("N")->group(kInputs);
  verb.add_option("--threads", o.threads, "threads of a run; 0: the physical cores (default 1)")->type_name("N");
}

void add_engine(Verb &verb, CommonOptions &o) {
  verb.add_option("--engine", o.engine,
                  "bundle (default): compile, build and run it; evaluate: inside optc, no C++ compiler")
      ->one_of({"bundle", "evaluate"})
      ->type_name("ENGINE");
}

// Of an option that is given once for a name; the same again says nothing else.
template <typename Value>
static Status add_once(std::vector<std::pair<std::string, Value>> &list, const char *option, const std::string &text,
                       const std::string &name, Value value, Diagnostics &diagnostics) {
  for (const auto &[other, said] : list)
    if (other == name && said != value)
      return diagnostics.error(ErrorKind::kUsage, fmt::format("{} {}: {} is given twice", option, text, name));
  list.emplace_back(name, std::move(value));
  return {};
}

Result<CompileOptions> compile_options(const CommonOptions &o, Diagnostics &diagnostics) {
  CompileOptions options;
  options.level = o.level;
  options.disabled = o.disabled;
  const std::vector<std::string> passes = list_passes();
  const auto place = [&](const std::string &pass) { return std::find(passes.begin(), passes.end(), pass); };
  if (!o.start_from.empty() && !o.stop_after.empty() && place(o.stop_after) < place(o.start_from))
    return diagnostics.error(ErrorKind::kUsage,
                             fmt::format("--stop-after {} is before --start-from {}", o.stop_after, o.start_from));
  options.only = o.passes;
  options.start_from = o.start_from;
  options.stop_after = o.stop_after;
  options.targets = o.targets;
  options.name = o.name;
  options.f32 = o.f32;
  options.samples = o.samples;
  options.precision = o.precision == "f16"    ? ElementType::kFloat16
                      : o.precision == "bf16" ? ElementType::kBFloat16
                                              : ElementType::kFloat32;
  if (!o.weights.empty()) (void)parse_weights(o.weights, options.weights.format);
  options.weights.keep = o.keep_weights;
  if (o.weights.empty() && !o.keep_weights.empty())
    return diagnostics.error(ErrorKind::kUsage, "--keep-weights says what --quantize-weights leaves as it is", {},
                             "give --quantize-weights=int4, say, too");
  if (!o.samples.empty() && o.weights.empty() && options.precision == ElementType::kFloat32)
    return diagnostics.error(ErrorKind::kUsage,
                             "--calibrate has the inputs on which --precision and --quantize-weights are measured", {},
                             "give one of them, too");
  if (!o.weights.empty() && has_gpu_target(options))
    return diagnostics.error(ErrorKind::kUnsupported,
                             "--quantize-weights: kernels of a GPU have no weights of 4 or 8 bits yet", {},
                             "--precision=f16 halves them there; for a bundle of the CPU leave GPUs out of --target");
  if (!o.tuning.empty()) {
    OPTC_ASSIGN(options.tuning, load_tuning(o.tuning, o.targets, o.foreign_tuning, diagnostics));
  }
  if (o.record)
    options.after_pass = [record = o.record](const PassRun &run) -> Status {
      record->add_pass(run.pass, run.rewrites, run.seconds);
      return {};
    };
  options.import.custom_ops = o.custom_ops;
  options.import.constant_defaults = o.constant_defaults;
  options.aliases = o.aliases;
  for (const std::string &text : o.externs) {
    ExternOperator external;
    if (!parse_extern(text, external))
      return diagnostics.error(
          ErrorKind::kUsage,
          fmt::format("--extern {}: expected DOMAIN::OP or DOMAIN::OP=float[N,3],int64[N], a type for each result",
                      text));
    options.import.externs.push_back(std::move(external));
  }
  for (const std::string &text : o.dims) {
    DimPin pin;
    if (!parse_pin(text, pin))
      return diagnostics.error(ErrorKind::kUsage, fmt::format("--dim {}: expected NAME=VALUE or NAME=MIN..MAX", text));
    for (const DimPin &other : options.import.dims)
      if (other.name == pin.name && (other.min != pin.min || other.max != pin.max))
        return diagnostics.error(ErrorKind::kUsage, fmt::format("--dim {}: {} is given twice", text, pin.name));
    options.import.dims.push_back(pin);
  }
  for (const std::string &text : o.variants) {
    std::vector<DimPin> sizes;
    for (size_t from = 0; from <= text.size();) {
      const size_t to = std::min(text.find(',', from), text.size());
      DimPin pin;
      if (!parse_pin(text.substr(from, to - from), pin))
        return diagnostics.error(
            ErrorKind::kUsage,
            fmt::format("--variant {}: expected NAME=VALUE or NAME=MIN..MAX, comma-separated", text));
      for (const DimPin &other : sizes)
        if (other.name == pin.name)
          return diagnostics.error(ErrorKind::kUsage, fmt::format("--variant {}: {} is given twice", text, pin.name));
      sizes.push_back(pin);
      from = to + 1;
    }
    options.variants.push_back(std::move(sizes));
  }
  for (const std::string &text : o.shapes) {
    std::string name, dims;
    if (!split(text, '=', name, dims))
      return diagnostics.error(ErrorKind::kUsage, fmt::format("--shape {}: expected INPUT=1x3x224x224", text));
    std::vector<std::string> list;
    size_t from = 0;
    while (from <= dims.size() && !dims.empty()) {
      const size_t to = std::min(dims.find('x', from), dims.size());
      list.push_back(dims.substr(from, to - from));
      from = to + 1;
    }
    OPTC_TRY(add_once(options.import.shapes, "--shape", text, name, std::move(list), diagnostics));
  }
  return options;
}

Result<SizeByName> given_sizes(const CommonOptions &o, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const CompileOptions options, compile_options(o, diagnostics));
  SizeByName sizes;
  for (const DimPin &pin : options.import.dims)
    if (pin.min == pin.max) sizes[pin.name] = pin.min;
  return sizes;
}

Result<std::vector<std::pair<std::string, std::string>>> named_inputs(const CommonOptions &o,
                                                                      Diagnostics &diagnostics) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const std::string &text : o.inputs) {
    const size_t at = text.find("=@");
    if (at == std::string::npos || at == 0)
      return diagnostics.error(ErrorKind::kUsage, fmt::format("--input {}: expected NAME=@FILE", text));
    OPTC_TRY(add_once(list, "--input", text, text.substr(0, at), text.substr(at + 2), diagnostics));
  }
  return list;
}

static Result<InputSource> input_source(const CommonOptions &o, Diagnostics &diagnostics) {
  InputSource source;
  source.folder = o.inputs_folder;
  source.seed = o.seed;
  OPTC_ASSIGN(source.sizes, given_sizes(o, diagnostics));
  OPTC_ASSIGN(source.named, named_inputs(o, diagnostics));
  return source;
}

Result<Prepared> prepare(const CommonOptions &o, Listener &listener, Diagnostics &diagnostics) {
  OPTC_ASSIGN(CompileOptions compile, compile_options(o, diagnostics));
  if (o.engine == "evaluate" && !compile.variants.empty())
    return diagnostics.error(ErrorKind::kUsage, "--variant: a bundle has variants, --engine=evaluate has none");
  OPTC_TRY(check_runnable(compile, diagnostics));
  OPTC_ASSIGN(InputSource source, input_source(o, diagnostics));
  OPTC_ASSIGN(Graph model, load_model(o.model, compile, listener, diagnostics, &compile.weights));
  InputSets inputs(model, std::move(source));
  Prepared prepared{std::move(compile), std::move(model), std::move(inputs), o.model, nullptr};
  if (prepared.options.weights.format.bits > 0) {
    prepared.scratch = std::make_shared<const ScratchFolder>();
    if (prepared.scratch->path().empty()) return diagnostics.error(ErrorKind::kIo, "cannot make a temporary folder");
    prepared.file = prepared.scratch->path() + "/" + name_of_model(o.model) + ".onnx";
    Diagnostics quiet;  // of the opset that it is raised to
    const Status written = export_file(prepared.model, prepared.file, {}, quiet);
    for (const Diagnostic &d : quiet.all())
      if (d.severity == Severity::kError) (void)diagnostics.add(d);
    OPTC_TRY(written);
  }
  return prepared;
}

Result<InputSets> variant_inputs(const CommonOptions &o, const Prepared &prepared, const std::vector<DimPin> &variant,
                                 Diagnostics &diagnostics) {
  OPTC_ASSIGN(InputSource source, input_source(o, diagnostics));
  for (const DimPin &pin : variant) source.sizes[pin.name] = std::min(pin.max, std::max<int64_t>(pin.min, 1));
  return InputSets(prepared.model, std::move(source));
}

void report_inputs(const InputSet &set, const CommonOptions &o) {
  if (o.quiet || set.refused.empty()) return;
  const std::string taken = set.sizes.empty() ? "plain values" : describe(set.sizes);
  std::fprintf(stderr, "%-15s %s; %s\n", "inputs", taken.c_str(), set.refused.c_str());
}

void print_warnings(const Diagnostics &diagnostics, const CommonOptions &o) {
  std::fflush(stdout);
  if (o.quiet) return;
  for (const Diagnostic &d : diagnostics.all())
    if (d.severity != Severity::kWarning)
      continue;
    else if (o.format == "json")
      print_json(d);
    else
      std::fputs(format(d).c_str(), stderr);
}

namespace {

// The files that tell of a command that is over.
Status write_records(const Verb &verb, const CommonOptions &o, int code, Diagnostics &diagnostics) {
  if (!o.trace.empty()) OPTC_TRY(write_file(o.trace, o.record->trace(), diagnostics));
  if (o.report.empty()) return {};
  nlohmann::ordered_json options = nlohmann::ordered_json::object(), said = nlohmann::ordered_json::array();
  for (const auto &[name, values] : verb.given()) {
    if (values.size() == 1)
      options[name] = values[0];
    else
      options[name] = values;
  }
  for (const Diagnostic &d : diagnostics.all()) said.push_back(json_of(d));
  const nlohmann::ordered_json json{{"schema_version", 1},
                                    {"optc", kVersion},
                                    {"verb", verb.name()},
                                    {"options", options},
                                    {"exit_code", code},
                                    {"seconds", o.record->now()},
                                    {"steps", nlohmann::ordered_json::parse(o.record->json())},
                                    {"diagnostics", said}};
  return write_file(o.report, json_text(json), diagnostics);
}

}  // namespace

void on_parsed(Verb &verb, std::shared_ptr<CommonOptions> options, int &code,
               std::function<Status(Diagnostics &)> work) {
  verb.callback([&verb, options = std::move(options), &code, work = std::move(work)] {
    Diagnostics diagnostics(options->model);
    if (!options->trace.empty() || !options->report.empty()) options->record = std::make_shared<StepRecord>();
    Status status = options->save_config.empty() ? Status() : write_config(verb, options->save_config, diagnostics);
    if (status.ok()) status = work(diagnostics);
    code = status.ok() ? 0 : exit_code(status.failure().kind);
    const Status noted = write_records(verb, *options, code, diagnostics);
    if (status.ok()) status = noted;
    if (!status.ok())
      code = report(diagnostics, status.failure(), *options);
    else
      print_warnings(diagnostics, *options);
  });
}

int report(const Diagnostics &diagnostics, const Failure &failure, const CommonOptions &o) {
  std::fflush(stdout);  // what was printed stands before the error also where both go to one file
  const bool color = colored(o, STDERR_FILENO);
  if (isatty(STDERR_FILENO)) std::fputs("\r\x1b[K", stderr);
  bool said = false;
  for (const Diagnostic &d : diagnostics.all()) {
    if (d.severity == Severity::kWarning && o.quiet) continue;
    said = said || d.severity == Severity::kError;
    if (o.format == "json") {
      print_json(d);
      continue;
    }
    std::string text = format(d);
    if (color) {
      const size_t colon = text.find(':');
      text = (d.severity == Severity::kError ? "\x1b[1;31m" : "\x1b[1;33m") + text.substr(0, colon) + "\x1b[0m" +
             text.substr(colon);
    }
    std::fputs(text.c_str(), stderr);
  }
  if (!said) std::fprintf(stderr, "error[%s]: no reason was given\n", to_string(failure.kind));
  return exit_code(failure.kind);
}

std::string nearest(const std::string &word, const std::vector<std::string> &list) {
  std::string best;
  size_t least = word.size() / 3 + 1;  // as many letters may differ
  for (const std::string &known : list) {
    // Levenshtein's distance, a row at a time.
    std::vector<size_t> row(known.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        const size_t above = row[j];
        row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (word[i - 1] != known[j - 1])});
        diagonal = above;
      }
    }
    if (row.back() <= least && (best.empty() || row.back() < least)) {
      least = row.back();
      best = known;
    }
  }
  return best;
}

int run_usage_error(const std::string &message, const std::string &help) {
  std::fprintf(stderr, "error[usage]: %s\n", message.c_str());
  if (!help.empty()) std::fprintf(stderr, "  help: %s\n", help.c_str());
  return exit_code(ErrorKind::kUsage);
}

std::string file_name(const std::string &path) { return path.substr(path.find_last_of('/') + 1); }

void print(const std::string &text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace optc::cli
