// If, Loop, Scan.
//
// Types. A body is inferred here, since only its owner knows the types of its inputs. A dim that differs between the
// branches of an If, or that a loop changes, becomes a run-time size; ranks and element types may not differ. Symbols
// that a body defines are unknown outside: the results that use them get sizes of their own.
//
// A branch of an If that its operands' types forbid (exporters guard a Squeeze by an If on the dim, and the other
// branch then has a wrong rank) is no fault of the model while the condition is open: it becomes optc.Fail, which ends
// the run when it is taken.

#include <algorithm>
#include <unordered_set>

#include "ops/build.h"
#include "ops/registry.h"
#include "ops/steps.h"
#include "ops/util.h"

namespace optc {
namespace {

using Dims = std::vector<Dim>;
using Symbols = std::unordered_set<const DimSymbol *>;

void add_symbols(const Graph &graph, ValueId value, Symbols &symbols) {
  if (!value.valid()) return;
  std::vector<const DimSymbol *> found;
  if (graph.value(value).type.has_shape())
    for (Dim d : *graph.value(value).type.shape) collect_symbols(d, found);
  if (graph.value(value).elements)
    for (Dim d : *graph.value(value).elements) collect_symbols(d, found);
  symbols.insert(found.begin(), found.end());
}

// Whether a dim means the same outside of a body: it uses model symbols and run-time sizes that were there before.
bool is_visible(Dim d, const Symbols &outer) {
  std::vector<const DimSymbol *> found;
  collect_symbols(d, found);
  for (const DimSymbol *symbol : found)
    if (symbol->kind != SymbolKind::kModel && !outer.count(symbol)) return false;
  return true;
}

// --- If
// -------------------------------------------------------------------------------------------------------------------------

std::string reason(const Diagnostics &why) {
  std::string message = "a branch was taken that cannot run";
  for (const Diagnostic &d : why.all())
    if (d.severity == Severity::kError)
      message = "a branch was taken that cannot run: " + d.message + (d.node.empty() ? "" : " (" + d.node + ")");
  return message;
}

Status infer_fail(InferContext &) { return {}; }  // its types are those of the other branch

Status build_fail(BuildContext &c) {
  std::vector<BufferId> outputs;
  std::vector<const DimSymbol *> defines;
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    outputs.push_back(c.output(i));
    if (!c.output_type(i).has_shape()) continue;
    const std::string &name = c.graph().value(c.node().outputs[i]).name;
    for (size_t k = 0; k < c.output_shape(i).size(); ++k)
      if (const DimSymbol *size = single_symbol(c.output_shape(i)[k]); size && is_size_of(*size, name, k))
        defines.push_back(size);
  }
  c.library("fail", {}, outputs, {{"message", std::string(c.node().string_or("message", ""))}}, defines);
  return {};
}

Status infer_if(InferContext &c) {
  Graph &graph = c.graph();
  const RegionId branches[2] = {c.node().region_named("then_branch"), c.node().region_named("else_branch")};
  for (RegionId branch : branches)
    if (!branch.valid() || graph.region(branch).outputs.size() != c.output_count())
      return c.invalid("both branches must give " + std::to_string(c.output_count()) + " outputs");
  if (c.has_shape(0)) {
    OPTC_ASSIGN([[maybe_unused]] Dim one,
                c.same(element_count(c.shape(0)), 1, "the number of elements of the condition"));
  }
  if (auto taken = known_condition(c.graph(), c.node().input(0))) {
    const RegionId branch = branches[*taken ? 0 : 1];
    OPTC_TRY(c.infer_region(branch));
    for (size_t i = 0; i < c.output_count(); ++i) {
      const Value &value = graph.value(graph.region(branch).outputs[i]);
      Type type = value.type;
      auto elements = value.elements;
      if (!elements && value.kind == ValueKind::kConstant) elements = constant_elements(value.constant);
      c.set(i, std::move(type));
      if (elements) c.set_elements(i, *elements);
    }
    return {};
  }
  Symbols outer;
  bool possible[2];
  for (size_t b = 0; b < 2; ++b) {
    for (ValueId value : graph.captures(branches[b])) {
      // While a model is read, the body around this node may not have types yet: what fails then forbids nothing.
      const Type &type = graph.value(value).type;
      if (type.kind == Type::Kind::kNone || (type.is_tensor() && type.element == ElementType::kUndefined))
        return c.unsupported("the type of '" + graph.value(value).name + "' is not known");
      add_symbols(graph, value, outer);
    }
    Diagnostics scratch;
    const Status status = c.infer_region(branches[b], scratch);
    possible[b] = status.ok();
    // What optc lacks is said; what the model forbids is an error only when no branch is left.
    if (!possible[b] && (status.failure().kind != ErrorKind::kInvalid || (b == 1 && !possible[0])))
      return c.infer_region(branches[b]);
    if (!possible[b] && c.mode() == InferMode::kFinal) fail_branch(graph, branches[b], reason(scratch));
  }
  for (size_t b = 0; b < 2; ++b) {
    if (possible[b]) continue;
    if (c.mode() == InferMode::kTentative) {  // the types of the other branch, with any dims
      for (size_t i = 0; i < c.output_count(); ++i) {
        Type type = graph.value(graph.region(branches[1 - b]).outputs[i]).type;
        if (type.has_shape())
          for (size_t k = 0; k < type.shape->size(); ++k) (*type.shape)[k] = c.run_time_size(i, k);
        c.set(i, std::move(type));
      }
      return {};
    }
    const std::vector<ValueId> &results = graph.region(branches[1 - b]).outputs;
    for (size_t i = 0; i < results.size(); ++i) {
      Type type = graph.value(results[i]).type;
      const ValueId never = graph.region(branches[b]).outputs[i];
      if (type.has_shape())
        for (size_t k = 0; k < type.shape->size(); ++k)
          if (Dim &d = (*type.shape)[k]; !is_visible(d, outer))
            d = c.dims().new_symbol(SymbolKind::kData, size_name(graph.value(never).name, k));
      graph.set_type(never, std::move(type));
    }
  }
  for (size_t i = 0; i < c.output_count(); ++i) {
    const Value &a = graph.value(graph.region(branches[0]).outputs[i]),
                &b = graph.value(graph.region(branches[1]).outputs[i]);
    if (!a.type.is_tensor() || !b.type.is_tensor()) {
      c.set(i, merge_items(c.dims(), a.type, b.type));
      continue;
    }
    if (a.type.element != b.type.element)
      return c.invalid("the branches give different element types for output " + std::to_string(i));
    if (!a.type.shape || !b.type.shape || a.type.rank() != b.type.rank()) {
      c.set(i, Type::tensor(a.type.element, std::nullopt));
      continue;
    }
    Shape out;
    for (size_t k = 0; k < a.type.shape->size(); ++k) {
      const Dim d = (*a.type.shape)[k], e = (*b.type.shape)[k];
      out.push_back(d == e && is_visible(d, outer) ? d : c.run_time_size(i, k));
    }
    const auto elements = a.elements && b.elements && *a.elements == *b.elements ? a.elements : nullptr;
    c.set_tensor(i, a.type.element, std::move(out));
    if (elements) c.set_elements(i, *elements);
  }
  return {};
}

// Run-time sizes among the dims of outputs that the bodies do not give themselves.
void note_defined(const Shape &shape, std::vector<const DimSymbol *> &defines) {
  for (Dim d : shape) {
    if (!is_run_time_size(d)) continue;
    bool seen = false;
    for (const DimSymbol *symbol : defines) seen = seen || symbol == single_symbol(d);
    if (!seen) defines.push_back(single_symbol(d));
  }
}

Status build_if(BuildContext &c) {
  const Graph &graph = c.graph();
  const RegionId branches[2] = {c.node().region_named("then_branch"), c.node().region_named("else_branch")};
  if (auto taken = known_condition(c.graph(), c.node().input(0))) {
    OPTC_ASSIGN(auto body, c.body(branches[*taken ? 0 : 1], {}));
    c.splice(body.first);
    for (size_t i = 0; i < c.node().outputs.size(); ++i) {
      if (!c.has_output(i)) continue;
      if (c.output_type(i).is_tensor() && c.output_type(i).element != ElementType::kString) {
        c.alias(i, body.second[i]);
      } else {
        c.library("identity", {body.second[i]}, {c.output(i)});
      }
    }
    return {};
  }
  ControlFlow flow;
  flow.kind = ControlFlow::Kind::kIf;
  flow.condition = c.input(0);
  for (size_t i = 0; i < c.node().outputs.size(); ++i)
    flow.outputs.push_back(c.has_output(i) ? c.output(i) : BufferId());
  for (RegionId branch : branches) {
    OPTC_ASSIGN(auto body, c.body(branch, {}));
    flow.bodies.push_back(std::move(body.first));
    flow.results.push_back(std::move(body.second));
  }
  Symbols outer;
  for (RegionId branch : branches)
    for (ValueId value : graph.captures(branch)) add_symbols(graph, value, outer);
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    if (!c.has_output(i) || !c.output_type(i).has_shape()) continue;
    for (Dim d : c.output_shape(i))
      if (is_run_time_size(d) && !outer.count(single_symbol(d))) note_defined({d}, flow.defines);
  }
  Kernel kernel;
  kernel.body = std::move(flow);
  kernel.note = "If";
  c.add(std::move(kernel));
  return {};
}

