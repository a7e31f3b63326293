// Values whose rank only the run decides: results of an If whose branches give different ranks. Such a value has two
// forms, each with a rank: what the branch then gives and what the branch else gives, of which the condition says which
// is there (the other is filled). A node that uses it becomes an If of the same condition that computes it of either
// form; where both results have one rank the value is an ordinary one again, else it has two forms, too. A branch that
// the rank forbids ends the run when it is taken (ops/control.cc). What reaches an output of its region, or is used
// inside of a body, stays without a rank and is refused.

#include <algorithm>
#include <optional>

#include "importer/internal_converter.h"
#include "ops/util.h"

namespace optc {
namespace {

constexpr int64_t kMostFilled = 4096;  // elements

bool is_shaped(const Type &type) { return type.is_tensor() && type.shape.has_value(); }

// Whether what follows can have one type for both. Lists of integers of different lengths may be shapes, whose length
// is a rank.
bool have_one_type(const Type &a, const Type &b) {
  if (!is_shaped(a) || !is_shaped(b)) return true;  // no rank is known, or there is none
  if (a.rank() != b.rank()) return false;
  if (a.rank() != 1 || !is_integer(a.element)) return true;
  const Dim m = a.shape->front(), n = b.shape->front();
  return !m.is_constant() || !n.is_constant() || m == n;
}

}  // namespace

// Identity of zeros (or empty strings) of the rank, and of those sizes that are known.
ValueId Converter::filled(RegionId region, const Type &type, const std::vector<uint32_t> &origin) {
  std::vector<int64_t> dims;
  int64_t count = 1;
  for (Dim d : *type.shape) {
    dims.push_back(d.is_constant() && d.value() >= 0 && d.value() <= kMostFilled ? d.value() : 0);
    count = std::min(count * dims.back(), kMostFilled + 1);
  }
  if (count > kMostFilled) std::fill(dims.begin(), dims.end(), count = 0);
  Constant zeros =
      type.element == ElementType::kString
          ? Constant::strings(dims, std::vector<std::string>(static_cast<size_t>(count)))
          : Constant::owned(type.element, dims,
                            std::vector<uint8_t>(static_cast<size_t>(storage_bytes(type.element, count).value_or(0))));
  const ValueId constant = graph_.add_constant(graph_.unique_name("no_value"), std::move(zeros));
  const std::string name = graph_.unique_name("filled");
  const NodeId node = graph_.add_node(region, "Identity", name, {constant},
                                      {{name, Type::tensor(type.element, Shape(dims.begin(), dims.end()))}}, {});
  graph_.set_origin(node, origin);
  return graph_.node(node).output(0);
}

// The branches of the If `choice` give a result for each pair of its outputs. Takes the place of `values`, the outputs
// of `node`, and of that: by an output of `choice` where the results have one type, else by a value of two forms.
void Converter::give_forms(NodeId node, NodeId choice, const std::vector<ValueId> &values) {
  const RegionId branches[2] = {graph_.node(choice).region_named("then_branch"),
                                graph_.node(choice).region_named("else_branch")};
  const std::vector<uint32_t> origin = graph_.node(choice).origin;
  const std::vector<ValueId> results[2] = {graph_.region(branches[0]).outputs, graph_.region(branches[1]).outputs};
  std::vector<ValueId> given[2];
  std::vector<std::pair<ValueId, std::string>> names;
  for (size_t i = 0; i < values.size(); ++i) {
    const Type types[2] = {graph_.value(results[0][i]).type, graph_.value(results[1][i]).type};
    const bool one = have_one_type(types[0], types[1]);
    const Type flag = Type::tensor(ElementType::kBool, Shape());
    for (size_t b = 0; b < 2; ++b) {
      for (size_t form = 0; form < 2; ++form)
        given[b].push_back(one ? (form == 0 ? results[b][i] : filled(branches[b], flag, origin))
                               : (form == b ? results[b][i] : filled(branches[b], types[form], origin)));
    }
    if (!values[i].valid()) continue;
    const ValueId first = graph_.node(choice).output(2 * i), second = graph_.node(choice).output(2 * i + 1);
    if (one) {
      graph_.replace_uses(values[i], first);
      names.emplace_back(first, graph_.value(values[i]).name);
      continue;
    }
    // What stands for the value until all that use it have been written of its forms.
    const std::string name = graph_.unique_name(graph_.value(values[i]).name + "/forms");
    const NodeId holder = graph_.add_node(graph_.node(choice).region, "optc.Fail", name, {},
                                          {{name, Type::tensor(types[0].element, std::nullopt)}},
                                          {{"message", std::string("a value without a rank was used")}}, choice);
    graph_.set_origin(holder, origin);
    graph_.replace_uses(values[i], graph_.node(holder).output(0));
    forms_[graph_.node(holder).output(0).index] = {
        graph_.node(choice).input(0), {first, second}, holder, graph_.value(values[i]).name};
  }
  for (size_t b = 0; b < 2; ++b) graph_.set_outputs(branches[b], std::move(given[b]));
  graph_.erase_node(node);
  for (auto &[value, name] : names) graph_.rename_value(value, std::move(name));
}

NodeId Converter::add_choice(NodeId before, ValueId condition, const std::vector<ValueId> &values) {
  const Node node = graph_.node(before);
  std::vector<std::pair<std::string, Type>> outputs;
  for (ValueId value : values) {
    const std::string name = value.valid() ? graph_.value(value).name : node.name;
    outputs.emplace_back(graph_.unique_name(name + "/then"), Type());
    outputs.emplace_back(graph_.unique_name(name + "/else"), Type());
  }
  const NodeId choice = graph_.add_node(node.region, "If", graph_.unique_name(node.name + "/by_rank"), {condition},
                                        std::move(outputs), {}, before);
  graph_.set_origin(choice, node.origin);
  return choice;
}

// An If whose branches give different ranks, which nodes use: true when it has been replaced.
bool Converter::split_branches(NodeId id) {
  const Node node = graph_.node(id);
  if (node.op != "If" || known_condition(graph_, node.input(0))) return false;
  const RegionId branches[2] = {node.region_named("then_branch"), node.region_named("else_branch")};
  bool differ = false;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    const Type &a = graph_.value(graph_.region(branches[0]).outputs[i]).type,
               &b = graph_.value(graph_.region(branches[1]).outputs[i]).type;
    if (a.kind != b.kind || (is_shaped(a) && (!is_shaped(b) || a.element != b.element))) return false;
    if (!is_shaped(a) || !is_shaped(b) || a.rank() == b.rank()) continue;
    const auto &uses = graph_.value(node.outputs[i]).uses;
    differ = true;
    if (std::any_of(uses.begin(), uses.end(), [](const Use &use) { return use.kind == UseKind::kRegionOutput; }))
      return false;
  }
  if (!differ) return false;
  const NodeId choice = add_choice(id, node.input(0), node.outputs);
  for (size_t b = 0; b < 2; ++b) {
    const char *name = b == 0 ? "then_branch" : "else_branch";
    graph_.attach_region(choice, name, branches[b]);
    graph_.attach_region(id, name, graph_.add_region(id));
  }
  give_forms(id, choice, node.outputs);
  return true;
}

