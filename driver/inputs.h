#pragma once
// Inputs for a run: from files, or random ones for given sizes.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/evaluate.h"
#include "ir/graph/graph.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

using SizeByName = std::map<std::string, int64_t>;  // values of the model's symbols

// A value for each symbol in the model's inputs: the given one, else one inside its bounds. `set` 0 and 1 give
// different sizes: 1 and 2 for symbols that only occur in front (batch), 8 and 13 for others, as bounds and
// divisibility allow.
Result<SizeByName> choose_sizes(const Graph &graph, const SizeByName &given, int set, Diagnostics &diagnostics);

// Random inputs from `seed`: floats normally distributed, integers in the range of the tables that they index, else 0
// or 1.
Result<std::vector<RuntimeValue>> random_inputs(const Graph &graph, const SizeByName &sizes, uint64_t seed,
                                                Diagnostics &diagnostics);

// Inputs from files. `folder` (may be empty) holds input_0.pb or input_0.npy, ... or NAME.npy, NAME.pb; `named` gives
// files by input name and goes first. What no file gives is taken from `fallback` (same order as the model's inputs;
// may be empty), else is absent when the input has a default, else an error.
Result<std::vector<RuntimeValue>> read_inputs(const Graph &graph, const std::string &folder,
                                              const std::vector<std::pair<std::string, std::string>> &named,
                                              const std::vector<RuntimeValue> &fallback, Diagnostics &diagnostics);

}  // namespace optc
