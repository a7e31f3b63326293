#pragma once
// Fingerprints of nodes: equal where two nodes, in whichever graphs, compute the same thing of the same things (from
// the inputs on), or are used for the same things (from the outputs back). Names of nodes and of inner values have no
// part in them, nor have copies (Identity) in between, nor, where they are given, neutral nodes.

#include <cstdint>
#include <vector>

#include "emit/report/neutral.h"
#include "ir/graph/graph.h"

namespace optc {

// What of a constant is part of a fingerprint: its content, that of short integer tensors alone (axes, shapes), or only
// its type.
enum class Contents : uint8_t { kAll, kShortIntegers, kNone };

// `inputs`, `outputs`: a key for each input and output of the model. The results are indexed by NodeId.
std::vector<uint64_t> fingerprints_from_inputs(const Graph &graph, Contents contents,
                                               const std::vector<uint64_t> &inputs,
                                               const NeutralNodes *neutral = nullptr);
std::vector<uint64_t> fingerprints_from_outputs(const Graph &graph, Contents contents,
                                                const std::vector<uint64_t> &outputs,
                                                const NeutralNodes *neutral = nullptr);
// Operator, attributes and the content of the weights it reads; 0 where it reads none that could tell it from others.
std::vector<uint64_t> fingerprints_of_weights(const Graph &graph);

}  // namespace optc
