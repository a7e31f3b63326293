// What is different between nodes that correspond, and between the two models as a whole.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "emit/report/internal_diff.h"
#include "emit/report/neutral.h"

namespace optc {
namespace {

constexpr size_t kLongest = 60;  // of a value that is told whole

std::string quoted(const std::string &name) { return "'" + name + "'"; }

// --- Constants -------------------------------------------------------------------------------------------------------

std::string constant_text(const Constant &c) {
  constexpr int64_t kShown = 8;
  const std::string type = to_string(Type::tensor(c.type(), c.shape()));
  if (c.count() > kShown || c.type() == ElementType::kString) return type;
  std::string text;
  for (int64_t i = 0; i < c.count(); ++i)
    text += (i ? "," : "") +
            (is_float(c.type()) ? fmt::format("{:.9g}", c.as_double(i)) : fmt::format("{}", c.as_int64(i)));
  return type + " " + (c.rank() == 0 ? text : "[" + text + "]");
}

// How far two constants of one shape are from one another. Elements are compared by their bits; a NaN is no number, and
// has no part in the largest difference.
void measure(const Constant &p, const Constant &q, DiffChange &change) {
  change.count = p.count();
  const bool text = p.type() == ElementType::kString || q.type() == ElementType::kString;
  for (int64_t i = 0; i < p.count(); ++i) {
    if (text) {
      const auto at = static_cast<size_t>(i);
      change.differing += p.type() != q.type() || p.string_values()[at] != q.string_values()[at];
      continue;
    }
    const double x = p.as_double(i), y = q.as_double(i);
    const bool same = x == y ? std::signbit(x) == std::signbit(y) : std::isnan(x) && std::isnan(y);
    if (same) continue;
    ++change.differing;
    if (const double far = std::fabs(x - y); far > change.largest) change.largest = far;
  }
}

bool tell_constants(const Constant &p, const Constant &q, DiffChange &change) {
  if (p.equals(q)) return false;
  const Type x = Type::tensor(p.type(), p.shape()), y = Type::tensor(q.type(), q.shape());
  change.from = constant_text(p);
  change.to = constant_text(q);
  if (p.dims() != q.dims()) return true;
  measure(p, q, change);
  if (p.type() == q.type() && change.differing == 0) change.differing = 1;  // in the bits of a NaN or of a complex part
  const std::string far = change.largest > 0 ? fmt::format(", by at most {:.3g}", change.largest) : "";
  if (p.type() == q.type())
    change.note = fmt::format("{} of {} value{} differ{}{}", change.differing, change.count,
                              change.count == 1 ? "" : "s", change.differing == 1 ? "s" : "", far);
  else
    change.note = change.differing ? fmt::format("values differ{}", far) : "the same values";
  return true;
}

// --- Attributes ------------------------------------------------------------------------------------------------------

// Attributes that hold the number of an element type.
bool names_type(const std::string &attribute) {
  return attribute == "to" || attribute == "dtype" || attribute == "output_dtype" || attribute == "stash_type";
}

std::string cut_at(const std::string &text, size_t around) {
  size_t begin = around > kLongest / 2 ? around - kLongest / 2 : 0, end = std::min(text.size(), begin + kLongest);
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;  // not inside a character
  while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
  return (begin ? "…" : "") + text.substr(begin, end - begin) + (end < text.size() ? "…" : "");
}

void tell_attribute(const std::string &name, const Attribute *p, const Attribute *q, DiffChange &change) {
  change.what = "attribute " + name;
  const auto text = [&](const Attribute *a) -> std::string {
    if (!a) return "absent";
    const auto *number = std::get_if<int64_t>(a);
    if (number && names_type(name) && *number > 0 && *number <= static_cast<int64_t>(ElementType::kInt2))
      return std::string(to_string(static_cast<ElementType>(*number)));
    return attribute_text(*a, false);
  };
  change.from = text(p);
  change.to = text(q);
  const Constant *x = p ? std::get_if<Constant>(p) : nullptr, *y = q ? std::get_if<Constant>(q) : nullptr;
  if (x && y) {
    (void)tell_constants(*x, *y, change);
    return;
  }
  if (change.from.size() <= kLongest && change.to.size() <= kLongest) return;
  const auto first = std::mismatch(change.from.begin(), change.from.end(), change.to.begin(), change.to.end()).first;
  const auto at = static_cast<size_t>(first - change.from.begin());
  change.from = cut_at(change.from, at);
  change.to = cut_at(change.to, at);
}

bool equal_attributes(const Attribute &p, const Attribute &q) {
  return p.index() == q.index() && attribute_text(p, true) == attribute_text(q, true);
}

// --- Types -----------------------------------------------------------------------------------------------------------

bool is_anonymous(const std::string &dim, size_t axis) {
  const std::string end = "_d" + std::to_string(axis);
  return dim.size() > end.size() && dim.compare(dim.size() - end.size(), end.size(), end) == 0;
}

// Whether two declared types contradict one another. `strict`, of what a caller of the model sees: also where one says
// more than the other, or names a dim otherwise.
bool types_differ(const Type &p, const Type &q, bool strict) {
  if (p.kind == Type::Kind::kNone || q.kind == Type::Kind::kNone) return false;
  if (p.kind != q.kind) return true;
  if (p.element != q.element && p.element != ElementType::kUndefined && q.element != ElementType::kUndefined)
    return true;
  if (!p.is_tensor()) return p.inner && q.inner && types_differ(*p.inner, *q.inner, strict);
  if (!p.shape || !q.shape) return strict && p.shape.has_value() != q.shape.has_value();
  if (p.shape->size() != q.shape->size()) return true;
  for (size_t i = 0; i < p.shape->size(); ++i) {
    const Dim x = (*p.shape)[i], y = (*q.shape)[i];
    if (x.is_constant() && y.is_constant()) {
      if (!(x == y)) return true;
    } else if (strict && x.str() != y.str() && !(is_anonymous(x.str(), i) && is_anonymous(y.str(), i))) {
      return true;
    }
  }
  return false;
}

// --- The two graphs --------------------------------------------------------------------------------------------------

class Finder {
 public:
  Finder(const Graph &a, const Graph &b, GraphDiff &diff)
      : a_(a), b_(b), diff_(diff), group_a_(a.node_capacity(), SIZE_MAX), group_b_(b.node_capacity(), SIZE_MAX) {
    for (size_t g = 0; g < diff.groups.size(); ++g) {
      for (NodeId n : diff.groups[g].before) group_a_[n.index] = g;
      for (NodeId n : diff.groups[g].after) group_b_[n.index] = g;
    }
    const std::vector<ValueId> &of_a = a.region(Graph::main()).inputs, &of_b = b.region(Graph::main()).inputs;
    for (const auto &[i, j] : pair_inputs(a, b))
      if (i != SIZE_MAX && j != SIZE_MAX) input_of_.emplace(of_a[i].index, of_b[j]), of_b_.insert(of_b[j].index);
  }

