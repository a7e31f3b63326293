// fold.*: what is known at compile time is computed at compile time.
#include <algorithm>

#include "evaluate/evaluate.h"
#include "ops/registry.h"
#include "optimizer/rule.h"

namespace optc {
namespace {

// Every output a constant: the node goes.
Result<bool> replace_with_constants(RuleContext &context, NodeId n, std::string_view rule,
                                    std::vector<Constant> values) {
  auto change = context.rewriter().begin(rule, RewriteKind::kFold, n);
  const Node node = context.node(n);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    const ValueId c = change.constant(context.graph().value(node.outputs[i]).name + ":value", values[i]);
    change.replace(node.outputs[i], c);
  }
  change.erase(n);
  OPTC_TRY(change.commit());
  return true;
}

bool is_graph_output(const Graph &graph, ValueId v) {
  for (const Use &use : graph.value(v).uses)
    if (use.kind == UseKind::kRegionOutput && use.region == Graph::main()) return true;
  return false;
}

// Whether a value is computed of constants alone, through any chain of nodes that can be folded. `visits` bounds the
// search: beyond it the answer is no.
bool is_of_constants(const Graph &graph, ValueId v, int &visits) {
  if (!v.valid() || graph.is_constant(v)) return true;
  if (graph.value(v).kind != ValueKind::kNodeOutput || --visits < 0) return false;
  const Node &node = graph.node(graph.value(v).producer);
  const OpDef *op = find_op(node.op);
  if (!op || !op->pure || !op->build || !node.regions.empty()) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId operand) { return is_of_constants(graph, operand, visits); });
}

// Whether all that reads the node's results computes of constants alone too: its value is no weight then, but a step on
// the way to one.
bool is_step(const Graph &graph, const Node &node) {
  int visits = 256;
  for (ValueId v : node.outputs) {
    if (!v.valid()) continue;
    for (const Use &use : graph.value(v).uses) {
      if (use.kind != UseKind::kOperand) return false;
      for (ValueId made : graph.node(use.node).outputs)
        if (made.valid() && !is_of_constants(graph, made, visits)) return false;
    }
  }
  return true;
}

// Whether all that reads `v`, through transposes, slices and other shapes, are products and, of a table that products
// read too, gathers: `product` is set at the first product.
bool only_multiplied(const Graph &graph, ValueId v, bool &product, int &visits) {
  const std::vector<Use> &uses = graph.value(v).uses;
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use &use) {
    if (use.kind != UseKind::kOperand || --visits < 0) return false;
    const Node &node = graph.node(use.node);
    const bool multiplies = node.op == "MatMul" || node.op == "Gemm";
    product = product || multiplies;
    if (multiplies || (node.op == "Gather" && use.index == 0)) return true;
    const bool view = node.op == "Transpose" || node.op == "Slice" || node.op == "Reshape" || node.op == "Squeeze" ||
                      node.op == "Unsqueeze" || node.op == "Identity";
    return view && node.inputs[0] == v && node.outputs.size() == 1 &&
           only_multiplied(graph, node.outputs[0], product, visits);
  });
}
bool only_convolved(const Graph &graph, ValueId v) {
  const std::vector<Use> &uses = graph.value(v).uses;
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use &use) {
    return use.kind == UseKind::kOperand && graph.node(use.node).op == "Conv";
  });
}

// Quantized weights stay quantized: a quarter of the bytes or less, and lowering may multiply them as they are.
bool is_quantized_weight(const Graph &graph, const Node &node) {
  if (node.op != "DequantizeLinear" || node.inputs.empty() || node.outputs.size() != 1) return false;
  const Constant *q = graph.constant(node.inputs[0]);
  if (!q || q->rank() < 2 || !is_integer(q->type()) || bit_width(q->type()) > 8) return false;
  if (bit_width(q->type()) == 8 && only_convolved(graph, node.outputs[0])) return true;
  int visits = 64;
  bool product = false;
  return only_multiplied(graph, node.outputs[0], product, visits) && product;
}

// Bytes of the constants that nothing but the node reads: they go with it.
int64_t bytes_that_go(const Graph &graph, NodeId n) {
  int64_t sum = 0;
  const std::vector<ValueId> &inputs = graph.node(n).inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].valid() || std::find(inputs.begin(), inputs.begin() + i, inputs[i]) != inputs.begin() + i) continue;
    const std::vector<Use> &uses = graph.value(inputs[i]).uses;
    const bool only = std::all_of(uses.begin(), uses.end(),
                                  [&](const Use &use) { return use.kind == UseKind::kOperand && use.node == n; });
    if (only) sum += static_cast<int64_t>(graph.constant(inputs[i])->size());
  }
  return sum;
}

