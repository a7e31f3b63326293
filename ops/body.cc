#include "ops/body.h"

#include <algorithm>

namespace optc {
namespace {

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> list;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) list.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return list;
}

struct Kind {
  std::string_view letter, text;
  size_t index;  // in Attribute
};
// "b" says yes or no, as 1 or 0: implementations take other numbers differently.
constexpr Kind kKinds[] = {{"i", "an int", 0}, {"b", "an int", 0},  {"f", "a float", 1}, {"s", "a string", 2},
                           {"is", "ints", 3},  {"fs", "floats", 4}, {"ss", "strings", 5}};

}  // namespace

Body::Body(Graph &graph, NodeId node, Diagnostics &diagnostics)
    : graph_(graph),
      node_(node),
      place_{graph.node(node).region, node},
      diagnostics_(diagnostics),
      results_(graph.node(node).outputs.size()) {}

Result<std::vector<ValueId>> Body::write(Graph &graph, NodeId node, const OpDef &def, Diagnostics &diagnostics) {
  Body body(graph, node, diagnostics);
  OPTC_TRY(body.check(def.signature));
  OPTC_TRY(def.body(body));
  for (size_t i = 0; i < body.results_.size(); ++i)
    if (body.wants(i) && !body.results_[i].valid())
      return body.unsupported("output " + std::to_string(i) + " of " + body.node().op + " cannot be computed here");
  return body.results_;
}