  void nodes(Told told) {
    for (NodeId y : b_.all_nodes()) {
      const size_t g = group_b_[y.index];
      const DiffGroup &group = diff_.groups[g];
      if (group.before.size() != 1 || group.after.size() != 1) continue;
      const NodeId x = group.before[0];
      const size_t first = diff_.changes.size();
      const Node &p = a_.node(x), &q = b_.node(y);
      if (p.op != q.op) {
        DiffChange &change = add(ChangeKind::kOperator, g, x, y);
        change.what = "operator", change.from = p.op, change.to = q.op;
        if (told == Told::kAll) continue;  // another operator has other attributes and operands
      }
      attributes(g, x, y);
      operands(g, x, y, told);
      if (told == Told::kNodes) continue;
      results(g, x, y);
      if (diff_.changes.size() == first && !changed_.count(g)) types(g, x, y);
    }
  }

  void model() {
    opsets();
    const std::vector<ValueId> &in_a = a_.region(Graph::main()).inputs, &in_b = b_.region(Graph::main()).inputs;
    for (const auto &[i, j] : pair_inputs(a_, b_)) {
      interface(ChangeKind::kInput, "input", i == SIZE_MAX ? ValueId() : in_a[i], j == SIZE_MAX ? ValueId() : in_b[j]);
      if (i == SIZE_MAX || j == SIZE_MAX) continue;
      const Constant &p = a_.defaults()[i], &q = b_.defaults()[j];
      DiffChange change;
      change.kind = ChangeKind::kWeight;
      change.what = "default of input " + quoted(a_.value(in_a[i]).name);
      if (p.valid() != q.valid()) {
        change.from = p.valid() ? constant_text(p) : "none";
        change.to = q.valid() ? constant_text(q) : "none";
        diff_.changes.push_back(change);
      } else if (p.valid() && tell_constants(p, q, change)) {
        diff_.changes.push_back(change);
      }
    }
    const std::vector<ValueId> &out_a = a_.region(Graph::main()).outputs, &out_b = b_.region(Graph::main()).outputs;
    for (const auto &[i, j] : pair_outputs(a_, b_)) {
      const ValueId v = i == SIZE_MAX ? ValueId() : out_a[i], w = j == SIZE_MAX ? ValueId() : out_b[j];
      if (interface(ChangeKind::kOutput, "output", v, w) || !v.valid() || !w.valid() || corresponds(v, w)) continue;
      DiffChange &change = diff_.changes.emplace_back();
      change.kind = ChangeKind::kOutput;
      change.what = "output " + quoted(a_.value(v).name) + " is given by";
      change.from = giver(a_, v), change.to = giver(b_, w);
    }
  }

