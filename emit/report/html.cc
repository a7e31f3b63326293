// The data of the page, and the page. Texts are kept once in a table; columns are arrays, and where their numbers grow
// slowly, of the differences from one to the next (data.js adds them up): a graph of 10,000 nodes is to take less than
// 1 MB.

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "emit/report/drawing.h"
#include "emit/report/internal_diff.h"
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

// Numbers as differences, of one column or one list after another.
class Differences {
 public:
  int64_t of(int64_t number) { return number - std::exchange(last_, number); }
  template <typename List>
  Json list(const List &numbers) {
    Json all = Json::array();
    for (const auto number : numbers) all.push_back(of(static_cast<int64_t>(number)));
    return all;
  }

 private:
  int64_t last_ = 0;
};
template <typename List>
Json differences(const List &numbers) {
  return Differences().list(numbers);
}

// One graph of the drawing, as the page wants to know it.
class Side {
 public:
  Side(const Graph &graph, const Drawing &drawing, NodeId DrawnItem::*node, ValueId DrawnItem::*value, Texts &texts)
      : graph_(graph), node_(node), value_(value), texts_(texts), source_(drawn_sources(graph, drawing, node, value)) {}
  bool has(const DrawnItem &item) const {
    return item.kind == DrawnItem::Kind::kNode ? (item.*node_).valid() : (item.*value_).valid();
  }
  // Operator, name, type and attributes as texts; operands: by how much an item's number is smaller than `own`, kAhead
  // plus its number where it is not, or -1 - the text of a constant's name.
  Json facts(const DrawnItem &item, size_t own) {
    if (item.kind != DrawnItem::Kind::kNode) {
      const Value &value = graph_.value(item.*value_);
      Json operands = Json::array();
      if (item.kind == DrawnItem::Kind::kOutput) operands.push_back(operand(item.*value_, own));
      return {texts_.id(item.kind == DrawnItem::Kind::kInput ? "input" : "output"), texts_.id(value.name),
              texts_.id(to_string(value.type)), texts_.id(""), operands};
    }
    const Node &node = graph_.node(item.*node_);
    std::string made;
    for (ValueId v : node.outputs)
      if (v.valid() && graph_.value(v).type.kind != Type::Kind::kNone)
        made += (made.empty() ? "" : ", ") + to_string(graph_.value(v).type);
    Json operands = Json::array();
    for (ValueId v : node.inputs) operands.push_back(operand(v, own));
    return {texts_.id(node.op), texts_.id(node.name), texts_.id(made), texts_.id(attributes_text(node)), operands};
  }
  // What the bodies of a node give it: they are no operands.
  std::set<size_t> results_of_bodies(const DrawnItem &item) const {
    std::set<size_t> items;
    if (item.kind != DrawnItem::Kind::kNode || !has(item)) return items;
    for (const auto &[name, region] : graph_.node(item.*node_).regions)
      for (ValueId v : graph_.region(region).outputs)
        if (const auto it = source_.find(v.index); it != source_.end()) items.insert(it->second);
    return items;
  }

 private:
  static constexpr int64_t kAhead = 10'000'000;

  int64_t operand(ValueId v, size_t own) {
    if (!v.valid()) return -1 - static_cast<int64_t>(texts_.id("_"));
    const auto it = source_.find(v.index);
    if (it == source_.end()) return -1 - static_cast<int64_t>(texts_.id(graph_.value(v).name));
    return it->second < own ? static_cast<int64_t>(own - it->second) : kAhead + static_cast<int64_t>(it->second);
  }

  const Graph &graph_;
  NodeId DrawnItem::*node_;
  ValueId DrawnItem::*value_;
  Texts &texts_;
  const DrawnSources source_;
};

