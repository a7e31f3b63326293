// The data of the page, and the page. Texts are kept once in a table; columns are arrays.

#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "emit/report/internal_diff.h"
#include "emit/report/layout.h"
#include "emit/report/page_template.h"

namespace optc {
namespace {

using Json = nlohmann::ordered_json;

class Texts {
 public:
  size_t id(const std::string &text) {
    const auto [it, fresh] = ids_.emplace(text, list_.size());
    if (fresh) list_.push_back(text);
    return it->second;
  }
  Json ids(const std::vector<std::string> &texts) {
    Json list = Json::array();
    for (const std::string &text : texts) list.push_back(id(text));
    return list;
  }
  const std::vector<std::string> &list() const { return list_; }

 private:
  std::unordered_map<std::string, size_t> ids_;
  std::vector<std::string> list_;
};

double rounded(double x) { return std::round(x * 100) / 100; }

// One side: nodes in rows and columns of the layout, then the model's inputs and outputs as nodes of group -1.
Json pane(const Graph &graph, const std::vector<size_t> &group_of, Texts &texts) {
  const std::vector<NodeId> ids = graph.all_nodes();
  const Region &main = graph.region(Graph::main());
  std::vector<size_t> position(graph.node_capacity(), SIZE_MAX);
  std::unordered_map<uint32_t, size_t> source;  // value -> what gives it
  LayoutGraph layout;
  for (NodeId n : ids) {
    position[n.index] = layout.nodes++;
    for (ValueId v : graph.node(n).outputs)
      if (v.valid()) source[v.index] = position[n.index];
  }
  for (ValueId v : main.inputs) source[v.index] = layout.nodes++;
  std::vector<size_t> types;  // of the edges
  const auto edge = [&](ValueId v, size_t to) {
    const auto it = v.valid() ? source.find(v.index) : source.end();
    if (it == source.end()) return;
    const std::pair<size_t, size_t> ends{it->second, to};
    if (!layout.edges.empty() && layout.edges.back() == ends) return;
    layout.edges.push_back(ends);
    types.push_back(texts.id(to_string(graph.value(v).type)));
  };
  for (NodeId n : ids) {
    for (ValueId v : graph.node(n).inputs) edge(v, position[n.index]);
    for (const auto &[name, region] : graph.node(n).regions)  // what a body returns enters the node that owns it
      for (ValueId v : graph.region(region).outputs) edge(v, position[n.index]);
  }
  const size_t first_output = layout.nodes;
  for (ValueId v : main.outputs) edge(v, layout.nodes++);
  const Layout placed = layered_layout(layout);

  Json op = Json::array(), name = Json::array(), group = Json::array(), type = Json::array(), in = Json::array(),
       attributes = Json::array(), rank = Json::array(), x = Json::array(), edges = Json::array();
  for (NodeId n : ids) {
    const Node &node = graph.node(n);
    std::string made;
    for (ValueId v : node.outputs)
      if (v.valid()) made += (made.empty() ? "" : ", ") + to_string(graph.value(v).type);
    Json operands = Json::array();
    for (ValueId v : node.inputs) operands.push_back(texts.id(v.valid() ? graph.value(v).name : "_"));
    op.push_back(texts.id(node.op));
    name.push_back(texts.id(node.name));
    group.push_back(group_of[n.index]);
    type.push_back(texts.id(made));
    in.push_back(operands);
    attributes.push_back(texts.id(attributes_text(node)));
  }
  const auto terminal = [&](ValueId v, const char *kind) {
    op.push_back(texts.id(kind));
    name.push_back(texts.id(graph.value(v).name));
    group.push_back(-1);
    type.push_back(texts.id(to_string(graph.value(v).type)));
    in.push_back(Json::array());
    attributes.push_back(texts.id(""));
  };
  for (ValueId v : main.inputs) terminal(v, "input");
  for (ValueId v : main.outputs) terminal(v, "output");
  for (const LayoutPoint &point : placed.points) {
    rank.push_back(point.rank);
    x.push_back(rounded(point.x));
  }
  for (size_t e = 0; e < layout.edges.size(); ++e) {
    Json lane = Json::array();
    for (double at : placed.routes[e].lane) lane.push_back(rounded(at));
    edges.push_back({layout.edges[e].first, layout.edges[e].second, types[e], placed.routes[e].portal ? 1 : 0, lane});
  }
  return Json{
      {"op", op},     {"name", name}, {"group", group},          {"type", type},  {"in", in}, {"attr", attributes},
      {"rank", rank}, {"x", x},       {"outputs", first_output}, {"edges", edges}};
}

Json page_data(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title) {
  Texts texts;
  std::vector<size_t> group_a(before.node_capacity(), 0), group_b(after.node_capacity(), 0);
  Json groups = Json::array();
  for (size_t g = 0; g < diff.groups.size(); ++g) {
    const DiffGroup &one = diff.groups[g];
    for (NodeId n : one.before) group_a[n.index] = g;
    for (NodeId n : one.after) group_b[n.index] = g;
    groups.push_back({to_string(one.status), texts.ids(one.rules), texts.ids(one.kernels), texts.id(one.evidence)});
  }
  Json changes = Json::array();  // group (-1: of the model), what, before, after, more
  for (const DiffChange &c : diff.changes)
    changes.push_back({c.group == DiffChange::kModel ? -1 : static_cast<int64_t>(c.group), c.what, c.from, c.to, c.note,
                       c.node.empty() ? "" : c.node + " (" + c.op + ")"});
  Json patterns = Json::array();
  for (const GraphDiff::Pattern &p : diff.patterns)
    patterns.push_back({p.before, p.after, p.rules, to_string(p.status), p.groups});
  Json a = pane(before, group_a, texts), b = pane(after, group_b, texts);
  return Json{{"schema_version", 2},
              {"title", title},
              {"nodes", {before.live_node_count(), after.live_node_count()}},
              {"texts", texts.list()},
              {"groups", groups},
              {"patterns", patterns},
              {"changes", std::move(changes)},
              {"before", std::move(a)},
              {"after", std::move(b)}};
}

}  // namespace

std::string diff_html(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title) {
  std::string json =
      page_data(before, after, diff, title).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  // Inside <script>: no text of a model may end it, nor open a comment of HTML.
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos; at += 6) json.replace(at, 1, "\\u003c");
  std::string page(kDiffPage);
  const std::string mark = "/*DATA*/null";
  page.replace(page.find(mark), mark.size(), json);
  return page;
}

}  // namespace optc
