#pragma once
// The verifier of Graphs. Its invariants are numbered at the top of verifier.cc; a violation names its number.

#include "ir/graph/graph.h"
#include "support/diagnostics.h"

namespace optc {

// Whether every output must have a type (G9), or the Graph is one that was read as written and never inferred.
enum class Typing : uint8_t { kComplete, kAsDeclared };

// Reports every violation as an internal error. Runs after each pass that changed something.
Status verify(const Graph &graph, Diagnostics &diagnostics, Typing typing = Typing::kComplete);

}  // namespace optc