// The items by columns, those that are different after the rewrites once more, and edges that no operand says.
void write_items(const Graph &before, const Graph &after, const Drawing &drawing, Texts &texts, Json &data) {
  Side a(before, drawing, &DrawnItem::before, &DrawnItem::value_before, texts);
  Side b(after, drawing, &DrawnItem::after, &DrawnItem::value_after, texts);
  std::string kinds, sides;
  Json columns[5] = {Json::array(), Json::array(), Json::array(), Json::array(), Json::array()};
  std::vector<int64_t> group, folder;
  Json sizes = Json::array(), other = Json::object(), extra = Json::array();
  for (size_t i = 0; i < drawing.items.size(); ++i) {
    const DrawnItem &item = drawing.items[i];
    const bool in_a = a.has(item), in_b = b.has(item);
    kinds += static_cast<char>('0' + static_cast<int>(item.kind));
    sides += static_cast<char>('0' + (in_a ? kSideBefore : 0) + (in_b ? kSideAfter : 0));
    const Json facts = in_a ? a.facts(item, i) : b.facts(item, i);
    for (size_t c = 0; c < 5; ++c) columns[c].push_back(facts[c]);
    if (in_a && in_b) {
      Json then = b.facts(item, i);
      if (then != facts) other[std::to_string(i)] = std::move(then);
    }
    group.push_back(item.kind == DrawnItem::Kind::kNode ? static_cast<int64_t>(item.group) : -1);
    folder.push_back(static_cast<int64_t>(item.folder));
    if (item.shape_arithmetic) sizes.push_back(i);
    std::map<size_t, int> given;
    for (size_t from : a.results_of_bodies(item)) given[from] |= kSideBefore;
    for (size_t from : b.results_of_bodies(item)) given[from] |= kSideAfter;
    for (const auto &[from, which] : given) extra.push_back({from, i, which});
  }
  data["items"] = Json{{"kind", kinds},
                       {"sides", sides},
                       {"op", columns[0]},
                       {"name", differences(columns[1].get<std::vector<int64_t>>())},
                       {"type", columns[2]},
                       {"attr", columns[3]},
                       {"in", columns[4]},
                       {"group", differences(group)},
                       {"folder", differences(folder)}};
  data["after"] = std::move(other);
  data["bodies"] = std::move(extra);
  data["sizes"] = std::move(sizes);
}

void write_folders(const Drawing &drawing, Texts &texts, Json &data) {
  Json parent = Json::array(), kind = Json::array(), label = Json::array();
  for (const DrawnFolder &folder : drawing.folders) {
    parent.push_back(folder.parent);
    kind.push_back(texts.id(to_string(folder.kind)));
    label.push_back(texts.id(folder.label));
  }
  data["folders"] = Json{{"parent", parent}, {"kind", kind}, {"label", label}};
}

using GroupsByOrigin = std::unordered_map<uint32_t, size_t>;
GroupsByOrigin groups_by_origin(const Graph &before, const GraphDiff &diff) {
  GroupsByOrigin group_of;
  for (size_t g = 0; g < diff.groups.size(); ++g)
    for (NodeId n : diff.groups[g].before)
      for (uint32_t origin : before.node(n).origin) group_of.emplace(origin, g);
  return group_of;
}

// The rewrites in their order, those of one rule that follow each other as one step: pass, rule, how many, and the
// groups that they changed.
Json rewrite_steps(const std::vector<RewriteRecord> &rewrites, const GroupsByOrigin &group_of, Texts &texts) {
  Json list = Json::array();
  for (size_t at = 0; at < rewrites.size();) {
    const RewriteRecord &first = rewrites[at];
    std::set<size_t> groups;
    size_t end = at;
    for (; end < rewrites.size() && rewrites[end].rule == first.rule && rewrites[end].pass == first.pass; ++end)
      for (const auto *stamps : {&rewrites[end].removed, &rewrites[end].created})
        for (const NodeStamp &stamp : *stamps)
          for (uint32_t origin : stamp.origin)
            if (const auto it = group_of.find(origin); it != group_of.end()) groups.insert(it->second);
    list.push_back({texts.id(first.pass), texts.id(first.rule), end - at, differences(groups)});
    at = end;
  }
  return list;
}

// The steps of lowering likewise, as of a pass of that name; and what they were about, the first of many.
void add_lowering_steps(const std::vector<LoweringStep> &steps, const GroupsByOrigin &group_of, Texts &texts,
                        Json &list) {
  constexpr size_t kNamed = 12;
  for (size_t at = 0; at < steps.size();) {
    std::set<size_t> groups;
    std::vector<std::string> about;
    size_t end = at;
    for (; end < steps.size() && steps[end].name == steps[at].name; ++end) {
      if (about.size() < kNamed) about.push_back(steps[end].where);
      for (uint32_t origin : steps[end].origin)
        if (const auto it = group_of.find(origin); it != group_of.end()) groups.insert(it->second);
    }
    list.push_back({texts.id("lowering"), texts.id(steps[at].name), end - at, differences(groups), texts.ids(about)});
    at = end;
  }
}

