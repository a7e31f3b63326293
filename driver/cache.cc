#include "driver/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "driver/places.h"

namespace optc {
namespace {

constexpr int64_t kLimit = int64_t{2} << 30;

int64_t bytes_of(const std::string &folder) {
  int64_t sum = 0;
  std::error_code error;
  for (auto it = std::filesystem::recursive_directory_iterator(folder, error);
       !error && it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
    struct stat info;
    if (lstat(it->path().c_str(), &info) == 0) sum += static_cast<int64_t>(info.st_blocks) * 512;
  }
  return sum;
}

}  // namespace

FileLock::FileLock(const std::string &path, Wait wait) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) return;
  const int how = LOCK_EX | (wait == Wait::kNo ? LOCK_NB : 0);
  int result = 0;
  while ((result = flock(file_, how)) != 0 && errno == EINTR) {
  }
  held_ = result == 0;
}

FileLock::~FileLock() {
  if (file_ >= 0) close(file_);
}

std::string bundle_cache_path() { return cache_path() + "/bundles"; }

std::vector<CachedBundle> cached_bundles() {
  std::vector<CachedBundle> list;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(bundle_cache_path(), error)) {
    struct stat info;
    if (lstat(entry.path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
    CachedBundle one;
    one.name = entry.path().filename().string();
    one.folder = entry.path().string();
    one.bytes = bytes_of(one.folder);
    one.idle = std::max<int64_t>(0, time(nullptr) - info.st_mtim.tv_sec);
    one.complete = exists(one.folder + "/bundle/manifest.json") && exists(one.folder + "/build/lib");
    list.push_back(std::move(one));
  }
  std::sort(list.begin(), list.end(), [](const CachedBundle &a, const CachedBundle &b) {
    return a.idle != b.idle ? a.idle < b.idle : a.name < b.name;
  });
  return list;
}

int64_t parse_bytes(const std::string &text) {
  char *end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(number) || number < 0) return -1;
  std::string unit(end);
  for (char &c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool binary = unit.size() == 3 && unit.substr(1) == "ib";
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const size_t power = std::string("kmgt").find(unit[0]);
    if (power == std::string::npos || !(unit.size() == 1 || unit.substr(1) == "b" || binary)) return -1;
    factor = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  return number * factor < 0x1p62 ? static_cast<int64_t>(number * factor) : -1;
}

int64_t cache_limit() {
  const char *said = std::getenv("OPTC_CACHE_SIZE");
  const int64_t bytes = said ? parse_bytes(said) : -1;
  return bytes >= 0 ? bytes : kLimit;
}

std::vector<CachedBundle> prune_cache(int64_t limit, int64_t youngest) {
  std::vector<CachedBundle> list = cached_bundles(), removed;
  int64_t sum = 0;
  for (const CachedBundle &one : list) sum += one.bytes;
  for (; !list.empty() && sum > limit; list.pop_back()) {
    const CachedBundle &one = list.back();
    if (one.idle < youngest) break;  // so are all before it
    const std::string lock_path = one.folder + ".lock";
    {
      const FileLock lock(lock_path, FileLock::Wait::kNo);
      if (!lock.held()) continue;
      std::error_code error;
      std::filesystem::remove_all(one.folder, error);
      if (error) continue;
    }
    sum -= one.bytes;
    removed.push_back(one);
  }
  return removed;
}

}  // namespace optc