  void finish() {
    for (const auto &[g, kinds] : changed_) {
      diff_.groups[g].status = DiffStatus::kChanged;
      diff_.groups[g].kinds = kinds;
    }
    std::stable_sort(diff_.changes.begin(), diff_.changes.end(),
                     [](const DiffChange &x, const DiffChange &y) { return x.kind < y.kind; });
  }

 private:
  DiffChange &add(ChangeKind kind, size_t group, NodeId x, NodeId y) {
    changed_[group] |= bit_of(kind);
    DiffChange &change = diff_.changes.emplace_back();
    change.kind = kind;
    change.group = group;
    change.node = a_.node(x).name, change.node_after = b_.node(y).name, change.op = b_.node(y).op;
    return change;
  }

  void attributes(size_t g, NodeId x, NodeId y) {
    std::set<std::string> names;
    for (const auto &[name, value] : a_.node(x).attributes) names.insert(name);
    for (const auto &[name, value] : b_.node(y).attributes) names.insert(name);
    for (const std::string &name : names) {
      const Attribute *p = a_.node(x).attribute(name), *q = b_.node(y).attribute(name);
      if (p && q && equal_attributes(*p, *q)) continue;
      tell_attribute(name, p, q, add(ChangeKind::kAttribute, g, x, y));
    }
  }

  // The constant behind a value. An input of one model only that has a default is a weight: files of old versions list
  // every weight as an input.
  const Constant *constant_of(const Graph &g, ValueId v) const {
    if (!v.valid()) return nullptr;
    v = behind_copies(g, v);
    const Value &value = g.value(v);
    const bool input = value.kind == ValueKind::kRegionInput && value.region == Graph::main();
    if (input && g.defaults()[value.index].valid() && !(&g == &a_ ? input_of_.count(v.index) : of_b_.count(v.index)))
      return &g.defaults()[value.index];
    return g.constant(v);
  }

