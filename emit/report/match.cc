#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "emit/report/diff.h"

namespace optc {

const char *to_string(DiffStatus status) {
  switch (status) {
    case DiffStatus::kSame: return "same";
    case DiffStatus::kChanged: return "changed";
    case DiffStatus::kFused: return "fused";
    case DiffStatus::kSplit: return "split";
    case DiffStatus::kRemoved: return "removed";
    case DiffStatus::kAdded: return "added";
  }
  return "same";
}

namespace {

std::string attribute_key(const Attribute &a) {
  if (const auto *i = std::get_if<int64_t>(&a)) return std::to_string(*i);
  if (const auto *f = std::get_if<float>(&a)) return std::to_string(*f);
  if (const auto *s = std::get_if<std::string>(&a)) return *s;
  std::string key;
  if (const auto *is = std::get_if<std::vector<int64_t>>(&a))
    for (int64_t i : *is) key += std::to_string(i) + ",";
  else if (const auto *fs = std::get_if<std::vector<float>>(&a))
    for (float f : *fs) key += std::to_string(f) + ",";
  else if (const auto *ss = std::get_if<std::vector<std::string>>(&a))
    for (const std::string &s : *ss) key += s + ",";
  else if (const auto *c = std::get_if<Constant>(&a))
    key = c->hash();
  else
    key = to_string(std::get<Type>(a));
  return key;
}

std::string signature(const Node &node) {
  std::string key = node.op + "(" + std::to_string(node.inputs.size()) + ")";
  for (const auto &[name, value] : node.attributes) key += name + "=" + attribute_key(value) + ";";
  return key;
}

// Whether two matched nodes also compute from the same constants.
bool same_constants(const Graph &a, const Node &x, const Graph &b, const Node &y) {
  for (size_t i = 0; i < x.inputs.size() && i < y.inputs.size(); ++i) {
    const Constant *p = x.inputs[i].valid() ? a.constant(x.inputs[i]) : nullptr;
    const Constant *q = y.inputs[i].valid() ? b.constant(y.inputs[i]) : nullptr;
    if (p && q && !p->equals(*q)) return false;
    if ((p != nullptr) != (q != nullptr)) return false;
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

std::string operators(const Graph &graph, const std::vector<NodeId> &nodes) {
  std::string text;
  std::string previous;
  size_t run = 0;
  auto flush = [&] {
    if (run == 0) return;
    if (!text.empty()) text += " + ";
    text += run > 1 ? std::to_string(run) + "x " + previous : previous;
    run = 0;
  };
  for (NodeId n : nodes) {
    if (graph.node(n).op != previous) {
      flush();
      previous = graph.node(n).op;
    }
    ++run;
  }
  flush();
  return text.empty() ? "nothing" : text;
}

void finish(const Graph &a, const Graph &b, GraphDiff &diff) {
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < diff.groups.size(); ++i) {
    DiffGroup &g = diff.groups[i];
    g.status = status_of(a, b, g);
    switch (g.status) {
      case DiffStatus::kSame: ++diff.same; continue;
      case DiffStatus::kChanged: ++diff.changed; break;
      case DiffStatus::kFused: ++diff.fused; break;
      case DiffStatus::kSplit: ++diff.split; break;
      case DiffStatus::kRemoved: ++diff.removed; break;
      case DiffStatus::kAdded: ++diff.added; break;
    }
    GraphDiff::Pattern pattern;
    pattern.before = operators(a, g.before);
    pattern.after = operators(b, g.after);
    pattern.status = g.status;
    for (const std::string &r : g.rules) pattern.rules += (pattern.rules.empty() ? "" : ", ") + r;
    const std::string key = pattern.before + ">" + pattern.after + ">" + pattern.rules;
    auto [it, fresh] = index.emplace(key, diff.patterns.size());
    if (fresh) diff.patterns.push_back(pattern);
    diff.patterns[it->second].groups.push_back(i);
  }
  std::stable_sort(diff.patterns.begin(), diff.patterns.end(),
                   [](const auto &x, const auto &y) { return x.groups.size() > y.groups.size(); });
}

class Sets {  // union-find over nodes of A (first) and of B (behind)
 public:
  explicit Sets(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }
  size_t find(size_t x) {
    while (parent_[x] != x) x = parent_[x] = parent_[parent_[x]];
    return x;
  }
  void join(size_t x, size_t y) {
    x = find(x), y = find(y);
    if (x != y) parent_[std::max(x, y)] = std::min(x, y);
  }

 private:
  std::vector<size_t> parent_;
};

GraphDiff groups_of(const Graph &a, const Graph &b, Sets &sets, const char *evidence) {
  GraphDiff diff;
  std::map<size_t, size_t> slot;
  auto group = [&](size_t member) -> DiffGroup & {
    auto [it, fresh] = slot.emplace(sets.find(member), diff.groups.size());
    if (fresh) {
      diff.groups.emplace_back();
      diff.groups.back().evidence = evidence;
    }
    return diff.groups[it->second];
  };
  for (NodeId n : a.all_nodes()) group(n.index).before.push_back(n);
  for (NodeId n : b.all_nodes()) group(a.node_capacity() + n.index).after.push_back(n);
  return diff;
}

}  // namespace

GraphDiff diff_by_origin(const Graph &before, const Graph &after, const std::vector<RewriteRecord> &rewrites) {
  // origin -> node of A; then every node of B joins the nodes of A that it came from.
  std::unordered_map<uint32_t, NodeId> home;
  for (NodeId n : before.all_nodes())
    for (uint32_t o : before.node(n).origin) home.emplace(o, n);
  Sets sets(before.node_capacity() + after.node_capacity());
  for (NodeId n : after.all_nodes())
    for (uint32_t o : after.node(n).origin)
      if (auto it = home.find(o); it != home.end()) sets.join(it->second.index, before.node_capacity() + n.index);
  GraphDiff diff = groups_of(before, after, sets, "origin");
  // A rewrite belongs to the groups of the nodes that it created or removed.
  std::unordered_map<uint32_t, std::vector<std::string>> rules;
  for (const RewriteRecord &r : rewrites)
    for (const auto *stamps : {&r.removed, &r.created})
      for (const NodeStamp &s : *stamps)
        for (uint32_t o : s.origin) {
          auto &list = rules[o];
          if (std::find(list.begin(), list.end(), r.rule) == list.end()) list.push_back(r.rule);
        }
  for (DiffGroup &g : diff.groups) {
    std::set<std::string> names;
    for (NodeId n : g.before)
      for (uint32_t o : before.node(n).origin)
        if (auto it = rules.find(o); it != rules.end()) names.insert(it->second.begin(), it->second.end());
    g.rules.assign(names.begin(), names.end());
  }
  finish(before, after, diff);
  return diff;
}

GraphDiff diff_graphs(const Graph &before, const Graph &after) {
  const size_t offset = before.node_capacity();
  Sets sets(offset + after.node_capacity());
  std::vector<bool> a_done(before.node_capacity(), false), b_done(after.node_capacity(), false);
  auto match = [&](NodeId x, NodeId y) {
    a_done[x.index] = b_done[y.index] = true;
    sets.join(x.index, offset + y.index);
  };
  // 1. The same output name and the same operator.
  std::unordered_map<std::string, NodeId> by_output;
  for (NodeId n : before.all_nodes())
    for (ValueId v : before.node(n).outputs)
      if (v.valid()) by_output.emplace(before.value(v).name, n);
  for (NodeId n : after.all_nodes())
    for (ValueId v : after.node(n).outputs) {
      if (!v.valid() || b_done[n.index]) continue;
      auto it = by_output.find(after.value(v).name);
      if (it != by_output.end() && !a_done[it->second.index] && before.node(it->second).op == after.node(n).op)
        match(it->second, n);
    }
  // 2. Fingerprints from the inputs on: operator, attributes and the fingerprints of the operands; unique pairs only.
  auto fingerprints = [](const Graph &g) {
    std::vector<std::string> value(g.value_capacity());
    std::vector<size_t> node(g.node_capacity(), 0);
    for (size_t i = 0; i < g.value_capacity(); ++i) {
      const Value &v = g.value(ValueId(i));
      if (v.kind == ValueKind::kConstant && v.alive) value[i] = v.constant.hash();
      if (v.kind == ValueKind::kRegionInput) value[i] = "in:" + v.name;
    }
    for (NodeId n : g.all_nodes()) {
      std::string key = signature(g.node(n));
      for (ValueId v : g.node(n).inputs) key += "|" + (v.valid() ? value[v.index] : std::string("_"));
      node[n.index] = std::hash<std::string>()(key);
      for (size_t i = 0; i < g.node(n).outputs.size(); ++i)
        if (g.node(n).outputs[i].valid())
          value[g.node(n).outputs[i].index] = std::to_string(node[n.index]) + "." + std::to_string(i);
    }
    return node;
  };
  const std::vector<size_t> fa = fingerprints(before), fb = fingerprints(after);
  std::unordered_map<size_t, std::vector<NodeId>> unmatched;
  for (NodeId n : before.all_nodes())
    if (!a_done[n.index]) unmatched[fa[n.index]].push_back(n);
  for (NodeId n : after.all_nodes()) {
    if (b_done[n.index]) continue;
    auto it = unmatched.find(fb[n.index]);
    if (it != unmatched.end() && it->second.size() == 1 && !a_done[it->second[0].index]) match(it->second[0], n);
  }
  // 3. What is left and touches: unmatched nodes that a value links form a region; a region of A and one of B between the same named
  // values are one change.
  auto regions = [](const Graph &g, const std::vector<bool> &done, Sets &local) {
    for (NodeId n : g.all_nodes()) {
      if (done[n.index]) continue;
      for (ValueId v : g.node(n).inputs)
        if (v.valid() && g.value(v).kind == ValueKind::kNodeOutput && !done[g.value(v).producer.index])
          local.join(g.value(v).producer.index, n.index);
    }
  };
  Sets ra(before.node_capacity()), rb(after.node_capacity());
  regions(before, a_done, ra);
  regions(after, b_done, rb);
  // The border of a region: names of values that leave it.
  auto borders = [](const Graph &g, const std::vector<bool> &done, Sets &local) {
    std::map<size_t, std::set<std::string>> names;
    for (NodeId n : g.all_nodes()) {
      if (done[n.index]) continue;
      for (ValueId v : g.node(n).outputs) {
        if (!v.valid()) continue;
        for (const Use &u : g.value(v).uses)
          if (u.kind == UseKind::kRegionOutput || done[u.node.index]) names[local.find(n.index)].insert(g.value(v).name);
      }
    }
    return names;
  };
  const auto border_a = borders(before, a_done, ra);
  std::map<std::string, size_t> leaving;
  for (const auto &[root, names] : border_a)
    for (const std::string &name : names) leaving.emplace(name, root);
  for (const auto &[root, names] : borders(after, b_done, rb))
    for (const std::string &name : names)
      if (auto it = leaving.find(name); it != leaving.end()) sets.join(it->second, offset + root);
  for (NodeId n : before.all_nodes())
    if (!a_done[n.index]) sets.join(ra.find(n.index), n.index);
  for (NodeId n : after.all_nodes())
    if (!b_done[n.index]) sets.join(offset + rb.find(n.index), offset + n.index);
  GraphDiff diff = groups_of(before, after, sets, "structure");
  for (DiffGroup &g : diff.groups)
    if (g.before.size() == 1 && g.after.size() == 1) g.evidence = "name";
  finish(before, after, diff);
  return diff;
}

std::string diff_text(const Graph &before, const Graph &after, const GraphDiff &diff) {
  std::string text = std::to_string(before.live_node_count()) + " -> " + std::to_string(after.live_node_count()) + " nodes: ";
  text += std::to_string(diff.same) + " same";
  auto part = [&](size_t count, const char *word) {
    if (count) text += ", " + std::to_string(count) + " " + word;
  };
  part(diff.fused, "fused");
  part(diff.changed, "changed");
  part(diff.split, "split");
  part(diff.removed, "removed");
  part(diff.added, "added");
  text += "\n";
  for (const GraphDiff::Pattern &p : diff.patterns) {
    text += "  x" + std::to_string(p.groups.size()) + "\t" + p.before + " -> " + p.after;
    if (!p.rules.empty()) text += "   (" + p.rules + ")";
    text += "\n";
  }
  return text;
}

}  // namespace optc