// --- Loop and Scan
// ----------------------------------------------------------------------------------------------------------------

// Whether an If is somewhere inside, of which one branch may be impossible.
bool has_branches(const Graph &graph, RegionId region) {
  for (NodeId n : graph.nodes(region)) {
    if (graph.node(n).op == "If") return true;
    for (const auto &[name, inner] : graph.node(n).regions)
      if (has_branches(graph, inner)) return true;
  }
  return false;
}

// Infers a body with loop-carried values until their types hold: carried[i] is region input first_input + i and region
// output first_output + i, and starts with the type of node input first_operand + i. Sets the outputs' types of carried
// values.
Status infer_carried(InferContext &c, RegionId body, size_t count, size_t first_operand, size_t first_input,
                     size_t first_output, Symbols &outer) {
  Graph &graph = c.graph();
  std::vector<Type> types;
  for (size_t i = 0; i < count; ++i) {
    Type type = c.input(first_operand + i);
    add_symbols(graph, c.node().input(first_operand + i), outer);
    const Value &input = graph.value(graph.region(body).inputs[first_input + i]);
    const Type &before = input.type;
    if (type.has_shape() && before.has_shape() &&
        before.rank() == type.rank())  // sizes found to change by an earlier inference
      for (size_t k = 0; k < type.shape->size(); ++k)
        if (const DimSymbol *size = single_symbol((*before.shape)[k]); size && is_size_of(*size, input.name, k))
          (*type.shape)[k] = (*before.shape)[k];
    types.push_back(std::move(type));
  }
  for (ValueId value : graph.captures(body)) add_symbols(graph, value, outer);
  for (int round = 0;; ++round) {
    for (size_t i = 0; i < count; ++i) {
      const ValueId input = graph.region(body).inputs[first_input + i];
      graph.set_type(input, types[i]);
      graph.set_elements(input, nullptr);
    }
    OPTC_TRY(c.infer_region(body, InferMode::kTentative));
    bool changed = false;
    for (size_t i = 0; i < count; ++i) {
      const Type &after = graph.value(graph.region(body).outputs[first_output + i]).type;
      Type &type = types[i];
      if (!type.is_tensor()) {
        // Nothing is known of the items of an empty sequence: the body says what they are.
        const bool open = round == 0 && is_empty_sequence(graph, c.node().input(first_operand + i));
        Type merged = open ? after : merge_items(c.dims(), type, after);
        if (!(merged == type)) type = std::move(merged), changed = true;
        continue;
      }
      if (after.element != type.element)
        return c.invalid("loop-carried value " + std::to_string(i) + " changes its element type");
      if (!type.shape) continue;
      if (!after.shape || after.rank() != type.rank())
        return c.unsupported("loop-carried value " + std::to_string(i) + " changes its rank",
                             "reshape it to one rank before the loop");
      for (size_t k = 0; k < type.shape->size(); ++k) {
        Dim &d = (*type.shape)[k];
        if (d == (*after.shape)[k]) continue;
        if (is_run_time_size(d) && !outer.count(single_symbol(d))) continue;
        d = c.dims().new_symbol(SymbolKind::kData,
                                size_name(graph.value(graph.region(body).inputs[first_input + i]).name, k));
        changed = true;
      }
    }
    if (!changed) break;
    if (round > 8) return c.unsupported("the types of the loop-carried values do not settle");
  }
  if (c.mode() == InferMode::kFinal && has_branches(graph, body)) OPTC_TRY(c.infer_region(body));
  for (size_t i = 0; i < count; ++i) {
    Type type = types[i];
    // An optional that the body gives back unwrapped.
    if (const Type &after = graph.value(graph.region(body).outputs[first_output + i]).type;
        type.kind == Type::Kind::kOptional && after.kind != type.kind && after.kind != Type::Kind::kNone)
      type = after;
    if (type.has_shape())
      for (size_t k = 0; k < type.shape->size(); ++k)
        if (!is_visible((*type.shape)[k], outer)) (*type.shape)[k] = c.run_time_size(i, k);
    c.set(i, std::move(type));
  }
  return {};
}

