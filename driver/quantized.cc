#include "driver/quantized.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "driver/oracle.h"
#include "driver/run.h"
#include "emit/onnx/export.h"
#include "support/staging.h"

namespace optc {
namespace {

// Outputs of quantizing nodes of the main graph, in order of execution; types below 8 bits cannot be read back.
std::vector<ValueId> quantized_values(const Graph &graph) {
  std::vector<ValueId> values;
  for (const NodeId id : graph.nodes(Graph::main())) {
    const Node &node = graph.node(id);
    if (node.op != "QuantizeLinear" && node.op != "DynamicQuantizeLinear") continue;
    if (graph.is_constant(node.input(0)) || !node.output(0).valid()) continue;
    const Type &type = graph.value(node.output(0)).type;
    if (is_integer(type.element) && bit_width(type.element) >= 8) values.push_back(node.output(0));
  }
  return values;
}

std::string first_error(const Diagnostics &diagnostics) {
  for (const Diagnostic &d : diagnostics.all())
    if (d.severity == Severity::kError) return d.message;
  return "no reason was given";
}

}  // namespace

bool is_quantized(const Graph &graph) { return !quantized_values(graph).empty(); }

std::string describe(const CrossedSteps &steps) {
  if (!steps.uncompared.empty()) return "quantized values were not compared: " + steps.uncompared;
  std::string text =
      fmt::format("{} of {} quantized values crossed a step on the evaluator", steps.crossed, steps.values);
  if (steps.crossed > 0) text += fmt::format(", {} by more than one, the first in '{}'", steps.by_more, steps.first);
  return text;
}

CrossedSteps crossed_steps(const Graph &graph, const std::vector<RuntimeValue> &inputs, const CompileOptions &options,
                           Listener &listener) {
  CrossedSteps steps;
  const std::vector<ValueId> values = quantized_values(graph);
  Graph shown = graph.clone();
  std::vector<ValueId> outputs = graph.region(Graph::main()).outputs;
  const size_t own = outputs.size();
  std::vector<std::string> names;
  for (const ValueId value : values) {
    if (std::find(outputs.begin(), outputs.end(), value) != outputs.end()) continue;
    outputs.push_back(value);
    names.push_back(graph.value(value).name);
  }
  shown.set_outputs(Graph::main(), outputs);

  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/quantized.onnx";
  Diagnostics said;
  const auto failed = [&] {
    steps.uncompared = first_error(said);
    return steps;
  };
  if (scratch.path().empty() || !export_file(shown, path, {}, said).ok()) return failed();
  const Result<OracleResult> expected = run_oracle(path, shown, inputs, {}, said);
  if (!expected) return failed();
  const auto actual = run_model(path, shown, inputs, Engine::kEvaluate, 1, 0, options, listener, said);
  if (!actual) return failed();
  for (size_t i = own; i < std::min(actual->size(), expected->outputs.size()); ++i) {
    const Constant &a = (*actual)[i].tensor, &e = expected->outputs[i].tensor;
    if (!a.valid() || !e.valid() || a.dims() != e.dims() || a.type() != e.type()) {
      steps.uncompared = "'" + names[i - own] + "' has another type or other dims";
      return steps;
    }
    steps.values += e.count();
    for (int64_t k = 0; k < e.count(); ++k) {
      const int64_t by = std::abs(a.as_int64(k) - e.as_int64(k));
      if (by > 0 && steps.first.empty()) steps.first = names[i - own];
      steps.crossed += by > 0;
      steps.by_more += by > 1;
    }
  }
  return steps;
}

}  // namespace optc
