// Which nodes of two graphs correspond.

#include <algorithm>

#include "emit/report/align.h"
#include "emit/report/folded.h"
#include "emit/report/internal_diff.h"
#include "emit/report/matcher.h"

namespace optc {

Matcher::Matcher(const Graph &before, const Graph &after)
    : a_(before),
      b_(after),
      neutral_a_(before),
      neutral_b_(after),
      offset_(before.node_capacity()),
      sets_(offset_ + after.node_capacity()),
      evidence_(offset_ + after.node_capacity(), nullptr),
      partner_(offset_ + after.node_capacity()) {
  // Inputs and outputs that correspond have one key in both.
  const auto keys = [](const std::vector<std::pair<size_t, size_t>> &pairs, std::vector<uint64_t> &x,
                       std::vector<uint64_t> &y) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i].first != SIZE_MAX) x[pairs[i].first] = i + 1;
      if (pairs[i].second != SIZE_MAX) y[pairs[i].second] = i + 1;
    }
  };
  inputs_a_.resize(a_.region(Graph::main()).inputs.size());
  inputs_b_.resize(b_.region(Graph::main()).inputs.size());
  outputs_a_.resize(a_.region(Graph::main()).outputs.size());
  outputs_b_.resize(b_.region(Graph::main()).outputs.size());
  keys(pair_inputs(a_, b_), inputs_a_, inputs_b_);
  keys(pair_outputs(a_, b_), outputs_a_, outputs_b_);
}

void Matcher::two_files(const Provenance &noted) {
  by_notes(noted);
  by_fingerprints(Contents::kAll);
  if (neutral_a_.any() || neutral_b_.any()) by_fingerprints(Contents::kAll, Through::kNeutral);
  by_keys(fingerprints_of_weights(a_), fingerprints_of_weights(b_), "weights");
  const bool named = names_agree();
  if (named) by_names();
  spread(Alike::kOperands);
  by_fingerprints(Contents::kShortIntegers);
  spread(Alike::kOperands);
  by_fingerprints(Contents::kNone);
  spread(Alike::kOperands);
  spread(Alike::kAttributes);
  in_order(fingerprints_from_inputs(a_, Contents::kShortIntegers, inputs_a_),
           fingerprints_from_inputs(b_, Contents::kShortIntegers, inputs_b_));
  spread(Alike::kOperands);
  for (const auto &[x, y] : align_by_weights(a_, b_))
    if (!done_a(x) && !done_b(y)) match(x, y, "course");
  spread(Alike::kOperands);
  spread(Alike::kAttributes);
  spread(Alike::kOperator);
  if (named) fused_by_names();
  duplicates(a_, 0, inputs_a_);
  duplicates(b_, offset_, inputs_b_);
  by_regions();
}

void Matcher::match(NodeId x, NodeId y, const char *evidence) {
  evidence_[x.index] = evidence_[offset_ + y.index] = evidence;
  sets_.join(x.index, offset_ + y.index);
  partner_[x.index] = y;
  partner_[offset_ + y.index] = x;
}

namespace {

// "neutral: multiplied by 1, plus 0": what the nodes do instead of anything, each word once.
std::string neutral_text(const NeutralNodes &neutral, const std::vector<NodeId> &nodes) {
  std::vector<std::string> words;
  for (const NodeId n : nodes)
    if (std::find(words.begin(), words.end(), neutral.why(n)) == words.end()) words.push_back(neutral.why(n));
  std::string text;
  for (const std::string &word : words) text += (text.empty() ? "neutral: " : ", ") + word;
  return text;
}

// What one graph alone has (its nodes are the list `own` of a group) is constants in the other, or neutral; of a group
// that is neutral in part the rest becomes a group of its own behind the others.
void explain(GraphDiff &diff, std::vector<NodeId> DiffGroup::*own, std::vector<NodeId> DiffGroup::*others,
             const NeutralNodes &neutral, const std::vector<bool> &folded) {
  for (size_t i = 0; i < diff.groups.size(); ++i) {
    if ((diff.groups[i].*own).empty() || !(diff.groups[i].*others).empty()) continue;
    std::vector<NodeId> &nodes = diff.groups[i].*own;
    diff.groups[i].evidence.clear();
    if (std::all_of(nodes.begin(), nodes.end(), [&](NodeId n) { return folded[n.index]; })) {
      diff.groups[i].evidence = "constant";
      continue;
    }
    const auto at =
        std::stable_partition(nodes.begin(), nodes.end(), [&](NodeId n) { return !neutral.why(n).empty(); });
    if (at == nodes.begin()) continue;
    DiffGroup rest;
    (rest.*own).assign(at, nodes.end());
    nodes.erase(at, nodes.end());
    diff.groups[i].evidence = "neutral";
    diff.groups[i].note = neutral_text(neutral, nodes);
    if (!(rest.*own).empty()) diff.groups.push_back(std::move(rest));
  }
}

}  // namespace

GraphDiff Matcher::groups() {
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
  explain(diff, &DiffGroup::before, &DiffGroup::after, neutral_a_,
          constants_instead(a_, b_, [&](NodeId n) { return partner_[n.index]; }));
  explain(diff, &DiffGroup::after, &DiffGroup::before, neutral_b_,
          constants_instead(b_, a_, [&](NodeId n) { return partner_[offset_ + n.index]; }));
  return diff;
}

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
  finish_diff(before, after, diff, Told::kNodes);
  return diff;
}

GraphDiff diff_graphs(const Graph &before, const Graph &after, const Provenance &noted) {
  Matcher matcher(before, after);
  matcher.two_files(noted);
  GraphDiff diff = matcher.groups();
  for (DiffGroup &g : diff.groups) {
    std::set<std::string> names;
    for (NodeId n : g.after)
      if (const auto it = noted.rules.find(after.node(n).name); it != noted.rules.end())
        names.insert(it->second.begin(), it->second.end());
    g.rules.assign(names.begin(), names.end());
  }
  finish_diff(before, after, diff, Told::kAll);
  return diff;
}

}  // namespace optc