// Whether the value is `source` behind Identity nodes, or a constant true.
bool stays_true(const Graph &graph, ValueId value, ValueId source) {
  while (value.valid() && !(value == source)) {
    const Value &v = graph.value(value);
    if (v.kind == ValueKind::kConstant) return v.constant.count() == 1 && v.constant.as_int64(0) != 0;
    if (v.kind != ValueKind::kNodeOutput || graph.node(v.producer).op != "Identity") return false;
    value = graph.node(v.producer).input(0);
  }
  return value.valid();
}

// The number of an iteration and the condition are scalars, or lists of one element: the number where the body declares
// one dimension, the condition where the node's is a list. Exporters write both, and ONNX Runtime gives them.
void set_loop_input(Graph &graph, ValueId input, const Type &like, ElementType element) {
  const bool list = like.has_shape() && like.rank() == 1;
  graph.set_type(input, Type::tensor(element, list ? Shape{1} : Shape{}));
}

Status infer_loop(InferContext &c) {
  Graph &graph = c.graph();
  const RegionId body = c.node().region_named("body");
  if (!body.valid()) return c.invalid("Loop needs a body");
  const size_t carried = c.input_count() > 2 ? c.input_count() - 2 : 0;
  const size_t in = graph.region(body).inputs.size(), out = graph.region(body).outputs.size();
  if (in != carried + 2 || out < carried + 1)
    return c.invalid("the body has " + std::to_string(in) + " inputs and " + std::to_string(out) +
                     " outputs, which do not fit " + std::to_string(carried) + " carried values");
  if (c.output_count() > out - 1) return c.invalid("Loop has more outputs than its body gives");
  const ValueId number = graph.region(body).inputs[0], condition = graph.region(body).inputs[1];
  set_loop_input(graph, number, Type(graph.value(number).type), ElementType::kInt64);
  set_loop_input(graph, condition, c.has_input(1) ? c.input(1) : Type(graph.value(condition).type), ElementType::kBool);
  Symbols outer;
  add_symbols(graph, c.node().input(0), outer);
  OPTC_TRY(infer_carried(c, body, carried, 2, 2, 1, outer));

  std::optional<Dim> trips;
  const Dims *limit = c.has_input(0) ? c.elements(0) : nullptr;
  const bool starts = !c.has_input(1) || known_condition(graph, c.node().input(1)) == true;
  if (limit && limit->size() == 1 && starts &&
      stays_true(graph, graph.region(body).outputs[0], graph.region(body).inputs[1]))
    trips = max((*limit)[0], 0);
  for (size_t i = carried; i + 1 < out && i < c.output_count(); ++i) {
    const Type &slice = graph.value(graph.region(body).outputs[i + 1]).type;
    if (!c.has_output(i)) continue;
    if (!slice.has_shape()) {
      c.set(i, Type::tensor(slice.element, std::nullopt));
      continue;
    }
    if (!trips) trips = c.run_time_size(i, 0, limit && limit->size() == 1 ? upper_bound((*limit)[0]) : kDimOverflow);
    Shape shape = {*trips};
    for (size_t k = 0; k < slice.shape->size(); ++k) {
      const Dim d = (*slice.shape)[k];
      shape.push_back(is_visible(d, outer) ? d : c.run_time_size(i, k + 1));
    }
    c.set_tensor(i, slice.element, std::move(shape));
  }
  return {};
}

