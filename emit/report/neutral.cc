#include "emit/report/neutral.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>

#include "emit/report/internal_diff.h"

namespace optc {
namespace {

constexpr int64_t kLargest = int64_t{1} << 20;  // elements of a constant that is looked at

bool all_equal(const Constant &c, double value) {
  if (c.type() == ElementType::kString || is_complex(c.type()) || c.count() == 0 || c.count() > kLargest) return false;
  for (int64_t i = 0; i < c.count(); ++i)
    if (c.as_double(i) != value) return false;
  return true;
}

// One node of a graph, and what is known of its operands.
class Looked {
 public:
  Looked(const Graph &graph, const Node &node, int64_t opset) : graph_(graph), node_(node), opset_(opset) {}

  // An operator of whom nothing is asked but that its result is of the operand's type and shape.
  bool of_one_type() const {
    return one_shape() && known(element(0)) && element(0) == declared(node_.outputs[0]).element;
  }

  // x * 1 and the like: the operand that is left, where a constant of this value alone stands beside it.
  std::optional<size_t> beside(double value, bool commutes) const {
    if (node_.inputs.size() != 2 || !node_.attributes.empty()) return {};  // attributes: how old versions broadcast
    for (size_t x = 0; x < (commutes ? 2u : 1u); ++x) {
      const Constant *c = constant(1 - x);
      if (c && !constant(x) && all_equal(*c, value) && (broadcasts_into(*c, x) || one_shape(x))) return x;
    }
    return {};
  }

  bool cast() const {
    const auto to = static_cast<ElementType>(node_.int_or("to", 0));
    return known(to) && element(0) == to;
  }
  bool cast_like() const { return known(element(0)) && element(0) == element(1); }

  bool transpose() const {
    const std::vector<int64_t> *perm = node_.ints("perm");
    if (!perm) return declared(node_.input(0)).has_shape() && declared(node_.input(0)).rank() < 2;
    for (size_t i = 0; i < perm->size(); ++i)
      if ((*perm)[i] != static_cast<int64_t>(i)) return false;
    return true;
  }

  bool reshape() const {
    const Constant *c = constant(1);
    const Type &x = declared(node_.input(0));
    if (!c || !x.has_shape()) return of_one_type();
    if (c->rank() != 1 || c->count() != x.rank()) return false;
    int64_t open = 0;
    for (int64_t i = 0; i < c->count(); ++i) {
      const int64_t size = c->as_int64(i);
      const Dim dim = (*x.shape)[static_cast<size_t>(i)];
      if (size == -1)
        ++open;
      else if (size != 0 || node_.int_or("allowzero", 0) != 0)
        if (!dim.is_constant() || dim.value() != size) return false;
    }
    return open <= 1;
  }

  bool expand() const {
    const Constant *c = constant(1);
    if (!c || c->rank() != 1 || c->count() > kMaxRank) return of_one_type();
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < c->count(); ++i) sizes.push_back(c->as_int64(i));
    return sizes_broadcast_into(sizes, 0) || of_one_type();
  }

  bool tile() const {
    const Constant *c = opset_ >= 6 && node_.inputs.size() == 2 ? constant(1) : nullptr;
    return c && all_equal(*c, 1);
  }
  bool pad() const {
    if (const std::vector<int64_t> *pads = node_.ints("pads"))
      return std::all_of(pads->begin(), pads->end(), [](int64_t n) { return n == 0; });
    const Constant *c = constant(1);
    return c && all_equal(*c, 0);
  }

  // From the first to the last element, each of them.
  bool slice() const {
    if (opset_ < 10) return of_one_type();  // bounds are attributes, and there are no steps
    const Constant *starts = constant(1), *ends = constant(2), *steps = constant(4);
    if (node_.input(4).valid() && (!steps || !all_equal(*steps, 1))) return false;
    if (starts && ends && all_equal(*starts, 0)) {
      bool whole = true;
      for (int64_t i = 0; whole && i < ends->count(); ++i)
        whole = ends->as_int64(i) >= std::numeric_limits<int32_t>::max();
      if (whole) return true;
    }
    return of_one_type();
  }

  bool dropout() const {
    if (node_.outputs.size() > 1 && node_.outputs[1].valid() && !graph_.value(node_.outputs[1]).uses.empty())
      return false;
    if (opset_ < 7) return node_.int_or("is_test", 0) != 0;
    if (opset_ < 12 || !node_.input(2).valid()) return true;
    const Constant *training = constant(2), *ratio = constant(1);
    return (training && all_equal(*training, 0)) || (ratio && all_equal(*ratio, 0));
  }

  bool one_operand() const { return node_.inputs.size() == 1; }
  bool one_result() const { return node_.outputs.size() == 1; }

 private:
  static constexpr int64_t kMaxRank = 64;

