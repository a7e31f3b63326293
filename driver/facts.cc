#include <fmt/format.h>

#include "driver/toolchain.h"

namespace optc {
namespace {

std::string describe(const Graph &graph, const std::vector<ValueId> &values) {
  std::string text;
  for (size_t i = 0; i < values.size() && i < 4; ++i)
    text +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", graph.value(values[i]).name, to_string(graph.value(values[i]).type));
  if (values.size() > 4) text += fmt::format(" and {} more", values.size() - 4);
  return text;
}

}  // namespace

GraphFacts facts_of(const Graph &graph) {
  GraphFacts facts;
  facts.nodes = static_cast<int64_t>(graph.live_node_count());
  for (size_t i = 0; i < graph.value_capacity(); ++i) {
    const Value &value = graph.value(ValueId(i));
    if (!value.alive || value.kind != ValueKind::kConstant || !value.constant.valid()) continue;
    facts.parameters += value.constant.count();
    facts.parameter_bytes += static_cast<int64_t>(value.constant.size());
  }
  return facts;
}

std::string describe_inputs(const Graph &graph) { return describe(graph, graph.region(Graph::main()).inputs); }

std::string describe_outputs(const Graph &graph) { return describe(graph, graph.region(Graph::main()).outputs); }

std::string format_bytes(double bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = bytes;
  int unit = 0;
  while (value >= 1024 && unit < 6) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  if (value >= 1e4) return fmt::format("{:.1e} {}", value, units[unit]);
  return value < 100 ? fmt::format("{:.1f} {}", value, units[unit]) : fmt::format("{:.0f} {}", value, units[unit]);
}

std::string format_count(int64_t count) {
  if (count < 10000) return std::to_string(count);
  const char *units[] = {"", "k", "M", "G", "T"};
  double value = static_cast<double>(count);
  int unit = 0;
  while (value >= 1000 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  return value < 100 ? fmt::format("{:.1f} {}", value, units[unit]) : fmt::format("{:.0f} {}", value, units[unit]);
}

}  // namespace optc
