#include "emit/report/folded.h"

#include <algorithm>

#include "emit/report/internal_diff.h"

namespace optc {
namespace {

bool constant_at(const Graph &g, const Node &node, size_t index) {
  return index < node.inputs.size() && node.inputs[index].valid() &&
         g.is_constant(behind_copies(g, node.inputs[index]));
}

// Whether the partner of a reader has a constant where the reader has this operand; where operands may change places, a
// constant more than the reader.
bool stands_as_constant(const Graph &g, const Node &reader, const Graph &other, const Node &partner, size_t index) {
  if (!is_commutative(reader.op)) return constant_at(other, partner, index);
  const auto count = [](const Graph &graph, const Node &node) {
    size_t constants = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) constants += constant_at(graph, node, i) ? 1 : 0;
    return constants;
  };
  return count(other, partner) > count(g, reader);
}

}  // namespace

std::vector<bool> constants_instead(const Graph &g, const Graph &other, const std::function<NodeId(NodeId)> &partner) {
  std::vector<bool> folded(g.node_capacity(), false);
  std::vector<NodeId> order = g.all_nodes();
  std::reverse(order.begin(), order.end());  // readers first
  for (NodeId n : order) {
    if (partner(n).valid()) continue;
    size_t uses = 0, constants = 0;
    for (ValueId v : g.node(n).outputs) {
      if (!v.valid()) continue;
      for (const Use &use : g.value(v).uses) {
        ++uses;
        if (use.kind != UseKind::kOperand) continue;
        const NodeId there = partner(use.node);
        constants += there.valid() ? stands_as_constant(g, g.node(use.node), other, other.node(there), use.index)
                                   : folded[use.node.index];
      }
    }
    folded[n.index] = uses > 0 && constants == uses;
  }
  return folded;
}

}  // namespace optc