// Which buffer lies where in the arena and from which kernel to which: the kernels in their order; of the buffers
// names, bytes, first steps and for how many more they live (to the number of kernels: the end) and offsets. -1: the
// dims of a run decide.
Json memory_of(const Program &program, Texts &texts) {
  const auto number = [](Dim d) { return d.is_constant() && d.value() < kDimOverflow ? d.value() : -1; };
  std::vector<size_t> kernels, names, first;
  Json bytes = Json::array(), lives = Json::array(), offsets = Json::array();
  for (KernelId k : program.order) kernels.push_back(texts.id(program.kernel(k).name));
  for (const Placement &p : program.placements) {
    names.push_back(texts.id(program.buffer(p.buffer).name));
    bytes.push_back(number(p.bytes));
    first.push_back(p.first);
    lives.push_back(p.last - p.first);
    offsets.push_back(number(p.offset));
  }
  return Json{{"arena", number(program.arena_bytes)},
              {"kernels", differences(kernels)},
              {"name", differences(names)},
              {"bytes", bytes},
              {"first", differences(first)},
              {"lives", lives},
              {"offset", offsets}};
}

// By columns: statuses as digits, in the order of DiffStatus; rules of those that have some; kernels; evidence.
Json groups_of(const GraphDiff &diff, Texts &texts) {
  std::string status;
  Json rules = Json::object(), kernels = Json::array(), matched = Json::array();
  Differences kernel, evidence;
  for (size_t g = 0; g < diff.groups.size(); ++g) {
    const DiffGroup &one = diff.groups[g];
    status += static_cast<char>('0' + static_cast<int>(one.status));
    if (!one.rules.empty()) rules[std::to_string(g)] = texts.ids(one.rules);
    std::vector<size_t> ids;
    for (const std::string &name : one.kernels) ids.push_back(texts.id(name));
    kernels.push_back(kernel.list(ids));
    matched.push_back(evidence.of(static_cast<int64_t>(texts.id(one.evidence))));
  }
  return Json{{"status", status}, {"rules", rules}, {"kernels", kernels}, {"evidence", matched}};
}

Json page_data(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title,
               const PageFacts &facts) {
  Texts texts;
  Json groups = groups_of(diff, texts);
  Json changes = Json::array();  // group (-1: of the model), what, before, after, more
  for (const DiffChange &c : diff.changes)
    changes.push_back({c.group == DiffChange::kModel ? -1 : static_cast<int64_t>(c.group), c.what, c.from, c.to, c.note,
                       c.node.empty() ? "" : c.node + " (" + c.op + ")"});
  Json patterns = Json::array();
  for (const GraphDiff::Pattern &p : diff.patterns)
    patterns.push_back({p.before, p.after, p.rules.empty() ? p.note : p.rules, to_string(p.status), p.groups, p.note});
  Json data{{"schema_version", 4},
            {"title", title},
            {"nodes", {before.live_node_count(), after.live_node_count()}},
            {"groups", groups},
            {"patterns", patterns},
            {"changes", std::move(changes)},
            {"sum", sum_text(before, after, diff)}};
  const Drawing drawing = draw_union(before, after, diff, facts.scopes);
  write_items(before, after, drawing, texts, data);
  write_folders(drawing, texts, data);
  const GroupsByOrigin group_of = facts.rewrites || facts.lowering ? groups_by_origin(before, diff) : GroupsByOrigin();
  Json steps = facts.rewrites ? rewrite_steps(*facts.rewrites, group_of, texts) : Json::array();
  data["rewrites"] = steps.size();
  if (facts.lowering) add_lowering_steps(*facts.lowering, group_of, texts, steps);
  data["steps"] = std::move(steps);
  if (facts.program) data["memory"] = memory_of(*facts.program, texts);
  data["texts"] = texts.list();
  return data;
}

}  // namespace

std::string diff_html(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title,
                      const PageFacts &facts) {
  std::string json =
      page_data(before, after, diff, title, facts).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  // Inside <script>: no text of a model may end it, nor open a comment of HTML.
  for (size_t at = 0; (at = json.find('<', at)) != std::string::npos; at += 6) json.replace(at, 1, "\\u003c");
  std::string page(kDiffPage);
  const std::string mark = "/*DATA*/null";
  page.replace(page.find(mark), mark.size(), json);
  return page;
}

}  // namespace optc
