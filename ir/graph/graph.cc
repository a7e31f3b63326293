#include "ir/graph/graph.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>

namespace optc {

struct NameTable {
  std::unordered_map<std::string, uint32_t> next;  // a name in use -> next suffix to try
};

namespace {

template <typename T>
const T *attribute_as(const Node &node, std::string_view name) {
  const Attribute *a = node.attribute(name);
  return a ? std::get_if<T>(a) : nullptr;
}

std::string claim(NameTable &names, std::string_view base) {
  std::string name(base.empty() ? "value" : base);
  auto [it, fresh] = names.next.emplace(name, 1);
  if (fresh) return name;
  for (;;) {
    std::string candidate = name + "_" + std::to_string(names.next[name]++);
    if (names.next.emplace(candidate, 1).second) return candidate;
  }
}

void trim(std::vector<ValueId> &inputs) {
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
}

}  // namespace

const Attribute *Node::attribute(std::string_view attribute_name) const {
  for (const auto &[name_, value] : attributes)
    if (name_ == attribute_name) return &value;
  return nullptr;
}
int64_t Node::int_or(std::string_view n, int64_t fallback) const {
  const auto *v = attribute_as<int64_t>(*this, n);
  return v ? *v : fallback;
}
float Node::float_or(std::string_view n, float fallback) const {
  const auto *v = attribute_as<float>(*this, n);
  return v ? *v : fallback;
}
std::string_view Node::string_or(std::string_view n, std::string_view fallback) const {
  const auto *v = attribute_as<std::string>(*this, n);
  return v ? std::string_view(*v) : fallback;
}
const std::vector<int64_t> *Node::ints(std::string_view n) const {
  return attribute_as<std::vector<int64_t>>(*this, n);
}
const std::vector<float> *Node::floats(std::string_view n) const { return attribute_as<std::vector<float>>(*this, n); }
RegionId Node::region_named(std::string_view region_name) const {
  for (const auto &[name_, id] : regions)
    if (name_ == region_name) return id;
  return {};
}

Graph::Graph() : dims_(std::make_shared<DimTable>()), names_(std::make_shared<NameTable>()) { regions_.emplace_back(); }

Graph Graph::clone() const {
  Graph copy;
  copy.dims_ = dims_;
  copy.info_ = info_;
  copy.nodes_ = nodes_;
  copy.values_ = values_;
  copy.regions_ = regions_;
  copy.origins_ = origins_;
  copy.defaults_ = defaults_;
  copy.conditions_ = conditions_;
  copy.names_ = std::make_shared<NameTable>(*names_);
  return copy;
}

size_t Graph::live_node_count() const {
  return static_cast<size_t>(std::count_if(nodes_.begin(), nodes_.end(), [](const Node &n) { return n.alive; }));
}

std::vector<NodeId> Graph::nodes(RegionId region) const {
  std::vector<NodeId> list;
  for (NodeId n = regions_[region.index].first; n.valid(); n = nodes_[n.index].next) list.push_back(n);
  return list;
}

std::vector<NodeId> Graph::all_nodes() const {
  std::vector<NodeId> list;
  // Explicit stack: nesting depth comes from a file. Frame: node to visit next in a region, or a finished owner to
  // append.
  struct Frame {
    NodeId next;
    NodeId owner;
    size_t region;
  };
  std::vector<Frame> stack{{regions_[0].first, {}, 0}};
  while (!stack.empty()) {
    Frame &frame = stack.back();
    if (frame.owner.valid()) {
      const Node &owner = nodes_[frame.owner.index];
      if (frame.region < owner.regions.size()) {
        const RegionId r = owner.regions[frame.region++].second;
        stack.push_back({regions_[r.index].first, {}, 0});
      } else {
        list.push_back(frame.owner);
        stack.pop_back();
      }
      continue;
    }
    if (!frame.next.valid()) {
      stack.pop_back();
      continue;
    }
    const NodeId n = frame.next;
    frame.next = nodes_[n.index].next;
    if (nodes_[n.index].regions.empty())
      list.push_back(n);
    else
      stack.push_back({{}, n, 0});
  }
  return list;
}

std::vector<ValueId> Graph::captures(RegionId region) const {
  std::vector<ValueId> found;
  std::vector<bool> seen(values_.size(), false);
  std::vector<bool> inside(regions_.size(), false);
  std::vector<RegionId> work{region};
  std::vector<RegionId> order;
  while (!work.empty()) {
    const RegionId r = work.back();
    work.pop_back();
    inside[r.index] = true;
    order.push_back(r);
    for (NodeId n = regions_[r.index].first; n.valid(); n = nodes_[n.index].next)
      for (const auto &[name, nested] : nodes_[n.index].regions) work.push_back(nested);
  }
  auto visit = [&](ValueId v) {
    if (!v.valid() || seen[v.index]) return;
    seen[v.index] = true;
    const Value &value = values_[v.index];
    const RegionId home = value.kind == ValueKind::kNodeOutput ? nodes_[value.producer.index].region : value.region;
    if (value.kind != ValueKind::kConstant && !inside[home.index]) found.push_back(v);
  };
  for (RegionId r : order) {
    for (NodeId n = regions_[r.index].first; n.valid(); n = nodes_[n.index].next)
      for (ValueId v : nodes_[n.index].inputs) visit(v);
    for (ValueId v : regions_[r.index].outputs) visit(v);
  }
  return found;
}

ValueId Graph::find_value(std::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i)
    if (values_[i].alive && values_[i].name == name) return ValueId(i);
  return {};
}

