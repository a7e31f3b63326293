#pragma once
// Inputs for a run: from files, or random ones for given sizes.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "driver/sizes.h"
#include "evaluate/evaluate.h"
#include "ir/graph/graph.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// How values are drawn.
struct Draw {
  uint64_t seed = 0;
  bool plain = false;  // floats in [0, 1) and the lowest integers, for models that most values do not suit
  bool guess = false;  // the sizes are a further attempt: an input of more than 1 GiB is an error (kUsage), too
};

// Random inputs of the given sizes: floats normally distributed; integers in the range that their uses allow
// (element_range.h), else 0 or 1 (masks; no row of zeros begins one), pictures and quantized values in that of their
// type; strings out of the model's vocabularies; two elements a sequence. Inputs with a default are absent.
Result<std::vector<RuntimeValue>> random_inputs(const Graph &graph, const SizeByName &sizes, const Draw &draw,
                                                Diagnostics &diagnostics);

// Inputs from files. `folder` (may be empty) holds input_0.pb or input_0.npy, ... or NAME.npy, NAME.pb; `named` gives
// files by input name and goes first. What no file gives is taken from `fallback` (same order as the model's inputs;
// may be empty), else is absent when the input has a default, else an error.
Result<std::vector<RuntimeValue>> read_inputs(const Graph &graph, const std::string &folder,
                                              const std::vector<std::pair<std::string, std::string>> &named,
                                              const std::vector<RuntimeValue> &fallback, Diagnostics &diagnostics);

}  // namespace optc
