// Which nodes of two graphs correspond.

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "emit/report/align.h"
#include "emit/report/fingerprints.h"
#include "emit/report/folded.h"
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

constexpr uint64_t kNoKey = 0;

// What neighbours of a pair must have in common to be one: operator, attributes and which operands are constants; the
// first two of these; the operator.
enum class Alike : uint8_t { kOperands, kAttributes, kOperator };

// Matching of two files, from the surest evidence to the weakest. A pair is made once.
class Matcher {
 public:
  Matcher(const Graph &before, const Graph &after)
      : a_(before),
        b_(after),
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

  void two_files(const Provenance &noted) {
    by_notes(noted);
    by_fingerprints(Contents::kAll);
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

  void match(NodeId x, NodeId y, const char *evidence) {
    evidence_[x.index] = evidence_[offset_ + y.index] = evidence;
    sets_.join(x.index, offset_ + y.index);
    partner_[x.index] = y;
    partner_[offset_ + y.index] = x;
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
    const auto folded_a = constants_instead(a_, b_, [&](NodeId n) { return partner_[n.index]; });
    const auto folded_b = constants_instead(b_, a_, [&](NodeId n) { return partner_[offset_ + n.index]; });
    const auto all = [](const std::vector<NodeId> &nodes, const std::vector<bool> &folded) {
      return std::all_of(nodes.begin(), nodes.end(), [&](NodeId n) { return folded[n.index]; });
    };
    for (DiffGroup &g : diff.groups) {
      if (!g.before.empty() && !g.after.empty()) continue;
      g.evidence = all(g.before, folded_a) && all(g.after, folded_b) ? "constant" : "";
    }
    return diff;
  }

 private:
  bool done_a(NodeId n) const { return evidence_[n.index] != nullptr; }
  bool done_b(NodeId n) const { return evidence_[offset_ + n.index] != nullptr; }

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

  // Nodes whose key is unique in both graphs among those that are left.
  void by_keys(const std::vector<uint64_t> &of_a, const std::vector<uint64_t> &of_b, const char *evidence) {
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
  void by_fingerprints(Contents contents) {
    by_keys(fingerprints_from_inputs(a_, contents, inputs_a_), fingerprints_from_inputs(b_, contents, inputs_b_),
            "structure");
    by_keys(fingerprints_from_outputs(a_, contents, outputs_a_), fingerprints_from_outputs(b_, contents, outputs_b_),
            "structure");
  }

  // Of nodes that nothing tells apart there are as many in both graphs: they correspond in their order.
  void in_order(const std::vector<uint64_t> &of_a, const std::vector<uint64_t> &of_b) {
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
  bool names_agree() const {
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

  std::unordered_map<std::string, NodeId> producers_a() const {
    std::unordered_map<std::string, NodeId> list;
    for (NodeId n : a_.all_nodes())
      for (ValueId v : a_.node(n).outputs)
        if (v.valid()) list.emplace(a_.value(v).name, n);
    return list;
  }

  // The same operator, and the same name of an output or of the node.
  void by_names() {
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

  // Neighbours of a pair at the same place of it, as long as there are any.
  void spread(Alike alike) {
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
      return producers(v, w) || producers(behind_copies(a_, v), behind_copies(b_, w));
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

  static std::string key_of(const Graph &g, NodeId n, Alike alike) {
    const Node &node = g.node(n);
    if (alike == Alike::kOperator) return node.op;
    std::string key = signature(node);
    if (alike == Alike::kAttributes) return key;
    std::string constants;
    for (ValueId v : node.inputs) constants += v.valid() && g.is_constant(behind_copies(g, v)) ? 'c' : '.';
    if (is_commutative(node.op)) std::sort(constants.begin(), constants.end());
    return key + constants;
  }

  // Nodes that read the value, or a copy of it, and have no partner yet: by operand and operator; an invalid id where
  // several are alike.
  std::map<std::string, NodeId> open_readers(const Graph &g, ValueId value, size_t offset, Alike alike) const {
    std::map<std::string, NodeId> list;
    std::vector<ValueId> copies{value};
    for (size_t k = 0; k < copies.size(); ++k)
      for (const Use &use : g.value(copies[k]).uses) {
        if (use.kind != UseKind::kOperand) continue;
        const Node &reader = g.node(use.node);
        if (reader.op == "Identity" && reader.outputs[0].valid()) copies.push_back(reader.outputs[0]);
        if (evidence_[offset + use.node.index]) continue;
        const uint32_t at = is_commutative(reader.op) ? 0 : use.index;
        const auto [it, fresh] = list.emplace(std::to_string(at) + key_of(g, use.node, alike), use.node);
        if (!fresh && it->second != use.node) it->second = NodeId();
      }
    return list;
  }

  // A node of B that gives a value of A under A's name by another operator computes what the nodes of A before that
  // value did, as far as those serve nothing else: one change of N nodes into one. The other way round likewise.
  void fused_by_names() {
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
  void gather(const Graph &g, size_t offset, std::unordered_map<uint32_t, size_t> &ends) {
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

  // A node that computes what another one of its graph does, and has no partner where that one has: the same is
  // computed once in the other graph.
  void duplicates(const Graph &g, size_t offset, const std::vector<uint64_t> &inputs) {
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

  // What is left and touches forms a region; a region of A and one of B that feed the same operand of matched nodes, or
  // the same output of the model, are one change.
  void by_regions() {
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

  // One graph as it is compared with the other one.
  struct Side {
    const Graph &graph, &other;
    size_t offset, other_offset;
    const std::vector<uint64_t> &inputs, &other_inputs, &outputs, &other_outputs;
  };
  // What a region without a counterpart reads and who reads it.
  struct Border {
    std::set<uint32_t> sources, readers;             // nodes that have partners
    std::set<uint64_t> inputs;                       // keys of the model's inputs that it reads
    std::vector<std::vector<ValueId>> counterparts;  // per value that leaves: what the other graph has at its reader
    bool only_copies = true, known = true;           // known: all that is read and all readers have partners
  };

  // A region that has no counterpart lies between a node and its readers which, in the other graph, read the node
  // itself, or between a node and what it reads. Where that node differs, its change is why the region is there:
  // Conv + BatchNormalization became a Conv of other weights. Where it does not, nodes were put in or taken out.
  void part_of_a_change(const Side &side, const std::vector<bool> &open, Sets &local, const std::set<size_t> &joined) {
    std::map<size_t, Border> regions;
    for (NodeId n : side.graph.all_nodes())
      if (open[n.index] && !joined.count(local.find(n.index)))
        survey(side, open, local, n, regions[local.find(n.index)]);
    for (const auto &[root, border] : regions) {
      if (border.only_copies || !border.known || border.counterparts.empty()) continue;
      const NodeId change = changed_beside(side, border);
      if (change.valid()) sets_.join(side.offset + change.index, side.offset + root);
    }
  }

  void survey(const Side &side, const std::vector<bool> &open, Sets &local, NodeId n, Border &border) {
    const Graph &g = side.graph;
    const auto foreign = [&](NodeId m) { return open[m.index] && local.find(m.index) != local.find(n.index); };
    border.only_copies = border.only_copies && g.node(n).op == "Identity";
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

  std::vector<ValueId> counterpart_of_output(const Side &side, size_t index) const {
    const std::vector<ValueId> &made = side.other.region(Graph::main()).outputs;
    for (size_t i = 0; i < made.size(); ++i)
      if (side.other_outputs[i] == side.outputs[index]) return {behind_copies(side.other, made[i])};
    return {};
  }
  std::vector<ValueId> counterpart_of_operand(const Side &side, const Use &use) const {
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
  NodeId changed_beside(const Side &side, const Border &border) const {
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
  bool differs(const Side &side, NodeId n) const {
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
            const std::vector<uint64_t> &keys = offset ? outputs_b_ : outputs_a_;
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

  const Graph &a_, &b_;
  const size_t offset_;
  Sets sets_;
  std::vector<const char *> evidence_;  // null: not matched yet
  std::vector<NodeId> partner_;         // of a node that is done, in the other graph (one of them)
  std::vector<uint64_t> inputs_a_, inputs_b_, outputs_a_, outputs_b_;
  std::vector<std::pair<NodeId, NodeId>> fused_;
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