std::string Graph::describe(NodeId id) const {
  const Node &n = nodes_[id.index];
  std::string text = "node '" + n.name + "' (" + n.op;
  if (!n.origin.empty()) text += " #" + std::to_string(origins_[n.origin.front()].index);
  return text + ")";
}

std::string Graph::unique_name(std::string_view base) const { return claim(*names_, base); }

uint32_t Graph::add_origin(Origin origin) {
  origins_.push_back(std::move(origin));
  return static_cast<uint32_t>(origins_.size() - 1);
}

RegionId Graph::add_region(NodeId owner) {
  regions_.emplace_back();
  regions_.back().owner = owner;
  return RegionId(regions_.size() - 1);
}

ValueId Graph::add_input(RegionId region, std::string name, Type type) {
  Value value;
  value.name = claim(*names_, name);
  value.type = std::move(type);
  value.kind = ValueKind::kRegionInput;
  value.region = region;
  value.index = static_cast<uint32_t>(regions_[region.index].inputs.size());
  values_.push_back(std::move(value));
  const ValueId id(values_.size() - 1);
  regions_[region.index].inputs.push_back(id);
  if (region == main()) defaults_.emplace_back();
  return id;
}

ValueId Graph::add_constant(std::string name, Constant constant, RegionId region) {
  Value value;
  value.name = claim(*names_, name);
  value.type = Type::tensor(constant.type(), constant.shape());
  value.kind = ValueKind::kConstant;
  value.region = region;
  value.constant = std::move(constant);
  values_.push_back(std::move(value));
  return ValueId(values_.size() - 1);
}

void Graph::link(NodeId id, RegionId region, NodeId before) {
  Node &n = nodes_[id.index];
  Region &r = regions_[region.index];
  n.region = region;
  n.next = before;
  n.previous = before.valid() ? nodes_[before.index].previous : r.last;
  (n.previous.valid() ? nodes_[n.previous.index].next : r.first) = id;
  (before.valid() ? nodes_[before.index].previous : r.last) = id;
}

void Graph::unlink(NodeId id) {
  Node &n = nodes_[id.index];
  Region &r = regions_[n.region.index];
  (n.previous.valid() ? nodes_[n.previous.index].next : r.first) = n.next;
  (n.next.valid() ? nodes_[n.next.index].previous : r.last) = n.previous;
  n.previous = n.next = NodeId();
}

NodeId Graph::add_node(RegionId region, std::string op, std::string name, std::vector<ValueId> inputs,
                       std::vector<std::pair<std::string, Type>> outputs,
                       std::vector<std::pair<std::string, Attribute>> attributes, NodeId before) {
  const NodeId id(nodes_.size());
  nodes_.emplace_back();
  Node &n = nodes_.back();
  n.op = std::move(op);
  n.name = std::move(name);
  trim(inputs);
  n.inputs = std::move(inputs);
  std::sort(attributes.begin(), attributes.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
  n.attributes = std::move(attributes);
  for (size_t i = 0; i < n.inputs.size(); ++i)
    if (n.inputs[i].valid()) add_use(n.inputs[i], {UseKind::kOperand, id, {}, static_cast<uint32_t>(i)});
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].first.empty()) {
      n.outputs.push_back(ValueId());
      continue;
    }
    Value value;
    value.name = claim(*names_, outputs[i].first);
    value.type = std::move(outputs[i].second);
    value.producer = id;
    value.index = static_cast<uint32_t>(i);
    values_.push_back(std::move(value));
    n.outputs.push_back(ValueId(values_.size() - 1));
  }
  trim(n.outputs);
  link(id, region, before);
  return id;
}

// A region that had this name is the caller's to attach to another node.
void Graph::attach_region(NodeId node, std::string name, RegionId region) {
  regions_[region.index].owner = node;
  for (auto &[other, current] : nodes_[node.index].regions)
    if (other == name) {
      current = region;
      return;
    }
  nodes_[node.index].regions.emplace_back(std::move(name), region);
}

