// What a difference says: status of groups, patterns, text, JSON.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "emit/report/internal_diff.h"

namespace optc {

const char *to_string(DiffStatus status) {
  switch (status) {
    case DiffStatus::kSame:
      return "same";
    case DiffStatus::kChanged:
      return "changed";
    case DiffStatus::kFused:
      return "fused";
    case DiffStatus::kSplit:
      return "split";
    case DiffStatus::kRemoved:
      return "removed";
    case DiffStatus::kAdded:
      return "added";
  }
  return "same";
}

namespace {

// Where a GraphDiff counts the groups of each status, in the order in which they are told.
constexpr std::pair<DiffStatus, size_t GraphDiff::*> kCounts[] = {
    {DiffStatus::kSame, &GraphDiff::same},       {DiffStatus::kFused, &GraphDiff::fused},
    {DiffStatus::kChanged, &GraphDiff::changed}, {DiffStatus::kSplit, &GraphDiff::split},
    {DiffStatus::kRemoved, &GraphDiff::removed}, {DiffStatus::kAdded, &GraphDiff::added}};

template <typename T>
std::string list_text(const std::vector<T> &items) {
  std::string text;
  for (const T &item : items) text += fmt::format("{}{}", text.empty() ? "" : ",", item);
  return "[" + text + "]";
}

// `full`: everything, as a key; else what a reader wants to see.
std::string attribute_text(const Attribute &a, bool full) {
  if (const auto *i = std::get_if<int64_t>(&a)) return std::to_string(*i);
  if (const auto *f = std::get_if<float>(&a)) return fmt::format("{}", *f);
  if (const auto *s = std::get_if<std::string>(&a)) return *s;
  if (const auto *is = std::get_if<std::vector<int64_t>>(&a)) return list_text(*is);
  if (const auto *fs = std::get_if<std::vector<float>>(&a)) return list_text(*fs);
  if (const auto *ss = std::get_if<std::vector<std::string>>(&a)) return list_text(*ss);
  if (const auto *c = std::get_if<Constant>(&a))
    return full ? c->hash() : std::string(to_string(c->type())) + to_string(c->shape());
  return to_string(std::get<Type>(a));
}

// Whether two matched nodes compute from the same constants. An operand that is constant on one side only is a change
// of its producer.
bool same_constants(const Graph &a, const Node &x, const Graph &b, const Node &y) {
  for (size_t i = 0; i < x.inputs.size() && i < y.inputs.size(); ++i) {
    const Constant *p = a.constant(x.inputs[i]);
    const Constant *q = b.constant(y.inputs[i]);
    if (p && q && !p->equals(*q)) return false;
  }
  return true;
}

DiffStatus status_of(const Graph &a, const Graph &b, const DiffGroup &g) {
  if (g.before.empty()) return DiffStatus::kAdded;
  if (g.after.empty()) return DiffStatus::kRemoved;
  if (g.before.size() == 1 && g.after.size() == 1) {
    const Node &x = a.node(g.before[0]), &y = b.node(g.after[0]);
    return signature(x) == signature(y) && same_constants(a, x, b, y) ? DiffStatus::kSame : DiffStatus::kChanged;
  }
  return g.before.size() >= g.after.size() ? DiffStatus::kFused : DiffStatus::kSplit;
}

std::string times(size_t count, const std::string &op) { return count > 1 ? fmt::format("{}× {}", count, op) : op; }

// "Div + Erf + Add + 2× Mul"; of many kinds the most frequent.
std::string operators(const Graph &graph, const std::vector<NodeId> &nodes) {
  constexpr size_t kShown = 9;
  if (nodes.empty()) return "nothing";
  std::vector<std::pair<std::string, size_t>> runs;
  for (NodeId n : nodes) {
    const std::string &op = graph.node(n).op;
    if (runs.empty() || runs.back().first != op) runs.emplace_back(op, 0);
    ++runs.back().second;
  }
  const bool cut = runs.size() > kShown;
  if (cut) {
    std::map<std::string, size_t> counts;
    for (const auto &[op, count] : runs) counts[op] += count;
    runs.assign(counts.begin(), counts.end());
    std::stable_sort(runs.begin(), runs.end(), [](const auto &x, const auto &y) { return x.second > y.second; });
    if (runs.size() > kShown - 3) runs.resize(kShown - 3);
  }
  std::string text;
  size_t told = 0;
  for (const auto &[op, count] : runs) {
    text += (text.empty() ? "" : " + ") + times(count, op);
    told += count;
  }
  if (told < nodes.size()) text += fmt::format(" + {} more", nodes.size() - told);
  return text;
}

// Columns of a UTF-8 text.
size_t width(const std::string &text) {
  size_t columns = 0;
  for (const char c : text) columns += (c & 0xC0) != 0x80;
  return columns;
}

}  // namespace

std::string signature(const Node &node) {
  std::string key = node.op + "(" + std::to_string(node.inputs.size()) + ")";
  for (const auto &[name, value] : node.attributes) key += name + "=" + attribute_text(value, true) + ";";
  return key;
}

std::string attributes_text(const Node &node) {
  constexpr size_t kLongest = 60;
  std::string text;
  for (const auto &[name, value] : node.attributes) {
    std::string one = attribute_text(value, false);
    if (one.size() > kLongest) {
      size_t end = kLongest;
      while (end > 0 && (one[end] & 0xC0) == 0x80) --end;  // not inside a character
      one = one.substr(0, end) + "…";
    }
    text += (text.empty() ? "" : ", ") + name + "=" + one;
  }
  return text;
}

void finish_diff(const Graph &a, const Graph &b, GraphDiff &diff) {
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < diff.groups.size(); ++i) {
    DiffGroup &g = diff.groups[i];
    g.status = status_of(a, b, g);
    for (const auto &[status, count] : kCounts)
      if (status == g.status) ++(diff.*count);
    if (g.status == DiffStatus::kSame) continue;
    GraphDiff::Pattern pattern;
    pattern.before = operators(a, g.before);
    pattern.after = operators(b, g.after);
    pattern.status = g.status;
    for (const std::string &r : g.rules) pattern.rules += (pattern.rules.empty() ? "" : ", ") + r;
    const std::string key = pattern.before + ">" + pattern.after + ">" + pattern.rules;
    const auto [it, fresh] = index.emplace(key, diff.patterns.size());
    if (fresh) diff.patterns.push_back(pattern);
    diff.patterns[it->second].groups.push_back(i);
  }
  std::stable_sort(diff.patterns.begin(), diff.patterns.end(),
                   [](const auto &x, const auto &y) { return x.groups.size() > y.groups.size(); });
}

