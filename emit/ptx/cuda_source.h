#pragma once
// The GPU half of a bundle as C++: tables for runtime/cuda/session.h, with the PTX inside. Sees no LLVM, so that it is
// part of the compiler proper (library optc_cuda_source).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "emit/ptx/ptx.h"
#include "ir/program/device_schedule.h"
#include "ir/program/program.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct CudaSource {
  std::string source;  // src/cuda.cpp: defines `const optc::cuda::ModelTable &NAME_code::cuda_model()`
  std::vector<std::pair<BufferId, uint64_t>>
      constants;  // what the weights for the GPU hold, with offsets (multiples of 256)
  uint64_t weights_bytes = 0;
  size_t launches = 0;
  std::vector<BufferId> buffers;  // in the order of the table: what the host's schedule calls them by number
  DeviceSchedule schedule;
};

// Kernels without a GPU form run on the host between segments of launches, as the schedule says. Fails with
// kUnsupported, naming all of them, when no kernel has a GPU form. `watched`: each kernel is a segment of its own,
// whose results the host gets (DeviceSchedule::shown).
Result<CudaSource> print_cuda(const Program &program, const PtxOutput &ptx, const std::string &name,
                              Diagnostics &diagnostics, bool watched = false);

// The bytes of the GPU's weights: weights_bytes of them, given to `sink` in order.
template <typename Sink>
void each_cuda_weight(const Program &program, const CudaSource &source, const Sink &sink) {
  static const char kZeros[256] = {};
  uint64_t at = 0;
  auto fill = [&](uint64_t to) {
    while (at < to) {
      const uint64_t n = to - at < sizeof kZeros ? to - at : sizeof kZeros;
      sink(static_cast<const void *>(kZeros), n);
      at += n;
    }
  };
  for (const auto &[id, offset] : source.constants) {
    fill(offset);
    const Constant &c = program.buffer(id).constant;
    sink(static_cast<const void *>(c.data()), static_cast<uint64_t>(c.size()));
    at += c.size();
  }
  fill(source.weights_bytes);
}

}  // namespace optc