  static bool known(ElementType type) { return type != ElementType::kUndefined; }
  const Constant *constant(size_t i) const { return graph_.constant(behind_copies(graph_, node_.input(i))); }
  const Type &declared(ValueId v) const {
    static const Type none;
    return v.valid() ? graph_.value(v).type : none;
  }
  // As declared; of what a Cast made, what that says.
  ElementType element(size_t i) const {
    const ValueId v = node_.input(i);
    const Type &type = declared(v);
    if (type.is_tensor() && known(type.element)) return type.element;
    if (!v.valid() || graph_.value(v).kind != ValueKind::kNodeOutput) return ElementType::kUndefined;
    const Node &producer = graph_.node(graph_.value(v).producer);
    return producer.op == "Cast" ? static_cast<ElementType>(producer.int_or("to", 0)) : ElementType::kUndefined;
  }
  bool one_shape(size_t x = 0) const {
    const Type &from = declared(node_.input(x)), &to = declared(node_.outputs[0]);
    return from.has_shape() && to.has_shape() && *from.shape == *to.shape;
  }
  bool broadcasts_into(const Constant &c, size_t x) const { return sizes_broadcast_into(c.dims(), x); }
  bool sizes_broadcast_into(const std::vector<int64_t> &sizes, size_t x) const {
    if (sizes.empty()) return true;
    const Type &type = declared(node_.input(x));
    if (!type.has_shape() || sizes.size() > type.shape->size()) return false;
    const size_t ahead = type.shape->size() - sizes.size();
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Dim dim = (*type.shape)[ahead + i];
      if (sizes[i] != 1 && !(dim.is_constant() && dim.value() == sizes[i])) return false;
    }
    return true;
  }

  const Graph &graph_;
  const Node &node_;
  const int64_t opset_;
};

// Operators with a constant that leaves the other operand as it is.
struct Unit {
  double value;
  bool commutes;
  const char *why;
};
const std::unordered_map<std::string, Unit> &units() {
  static const std::unordered_map<std::string, Unit> list{
      {"Mul", {1, true, "multiplied by 1"}}, {"Div", {1, false, "divided by 1"}},      {"Add", {0, true, "plus 0"}},
      {"Sub", {0, false, "minus 0"}},        {"Pow", {1, false, "to the power of 1"}}, {"And", {1, true, "and true"}},
      {"Or", {0, true, "or false"}},         {"Xor", {0, true, "xor false"}}};
  return list;
}

// Operators that do nothing in some forms.
struct Idle {
  bool (Looked::*test)() const;
  const char *why;
};
const std::unordered_map<std::string, Idle> &idle() {
  static const std::unordered_map<std::string, Idle> list{{"Dropout", {&Looked::dropout, "dropout in inference"}},
                                                          {"Cast", {&Looked::cast, "cast to its own type"}},
                                                          {"CastLike", {&Looked::cast_like, "cast to its own type"}},
                                                          {"Transpose", {&Looked::transpose, "axes in their order"}},
                                                          {"Reshape", {&Looked::reshape, "its own shape"}},
                                                          {"Flatten", {&Looked::of_one_type, "its own shape"}},
                                                          {"Squeeze", {&Looked::of_one_type, "its own shape"}},
                                                          {"Unsqueeze", {&Looked::of_one_type, "its own shape"}},
                                                          {"Expand", {&Looked::expand, "its own shape"}},
                                                          {"Tile", {&Looked::tile, "repeated once"}},
                                                          {"Pad", {&Looked::pad, "nothing added"}},
                                                          {"Slice", {&Looked::slice, "all of it"}},
                                                          {"Split", {&Looked::one_result, "one part alone"}},
                                                          {"Concat", {&Looked::one_operand, "one operand alone"}},
                                                          {"Sum", {&Looked::one_operand, "one operand alone"}},
                                                          {"Mean", {&Looked::one_operand, "one operand alone"}},
                                                          {"Max", {&Looked::one_operand, "one operand alone"}},
                                                          {"Min", {&Looked::one_operand, "one operand alone"}}};
  return list;
}

int64_t opset_of(const Graph &graph) {
  for (const auto &[domain, version] : graph.info().opset_imports)
    if (domain.empty() || domain == "ai.onnx") return version;
  return 1;
}

}  // namespace

NeutralNodes::NeutralNodes(const Graph &graph) : graph_(graph), list_(graph.node_capacity()) {
  const int64_t opset = opset_of(graph);
  for (NodeId n : graph.all_nodes()) {
    const Node &node = graph.node(n);
    if (!node.input(0).valid() || !node.output(0).valid()) continue;
    Entry &entry = list_[n.index];
    const Looked looked(graph, node, opset);
    if (node.op == "Identity") {
      entry.why = "a copy";
    } else if (const auto unit = units().find(node.op); unit != units().end()) {
      const auto x = looked.beside(unit->second.value, unit->second.commutes);
      if (x) entry = {unit->second.why, *x}, any_ = true;
    } else if (const auto one = idle().find(node.op); one != idle().end() && (looked.*one->second.test)()) {
      entry.why = one->second.why, any_ = true;
    }
  }
}

ValueId NeutralNodes::behind(ValueId value) const {
  while (value.valid() && graph_.value(value).kind == ValueKind::kNodeOutput && graph_.value(value).index == 0) {
    const NodeId producer = graph_.value(value).producer;
    if (why(producer).empty()) break;
    value = graph_.node(producer).inputs[operand(producer)];
  }
  return value;
}

}  // namespace optc