Result<bool> fold_constant(RuleContext &context, NodeId n) {
  const Graph &graph = context.graph();
  const Node &node = graph.node(n);
  const OpDef *op = find_op(node.op);
  if (!op || !op->pure || !op->build || !node.regions.empty() || node.outputs.empty()) return false;
  if (is_quantized_weight(graph, node)) return false;
  int64_t input_bytes = 0, growth = 0, made = 0;
  for (ValueId v : node.inputs) {
    if (!v.valid()) continue;
    const Constant *c = graph.constant(v);
    if (!c) return false;
    input_bytes += static_cast<int64_t>(c->size());
  }
  for (ValueId v : node.outputs) {
    if (!v.valid()) continue;
    if (is_graph_output(graph, v)) return false;  // an output is written by a kernel all the same
    const Type &type = graph.value(v).type;
    if (!type.has_shape() || type.element == ElementType::kString) return false;
    const Dim count = element_count(*type.shape);
    if (!count.is_constant()) return false;
    const auto bytes = storage_bytes(type.element, count.value());
    if (!bytes || *bytes > context.options().max_folded_bytes) return false;
    // A small seed that blows up (ConstantOfShape, Expand, Tile) costs more as a weight than as code.
    constexpr int64_t kStep = int64_t{64} << 10, kSmall = 4096;
    const bool grows = *bytes > kSmall && *bytes > 4 * input_bytes;
    const bool step = *bytes <= kStep && is_step(graph, node);
    if (*bytes > kSmall && (!step || input_bytes > kSmall)) made += *bytes;
    if (!grows || step) continue;
    // What takes arithmetic to make (a mask of all pairs) may cost some bytes; what only repeats its seed not.
    if (op->form != OpForm::kPointwise || growth != 0 || *bytes - input_bytes > context.growth_left()) return false;
    growth = *bytes - input_bytes;
  }
  // A weight that others read as it is would stand in the file twice: in a bundle it is packed for each product anyway.
  if (context.options().operators.has && made > 0) {
    growth = made - bytes_that_go(graph, n);
    if (growth > 0 && growth > context.growth_left()) {
      context.rewriter().missed("fold.constant", n, "the constants of the file would grow by more than 1 %");
      return false;
    }
  }
  Diagnostics quiet;
  Result<std::vector<RuntimeValue>> values = evaluate_node(graph, n, quiet);
  if (!values.ok()) {
    context.rewriter().missed("fold.constant", n,
                              quiet.all().empty() ? "evaluation failed" : quiet.all().front().message);
    return false;
  }
  std::vector<Constant> constants;
  for (const RuntimeValue &v : *values) {
    if (v.kind != RuntimeValue::Kind::kTensor && v.kind != RuntimeValue::Kind::kAbsent) return false;
    constants.push_back(v.tensor);
  }
  constants.resize(node.outputs.size());
  for (size_t i = 0; i < constants.size(); ++i)
    if (node.outputs[i].valid() && !constants[i].valid()) return false;
  context.grow(growth);
  return replace_with_constants(context, n, "fold.constant", std::move(constants));
}

// The elements of all outputs are numbers although the inputs are not constants: Shape of static dims and what is
// computed of it.
Result<bool> fold_shape(RuleContext &context, NodeId n) {
  const Graph &graph = context.graph();
  const Node &node = graph.node(n);
  const OpDef *op = find_op(node.op);
  if (!op || !op->pure || node.outputs.empty() || !node.regions.empty()) return false;
  std::vector<Constant> constants;
  for (ValueId v : node.outputs) {
    constants.emplace_back();
    if (!v.valid()) continue;
    const Value &value = graph.value(v);
    if (is_graph_output(graph, v) || !value.elements || !value.type.has_shape() || value.type.rank() > 1) return false;
    std::vector<int64_t> numbers;
    for (const Dim &d : *value.elements) {
      if (!d.is_constant()) return false;
      numbers.push_back(d.value());
    }
    std::vector<int64_t> dims;
    if (value.type.rank() == 1) dims.push_back(static_cast<int64_t>(numbers.size()));
    std::vector<uint8_t> bytes;
    for (int64_t number : numbers) {
      const int width = bit_width(value.type.element) / 8;
      if (width == 0) return false;
      for (int b = 0; b < width; ++b) bytes.push_back(static_cast<uint8_t>(static_cast<uint64_t>(number) >> (8 * b)));
    }
    constants.back() = Constant::owned(value.type.element, std::move(dims), std::move(bytes));
  }
  return replace_with_constants(context, n, "fold.shape", std::move(constants));
}

// If with a constant condition: the branch's nodes move out.
Result<bool> fold_if(RuleContext &context, NodeId n) {
  const Graph &graph = context.graph();
  const auto condition = context.scalar(context.input(n, 0));
  if (!condition) return false;
  const RegionId taken = graph.node(n).region_named(*condition != 0 ? "then_branch" : "else_branch");
  if (!taken.valid()) return false;
  auto change = context.rewriter().begin("fold.if", RewriteKind::kFold, n);
  Graph &g = context.rewriter().mutable_graph_for_construction();
  for (NodeId inner : g.nodes(taken)) g.move_before(inner, n);
  g.move_conditions(taken, g.node(n).region);
  const std::vector<ValueId> results = g.region(taken).outputs, outputs = g.node(n).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid()) continue;
    ValueId result = results[i];
    if (is_graph_output(g, outputs[i]))
      result = change.output(change.create("Identity", {result}));  // keeps the interface's name
    change.replace(outputs[i], result);
  }
  change.erase(n);
  OPTC_TRY(change.commit());
  return true;
}

constexpr Rule kRules[] = {
    {"fold.constant", NumericsClass::kExact, "*", "a node whose operands are all constants -> its value",
     "pure, and the value is no larger than 4 KiB or four times its operands, or at most 64 KiB and read by what is "
     "computed of constants alone, or is computed element by element and all such values add at most 1 % to the "
     "weights",
     fold_constant},
    {"fold.shape", NumericsClass::kExact, "*", "a node whose results are numbers by shape inference -> their value",
     "every element is known at compile time", fold_shape},
    {"fold.if", NumericsClass::kExact, "If", "If with a constant condition -> the branch that it takes",
     "the condition is a constant", fold_if},
};

}  // namespace

std::span<const Rule> fold_rules() { return kRules; }

}  // namespace optc
