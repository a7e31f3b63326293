// A difference as text, as Markdown and as JSON.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "emit/report/internal_diff.h"

namespace optc {
namespace {

// Columns of a UTF-8 text.
size_t width(const std::string &text) {
  size_t columns = 0;
  for (const char c : text) columns += (c & 0xC0) != 0x80;
  return columns;
}

// Where a pattern is met: names of nodes of its groups, the first ones.
std::string places(const Graph &before, const Graph &after, const GraphDiff &diff, const GraphDiff::Pattern &pattern) {
  constexpr size_t kShown = 2;
  std::string text;
  for (size_t i = 0; i < pattern.groups.size() && i < kShown; ++i) {
    const DiffGroup &g = diff.groups[pattern.groups[i]];
    const std::string &name = g.before.empty() ? after.node(g.after[0]).name : before.node(g.before[0]).name;
    text += (i ? ", '" : "'") + name + "'";
  }
  if (pattern.groups.size() > kShown) text += fmt::format(" and {} more", pattern.groups.size() - kShown);
  return text;
}

// Patterns that no line of a change says.
std::vector<const GraphDiff::Pattern *> told_patterns(const GraphDiff &diff) {
  std::vector<const GraphDiff::Pattern *> list;
  for (const GraphDiff::Pattern &p : diff.patterns)
    if (p.status != DiffStatus::kChanged || !p.rules.empty()) list.push_back(&p);
  return list;
}

size_t shown_of(size_t all, size_t lines) { return lines ? std::min(all, lines) : all; }

// "attribute strides [1,1] → [2,2]", "weight 'w' f32[8]: 3 of 8 values differ, by at most 0.5".
std::string change_text(const DiffChange &change) {
  std::string text = change.what + " ";
  if (change.from == change.to)
    text += change.from;
  else
    text += change.from + " → " + change.to;
  if (!change.note.empty()) text += (change.from == change.to ? ": " : "; ") + change.note;
  return text;
}

// Changes that read the same but for the node: the first of them, and how many there are.
struct AlikeChanges {
  const DiffChange *first = nullptr;
  size_t count = 0;
};
std::vector<AlikeChanges> alike_changes(const GraphDiff &diff) {
  std::vector<AlikeChanges> list;
  std::map<std::string, size_t> index;
  for (const DiffChange &change : diff.changes) {
    const bool model = change.group == DiffChange::kModel;
    const auto [it, fresh] = index.emplace((model ? "" : change.op) + "\n" + change_text(change), list.size());
    if (fresh || model)
      list.push_back({&change, 1});
    else
      ++list[it->second].count;
  }
  return list;
}

// A cell of a table of Markdown.
std::string cell(const std::string &text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out;
}

std::string rest_text(size_t all, size_t shown, const char *what) {
  if (all == shown) return "";
  return fmt::format("and {} more {}{}", all - shown, what, all - shown == 1 ? "" : "s");
}

// Nodes before and after of the groups of one status.
std::pair<size_t, size_t> nodes_of(const GraphDiff &diff, DiffStatus status) {
  std::pair<size_t, size_t> nodes;
  for (const DiffGroup &group : diff.groups) {
    if (group.status != status) continue;
    nodes.first += group.before.size();
    nodes.second += group.after.size();
  }
  return nodes;
}

}  // namespace

// What stands before "into" and what is removed adds up to the nodes before, what stands behind it and what is added to
// the nodes after.
std::string sum_text(const Graph &before, const Graph &after, const GraphDiff &diff) {
  std::string text =
      fmt::format("{} → {} nodes: {} same", before.live_node_count(), after.live_node_count(), diff.same);
  for (const auto &[status, count] : kStatusCounts) {
    if (status == DiffStatus::kSame || !(diff.*count)) continue;
    const auto [from, to] = nodes_of(diff, status);
    text += fmt::format(", {} {}", from ? from : to, to_string(status));
    if (status == DiffStatus::kFused || status == DiffStatus::kSplit) text += fmt::format(" into {}", to);
  }
  return text;
}

std::string diff_text(const Graph &before, const Graph &after, const GraphDiff &diff, size_t lines) {
  constexpr size_t kColumn = 56;  // the arrow of longer texts stands further right
  std::string text = sum_text(before, after, diff) + "\n";
  const std::vector<const GraphDiff::Pattern *> patterns = told_patterns(diff);
  const size_t shown = shown_of(patterns.size(), lines);
  const auto last = [&](const GraphDiff::Pattern &p) {
    return !p.rules.empty() ? p.rules : (p.note.empty() ? "" : p.note + "; ") + places(before, after, diff, p);
  };
  size_t left = 0, right = 0;
  for (size_t i = 0; i < shown; ++i) {
    left = std::max(left, std::min(kColumn, width(patterns[i]->before)));
    right = std::max(right, std::min(kColumn, width(patterns[i]->after)));
  }
  for (size_t i = 0; i < shown; ++i) {
    const GraphDiff::Pattern &p = *patterns[i];
    const auto pad = [](const std::string &s, size_t to) {
      return s + std::string(to > width(s) ? to - width(s) : 0, ' ');
    };
    text += fmt::format("{:>6}  {} → {}   {}\n", fmt::format("×{}", p.groups.size()), pad(p.before, left),
                        pad(p.after, right), last(p));
  }
  if (shown < patterns.size()) text += "        " + rest_text(patterns.size(), shown, "pattern") + "\n";
  const std::vector<AlikeChanges> changes = alike_changes(diff);
  const size_t told = shown_of(changes.size(), lines);
  for (size_t i = 0; i < told; ++i) {
    const DiffChange &change = *changes[i].first;
    const std::string more = changes[i].count > 1 ? fmt::format(" and {} more", changes[i].count - 1) : "";
    text += "  " +
            (change.group == DiffChange::kModel ? "" : fmt::format("'{}'{} ({}): ", change.node, more, change.op)) +
            change_text(change) + "\n";
  }
  if (told < changes.size()) text += "  " + rest_text(changes.size(), told, "change") + "\n";
  return text;
}

std::string diff_markdown(const Graph &before, const Graph &after, const GraphDiff &diff, const std::string &title,
                          size_t lines) {
  std::string text = fmt::format("# {}\n\n{}\n", title, sum_text(before, after, diff));
  const std::vector<const GraphDiff::Pattern *> patterns = told_patterns(diff);
  const size_t shown = shown_of(patterns.size(), lines);
  if (shown) text += "\n| count | before | after | what | where |\n|---:|---|---|---|---|\n";
  for (size_t i = 0; i < shown; ++i) {
    const GraphDiff::Pattern &p = *patterns[i];
    text += fmt::format("| {} | {} | {} | {} | {} |\n", p.groups.size(), cell(p.before), cell(p.after),
                        cell(!p.rules.empty()  ? p.rules
                             : !p.note.empty() ? p.note
                                               : to_string(p.status)),
                        cell(places(before, after, diff, p)));
  }
  if (shown < patterns.size()) text += "\n" + rest_text(patterns.size(), shown, "pattern") + "\n";
  const std::vector<AlikeChanges> changes = alike_changes(diff);
  const size_t told = shown_of(changes.size(), lines);
  if (told) text += "\n| node | operator | what | before | after | |\n|---|---|---|---|---|---|\n";
  for (size_t i = 0; i < told; ++i) {
    const DiffChange &c = *changes[i].first;
    const std::string more = changes[i].count > 1 ? fmt::format(" and {} more", changes[i].count - 1) : "";
    text += fmt::format("| {}{} | {} | {} | {} | {} | {} |\n", cell(c.node), more, cell(c.op), cell(c.what),
                        cell(c.from), cell(c.to), cell(c.note));
  }
  if (told < changes.size()) text += "\n" + rest_text(changes.size(), told, "change") + "\n";
  return text;
}

std::string diff_json(const Graph &before, const Graph &after, const GraphDiff &diff) {
  using Json = nlohmann::ordered_json;
  Json groups = Json::array();
  for (const DiffGroup &g : diff.groups) {
    Json one{{"status", to_string(g.status)}, {"rules", g.rules}, {"kernels", g.kernels}, {"evidence", g.evidence}};
    if (!g.note.empty()) one["note"] = g.note;
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
                        {"note", p.note},
                        {"status", to_string(p.status)}});
  Json json{
      {"schema_version", 1}, {"nodes_before", before.live_node_count()}, {"nodes_after", after.live_node_count()}};
  for (const auto &[status, count] : kStatusCounts) {
    const auto [from, to] = nodes_of(diff, status);
    json[to_string(status)] = diff.*count;
    json["nodes_by_status"][to_string(status)] = {from, to};
  }
  json["equal"] = diff.equal();
  Json changes = Json::array();
  for (const DiffChange &c : diff.changes) {
    Json one{{"kind", to_string(c.kind)}, {"what", c.what}, {"from", c.from}, {"to", c.to}, {"note", c.note}};
    if (c.group != DiffChange::kModel)
      one.update(Json{{"node", c.node}, {"node_after", c.node_after}, {"op", c.op}, {"group", c.group}});
    if (c.count) one.update(Json{{"values", c.count}, {"differing", c.differing}, {"largest_difference", c.largest}});
    changes.push_back(one);
  }
  json["changes"] = std::move(changes);
  json["patterns"] = std::move(patterns);
  json["groups"] = std::move(groups);
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace optc
