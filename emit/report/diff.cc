// What a difference says: status of groups, counts, patterns.

#include <fmt/format.h>

#include <algorithm>
#include <map>
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

size_t GraphDiff::*count_of(DiffStatus status) {
  for (const auto &[one, count] : kStatusCounts)
    if (one == status) return count;
  return &GraphDiff::same;
}

template <typename T>
std::string list_text(const std::vector<T> &items) {
  std::string text;
  for (const T &item : items) text += fmt::format("{}{}", text.empty() ? "" : ",", item);
  return "[" + text + "]";
}

// Of one node that became one node: same, until a change is found.
DiffStatus status_of(const DiffGroup &g) {
  if (g.before.empty()) return DiffStatus::kAdded;
  if (g.after.empty()) return DiffStatus::kRemoved;
  if (g.before.size() == 1 && g.after.size() == 1) return DiffStatus::kSame;
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

}  // namespace

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

namespace {

// Counts the groups and collects the patterns, of statuses that stand.
void collect(const Graph &a, const Graph &b, GraphDiff &diff) {
  for (const auto &[status, count] : kStatusCounts) diff.*count = 0;
  diff.patterns.clear();
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < diff.groups.size(); ++i) {
    DiffGroup &g = diff.groups[i];
    ++(diff.*count_of(g.status));
    if (g.status == DiffStatus::kSame) continue;
    GraphDiff::Pattern pattern;
    const bool constant = g.evidence == "constant";
    pattern.before = constant && g.before.empty() ? "a constant" : operators(a, g.before);
    pattern.after = constant && g.after.empty() ? "a constant" : operators(b, g.after);
    pattern.status = g.status;
    for (const std::string &r : g.rules) pattern.rules += (pattern.rules.empty() ? "" : ", ") + r;
    pattern.note = g.note;
    const std::string key = pattern.before + ">" + pattern.after + ">" + pattern.rules + ">" + pattern.note;
    const auto [it, fresh] = index.emplace(key, diff.patterns.size());
    if (fresh) diff.patterns.push_back(pattern);
    diff.patterns[it->second].groups.push_back(i);
  }
  std::stable_sort(diff.patterns.begin(), diff.patterns.end(),
                   [](const auto &x, const auto &y) { return x.groups.size() > y.groups.size(); });
}

}  // namespace

void finish_diff(const Graph &a, const Graph &b, GraphDiff &diff, Told told) {
  for (DiffGroup &g : diff.groups) g.status = status_of(g);
  find_changes(a, b, diff, told);
  collect(a, b, diff);
}

void ignore_changes(const Graph &before, const Graph &after, GraphDiff &diff, uint32_t kinds) {
  std::erase_if(diff.changes, [&](const DiffChange &change) { return (bit_of(change.kind) & kinds) != 0; });
  for (DiffGroup &g : diff.groups)
    if (g.status == DiffStatus::kChanged && (g.kinds &= ~kinds) == 0) g.status = status_of(g);
  collect(before, after, diff);
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

}  // namespace optc
