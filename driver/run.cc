#include "driver/run.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "driver/bisect.h"
#include "driver/bundle.h"
#include "driver/places.h"
#include "driver/step.h"
#include "ir/dim/range.h"

namespace optc {
namespace {

// What the model's signature says of its inputs, before anything is compiled for them: element types, ranks, and one
// size for each name of a dim.
Status check_inputs(const Graph &model, const std::vector<RuntimeValue> &inputs, Diagnostics &diagnostics) {
  const std::vector<ValueId> &ids = model.region(Graph::main()).inputs;
  std::map<const DimSymbol *, int64_t> sizes;
  const auto each_dim = [&](const auto &check) -> Status {
    for (size_t i = 0; i < ids.size() && i < inputs.size(); ++i) {
      const Type &type = model.value(ids[i]).type;
      if (inputs[i].kind != RuntimeValue::Kind::kTensor || !type.is_tensor()) continue;
      const Constant &tensor = inputs[i].tensor;
      const std::string name = "input '" + model.value(ids[i]).name + "'";
      if (tensor.type() != type.element)
        return diagnostics.error(ErrorKind::kUsage, fmt::format("{} has elements of type {}, expected {}", name,
                                                                to_string(tensor.type()), to_string(type.element)));
      if (!type.has_shape()) continue;
      if (tensor.rank() != type.rank())
        return diagnostics.error(
            ErrorKind::kUsage, fmt::format("{} has {} dims, expected {}", name, tensor.rank(), to_string(*type.shape)));
      for (size_t k = 0; k < type.shape->size(); ++k) OPTC_TRY(check(name, k, (*type.shape)[k], tensor.dims()[k]));
    }
    return {};
  };
  OPTC_TRY(each_dim([&](const std::string &, size_t, Dim dim, int64_t size) -> Status {
    const DimSymbol *symbol = single_symbol(dim);
    if (!symbol || !sizes.emplace(symbol, size).second) return {};
    if (size >= symbol->min && size <= symbol->max) return {};
    return diagnostics.error(
        ErrorKind::kUsage, fmt::format("dim '{}' is {}, the model takes {}", symbol->name, size, range_text(*symbol)));
  }));
  const DimValues value = [&](const DimSymbol &symbol) -> std::optional<int64_t> {
    const auto known = sizes.find(&symbol);
    return known == sizes.end() ? std::nullopt : std::optional<int64_t>(known->second);
  };
  return each_dim([&](const std::string &name, size_t axis, Dim dim, int64_t size) -> Status {
    const std::optional<int64_t> expected = evaluate(dim, value);
    if (!expected || *expected == size) return {};
    return diagnostics.error(ErrorKind::kUsage,
                             fmt::format("{}: dim {} is {}, expected {}{}", name, axis, size, dim.str(),
                                         dim.is_constant() ? "" : fmt::format(" = {}", *expected)));
  });
}

}  // namespace

Result<std::vector<RuntimeValue>> run_model(const std::string &path, const Graph &model,
                                            const std::vector<RuntimeValue> &inputs, Engine engine, int threads,
                                            uint64_t seed, const CompileOptions &options, Listener &listener,
                                            Diagnostics &diagnostics) {
  OPTC_TRY(check_inputs(model, inputs, diagnostics));
  if (engine == Engine::kEvaluate) {
    OPTC_ASSIGN(const Optimized optimized, optimize_model(model.clone(), options, listener, diagnostics));
    OPTC_ASSIGN(const Program program, lower_model(optimized.graph, after_rewrites(options, optimized), listener,
                                                   diagnostics, has_gpu_target(options)));
    Step step(listener, "evaluate");
    EvaluateOptions evaluate_options;
    evaluate_options.seed = seed;
    evaluate_options.as_lowered = true;
    evaluate_options.max_bytes = memory_bytes();
    evaluate_options.progress = [&](int64_t done, int64_t total) { listener.progress(done, total); };
    OPTC_ASSIGN(std::vector<RuntimeValue> outputs, evaluate(program, inputs, evaluate_options, diagnostics));
    step.end(fmt::format("{} kernels", program.order.size()));
    return outputs;
  }
  OPTC_ASSIGN(const BuiltBundle built, build_model(path, options, listener, diagnostics));
  Step step(listener, "run");
  BundleRunOptions run_options;
  run_options.threads = threads;
  run_options.cuda = has_gpu_half(built.folder);
  const std::string weights = built.folder + "/" + built.name + ".weights";
  if (exists(weights)) run_options.weights_path = weights;
  OPTC_ASSIGN(const auto bundle, Bundle::load(built.library, built.name, run_options, diagnostics));
  OPTC_ASSIGN(std::vector<RuntimeValue> outputs, bundle->run(inputs, diagnostics));
  step.end(run_options.cuda ? "on the GPU" : fmt::format("{} thread{}", threads, threads == 1 ? "" : "s"));
  return outputs;
}

}  // namespace optc
