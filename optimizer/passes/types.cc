#include "ops/registry.h"
#include "optimizer/passes/passes.h"

namespace optc {

Status refresh_types(RuleContext &context, bool &changed) {
  const Graph &graph = context.graph();
  std::vector<Type> before(graph.value_capacity());
  std::vector<std::shared_ptr<const std::vector<Dim>>> elements(graph.value_capacity());
  for (size_t i = 0; i < before.size(); ++i) {
    before[i] = graph.value(ValueId(i)).type;
    elements[i] = graph.value(ValueId(i)).elements;
  }
  OPTC_TRY(infer_graph(context.rewriter().mutable_graph_for_construction(), context.diagnostics()));
  for (size_t i = 0; i < before.size() && !changed; ++i) {
    const Value &value = graph.value(ValueId(i));
    if (!value.alive) continue;
    changed = !(value.type == before[i]) || (value.elements && (!elements[i] || *elements[i] != *value.elements));
  }
  return {};
}

}  // namespace optc
