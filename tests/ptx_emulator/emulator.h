#pragma once
// Runs the PTX that emit/ptx writes, without a card: threads of a warp in lock-step (the lowest program counter first),
// warps in random order, asynchronous copies landing as late as is legal, shared memory poisoned, every access checked
// against the memory that was declared. A launch that may start while the one before it runs (`chained`) may neither
// touch what launches before it stored nor store anything until griddepcontrol.wait, and ld.global.nc may read nothing
// that it or one of them stored: PTX promises nobody's view of such memory there. Only the opcodes that we emit are
// known; an unknown one is an error when the module is loaded. Semantics: PTX ISA 8.0.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace optc::testing {

struct PtxFunction;

class PtxEmulator {
 public:
  // Throws std::runtime_error with the line on anything it does not know.
  explicit PtxEmulator(const std::string &text);
  ~PtxEmulator();
  PtxEmulator(const PtxEmulator &) = delete;
  PtxEmulator &operator=(const PtxEmulator &) = delete;

  // Host memory that kernels may read, and write if `writable`. Device addresses are host addresses.
  void add_memory(void *data, size_t bytes, bool writable);

  struct Launch {
    std::string function;
    int64_t grid[3] = {1, 1, 1};
    unsigned threads = 1, shared_bytes = 0;
    std::vector<uint64_t> arguments;
    uint64_t seed = 1;     // of the order in which warps run
    bool chained = false;  // may start before the end of the launch before it
  };
  // Throws std::runtime_error on a fault: access out of bounds, misaligned, divergence at a warp-wide instruction, a
  // barrier that hangs.
  void run(const Launch &launch);
  // What a copy wrote: no launch did, and the copy is over before the next one starts.
  void written_by_copy(uintptr_t address, size_t bytes);

 private:
  struct Range {
    uintptr_t begin, end;
    bool writable;
  };
  friend class PtxBlock;
  std::map<std::string, std::unique_ptr<PtxFunction>> functions_;
  std::vector<Range> ranges_;
  std::unordered_set<uintptr_t> stored_;  // 4-byte words that the launches of the current chain stored
};

}  // namespace optc::testing
