#include <algorithm>
#include <queue>
#include <unordered_map>

#include "importer/internal_order.h"

namespace optc {
namespace {

void captures(const onnx::GraphProto &graph, std::vector<const std::unordered_set<std::string> *> &around,
              const std::function<void(const std::string &)> &use) {
  std::unordered_set<std::string> own;
  for (const auto &input : graph.input()) own.insert(input.name());
  for (const auto &tensor : graph.initializer()) own.insert(tensor.name());
  for (const auto &tensor : graph.sparse_initializer()) own.insert(tensor.values().name());
  for (const auto &node : graph.node())
    for (const auto &output : node.output()) own.insert(output);
  around.push_back(&own);
  auto see = [&](const std::string &name) {
    if (name.empty()) return;
    for (const auto *names : around)
      if (names->count(name)) return;
    use(name);
  };
  for (const auto &node : graph.node()) {
    for (const auto &input : node.input()) see(input);
    for (const auto &name : names_in_attributes(node)) see(name);
    for (const auto &attribute : node.attribute()) {
      if (attribute.has_g()) captures(attribute.g(), around, use);
      for (const auto &nested : attribute.graphs()) captures(nested, around, use);
    }
  }
  for (const auto &output : graph.output()) see(output.name());
  around.pop_back();
}

std::string cycle_text(const NodeList &nodes, const std::vector<std::vector<int>> &producers,
                       const std::vector<bool> &done) {
  // From any node that is left, following producers that are left must come back to a node seen before.
  int at = 0;
  while (done[static_cast<size_t>(at)]) ++at;
  std::vector<int> path;
  std::vector<int> position(static_cast<size_t>(nodes.size()), -1);
  while (position[static_cast<size_t>(at)] < 0) {
    position[static_cast<size_t>(at)] = static_cast<int>(path.size());
    path.push_back(at);
    for (int p : producers[static_cast<size_t>(at)])
      if (!done[static_cast<size_t>(p)]) {
        at = p;
        break;
      }
  }
  std::vector<int> cycle(path.begin() + position[static_cast<size_t>(at)], path.end());
  std::reverse(cycle.begin(), cycle.end());  // producers before consumers
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
  std::string text;
  const size_t shown = std::min<size_t>(cycle.size(), 8);
  for (size_t i = 0; i < shown; ++i) text += node_label(nodes.Get(cycle[i]), cycle[i]) + " -> ";
  if (shown < cycle.size()) text += "... -> ";
  return text + node_label(nodes.Get(cycle[0]), cycle[0]);
}

}  // namespace

void for_each_capture(const onnx::GraphProto &graph, const std::function<void(const std::string &)> &use) {
  std::vector<const std::unordered_set<std::string> *> around;
  captures(graph, around, use);
}

std::string node_label(const onnx::NodeProto &node, int64_t index) {
  return node.name().empty() ? node.op_type() + "_" + std::to_string(index) : node.name();
}

std::vector<std::string> names_in_attributes(const onnx::NodeProto &node) {
  std::vector<std::string> names;
  if (node.op_type() != "Gradient" || node.domain() != "ai.onnx.preview.training") return names;
  for (const char *attribute_name : {"xs", "zs", "y"})
    for (const auto &attribute : node.attribute()) {
      if (attribute.name() != attribute_name) continue;
      names.insert(names.end(), attribute.strings().begin(), attribute.strings().end());
      if (attribute.has_s()) names.push_back(attribute.s());
    }
  return names;
}

Result<std::vector<int>> node_order(const NodeList &nodes, Diagnostics &diagnostics) {
  std::unordered_map<std::string, int> producer;
  for (int i = 0; i < nodes.size(); ++i)
    for (const auto &output : nodes.Get(i).output())
      if (!output.empty()) producer.emplace(output, i);
  const auto count = static_cast<size_t>(nodes.size());
  std::vector<std::vector<int>> producers(count);
  bool sorted = true;
  for (int i = 0; i < nodes.size(); ++i) {
    auto see = [&](const std::string &name) {
      auto it = producer.find(name);
      if (it == producer.end()) return;
      producers[static_cast<size_t>(i)].push_back(it->second);
      sorted = sorted && it->second < i;
    };
    for (const auto &input : nodes.Get(i).input()) see(input);
    for (const auto &name : names_in_attributes(nodes.Get(i))) see(name);
    for (const auto &attribute : nodes.Get(i).attribute()) {
      if (attribute.has_g()) for_each_capture(attribute.g(), see);
      for (const auto &nested : attribute.graphs()) for_each_capture(nested, see);
    }
  }
  std::vector<int> order;
  order.reserve(count);
  if (sorted) {
    for (int i = 0; i < nodes.size(); ++i) order.push_back(i);
    return order;
  }
  std::vector<std::vector<int>> consumers(count);
  std::vector<int> waiting(count, 0);
  for (size_t i = 0; i < count; ++i) {
    auto &list = producers[i];
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    waiting[i] = static_cast<int>(list.size());
    for (int p : list) consumers[static_cast<size_t>(p)].push_back(static_cast<int>(i));
  }
  std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
  for (size_t i = 0; i < count; ++i)
    if (waiting[i] == 0) ready.push(static_cast<int>(i));
  std::vector<bool> done(count, false);
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    done[static_cast<size_t>(i)] = true;
    order.push_back(i);
    for (int c : consumers[static_cast<size_t>(i)])
      if (--waiting[static_cast<size_t>(c)] == 0) ready.push(c);
  }
  if (order.size() < count)
    return diagnostics.error(ErrorKind::kInvalid, "the graph has a cycle: " + cycle_text(nodes, producers, done));
  return order;
}

}  // namespace optc