BufferId body_buffer(BuildContext &c, ValueId value) {
  const Value &v = c.graph().value(value);
  Buffer buffer;
  buffer.name = v.name;
  buffer.type = v.type;
  buffer.kind =
      v.type.is_tensor() && v.type.element != ElementType::kString ? BufferKind::kTemporary : BufferKind::kObject;
  return c.program().add_buffer(std::move(buffer));
}

// The symbols that the loop sets: sizes of carried values that change, and of the outputs, which nothing outside
// defines.
void loop_symbols(BuildContext &c, RegionId body, size_t first_input, ControlFlow &flow) {
  const Graph &graph = c.graph();
  Symbols outer;
  for (ValueId value : c.node().inputs) add_symbols(graph, value, outer);
  for (ValueId value : graph.captures(body)) add_symbols(graph, value, outer);
  const auto note = [&](const Type &type) {
    if (!type.has_shape()) return;
    for (Dim d : *type.shape)
      if (is_run_time_size(d) && !outer.count(single_symbol(d))) note_defined({d}, flow.defines);
  };
  for (size_t i = 0; i < flow.carried; ++i) note(graph.value(graph.region(body).inputs[first_input + i]).type);
  for (ValueId value : c.node().outputs)
    if (value.valid()) note(graph.value(value).type);
}

