#pragma once
// Bundles at run time: builds one with the system's CMake and C++ compiler, loads the library and runs it through the C
// ABI (runtime/optc.h), as any host would.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "evaluate/evaluate.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct ProbeEvent;  // runtime/bundle/probe.h

// Configures and builds the bundle in `bundle` (absolute or relative path) as a shared library below `build`; returns
// its path. The compiler is CMake's choice ($CXX). A build folder of an earlier call is used again. kIo when CMake or a
// compiler is not there, kInternal when the compiler refuses what optc wrote (its last lines are a note).
Result<std::string> build_bundle(const std::string &bundle, const std::string &name, const std::string &build,
                                 Diagnostics &diagnostics);

// Whether the bundle in this folder has kernels for GPUs: where no kernel has a GPU form, one that was asked for them
// has none and runs on the CPU.
bool has_gpu_half(const std::string &bundle);

struct BundleRunOptions {
  int threads = 1;           // 0: the physical cores
  bool cuda = false;         // run on the first NVIDIA card; kIo where there is none, or has_gpu_half does not hold
  std::string weights_path;  // empty: where the bundle looks by itself
};

class Bundle {
 public:
  // Loads the library, its weights and a context. Not thread-safe.
  static Result<std::unique_ptr<Bundle>> load(const std::string &library, const std::string &name,
                                              const BundleRunOptions &options, Diagnostics &diagnostics);
  ~Bundle();
  Bundle(const Bundle &) = delete;
  Bundle &operator=(const Bundle &) = delete;

  // Inputs and outputs in the model's order. A fault of the model is kFault, wrong inputs kUsage.
  Result<std::vector<RuntimeValue>> run(const std::vector<RuntimeValue> &inputs, Diagnostics &diagnostics);
  // Runs `warmup` times, then until `seconds` have passed or `iterations` are done, at least three times; milliseconds
  // of each run.
  Result<std::vector<double>> time(const std::vector<RuntimeValue> &inputs, int warmup, int iterations, double seconds,
                                   Diagnostics &diagnostics);
  // Milliseconds by kernel of the last profiled run, as the bundle's JSON; empty when the bundle has no profile.
  Result<std::string> profile(const std::vector<RuntimeValue> &inputs, int iterations, Diagnostics &diagnostics);
  std::string manifest() const;
  // Of a bundle that is built with a probe (BundleOptions::probe): calls `function` before and after each kernel; null
  // ends it. kUsage where it has none.
  Status watch(void (*function)(void *user, const ProbeEvent *event), void *user, Diagnostics &diagnostics);

 private:
  Bundle();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace optc
