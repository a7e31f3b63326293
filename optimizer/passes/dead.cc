#include "ops/registry.h"
#include "optimizer/passes/passes.h"

namespace optc {

Status remove_dead_nodes(RuleContext &context, bool &changed) {
  std::vector<NodeId> nodes = context.graph().all_nodes();
  // Readers before producers: owners of regions come after their bodies in all_nodes(), so walk it backwards.
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    const Node &node = context.node(*it);
    if (!node.alive) continue;
    const OpDef *op = find_op(node.op);
    if (op && !op->pure) continue;
    bool used = false;
    for (ValueId v : node.outputs) used |= v.valid() && !context.graph().value(v).uses.empty();
    if (used) continue;
    if (!context.rewriter().allowed("dead.node")) return {};
    auto change = context.rewriter().begin("dead.node", RewriteKind::kRemove, *it);
    change.erase(*it);
    OPTC_TRY(change.commit());
    changed = true;
  }
  return {};
}

}  // namespace optc
