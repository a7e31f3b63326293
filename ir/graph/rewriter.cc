#include "ir/graph/rewriter.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace optc {

std::string_view to_string(RewriteKind kind) {
  switch (kind) {
    case RewriteKind::kRemove:
      return "remove";
    case RewriteKind::kFold:
      return "fold";
    case RewriteKind::kFuse:
      return "fuse";
    case RewriteKind::kReplace:
      return "replace";
    case RewriteKind::kExpand:
      return "expand";
    case RewriteKind::kMove:
      return "move";
    case RewriteKind::kAnnotate:
      return "annotate";
  }
  return "replace";
}

std::string_view to_string(NumericsClass numerics) {
  switch (numerics) {
    case NumericsClass::kExact:
      return "exact";
    case NumericsClass::kReassociating:
      return "reassociating";
    case NumericsClass::kApproximating:
      return "approximating";
  }
  return "exact";
}

namespace {
NodeStamp stamp(const Graph &graph, NodeId id) {
  const Node &n = graph.node(id);
  return {id, n.op, n.name, n.origin};
}
}  // namespace

Rewriter::Change::Change(Rewriter *rewriter, std::string_view rule, RewriteKind kind, NodeId anchor)
    : rewriter_(rewriter), anchor_(anchor), before_(anchor) {
  record_.pass = rewriter->pass_;
  record_.rule = rule;
  record_.kind = kind;
}

ValueId Rewriter::Change::constant(std::string_view base_name, Constant value) {
  return rewriter_->graph_.add_constant(std::string(base_name), std::move(value));
}

NodeId Rewriter::Change::create(std::string op, std::vector<ValueId> inputs,
                                std::vector<std::pair<std::string, Attribute>> attributes, size_t output_count) {
  Graph &graph = rewriter_->graph_;
  const std::string base = graph.node(anchor_).name + "/" + op;
  std::vector<std::pair<std::string, Type>> outputs;
  for (size_t i = 0; i < output_count; ++i)
    outputs.emplace_back(i == 0 ? base + ":out" : base + ":out" + std::to_string(i), Type());
  const NodeId node = graph.add_node(graph.node(before_).region, std::move(op), base, std::move(inputs),
                                     std::move(outputs), std::move(attributes), before_);
  created_.push_back(node);
  return node;
}

ValueId Rewriter::Change::output(NodeId node, size_t index) const {
  return rewriter_->graph_.node(node).outputs[index];
}

void Rewriter::Change::replace(ValueId from, ValueId to) {
  Graph &graph = rewriter_->graph_;
  const auto model_output = [&](ValueId v) {
    const auto &uses = graph.value(v).uses;
    return std::any_of(uses.begin(), uses.end(), [](const Use &use) {
      return use.kind == UseKind::kRegionOutput && use.region == Graph::main();
    });
  };
  // The interface keeps its names: what becomes a model output takes over the old value's name.
  const bool takes_name = model_output(from) && !model_output(to) && graph.value(to).kind == ValueKind::kNodeOutput;
  graph.replace_uses(from, to);
  replaced_.emplace_back(from, to);
  if (!takes_name) return;
  const std::string name = graph.value(from).name;
  graph.rename_value(from, name + ":replaced");
  graph.rename_value(to, name);
}

void Rewriter::Change::erase(NodeId node) {
  if (std::find(erased_.begin(), erased_.end(), node) == erased_.end()) erased_.push_back(node);
}

void Rewriter::Change::set_attribute(NodeId node, std::string_view name, Attribute value) {
  if (std::find(touched_.begin(), touched_.end(), node) == touched_.end()) {
    record_.removed.push_back(stamp(rewriter_->graph_, node));
    touched_.push_back(node);
  }
  rewriter_->graph_.set_attribute(node, name, std::move(value));
}

void Rewriter::Change::set_input(NodeId node, size_t index, ValueId value) {
  if (std::find(touched_.begin(), touched_.end(), node) == touched_.end()) {
    record_.removed.push_back(stamp(rewriter_->graph_, node));
    touched_.push_back(node);
  }
  rewriter_->graph_.set_input(node, index, value);
}