void Graph::set_origin(NodeId node, std::vector<uint32_t> origin) {
  std::sort(origin.begin(), origin.end());
  origin.erase(std::unique(origin.begin(), origin.end()), origin.end());
  nodes_[node.index].origin = std::move(origin);
}

void Graph::set_outputs(RegionId region, std::vector<ValueId> outputs) {
  Region &r = regions_[region.index];
  for (size_t i = 0; i < r.outputs.size(); ++i)
    drop_use(r.outputs[i], {UseKind::kRegionOutput, {}, region, static_cast<uint32_t>(i)});
  r.outputs = std::move(outputs);
  for (size_t i = 0; i < r.outputs.size(); ++i)
    add_use(r.outputs[i], {UseKind::kRegionOutput, {}, region, static_cast<uint32_t>(i)});
}

void Graph::set_default(size_t main_input, Constant value) { defaults_[main_input] = std::move(value); }
void Graph::set_conditions(std::vector<Condition> conditions) { conditions_ = std::move(conditions); }
void Graph::move_conditions(RegionId from, RegionId to) {
  for (Condition &c : conditions_)
    if (c.region == from) c.region = to;
}
void Graph::set_type(ValueId value, Type type) { values_[value.index].type = std::move(type); }
void Graph::set_elements(ValueId value, std::shared_ptr<const std::vector<Dim>> elements) {
  values_[value.index].elements = std::move(elements);
}

void Graph::set_attribute(NodeId node, std::string_view name, Attribute value) {
  auto &list = nodes_[node.index].attributes;
  auto it =
      std::lower_bound(list.begin(), list.end(), name, [](const auto &a, std::string_view b) { return a.first < b; });
  if (it != list.end() && it->first == name)
    it->second = std::move(value);
  else
    list.emplace(it, std::string(name), std::move(value));
}

void Graph::remove_attribute(NodeId node, std::string_view name) {
  auto &list = nodes_[node.index].attributes;
  std::erase_if(list, [&](const auto &a) { return a.first == name; });
}

void Graph::set_input(NodeId node, size_t index, ValueId value) {
  auto &inputs = nodes_[node.index].inputs;
  if (index >= inputs.size()) inputs.resize(index + 1);
  const Use use{UseKind::kOperand, node, {}, static_cast<uint32_t>(index)};
  if (inputs[index].valid()) drop_use(inputs[index], use);
  inputs[index] = value;
  if (value.valid()) add_use(value, use);
  trim(inputs);
}

void Graph::set_op(NodeId node, std::string op) { nodes_[node.index].op = std::move(op); }

void Graph::rename_value(ValueId value, std::string name) {
  names_->next.erase(values_[value.index].name);
  values_[value.index].name = claim(*names_, name);
}

void Graph::replace_uses(ValueId from, ValueId to) {
  const std::vector<Use> uses = values_[from.index].uses;
  for (const Use &use : uses) {
    if (use.kind == UseKind::kOperand)
      nodes_[use.node.index].inputs[use.index] = to;
    else
      regions_[use.region.index].outputs[use.index] = to;
    add_use(to, use);
  }
  values_[from.index].uses.clear();
}

void Graph::erase_node(NodeId id) {
  // Regions go first, their users before their producers.
  const std::vector<std::pair<std::string, RegionId>> regions = nodes_[id.index].regions;
  for (const auto &named : regions) {
    const RegionId region = named.second;
    set_outputs(region, {});
    std::vector<NodeId> inner = nodes(region);
    for (auto it = inner.rbegin(); it != inner.rend(); ++it) erase_node(*it);
    for (ValueId v : regions_[region.index].inputs) values_[v.index].alive = false;
    std::erase_if(conditions_, [&](const Condition &c) { return c.region == region; });
  }
  Node &n = nodes_[id.index];
  for (size_t i = 0; i < n.inputs.size(); ++i)
    if (n.inputs[i].valid()) drop_use(n.inputs[i], {UseKind::kOperand, id, {}, static_cast<uint32_t>(i)});
  for (ValueId v : n.outputs)
    if (v.valid()) {
      assert(values_[v.index].uses.empty());
      values_[v.index].alive = false;
      names_->next.erase(values_[v.index].name);
    }
  n.alive = false;
  unlink(id);
}

void Graph::erase_value(ValueId value) {
  values_[value.index].alive = false;
  values_[value.index].constant = Constant();
  names_->next.erase(values_[value.index].name);
}

void Graph::move_before(NodeId node, NodeId before) {
  const RegionId region = nodes_[before.index].region;
  unlink(node);
  link(node, region, before);
}

void Graph::add_use(ValueId value, Use use) { values_[value.index].uses.push_back(use); }

void Graph::drop_use(ValueId value, const Use &use) {
  auto &uses = values_[value.index].uses;
  auto it = std::find(uses.begin(), uses.end(), use);
  if (it != uses.end()) uses.erase(it);
}

}  // namespace optc
