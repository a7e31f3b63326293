// A difference in the form of Google's Model Explorer (https://github.com/google-ai-edge/model-explorer): a collection
// of two graphs for its reader of JSON files, and the mapping for its navigation of two panes.

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "emit/report/drawing.h"
#include "emit/report/internal_diff.h"

namespace optc {
namespace {

using Json = nlohmann::ordered_json;

// What stands at one place in both graphs has one id, so that Model Explorer's "match node id" goes from one to the
// other without the mapping, too.
std::string id_of(size_t item) { return "n" + std::to_string(item); }

// The folders as paths: what lies in one folder, and nothing else, has one path.
std::vector<std::string> namespaces(const Drawing &drawing) {
  std::vector<std::string> paths;
  std::set<std::string> taken;
  for (size_t f = 0; f < drawing.folders.size(); ++f) {
    const DrawnFolder &folder = drawing.folders[f];
    if (folder.kind == DrawnFolder::Kind::kWhole) {
      paths.emplace_back();
      continue;
    }
    std::string label = folder.label.empty() ? fmt::format("{} {}", to_string(folder.kind), f) : folder.label;
    for (char &c : label)
      if (c == '/') c = '.';
    const std::string &parent = paths[folder.parent];
    std::string path = parent.empty() ? label : parent + "/" + label;
    if (!taken.insert(path).second) taken.insert(path += fmt::format(" ({})", f));
    paths.push_back(std::move(path));
  }
  return paths;
}

std::string joined(const std::vector<std::string> &texts) {
  std::string all;
  for (const std::string &text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

class ExplorerGraph {
 public:
  ExplorerGraph(const Graph &graph, const Drawing &drawing, const GraphDiff &diff, NodeId DrawnItem::*node,
                ValueId DrawnItem::*value)
      : graph_(graph),
        drawing_(drawing),
        diff_(diff),
        node_(node),
        value_(value),
        source_(drawn_sources(graph, drawing, node, value)) {}

  Json print(const std::string &id, const std::vector<std::string> &paths) const {
    Json nodes = Json::array();
    for (size_t i = 0; i < drawing_.items.size(); ++i) {
      const DrawnItem &item = drawing_.items[i];
      const bool is_node = item.kind == DrawnItem::Kind::kNode;
      if (is_node ? !(item.*node_).valid() : !(item.*value_).valid()) continue;
      Json one = is_node ? node(item) : terminal(item);
      one["id"] = id_of(i);
      one["namespace"] = paths[item.folder];
      nodes.push_back(std::move(one));
    }
    return Json{{"id", id}, {"nodes", std::move(nodes)}};
  }

 private:
  static void attribute(Json &list, const std::string &key, const std::string &value) {
    if (!value.empty()) list.push_back({{"key", key}, {"value", value}});
  }

  Json result(size_t number, ValueId v) const {
    Json attributes = Json::array();
    attribute(attributes, "__tensor_tag", graph_.value(v).name);
    if (graph_.value(v).type.kind != Type::Kind::kNone)
      attribute(attributes, "tensor_shape", to_string(graph_.value(v).type));
    return Json{{"id", std::to_string(number)}, {"attrs", attributes}};
  }

  // An edge from what gives the value; of a constant, and of what no drawn node gives, there is none.
  void edge(Json &edges, ValueId v, size_t operand) const {
    const auto from = v.valid() ? source_.find(v.index) : source_.end();
    if (from == source_.end()) return;
    const Value &value = graph_.value(v);
    const size_t output = value.kind == ValueKind::kNodeOutput ? value.index : 0;
    edges.push_back({{"sourceNodeId", id_of(from->second)},
                     {"sourceNodeOutputId", std::to_string(output)},
                     {"targetNodeInputId", std::to_string(operand)}});
  }

  Json terminal(const DrawnItem &item) const {
    const ValueId v = item.*value_;
    const bool input = item.kind == DrawnItem::Kind::kInput;
    Json one{{"label", input ? "input" : "output"}}, edges = Json::array(), attributes = Json::array();
    attribute(attributes, "name", graph_.value(v).name);
    if (input)
      one["outputsMetadata"] = Json::array({result(0, v)});
    else
      edge(edges, v, 0);
    one["attrs"] = std::move(attributes);
    one["incomingEdges"] = std::move(edges);
    return one;
  }

  Json node(const DrawnItem &item) const {
    const Node &node = graph_.node(item.*node_);
    const DiffGroup &group = diff_.groups[item.group];
    Json one{{"label", node.op}}, edges = Json::array(), attributes = Json::array(), results = Json::array();
    attribute(attributes, "name", node.name);
    attribute(attributes, "status", to_string(group.status));
    attribute(attributes, "rules", joined(group.rules));
    attribute(attributes, "kernels", joined(group.kernels));
    for (const auto &[name, value] : node.attributes) attribute(attributes, name, attribute_text(value, false));
    size_t operand = 0;
    for (ValueId v : node.inputs) {
      edge(edges, v, operand);
      if (const Constant *constant = v.valid() ? graph_.constant(v) : nullptr)
        attribute(attributes, fmt::format("input {}", operand),
                  graph_.value(v).name + " " + to_string(Type::tensor(constant->type(), constant->shape())));
      ++operand;
    }
    for (const auto &[name, region] : node.regions)
      for (ValueId v : graph_.region(region).outputs) edge(edges, v, operand++);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i].valid()) results.push_back(result(i, node.outputs[i]));
    one["attrs"] = std::move(attributes);
    one["incomingEdges"] = std::move(edges);
    one["outputsMetadata"] = std::move(results);
    return one;
  }

  const Graph &graph_;
  const Drawing &drawing_;
  const GraphDiff &diff_;
  NodeId DrawnItem::*node_;
  ValueId DrawnItem::*value_;
  const DrawnSources source_;
};

std::string text_of(const Json &json) {
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

ModelExplorerFiles model_explorer_files(const Graph &before, const Graph &after, const GraphDiff &diff,
                                        const std::string &title, const NodeScopes &scopes) {
  const Drawing drawing = draw_union(before, after, diff, scopes);
  const std::vector<std::string> paths = namespaces(drawing);
  Json graphs = Json::array(
      {ExplorerGraph(before, drawing, diff, &DrawnItem::before, &DrawnItem::value_before).print("before", paths),
       ExplorerGraph(after, drawing, diff, &DrawnItem::after, &DrawnItem::value_after).print("after", paths)});
  // Each group is an entry: a node is of one group.
  std::vector<std::pair<Json, Json>> sides(diff.groups.size(), {Json::array(), Json::array()});
  Json entries = Json::array();
  for (size_t i = 0; i < drawing.items.size(); ++i) {
    const DrawnItem &item = drawing.items[i];
    if (item.kind != DrawnItem::Kind::kNode) {
      if (item.value_before.valid() && item.value_after.valid())
        entries.push_back({{"leftNodeIds", {id_of(i)}}, {"rightNodeIds", {id_of(i)}}});
      continue;
    }
    if (item.before.valid()) sides[item.group].first.push_back(id_of(i));
    if (item.after.valid()) sides[item.group].second.push_back(id_of(i));
  }
  for (auto &[left, right] : sides)
    if (!left.empty() && !right.empty())
      entries.push_back({{"leftNodeIds", std::move(left)}, {"rightNodeIds", std::move(right)}});
  return {text_of(Json{{"label", title}, {"graphs", std::move(graphs)}}),
          text_of(Json{{"type", "sync_navigation"},
                       {"mappingEntries", std::move(entries)},
                       {"disableMappingFallback", true},
                       {"showDiffHighlights", true}})};
}

}  // namespace optc
