// Which nodes of two graphs correspond.

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "emit/report/internal_diff.h"

namespace optc {
namespace {

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

// Matching of two files, from the surest evidence to the weakest. A pair is made once.
class Matcher {
 public:
  Matcher(const Graph &before, const Graph &after)
      : a_(before),
        b_(after),
        offset_(before.node_capacity()),
        sets_(offset_ + after.node_capacity()),
        evidence_(offset_ + after.node_capacity(), nullptr) {}

  // By the names that the exporter left: nodes of B without a note are those of the same name and operator.
  void by_notes(const Provenance &noted) {
    if (noted.origin.empty()) return;
    std::unordered_map<std::string, NodeId> home;
    for (NodeId n : a_.all_nodes()) home.emplace(a_.node(n).name, n);
    for (NodeId n : b_.all_nodes()) {
      const auto origin = noted.origin.find(b_.node(n).name);
      if (origin == noted.origin.end()) {
        const auto it = home.find(b_.node(n).name);
        if (it != home.end() && a_.node(it->second).op == b_.node(n).op) match(it->second, n, "origin");
        continue;
      }
      for (const std::string &name : origin->second)
        if (const auto it = home.find(name); it != home.end()) match(it->second, n, "origin");
    }
  }

  // The same output name and the same operator.
  void by_names() {
    std::unordered_map<std::string, NodeId> by_output;
    for (NodeId n : a_.all_nodes())
      for (ValueId v : a_.node(n).outputs)
        if (v.valid()) by_output.emplace(a_.value(v).name, n);
    for (NodeId n : b_.all_nodes())
      for (ValueId v : b_.node(n).outputs) {
        if (!v.valid() || done_b(n)) continue;
        const auto it = by_output.find(b_.value(v).name);
        if (it != by_output.end() && !done_a(it->second) && a_.node(it->second).op == b_.node(n).op)
          match(it->second, n, "name");
      }
  }

  // Fingerprints from the inputs on: operator, attributes and the fingerprints of the operands; then the same without
  // the content of constants, then from the outputs back. Unique pairs only.
  void by_structure() {
    by_fingerprints(from_inputs(a_, true), from_inputs(b_, true));
    by_fingerprints(from_inputs(a_, false), from_inputs(b_, false));
    by_fingerprints(from_outputs(a_), from_outputs(b_));
  }
  void by_fingerprints(const std::vector<size_t> &fa, const std::vector<size_t> &fb) {
    std::unordered_map<size_t, std::vector<NodeId>> of_a, of_b;
    for (NodeId n : a_.all_nodes())
      if (!done_a(n)) of_a[fa[n.index]].push_back(n);
    for (NodeId n : b_.all_nodes())
      if (!done_b(n)) of_b[fb[n.index]].push_back(n);
    for (const auto &[key, nodes] : of_b) {
      const auto it = of_a.find(key);
      if (nodes.size() == 1 && it != of_a.end() && it->second.size() == 1) match(it->second[0], nodes[0], "structure");
    }
  }

  // What is left and touches forms a region; a region of A and one of B that feed the same operand of matched nodes, or
  // the same output of the model, are one change.
  void by_regions() {
    const std::vector<bool> open_a = open(a_, 0), open_b = open(b_, offset_);
    Sets ra(a_.node_capacity()), rb(b_.node_capacity());
    regions(a_, open_a, ra);
    regions(b_, open_b, rb);
    std::map<std::string, size_t> leaving;
    for (const auto &[key, node] : borders(a_, open_a, 0)) leaving.emplace(key, ra.find(node));
    for (const auto &[key, node] : borders(b_, open_b, offset_)) {
      const auto it = leaving.find(key);
      if (it == leaving.end()) continue;
      sets_.join(it->second, offset_ + rb.find(node));
    }
    for (NodeId n : a_.all_nodes())
      if (open_a[n.index]) sets_.join(ra.find(n.index), n.index), evidence_[n.index] = "region";
    for (NodeId n : b_.all_nodes())
      if (open_b[n.index])
        sets_.join(offset_ + rb.find(n.index), offset_ + n.index), evidence_[offset_ + n.index] = "region";
  }

  void match(NodeId x, NodeId y, const char *evidence) {
    evidence_[x.index] = evidence_[offset_ + y.index] = evidence;
    sets_.join(x.index, offset_ + y.index);
  }

  GraphDiff groups() {
    GraphDiff diff;
    std::map<size_t, size_t> slot;
    const auto group = [&](size_t member) -> DiffGroup & {
      const auto [it, fresh] = slot.emplace(sets_.find(member), diff.groups.size());
      if (fresh) diff.groups.emplace_back();
      DiffGroup &g = diff.groups[it->second];
      if (g.evidence.empty() && evidence_[member]) g.evidence = evidence_[member];
      return g;
    };
    for (NodeId n : a_.all_nodes()) group(n.index).before.push_back(n);
    for (NodeId n : b_.all_nodes()) group(offset_ + n.index).after.push_back(n);
    for (DiffGroup &g : diff.groups)
      if (g.before.empty() || g.after.empty()) g.evidence.clear();
    return diff;
  }

 private:
  bool done_a(NodeId n) const { return evidence_[n.index] != nullptr; }
  bool done_b(NodeId n) const { return evidence_[offset_ + n.index] != nullptr; }

