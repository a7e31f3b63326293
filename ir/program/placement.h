#pragma once
// Offsets of memory blocks in one arena, by lifetime.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace optc {

struct MemoryBlock {
  int64_t bytes = 0;           // rounded up to multiples of 64 when it is placed
  size_t first = 0, last = 0;  // steps between which it lives, both included
  int64_t offset = -1;         // result, a multiple of 64
};

struct ArenaSize {
  int64_t bytes = 0;
  int64_t bound = 0;  // the largest sum of bytes that live at one step
};

// Greedy: block by block, each into the best-fitting gap among the placed ones that live at the same time (the gap
// search of TensorFlow Lite's simple memory arena), in several orders; stops when an order reaches the bound. The same
// blocks give the same offsets.
ArenaSize place_blocks(std::vector<MemoryBlock> &blocks);

}  // namespace optc
