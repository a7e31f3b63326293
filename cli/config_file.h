#pragma once
// Options as a file (--config, --save-config): `name = value`, one a line, with the names of the command line; lines
// behind `[VERB]` are for that verb alone, those before the first such line for any; `#` begins a comment line.

#include <string>
#include <vector>

#include "cli/arguments.h"
#include "support/diagnostics.h"

namespace optc::cli {

// The words of a command (the verb first) with those that the file stands for that `--config FILE` among them names.
// An option that the words give themselves is not taken from the file. kUsage where the file has what the verb lacks.
Result<std::vector<std::string>> with_config(const CommandLine &line, std::vector<std::string> words,
                                             Diagnostics &diagnostics);
// The options that `verb` was given, for a later --config.
Status write_config(const Verb &verb, const std::string &path, Diagnostics &diagnostics);

}  // namespace optc::cli
