#include "emit/report/fingerprints.h"

#include <algorithm>
#include <string>

#include "emit/report/internal_diff.h"

namespace optc {
namespace {

constexpr int64_t kShort = 16;   // elements of a constant that says how, not what
constexpr int64_t kWeight = 16;  // elements from which a constant is hardly met twice by chance

uint64_t mixed(uint64_t h, uint64_t x) {
  h ^= x + 0x9E3779B97F4A7C15u + (h << 6) + (h >> 2);
  h *= 0xFF51AFD7ED558CCDu;
  return h ^ (h >> 33);
}
uint64_t key_of(const std::string &text) { return std::hash<std::string>()(text); }

uint64_t key_of(const Constant &constant, Contents contents) {
  const bool whole = contents == Contents::kAll || (contents == Contents::kShortIntegers &&
                                                    is_integer(constant.type()) && constant.count() <= kShort);
  return key_of(whole ? constant.hash() : to_string(Type::tensor(constant.type(), constant.shape())));
}

// The operand that the first output of a node is; an invalid id: it is another value.
ValueId copied(const Graph &g, NodeId n, const NeutralNodes *neutral) {
  if (neutral) return neutral->why(n).empty() ? ValueId() : g.node(n).inputs[neutral->operand(n)];
  return g.node(n).op == "Identity" ? g.node(n).input(0) : ValueId();
}

}  // namespace

std::vector<uint64_t> fingerprints_from_inputs(const Graph &g, Contents contents, const std::vector<uint64_t> &inputs,
                                               const NeutralNodes *neutral) {
  std::vector<uint64_t> value(g.value_capacity(), 0), node(g.node_capacity(), 0);
  for (size_t i = 0; i < g.value_capacity(); ++i) {
    const Value &v = g.value(ValueId(i));
    if (!v.alive) continue;
    if (v.kind == ValueKind::kConstant) value[i] = key_of(v.constant, contents);
    if (v.kind == ValueKind::kRegionInput)
      value[i] = v.region == Graph::main() ? inputs[v.index] : mixed(key_of("body"), v.index);
  }
  for (NodeId n : g.all_nodes()) {
    const Node &one = g.node(n);
    uint64_t key = key_of(signature(one));
    std::vector<uint64_t> operands;
    for (ValueId v : one.inputs) operands.push_back(v.valid() ? value[v.index] : 1);
    if (is_commutative(one.op)) std::sort(operands.begin(), operands.end());
    for (uint64_t operand : operands) key = mixed(key, operand);
    for (const auto &[name, region] : one.regions)
      for (ValueId v : g.region(region).outputs) key = mixed(mixed(key, key_of(name)), v.valid() ? value[v.index] : 1);
    node[n.index] = key;
    for (size_t i = 0; i < one.outputs.size(); ++i)
      if (one.outputs[i].valid()) value[one.outputs[i].index] = mixed(key, i);
    if (const ValueId same = copied(g, n, neutral); same.valid() && one.outputs[0].valid())
      value[one.outputs[0].index] = value[same.index];
  }
  return node;
}

std::vector<uint64_t> fingerprints_from_outputs(const Graph &g, Contents contents, const std::vector<uint64_t> &outputs,
                                                const NeutralNodes *neutral) {
  std::vector<std::vector<uint64_t>> readers(g.value_capacity());
  std::vector<uint64_t> node(g.node_capacity(), 0);
  const auto add = [&](ValueId v, uint64_t key) {
    if (v.valid()) readers[v.index].push_back(key);
  };
  const std::vector<ValueId> &results = g.region(Graph::main()).outputs;
  for (size_t i = 0; i < results.size(); ++i) add(results[i], outputs[i]);
  std::vector<NodeId> order = g.all_nodes();  // bodies stand before their owners: owners first here
  std::reverse(order.begin(), order.end());
  for (NodeId n : order) {
    const Node &one = g.node(n);
    uint64_t key = key_of(signature(one));
    for (ValueId v : one.outputs) {
      if (!v.valid()) continue;
      std::vector<uint64_t> &list = readers[v.index];
      std::sort(list.begin(), list.end());
      key = mixed(key, list.size());
      for (uint64_t reader : list) key = mixed(key, reader);
    }
    for (ValueId v : one.inputs)
      if (v.valid() && g.is_constant(behind_copies(g, v)))
        key = mixed(key, key_of(*g.constant(behind_copies(g, v)), contents));
    node[n.index] = key;
    if (const ValueId same = copied(g, n, neutral); same.valid() && one.outputs[0].valid()) {
      for (uint64_t reader : readers[one.outputs[0].index])
        add(same, reader);  // its readers are those of what it copies
      continue;
    }
    const bool ordered = !is_commutative(one.op);
    for (size_t i = 0; i < one.inputs.size(); ++i) add(one.inputs[i], mixed(key, ordered ? i : 0));
    for (const auto &[name, region] : one.regions) {
      const std::vector<ValueId> &made = g.region(region).outputs;
      for (size_t i = 0; i < made.size(); ++i) add(made[i], mixed(mixed(key, key_of(name)), i));
    }
  }
  return node;
}

std::vector<uint64_t> fingerprints_of_weights(const Graph &g) {
  std::vector<uint64_t> node(g.node_capacity(), 0);
  for (NodeId n : g.all_nodes()) {
    uint64_t key = 0;
    for (ValueId v : g.node(n).inputs) {
      const Constant *constant = v.valid() ? g.constant(behind_copies(g, v)) : nullptr;
      if (constant && constant->count() >= kWeight) key = mixed(key, key_of(constant->hash()));
    }
    if (key) node[n.index] = mixed(key, key_of(g.node(n).op));
  }
  return node;
}

}  // namespace optc
