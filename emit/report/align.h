#pragma once
// The nodes of two graphs in one order, and which of them stand at the same place of it: evidence where two graphs
// differ everywhere a little (another exporter, other weights), so that nothing but their course is common.

#include <utility>
#include <vector>

#include "ir/graph/graph.h"

namespace optc {

// Nodes in the order of a walk from the model's outputs to what they are computed of, operands from the first on. It
// does not depend on the order of the file.
std::vector<NodeId> canonical_order(const Graph &graph);

// Pairs of the longest common subsequence of the nodes of `a` and of `b` that read a weight, by operator and by type
// and shape of their largest weight. Nothing where there are too many of them.
std::vector<std::pair<NodeId, NodeId>> align_by_weights(const Graph &a, const Graph &b);

}  // namespace optc
