// ai.onnx.preview.training.Gradient: reverse-mode differentiation of the graph between xs and y. When the model is read
// the node gets, behind its own inputs, the values that xs, zs and y name (importer/converter.cc).

#include "ops/gradient.h"

#include <unordered_map>
#include <unordered_set>

namespace optc {
namespace {

constexpr size_t kMaxSteps = 1 << 16;  // of the differentiated graph

const DerivativeRow *find_rule(std::string_view op) {
  for (std::span<const DerivativeRow> rows :
       {pointwise_derivatives(), product_derivatives(), reduction_derivatives(), shape_derivatives()})
    for (const DerivativeRow &row : rows)
      if (row.op == op) return &row;
  return nullptr;
}

using Values = std::unordered_map<uint32_t, ValueId>;

// The nodes that y is computed by, operands first, up to values in `ends`.
Result<std::vector<NodeId>> steps_to(Body &b, ValueId y, const std::unordered_set<uint32_t> &ends) {
  const Graph &graph = b.graph();
  std::vector<NodeId> order;
  std::unordered_set<uint32_t> seen;
  std::vector<std::pair<NodeId, bool>> stack;
  const auto visit = [&](ValueId v) {
    if (!v.valid() || ends.count(v.index) || graph.value(v).kind != ValueKind::kNodeOutput) return;
    const NodeId producer = graph.value(v).producer;
    if (!seen.count(producer.index)) stack.emplace_back(producer, false);
  };
  visit(y);
  while (!stack.empty()) {
    const auto [id, done] = stack.back();
    stack.pop_back();
    if (done) {
      order.push_back(id);
      continue;
    }
    if (!seen.insert(id.index).second) continue;
    if (seen.size() > kMaxSteps)
      return b.unsupported("a Gradient of more than " + std::to_string(kMaxSteps) + " nodes");
    stack.emplace_back(id, true);
    for (ValueId v : graph.node(id).inputs) visit(v);
    for (const auto &[name, region] : graph.node(id).regions)
      for (ValueId v : graph.captures(region)) visit(v);
  }
  return order;
}

class Differentiation {
 public:
  explicit Differentiation(Body &b) : b_(b) {}

  Status run() {
    const auto strings = [&](std::string_view name) {
      const Attribute *a = b_.node().attribute(name);
      return a ? std::get<std::vector<std::string>>(*a).size() : 0;
    };
    const size_t xs = strings("xs"), named = xs + strings("zs");
    if (b_.node().region != Graph::main()) return b_.unsupported("a Gradient inside of a body");
    if (xs == 0 || b_.input_count() != 2 * named + 1)
      return b_.invalid("as many inputs are needed as xs and zs have names, " + std::to_string(named));
    if (b_.node().outputs.size() > xs)
      return b_.invalid("there are at most as many outputs as xs has names, " + std::to_string(xs));
    y_ = b_.in(2 * named);
    if (!is_float(b_.element(y_))) return b_.invalid("y must be a tensor of floats, it is " + to_string(b_.type(y_)));
    std::unordered_set<uint32_t> ends;
    bool elsewhere = false;
    for (size_t i = 0; i < named; ++i) {
      const ValueId name = b_.in(named + i), value = b_.in(i);
      if (i < xs && !is_float(b_.element(name)))
        return b_.invalid("xs must be tensors of floats, one is " + to_string(b_.type(name)));
      if (b_.element(name) != b_.element(value) || b_.rank(name) != b_.rank(value))
        return b_.invalid(b_.input_name(i) + " is " + to_string(b_.type(value)) + ", the value that it stands for " +
                          to_string(b_.type(name)));
      ends.insert(name.index);
      at_.emplace(name.index, value);
      elsewhere = elsewhere || name != value;
    }
    OPTC_ASSIGN(order_, steps_to(b_, y_, ends));
    if (elsewhere) OPTC_TRY(repeat_forward());
    for (size_t i = 0; i < xs; ++i) active_.insert(b_.in(elsewhere ? i : named + i).index);
    OPTC_TRY(mark_active());
    OPTC_TRY(backward());
    for (size_t i = 0; i < b_.node().outputs.size(); ++i) {
      if (!b_.wants(i)) continue;
      const ValueId x = elsewhere ? b_.in(i) : b_.in(named + i);
      const auto found = adjoints_.find(x.index);
      b_.give(i, found == adjoints_.end() ? zeros_like(b_, x) : found->second);
    }
    return {};
  }

