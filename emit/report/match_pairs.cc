// Pairs of nodes by what they say of themselves: notes, fingerprints, names.

#include <algorithm>

#include "emit/report/internal_diff.h"
#include "emit/report/matcher.h"

namespace optc {

constexpr uint64_t kNoKey = 0;

// By the names that the exporter left: nodes of B without a note are those of the same name and operator.
void Matcher::by_notes(const Provenance &noted) {
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

// Nodes whose key is unique in both graphs among those that are left.
void Matcher::by_keys(const std::vector<uint64_t> &of_a, const std::vector<uint64_t> &of_b, const char *evidence) {
  std::unordered_map<uint64_t, std::pair<size_t, NodeId>> in_a, in_b;  // key -> how many, the first
  const auto count = [](auto &map, uint64_t key, NodeId n) {
    if (key != kNoKey && ++map[key].first == 1) map[key].second = n;
  };
  for (NodeId n : a_.all_nodes())
    if (!done_a(n)) count(in_a, of_a[n.index], n);
  for (NodeId n : b_.all_nodes())
    if (!done_b(n)) count(in_b, of_b[n.index], n);
  for (NodeId n : b_.all_nodes()) {
    if (done_b(n) || of_b[n.index] == kNoKey || in_b[of_b[n.index]].first != 1) continue;
    const auto it = in_a.find(of_b[n.index]);
    if (it != in_a.end() && it->second.first == 1) match(it->second.second, n, evidence);
  }
}

void Matcher::by_fingerprints(Contents contents, Through through) {
  const auto copies = [&](const NeutralNodes &list) { return through == Through::kNeutral ? &list : nullptr; };
  const NeutralNodes *of_a = copies(neutral_a_), *of_b = copies(neutral_b_);
  by_keys(fingerprints_from_inputs(a_, contents, inputs_a_, of_a),
          fingerprints_from_inputs(b_, contents, inputs_b_, of_b), "structure");
  by_keys(fingerprints_from_outputs(a_, contents, outputs_a_, of_a),
          fingerprints_from_outputs(b_, contents, outputs_b_, of_b), "structure");
}

// Of nodes that nothing tells apart there are as many in both graphs: they correspond in their order.
void Matcher::in_order(const std::vector<uint64_t> &of_a, const std::vector<uint64_t> &of_b) {
  std::unordered_map<uint64_t, std::vector<NodeId>> in_a, in_b;
  for (NodeId n : a_.all_nodes())
    if (!done_a(n)) in_a[of_a[n.index]].push_back(n);
  for (NodeId n : b_.all_nodes())
    if (!done_b(n)) in_b[of_b[n.index]].push_back(n);
  for (NodeId n : b_.all_nodes()) {
    if (done_b(n)) continue;
    const std::vector<NodeId> &y = in_b[of_b[n.index]];
    const auto x = in_a.find(of_b[n.index]);
    if (x == in_a.end() || x->second.size() != y.size()) continue;
    for (size_t i = 0; i < y.size(); ++i) match(x->second[i], y[i], "structure");
  }
}

// Names mean something when most pairs that were found without them share one.
bool Matcher::names_agree() const {
  size_t pairs = 0, agree = 0;
  for (NodeId x : a_.all_nodes()) {
    if (!done_a(x)) continue;
    const Node &p = a_.node(x), &q = b_.node(partner_[x.index]);
    if (p.op != q.op) continue;
    bool one = p.name == q.name;
    for (size_t i = 0; i < p.outputs.size() && i < q.outputs.size(); ++i)
      one = one || (p.outputs[i].valid() && q.outputs[i].valid() &&
                    a_.value(p.outputs[i]).name == b_.value(q.outputs[i]).name);
    ++pairs;
    agree += one ? 1 : 0;
  }
  return 2 * agree >= pairs;
}

std::unordered_map<std::string, NodeId> Matcher::producers_a() const {
  std::unordered_map<std::string, NodeId> list;
  for (NodeId n : a_.all_nodes())
    for (ValueId v : a_.node(n).outputs)
      if (v.valid()) list.emplace(a_.value(v).name, n);
  return list;
}

// The same operator, and the same name of an output or of the node.
void Matcher::by_names() {
  const auto pair = [&](NodeId x, NodeId y) {
    if (!done_a(x) && !done_b(y) && a_.node(x).op == b_.node(y).op) match(x, y, "name");
  };
  const auto by_output = producers_a();
  for (NodeId n : b_.all_nodes())
    for (ValueId v : b_.node(n).outputs)
      if (v.valid())
        if (const auto it = by_output.find(b_.value(v).name); it != by_output.end()) pair(it->second, n);
  std::unordered_map<std::string, NodeId> by_name;
  for (NodeId n : a_.all_nodes()) by_name.emplace(a_.node(n).name, n);
  for (NodeId n : b_.all_nodes())
    if (const auto it = by_name.find(b_.node(n).name); it != by_name.end()) pair(it->second, n);
}

// A node that computes what another one of its graph does, and has no partner where that one has: the same is
// computed once in the other graph.
void Matcher::duplicates(const Graph &g, size_t offset, const std::vector<uint64_t> &inputs) {
  const std::vector<uint64_t> keys = fingerprints_from_inputs(g, Contents::kAll, inputs);
  std::unordered_map<uint64_t, NodeId> known;
  for (NodeId n : g.all_nodes())
    if (evidence_[offset + n.index]) known.emplace(keys[n.index], n);
  for (NodeId n : g.all_nodes()) {
    const auto it = known.find(keys[n.index]);
    if (evidence_[offset + n.index] || it == known.end() || g.node(n).op == "Identity") continue;
    sets_.join(offset + it->second.index, offset + n.index);
    evidence_[offset + n.index] = "structure";
  }
}

}  // namespace optc
