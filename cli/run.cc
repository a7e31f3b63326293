// optc run MODEL: runs a model on given or random inputs and writes its outputs.

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "driver/run.h"
#include "driver/tensor_file.h"

namespace optc::cli {
namespace {

std::string preview(const RuntimeValue &value) {
  if (value.kind != RuntimeValue::Kind::kTensor) return fmt::format("{} elements", value.items.size());
  const Constant &tensor = value.tensor;
  std::string text = fmt::format("{}{}", to_string(tensor.type()), to_string(tensor.shape()));
  const int64_t shown = std::min<int64_t>(tensor.count(), 6);
  for (int64_t i = 0; i < shown; ++i) {
    text += i == 0 ? "  " : " ";
    if (tensor.type() == ElementType::kString) {
      text += '"' + tensor.string_values()[i] + '"';
    } else if (is_complex(tensor.type())) {
      text += "(complex)";
    } else if (is_float(tensor.type())) {
      text += fmt::format("{:.6g}", tensor.as_double(i));
    } else {
      text += fmt::format("{}", tensor.as_int64(i));
    }
  }
  return text + (tensor.count() > shown ? " ..." : "");
}

Status run(const CommonOptions &o, const std::string &outputs_folder, Diagnostics &diagnostics) {
  const std::unique_ptr<Listener> listener = make_listener(o);
  OPTC_ASSIGN(Prepared prepared, prepare(o, *listener, diagnostics));
  const Graph &model = prepared.model;
  const Engine engine = o.engine == "evaluate" ? Engine::kEvaluate : Engine::kBundle;
  std::vector<RuntimeValue> outputs;
  const auto run = [&](const InputSet &set, Diagnostics &said) -> Status {
    OPTC_ASSIGN(outputs,
                run_model(o.model, model, set.values, engine, o.threads, o.seed, prepared.options, *listener, said));
    return {};
  };
  OPTC_ASSIGN(const InputSet inputs, prepared.inputs.fitting(model, 0, run, diagnostics));
  report_inputs(inputs, o);
  const auto &ids = model.region(Graph::main()).outputs;
  if (o.format == "json") {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (size_t i = 0; i < outputs.size(); ++i) {
      nlohmann::ordered_json one{{"name", model.value(ids[i]).name}};
      if (outputs[i].kind == RuntimeValue::Kind::kTensor) {
        one["type"] = to_string(outputs[i].tensor.type());
        one["shape"] = outputs[i].tensor.dims();
      } else {
        one["elements"] = outputs[i].items.size();
      }
      if (!outputs_folder.empty()) one["file"] = fmt::format("{}/output_{}.pb", outputs_folder, i);
      list.push_back(std::move(one));
    }
    print(nlohmann::ordered_json{{"schema_version", 1}, {"outputs", list}}.dump(
              2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
  }
  if (outputs_folder.empty()) {
    if (o.format == "json") return {};
    for (size_t i = 0; i < outputs.size(); ++i)
      print(fmt::format("{}  {}\n", model.value(ids[i]).name, preview(outputs[i])));
    return {};
  }
  std::error_code error;
  std::filesystem::create_directories(outputs_folder, error);
  if (error)
    return diagnostics.error(ErrorKind::kIo, fmt::format("cannot make {}: {}", outputs_folder, error.message()));
  for (size_t i = 0; i < outputs.size(); ++i)
    OPTC_TRY(write_value(fmt::format("{}/output_{}.pb", outputs_folder, i), outputs[i], diagnostics));
  if (!o.quiet && o.format == "text")
    print(fmt::format("wrote {} output{} to {}/\n", outputs.size(), outputs.size() == 1 ? "" : "s", outputs_folder));
  return {};
}

}  // namespace

void add_run(CommandLine &line, int &code) {
  struct Options : CommonOptions {
    std::string outputs;
  };
  auto o = std::make_shared<Options>();
  Verb *verb = line.add_verb("run", "run a model on given or random inputs");
  verb->footer("Example: optc run model.onnx --input x=@x.npy --outputs out");
  add_model(*verb, *o);
  verb->add_option("--outputs", o->outputs, "a folder for output_0.pb, ...; without it the first elements are printed")
      ->type_name("DIR");
  add_run_options(*verb, *o);
  add_engine(*verb, *o);
  add_shape_options(*verb, *o);
  add_compile_options(*verb, *o);
  add_step_options(*verb, *o);
  add_output_options(*verb, *o);
  on_parsed(*verb, o, code, [o](Diagnostics &diagnostics) { return run(*o, o->outputs, diagnostics); });
}

}  // namespace optc::cli
