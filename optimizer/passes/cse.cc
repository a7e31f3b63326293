#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>

#include "ops/registry.h"
#include "optimizer/passes/passes.h"

namespace optc {
namespace {

void put(std::string &key, const void *data, size_t size) { key.append(static_cast<const char *>(data), size); }
void put_text(std::string &key, std::string_view text) {
  const size_t size = text.size();
  put(key, &size, sizeof size);
  key.append(text);
}

void put_attribute(std::string &key, const Attribute &a) {
  const size_t kind = a.index();
  put(key, &kind, sizeof kind);
  if (const auto *i = std::get_if<int64_t>(&a)) {
    put(key, i, sizeof *i);
  } else if (const auto *f = std::get_if<float>(&a)) {
    put(key, f, sizeof *f);
  } else if (const auto *s = std::get_if<std::string>(&a)) {
    put_text(key, *s);
  } else if (const auto *is = std::get_if<std::vector<int64_t>>(&a)) {
    put_text(key, std::string_view(reinterpret_cast<const char *>(is->data()), is->size() * sizeof(int64_t)));
  } else if (const auto *fs = std::get_if<std::vector<float>>(&a)) {
    put_text(key, std::string_view(reinterpret_cast<const char *>(fs->data()), fs->size() * sizeof(float)));
  } else if (const auto *ss = std::get_if<std::vector<std::string>>(&a)) {
    const size_t count = ss->size();
    put(key, &count, sizeof count);
    for (const std::string &one : *ss) put_text(key, one);
  } else if (const auto *c = std::get_if<Constant>(&a)) {
    put_text(key, c->hash());
  } else {
    put_text(key, to_string(std::get<Type>(a)));
  }
}

bool is_found_size(Dim d) {
  const DimSymbol *symbol = d.is_constant() ? nullptr : single_symbol(d);
  return symbol && symbol->kind == SymbolKind::kData;
}

// The type, whatever the sizes are called that are found while the model runs.
std::string type_key(const Type &type) {
  if (!type.has_shape()) return to_string(type);
  std::string key(to_string(type.element));
  for (const Dim d : *type.shape) key += "," + (is_found_size(d) ? std::string("#") : d.str());
  return key + ";";
}

std::string key_of(const Graph &graph, const Node &node) {
  std::string key = node.op;
  key += '\0';
  put(key, &node.region.index, sizeof node.region.index);
  const size_t inputs = node.inputs.size();
  put(key, &inputs, sizeof inputs);
  for (ValueId v : node.inputs) put(key, &v.index, sizeof v.index);
  for (const auto &[name, value] : node.attributes) {
    put_text(key, name);
    put_attribute(key, value);
  }
  // Which outputs exist is part of what a node is (Dropout's mask, BatchNormalization's statistics).
  for (ValueId v : node.outputs) key += v.valid() ? type_key(graph.value(v).type) : std::string("_");
  return key;
}

// Sizes that a node finds while it runs have a symbol of their own at each node: where equal nodes become one, the
// symbols of the other become those of the one that stays.
using SameSizes = std::unordered_map<const DimSymbol *, Dim>;

// Adds what the types of `gone` call otherwise than those of `kept`; false where more than such a symbol differs.
bool match_sizes(const Type &gone, const Type &kept, SameSizes &same) {
  if (gone == kept) return true;
  if (!gone.has_shape() || !kept.has_shape() || gone.rank() != kept.rank()) return false;
  for (size_t i = 0; i < gone.shape->size(); ++i) {
    const Dim x = (*gone.shape)[i], y = (*kept.shape)[i];
    if (x == y) continue;
    if (!is_found_size(x) || !is_found_size(y)) return false;
    same.emplace(single_symbol(x), y);
  }
  return true;
}

void rename_sizes(Graph &graph, const SameSizes &same) {
  const auto renamed = [&](Dim d) {
    return substitute(d, [&](const DimSymbol &s) -> std::optional<Dim> {
      const auto it = same.find(&s);
      return it == same.end() ? std::nullopt : std::optional<Dim>(it->second);
    });
  };
  for (size_t i = 0; i < graph.value_capacity(); ++i) {
    const ValueId id(i);
    if (!graph.value(id).alive) continue;
    if (graph.value(id).type.has_shape()) {
      Type type = graph.value(id).type;
      for (Dim &d : *type.shape) d = renamed(d);
      if (!(type == graph.value(id).type)) graph.set_type(id, std::move(type));
    }
    if (graph.value(id).elements) {
      std::vector<Dim> elements = *graph.value(id).elements;
      for (Dim &d : elements) d = renamed(d);
      graph.set_elements(id, std::make_shared<const std::vector<Dim>>(std::move(elements)));
    }
  }
}

}  // namespace

Status share_equal_nodes(RuleContext &context, bool &changed) {
  const Graph &graph = context.graph();
  // Constants first: equal operands make equal nodes.
  std::unordered_map<std::string, ValueId> constants;
  for (size_t i = 0; i < graph.value_capacity(); ++i) {
    const ValueId id(i);
    const Value &value = graph.value(id);
    if (!value.alive || value.kind != ValueKind::kConstant || value.uses.empty()) continue;
    bool is_output = false;  // a model output keeps its own name
    for (const Use &use : value.uses) is_output |= use.kind == UseKind::kRegionOutput;
    if (is_output) continue;
    auto [it, fresh] = constants.emplace(value.constant.hash(), id);
    if (fresh || !graph.value(it->second).constant.equals(value.constant)) continue;
    NodeId reader;
    for (const Use &use : value.uses)
      if (use.kind == UseKind::kOperand) reader = use.node;
    if (!reader.valid() || !context.rewriter().allowed("cse.constant")) continue;
    auto change = context.rewriter().begin("cse.constant", RewriteKind::kReplace, reader);
    change.replace(id, it->second);
    OPTC_TRY(change.commit());
    changed = true;
  }
  std::unordered_map<std::string, NodeId> seen;
  SameSizes same;
  for (size_t r = 0; r < graph.region_capacity(); ++r) {
    for (NodeId n : graph.nodes(RegionId(r))) {
      const Node &node = graph.node(n);
      const OpDef *op = find_op(node.op);
      if (!op || !op->pure || !node.regions.empty() || node.outputs.empty()) continue;
      auto [it, fresh] = seen.emplace(key_of(graph, node), n);
      if (fresh) continue;
      const Node &first = graph.node(it->second);
      bool same_outputs = first.outputs.size() == node.outputs.size(), is_output = false;
      for (ValueId v : node.outputs)
        if (v.valid())
          for (const Use &use : graph.value(v).uses) is_output |= use.kind == UseKind::kRegionOutput;
      SameSizes sizes;
      for (size_t i = 0; same_outputs && i < node.outputs.size(); ++i)
        if (node.outputs[i].valid())
          same_outputs = match_sizes(graph.value(node.outputs[i]).type, graph.value(first.outputs[i]).type, sizes);
      if (!same_outputs || is_output || !context.rewriter().allowed("cse.node")) continue;
      same.insert(sizes.begin(), sizes.end());
      auto change = context.rewriter().begin("cse.node", RewriteKind::kReplace, n);
      const NodeId keep = it->second;
      for (size_t i = 0; i < graph.node(n).outputs.size(); ++i)
        if (graph.node(n).outputs[i].valid()) change.replace(graph.node(n).outputs[i], graph.node(keep).outputs[i]);
      change.erase(n);
      OPTC_TRY(change.commit());
      changed = true;
    }
  }
  if (!same.empty()) rename_sizes(context.rewriter().mutable_graph_for_construction(), same);
  return {};
}

}  // namespace optc
