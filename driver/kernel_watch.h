#pragma once
// A bundle that runs under the eyes of the evaluator, kernel by kernel (optc verify --per-kernel and --check-numerics).
// The bundle is built with a probe (runtime/bundle/probe.h) of the very Program that is given here.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/bundle.h"
#include "driver/toolchain.h"
#include "ir/program/program.h"

namespace optc {

struct WatchOptions {
  bool compare = true;    // each kernel with the evaluator, on the bundle's own inputs of that kernel
  bool numerics = false;  // look for NaNs and infinities
};

// What is wrong with one kernel.
struct KernelFinding {
  std::string kernel, note;
  std::vector<std::string> nodes;             // "Conv 'conv_3' (#12)"
  std::string strategy;                       // "gemm", "conv.winograd4"; of a library call its function
  std::string isa;                            // "avx512", "avx2", "base"
  std::string output;                         // "relu_3 f32[1,64,56,56]"
  std::string problem;                        // "12 of 4096 elements differ"
  std::string index;                          // of the worst element, or of the first NaN
  double got = 0, expected = 0, allowed = 0;  // of the worst element; expected only where values are compared
};

struct WatchReport {
  int64_t compared = 0;                                           // runs of kernels
  std::set<uint32_t> kernels;                                     // the numbers of those that ran
  std::vector<std::pair<std::string, std::string>> not_compared;  // kernel and reason
  std::optional<KernelFinding> difference;                        // the first kernel that differs
  std::optional<KernelFinding> nan, infinity;                     // the first kernel that makes one of none
};

// Runs the bundle once on these inputs, adding to `report`. A kernel differs also when it changes memory of another.
Status watch_bundle(const Program &program, Bundle &bundle, const std::vector<RuntimeValue> &inputs,
                    const WatchOptions &options, WatchReport &report, Diagnostics &diagnostics);

// A model as a bundle to be watched, in the cache folder, and the Program that it is made of.
struct WatchedBundle {
  Program program;
  std::unique_ptr<Bundle> bundle;
};
Result<WatchedBundle> build_watched(const std::string &path, CompileOptions options, int threads, Listener &listener,
                                    Diagnostics &diagnostics);

}  // namespace optc
