#pragma once
// The GPU half of a bundle: the Program for GPU targets through optc-ptx.so, the module with LLVM, which is loaded only
// here.

#include <optional>
#include <string>

#include "driver/toolchain.h"
#include "emit/cpp/emit.h"

namespace optc {

bool is_gpu_target(const std::string &target);  // "sm_80", "sm_90a": a row of ir/program/gpu_machine.h
// Kernels without a GPU form run on the CPU between the others. Empty, with a warning, where no kernel has a GPU form:
// the bundle then runs on the CPU. kIo when the module is not installed.
// `kept`: as lower_model gives it.
Result<std::optional<BundleCuda>> gpu_half(const Graph &graph, const std::string &name, const CompileOptions &options,
                                           Listener &listener, Diagnostics &diagnostics,
                                           std::vector<std::pair<std::string, std::string>> *kept = nullptr);

}  // namespace optc
