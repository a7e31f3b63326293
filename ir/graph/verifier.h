#pragma once
// The verifier of Graphs. Its invariants are numbered at the top of verifier.cc; a violation names its number.

#include "ir/graph/graph.h"
#include "support/diagnostics.h"

namespace optc {

// Reports every violation as an internal error. Runs after each pass that changed something.
Status verify(const Graph &graph, Diagnostics &diagnostics);

}  // namespace optc
