#include "support/installation.h"

#include <unistd.h>

namespace optc {

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

}  // namespace optc
