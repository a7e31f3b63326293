#pragma once
// Where optc's own files lie: beside its executable, in a build folder as in an installation (bin/optc, lib/optc,
// share/optc).

#include <cstdint>
#include <string>

namespace optc {

std::string install_prefix();  // the folder above the executable's; empty when it cannot be told
std::string resource_path(const std::string &relative);  // PREFIX/share/optc/RELATIVE
std::string module_path(const std::string &name);        // PREFIX/lib/optc/NAME
std::string cache_path();                                // $OPTC_CACHE, else $XDG_CACHE_HOME/optc, else ~/.cache/optc
int64_t memory_bytes();                                  // that this machine has
bool exists(const std::string &path);
bool is_folder(const std::string &path);
// What a bundle of the model in this file is called: "path/to/my-model.onnx" -> "my_model".
std::string name_of_model(const std::string &path);
// Whether a bundle can have this name, which is a namespace, a CMake target and the name of a header and a module.
bool is_bundle_name(const std::string &name);

}  // namespace optc
