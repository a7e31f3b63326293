#include "driver/aliases.h"

#include <fmt/format.h>

#include <algorithm>

namespace optc {
namespace {

std::vector<std::string> names_of(const Graph &graph, const std::vector<ValueId> &values) {
  std::vector<std::string> names;
  for (ValueId v : values) names.push_back(graph.value(v).name);
  return names;
}

// Names in a message, the first few.
std::string listed(const std::vector<std::string> &names) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMost; ++i) text += (i ? ", " : "") + names[i];
  return names.size() > kMost ? text + fmt::format(", {} more", names.size() - kMost) : text;
}

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> resolve_aliases(const Graph &graph,
                                                                         const std::vector<std::string> &aliases,
                                                                         Diagnostics &diagnostics) {
  const std::vector<std::string> inputs = names_of(graph, graph.region(Graph::main()).inputs),
                                 outputs = names_of(graph, graph.region(Graph::main()).outputs);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string &alias : aliases) {
    const auto wrong = [&](const std::string &what, const std::string &hint) {
      return diagnostics.error(ErrorKind::kUsage, "--alias " + alias + ": " + what, {}, hint);
    };
    const auto known = [](const std::vector<std::string> &names, const std::string &name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    const size_t equals = alias.find('=');
    const std::string input = alias.substr(0, equals),
                      output = equals == std::string::npos ? "" : alias.substr(equals + 1);
    const bool many = input.find('*') != std::string::npos;
    if (input.empty() || output.empty() || output.find('=') != std::string::npos ||
        std::count(input.begin(), input.end(), '*') > 1 || std::count(output.begin(), output.end(), '*') > 1 ||
        many != (output.find('*') != std::string::npos))
      return wrong("expected INPUT=OUTPUT", "past_k=present_k, or 'past_*=present_*' with one * on both sides");
    if (!many) {
      if (!known(inputs, input))
        return wrong("the model has no input '" + input + "'", "its inputs: " + listed(inputs));
      if (!known(outputs, output))
        return wrong("the model has no output '" + output + "'", "its outputs: " + listed(outputs));
      pairs.emplace_back(input, output);
      continue;
    }
    const size_t star = input.find('*'), other = output.find('*');
    const std::string head = input.substr(0, star), tail = input.substr(star + 1);
    bool any = false;
    for (const std::string &name : inputs) {
      if (name.size() < head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail)) continue;
      const std::string text = name.substr(head.size(), name.size() - head.size() - tail.size()),
                        result = output.substr(0, other) + text + output.substr(other + 1);
      if (!known(outputs, result))
        return wrong(fmt::format("the input '{}' would be one with '{}', which is no output", name, result),
                     "its outputs: " + listed(outputs));
      pairs.emplace_back(name, result);
      any = true;
    }
    if (!any) return wrong("no input has the form '" + input + "'", "its inputs: " + listed(inputs));
  }
  return pairs;
}

Result<std::vector<StatePosition>> find_states(const Graph &graph, const std::vector<std::string> &aliases,
                                               Diagnostics &diagnostics) {
  OPTC_ASSIGN(const auto pairs, resolve_aliases(graph, aliases, diagnostics));
  const Region &main = graph.region(Graph::main());
  const auto position = [](const std::vector<std::string> &names, const std::string &name) {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  std::vector<StatePosition> states;
  for (const auto &[input, output] : pairs)
    states.push_back({position(names_of(graph, main.inputs), input), position(names_of(graph, main.outputs), output)});
  return states;
}

std::vector<DimPin> state_sizes(const Graph &graph, const std::vector<StatePosition> &states,
                                const std::vector<RuntimeValue> &left) {
  std::vector<DimPin> sizes;
  for (const StatePosition &state : states) {
    const Type &type = graph.value(graph.region(Graph::main()).inputs[state.input]).type;
    const std::vector<int64_t> dims = left[state.output].tensor.dims();
    for (size_t k = 0; type.has_shape() && k < type.shape->size() && k < dims.size(); ++k)
      if (const DimSymbol *symbol = single_symbol((*type.shape)[k])) sizes.push_back({symbol->name, dims[k], dims[k]});
  }
  return sizes;
}

std::string describe_states(const std::vector<StateReport> &states) {
  if (states.empty()) return {};
  const auto in_place = std::count_if(states.begin(), states.end(), [](const StateReport &s) { return s.in_place; });
  const std::string plural = states.size() == 1 ? "" : "s";
  return static_cast<size_t>(in_place) == states.size()
             ? fmt::format("{} state{} in place", in_place, plural)
             : fmt::format("{} of {} state{} in place", in_place, states.size(), plural);
}

}  // namespace optc
