#pragma once
// emit/cpp: Program -> bundle: a folder of C++17 source, weights and glue that builds without a framework
// (docs/architecture.md "emit and runtime"). Deterministic to the byte.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "emit/quantized_weights.h"
#include "ir/program/device_schedule.h"
#include "ir/program/placement.h"
#include "ir/program/program.h"
#include "ir/program/schedule_choice.h"
#include "ir/program/uses.h"
#include "support/diagnostics.h"
#include "support/result.h"
#include "support/staging.h"

namespace optc {

// The GPU half, as emit/ptx printed it: it goes into the same library and the same weights file.
struct BundleCuda {
  std::vector<std::string> targets;                      // "sm_90a", ...
  std::string source;                                    // src/cuda.cpp: defines NAME_code::cuda_model()
  std::vector<std::pair<Constant, uint64_t>> constants;  // with offsets in the GPU's part of the weights, ascending
  uint64_t weights_bytes = 0;
  std::vector<std::pair<std::string, std::string>>
      ptx;  // file name in kernels/, text: for reading; cuda.cpp holds the same
  // The GPU's Program, where its kernels run, and the buffers in the order of cuda.cpp's table. Some kernels may have
  // no GPU form: src/model.cpp then has a second schedule for the host.
  std::shared_ptr<const Program> program;
  DeviceSchedule schedule;
  std::vector<BufferId> buffers;
  std::vector<std::string>
      forms;  // parallel to the Program's order: "pointwise", "gemm.3xtf32 64x64x32"; "" on the CPU
  std::vector<ScheduleChoice> choices;  // what lowering weighed, by kernel
};

// A symbolic dim of the model and the sizes of it that something is for.
struct SizeRange {
  std::string name;
  int64_t min = 0, max = 0;
};
std::string to_string(const std::vector<SizeRange> &sizes);  // "N=1,S=1..64"

// An entry of a bundle that takes the runs whose sizes lie in its ranges: the same model, lowered for those alone.
struct BundleVariant {
  std::vector<SizeRange> sizes;
  const Program *program = nullptr;
  std::vector<ScheduleChoice> choices;  // as BundleOptions'
};

struct BundleOptions {
  std::string name;  // a C identifier; empty: the model's name
  enum class Weights : uint8_t {
    kFile,   // NAME.weights beside the library, mapped
    kEmbed,  // linked into the library
    kStrip,  // not written: the application gives them by read_weights
  } weights = Weights::kFile;
  std::string
      runtime_folder;    // where runtime/optc.h, runtime/cpu and runtime/bundle lie (the folder that holds "optc.h")
  std::string compiler;  // "optc 0.1.0", for headers and manifest
  std::string precision = "f32";        // how f32 tensors are stored, for the manifest
  QuantizedWeights weights_quantized;   // for the manifest
  std::vector<std::string> passes;      // what the optimizer did, for the manifest
  std::vector<ScheduleChoice> choices;  // what lowering weighed, for the manifest
  const BundleCuda *cuda = nullptr;     // null: CPU only
  std::vector<BundleVariant> variants;  // tried in this order before the general Program
  // Calls NAME_set_probe's function before and after each kernel (runtime/bundle/probe.h). For optc itself.
  bool probe = false;
};

struct BundleReport {
  size_t kernels = 0, files = 0;
  uint64_t weights_bytes = 0;
  MemoryPlan memory;
  std::vector<MemoryPlan> variants;  // in the order of the options
};

// Writes the bundle's files into `directory` (commit is the caller's). Fails with kUnsupported, naming the nodes, for
// what has no C++ form.
Result<BundleReport> emit_bundle(const Program &program, const BundleOptions &options, StagedDirectory &directory,
                                 Diagnostics &diagnostics);

// The memory that the bundle of a Program takes, without writing it.
Result<MemoryPlan> plan_memory(const Program &program, Diagnostics &diagnostics);

// The buffers whose places a probe tells of a kernel, in its order: roots of what it reads and writes, without
// constants, scratch and objects. Of control flow: what it and its bodies read of others, and its outputs.
std::vector<BufferId> probed_buffers(const Program &program, const Uses &uses, const Kernel &kernel);

// The text of one kernel's function, as a bundle holds it.
Result<std::string> print_kernel(const Program &program, const Kernel &kernel, Diagnostics &diagnostics);

}  // namespace optc
