#include "emit/cpp/weight_pool.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace optc {

namespace {

// What is made is compared by its sources: nothing is made for that.
bool same_bytes(const Constant &a, const Constant &b) {
  if (a.is_made() || b.is_made()) return a.is_made() && b.is_made() && a.equals(b);
  return a.size() == b.size() && (a.size() == 0 || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace

uint64_t WeightPool::add(const Constant &c) {
  const auto known = known_.find(c.identity());
  if (c.size() > 0 && known != known_.end() && known->second.size == c.size()) return known->second.offset;
  // Contents that differ do so early, mostly: the whole is compared where the first bytes are the same.
  constexpr size_t kStart = 4096;
  const std::string beginning = c.beginning(kStart);
  std::vector<size_t> &alike = by_start_[XXH3_64bits_withSeed(beginning.data(), beginning.size(), c.size())];
  for (const size_t i : alike)
    if (same_bytes(parts_[i].first, c)) return parts_[i].second;
  if (bytes_ == 0) bytes_ = 64;
  const uint64_t at = bytes_;
  alike.push_back(parts_.size());
  parts_.emplace_back(c, at);
  known_[c.identity()] = {c.size(), at};
  bytes_ = (at + std::max<uint64_t>(c.size(), 1) + 63) / 64 * 64;
  return at;
}

}  // namespace optc
