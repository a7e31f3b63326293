#include "emit/report/align.h"

#include <algorithm>
#include <string>

#include "emit/report/internal_diff.h"

namespace optc {
namespace {

constexpr int64_t kWeight = 16;             // elements from which a constant is a weight
constexpr size_t kCells = size_t{1} << 24;  // of the table of common subsequences

// Operator and the largest weight's type; empty: the node reads none.
std::string key_of(const Graph &g, NodeId n) {
  const Constant *largest = nullptr;
  for (ValueId v : g.node(n).inputs) {
    const Constant *c = v.valid() ? g.constant(behind_copies(g, v)) : nullptr;
    if (c && c->count() >= kWeight && (!largest || c->count() > largest->count())) largest = c;
  }
  return largest ? g.node(n).op + " " + to_string(Type::tensor(largest->type(), largest->shape())) : "";
}

struct Heavy {
  NodeId node;
  std::string key;
};
std::vector<Heavy> heavy(const Graph &g) {
  std::vector<Heavy> list;
  for (NodeId n : canonical_order(g))
    if (std::string key = key_of(g, n); !key.empty()) list.push_back({n, std::move(key)});
  return list;
}

}  // namespace

std::vector<NodeId> canonical_order(const Graph &g) {
  std::vector<NodeId> order;
  std::vector<bool> seen(g.node_capacity(), false);
  // What a node is computed of: its operands, then what its bodies give.
  const auto sources = [&](NodeId n) {
    std::vector<ValueId> list = g.node(n).inputs;
    for (const auto &[name, region] : g.node(n).regions)
      list.insert(list.end(), g.region(region).outputs.begin(), g.region(region).outputs.end());
    return list;
  };
  struct Frame {
    NodeId node;
    std::vector<ValueId> sources;
    size_t next = 0;
  };
  std::vector<Frame> stack;
  const auto enter = [&](ValueId v) {
    if (!v.valid() || g.value(v).kind != ValueKind::kNodeOutput || seen[g.value(v).producer.index]) return;
    const NodeId n = g.value(v).producer;
    seen[n.index] = true;
    stack.push_back({n, sources(n)});
  };
  const auto walk = [&] {
    while (!stack.empty()) {
      Frame &top = stack.back();
      if (top.next < top.sources.size()) {
        const ValueId v = top.sources[top.next++];
        enter(v);
      } else {
        order.push_back(top.node);
        stack.pop_back();
      }
    }
  };
  for (ValueId v : g.region(Graph::main()).outputs) {
    enter(v);
    walk();
  }
  for (NodeId n : g.all_nodes())  // what no output needs
    if (!seen[n.index]) order.push_back(n);
  return order;
}

std::vector<std::pair<NodeId, NodeId>> align_by_weights(const Graph &a, const Graph &b) {
  std::vector<std::pair<NodeId, NodeId>> pairs;
  const std::vector<Heavy> x = heavy(a), y = heavy(b);
  const size_t columns = y.size() + 1;
  if (x.empty() || y.empty() || (x.size() + 1) > kCells / columns) return pairs;
  std::vector<uint16_t> length((x.size() + 1) * columns, 0);  // of the subsequence of the two rests
  for (size_t i = x.size(); i-- > 0;)
    for (size_t j = y.size(); j-- > 0;)
      length[i * columns + j] = x[i].key == y[j].key
                                    ? static_cast<uint16_t>(length[(i + 1) * columns + j + 1] + 1)
                                    : std::max(length[(i + 1) * columns + j], length[i * columns + j + 1]);
  for (size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    if (x[i].key == y[j].key)
      pairs.emplace_back(x[i++].node, y[j++].node);
    else if (length[(i + 1) * columns + j] >= length[i * columns + j + 1])
      ++i;
    else
      ++j;
  }
  return pairs;
}

}  // namespace optc
