#include "optimizer/rule.h"

#include <algorithm>
#include <cmath>

namespace optc {

NodeId RuleContext::producer(ValueId v, std::string_view op) const {
  if (!v.valid() || graph().value(v).kind != ValueKind::kNodeOutput) return {};
  const NodeId n = graph().value(v).producer;
  return op.empty() || node(n).op == op ? n : NodeId();
}

bool RuleContext::single_use(ValueId v) const {
  const auto &uses = graph().value(v).uses;
  return uses.size() == 1 && uses[0].kind == UseKind::kOperand;
}

bool RuleContext::used_only_by(ValueId v, std::span<const NodeId> nodes) const {
  for (const Use &use : graph().value(v).uses)
    if (use.kind != UseKind::kOperand || std::find(nodes.begin(), nodes.end(), use.node) == nodes.end()) return false;
  return true;
}

std::optional<double> RuleContext::scalar(ValueId v) const {
  const Constant *c = constant(v);
  if (!c || c->count() != 1 || c->type() == ElementType::kString) return std::nullopt;
  return c->as_double(0);
}

int64_t RuleContext::bytes_of_constants() const {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < graph().value_capacity(); ++i) {
    const Value &value = graph().value(ValueId(i));
    if (value.alive && value.kind == ValueKind::kConstant) bytes += static_cast<int64_t>(value.constant.size());
  }
  return bytes;
}

void RuleContext::note_factors_of_reshapes() {
  for (NodeId n = graph().region(Graph::main()).first; n.valid(); n = node(n).next) {
    if (node(n).op != "Reshape" || !input(n, 1).valid() || !type(output(n)).has_shape()) continue;
    const Constant *numbers = constant(input(n, 1));
    const auto &elements = graph().value(input(n, 1)).elements;
    const Shape &dims = shape(output(n));
    const auto found_by_run = [&](size_t d) {
      if (numbers) return numbers->as_int64(static_cast<int64_t>(d)) == -1;
      return elements && d < elements->size() && (*elements)[d].is(-1);
    };
    std::vector<Dim> beside;
    bool found = false;
    for (size_t d = 0; d < dims.size(); ++d) {
      found |= found_by_run(d);
      if (!dims[d].is_constant() && !found_by_run(d)) beside.push_back(dims[d]);
    }
    if (!found) continue;
    for (const Dim d : beside)
      if (std::find(factors_of_reshapes_.begin(), factors_of_reshapes_.end(), d) == factors_of_reshapes_.end())
        factors_of_reshapes_.push_back(d);
  }
}

bool RuleContext::fails_at_zero(Dim d) const {
  return std::find(factors_of_reshapes_.begin(), factors_of_reshapes_.end(), d) != factors_of_reshapes_.end();
}

bool RuleContext::is_scalar(ValueId v, double value, double relative) const {
  const auto s = scalar(v);
  return s && std::fabs(*s - value) <= relative * std::fabs(value);
}

}  // namespace optc