  void operands(size_t g, NodeId x, NodeId y, Told told) {
    const Node &p = a_.node(x), &q = b_.node(y);
    if (told == Told::kAll && q.op == "Identity" && !gives_output(q)) return;  // its readers are looked at
    std::vector<size_t> other;                                                 // operands that are not what they were
    for (size_t i = 0; i < std::max(p.inputs.size(), q.inputs.size()); ++i) {
      const ValueId v = p.input(i), w = q.input(i);
      const Constant *c = constant_of(a_, v), *d = constant_of(b_, w);
      if (!(c && d)) {
        if (told == Told::kAll ? !corresponds(v, w) : v.valid() != w.valid()) other.push_back(i);
        continue;
      }
      weight(g, x, y, v, w, *c, *d);
    }
    if (other.size() == 2 && corresponds(p.input(other[0]), q.input(other[1])) &&
        corresponds(p.input(other[1]), q.input(other[0]))) {
      DiffChange &change = add(ChangeKind::kEdge, g, x, y);
      change.what = fmt::format("inputs {} and {}", other[0], other[1]);
      change.from = names_of(a_, p, other), change.to = names_of(b_, q, other);
      change.note = is_commutative(q.op) ? "exchanged: the result is the same" : "exchanged";
      return;
    }
    for (const size_t i : other) {
      DiffChange &change = add(ChangeKind::kEdge, g, x, y);
      change.what = fmt::format("input {}", i);
      change.from = source(a_, p.input(i)), change.to = source(b_, q.input(i));
      if (!neutral_a_) neutral_a_.emplace(a_), neutral_b_.emplace(b_);
      const ValueId v = neutral_a_->behind(p.input(i)), w = neutral_b_->behind(q.input(i));
      if (v.valid() && w.valid() && corresponds(v, w)) change.note = "the same value behind neutral nodes";
    }
  }

  bool gives_output(const Node &node) const {
    const std::vector<Use> &uses = b_.value(node.outputs[0]).uses;
    return std::any_of(uses.begin(), uses.end(), [](const Use &use) { return use.kind == UseKind::kRegionOutput; });
  }

  void weight(size_t g, NodeId x, NodeId y, ValueId v, ValueId w, const Constant &c, const Constant &d) {
    const uint64_t both = (uint64_t{behind_copies(a_, v).index} << 32) | behind_copies(b_, w).index;
    if (const auto told = told_.find(both); told != told_.end()) {  // one weight that several nodes read
      if (told->second == SIZE_MAX) return;
      changed_[g] |= bit_of(ChangeKind::kWeight);
      ++readers_[told->second];
      return;
    }
    told_[both] = SIZE_MAX;
    DiffChange change;
    if (!tell_constants(c, d, change)) return;
    told_[both] = diff_.changes.size();
    DiffChange &place = add(ChangeKind::kWeight, g, x, y);
    change.kind = place.kind, change.group = g;
    change.node = place.node, change.node_after = place.node_after, change.op = place.op;
    change.what = "weight " + quoted(a_.value(v).name);
    place = std::move(change);
  }

  // Bodies give other values to their owner.
  void results(size_t g, NodeId x, NodeId y) {
    for (const auto &[name, region] : a_.node(x).regions) {
      const RegionId other = b_.node(y).region_named(name);
      const std::vector<ValueId> none;
      const std::vector<ValueId> &of_a = a_.region(region).outputs;
      const std::vector<ValueId> &of_b = other.valid() ? b_.region(other).outputs : none;
      for (size_t i = 0; i < std::max(of_a.size(), of_b.size()); ++i) {
        const ValueId v = i < of_a.size() ? of_a[i] : ValueId(), w = i < of_b.size() ? of_b[i] : ValueId();
        const Constant *c = constant_of(a_, v), *d = constant_of(b_, w);
        if (c && d) {
          weight(g, x, y, v, w, *c, *d);
        } else if (!corresponds(v, w)) {
          DiffChange &change = add(ChangeKind::kEdge, g, x, y);
          change.what = fmt::format("output {} of {}", i, name);
          change.from = source(a_, v), change.to = source(b_, w);
        }
      }
    }
  }

