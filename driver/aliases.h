#pragma once
// The pairs of `--alias past=present`: which inputs and outputs of a model are one memory of the caller.

#include <string>
#include <utility>
#include <vector>

#include "evaluate/evaluate.h"
#include "importer/importer.h"
#include "ir/graph/graph.h"
#include "lowering/lower.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// (input, output) of each pair, by name. Of 'past_*=present_*' each * stands for the same text: one pair for every
// input that has the form. kUsage where a name is none of the model's, or no input has the form.
Result<std::vector<std::pair<std::string, std::string>>> resolve_aliases(const Graph &graph,
                                                                         const std::vector<std::string> &aliases,
                                                                         Diagnostics &diagnostics);

// The same as positions in the model's signature.
struct StatePosition {
  size_t input = 0, output = 0;
};
Result<std::vector<StatePosition>> find_states(const Graph &graph, const std::vector<std::string> &aliases,
                                               Diagnostics &diagnostics);
// The sizes of a run that begins with the states that a run with these outputs has left.
std::vector<DimPin> state_sizes(const Graph &graph, const std::vector<StatePosition> &states,
                                const std::vector<RuntimeValue> &left);

// "24 states in place", "1 of 2 states in place"; empty: there are none.
std::string describe_states(const std::vector<StateReport> &states);

}  // namespace optc
