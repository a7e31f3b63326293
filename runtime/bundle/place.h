// place.h: where blocks of memory lie in one arena, by lifetime. The one search of all planners: lowering places
// constant sizes with it, a bundle those that depend on its dims, on the CPU and on a GPU. Which blocks there are, and
// the steps (positions in the order of kernels) between which each lives, is fixed at compile time.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <vector>

namespace optc {

// The placed blocks by the steps in which they live: a binary tree over the steps, where a block stands at the largest
// nodes that its lifetime covers. What lives with a block is found without asking all others.
class PlaceTimeline {
 public:
  explicit PlaceTimeline(int32_t steps) {
    while (leaves_ < steps) leaves_ *= 2;
  }
  void clear(size_t blocks) {
    head_.assign(static_cast<size_t>(leaves_) * 2, -1);
    below_.assign(static_cast<size_t>(leaves_) * 2, 0);
    entries_.clear();
    seen_.assign(blocks, -1);
  }
  void add(int32_t block, int32_t first, int32_t last) {
    for (int32_t l = first + leaves_, r = last + leaves_ + 1; l < r; l /= 2, r /= 2) {
      if (l & 1) put(l++, block);
      if (r & 1) put(--r, block);
    }
  }
  // Appends every added block that lives in a step of [first, last], once.
  void collect(int32_t block, int32_t first, int32_t last, std::vector<int32_t> &out) {
    visit(1, 0, leaves_ - 1, block, first, last, out);
  }

 private:
  struct Entry {
    int32_t block, next;
  };
  void put(int32_t node, int32_t block) {
    entries_.push_back({block, head_[static_cast<size_t>(node)]});
    head_[static_cast<size_t>(node)] = static_cast<int32_t>(entries_.size()) - 1;
    for (node /= 2; node > 0 && !below_[static_cast<size_t>(node)]; node /= 2) below_[static_cast<size_t>(node)] = 1;
  }
  void visit(int32_t node, int32_t low, int32_t high, int32_t asks, int32_t first, int32_t last,
             std::vector<int32_t> &out) {
    if (high < first || last < low) return;
    for (int32_t e = head_[static_cast<size_t>(node)]; e >= 0; e = entries_[static_cast<size_t>(e)].next) {
      const int32_t block = entries_[static_cast<size_t>(e)].block;
      if (seen_[static_cast<size_t>(block)] == asks) continue;
      seen_[static_cast<size_t>(block)] = asks;
      out.push_back(block);
    }
    if (!below_[static_cast<size_t>(node)]) return;
    const int32_t middle = low + (high - low) / 2;
    visit(2 * node, low, middle, asks, first, last, out);
    visit(2 * node + 1, middle + 1, high, asks, first, last, out);
  }

  int32_t leaves_ = 1;
  std::vector<int32_t> head_;   // by node: its last entry
  std::vector<uint8_t> below_;  // by node: whether a node under it has entries
  std::vector<Entry> entries_;
  std::vector<int32_t> seen_;  // by block: who asked last
};

// One block after the other in the given order, each in the smallest gap that holds it between the placed ones that
// live at the same time, else above them (the gap search of TensorFlow Lite's simple memory arena). Returns the bytes
// of the arena.
static inline __attribute__((unused)) int64_t place_in_order(const std::vector<int32_t> &order, const int64_t *sizes,
                                                             const int32_t *first, const int32_t *last, int64_t *offset,
                                                             PlaceTimeline &timeline) {
  std::vector<int32_t> beside;
  int64_t total = 0;
  timeline.clear(order.size());
  for (int32_t i : order) {
    const int64_t size = sizes[i];
    beside.clear();
    timeline.collect(i, first[i], last[i], beside);
    std::sort(beside.begin(), beside.end(),
              [&](int32_t a, int32_t b) { return offset[a] != offset[b] ? offset[a] < offset[b] : a < b; });
    int64_t at = 0, best = -1, best_gap = INT64_MAX;
    for (int32_t j : beside) {
      const int64_t gap = offset[j] - at;
      if (gap >= size && gap < best_gap) best = at, best_gap = gap;
      at = std::max(at, offset[j] + sizes[j]);
    }
    offset[i] = best >= 0 ? best : at;
    total = std::max(total, offset[i] + size);
    if (size > 0) timeline.add(i, first[i], last[i]);
  }
  return total;
}

// Places `count` blocks, of which block i has bytes[i] and lives in the steps first[i] to last[i], both included: tries
// several orders, and stops where the arena is as large as the largest sum of bytes (in multiples of 64) that live at
// one step, which is `*bound` where that is asked for. Fills offset[0..count), multiples of 64; returns the bytes of
// the arena. The same blocks give the same offsets. Sizes beyond all memories are cut, so that their sum is a number.
static inline __attribute__((unused)) int64_t place(const int64_t *bytes, const int32_t *first, const int32_t *last,
                                                    int32_t count, int64_t *offset, int64_t *bound = nullptr) {
  if (count == 0) {
    if (bound) *bound = 0;
    return 0;
  }
  const int64_t largest = INT64_MAX / 2 / count / 64 * 64;
  const size_t n = static_cast<size_t>(count);
  std::vector<int64_t> sizes(n), trial(n);
  int32_t steps = 0;
  for (size_t i = 0; i < n; ++i) {
    sizes[i] = std::min(largest, (std::min(largest, bytes[i]) + 63) / 64 * 64);
    steps = std::max(steps, last[i] + 1);
  }
  std::vector<int64_t> change(static_cast<size_t>(steps) + 1);
  for (size_t i = 0; i < n; ++i) {
    change[static_cast<size_t>(first[i])] += sizes[i];
    change[static_cast<size_t>(last[i]) + 1] -= sizes[i];
  }
  int64_t live = 0, most = 0;
  for (int64_t c : change) most = std::max(most, live += c);
  if (bound) *bound = most;
  std::vector<int32_t> order(n);
  std::vector<double> weight(n);
  PlaceTimeline timeline(steps);
  int64_t best = INT64_MAX;
  uint64_t state = 88172645463325252u;
  const int rounds = count > 1000 ? 4 : 64;
  for (int round = 0; round < rounds && best > most; ++round) {
    for (int32_t i = 0; i < count; ++i) {
      const double size = static_cast<double>(sizes[static_cast<size_t>(i)]), span = last[i] - first[i] + 1;
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
    const int64_t total = place_in_order(order, sizes.data(), first, last, trial.data(), timeline);
    if (total < best) {
      best = total;
      std::copy(trial.begin(), trial.end(), offset);
    }
  }
  return best;
}

}  // namespace optc
