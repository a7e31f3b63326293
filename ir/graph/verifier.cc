// Invariants of a Graph:
//  G1  every operand and region output is a live value.
//  G2  every use is in its value's use list exactly once, and every entry of a use list is such a use.
//  G3  a value is defined before it is used: earlier in the same region, or in a region around it (before the owner
//  node). G4  outputs of a node name that node as producer, with their position. G5  names of live values are unique
//  and not empty. G6  attributes are sorted by name, without duplicates; no trailing absent inputs or outputs. G7  a
//  region's owner owns it; region inputs name their region and position. G8  node order links are consistent. G9  every
//  output of a live node has a type; a tensor's rank is known. G10 origins are sorted, unique and in range.
#include "ir/graph/verifier.h"

#include <string>
#include <unordered_set>

namespace optc {
namespace {

class Verifier {
 public:
  Verifier(const Graph &graph, Diagnostics &diagnostics, Typing typing)
      : g_(graph), diagnostics_(diagnostics), typing_(typing) {}

  Status run() {
    defined_.assign(g_.value_capacity(), false);
    counted_.assign(g_.value_capacity(), 0);
    for (size_t i = 0; i < g_.value_capacity(); ++i) {
      const Value &v = g_.value(ValueId(i));
      if (!v.alive) continue;
      if (v.name.empty() || !names_.insert(v.name).second) fail("G5", "value name '" + v.name + "' is empty or taken");
      if (v.kind == ValueKind::kConstant) {
        defined_[i] = true;
        if (!v.constant.valid()) fail("G1", "constant '" + v.name + "' has no value");
      }
    }
    region(Graph::main(), 0);
    for (size_t i = 0; i < g_.value_capacity(); ++i)
      if (g_.value(ValueId(i)).alive && counted_[i] != g_.value(ValueId(i)).uses.size())
        fail("G2", "value '" + g_.value(ValueId(i)).name + "' lists " +
                       std::to_string(g_.value(ValueId(i)).uses.size()) + " uses but has " +
                       std::to_string(counted_[i]));
    if (failed_) return Failure{ErrorKind::kInternal};
    return {};
  }

 private:
  void fail(const char *number, const std::string &what, NodeId node = {}) {
    failed_ = true;
    (void)diagnostics_.error(ErrorKind::kInternal, std::string("verifier ") + number + ": " + what,
                             node.valid() ? g_.describe(node) : std::string());
  }

  void use(ValueId v, const Use &use, NodeId node) {
    if (!g_.value(v).alive) return fail("G1", "uses the erased value '" + g_.value(v).name + "'", node);
    ++counted_[v.index];
    bool listed = false;
    for (const Use &u : g_.value(v).uses) listed |= u == use;
    if (!listed) fail("G2", "the use of '" + g_.value(v).name + "' is not in its use list", node);
    if (!defined_[v.index]) fail("G3", "uses '" + g_.value(v).name + "' before its definition", node);
  }

  void region(RegionId id, int depth) {
    const Region &r = g_.region(id);
    if (depth > 1000) return fail("G7", "regions nest too deep");
    for (size_t i = 0; i < r.inputs.size(); ++i) {
      const Value &v = g_.value(r.inputs[i]);
      if (v.kind != ValueKind::kRegionInput || v.region != id || v.index != i || !v.alive)
        fail("G7", "input '" + v.name + "' does not belong to its region");
      defined_[r.inputs[i].index] = true;
    }
    NodeId previous;
    std::vector<ValueId> made;
    for (NodeId n = r.first; n.valid(); n = g_.node(n).next) {
      const Node &node = g_.node(n);
      if (!node.alive || node.region != id || node.previous != previous) fail("G8", "broken order link", n);
      previous = n;
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i].valid()) use(node.inputs[i], {UseKind::kOperand, n, {}, static_cast<uint32_t>(i)}, n);
      if ((!node.inputs.empty() && !node.inputs.back().valid()) ||
          (!node.outputs.empty() && !node.outputs.back().valid()))
        fail("G6", "trailing absent input or output", n);
      for (size_t i = 1; i < node.attributes.size(); ++i)
        if (!(node.attributes[i - 1].first < node.attributes[i].first)) fail("G6", "attributes are not sorted", n);
      for (const auto &[name, nested] : node.regions) {
        if (g_.region(nested).owner != n) fail("G7", "region '" + name + "' has another owner", n);
        region(nested, depth + 1);
      }
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (!node.outputs[i].valid()) continue;
        const Value &v = g_.value(node.outputs[i]);
        if (!v.alive || v.kind != ValueKind::kNodeOutput || v.producer != n || v.index != i)
          fail("G4", "output '" + v.name + "' does not name its producer", n);
        if (typing_ == Typing::kComplete &&
            (v.type.kind == Type::Kind::kNone || (v.type.is_tensor() && !v.type.has_shape())))
          fail("G9", "output '" + v.name + "' has no type of known rank", n);
        defined_[node.outputs[i].index] = true;
        made.push_back(node.outputs[i]);
      }
      for (size_t i = 0; i < node.origin.size(); ++i)
        if (node.origin[i] >= g_.origins().size() || (i && node.origin[i] <= node.origin[i - 1]))
          fail("G10", "origins are not sorted and in range", n);
    }
    if (previous != r.last) fail("G8", "the last node is not the end of the order");
    for (size_t i = 0; i < r.outputs.size(); ++i)
      if (r.outputs[i].valid()) use(r.outputs[i], {UseKind::kRegionOutput, {}, id, static_cast<uint32_t>(i)}, r.owner);
    if (id == Graph::main()) return;
    // Values of a body are not visible behind it.
    for (ValueId v : made) defined_[v.index] = false;
    for (ValueId v : r.inputs) defined_[v.index] = false;
  }

  const Graph &g_;
  Diagnostics &diagnostics_;
  const Typing typing_;
  std::vector<bool> defined_;
  std::vector<size_t> counted_;
  std::unordered_set<std::string> names_;
  bool failed_ = false;
};

}  // namespace

Status verify(const Graph &graph, Diagnostics &diagnostics, Typing typing) {
  return Verifier(graph, diagnostics, typing).run();
}

}  // namespace optc
