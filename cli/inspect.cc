// optc inspect MODEL: what a model is: signature, sizes, operators; with --ir its Graph or Program as text.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/common.h"
#include "ir/graph/text.h"

namespace optc::cli {
namespace {

nlohmann::ordered_json signature(const Graph &graph, const std::vector<ValueId> &values) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ValueId id : values)
    list.push_back({{"name", graph.value(id).name}, {"type", to_string(graph.value(id).type)}});
  return list;
}

Status inspect(const CommonOptions &o, const std::string &ir, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const CompileOptions options, compile_options(o, diagnostics));
  CommonOptions silent = o;
  silent.quiet = true;
  const std::unique_ptr<Listener> listener = make_listener(silent);
  OPTC_ASSIGN(Graph graph, load_model(o.model, options, *listener, diagnostics));
  if (ir == "graph") {
    print(print(graph));
    return {};
  }
  if (!ir.empty()) {
    OPTC_ASSIGN(Optimized optimized, optimize_model(std::move(graph), options, *listener, diagnostics));
    if (ir == "optimized") {
      print(print(optimized.graph));
      return {};
    }
    OPTC_ASSIGN(const Program program, lower_model(optimized.graph, options, *listener, diagnostics));
    print(print(program));
    return {};
  }
  std::map<std::string, int64_t> by_op;
  for (const NodeId id : graph.all_nodes()) ++by_op[graph.node(id).op];
  std::vector<std::pair<std::string, int64_t>> ops(by_op.begin(), by_op.end());
  std::stable_sort(ops.begin(), ops.end(), [](const auto &a, const auto &b) { return a.second > b.second; });
  const GraphFacts facts = facts_of(graph);
  const Region &main = graph.region(Graph::main());
  if (o.format == "json") {
    nlohmann::ordered_json json = {{"schema_version", 1},
                                   {"model", o.model},
                                   {"producer", graph.info().producer},
                                   {"ir_version", graph.info().ir_version},
                                   {"nodes", facts.nodes},
                                   {"parameters", facts.parameters},
                                   {"parameter_bytes", facts.parameter_bytes},
                                   {"inputs", signature(graph, main.inputs)},
                                   {"outputs", signature(graph, main.outputs)}};
    for (const auto &[domain, version] : graph.info().opset_imports)
      json["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
    for (const auto &[op, count] : ops) json["operators"][op] = count;
    print(json.dump(2) + "\n");
    return {};
  }
  std::string text = fmt::format("{}\n", o.model);
  std::string opsets;
  for (const auto &[domain, version] : graph.info().opset_imports)
    opsets += fmt::format("{}{} {}", opsets.empty() ? "" : ", ", domain.empty() ? "ai.onnx" : domain, version);
  text += fmt::format("  format      IR {}, {}{}\n", graph.info().ir_version, opsets,
                      graph.info().producer.empty()
                          ? ""
                          : fmt::format(", by {} {}", graph.info().producer, graph.info().producer_version));
  text += fmt::format("  size        {} nodes, {} parameters ({})\n", facts.nodes, format_count(facts.parameters),
                      format_bytes(facts.parameter_bytes));
  for (const ValueId id : main.inputs)
    text += fmt::format("  input       {}: {}\n", graph.value(id).name, to_string(graph.value(id).type));
  for (const ValueId id : main.outputs)
    text += fmt::format("  output      {}: {}\n", graph.value(id).name, to_string(graph.value(id).type));
  text += "  operators   ";
  for (size_t i = 0; i < ops.size(); ++i)
    text +=
        fmt::format("{}{} {}", i == 0 ? "" : (i % 8 == 0 ? ",\n              " : ", "), ops[i].second, ops[i].first);
  print(text + "\n");
  return {};
}

}  // namespace

void add_inspect(CommandLine &line, int &code) {
  struct Options : CommonOptions {
    std::string ir;
  };
  auto o = std::make_shared<Options>();
  Verb *verb = line.add_verb("inspect", "what a model is: signature, sizes, operators");
  verb->footer("Example: optc inspect model.onnx --ir optimized");
  add_model(*verb, *o);
  verb->add_option("--ir", o->ir, "print the text form instead: graph (as imported), optimized, or program")
      ->one_of({"graph", "optimized", "program"})
      ->type_name("STAGE");
  add_shape_options(*verb, *o);
  add_compile_options(*verb, *o);
  add_output_options(*verb, *o);
  verb->callback([o, &code] {
    Diagnostics diagnostics(o->model);
    const Status status = inspect(*o, o->ir, diagnostics);
    if (!status.ok())
      code = report(diagnostics, status.failure(), *o);
    else
      print_warnings(diagnostics, *o);
  });
}

}  // namespace optc::cli