  static std::vector<size_t> from_inputs(const Graph &g, bool contents) {
    std::vector<std::string> value(g.value_capacity());
    std::vector<size_t> node(g.node_capacity(), 0);
    for (size_t i = 0; i < g.value_capacity(); ++i) {
      const Value &v = g.value(ValueId(i));
      if (v.kind == ValueKind::kConstant && v.alive) value[i] = contents ? v.constant.hash() : to_string(v.type);
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
  }

  static std::vector<size_t> from_outputs(const Graph &g) {
    std::vector<std::vector<std::string>> readers(g.value_capacity());
    for (size_t r = 0; r < g.region_capacity(); ++r) {
      const std::vector<ValueId> &outputs = g.region(RegionId(r)).outputs;
      for (size_t i = 0; i < outputs.size(); ++i)
        readers[outputs[i].index].push_back("out" + std::to_string(r) + "." + std::to_string(i));
    }
    std::vector<size_t> node(g.node_capacity(), 0);
    std::vector<NodeId> order = g.all_nodes();
    std::reverse(order.begin(), order.end());
    for (NodeId n : order) {
      std::string key = signature(g.node(n));
      for (ValueId v : g.node(n).outputs) {
        if (!v.valid()) continue;
        std::sort(readers[v.index].begin(), readers[v.index].end());
        key += "|";
        for (const std::string &reader : readers[v.index]) key += reader + ",";
      }
      node[n.index] = std::hash<std::string>()(key);
      for (size_t i = 0; i < g.node(n).inputs.size(); ++i)
        if (g.node(n).inputs[i].valid())
          readers[g.node(n).inputs[i].index].push_back(std::to_string(node[n.index]) + "." + std::to_string(i));
    }
    return node;
  }

  std::vector<bool> open(const Graph &g, size_t offset) const {
    std::vector<bool> result(g.node_capacity(), false);
    for (NodeId n : g.all_nodes()) result[n.index] = evidence_[offset + n.index] == nullptr;
    return result;
  }

  // A value that many read (a mask, a shape) does not make its readers one change.
  static void regions(const Graph &g, const std::vector<bool> &open, Sets &local) {
    constexpr size_t kMany = 4;
    for (NodeId n : g.all_nodes()) {
      if (!open[n.index]) continue;
      for (ValueId v : g.node(n).inputs)
        if (v.valid() && g.value(v).kind == ValueKind::kNodeOutput && open[g.value(v).producer.index] &&
            g.value(v).uses.size() < kMany)
          local.join(g.value(v).producer.index, n.index);
    }
  }

  // (what a value feeds outside its region, its producer) for all values that leave a region.
  std::vector<std::pair<std::string, size_t>> borders(const Graph &g, const std::vector<bool> &open, size_t offset) {
    std::vector<std::pair<std::string, size_t>> list;
    for (NodeId n : g.all_nodes()) {
      if (!open[n.index]) continue;
      for (ValueId v : g.node(n).outputs) {
        if (!v.valid()) continue;
        for (const Use &u : g.value(v).uses) {
          if (u.kind == UseKind::kRegionOutput) {
            if (u.region == Graph::main()) list.emplace_back("out " + g.value(v).name, n.index);
          } else if (!open[u.node.index]) {
            list.emplace_back(std::to_string(sets_.find(offset + u.node.index)) + "." + std::to_string(u.index),
                              n.index);
          }
        }
      }
    }
    return list;
  }

  const Graph &a_, &b_;
  const size_t offset_;
  Sets sets_;
  std::vector<const char *> evidence_;  // null: not matched yet
};

}  // namespace

GraphDiff diff_by_origin(const Graph &before, const Graph &after, const std::vector<RewriteRecord> &rewrites) {
  // origin -> node of A; then every node of B joins the nodes of A that it came from.
  std::unordered_map<uint32_t, NodeId> home;
  for (NodeId n : before.all_nodes())
    for (uint32_t o : before.node(n).origin) home.emplace(o, n);
  Matcher matcher(before, after);
  for (NodeId n : after.all_nodes())
    for (uint32_t o : after.node(n).origin)
      if (const auto it = home.find(o); it != home.end()) matcher.match(it->second, n, "origin");
  GraphDiff diff = matcher.groups();
  const RulesByOrigin rules = rules_by_origin(rewrites);
  for (DiffGroup &g : diff.groups) {
    std::set<std::string> names;
    const auto collect = [&](const Graph &graph, const std::vector<NodeId> &nodes) {
      for (NodeId n : nodes)
        for (uint32_t o : graph.node(n).origin)
          if (const auto it = rules.find(o); it != rules.end()) names.insert(it->second.begin(), it->second.end());
    };
    collect(before, g.before);
    collect(after, g.after);
    g.rules.assign(names.begin(), names.end());
  }
  finish_diff(before, after, diff);
  return diff;
}

GraphDiff diff_graphs(const Graph &before, const Graph &after, const Provenance &noted) {
  Matcher matcher(before, after);
  matcher.by_notes(noted);
  matcher.by_names();
  matcher.by_structure();
  matcher.by_regions();
  GraphDiff diff = matcher.groups();
  for (DiffGroup &g : diff.groups) {
    std::set<std::string> names;
    for (NodeId n : g.after)
      if (const auto it = noted.rules.find(after.node(n).name); it != noted.rules.end())
        names.insert(it->second.begin(), it->second.end());
    g.rules.assign(names.begin(), names.end());
  }
  finish_diff(before, after, diff);
  return diff;
}

}  // namespace optc