namespace {

// A size that only the run decides has another symbol where another value is the one that is found: conditions speak of
// that one.
void rename_sizes(Graph &graph, const std::vector<std::pair<ValueId, ValueId>> &replaced) {
  std::unordered_map<const DimSymbol *, Dim> renamed;
  for (const auto &[from, to] : replaced) {
    const Type &before = graph.value(from).type, &after = graph.value(to).type;
    if (!before.has_shape() || !after.has_shape() || before.rank() != after.rank()) continue;
    for (size_t k = 0; k < before.shape->size(); ++k) {
      const DimSymbol *symbol = single_symbol((*before.shape)[k]);
      const Dim now = (*after.shape)[k];
      if (symbol && symbol->kind == SymbolKind::kData && !uses_symbol(now, symbol)) renamed.emplace(symbol, now);
    }
  }
  if (renamed.empty() || graph.conditions().empty()) return;
  const auto rename = [&](Dim d) {
    return substitute(d, [&](const DimSymbol &s) {
      const auto found = renamed.find(&s);
      return found == renamed.end() ? std::nullopt : std::optional<Dim>(found->second);
    });
  };
  std::vector<Condition> conditions = graph.conditions();
  for (Condition &c : conditions) {
    c.constraint.left = rename(c.constraint.left);
    c.constraint.right = rename(c.constraint.right);
  }
  graph.set_conditions(std::move(conditions));
}

}  // namespace

void Rewriter::Change::detail(std::string text) { record_.detail = std::move(text); }
void Rewriter::Change::numerics(NumericsClass numerics) { record_.numerics = numerics; }

Status Rewriter::Change::commit() {
  Graph &graph = rewriter_->graph_;
  std::vector<uint32_t> origin;
  for (NodeId n : erased_) {
    record_.removed.push_back(stamp(graph, n));
    origin.insert(origin.end(), graph.node(n).origin.begin(), graph.node(n).origin.end());
  }
  if (erased_.empty()) origin = graph.node(anchor_).origin;
  for (NodeId n : created_) graph.set_origin(n, origin);
  const auto refused = [&](Failure failure) {  // the last of the records is the rewrite to blame
    rewriter_->records_.push_back(std::move(record_));
    return failure;
  };
  for (const std::vector<NodeId> *nodes : {&created_, &touched_})
    for (NodeId n : *nodes)
      if (const Status inferred = rewriter_->inference_.infer(graph, n, rewriter_->diagnostics_); !inferred.ok())
        return refused(inferred.failure());
  rename_sizes(graph, replaced_);
  // Users before producers, whatever order the rule named them in.
  std::vector<NodeId> pending = erased_;
  while (!pending.empty()) {
    const size_t before = pending.size();
    std::erase_if(pending, [&](NodeId n) {
      for (ValueId v : graph.node(n).outputs)
        if (v.valid() && !graph.value(v).uses.empty()) return false;
      graph.erase_node(n);
      return true;
    });
    if (pending.size() == before)
      return refused(rewriter_->diagnostics_.error(ErrorKind::kInternal,
                                                   "rule " + record_.rule + " erases a node whose output is still used",
                                                   graph.describe(pending.front())));
  }
  for (NodeId n : created_) record_.created.push_back(stamp(graph, n));
  for (NodeId n : touched_) record_.created.push_back(stamp(graph, n));
  rewriter_->records_.push_back(std::move(record_));
  return {};
}

Rewriter::Change Rewriter::begin(std::string_view rule, RewriteKind kind, NodeId anchor) {
  return Change(this, rule, kind, anchor);
}

void Rewriter::missed(std::string_view rule, NodeId node, std::string reason) {
  for (const MissedRewrite &m : missed_)
    if (m.rule == rule && m.node == graph_.node(node).name) return;
  missed_.push_back({pass_, std::string(rule), graph_.node(node).name, std::move(reason)});
}

}  // namespace optc
