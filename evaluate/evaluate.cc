#include "evaluate/evaluate.h"

#include "evaluate/machine.h"
#include "ops/build.h"

namespace optc {

Result<std::vector<RuntimeValue>> evaluate(const Program &program, const std::vector<RuntimeValue> &inputs,
                                           const EvaluateOptions &options, Diagnostics &diagnostics) {
  return evaluate_detail::Machine(program, options, diagnostics).run(inputs);
}

Result<std::vector<BufferValue>> evaluate_kernel(const Program &program, KernelId kernel,
                                                 const SymbolValueList &symbols,
                                                 const std::vector<StoredBuffer> &memory,
                                                 const EvaluateOptions &options, Diagnostics &diagnostics) {
  return evaluate_detail::Machine(program, options, diagnostics).run_alone(kernel, symbols, memory);
}

std::optional<Constant> stored_value(const Program &program, BufferId buffer, const SymbolValueList &symbols,
                                     const uint8_t *root_bytes) {
  const EvaluateOptions options;
  Diagnostics diagnostics;
  return evaluate_detail::Machine(program, options, diagnostics).value_of(buffer, symbols, root_bytes);
}

Result<std::vector<RuntimeValue>> evaluate_node(const Graph &graph, NodeId node, Diagnostics &diagnostics) {
  std::vector<ValueId> outputs;
  for (const ValueId id : graph.node(node).outputs)
    if (id.valid()) outputs.push_back(id);
  OPTC_ASSIGN(const Program program, build_region(graph, {&node, 1}, outputs, diagnostics));
  OPTC_ASSIGN(std::vector<RuntimeValue> values, evaluate(program, {}, {}, diagnostics));
  std::vector<RuntimeValue> all;
  size_t next = 0;
  for (const ValueId id : graph.node(node).outputs)
    all.push_back(id.valid() ? std::move(values[next++]) : RuntimeValue());
  return all;
}

}  // namespace optc
