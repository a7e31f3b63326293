#include "emit/cpp/weight_pool.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace optc {

uint64_t WeightPool::add(const Constant &c) {
  const auto known = known_.find(c.data());
  if (c.size() > 0 && known != known_.end() && known->second.size == c.size()) return known->second.offset;
  // Contents that differ do so early, mostly: the whole is compared where the first bytes are the same.
  constexpr size_t kStart = 4096;
  std::vector<size_t> &alike = by_start_[XXH3_64bits_withSeed(c.data(), std::min(c.size(), kStart), c.size())];
  for (const size_t i : alike) {
    const auto &[other, offset] = parts_[i];
    if (other.size() != c.size() || (c.size() > 0 && std::memcmp(other.data(), c.data(), c.size()) != 0)) continue;
    return offset;
  }
  if (bytes_ == 0) bytes_ = 64;
  const uint64_t at = bytes_;
  alike.push_back(parts_.size());
  parts_.emplace_back(c, at);
  known_[c.data()] = {c.size(), at};
  bytes_ = (at + std::max<uint64_t>(c.size(), 1) + 63) / 64 * 64;
  return at;
}

}  // namespace optc
