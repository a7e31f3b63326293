#pragma once
// The constants of a bundle, each content once, whatever reads it: the one numbering of all Programs that share a
// weights file.

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/constant.h"

namespace optc {

class WeightPool {
 public:
  // Where the bytes of `c` lie in the weights file: an offset behind its header of 64 bytes, a multiple of 64. The pool
  // keeps the constant alive.
  uint64_t add(const Constant &c);

  uint64_t bytes() const { return bytes_; }  // of the file so far, header included; 0: no constant was added
  const std::vector<std::pair<Constant, uint64_t>> &parts() const { return parts_; }  // by ascending offset

 private:
  uint64_t bytes_ = 0;
  std::vector<std::pair<Constant, uint64_t>> parts_;
  struct Place {
    uint64_t size, offset;
  };
  std::unordered_map<const void *, Place> known_;               // by address of bytes that the pool keeps alive
  std::unordered_map<uint64_t, std::vector<size_t>> by_start_;  // parts by size and first bytes
};

}  // namespace optc
