// Loops with carried values that their body never reads: what exporters leave where a variable is only defined inside.
// What such a value starts with need not have the rank of what the body gives.

#include "importer/internal_converter.h"
#include "ops/util.h"

namespace optc {
namespace {

bool is_used(const Graph &graph, ValueId value) { return value.valid() && !graph.value(value).uses.empty(); }

}  // namespace

// Where the result is not used either, nothing is carried; else the start is only seen if the loop does not run: it
// becomes an empty tensor of the body's rank, and a loop that does not run ends in an error.
Status Converter::free_unread_carried(NodeId id) {
  if (graph_.node(id).op != "Loop") return {};
  const RegionId body = graph_.node(id).region_named("body");
  if (!body.valid()) return {};
  std::vector<ValueId> results = graph_.region(body).outputs;
  const std::vector<ValueId> inputs = graph_.region(body).inputs;
  for (size_t i = 0; i + 2 < inputs.size() && i + 1 < results.size() && i + 2 < graph_.node(id).inputs.size(); ++i) {
    if (is_used(graph_, inputs[i + 2])) continue;
    if (!is_used(graph_, graph_.node(id).output(i))) {
      results[i + 1] = inputs[i + 2];
      continue;
    }
    const ValueId start = graph_.node(id).input(i + 2);
    if (!start.valid()) continue;
    const Type given = graph_.value(start).type;
    if (!graph_.value(results[i + 1]).type.has_shape()) OPTC_TRY(type_body(id));
    const Type carried = graph_.value(results[i + 1]).type;
    if (!given.has_shape() || !carried.has_shape() || given.element != carried.element ||
        given.rank() == carried.rank() || carried.element == ElementType::kString)
      continue;
    graph_.set_input(id, i + 2, start_of_rank(id, i, carried));
  }
  graph_.set_outputs(body, std::move(results));
  return {};
}

// What the body computes when its inputs are declared without shapes: ranks are asked of it here, the Loop's own
// inference has the last word.
Status Converter::type_body(NodeId id) {
  const RegionId body = graph_.node(id).region_named("body");
  const std::vector<ValueId> inputs = graph_.region(body).inputs;
  for (size_t i = 2; i < inputs.size(); ++i) {
    const ValueId start = graph_.node(id).input(i);
    if (start.valid() && !graph_.value(inputs[i]).type.has_shape())
      graph_.set_type(inputs[i], graph_.value(start).type);
  }
  return finish_region(body, false);
}

// An empty tensor of the type's rank, or an error when the loop does not run.
ValueId Converter::start_of_rank(NodeId id, size_t i, const Type &type) {
  const std::string name = graph_.unique_name(graph_.node(id).name + "/start_" + std::to_string(i));
  const RegionId region = graph_.node(id).region;
  const std::vector<uint32_t> origin = graph_.node(id).origin;
  const auto add = [&](RegionId where, std::string op, std::vector<ValueId> inputs, Type result) {
    const std::string own = graph_.unique_name(name + "/" + op);
    const NodeId node = graph_.add_node(where, std::move(op), own, std::move(inputs), {{own, std::move(result)}}, {},
                                        where == region ? id : NodeId());
    graph_.set_origin(node, origin);
    return node;
  };
  const auto constant = [&](Constant value) {
    return graph_.add_constant(graph_.unique_name(name + "/c"), std::move(value));
  };
  const Type flag = Type::tensor(ElementType::kBool, Shape());
  ValueId runs = graph_.node(id).input(1);
  if (const ValueId trips = graph_.node(id).input(0); trips.valid()) {
    const ValueId zero = constant(Constant::scalar(ElementType::kInt64, 0));
    const ValueId some = graph_.node(add(region, "Greater", {trips, zero}, flag)).output(0);
    runs = runs.valid() ? graph_.node(add(region, "And", {runs, some}, flag)).output(0) : some;
  }
  const std::vector<int64_t> dims(static_cast<size_t>(type.rank()), 0);
  const Type empty = Type::tensor(type.element, Shape(dims.begin(), dims.end()));
  const ValueId start = constant(Constant::owned(type.element, dims, {}));
  if (!runs.valid() || known_condition(graph_, runs) == true) return start;
  const NodeId choice = add(region, "If", {runs}, empty);
  const RegionId then_branch = graph_.add_region(choice), else_branch = graph_.add_region(choice);
  graph_.attach_region(choice, "then_branch", then_branch);
  graph_.attach_region(choice, "else_branch", else_branch);
  graph_.set_outputs(then_branch, {graph_.node(add(then_branch, "Identity", {start}, empty)).output(0)});
  graph_.set_outputs(else_branch, {graph_.node(add(else_branch, "Identity", {start}, empty)).output(0)});
  fail_branch(graph_, else_branch,
              "the loop does not run, and what it starts with has another rank than what its body gives");
  return graph_.node(choice).output(0);
}

}  // namespace optc
