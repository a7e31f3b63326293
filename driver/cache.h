#pragma once
// The bundles that build_model keeps in the cache folder: which there are, and how many stay. A bundle that a process
// is making is locked and never removed.

#include <cstdint>
#include <string>
#include <vector>

#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct CachedBundle {
  std::string name, folder;
  int64_t bytes = 0;      // on disk
  int64_t idle = 0;       // seconds since it was used
  bool complete = false;  // else what an interrupted build left
};
std::string bundle_cache_path();             // CACHE/bundles
std::vector<CachedBundle> cached_bundles();  // the last used first

// The most that automatic pruning leaves: $OPTC_CACHE_SIZE ("2GiB", "0": nothing is kept beyond an hour), else 2 GiB.
int64_t cache_limit();
// Bytes of "500MB", "2GiB", "1048576"; -1: not understood.
int64_t parse_bytes(const std::string &text);

// Removes the longest unused bundles until the rest has at most `limit` bytes; none that was used in the last
// `youngest` seconds. Returns what was removed.
std::vector<CachedBundle> prune_cache(int64_t limit, int64_t youngest);

// Held by one process at a time, until the end of the scope or of the process.
class FileLock {
 public:
  enum class Wait : uint8_t { kYes, kNo };
  explicit FileLock(const std::string &path, Wait wait = Wait::kYes);
  ~FileLock();
  FileLock(const FileLock &) = delete;
  FileLock &operator=(const FileLock &) = delete;
  bool held() const { return held_; }

 private:
  const int file_;
  bool held_ = false;
};

}  // namespace optc