RulesByOrigin rules_by_origin(const std::vector<RewriteRecord> &rewrites) {
  RulesByOrigin rules;
  for (const RewriteRecord &r : rewrites)
    for (const auto *stamps : {&r.removed, &r.created})
      for (const NodeStamp &s : *stamps)
        for (uint32_t o : s.origin) {
          auto &list = rules[o];
          if (std::find(list.begin(), list.end(), r.rule) == list.end()) list.push_back(r.rule);
        }
  return rules;
}

void name_kernels(GraphDiff &diff, const Graph &after, const Program &program) {
  std::unordered_map<uint32_t, std::vector<size_t>> by_origin;  // positions in the order of execution
  for (size_t i = 0; i < program.order.size(); ++i)
    for (uint32_t o : program.kernel(program.order[i]).origin) by_origin[o].push_back(i);
  for (DiffGroup &g : diff.groups) {
    std::set<size_t> kernels;
    for (NodeId n : g.after)
      for (uint32_t o : after.node(n).origin)
        if (const auto it = by_origin.find(o); it != by_origin.end())
          kernels.insert(it->second.begin(), it->second.end());
    g.kernels.clear();
    for (size_t i : kernels) g.kernels.push_back(program.kernel(program.order[i]).name);
  }
}

std::string diff_text(const Graph &before, const Graph &after, const GraphDiff &diff, size_t lines) {
  constexpr size_t kColumn = 56;  // the arrow of longer texts stands further right
  std::string text = fmt::format("{} → {} nodes: ", before.live_node_count(), after.live_node_count());
  for (const auto &[status, count] : kCounts) {
    if (status == DiffStatus::kSame)
      text += fmt::format("{} same", diff.*count);
    else if (diff.*count)
      text += fmt::format(", {} {}", diff.*count, to_string(status));
  }
  text += "\n";
  size_t shown = diff.patterns.size();
  if (lines && shown > lines) shown = lines;
  size_t left = 0, right = 0;
  for (size_t i = 0; i < shown; ++i) {
    left = std::max(left, std::min(kColumn, width(diff.patterns[i].before)));
    if (!diff.patterns[i].rules.empty()) right = std::max(right, std::min(kColumn, width(diff.patterns[i].after)));
  }
  for (size_t i = 0; i < shown; ++i) {
    const GraphDiff::Pattern &p = diff.patterns[i];
    const auto pad = [](const std::string &s, size_t to) {
      return s + std::string(to > width(s) ? to - width(s) : 0, ' ');
    };
    text += fmt::format("{:>6}  {} → ", fmt::format("×{}", p.groups.size()), pad(p.before, left));
    text += p.rules.empty() ? p.after : fmt::format("{}   {}", pad(p.after, right), p.rules);
    text += "\n";
  }
  if (const size_t rest = diff.patterns.size() - shown)
    text += fmt::format("        and {} more pattern{}\n", rest, rest == 1 ? "" : "s");
  return text;
}

std::string diff_json(const Graph &before, const Graph &after, const GraphDiff &diff) {
  using Json = nlohmann::ordered_json;
  Json groups = Json::array();
  for (const DiffGroup &g : diff.groups) {
    Json one{{"status", to_string(g.status)}, {"rules", g.rules}, {"kernels", g.kernels}, {"evidence", g.evidence}};
    const auto nodes = [&](const char *key, const Graph &graph, const std::vector<NodeId> &ids) {
      Json list = Json::array();
      for (NodeId n : ids) list.push_back({{"name", graph.node(n).name}, {"op", graph.node(n).op}});
      one[key] = list;
    };
    nodes("before", before, g.before);
    nodes("after", after, g.after);
    groups.push_back(one);
  }
  Json patterns = Json::array();
  for (const GraphDiff::Pattern &p : diff.patterns)
    patterns.push_back({{"count", p.groups.size()},
                        {"before", p.before},
                        {"after", p.after},
                        {"rules", p.rules},
                        {"status", to_string(p.status)}});
  Json json{
      {"schema_version", 1}, {"nodes_before", before.live_node_count()}, {"nodes_after", after.live_node_count()}};
  for (const auto &[status, count] : kCounts) json[to_string(status)] = diff.*count;
  json["patterns"] = std::move(patterns);
  json["groups"] = std::move(groups);
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace optc
