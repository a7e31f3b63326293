#pragma once
// The elements of small floating-point tensors that constants and known sizes decide. Inference propagates integers
// alone (ops/elements.h); exporters compute pads and sizes in f32 (ceil(height / 2)), and what a Cast brings back is a
// size again.

#include <optional>
#include <vector>

#include "ir/graph/graph.h"

namespace optc {

// The elements of `value`, f32 or f64, row-major, each rounded to the type after every operation as a run does;
// nullopt: not known, or by operators that are not followed. Walks back over at most some hundred nodes.
std::optional<std::vector<double>> known_floats(const Graph &graph, ValueId value);

}  // namespace optc
