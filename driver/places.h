#pragma once
// Places and names of files.

#include <cstdint>
#include <string>

#include "support/installation.h"

namespace optc {

std::string cache_path();  // $OPTC_CACHE, else $XDG_CACHE_HOME/optc, else ~/.cache/optc
int64_t memory_bytes();    // that this machine has
bool exists(const std::string &path);
bool is_folder(const std::string &path);
// What a bundle of the model in this file is called: "path/to/my-model.onnx" -> "my_model".
std::string name_of_model(const std::string &path);
// Whether a bundle can have this name, which is a namespace, a CMake target and the name of a header and a module.
bool is_bundle_name(const std::string &name);

}  // namespace optc
