#pragma once
// Passes that look at the whole graph rather than at one node.

#include "optimizer/rule.h"

namespace optc {

// dead.node: removes pure nodes whose outputs nobody reads, and outputs of If that nobody reads stay (their branches
// fold later).
Status remove_dead_nodes(RuleContext &context, bool &changed);
// cse.node, cse.constant: equal computations of one region become one; equal constants become one value.
Status share_equal_nodes(RuleContext &context, bool &changed);

// Infers every node anew: what a fold made known reaches the types and elements of everything behind it. Never changes
// what is computed.
Status refresh_types(RuleContext &context, bool &changed);

}  // namespace optc
