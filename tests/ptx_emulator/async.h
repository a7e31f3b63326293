#pragma once
// What runs beside the threads of a block on sm_90a: barriers in shared memory that count arrivals and bytes, copies by
// tensor maps, and products of warpgroups, which read shared memory and hold registers until they are waited for.
// Copies land as late as is legal or at any time before, products count as unread until their wait: what touches
// shared memory or registers in between is a fault. Faults are PtxFault, with the reason alone.

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "tests/ptx_emulator/program.h"
#include "tests/ptx_emulator/tensor_map.h"

namespace optc::testing {

class PtxAsync {
 public:
  PtxAsync(std::vector<uint8_t> &shared, unsigned threads);

  // Counts up with each phase that a barrier completes: whoever waits looks again.
  uint64_t version() const { return version_; }

  void barrier_init(uint64_t at, uint64_t arrivals);
  void barrier_fence() { fenced_ = true; }
  void barrier_arrive(uint64_t at, uint64_t bytes);  // having added so many bytes to what the phase expects
  bool barrier_passed(uint64_t at, uint64_t parity);

  // `read` gives the bytes of an address in global memory, checked. offsets: of an image's copy, in its dims of space.
  using Read = std::function<const uint8_t *(uint64_t address, unsigned bytes)>;
  void copy(uint64_t to, const EmulatedTensorMap &map, std::vector<int32_t> coordinates, std::vector<uint32_t> offsets,
            uint64_t barrier, Read read);
  bool copies() const { return !copies_.empty(); }
  void land(size_t which);  // a copy that is under way
  size_t copy_count() const { return copies_.size(); }

  // A warp's rows of m64nNk16: sums[16][n] += A[16][16] * B[16][n]. rows: the warp's first row of the 64.
  void multiply(unsigned warp, PtxType type, unsigned n, uint64_t a, bool a_across, uint64_t b, bool b_across,
                std::vector<float> &sums, bool accumulate);
  void fence(unsigned warp) { warps_[warp].fenced = true; }
  void commit(unsigned warp);
  void wait(unsigned warp, size_t pending);
  uint64_t open_group(unsigned warp) const { return warps_[warp].group; }
  bool done(unsigned warp, uint64_t group) const { return group <= warps_[warp].completed; }

  // Faults where an access of a thread meets a copy or a product that is under way.
  void touch(uint64_t at, unsigned bytes, bool write) const;

 private:
  static constexpr uint64_t kLine = 128;
  struct Barrier {
    uint64_t arrivals = 0, missing = 0, phases = 0;
    int64_t bytes = 0;
  };
  struct Copy {
    uint64_t to, barrier;
    EmulatedTensorMap map;
    std::vector<int32_t> coordinates;
    std::vector<uint32_t> offsets;
    Read read;
    uint64_t bytes;
  };
  struct Warp {
    uint64_t group = 1, completed = 0;
    bool fenced = false;
    std::vector<std::pair<uint64_t, uint64_t>> reading;  // group and line
  };
  Barrier &barrier(uint64_t at);
  static std::vector<std::vector<int64_t>> lines(const Copy &copy);
  void settle(Barrier &b);
  uint16_t element(unsigned warp, uint64_t descriptor, bool across, unsigned outer, unsigned k);

  std::vector<uint8_t> &shared_;
  std::map<uint64_t, Barrier> barriers_;
  std::vector<Copy> copies_;
  std::vector<Warp> warps_;
  std::vector<unsigned> landing_, readers_;  // by line: copies to it, products of it
  bool fenced_ = false;
  uint64_t version_ = 1;
};

}  // namespace optc::testing
