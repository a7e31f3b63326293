#include "ops/conditions.h"

#include "ops/util.h"

namespace optc {
namespace {

bool has_symbols(const Graph &graph, NodeId id) {
  const auto symbolic = [&](ValueId v) {
    if (!v.valid()) return false;
    const Value &value = graph.value(v);
    return (value.type.has_shape() && !is_static(*value.type.shape)) || (value.elements && !is_static(*value.elements));
  };
  const Node &node = graph.node(id);
  for (ValueId v : node.inputs)
    if (symbolic(v)) return true;
  for (ValueId v : node.outputs)
    if (symbolic(v)) return true;
  return false;
}

}  // namespace

bool ConditionSet::contains(const DimConstraint &c) const {
  const auto found = known_.find(c.left);
  if (found == known_.end()) return false;
  for (const auto &[right, or_one] : found->second)
    if (right == c.right && (!or_one || c.or_one)) return true;
  return false;
}

bool ConditionSet::add(const DimConstraint &c) {
  if (contains(c)) return false;
  known_[c.left].emplace_back(c.right, c.or_one);
  return true;
}

Result<std::vector<StatedCondition>> stated_conditions(const Graph &graph, Diagnostics &diagnostics) {
  Graph copy = graph.clone();  // inference sets types
  std::vector<StatedCondition> stated;
  std::unordered_map<uint32_t, ConditionSet> known;  // by region
  std::unordered_map<uint32_t, bool> dead;
  for (NodeId id : graph.all_nodes()) {
    const Node &node = graph.node(id);
    if (!has_symbols(graph, id)) continue;
    const auto [at, fresh] = dead.emplace(node.region.index, false);
    if (fresh) at->second = is_dead(graph, node.region);
    if (at->second) continue;
    std::vector<DimConstraint> found;
    OPTC_TRY(infer_node(copy, id, diagnostics, &found));
    // The nodes of a body state their conditions themselves, in its region.
    if (!node.regions.empty())
      std::erase_if(found, [&](const DimConstraint &c) { return c.where != graph.describe(id); });
    for (DimConstraint &c : found)
      if (known[node.region.index].add(c)) stated.push_back({std::move(c), id});
  }
  return stated;
}

}  // namespace optc