Status Body::check(const Signature &signature) {
  inputs_ = signature.inputs;
  const std::vector<std::string_view> inputs = words(signature.inputs), outputs = words(signature.outputs);
  const bool open = !inputs.empty() && inputs.back().back() == '*';
  if (node().inputs.size() > inputs.size() && !open)
    return invalid(node().op + " has at most " + std::to_string(inputs.size()) + " inputs, the node has " +
                   std::to_string(node().inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!has(i) && inputs[i].back() != '?' && inputs[i].back() != '*')
      return invalid(input_name(i) + " is required, but absent");
  if (node().outputs.size() > outputs.size() && (outputs.empty() || outputs.back().back() != '*'))
    return invalid(node().op + " has at most " + std::to_string(outputs.size()) + " outputs, the node has " +
                   std::to_string(node().outputs.size()));
  const std::vector<std::string_view> attributes = words(signature.attributes);
  const auto name_of = [](std::string_view word) { return word.substr(0, word.find(':')); };
  for (const auto &[name, attribute] : node().attributes) {
    const auto word = std::find_if(attributes.begin(), attributes.end(),
                                   [&name = name, &name_of](std::string_view w) { return name_of(w) == name; });
    if (word == attributes.end()) return unsupported("attribute '" + name + "' of " + node().op + " is not known");
    std::string_view kind = word->substr(word->find(':') + 1);
    if (kind.back() == '!') kind.remove_suffix(1);
    for (const Kind &k : kKinds)
      if (k.letter == kind && attribute.index() != k.index)
        return invalid("attribute '" + name + "' of " + node().op + " must be " + std::string(k.text));
    if (const int64_t *flag = std::get_if<int64_t>(&attribute); kind == "b" && *flag != 0 && *flag != 1)
      return invalid("attribute '" + name + "' of " + node().op + " is " + std::to_string(*flag) +
                     "; it says yes by 1 and no by 0");
  }
  for (std::string_view word : attributes)
    if (word.back() == '!' && !node().attribute(name_of(word)))
      return invalid("attribute '" + std::string(name_of(word)) + "' of " + node().op + " is required, but absent");
  return {};
}

std::string Body::input_name(size_t i) const {
  const std::vector<std::string_view> names = words(inputs_);
  std::string_view name = i < names.size() ? names[i] : names.back();
  if (name.back() == '?' || name.back() == '*') name.remove_suffix(1);
  return "input " + std::to_string(i) + " (" + std::string(name) + ")";
}

Status Body::need_rank(size_t i, std::vector<int> ranks) {
  const int given = rank(in(i));
  if (given < 0)
    return unsupported("the rank of " + input_name(i) + " is not known before the model runs",
                       "give the shapes of the inputs with --shape, or declare this value's shape in the model "
                       "(value_info)");
  if (ranks.empty() || std::find(ranks.begin(), ranks.end(), given) != ranks.end()) return {};
  std::string list;
  for (int r : ranks) list += (list.empty() ? "" : " or ") + std::to_string(r);
  return invalid(input_name(i) + " must have rank " + list + ", it is " + to_string(type(in(i))));
}

Failure Body::invalid(std::string message, std::string help) {
  return diagnostics_.error(ErrorKind::kInvalid, std::move(message), graph_.describe(node_), std::move(help));
}
Failure Body::unsupported(std::string message, std::string help) {
  return diagnostics_.error(ErrorKind::kUnsupported, std::move(message), graph_.describe(node_), std::move(help));
}

std::optional<int64_t> Body::fixed(ValueId v, int axis) const {
  if (const Constant *c = constant(v)) {
    const int64_t at = axis < 0 ? axis + c->rank() : axis;
    if (at < 0 || at >= c->rank()) return std::nullopt;
    return c->shape()[static_cast<size_t>(at)].value();
  }
  // Outside of bodies types are final.
  if (node().region != Graph::main() || rank(v) < 0) return std::nullopt;
  const int at = axis < 0 ? axis + rank(v) : axis;
  if (at < 0 || at >= rank(v)) return std::nullopt;
  const Dim d = (*type(v).shape)[static_cast<size_t>(at)];
  return d.is_constant() ? std::optional(d.value()) : std::nullopt;
}

bool Body::same_dim(ValueId a, int axis_a, ValueId b, int axis_b) const {
  if (node().region != Graph::main() || rank(a) <= axis_a || rank(b) <= axis_b) return false;
  return (*type(a).shape)[static_cast<size_t>(axis_a)] == (*type(b).shape)[static_cast<size_t>(axis_b)];
}

Body::Attributes Body::pass(std::initializer_list<std::string_view> names) const {
  Attributes list;
  for (std::string_view name : names)
    if (const Attribute *attribute = node().attribute(name)) list.emplace_back(name, *attribute);
  return list;
}

ValueId Body::op(std::string_view op, std::vector<ValueId> inputs, Attributes attributes) {
  return ops(op, std::move(inputs), 1, std::move(attributes))[0];
}

NodeId Body::add(std::string_view op, std::vector<ValueId> inputs, size_t outputs, Attributes attributes) {
  const std::string name = graph_.unique_name(node().name + "/" + std::string(op));
  std::vector<std::pair<std::string, Type>> values;
  for (size_t k = 0; k < outputs; ++k)
    values.emplace_back(outputs == 1 ? name : graph_.unique_name(name + "_" + std::to_string(k)), Type());
  const NodeId made = graph_.add_node(place_.region, std::string(op), name, std::move(inputs), std::move(values),
                                      std::move(attributes), place_.before);
  graph_.set_origin(made, node().origin);
  return made;
}

std::vector<ValueId> Body::ops(std::string_view op, std::vector<ValueId> inputs, size_t outputs,
                               Attributes attributes) {
  const NodeId made = add(op, std::move(inputs), outputs, std::move(attributes));
  // Types as far as they are known now; the importer infers every node once more and says what is wrong.
  Diagnostics scratch;
  bool known = true;
  for (ValueId v : graph_.node(made).inputs)
    known = known && (!v.valid() || (type(v).kind != Type::Kind::kNone &&
                                     !(type(v).is_tensor() && type(v).element == ElementType::kUndefined)));
  if (known) (void)infer_node(graph_, made, scratch).ok();
  return graph_.node(made).outputs;
}

std::vector<ValueId> Body::control(std::string_view op, std::vector<ValueId> inputs, size_t outputs,
                                   std::vector<std::pair<std::string, RegionId>> bodies) {
  const NodeId made = add(op, std::move(inputs), outputs, {});
  for (auto &[name, region] : bodies) graph_.attach_region(made, std::move(name), region);
  Diagnostics scratch;
  (void)infer_node(graph_, made, scratch, nullptr, InferMode::kTentative).ok();
  return graph_.node(made).outputs;
}

ValueId Body::region_input(RegionId region, std::string_view name, const Type &like) {
  return graph_.add_input(region, graph_.unique_name(node().name + "/" + std::string(name)), like);
}

std::vector<ValueId> Body::splice(RegionId graph, const std::vector<ValueId> &inputs) {
  const Region from = graph_.region(graph);
  const std::vector<NodeId> nodes = graph_.nodes(graph);
  std::vector<ValueId> outputs;
  for (ValueId v : from.outputs) outputs.push_back(op("Identity", {v}));
  graph_.set_outputs(graph, {});
  for (size_t i = 0; i < from.inputs.size(); ++i) graph_.replace_uses(from.inputs[i], inputs[i]);
  for (NodeId n : nodes) graph_.move_before(n, graph_.value(outputs.front()).producer);
  for (size_t k = 0; k < graph_.value_capacity(); ++k) {
    const Value &old = graph_.value(ValueId(k));
    if (!old.alive || old.kind != ValueKind::kConstant || !(old.region == graph)) continue;
    const std::string name = old.name;
    const ValueId made = graph_.add_constant(graph_.unique_name(name), Constant(old.constant), place_.region);
    graph_.replace_uses(ValueId(k), made);
    graph_.erase_value(ValueId(k));
    graph_.rename_value(made, name);
  }
  return outputs;
}

ValueId Body::value(Constant constant) {
  return graph_.add_constant(graph_.unique_name(node().name + "/constant"), std::move(constant));
}
ValueId Body::number(ElementType type, double value) { return this->value(Constant::scalar(type, value)); }
ValueId Body::ints(std::vector<int64_t> values) { return value(Constant::int64s(std::move(values))); }

ValueId Body::cast(ValueId v, ElementType to) {
  if (element(v) == to) return v;
  return op("Cast", {v}, {{"to", static_cast<int64_t>(to)}});
}

ValueId Body::dim(ValueId v, int64_t axis) {
  Attributes range{{"start", axis}};
  if (axis != -1) range.emplace_back("end", axis + 1);
  return op("Shape", {v}, std::move(range));
}

ValueId Body::concat(std::vector<ValueId> parts, int64_t axis) {
  if (parts.size() == 1) return parts[0];
  return op("Concat", std::move(parts), {{"axis", axis}});
}

ValueId Body::transpose(ValueId v, std::vector<int64_t> perm) {
  return op("Transpose", {v}, {{"perm", std::move(perm)}});
}

ValueId Body::slice(ValueId v, int64_t axis, int64_t begin, int64_t end) {
  return op("Slice", {v, ints({begin}), ints({end}), ints({axis})});
}

ValueId Body::iota(ValueId count, ElementType type) {
  return op("Range", {number(type, 0), cast(squeeze(count, {0}), type), number(type, 1)});
}

ValueId Body::channels_first(ValueId v) {
  std::vector<int64_t> perm{0, rank(v) - 1};
  for (int k = 1; k < rank(v) - 1; ++k) perm.push_back(k);
  return transpose(v, std::move(perm));
}
ValueId Body::channels_last(ValueId v) {
  std::vector<int64_t> perm{0};
  for (int k = 2; k < rank(v); ++k) perm.push_back(k);
  perm.push_back(1);
  return transpose(v, std::move(perm));
}

}  // namespace optc