Status build_loop(BuildContext &c) {
  const Graph &graph = c.graph();
  const RegionId body = c.node().region_named("body");
  ControlFlow flow;
  flow.kind = ControlFlow::Kind::kLoop;
  if (c.has_input(0)) flow.trip_count = c.input(0);
  if (c.has_input(1)) flow.condition = c.input(1);
  const auto shape_of = [&](size_t i) { return *graph.value(graph.region(body).inputs[i]).type.shape; };
  flow.iteration = c.temporary("iteration", ElementType::kInt64, shape_of(0));
  flow.body_condition = c.temporary("condition", ElementType::kBool, shape_of(1));
  flow.carried = graph.region(body).inputs.size() - 2;
  std::vector<BufferId> inputs = {flow.iteration, flow.body_condition};
  for (size_t i = 0; i < flow.carried; ++i) {
    flow.initial.push_back(c.input(2 + i));
    flow.body_inputs.push_back(body_buffer(c, graph.region(body).inputs[2 + i]));
    inputs.push_back(flow.body_inputs.back());
  }
  OPTC_ASSIGN(auto built, c.body(body, inputs));
  flow.bodies.push_back(std::move(built.first));
  flow.results.push_back(std::move(built.second));
  for (size_t i = 0; i + 1 < flow.results[0].size(); ++i)
    flow.outputs.push_back(c.has_output(i) ? c.output(i) : BufferId());
  for (size_t i = flow.carried; i < flow.outputs.size(); ++i) {
    flow.scan_axes.push_back(0);
    flow.scan_reverse.push_back(false);
  }
  loop_symbols(c, body, 2, flow);
  Kernel kernel;
  kernel.body = std::move(flow);
  kernel.note = "Loop";
  c.add(std::move(kernel));
  return {};
}

// Scan. `axes` and `directions` have an entry a scan input or output; absent: 0.
struct ScanShape {
  size_t states, scans, outputs;
  std::vector<int64_t> in_axes, out_axes;
  std::vector<bool> in_reverse, out_reverse;
};

std::vector<int64_t> axes_or_zero(const Node &node, std::string_view name, size_t count) {
  std::vector<int64_t> axes = ints_or(node, name, count, 0);
  axes.resize(count, 0);
  return axes;
}

