// What is left when nodes are paired: several nodes that became several.

#include <algorithm>

#include "emit/report/internal_diff.h"
#include "emit/report/matcher.h"

namespace optc {

// What a region without a counterpart reads and who reads it.
struct Matcher::Border {
  std::set<uint32_t> sources, readers;             // nodes that have partners
  std::set<uint64_t> inputs;                       // keys of the model's inputs that it reads
  std::vector<std::vector<ValueId>> counterparts;  // per value that leaves: what the other graph has at its reader
  bool only_neutral = true, known = true;          // known: all that is read and all readers have partners
};

// A node of B that gives a value of A under A's name by another operator computes what the nodes of A before that
// value did, as far as those serve nothing else: one change of N nodes into one. The other way round likewise.
void Matcher::fused_by_names() {
  const auto by_output = producers_a();
  std::unordered_map<uint32_t, size_t> ends_a, ends_b;  // node -> set
  for (NodeId n : b_.all_nodes())
    for (ValueId v : b_.node(n).outputs) {
      if (!v.valid() || done_b(n)) continue;
      const auto it = by_output.find(b_.value(v).name);
      if (it == by_output.end() || done_a(it->second)) continue;
      ends_a[it->second.index] = it->second.index;
      ends_b[n.index] = it->second.index;
      sets_.join(it->second.index, offset_ + n.index);
      fused_.push_back({it->second, n});
    }
  gather(a_, 0, ends_a);
  gather(b_, offset_, ends_b);
  for (const auto &[x, y] : fused_) evidence_[x.index] = evidence_[offset_ + y.index] = "name";
}

void Matcher::gather(const Graph &g, size_t offset, std::unordered_map<uint32_t, size_t> &ends) {
  std::vector<NodeId> order = g.all_nodes();
  std::reverse(order.begin(), order.end());
  for (NodeId n : order) {
    if (evidence_[offset + n.index] || ends.count(n.index)) continue;
    size_t end = SIZE_MAX;
    bool one = true;
    for (ValueId v : g.node(n).outputs) {
      if (!v.valid()) continue;
      for (const Use &use : g.value(v).uses) {
        const auto it = use.kind == UseKind::kOperand ? ends.find(use.node.index) : ends.end();
        one = one && it != ends.end() && (end == SIZE_MAX || end == it->second);
        if (one) end = it->second;
      }
    }
    if (!one || end == SIZE_MAX) continue;
    ends[n.index] = end;
    sets_.join(end, offset + n.index);
    evidence_[offset + n.index] = "name";
  }
}

// What is left and touches forms a region; a region of A and one of B that feed the same operand of matched nodes, or
// the same output of the model, are one change.
void Matcher::by_regions() {
  const std::vector<bool> open_a = open(a_, 0), open_b = open(b_, offset_);
  Sets ra(a_.node_capacity()), rb(b_.node_capacity());
  regions(a_, open_a, ra);
  regions(b_, open_b, rb);
  std::map<std::string, size_t> leaving;
  std::set<size_t> joined_a, joined_b;
  for (const auto &[key, node] : borders(a_, open_a, 0)) leaving.emplace(key, ra.find(node));
  for (const auto &[key, node] : borders(b_, open_b, offset_)) {
    const auto it = leaving.find(key);
    if (it == leaving.end()) continue;
    sets_.join(it->second, offset_ + rb.find(node));
    joined_a.insert(it->second);
    joined_b.insert(rb.find(node));
  }
  part_of_a_change(Side{a_, b_, 0, offset_, inputs_a_, inputs_b_, outputs_a_, outputs_b_}, open_a, ra, joined_a);
  part_of_a_change(Side{b_, a_, offset_, 0, inputs_b_, inputs_a_, outputs_b_, outputs_a_}, open_b, rb, joined_b);
  for (NodeId n : a_.all_nodes())
    if (open_a[n.index]) sets_.join(ra.find(n.index), n.index), evidence_[n.index] = "region";
  for (NodeId n : b_.all_nodes())
    if (open_b[n.index])
      sets_.join(offset_ + rb.find(n.index), offset_ + n.index), evidence_[offset_ + n.index] = "region";
}

// itself, or between a node and what it reads. Where that node differs, its change is why the region is there:
// Conv + BatchNormalization became a Conv of other weights. Where it does not, nodes were put in or taken out.
void Matcher::part_of_a_change(const Side &side, const std::vector<bool> &open, Sets &local,
                               const std::set<size_t> &joined) {
  std::map<size_t, Border> regions;
  for (NodeId n : side.graph.all_nodes())
    if (open[n.index] && !joined.count(local.find(n.index))) survey(side, open, local, n, regions[local.find(n.index)]);
  for (const auto &[root, border] : regions) {
    if (border.only_neutral || !border.known || border.counterparts.empty()) continue;
    const NodeId change = changed_beside(side, border);
    if (change.valid()) sets_.join(side.offset + change.index, side.offset + root);
  }
}

void Matcher::survey(const Side &side, const std::vector<bool> &open, Sets &local, NodeId n, Border &border) {
  const Graph &g = side.graph;
  const auto foreign = [&](NodeId m) { return open[m.index] && local.find(m.index) != local.find(n.index); };
  border.only_neutral = border.only_neutral && !neutral_of(g).why(n).empty();
  for (ValueId v : g.node(n).inputs) {
    if (!v.valid() || g.value(v).kind == ValueKind::kConstant) continue;
    if (g.value(v).kind == ValueKind::kRegionInput) {
      if (g.value(v).region == Graph::main())
        border.inputs.insert(side.inputs[g.value(v).index]);
      else
        border.known = false;
      continue;
    }
    const NodeId producer = g.value(v).producer;
    if (foreign(producer)) border.known = false;
    if (!open[producer.index]) border.sources.insert(producer.index);
  }
  for (ValueId v : g.node(n).outputs) {
    if (!v.valid()) continue;
    for (const Use &u : g.value(v).uses) {
      if (u.kind == UseKind::kRegionOutput) {
        border.counterparts.push_back(u.region == Graph::main() ? counterpart_of_output(side, u.index)
                                                                : std::vector<ValueId>{});
      } else if (foreign(u.node)) {
        border.known = false;
      } else if (!open[u.node.index]) {
        border.readers.insert(u.node.index);
        border.counterparts.push_back(counterpart_of_operand(side, u));
      }
    }
  }
}

std::vector<ValueId> Matcher::counterpart_of_output(const Side &side, size_t index) const {
  const std::vector<ValueId> &made = side.other.region(Graph::main()).outputs;
  for (size_t i = 0; i < made.size(); ++i)
    if (side.other_outputs[i] == side.outputs[index]) return {behind_copies(side.other, made[i])};
  return {};
}

std::vector<ValueId> Matcher::counterpart_of_operand(const Side &side, const Use &use) const {
  const NodeId partner = partner_[side.offset + use.node.index];
  if (!partner.valid()) return {};
  const Node &reader = side.other.node(partner);
  std::vector<ValueId> list;
  for (size_t i = 0; i < reader.inputs.size(); ++i)
    if ((i == use.index || is_commutative(reader.op)) && reader.inputs[i].valid())
      list.push_back(behind_copies(side.other, reader.inputs[i]));
  return list;
}

// The node before or behind a region whose change the region is a part of; an invalid id: there is none.
NodeId Matcher::changed_beside(const Side &side, const Border &border) const {
  if (border.sources.size() + border.inputs.size() != 1) return {};
  const NodeId source = border.sources.empty() ? NodeId() : NodeId(*border.sources.begin());
  const auto is_source = [&](ValueId v) {
    const Value &value = side.other.value(v);
    if (!source.valid())
      return value.kind == ValueKind::kRegionInput && value.region == Graph::main() &&
             side.other_inputs[value.index] == *border.inputs.begin();
    return value.kind == ValueKind::kNodeOutput && partner_[side.other_offset + value.producer.index] == source;
  };
  // Every reader reads it directly in the other graph.
  const bool direct = std::all_of(
      border.counterparts.begin(), border.counterparts.end(),
      [&](const std::vector<ValueId> &values) { return std::any_of(values.begin(), values.end(), is_source); });
  if (!direct) return {};
  if (source.valid() && differs(side, source)) return source;
  const NodeId reader = border.readers.size() == 1 ? NodeId(*border.readers.begin()) : NodeId();
  return reader.valid() && differs(side, reader) ? reader : NodeId();
}

// Whether a node and its partner are different operators, or read different constants.
bool Matcher::differs(const Side &side, NodeId n) const {
  const Node &p = side.graph.node(n), &q = side.other.node(partner_[side.offset + n.index]);
  if (signature(p) != signature(q)) return true;
  const auto constants = [](const Graph &g, const Node &node) {
    std::vector<std::string> list;
    for (ValueId v : node.inputs)
      if (v.valid() && g.is_constant(behind_copies(g, v))) list.push_back(g.constant(behind_copies(g, v))->hash());
    if (is_commutative(node.op)) std::sort(list.begin(), list.end());
    return list;
  };
  const std::vector<std::string> x = constants(side.graph, p), y = constants(side.other, q);
  return x.size() == y.size() && x != y;
}

std::vector<bool> Matcher::open(const Graph &g, size_t offset) const {
  std::vector<bool> result(g.node_capacity(), false);
  for (NodeId n : g.all_nodes()) result[n.index] = evidence_[offset + n.index] == nullptr;
  return result;
}

// A value that many read (a mask, a shape) does not make its readers one change.
void Matcher::regions(const Graph &g, const std::vector<bool> &open, Sets &local) {
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
std::vector<std::pair<std::string, size_t>> Matcher::borders(const Graph &g, const std::vector<bool> &open,
                                                             size_t offset) {
  std::vector<std::pair<std::string, size_t>> list;
  for (NodeId n : g.all_nodes()) {
    if (!open[n.index]) continue;
    for (ValueId v : g.node(n).outputs) {
      if (!v.valid()) continue;
      for (const Use &u : g.value(v).uses) {
        if (u.kind == UseKind::kRegionOutput) {
          const std::vector<uint64_t> &keys = &g == &b_ ? outputs_b_ : outputs_a_;
          if (u.region == Graph::main()) list.emplace_back("out " + std::to_string(keys[u.index]), n.index);
        } else if (!open[u.node.index]) {
          const uint32_t at = is_commutative(g.node(u.node).op) ? 0 : u.index;
          list.emplace_back(std::to_string(sets_.find(offset + u.node.index)) + "." + std::to_string(at), n.index);
        }
      }
    }
  }
  return list;
}

}  // namespace optc
