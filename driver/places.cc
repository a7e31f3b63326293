#include "driver/places.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "emit/cpp/names.h"

namespace optc {
namespace {

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string cache_path() {
  if (const std::string own = environment("OPTC_CACHE"); !own.empty()) return own;
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/optc";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/optc";
  return "/tmp/optc-cache-" + std::to_string(getuid());
}

int64_t memory_bytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0 ? pages * size : INT64_MAX;
}

bool exists(const std::string &path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

bool is_folder(const std::string &path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string name_of_model(const std::string &path) {
  std::string stem = path.substr(path.find_last_of('/') + 1);
  if (const size_t dot = stem.rfind('.'); dot != std::string::npos && dot > 0) stem.resize(dot);
  return bundle_name(stem);
}

bool is_bundle_name(const std::string &name) { return !name.empty() && bundle_name(name) == name; }

}  // namespace optc