// A node that uses values of two forms: true when an If that computes it of either has taken its place.
Result<bool> Converter::write_of_forms(NodeId id) {
  const Node node = graph_.node(id);
  const auto form = [&](ValueId value) { return value.valid() ? forms_.find(value.index) : forms_.end(); };
  const auto used =
      std::find_if(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return form(v) != forms_.end(); });
  if (used == node.inputs.end() || !node.regions.empty()) return false;
  const ValueId condition = form(*used)->second.condition;
  std::optional<NodeSource> source;
  if (const auto it = sources_.find(id.index); it != sources_.end()) source = it->second;
  sources_.erase(id.index);
  std::vector<ValueId> values;
  for (ValueId output : node.outputs)
    if (output.valid()) values.push_back(output);
  const NodeId choice = add_choice(id, condition, values);
  for (size_t b = 0; b < 2; ++b) {
    const RegionId branch = graph_.add_region(choice);
    graph_.attach_region(choice, b == 0 ? "then_branch" : "else_branch", branch);
    std::vector<ValueId> inputs = node.inputs;
    for (ValueId &input : inputs)
      if (const auto it = form(input); it != forms_.end() && it->second.condition == condition)
        input = it->second.values[b];
    std::vector<std::pair<std::string, Type>> outputs;
    for (ValueId output : node.outputs)
      outputs.emplace_back(output.valid() ? graph_.unique_name(graph_.value(output).name) : "", Type());
    const NodeId copy = graph_.add_node(branch, node.op, graph_.unique_name(node.name), std::move(inputs),
                                        std::move(outputs), node.attributes);
    graph_.set_origin(copy, node.origin);
    if (source) sources_.emplace(copy.index, *source);
    std::vector<ValueId> results;
    for (ValueId output : graph_.node(copy).outputs)
      if (output.valid()) results.push_back(output);
    graph_.set_outputs(branch, std::move(results));
    OPTC_TRY(finish_region(branch, false));
  }
  give_forms(id, choice, values);
  return true;
}

// Behind the last node of a region: all that used a value of two forms must have been written of them. Not strict: what
// is left has no rank, which is refused in the end unless it lies in a branch that is never taken.
Status Converter::close_forms(RegionId region, bool strict) {
  for (auto it = forms_.begin(); it != forms_.end();) {
    const Forms &forms = it->second;
    const ValueId value(it->first);
    if (graph_.node(forms.holder).region != region || (!strict && !graph_.value(value).uses.empty())) {
      ++it;
      continue;
    }
    if (!graph_.value(value).uses.empty())
      return diagnostics_.error(
          ErrorKind::kUnsupported, "the rank of '" + forms.name + "' is not known before the model runs",
          graph_.describe(forms.holder), "the branches of an If give different ranks: reshape one of them");
    graph_.erase_node(forms.holder);
    it = forms_.erase(it);
  }
  return {};
}

}  // namespace optc