  // A declared type that nothing before it explains.
  void types(size_t g, NodeId x, NodeId y) {
    const Node &p = a_.node(x), &q = b_.node(y);
    for (size_t i = 0; i < p.inputs.size() && i < q.inputs.size(); ++i)
      if (p.inputs[i].valid() && q.inputs[i].valid() &&
          types_differ(a_.value(p.inputs[i]).type, b_.value(q.inputs[i]).type, false))
        return;
    for (size_t i = 0; i < p.outputs.size() && i < q.outputs.size(); ++i) {
      if (!p.outputs[i].valid() || !q.outputs[i].valid()) continue;
      const Value &v = a_.value(p.outputs[i]), &w = b_.value(q.outputs[i]);
      const bool told = std::any_of(w.uses.begin(), w.uses.end(), [](const Use &use) {
        return use.kind == UseKind::kRegionOutput && use.region == Graph::main();
      });
      if (told || !types_differ(v.type, w.type, false)) continue;
      DiffChange &change = add(ChangeKind::kType, g, x, y);
      change.what = "type of " + quoted(v.name);
      change.from = to_string(v.type), change.to = to_string(w.type);
    }
  }

  // Whether two values are the same thing of their graphs; not of two constants, whose content is looked at. What a
  // change of the nodes in between says already (removed, added, fused) is not said again.
  bool corresponds(ValueId v, ValueId w) {
    if (!v.valid() || !w.valid()) return v.valid() == w.valid();
    v = behind_copies(a_, v), w = behind_copies(b_, w);
    const Value &p = a_.value(v), &q = b_.value(w);
    if (p.kind == ValueKind::kConstant && q.kind == ValueKind::kConstant) return p.constant.equals(q.constant);
    if (same_source(v, w)) return true;
    const std::vector<ValueId> of_a = behind_changes(a_, v, group_a_), of_b = behind_changes(b_, w, group_b_);
    if (of_a.size() == 1 && of_a[0] == v && of_b.size() == 1 && of_b[0] == w) return false;
    for (ValueId x : of_a)
      for (ValueId y : of_b)
        if (same_source(x, y)) return true;
    // Computed of constants alone: a constant by now, or the other way round.
    const auto constant = [](const Graph &g, const std::vector<ValueId> &list) {
      return std::all_of(list.begin(), list.end(), [&](ValueId one) { return g.is_constant(one); });
    };
    return constant(a_, of_a) && constant(b_, of_b);
  }

  bool same_source(ValueId v, ValueId w) const {
    const Value &p = a_.value(v), &q = b_.value(w);
    if (p.kind != q.kind) return false;
    if (p.kind == ValueKind::kConstant) return p.constant.equals(q.constant);
    if (p.kind == ValueKind::kRegionInput) {
      if ((p.region == Graph::main()) != (q.region == Graph::main())) return false;
      const auto it = input_of_.find(v.index);
      return p.region == Graph::main() ? it != input_of_.end() && it->second == w : p.index == q.index;
    }
    const size_t g = group_a_[p.producer.index];
    if (g != group_b_[q.producer.index]) return false;
    const DiffGroup &group = diff_.groups[g];
    return group.before.size() != 1 || group.after.size() != 1 || p.index == q.index;
  }

