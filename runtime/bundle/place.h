// place.h: where the buffers of a run lie in the arena when their sizes are known only at run time. The order of the
// kernels, and with it first and last use, is fixed at compile time.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <vector>

namespace optc {

// Greedy by size: the largest buffer first, each in the lowest gap between the placed buffers that live at the same
// time (the smallest gap that fits). Offsets are multiples of 64. Returns the bytes of the arena.
static inline __attribute__((unused)) int64_t place(const int64_t *bytes, const int32_t *first, const int32_t *last,
                                                    int32_t count, int64_t *offset) {
  std::vector<int32_t> order(static_cast<size_t>(count)), placed, alive;
  for (int32_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return bytes[a] > bytes[b]; });
  int64_t total = 0;
  for (int32_t i : order) {
    const int64_t size = (bytes[i] + 63) / 64 * 64;
    alive.clear();
    for (int32_t j : placed)
      if (first[j] <= last[i] && first[i] <= last[j] && bytes[j] > 0) alive.push_back(j);
    std::sort(alive.begin(), alive.end(), [&](int32_t a, int32_t b) { return offset[a] < offset[b]; });
    int64_t at = 0, best = -1, best_gap = INT64_MAX;
    for (int32_t j : alive) {
      const int64_t gap = offset[j] - at;
      if (gap >= size && gap < best_gap) best = at, best_gap = gap;
      at = std::max(at, offset[j] + (bytes[j] + 63) / 64 * 64);
    }
    offset[i] = best >= 0 ? best : at;
    total = std::max(total, offset[i] + size);
    placed.push_back(i);
  }
  return total;
}

}  // namespace optc