ScanShape scan_shape(const Graph &graph, const Node &node) {
  ScanShape scan;
  const RegionId body = node.region_named("body");
  const int64_t scans = node.int_or("num_scan_inputs", 0);
  scan.scans = scans < 0 || scans > static_cast<int64_t>(node.inputs.size()) ? 0 : static_cast<size_t>(scans);
  scan.states = node.inputs.size() >= scan.scans ? node.inputs.size() - scan.scans : 0;
  const size_t results = graph.region(body).outputs.size();
  scan.outputs = results >= scan.states ? results - scan.states : 0;
  scan.in_axes = axes_or_zero(node, "scan_input_axes", scan.scans);
  scan.out_axes = axes_or_zero(node, "scan_output_axes", scan.outputs);
  for (int64_t d : axes_or_zero(node, "scan_input_directions", scan.scans)) scan.in_reverse.push_back(d != 0);
  for (int64_t d : axes_or_zero(node, "scan_output_directions", scan.outputs)) scan.out_reverse.push_back(d != 0);
  return scan;
}

Status infer_scan(InferContext &c) {
  Graph &graph = c.graph();
  const RegionId body = c.node().region_named("body");
  if (!body.valid()) return c.invalid("Scan needs a body");
  const ScanShape scan = scan_shape(graph, c.node());
  if (scan.scans < 1 || scan.scans > c.input_count()) return c.invalid("num_scan_inputs does not fit the inputs");
  if (graph.region(body).inputs.size() != c.input_count() || graph.region(body).outputs.size() < scan.states)
    return c.invalid("the body's inputs and outputs do not fit");
  if (c.output_count() > scan.states + scan.outputs) return c.invalid("Scan has more outputs than its body gives");
  Symbols outer;
  std::optional<Dim> trips;
  for (size_t i = 0; i < scan.scans; ++i) {
    const size_t operand = scan.states + i;
    OPTC_TRY(c.require_shape(operand));
    add_symbols(graph, c.node().input(operand), outer);
    OPTC_ASSIGN(int64_t axis, c.axis(scan.in_axes[i], c.rank(operand), "scan_input_axes"));
    Shape slice = c.shape(operand);
    const Dim extent = slice[static_cast<size_t>(axis)];
    slice.erase(slice.begin() + axis);
    if (trips) {
      OPTC_ASSIGN(trips, c.same(*trips, extent, "the length of the scanned axis"));
    } else {
      trips = extent;
    }
    const ValueId input = graph.region(body).inputs[operand];
    graph.set_type(input, Type::tensor(c.element(operand), std::move(slice)));
    graph.set_elements(input, nullptr);
  }
  OPTC_TRY(infer_carried(c, body, scan.states, 0, 0, 0, outer));
  for (size_t i = 0; i < scan.outputs && scan.states + i < c.output_count(); ++i) {
    const size_t output = scan.states + i;
    const Type &slice = graph.value(graph.region(body).outputs[output]).type;
    if (!slice.has_shape()) {
      c.set(output, slice);
      continue;
    }
    OPTC_ASSIGN(int64_t axis, c.axis(scan.out_axes[i], slice.rank() + 1, "scan_output_axes"));
    Shape shape = *slice.shape;
    shape.insert(shape.begin() + axis, *trips);
    for (size_t k = 0; k < shape.size(); ++k)
      if (!is_visible(shape[k], outer)) shape[k] = c.run_time_size(output, k);
    c.set_tensor(output, slice.element, std::move(shape));
  }
  return {};
}

