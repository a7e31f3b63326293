#include "ir/program/placement.h"

#include <algorithm>
#include <numeric>

namespace optc {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Places the blocks in the given order, each into the smallest gap that holds it; returns the arena's size.
int64_t place(std::vector<MemoryBlock> &blocks, const std::vector<size_t> &order) {
  std::vector<size_t> placed;  // by offset
  int64_t total = 0;
  for (size_t i : order) {
    MemoryBlock &block = blocks[i];
    int64_t at = 0, best = -1, best_gap = INT64_MAX;
    for (size_t j : placed) {
      const MemoryBlock &other = blocks[j];
      if (other.last < block.first || block.last < other.first) continue;
      const int64_t gap = other.offset - at;
      if (gap >= block.bytes && gap < best_gap) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, other.offset + other.bytes);
    }
    block.offset = best >= 0 ? best : at;
    total = std::max(total, block.offset + block.bytes);
    const auto where =
        std::find_if(placed.begin(), placed.end(), [&](size_t j) { return blocks[j].offset > block.offset; });
    placed.insert(where, i);
  }
  return total;
}

int64_t bound_of(const std::vector<MemoryBlock> &blocks) {
  size_t steps = 0;
  for (const MemoryBlock &block : blocks) steps = std::max(steps, block.last + 1);
  std::vector<int64_t> live(steps + 1, 0);
  for (const MemoryBlock &block : blocks)
    for (size_t s = block.first; s <= block.last; ++s) live[s] += block.bytes;
  return *std::max_element(live.begin(), live.end());
}

}  // namespace

ArenaSize place_blocks(std::vector<MemoryBlock> &blocks) {
  for (MemoryBlock &block : blocks) block.bytes = round_up(block.bytes);
  const int64_t bound = bound_of(blocks);
  if (blocks.empty()) return {};
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<MemoryBlock> best = blocks;
  int64_t best_total = INT64_MAX;
  auto attempt = [&](auto before) {
    std::vector<size_t> o = order;
    std::stable_sort(o.begin(), o.end(), before);
    std::vector<MemoryBlock> trial = blocks;
    const int64_t total = place(trial, o);
    if (total < best_total) {
      best_total = total;
      best = std::move(trial);
    }
    return best_total <= bound;
  };
  auto bytes = [&](size_t i) { return blocks[i].bytes; };
  auto span = [&](size_t i) { return static_cast<int64_t>(blocks[i].last - blocks[i].first + 1); };
  bool done = attempt([&](size_t a, size_t b) { return bytes(a) > bytes(b); }) ||
              attempt([&](size_t a, size_t b) { return bytes(a) * span(a) > bytes(b) * span(b); }) ||
              attempt([&](size_t a, size_t b) { return span(a) > span(b); }) ||
              attempt([&](size_t a, size_t b) { return blocks[a].first < blocks[b].first; });
  // Perturbed orders: sizes weighted by a fixed pseudo-random factor, the same in every run.
  uint64_t state = 88172645463325252ull;
  const int rounds = blocks.size() > 2000 ? 4 : blocks.size() > 400 ? 60 : 400;
  for (int round = 0; !done && round < rounds; ++round) {
    std::vector<double> weight(blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      weight[i] = static_cast<double>(blocks[i].bytes) * (0.5 + static_cast<double>(state >> 40) / (1 << 24));
    }
    done = attempt([&](size_t a, size_t b) { return weight[a] > weight[b]; });
  }
  blocks = std::move(best);
  return {best_total, bound};
}

}  // namespace optc
