#pragma once
// emit/ptx: Program -> PTX text and a table of launches. No type of LLVM appears here: the implementation lives in a
// module that is loaded when a GPU target is asked for (driver/), behind the factory at the end.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/program/program.h"
#include "ir/program/tensor_core.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// A tensor map of TMA over a buffer (a root), of `rank` dims, the contiguous one first: sizes in elements, strides of
// the others in bytes, and the box that one copy fetches, in the 128-byte swizzle.
struct PtxTensorMap {
  BufferId buffer;
  Dim byte_offset;
  ElementType type = ElementType::kFloat16;
  std::vector<Dim> extents, byte_strides;  // byte_strides[0] is not used
  std::vector<int> box;
  // im2col: box[1] are pixels, the corners of the walk and its steps in the two dims behind the first.
  struct Walk {
    std::vector<int64_t> lower, upper, steps;
  };
  std::optional<Walk> walk;
};

// One argument of a launch: the address of a buffer (a root: aliases are resolved into the kernel's indices), or the
// value of a symbol as a 32-bit integer, or the address of the workspace: kWorkspaceCounters 32-bit counters, zero
// before and after each launch, and then workspace_bytes of memory that holds nothing between launches; or the address
// of a 32-bit word that becomes 1 when an index that the model computes leaves its dimension; or a tensor map, 128
// bytes by value; or, where a symbol's place is not read, any 32-bit integer.
struct PtxArgument {
  enum class Kind : uint8_t { kBuffer, kSymbol, kWorkspace, kFault, kTensorMap, kUnread } kind = Kind::kBuffer;
  BufferId buffer;
  const DimSymbol *symbol = nullptr;
  PtxTensorMap map;
};

struct PtxLaunch {
  std::string function;  // entry in the PTX; launches with equal code share one
  Dim grid[3] = {Dim(1), Dim(1), Dim(1)};
  unsigned threads = 0;
  unsigned shared_bytes = 0;  // dynamic; above 48 KiB the runtime raises the function's limit
  int64_t workspace_bytes = 0;
  std::vector<PtxArgument> arguments;
};

// How one kernel of Program::order runs.
struct PtxKernel {
  KernelId kernel;
  bool on_gpu = false;
  std::string reason;  // why not, when it is not
  std::vector<PtxLaunch> launches;
  std::string form;  // "pointwise", "rows", "loops", "gemm.3xtf32 64x64x32", ...
  // The positions of the kernels whose launches do this one's work, too: an earlier one, or later ones each of whose
  // blocks computes for itself what this one writes.
  std::vector<size_t> joined;
};

struct PtxModule {
  std::string target;  // "sm_90a"
  std::string text;    // one PTX module with all kernels
};

struct PtxOutput {
  std::vector<PtxModule> modules;  // parallel to the targets asked for; the same entries in each
  std::vector<PtxKernel> kernels;  // parallel to Program::order
  std::string llvm_version;
};

struct PtxOptions {
  std::vector<std::string> targets;  // "sm_80", "sm_90a", ...
  bool watched = false;              // each kernel leaves its result in memory (DeviceSchedule::watched)
};

class PtxEmitter {
 public:
  virtual ~PtxEmitter() = default;
  virtual Result<PtxOutput> emit(const Program &program, const PtxOptions &options, Diagnostics &diagnostics) = 0;
};

}  // namespace optc

// The factory; the caller owns the result. The loadable module optc-ptx.so exports it as `optc_ptx_emitter`, to be
// looked up by name.
extern "C" optc::PtxEmitter *optc_make_ptx_emitter();
