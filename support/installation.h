#pragma once
// Where optc's own files lie: beside its executable, in a build folder as in an installation (bin/optc, lib/optc,
// share/optc).

#include <string>

namespace optc {

std::string install_prefix();  // the folder above the executable's; empty when it cannot be told
std::string resource_path(const std::string &relative);  // PREFIX/share/optc/RELATIVE
std::string module_path(const std::string &name);        // PREFIX/lib/optc/NAME

}  // namespace optc