  // The value, or where nodes that only this graph has made it: what those were made of.
  std::vector<ValueId> behind_changes(const Graph &graph, ValueId value, const std::vector<size_t> &group_of) const {
    constexpr size_t kMany = 64;
    std::vector<ValueId> list;
    std::vector<ValueId> work{value};
    std::unordered_set<uint32_t> seen{value.index};
    while (!work.empty() && seen.size() < kMany) {
      const ValueId v = behind_copies(graph, work.back());
      work.pop_back();
      const Value &one = graph.value(v);
      const DiffGroup *group =
          one.kind == ValueKind::kNodeOutput ? &diff_.groups[group_of[one.producer.index]] : nullptr;
      if (!group || (!group->before.empty() && !group->after.empty())) {
        list.push_back(v);
        continue;
      }
      for (ValueId operand : graph.node(one.producer).inputs)
        if (operand.valid() && seen.insert(operand.index).second) work.push_back(operand);
    }
    return list;
  }

  static std::string source(const Graph &g, ValueId v) {
    if (!v.valid()) return "absent";
    const Constant *c = g.constant(behind_copies(g, v));
    return c ? constant_text(*c) : quoted(g.value(v).name);
  }
  static std::string names_of(const Graph &g, const Node &node, const std::vector<size_t> &inputs) {
    std::string text;
    for (size_t i : inputs) text += (text.empty() ? "" : ", ") + source(g, node.input(i));
    return text;
  }
  static std::string giver(const Graph &g, ValueId v) {
    const Value &one = g.value(v);
    if (one.kind == ValueKind::kConstant) return "a constant";
    if (one.kind == ValueKind::kRegionInput) return "input " + quoted(one.name);
    return quoted(g.node(one.producer).name) + " (" + g.node(one.producer).op + ")";
  }

  bool interface(ChangeKind kind, const char *what, ValueId v, ValueId w) {
    DiffChange change;
    change.kind = kind;
    if (!v.valid() || !w.valid()) {
      const Graph &g = v.valid() ? a_ : b_;
      const Value &one = g.value(v.valid() ? v : w);
      change.what = fmt::format("{} {}", what, quoted(one.name));
      change.from = v.valid() ? to_string(one.type) : "absent";
      change.to = v.valid() ? "absent" : to_string(one.type);
      diff_.changes.push_back(change);
      return true;
    }
    const Value &p = a_.value(v), &q = b_.value(w);
    if (p.name != q.name) {
      change.what = what;
      change.from = quoted(p.name), change.to = quoted(q.name);
      diff_.changes.push_back(change);
    }
    if (types_differ(p.type, q.type, true)) {
      change.what = fmt::format("{} {}", what, quoted(p.name));
      change.from = to_string(p.type), change.to = to_string(q.type);
      diff_.changes.push_back(change);
    }
    return false;
  }

  // Versions of the operator sets that nodes of the model are of.
  void opsets() {
    const auto used = [](const Graph &g) {
      std::map<std::string, int64_t> list;
      std::set<std::string> domains;
      for (NodeId n : g.all_nodes()) {
        const size_t dot = g.node(n).op.rfind('.');
        domains.insert(dot == std::string::npos ? "" : g.node(n).op.substr(0, dot));
      }
      for (const auto &[domain, version] : g.info().opset_imports)
        if (domains.count(domain)) list[domain] = std::max(list[domain], version);
      return list;
    };
    const auto before = used(a_), after = used(b_);
    std::set<std::string> domains;
    for (const auto &[domain, version] : before) domains.insert(domain);
    for (const auto &[domain, version] : after) domains.insert(domain);
    for (const std::string &domain : domains) {
      const auto text = [&](const std::map<std::string, int64_t> &list) {
        const auto it = list.find(domain);
        return it == list.end() ? std::string("not used") : std::to_string(it->second);
      };
      if (text(before) == text(after)) continue;
      DiffChange &change = diff_.changes.emplace_back();
      change.kind = ChangeKind::kOpset;
      change.what = "opset " + (domain.empty() ? "ai.onnx" : domain);
      change.from = text(before), change.to = text(after);
    }
  }

