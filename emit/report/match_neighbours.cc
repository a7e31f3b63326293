// Nodes that correspond because those beside them do.

#include <algorithm>
#include <deque>

#include "emit/report/internal_diff.h"
#include "emit/report/matcher.h"

namespace optc {

// Neighbours of a pair at the same place of it, as long as there are any.
void Matcher::spread(Alike alike) {
  std::deque<std::pair<NodeId, NodeId>> work;
  const auto key = [&](const Graph &g, NodeId n) { return key_of(g, n, alike); };
  const auto pair = [&](NodeId x, NodeId y) {
    if (done_a(x) || done_b(y) || key(a_, x) != key(b_, y)) return false;
    match(x, y, "neighbours");
    work.emplace_back(x, y);
    return true;
  };
  const auto producers = [&](ValueId v, ValueId w) {
    if (!v.valid() || !w.valid()) return false;
    const Value &p = a_.value(v), &q = b_.value(w);
    return p.kind == ValueKind::kNodeOutput && q.kind == ValueKind::kNodeOutput && p.index == q.index &&
           pair(p.producer, q.producer);
  };
  const auto operand = [&](ValueId v, ValueId w) {
    return producers(v, w) || producers(behind_copies(a_, v), behind_copies(b_, w)) ||
           producers(neutral_a_.behind(v), neutral_b_.behind(w));
  };
  for (NodeId x : a_.all_nodes())
    if (done_a(x) && a_.node(x).op == b_.node(partner_[x.index]).op) work.emplace_back(x, partner_[x.index]);
  const std::vector<ValueId> &made_a = a_.region(Graph::main()).outputs, &made_b = b_.region(Graph::main()).outputs;
  for (const auto &[i, j] : pair_outputs(a_, b_))
    if (i != SIZE_MAX && j != SIZE_MAX) operand(made_a[i], made_b[j]);
  const std::vector<ValueId> &given_a = a_.region(Graph::main()).inputs, &given_b = b_.region(Graph::main()).inputs;
  const auto readers = [&](ValueId v, ValueId w) {
    const auto of_a = open_readers(a_, v, 0, alike), of_b = open_readers(b_, w, offset_, alike);
    for (const auto &[at, y] : of_b)
      if (const auto it = of_a.find(at); it != of_a.end() && y.valid() && it->second.valid()) pair(it->second, y);
  };
  for (const auto &[i, j] : pair_inputs(a_, b_))
    if (i != SIZE_MAX && j != SIZE_MAX) readers(given_a[i], given_b[j]);
  while (!work.empty()) {
    const auto [x, y] = work.front();
    work.pop_front();
    const Node &p = a_.node(x), &q = b_.node(y);
    for (size_t i = 0; i < p.inputs.size() && i < q.inputs.size(); ++i) operand(p.inputs[i], q.inputs[i]);
    if (is_commutative(p.op) && p.inputs.size() == 2 && q.inputs.size() == 2) {
      operand(p.inputs[0], q.inputs[1]);
      operand(p.inputs[1], q.inputs[0]);
    }
    for (const auto &[name, region] : p.regions)
      if (const RegionId other = q.region_named(name); other.valid()) {
        const std::vector<ValueId> &of_a = a_.region(region).outputs, &of_b = b_.region(other).outputs;
        for (size_t i = 0; i < of_a.size() && i < of_b.size(); ++i) operand(of_a[i], of_b[i]);
      }
    for (size_t i = 0; i < p.outputs.size() && i < q.outputs.size(); ++i)
      if (p.outputs[i].valid() && q.outputs[i].valid()) readers(p.outputs[i], q.outputs[i]);
  }
}

std::string Matcher::key_of(const Graph &g, NodeId n, Alike alike) {
  const Node &node = g.node(n);
  if (alike == Alike::kOperator) return node.op;
  std::string key = signature(node);
  if (alike == Alike::kAttributes) return key;
  std::string constants;
  for (ValueId v : node.inputs) constants += v.valid() && g.is_constant(behind_copies(g, v)) ? 'c' : '.';
  if (is_commutative(node.op)) std::sort(constants.begin(), constants.end());
  return key + constants;
}

// Nodes that read the value, or a copy of it, and have no partner yet, and where there is none for an operand, those
// behind neutral nodes: by operand and operator; an invalid id where several are alike.
std::map<std::string, NodeId> Matcher::open_readers(const Graph &g, ValueId value, size_t offset, Alike alike) const {
  const NeutralNodes &neutral = neutral_of(g);
  std::map<std::string, NodeId> list;
  std::vector<ValueId> behind;  // neutral nodes that are no copies
  const auto read = [&](std::vector<ValueId> values, bool through) {
    std::map<std::string, NodeId> found;
    for (size_t k = 0; k < values.size(); ++k)
      for (const Use &use : g.value(values[k]).uses) {
        if (use.kind != UseKind::kOperand) continue;
        const Node &reader = g.node(use.node);
        if (!neutral.why(use.node).empty() && neutral.operand(use.node) == use.index)
          (reader.op == "Identity" || through ? values : behind).push_back(reader.outputs[0]);
        if (evidence_[offset + use.node.index]) continue;
        const uint32_t at = is_commutative(reader.op) ? 0 : use.index;
        const auto [it, fresh] = found.emplace(std::to_string(at) + key_of(g, use.node, alike), use.node);
        if (!fresh && it->second != use.node) it->second = NodeId();
      }
    list.merge(found);  // what stands there already is nearer
  };
  read({value}, false);
  if (!behind.empty()) read(behind, true);
  return list;
}

}  // namespace optc