Status build_scan(BuildContext &c) {
  const Graph &graph = c.graph();
  const RegionId body = c.node().region_named("body");
  const ScanShape scan = scan_shape(graph, c.node());
  ControlFlow flow;
  flow.kind = ControlFlow::Kind::kLoop;
  flow.carried = scan.states;
  flow.iteration = c.temporary("iteration", ElementType::kInt64, {});
  flow.body_condition = c.temporary("condition", ElementType::kBool, {});
  const auto axis_of = [&](size_t i) {
    const int64_t rank = static_cast<int64_t>(c.shape(scan.states + i).size());
    return static_cast<size_t>(scan.in_axes[i] < 0 ? scan.in_axes[i] + rank : scan.in_axes[i]);
  };
  const Dim trips = c.shape(scan.states)[axis_of(0)];
  flow.trip_count = c.temporary("trips", ElementType::kInt64, {});
  {
    NestBuilder nest(c, "trip count");
    nest.store(flow.trip_count, {}, nest.index(trips));
    nest.finish();
  }
  std::vector<BufferId> inputs;
  for (size_t i = 0; i < scan.states; ++i) {
    flow.initial.push_back(c.input(i));
    flow.body_inputs.push_back(body_buffer(c, graph.region(body).inputs[i]));
    inputs.push_back(flow.body_inputs.back());
  }
  std::vector<KernelId> kernels = c.detached([&] {
    for (size_t i = 0; i < scan.scans; ++i) {
      BufferId slice = body_buffer(c, graph.region(body).inputs[scan.states + i]);
      inputs.push_back(slice);
      NestBuilder nest(c, "scan input");
      Dims index = nest.outer(Shape(c.program().buffer(slice).shape())), from = index;
      Expr step = nest.load(flow.iteration, {});
      if (scan.in_reverse[i]) step = nest.index(trips - 1) - step;
      from.insert(from.begin() + static_cast<int64_t>(axis_of(i)), nest.as_index(step, trips));
      nest.store(slice, index, nest.load_raw(c.input(scan.states + i), from));
      nest.finish();
    }
  });
  OPTC_ASSIGN(auto built, c.body(body, inputs));
  kernels.insert(kernels.end(), built.first.begin(), built.first.end());
  flow.bodies.push_back(std::move(kernels));
  std::vector<BufferId> results = {c.constant_buffer("true", Constant::scalar(ElementType::kBool, 1))};
  results.insert(results.end(), built.second.begin(), built.second.end());
  flow.results.push_back(std::move(results));
  for (size_t i = 0; i < scan.states + scan.outputs; ++i)
    flow.outputs.push_back(c.has_output(i) ? c.output(i) : BufferId());
  for (size_t i = 0; i < scan.outputs; ++i) {
    const Type &slice = graph.value(graph.region(body).outputs[scan.states + i]).type;
    flow.scan_axes.push_back(scan.out_axes[i] < 0 ? scan.out_axes[i] + slice.rank() + 1 : scan.out_axes[i]);
    flow.scan_reverse.push_back(scan.out_reverse[i]);
  }
  loop_symbols(c, body, 0, flow);
  Kernel kernel;
  kernel.body = std::move(flow);
  kernel.note = "Scan";
  c.add(std::move(kernel));
  return {};
}

Status not_before_9(Graph &graph, NodeId id, Diagnostics &diagnostics) {
  return cannot_lower(graph, id, "Scan", 9, diagnostics);
}
const VersionStep kScanSteps[] = {{9, scan_of_batch, not_before_9}};

const OpDef kOps[] = {
    {"If", OpForm::kControlFlow, 25, infer_if, build_if},
    {"Loop", OpForm::kControlFlow, 25, infer_loop, build_loop},
    {"Scan", OpForm::kControlFlow, 25, infer_scan, build_scan, kScanSteps},
    {"optc.Fail", OpForm::kLibrary, 1, infer_fail, build_fail, {}, false},
};

}  // namespace

void fail_branch(Graph &graph, RegionId branch, std::string message) {
  std::vector<std::pair<std::string, Type>> outputs;
  for (ValueId v : graph.region(branch).outputs)
    outputs.emplace_back(graph.unique_name(graph.value(v).name), graph.value(v).type);
  const std::vector<NodeId> nodes = graph.nodes(branch);
  const NodeId fail =
      graph.add_node(branch, "optc.Fail", "", {}, std::move(outputs), {{"message", std::move(message)}});
  graph.set_origin(fail, graph.node(graph.region(branch).owner).origin);
  graph.set_outputs(branch, graph.node(fail).outputs);
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) graph.erase_node(*node);
}

std::span<const OpDef> control_ops() { return kOps; }

}  // namespace optc