 private:
  // At other values than those of the model: what depends on them is computed once more.
  Status repeat_forward() {
    std::vector<NodeId> copies;
    for (NodeId id : order_) {
      const Node n = b_.graph().node(id);
      bool depends = false;
      std::vector<ValueId> inputs;
      for (ValueId v : n.inputs) {
        const auto found = v.valid() ? at_.find(v.index) : at_.end();
        depends = depends || (found != at_.end() && found->second != v);
        inputs.push_back(found == at_.end() ? v : found->second);
      }
      for (const auto &[name, region] : n.regions)
        for (ValueId v : b_.graph().captures(region)) {
          const auto found = at_.find(v.index);
          if (found != at_.end() && found->second != v)
            return b_.unsupported("a Gradient at other values through the body of " + b_.graph().describe(id));
        }
      if (!depends) {
        copies.push_back(id);
        continue;
      }
      if (!n.regions.empty()) return b_.unsupported("a Gradient at other values through " + b_.graph().describe(id));
      const std::vector<ValueId> made = b_.ops(n.op, std::move(inputs), n.outputs.size(), n.attributes);
      for (size_t k = 0; k < made.size(); ++k)
        if (n.outputs[k].valid()) at_[n.outputs[k].index] = made[k];
      copies.push_back(b_.graph().value(made[0]).producer);
    }
    order_ = std::move(copies);
    const auto found = at_.find(y_.index);
    if (found != at_.end()) y_ = found->second;
    return {};
  }

  bool is_active(ValueId v) const { return v.valid() && active_.count(v.index) > 0; }

  Status mark_active() {
    for (NodeId id : order_) {
      const Node &n = b_.graph().node(id);
      bool any = false;
      for (ValueId v : n.inputs) any = any || is_active(v);
      for (const auto &[name, region] : n.regions)
        for (ValueId v : b_.graph().captures(region)) any = any || is_active(v);
      if (!any) continue;
      for (ValueId v : n.outputs)
        if (v.valid() && b_.graph().value(v).type.is_tensor() && is_float(b_.element(v))) active_.insert(v.index);
    }
    return {};
  }

  void add(ValueId v, ValueId adjoint) {
    const auto [at, fresh] = adjoints_.emplace(v.index, adjoint);
    if (!fresh) at->second = b_.add(at->second, adjoint);
  }

  Status backward() {
    if (is_active(y_)) {
      const ValueId one = b_.like(y_, 1);
      adjoints_.emplace(y_.index, b_.rank(y_) == 0 ? one : b_.op("Expand", {one, b_.op("Shape", {y_})}));
    }
    for (auto id = order_.rbegin(); id != order_.rend(); ++id) {
      Derivative d{b_, b_.graph().node(*id), {}, {}, {}};
      bool any = false, needed = false;
      for (ValueId v : d.node.outputs) {
        const auto found = v.valid() && is_active(v) ? adjoints_.find(v.index) : adjoints_.end();
        d.adjoints.push_back(found == adjoints_.end() ? ValueId() : found->second);
        any = any || d.adjoints.back().valid();
      }
      for (ValueId v : d.node.inputs) {
        d.wanted.push_back(is_active(v));
        needed = needed || d.wanted.back();
      }
      if (!any) continue;
      if (!d.node.regions.empty()) return d.unsupported(d.node.op);
      if (!needed) continue;
      const DerivativeRow *row = find_rule(d.node.op);
      if (!row) return d.unsupported(d.node.op);
      if (!row->rule) continue;
      if (!d.adjoints[0].valid()) d.adjoints[0] = zeros_like(b_, d.out(0));
      d.results.resize(d.node.inputs.size());
      OPTC_TRY(row->rule(d));
      for (size_t i = 0; i < d.results.size(); ++i)
        if (d.wanted[i] && d.results[i].valid()) add(d.node.inputs[i], d.results[i]);
    }
    return {};
  }

