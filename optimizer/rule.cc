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

bool RuleContext::is_scalar(ValueId v, double value, double relative) const {
  const auto s = scalar(v);
  return s && std::fabs(*s - value) <= relative * std::fabs(value);
}

}  // namespace optc
