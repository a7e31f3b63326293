// optc run MODEL: runs a model on given or random inputs and writes its outputs.

#include <fmt/format.h>

#include <filesystem>

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
  OPTC_ASSIGN(const CompileOptions options, compile_options(o, diagnostics));
  OPTC_ASSIGN(const SizeByName sizes, given_sizes(o, diagnostics));
  OPTC_ASSIGN(const auto named, named_inputs(o, diagnostics));
  const std::unique_ptr<Listener> listener = make_listener(o);
  OPTC_ASSIGN(const Graph model, load_model(o.model, options, *listener, diagnostics));
  std::vector<RuntimeValue> fallback;
  if (o.inputs_folder.empty()) {
    OPTC_ASSIGN(const SizeByName chosen, choose_sizes(model, sizes, 0, diagnostics));
    // What files give need not be made; only what is left may be of a kind that cannot.
    Diagnostics quiet;
    Result<std::vector<RuntimeValue>> random =
        random_inputs(model, chosen, o.seed, named.empty() ? diagnostics : quiet);
    if (random)
      fallback = *std::move(random);
    else if (named.empty())
      return random.failure();
  }
  OPTC_ASSIGN(const std::vector<RuntimeValue> inputs,
              read_inputs(model, o.inputs_folder, named, fallback, diagnostics));
  const Engine engine = o.engine == "evaluate" ? Engine::kEvaluate : Engine::kBundle;
  OPTC_ASSIGN(const std::vector<RuntimeValue> outputs,
              run_model(o.model, model, inputs, engine, o.threads, o.seed, options, *listener, diagnostics));
  const auto &ids = model.region(Graph::main()).outputs;
  if (outputs_folder.empty()) {
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
  return {};
}

}  // namespace

void add_run(CLI::App &app, int &code) {
  struct Options : CommonOptions {
    std::string outputs;
  };
  auto o = std::make_shared<Options>();
  CLI::App *verb = app.add_subcommand("run", "run a model on given or random inputs");
  add_model(*verb, *o);
  verb->add_option("--outputs", o->outputs, "a folder for output_0.pb, ...; without it the first elements are printed");
  add_run_options(*verb, *o);
  add_shape_options(*verb, *o);
  add_compile_options(*verb, *o);
  add_output_options(*verb, *o);
  verb->callback([o, &code] {
    Diagnostics diagnostics(o->model);
    const Status status = run(*o, o->outputs, diagnostics);
    if (!status.ok())
      code = report(diagnostics, status.failure(), *o);
    else
      print_warnings(diagnostics, *o);
  });
}

}  // namespace optc::cli
