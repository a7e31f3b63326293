// transpose.*: transposes that are reshapes, that reductions do for themselves, and that cancel through what lies
// between them.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "optimizer/rules/chain.h"
#include "optimizer/rules/view.h"

namespace optc {
namespace {

using Order = std::vector<int64_t>;  // a permutation: dim d of the result is dim order[d] of the operand

const Order *order_of(const RuleContext &context, NodeId transpose) {
  const Order *order = context.node(transpose).ints("perm");
  if (!order || !context.type(context.input(transpose, 0)).has_shape()) return nullptr;
  return static_cast<int64_t>(order->size()) == context.type(context.input(transpose, 0)).rank() ? order : nullptr;
}

Order inverse(const Order &order) {
  Order result(order.size());
  for (size_t d = 0; d < order.size(); ++d) result[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
  return result;
}

// Dims of 1 may stand anywhere: a Transpose that moves no other dim is a Reshape, and one with the view beside it.
Result<bool> units(RuleContext &context, NodeId n) {
  const Order *order = order_of(context, n);
  if (!order) return false;
  const Shape &dims = context.shape(context.input(n, 0));
  int64_t last = -1;
  for (const int64_t d : *order) {
    if (dims[static_cast<size_t>(d)].is(1)) continue;
    if (d < last) return false;
    last = d;
  }
  const ValueId x = context.input(n, 0), y = context.output(n);
  const bool behind = is_view(context, context.producer(x)) && context.single_use(x);
  const bool before = context.single_use(y) && is_view(context, context.graph().value(y).uses[0].node);
  if (!behind && !before) return false;
  const auto target = target_shape(context, x, y);
  if (!target) return false;
  auto change = context.rewriter().begin("transpose.units", RewriteKind::kReplace, n);
  const ValueId shape = change.constant(context.node(n).name + ":shape", Constant::int64s(*target));
  const NodeId made = change.create("Reshape", {x, shape}, {{"allowzero", int64_t{0}}});
  change.replace(y, change.output(made));
  change.erase(n);
  OPTC_TRY(change.commit());
  return true;
}

// Reshape([..., S, D] -> [N, S, D]), a Transpose that leaves the first dim, and Reshape to [B, H, D, S]: a Transpose of
// the last dims of [B, H, S, D], as exporters write it for products of batches.
Result<bool> batch(RuleContext &context, NodeId n) {
  const NodeId transpose = context.producer(context.input(n, 0), "Transpose");
  if (!transpose.valid() || !context.single_use(context.output(transpose))) return false;
  const Order *order = order_of(context, transpose);
  if (!order || order->empty() || (*order)[0] != 0) return false;
  const NodeId inner = context.producer(context.input(transpose, 0));
  if (!is_view(context, inner) || !context.single_use(context.output(inner))) return false;
  const ValueId x = context.input(inner, 0), y = context.output(n);
  if (!context.type(x).has_shape() || !context.type(y).has_shape()) return false;
  const Shape &from = context.shape(x), &merged = context.shape(context.input(transpose, 0)), &to = context.shape(y);
  const size_t tail = order->size() - 1;
  if (from.size() <= tail || to.size() <= tail + 1) return false;
  const size_t lead = to.size() - tail;
  Order whole(lead);
  std::iota(whole.begin(), whole.end(), 0);
  Shape apart(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(lead));  // of what is transposed instead
  for (size_t d = 0; d < tail; ++d) {
    const auto source = static_cast<size_t>((*order)[d + 1] - 1);
    apart.push_back(merged[d + 1]);
    if (!(from[from.size() - tail + d] == merged[d + 1]) || !(to[lead + d] == merged[source + 1])) return false;
    whole.push_back(static_cast<int64_t>(lead + source));
  }
  const bool same = apart == from;
  const auto target = target_shape(context, from, apart);
  if (!same && !target) return false;
  auto change = context.rewriter().begin("transpose.batch", RewriteKind::kFuse, n);
  ValueId parted = x;
  if (!same) {
    const ValueId shape = change.constant(context.node(n).name + ":shape", Constant::int64s(*target));
    parted = change.output(change.create("Reshape", {x, shape}, {{"allowzero", int64_t{0}}}));
  }
  const NodeId made = change.create("Transpose", {parted}, {{"perm", whole}});
  change.replace(y, change.output(made));
  for (const NodeId node : {n, transpose, inner}) change.erase(node);
  OPTC_TRY(change.commit());
  return true;
}

// What is reduced need not be put in order first.
Result<bool> reduction(RuleContext &context, NodeId n) {
  const NodeId transpose = context.producer(context.input(n, 0), "Transpose");
  if (!transpose.valid() || !context.single_use(context.output(transpose))) return false;
  const Order *order = order_of(context, transpose);
  const auto axes = reduced_axes(context, n);
  if (!order || !axes || axes->empty()) return false;
  Order reduced, left;
  for (size_t d = 0; d < order->size(); ++d) {
    const bool goes = std::binary_search(axes->begin(), axes->end(), static_cast<int64_t>(d));
    (goes ? reduced : left).push_back((*order)[d]);
  }
  const bool keeps = context.node(n).int_or("keepdims", 1) != 0;
  const bool ordered = std::is_sorted(left.begin(), left.end());
  if (!keeps && !ordered) {
    context.rewriter().missed("transpose.reduction", n, "the dims that stay are put in another order");
    return false;
  }
  std::sort(reduced.begin(), reduced.end());
  auto change = context.rewriter().begin("transpose.reduction", RewriteKind::kFuse, n);
  const Order perm = *order;
  const ValueId list = change.constant(context.node(n).name + ":axes", Constant::int64s(reduced));
  NodeId made = change.create(context.node(n).op, {context.input(transpose, 0), list}, context.node(n).attributes);
  if (keeps) made = change.create("Transpose", {change.output(made)}, {{"perm", perm}});
  change.replace(context.output(n), change.output(made));
  change.erase(n);
  change.erase(transpose);
  OPTC_TRY(change.commit());
  return true;
}

// --- transpose.cancel -----------------------------------------------------------------------------------------------

// Operators whose operands broadcast to the result, element by element.
constexpr std::string_view kPointwise[] = {"Add",
                                           "Sub",
                                           "Mul",
                                           "Div",
                                           "Pow",
                                           "Min",
                                           "Max",
                                           "Sum",
                                           "Mean",
                                           "Where",
                                           "Relu",
                                           "Gelu",
                                           "Sigmoid",
                                           "Tanh",
                                           "Swish",
                                           "HardSwish",
                                           "Erf",
                                           "Exp",
                                           "Log",
                                           "Sqrt",
                                           "Reciprocal",
                                           "Neg",
                                           "Abs",
                                           "Clip",
                                           "Softplus",
                                           "Softsign",
                                           "Elu",
                                           "Selu",
                                           "Celu",
                                           "LeakyRelu",
                                           "HardSigmoid",
                                           "Mish",
                                           "Identity",
                                           "Cast",
                                           "Not",
                                           "And",
                                           "Or",
                                           "Equal",
                                           "Greater",
                                           "Less",
                                           "GreaterOrEqual",
                                           "LessOrEqual",
                                           "Floor",
                                           "Ceil",
                                           "Round",
                                           "Sign"};

// The values above one Transpose that could be computed in the order of its result instead.
class Region {
 public:
  Region(const RuleContext &context, NodeId transpose, const Order &order)
      : context_(context), order_(order), back_(inverse(order)), where_(context.node(transpose).region) {}

  // The nodes fewer that the Graph would have: what is at `root` (what the Transpose reads), all that is cheaper so.
  int gain(ValueId root) {
    cost(root);
    if (moved_.count(root.index) == 0) return 0;
    take(root);
    int removed = 0, made = 0;
    for (const NodeId n : order_of_nodes_) {
      const ValueId v = context_.output(n);
      bool outside = false;
      for (const Use &use : context_.graph().value(v).uses) {
        if (use.kind == UseKind::kOperand && cancels(use.node))
          ++removed;
        else
          outside |= use.kind != UseKind::kOperand || !inside(use.node);
      }
      made += outside;
    }
    for (const auto &[leaf, kind] : leaves_) {
      if (kind == Leaf::kNew) ++made;
      if (kind != Leaf::kTransposed) continue;
      bool only = true;
      for (const Use &use : context_.graph().value(leaf).uses)
        only &= use.kind == UseKind::kOperand && inside(use.node);
      removed += only;
    }
    return removed - made;
  }

  // Moves one node after another, producers first, each with a Transpose behind it; then takes away what undoes one
  // another or is read no more, at once: what is left half done would look like a gain the other way.
  Status apply(RuleContext &context) {
    std::map<uint32_t, ValueId> turned;             // by value: the same in the order of the result
    std::vector<std::pair<ValueId, NodeId>> moved;  // in that order, with the Transpose behind it
    std::vector<Node> nodes;                        // as they were
    for (const NodeId n : order_of_nodes_) nodes.push_back(context.node(n));
    for (size_t k = 0; k < nodes.size(); ++k) {
      const Node &node = nodes[k];
      if (!context.rewriter().allowed("transpose.cancel")) return {};
      auto change = context.rewriter().begin("transpose.cancel", RewriteKind::kMove, order_of_nodes_[k]);
      std::vector<ValueId> inputs;
      for (const ValueId v : node.inputs) {
        if (!v.valid()) {
          inputs.push_back(v);
          continue;
        }
        ValueId &here = turned[v.index];
        if (!here.valid()) {
          const Leaf kind = leaves_.at(v);
          if (kind == Leaf::kFree) {
            here = v;
          } else if (kind == Leaf::kTransposed) {
            here = context.input(context.producer(v), 0);
          } else if (kind == Leaf::kConstant) {
            const Constant &c = *context.constant(v);
            here = change.constant(context.graph().value(v).name + ":turned", c.reshaped(turned_dims(c)));
          } else {
            change.before(first_reader(v));
            here = change.output(change.create("Transpose", {v}, {{"perm", order_}}));
            change.before(order_of_nodes_[k]);
          }
        }
        inputs.push_back(here);
      }
      const ValueId now = change.output(change.create(node.op, std::move(inputs), node.attributes));
      turned[node.outputs[0].index] = now;
      moved.emplace_back(now, change.create("Transpose", {now}, {{"perm", back_}}));
      change.replace(node.outputs[0], change.output(moved.back().second));
      change.erase(order_of_nodes_[k]);
      OPTC_TRY(change.commit());
    }
    if (!context.rewriter().allowed("transpose.cancel")) return {};
    auto change = context.rewriter().begin("transpose.cancel", RewriteKind::kRemove, moved.back().second);
    for (const auto &[now, behind] : moved) {
      std::vector<NodeId> undone;
      for (const Use &use : context.graph().value(context.output(behind)).uses)
        if (use.kind == UseKind::kOperand && cancels(use.node)) undone.push_back(use.node);
      for (const NodeId n : undone) {
        change.replace(context.output(n), now);
        change.erase(n);
      }
      bool read = false;
      for (const Use &use : context.graph().value(context.output(behind)).uses)
        read |= std::find(undone.begin(), undone.end(), use.node) == undone.end() || use.kind != UseKind::kOperand;
      if (!read) change.erase(behind);
    }
    for (const auto &[leaf, kind] : leaves_)
      if (kind == Leaf::kTransposed && context.graph().value(leaf).uses.empty()) change.erase(context.producer(leaf));
    return change.commit();
  }

 private:
  // What a value above the region is in the other order: itself; the operand of the Transpose that made it; a constant
  // whose dims alone change; or a Transpose more.
  enum class Leaf : uint8_t { kFree, kTransposed, kConstant, kNew };
  static constexpr size_t kMost = 256;

  bool inside(NodeId n) const {
    return std::find(order_of_nodes_.begin(), order_of_nodes_.end(), n) != order_of_nodes_.end();
  }
  bool cancels(NodeId n) const {
    if (context_.node(n).op != "Transpose" || context_.node(n).region != where_) return false;
    const Order *other = context_.node(n).ints("perm");
    if (!other || *other != order_) return false;
    for (const Use &use : context_.graph().value(context_.output(n)).uses)
      if (use.kind != UseKind::kOperand) return false;  // a model's output keeps its node and name
    return true;
  }
  bool whole(ValueId v) const {
    return context_.type(v).has_shape() && context_.type(v).rank() == static_cast<int>(order_.size());
  }
  NodeId pointwise(ValueId v) const {
    const NodeId n = context_.producer(v);
    if (!n.valid() || context_.node(n).region != where_ || context_.node(n).outputs.size() != 1 || !whole(v)) return {};
    return is_pointwise(n) ? n : NodeId();
  }
  bool is_pointwise(NodeId n) const {
    return std::find(std::begin(kPointwise), std::end(kPointwise), context_.node(n).op) != std::end(kPointwise);
  }
  // The dims of a constant, where dims are lacking in front 1, in the other order; empty when its elements would have
  // to move too.
  std::vector<int64_t> turned_dims(const Constant &c) const {
    if (c.dims().size() > order_.size()) return {};
    std::vector<int64_t> dims = c.dims(), turned;
    dims.insert(dims.begin(), order_.size() - dims.size(), 1);
    int64_t last = -1;
    for (const int64_t d : order_) {
      turned.push_back(dims[static_cast<size_t>(d)]);
      if (turned.back() == 1) continue;
      if (d < last) return {};
      last = d;
    }
    return turned;
  }
  // Where a value that several nodes of the region read can be made for all of them: behind its producer, or before
  // all nodes.
  NodeId first_reader(ValueId v) const {
    const NodeId producer = context_.producer(v);
    const bool here = producer.valid() && context_.node(producer).region == where_;
    return here ? context_.node(producer).next : context_.graph().region(where_).first;
  }
  // How a value would be had in the other order without being moved there; nothing: it cannot.
  std::optional<Leaf> leaf(ValueId v) const {
    if (!context_.type(v).has_shape()) return std::nullopt;
    if (context_.type(v).rank() == 0) return Leaf::kFree;
    const Constant *constant = context_.constant(v);
    if (constant && constant->count() == 1 && !whole(v)) return Leaf::kFree;
    if (constant && !turned_dims(*constant).empty()) return Leaf::kConstant;
    if (!whole(v)) return std::nullopt;
    const NodeId above = context_.producer(v, "Transpose");
    if (above.valid() && context_.node(above).ints("perm") && *context_.node(above).ints("perm") == back_)
      return Leaf::kTransposed;
    return Leaf::kNew;
  }
  // Transposes more or fewer to have `v` in the other order: as a leaf, or, where that is cheaper (moved_), by moving
  // the node that makes it, with one Transpose for what reads it elsewhere. What else of the region reads it is guessed
  // by its kind; gain() counts.
  int cost(ValueId v) {
    const auto known = cost_.find(v.index);
    if (known != cost_.end()) return known->second;
    const auto as_leaf = leaf(v);
    int lowest = !as_leaf ? kNever : *as_leaf == Leaf::kNew ? 1 : 0;
    if (as_leaf == Leaf::kTransposed && context_.single_use(v)) lowest = -1;
    cost_[v.index] = lowest;
    const NodeId n = pointwise(v);
    if (!n.valid() || as_leaf != Leaf::kNew || cost_.size() > kMost) return lowest;
    bool elsewhere = false;
    for (const Use &use : context_.graph().value(v).uses)
      elsewhere |= use.kind != UseKind::kOperand || !(cancels(use.node) || is_pointwise(use.node));
    int moved = elsewhere;
    for (const ValueId operand : context_.node(n).inputs) {
      if (operand.valid()) moved += cost(operand);
      if (moved >= kNever) return lowest;
    }
    if (moved >= lowest) return lowest;
    moved_.insert(v.index);
    return cost_[v.index] = moved;
  }
  void take(ValueId v) {
    const NodeId n = context_.producer(v);
    if (inside(n)) return;
    for (const ValueId operand : context_.node(n).inputs) {
      if (!operand.valid()) continue;
      if (moved_.count(operand.index) != 0)
        take(operand);
      else
        leaves_.emplace(operand, *leaf(operand));
    }
    order_of_nodes_.push_back(n);
  }

  static constexpr int kNever = 1 << 20;
  struct ByIndex {
    bool operator()(ValueId a, ValueId b) const { return a.index < b.index; }
  };
  const RuleContext &context_;
  const Order order_, back_;
  const RegionId where_;
  std::map<uint32_t, int> cost_;
  std::set<uint32_t> moved_;
  std::map<ValueId, Leaf, ByIndex> leaves_;
  std::vector<NodeId> order_of_nodes_;  // producers first
};

Result<bool> cancel(RuleContext &context, NodeId n) {
  const Order *order = order_of(context, n);
  if (!order) return false;
  Region region(context, n, *order);
  if (region.gain(context.input(n, 0)) <= 0) return false;
  OPTC_TRY(region.apply(context));
  return true;
}

constexpr Rule kRules[] = {
    {"transpose.units", NumericsClass::kExact, "Transpose",
     "Transpose that only moves dims of 1, beside a view -> Reshape",
     "at most one dim is symbolic, or all that are stand where the operand has them; none is 0", units},
    {"transpose.batch", NumericsClass::kExact, "Reshape Unsqueeze",
     "Transpose between a Reshape that joins the first dims and one that parts them -> Transpose of all dims, behind a "
     "Reshape where the first dims are others than before",
     "inner values used nowhere else; the last dims equal for every value of the symbols", batch},
    {"transpose.reduction", NumericsClass::kReassociating,
     "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare",
     "a reduction of Transpose(x) -> the reduction of x over the axes where they lie",
     "constant axes, the transposed value used nowhere else, the dims that stay keep their order or are all kept",
     reduction},
    {"transpose.cancel", NumericsClass::kExact, "Transpose",
     "a Transpose behind elementwise nodes whose operands are transposed the other way -> the nodes in that order",
     "fewer nodes in sum: a value that is read elsewhere too, or that is not transposed, costs a Transpose", cancel},
};

}  // namespace

std::span<const Rule> transpose_rules() { return kRules; }

}  // namespace optc
