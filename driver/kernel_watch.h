#pragma once
// A bundle that runs under the eyes of the evaluator, kernel by kernel (optc verify --per-kernel and --check-numerics).
// The bundle is built with a probe (runtime/bundle/probe.h) of the very Program that is given here. Kernels on a GPU
// are watched in host memory, to which the bundle then copies what they read and wrote (DeviceSchedule::shown).

#include <cstdint>
#include <functional>
#include <map>
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

struct KernelFinding;
struct WatchOptions {
  bool compare = true;    // each kernel with the evaluator, on the bundle's own inputs of that kernel
  bool numerics = false;  // look for NaNs and infinities
  // Ifs and loops as a whole, too: what they do themselves is copies and sizes. Rounding that grows over iterations
  // differs as well, so this is for bundles whose outputs are wrong though each kernel agrees.
  bool constructs = false;
  // Hears what is known should the bundle crash from here on: the kernel that begins, or the difference that was found.
  std::function<void(const KernelFinding &)> before_crash = {};
};

// What is wrong with one kernel.
struct KernelFinding {
  std::string kernel, note;
  std::vector<std::string> nodes;  // "Conv 'conv_3' (#12)"
  // "gemm", "conv.winograd4"; of a library call its function; on a GPU "gemm.3xtf32 64x64x32"; "if" and "loop"
  std::string strategy;
  std::string isa;                            // "avx512", "avx2", "base"; on a GPU "sm_90a"
  std::string output;                         // "relu_3 f32[1,64,56,56]"
  std::string problem;                        // "12 of 4096 elements differ"
  std::string index;                          // of the worst element, or of the first NaN
  double got = 0, expected = 0, allowed = 0;  // of the worst element; expected only where values are compared
};

// How far a kernel's floats are from the evaluator's, in the run and the output where that is the largest part of the
// output's range.
struct KernelDrift {
  std::string kernel, output;  // the output as in KernelFinding
  double largest = 0;          // difference
  double relative = 0;         // of the range; 0: the same numbers
};

struct WatchReport {
  int64_t compared = 0;                                           // runs of kernels
  std::set<uint32_t> kernels;                                     // the numbers of those that ran
  std::map<uint32_t, KernelDrift> drift;                          // of those with floats, by number
  std::vector<std::pair<std::string, std::string>> not_compared;  // kernel and reason
  std::optional<KernelFinding> difference;                        // the first kernel that differs
  std::optional<KernelFinding> nan, infinity;                     // the first kernel that makes one of none
  std::optional<KernelFinding> ended;                             // the kernel in which the run ended in an error
};

// What the bundle that is watched was made of.
struct WatchedProgram {
  std::shared_ptr<const Program> program;  // of a bundle that runs on a GPU, the one lowered for it
  std::vector<std::string> gpu_forms;      // parallel to its order: "" of a kernel on the CPU; empty: all are there
  bool tf32 = false;                       // f32 products on the GPU round their operands to TF32
};
// Runs the bundle once on these inputs, adding to `report`. A kernel differs also when it changes memory of another,
// and when it writes beyond the row scratch of a task or beyond the arena, behind which a pattern stands.
Status watch_bundle(const WatchedProgram &made_of, Bundle &bundle, const std::vector<RuntimeValue> &inputs,
                    const WatchOptions &options, WatchReport &report, Diagnostics &diagnostics);

// A model as a bundle to be watched, in the cache folder. It runs on the GPU where it has kernels for one.
struct WatchedBundle {
  WatchedProgram made_of;
  std::unique_ptr<Bundle> bundle;
};
Result<WatchedBundle> build_watched(const std::string &path, CompileOptions options, int threads, Listener &listener,
                                    Diagnostics &diagnostics);

}  // namespace optc
