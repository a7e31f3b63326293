#pragma once
// Nodes of one graph whose work the other graph has as constants.

#include <functional>
#include <vector>

#include "ir/graph/graph.h"

namespace optc {

// By NodeId of `graph`: whether a node without a partner computes only operands that stand as constants at the partners
// of their readers, by itself or with other such nodes behind it. `partner` gives the node of `other` that corresponds
// to a node of `graph`, or an invalid id.
std::vector<bool> constants_instead(const Graph &graph, const Graph &other,
                                    const std::function<NodeId(NodeId)> &partner);

}  // namespace optc
