#include "driver/places.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>

namespace optc {
namespace {

std::string environment(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string install_prefix() {
  char buffer[4096];
  const ssize_t size = readlink("/proc/self/exe", buffer, sizeof(buffer));
  if (size <= 0 || size == sizeof(buffer)) return "";
  std::string path(buffer, size);
  for (int i = 0; i < 2; ++i) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return "";
    path.resize(slash);
  }
  return path;
}

std::string resource_path(const std::string &relative) { return install_prefix() + "/share/optc/" + relative; }

std::string module_path(const std::string &name) { return install_prefix() + "/lib/optc/" + name; }

std::string cache_path() {
  if (const std::string own = environment("OPTC_CACHE"); !own.empty()) return own;
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/optc";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/optc";
  return "/tmp/optc-cache-" + std::to_string(getuid());
}

bool exists(const std::string &path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

std::string stem_identifier(const std::string &path) {
  std::string stem = path.substr(path.find_last_of('/') + 1);
  if (const size_t dot = stem.rfind('.'); dot != std::string::npos && dot > 0) stem.resize(dot);
  std::string name;
  for (const char c : stem) name += std::isalnum(static_cast<unsigned char>(c)) && c > 0 ? c : '_';
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) || name[0] == '_') name.insert(0, "m");
  return name;
}

}  // namespace optc