  Body &b_;
  ValueId y_;
  std::vector<NodeId> order_;
  Values at_;                            // values at which the derivatives are taken, by the model's
  std::unordered_set<uint32_t> active_;  // what changes with xs
  Values adjoints_;
};

Status gradient(Body &b) { return Differentiation(b).run(); }

constexpr OpDef kOps[] = {
    body_row("ai.onnx.preview.training.Gradient", {"Inputs*", "Outputs*", "xs:ss! y:s! zs:ss"}, gradient),
};

}  // namespace

Failure Derivative::unsupported(std::string what) {
  return b.unsupported("the derivative of " + what + " (" + node.name + ")");
}

Status Derivative::give(size_t i, ValueId adjoint) {
  if (!wants(i)) return {};
  const ValueId x = in(i);
  const Shape &to = *b.type(x).shape;
  if (b.rank(adjoint) < 0) return unsupported(node.op + " of unknown rank");
  const Shape from = *b.type(adjoint).shape;
  std::vector<int64_t> front, ones;
  const size_t extra = from.size() - std::min(from.size(), to.size());
  for (size_t k = 0; k < extra; ++k) front.push_back(static_cast<int64_t>(k));
  for (size_t k = 0; k < to.size() && extra + k < from.size(); ++k) {
    if (to[k] == from[extra + k]) continue;
    if (to[k].is(1))
      ones.push_back(static_cast<int64_t>(k));
    else if (!to[k].is_constant() && lower_bound(to[k]) <= 1)
      return unsupported(node.op + ", an operand of which may be repeated along a dimension that only the run decides");
  }
  if (!front.empty()) adjoint = sum_over(b, adjoint, std::move(front), false);
  if (!ones.empty()) adjoint = sum_over(b, adjoint, std::move(ones), true);
  results[i] = adjoint;
  return {};
}

ValueId zeros_like(Body &b, ValueId v) { return b.op("Expand", {b.like(v, 0), b.op("Shape", {v})}); }

ValueId sum_over(Body &b, ValueId v, std::vector<int64_t> axes, bool keep) {
  return b.op("ReduceSum", {v, b.ints(std::move(axes))}, {{"keepdims", int64_t{keep}}});
}

Result<std::vector<int64_t>> constant_ints(Derivative &d, size_t input) {
  const Constant *c = d.b.constant(d.in(input));
  if (!c || !is_integer(c->type()))
    return d.unsupported(d.node.op + " whose input " + std::to_string(input) + " is computed");
  std::vector<int64_t> list;
  for (int64_t k = 0; k < c->count(); ++k) list.push_back(c->as_int64(k));
  return list;
}

ValueId scattered(Body &b, ValueId updates, ValueId places, ValueId size, int64_t axis, int places_rank) {
  const int rank = b.rank(updates);
  // The axes of the places first, then the others; back at the end.
  std::vector<int64_t> perm, back;
  for (int64_t k = 0; k < places_rank; ++k) perm.push_back(axis + k);
  for (int64_t k = 0; k < rank; ++k)
    if (k < axis || k >= axis + places_rank) perm.push_back(k);
  const ValueId rows = b.transpose(updates, std::move(perm));
  const ValueId rest = b.op("Shape", {rows}, {{"start", int64_t{places_rank}}});
  const ValueId none = b.op("Expand", {b.like(updates, 0), b.concat({size, rest}, 0)});
  const ValueId at = b.unsqueeze(b.cast(places, ElementType::kInt64), {-1});
  const ValueId sum = b.op("ScatterND", {none, at, rows}, {{"reduction", std::string("add")}});
  const int64_t others = rank - places_rank;
  for (int64_t k = 0; k < others + 1; ++k) back.push_back(k < axis ? k + 1 : k == axis ? 0 : k);
  return b.transpose(sum, std::move(back));
}

std::span<const OpDef> gradient_ops() { return kOps; }

}  // namespace optc
