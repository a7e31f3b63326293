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
  // A symbol that inference settled (its bounds leave one value) is that value everywhere.
  Graph &writable = context.rewriter().mutable_graph_for_construction();
  for (ValueId v : graph.region(Graph::main()).inputs) {
    Type type = graph.value(v).type;
    if (!type.has_shape()) continue;
    for (Dim &d : *type.shape) d = settle(d);
    writable.set_type(v, std::move(type));
  }
  OPTC_TRY(infer_graph(writable, context.diagnostics()));
  for (size_t i = 0; i < before.size() && !changed; ++i) {
    const Value &value = graph.value(ValueId(i));
    if (!value.alive) continue;
    changed = !(value.type == before[i]) || (value.elements && (!elements[i] || *elements[i] != *value.elements));
  }
  return {};
}

}  // namespace optc
