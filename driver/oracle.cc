#include "driver/oracle.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "convert/convert.h"
#include "driver/places.h"
#include "driver/process.h"
#include "driver/tensor_file.h"
#include "support/file.h"
#include "support/staging.h"

namespace optc {
namespace {

constexpr size_t kLongestError = 600;  // ONNX Runtime quotes whole types and shapes

// ONNX Runtime reads binary models alone: one of another form is written into the scratch folder.
Result<std::string> binary_model(const std::string &model, const std::string &folder, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::open(model, diagnostics));
  if (form_of_file(model, file->text()) == ModelForm::kBinary) return model;
  ConvertOptions options;
  options.input = model;
  options.output = folder + "/model.onnx";
  options.form = ModelForm::kBinary;
  ConvertFacts facts;
  OPTC_TRY(convert_model(options, facts, diagnostics));
  return options.output;
}

std::string python_program() {
  const char *own = std::getenv("OPTC_PYTHON");
  return own && *own ? own : "python3";
}

}  // namespace

const char *to_string(Runtime runtime) { return runtime == Runtime::kOpenVino ? "OpenVINO" : "ONNX Runtime"; }

Result<std::string> oracle_python(Diagnostics &diagnostics, Runtime runtime) {
  const std::string package = runtime == Runtime::kOpenVino ? "openvino" : "onnxruntime";
  const std::string python = python_program();
  Diagnostics quiet;
  Result<ProcessResult> tried = run_process({python, "-c", "import " + package}, quiet);
  if (!tried || tried->status != 0)
    return diagnostics.error(ErrorKind::kIo,
                             fmt::format("{} is not there: {} cannot import {}", to_string(runtime), python, package),
                             {}, "set OPTC_PYTHON to a Python that has the package " + package);
  return python;
}

Result<OracleResult> run_oracle(const std::string &model, const Graph &graph, const std::vector<RuntimeValue> &inputs,
                                const OracleOptions &options, Diagnostics &diagnostics) {
  const bool openvino = options.runtime == Runtime::kOpenVino;
  const std::string runtime = to_string(options.runtime);
  ScratchFolder scratch;
  if (scratch.path().empty()) return diagnostics.error(ErrorKind::kIo, "cannot make a temporary folder");
  OPTC_ASSIGN(const std::string binary, binary_model(model, scratch.path(), diagnostics));
  const std::vector<ValueId> &names = graph.region(Graph::main()).inputs;
  std::vector<std::string> arguments = {python_program(),
                                        resource_path(openvino ? "tools/openvino_run.py" : "tools/ort_run.py"),
                                        binary,
                                        scratch.path(),
                                        fmt::format("--threads={}", options.threads),
                                        fmt::format("--iterations={}", options.iterations),
                                        fmt::format("--seconds={}", options.seconds)};
  if (openvino && !options.precision.empty()) arguments.push_back("--precision=" + options.precision);
  if (!openvino && options.optimize) arguments.push_back("--optimize");
  if (options.perturb >= 0) arguments.push_back(fmt::format("--perturb={}", options.perturb));
  if (!options.values.empty()) {
    const std::string file = scratch.path() + "/values.json";
    OPTC_TRY(write_file(file, nlohmann::json(options.values).dump(), diagnostics));
    arguments.push_back("--values=" + file);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].kind == RuntimeValue::Kind::kAbsent) continue;
    const bool numpy = inputs[i].kind == RuntimeValue::Kind::kTensor && has_numpy_type(inputs[i].tensor.type());
    const std::string file = fmt::format("{}/input_{}.{}", scratch.path(), i, numpy ? "npy" : "pb");
    OPTC_TRY(write_value(file, inputs[i], diagnostics));
    arguments.push_back(fmt::format("--input={}={}", graph.value(names[i]).name, file));
  }
  Diagnostics quiet;
  const Result<ProcessResult> started = run_process(arguments, quiet);
  // Whether the package is there takes a second to ask: only where something went wrong.
  if (!started || started->status != 0) OPTC_TRY(oracle_python(diagnostics, options.runtime));
  if (!started) {
    for (const Diagnostic &d : quiet.all()) (void)diagnostics.add(d);
    return started.failure();
  }
  const ProcessResult &run = *started;
  if (run.status != 0) {
    Diagnostic d;
    d.kind = ErrorKind::kIo;
    d.message = runtime + " could not run " + model;
    d.notes.push_back(last_lines(run.output, 6));
    return diagnostics.add(std::move(d));
  }
  OPTC_ASSIGN(const std::string text, read_file(scratch.path() + "/result.json", diagnostics));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return diagnostics.error(ErrorKind::kInternal, "the run of " + runtime + " wrote no JSON");
  if (json.contains("error")) {
    const bool loaded = json.value("stage", "") == "run";
    Diagnostic d;
    // Other inputs may suit; another model may not.
    d.kind = loaded ? ErrorKind::kUsage : ErrorKind::kIo;
    d.message = runtime + (loaded ? " refuses these inputs" : " cannot load the model");
    d.notes.push_back(json.value("error", "").substr(0, kLongestError));
    if (!loaded && !openvino) d.help = "--against=evaluate compares with the unoptimized model instead";
    return diagnostics.add(std::move(d));
  }
  OracleResult result;
  result.version = json.value("version", "");
  result.milliseconds = json.value("milliseconds", std::vector<double>());
  const std::vector<ValueId> &outputs = graph.region(Graph::main()).outputs;
  const auto files = json.value("outputs", std::vector<std::string>());
  for (size_t i = 0; i < files.size(); ++i) {
    const Type type = i < outputs.size() ? graph.value(outputs[i]).type : Type();
    OPTC_ASSIGN(RuntimeValue value, read_value(scratch.path() + "/" + files[i], type, diagnostics));
    result.outputs.push_back(std::move(value));
  }
  for (const auto &[name, file] : json.value("values", std::map<std::string, std::string>())) {
    OPTC_ASSIGN(const RuntimeValue value, read_value(scratch.path() + "/" + file, Type(), diagnostics));
    result.values[name] = value.tensor;
  }
  return result;
}

}  // namespace optc
