#pragma once
// Helpers for version steps: what ONNX changed most often between versions is an attribute that became an input.

#include <string_view>
#include <vector>

#include "ops/registry.h"

namespace optc {

// Moves an attribute to a constant input at `index`: int lists and ints become int64[n] (ints as one element), a float
// a scalar of the element type of input 0. Nothing happens when the attribute is absent.
Status attribute_to_input(Graph &graph, NodeId node, std::string_view attribute, size_t index,
                          Diagnostics &diagnostics);
// The inverse, for int lists: fails with kUnsupported when the input is there but not constant. `single`: an int
// attribute.
Status input_to_attribute(Graph &graph, NodeId node, size_t index, std::string_view attribute, Diagnostics &diagnostics,
                          bool single = false);
// The failure of a `down` that the older version cannot say.
Failure cannot_lower(const Graph &graph, NodeId node, std::string_view what, int version, Diagnostics &diagnostics);
// `up` of Scan at version 9.
Status scan_of_batch(Graph &graph, NodeId node, Diagnostics &diagnostics);

}  // namespace optc
