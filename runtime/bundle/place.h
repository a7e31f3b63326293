// place.h: where the buffers of a run lie in the arena when their sizes are known only at run time. The order of the
// kernels, and with it first and last use, is fixed at compile time.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <vector>

namespace optc {

// One block after the other in the given order, each in the lowest gap between the placed ones that live at the same
// time (the smallest gap that fits). Offsets are multiples of 64. Returns the bytes of the arena.
static inline __attribute__((unused)) int64_t place_in_order(const std::vector<int32_t> &order, const int64_t *bytes,
                                                             const int32_t *first, const int32_t *last,
                                                             int64_t *offset) {
  std::vector<int32_t> placed;  // by offset
  int64_t total = 0;
  for (int32_t i : order) {
    const int64_t size = (bytes[i] + 63) / 64 * 64;
    int64_t at = 0, best = -1, best_gap = INT64_MAX;
    for (int32_t j : placed) {
      if (first[j] > last[i] || first[i] > last[j]) continue;
      const int64_t gap = offset[j] - at;
      if (gap >= size && gap < best_gap) best = at, best_gap = gap;
      at = std::max(at, offset[j] + (bytes[j] + 63) / 64 * 64);
    }
    offset[i] = best >= 0 ? best : at;
    total = std::max(total, offset[i] + size);
    if (size == 0) continue;
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), i, [&](int32_t a, int32_t b) { return offset[a] < offset[b]; }),
        i);
  }
  return total;
}

// Tries several orders, and stops where the arena is as large as what lives at one time. The same sizes give the same
// offsets.
static inline __attribute__((unused)) int64_t place(const int64_t *bytes, const int32_t *first, const int32_t *last,
                                                    int32_t count, int64_t *offset) {
  int32_t steps = 0;
  for (int32_t i = 0; i < count; ++i) steps = std::max(steps, last[i] + 1);
  std::vector<int64_t> live(static_cast<size_t>(steps) + 1), trial(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i)
    for (int32_t t = first[i]; t <= last[i]; ++t) live[static_cast<size_t>(t)] += (bytes[i] + 63) / 64 * 64;
  const int64_t bound = *std::max_element(live.begin(), live.end());
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::vector<double> weight(static_cast<size_t>(count));
  int64_t best = INT64_MAX;
  uint64_t state = 88172645463325252u;
  const int rounds = count > 1000 ? 4 : 64;
  for (int round = 0; round < rounds && best > bound; ++round) {
    for (int32_t i = 0; i < count; ++i) {
      const double size = static_cast<double>(bytes[i]), span = last[i] - first[i] + 1;
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      const double noise = 0.5 + static_cast<double>(state >> 40) / (1 << 24);
      weight[static_cast<size_t>(i)] = round == 0   ? size
                                       : round == 1 ? size * span
                                       : round == 2 ? span
                                       : round == 3 ? -first[i]
                                                    : size * noise;
      order[static_cast<size_t>(i)] = i;
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return weight[static_cast<size_t>(a)] > weight[static_cast<size_t>(b)];
    });
    const int64_t total = place_in_order(order, bytes, first, last, trial.data());
    if (total < best) {
      best = total;
      std::copy(trial.begin(), trial.end(), offset);
    }
  }
  return count ? best : 0;
}

}  // namespace optc
