#pragma once
// Runs models: the built bundle, or the evaluator on the optimized and lowered Program.

#include <string>
#include <vector>

#include "driver/toolchain.h"

namespace optc {

enum class Engine : uint8_t { kBundle, kEvaluate };

// `model` is the import of `path` that the inputs were made for; both engines start from the same options.
Result<std::vector<RuntimeValue>> run_model(const std::string &path, const Graph &model,
                                            const std::vector<RuntimeValue> &inputs, Engine engine, int threads,
                                            uint64_t seed, const CompileOptions &options, Listener &listener,
                                            Diagnostics &diagnostics);

}  // namespace optc