  const Graph &a_, &b_;
  GraphDiff &diff_;
  std::vector<size_t> group_a_, group_b_;              // by node
  std::unordered_map<uint32_t, ValueId> input_of_;     // inputs of A that B has too
  std::unordered_set<uint32_t> of_b_;                  // those of B
  std::unordered_map<uint64_t, size_t> told_;          // two constants -> the change; SIZE_MAX: they are equal
  std::map<size_t, uint32_t> changed_;                 // groups, with the kinds of their changes
  std::optional<NeutralNodes> neutral_a_, neutral_b_;  // once they are asked for

 public:
  std::map<size_t, size_t> readers_;  // a change of a weight -> how many more nodes read it
};

std::vector<std::pair<size_t, size_t>> paired(const Graph &a, const std::vector<ValueId> &of_a, const Graph &b,
                                              const std::vector<ValueId> &of_b) {
  std::vector<std::pair<size_t, size_t>> pairs;
  std::unordered_map<std::string, size_t> by_name;
  for (size_t i = 0; i < of_a.size(); ++i) by_name.emplace(a.value(of_a[i]).name, i);
  std::vector<bool> taken(of_a.size(), false);
  std::vector<size_t> rest;
  for (size_t j = 0; j < of_b.size(); ++j) {
    const auto it = by_name.find(b.value(of_b[j]).name);
    if (it == by_name.end() || taken[it->second]) {
      rest.push_back(j);
      continue;
    }
    taken[it->second] = true;
    pairs.emplace_back(it->second, j);
  }
  // Renamed ones: the first that is left of a type that does not contradict.
  for (const size_t j : rest) {
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < of_a.size() && found == SIZE_MAX; ++i)
      if (!taken[i] && !types_differ(a.value(of_a[i]).type, b.value(of_b[j]).type, false)) found = i;
    if (found != SIZE_MAX) taken[found] = true;
    pairs.emplace_back(found, j);
  }
  for (size_t i = 0; i < of_a.size(); ++i)
    if (!taken[i]) pairs.emplace_back(i, SIZE_MAX);
  return pairs;
}

}  // namespace

const char *to_string(ChangeKind kind) {
  switch (kind) {
    case ChangeKind::kOpset:
      return "opset";
    case ChangeKind::kInput:
      return "input";
    case ChangeKind::kOutput:
      return "output";
    case ChangeKind::kOperator:
      return "operator";
    case ChangeKind::kAttribute:
      return "attribute";
    case ChangeKind::kEdge:
      return "edge";
    case ChangeKind::kType:
      return "type";
    case ChangeKind::kWeight:
      return "weight";
  }
  return "attribute";
}

ValueId behind_copies(const Graph &graph, ValueId value) {
  while (value.valid() && graph.value(value).kind == ValueKind::kNodeOutput) {
    const Node &producer = graph.node(graph.value(value).producer);
    if (producer.op != "Identity" || !producer.input(0).valid()) break;
    value = producer.inputs[0];
  }
  return value;
}

bool is_commutative(const std::string &op) {
  static constexpr const char *kNames[] = {"Add",   "Mul",        "And",       "Or",        "Xor",
                                           "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](const char *name) { return op == name; });
}

std::vector<std::pair<size_t, size_t>> pair_inputs(const Graph &a, const Graph &b) {
  return paired(a, a.region(Graph::main()).inputs, b, b.region(Graph::main()).inputs);
}
std::vector<std::pair<size_t, size_t>> pair_outputs(const Graph &a, const Graph &b) {
  return paired(a, a.region(Graph::main()).outputs, b, b.region(Graph::main()).outputs);
}

void find_changes(const Graph &before, const Graph &after, GraphDiff &diff, Told told) {
  Finder finder(before, after, diff);
  finder.nodes(told);
  for (const auto &[change, readers] : finder.readers_)
    diff.changes[change].note += fmt::format("; {} more node{} it", readers, readers == 1 ? " reads" : "s read");
  if (told == Told::kAll) finder.model();
  finder.finish();
}

}  // namespace optc
