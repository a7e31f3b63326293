#include "driver/run.h"

#include <fmt/format.h>

#include "driver/bundle.h"
#include "driver/places.h"
#include "driver/step.h"

namespace optc {

Result<std::vector<RuntimeValue>> run_model(const std::string &path, const Graph &model,
                                            const std::vector<RuntimeValue> &inputs, Engine engine, int threads,
                                            uint64_t seed, const CompileOptions &options, Listener &listener,
                                            Diagnostics &diagnostics) {
  if (engine == Engine::kEvaluate) {
    OPTC_ASSIGN(const Optimized optimized, optimize_model(model.clone(), options, listener, diagnostics));
    OPTC_ASSIGN(const Program program, lower_model(optimized.graph, options, listener, diagnostics));
    Step step(listener, "evaluate");
    EvaluateOptions evaluate_options;
    evaluate_options.seed = seed;
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
  for (const std::string &target : options.targets) run_options.cuda = run_options.cuda || target.rfind("sm_", 0) == 0;
  const std::string weights = built.folder + "/" + built.name + ".weights";
  if (exists(weights)) run_options.weights_path = weights;
  OPTC_ASSIGN(const auto bundle, Bundle::load(built.library, built.name, run_options, diagnostics));
  OPTC_ASSIGN(std::vector<RuntimeValue> outputs, bundle->run(inputs, diagnostics));
  step.end(fmt::format("{} thread{}", threads, threads == 1 ? "" : "s"));
  return outputs;
}

}  // namespace optc
