#pragma once
// optc cache.

#include "cli/arguments.h"

namespace optc::cli {

void add_cache(CommandLine &line, int &code);

}  // namespace optc::cli
