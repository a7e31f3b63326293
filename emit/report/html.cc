#include <nlohmann/json.hpp>

#include "emit/report/diff.h"
#include "emit/report/layout.h"
#include "emit/report/page_template.h"

namespace optc {
namespace {

using Json = nlohmann::ordered_json;

Json pane(const Graph &graph, const std::vector<std::pair<NodeId, size_t>> &group_of) {
  std::vector<size_t> position(graph.node_capacity(), SIZE_MAX);
  LayoutGraph layout;
  for (const auto &[n, g] : group_of) position[n.index] = layout.nodes++;
  Json edges = Json::array();
  for (const auto &[n, g] : group_of)
    for (ValueId v : graph.node(n).inputs)
      if (v.valid() && graph.value(v).kind == ValueKind::kNodeOutput && position[graph.value(v).producer.index] != SIZE_MAX) {
        const std::pair<size_t, size_t> edge{position[graph.value(v).producer.index], position[n.index]};
        if (!layout.edges.empty() && layout.edges.back() == edge) continue;
        layout.edges.push_back(edge);
        edges.push_back({edge.first, edge.second, to_string(graph.value(v).type)});
      }
  const std::vector<LayoutPoint> points = layered_layout(layout);
  Json nodes = Json::array();
  for (size_t i = 0; i < group_of.size(); ++i) {
    const Node &node = graph.node(group_of[i].first);
    std::string types, operands;
    for (ValueId v : node.outputs)
      if (v.valid()) types += (types.empty() ? "" : ", ") + to_string(graph.value(v).type);
    for (ValueId v : node.inputs) operands += (operands.empty() ? "" : ", ") + (v.valid() ? graph.value(v).name : std::string("_"));
    nodes.push_back({node.op, node.name, points[i].rank, points[i].x, group_of[i].second, types, operands});
  }
  return Json{{"nodes", nodes}, {"edges", edges}};
}

Json page_data(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title) {
  std::vector<std::pair<NodeId, size_t>> a, b;
  std::vector<size_t> group_a(before.node_capacity(), 0), group_b(after.node_capacity(), 0);
  Json groups = Json::array();
  for (size_t g = 0; g < diff.groups.size(); ++g) {
    for (NodeId n : diff.groups[g].before) group_a[n.index] = g;
    for (NodeId n : diff.groups[g].after) group_b[n.index] = g;
    groups.push_back({to_string(diff.groups[g].status), diff.groups[g].rules, diff.groups[g].kernels, diff.groups[g].evidence});
  }
  for (NodeId n : before.all_nodes()) a.emplace_back(n, group_a[n.index]);
  for (NodeId n : after.all_nodes()) b.emplace_back(n, group_b[n.index]);
  Json patterns = Json::array();
  for (const GraphDiff::Pattern &p : diff.patterns)
    patterns.push_back({p.groups.size(), p.before, p.after, p.rules, to_string(p.status), p.groups});
  return Json{{"schema_version", 1}, {"title", title},    {"groups", groups}, {"patterns", patterns},
              {"before", pane(before, a)}, {"after", pane(after, b)}};
}

}  // namespace

std::string diff_html(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title) {
  std::string json = page_data(before, after, diff, title).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  // Inside <script>: no text of a model may end it.
  for (size_t at = 0; (at = json.find("</", at)) != std::string::npos; at += 3) json.replace(at, 2, "<\\/");
  std::string page(kDiffPage);
  const std::string mark = "/*DATA*/null";
  const size_t at = page.find(mark);
  page.replace(at, mark.size(), json);
  return page;
}

std::string diff_json(const Graph &before, const Graph &after, const GraphDiff &diff) {
  Json groups = Json::array();
  for (const DiffGroup &g : diff.groups) {
    Json one{{"status", to_string(g.status)}, {"rules", g.rules}, {"kernels", g.kernels}, {"evidence", g.evidence}};
    for (const auto &[key, graph, nodes] : {std::tuple("before", &before, &g.before), std::tuple("after", &after, &g.after)}) {
      Json list = Json::array();
      for (NodeId n : *nodes) list.push_back({{"name", graph->node(n).name}, {"op", graph->node(n).op}});
      one[key] = list;
    }
    groups.push_back(one);
  }
  Json patterns = Json::array();
  for (const GraphDiff::Pattern &p : diff.patterns)
    patterns.push_back({{"count", p.groups.size()}, {"before", p.before}, {"after", p.after}, {"rules", p.rules}, {"status", to_string(p.status)}});
  return Json{{"schema_version", 1},
              {"nodes_before", before.live_node_count()},
              {"nodes_after", after.live_node_count()},
              {"same", diff.same},
              {"fused", diff.fused},
              {"changed", diff.changed},
              {"split", diff.split},
              {"removed", diff.removed},
              {"added", diff.added},
              {"patterns", patterns},
              {"groups", groups}}
             .dump(1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace optc
