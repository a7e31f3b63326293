// Scan of opset 8 as Scan of today.

#include <optional>

#include "ops/steps.h"

namespace optc {
namespace {

ValueId add(Graph &graph, RegionId region, NodeId origin, std::string op, std::vector<ValueId> inputs,
            std::vector<std::pair<std::string, Attribute>> attributes = {}) {
  const std::string name = graph.unique_name(graph.node(origin).name + "/" + op);
  const NodeId made =
      graph.add_node(region, std::move(op), name, std::move(inputs), {{name, Type()}}, std::move(attributes));
  graph.set_origin(made, graph.node(origin).origin);
  return graph.node(made).output(0);
}

// Of a sequence that ends after `length` steps, in `region`; axis 0 of `sequence` is scanned.
struct Steps {
  ValueId run;       // bools: which steps come before the length
  ValueId reversed;  // the place of each step when the part before the length is read from its end
};

Steps steps_of(Graph &graph, RegionId region, NodeId origin, ValueId sequence, ValueId length) {
  const auto constant = [&](Constant value) {
    return graph.add_constant(graph.unique_name(graph.node(origin).name + "/c"), std::move(value));
  };
  const ValueId size = add(graph, region, origin, "Shape", {sequence}, {{"start", int64_t{0}}, {"end", int64_t{1}}});
  const ValueId count = add(graph, region, origin, "Squeeze", {size, constant(Constant::int64s({0}))});
  const ValueId zero = constant(Constant::scalar(ElementType::kInt64, 0)),
                one = constant(Constant::scalar(ElementType::kInt64, 1));
  const ValueId steps = add(graph, region, origin, "Range", {zero, count, one});
  const ValueId run = add(graph, region, origin, "Less", {steps, length});
  const ValueId last = add(graph, region, origin, "Sub", {length, one});
  const ValueId back = add(graph, region, origin, "Sub", {last, steps});
  return {run, add(graph, region, origin, "Where", {run, back, steps})};
}

// The body of a Scan with `states` state variables gets one scan input more: in steps where it is false the states stay
// and the scan outputs are 0.
void stop_in_body(Graph &graph, RegionId body, NodeId origin, size_t states) {
  const ValueId runs = graph.add_input(body, graph.unique_name(graph.node(origin).name + "/runs"),
                                       Type::tensor(ElementType::kBool, Shape()));
  std::vector<ValueId> outputs = graph.region(body).outputs;
  const ValueId zero = graph.add_constant(graph.unique_name(graph.node(origin).name + "/zero"),
                                          Constant::scalar(ElementType::kFloat32, 0));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueId otherwise =
        i < states ? graph.region(body).inputs[i] : add(graph, body, origin, "CastLike", {zero, outputs[i]});
    outputs[i] = add(graph, body, origin, "Where", {runs, outputs[i], otherwise});
  }
  graph.set_outputs(body, std::move(outputs));
}

}  // namespace

// Opset 8 scans axis 1 of operands that all have a batch axis first, and may be told the length of each batch entry's
// sequence: a Scan over the batch whose body is the Scan of today.
Status scan_of_batch(Graph &graph, NodeId id, Diagnostics &diagnostics) {
  const Node node = graph.node(id);
  const RegionId body = node.region_named("body");
  const size_t operands = node.inputs.empty() ? 0 : node.inputs.size() - 1;
  const bool lengths = node.input(0).valid();
  int64_t scans = node.int_or("num_scan_inputs", 0);
  if (scans < 1 || static_cast<size_t>(scans) > operands)
    return diagnostics.error(ErrorKind::kInvalid, "num_scan_inputs does not fit the operands", graph.describe(id));
  if (body.valid() && graph.region(body).inputs.size() != operands)
    return diagnostics.error(ErrorKind::kInvalid,
                             "the body has " + std::to_string(graph.region(body).inputs.size()) + " inputs, Scan has " +
                                 std::to_string(operands) + " operands",
                             graph.describe(id));
  const size_t states = operands - static_cast<size_t>(scans);
  std::optional<std::vector<int64_t>> directions;
  if (const auto *given = node.ints("directions")) directions = *given;
  const RegionId entry = graph.add_region(id);
  const auto entry_input = [&] { return graph.add_input(entry, graph.unique_name(node.name + "/entry"), Type()); };
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < operands; ++i) {
    graph.set_input(id, i, node.inputs[i + 1]);
    inputs.push_back(entry_input());
  }
  graph.set_input(id, operands, node.input(0));
  if (lengths && body.valid()) {
    const Steps steps = steps_of(graph, entry, id, inputs[states], entry_input());
    for (size_t i = 0; directions && i < directions->size() && states + i < operands; ++i) {
      if ((*directions)[i] == 0) continue;
      inputs[states + i] =
          add(graph, entry, id, "Gather", {inputs[states + i], steps.reversed}, {{"axis", int64_t{0}}});
    }
    directions.reset();
    inputs.push_back(steps.run);
    stop_in_body(graph, body, id, states);
    scans += 1;
  }
  std::vector<std::pair<std::string, Type>> outputs;
  for (size_t i = 0; body.valid() && i < graph.region(body).outputs.size(); ++i)
    outputs.emplace_back(graph.unique_name(node.name + "/result"), Type());
  std::vector<std::pair<std::string, Attribute>> attributes = {{"num_scan_inputs", scans}};
  if (directions) attributes.emplace_back("scan_input_directions", *std::move(directions));
  const NodeId scan =
      graph.add_node(entry, "Scan", graph.unique_name(node.name + "/scan"), inputs, std::move(outputs), attributes);
  graph.set_origin(scan, node.origin);
  graph.attach_region(id, "body", entry);
  if (body.valid()) graph.attach_region(scan, "body", body);
  graph.set_outputs(entry, graph.node(scan).outputs);
  graph.set_attribute(id, "num_scan_inputs", static_cast<int64_t>(operands) + (lengths ? 1 : 0));
  graph.remove_attribute(id, "directions");
  return {};
}

}  // namespace optc
