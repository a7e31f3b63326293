// recurrent.*: what LSTM, GRU and RNN take where an operand is left out.
#include <algorithm>
#include <cmath>

#include "optimizer/rule.h"

namespace optc {
namespace {

bool zeros(const Constant &c) {
  if (!is_float(c.type())) return false;
  for (int64_t i = 0; i < c.count(); ++i)
    if (c.as_double(i) != 0 || std::signbit(c.as_double(i))) return false;
  return true;
}

// Whether a value is +0 everywhere, whatever its size: a constant, or what only repeats, moves or joins such.
bool is_zero(const RuleContext &context, ValueId v, int &visits) {
  if (!v.valid() || --visits < 0) return false;
  if (const Constant *c = context.constant(v)) return zeros(*c);
  if (context.graph().value(v).kind != ValueKind::kNodeOutput) return false;
  const NodeId n = context.producer(v);
  const Node &node = context.node(n);
  if (node.op == "ConstantOfShape") {
    const auto *value = node.attribute("value") ? std::get_if<Constant>(node.attribute("value")) : nullptr;
    return value ? zeros(*value) : true;  // of f32 by default
  }
  if (node.op == "Concat")
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId operand) { return is_zero(context, operand, visits); });
  static constexpr std::string_view kMoves[] = {"Expand", "Tile",   "Unsqueeze", "Squeeze", "Reshape",
                                                "Slice",  "Gather", "Transpose", "Flatten", "Identity"};
  return std::find(std::begin(kMoves), std::end(kMoves), node.op) != std::end(kMoves) &&
         is_zero(context, context.input(n, 0), visits);
}

// A first state of zeros is what the operator begins with anyway.
Result<bool> zero_state(RuleContext &context, NodeId n) {
  const Node node = context.node(n);
  std::vector<ValueId> inputs = node.inputs;
  bool any = false;
  for (size_t i : {size_t{5}, size_t{6}}) {  // initial_h, and of an LSTM initial_c
    if (i >= inputs.size() || !inputs[i].valid() || (i == 6 && node.op != "LSTM")) continue;
    int visits = 64;
    if (!is_zero(context, inputs[i], visits)) continue;
    inputs[i] = ValueId();
    any = true;
  }
  if (!any) return false;
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
  auto change = context.rewriter().begin("recurrent.zero_state", RewriteKind::kReplace, n);
  const NodeId made = change.create(node.op, std::move(inputs), node.attributes, node.outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i].valid()) change.replace(node.outputs[i], change.output(made, i));
  change.erase(n);
  OPTC_TRY(change.commit());
  return true;
}

constexpr Rule kRules[] = {
    {"recurrent.zero_state", NumericsClass::kExact, "LSTM GRU RNN",
     "LSTM, GRU or RNN whose first state is zeros -> the same without that operand",
     "the state is a constant of +0, of whatever size, or made of such by Expand, ConstantOfShape and views",
     zero_state},
};

}  // namespace

std::span<const Rule> recurrent_rules() { return kRules; }

}  // namespace optc
