#pragma once
// What the rules of views and of transposes share.

#include <cstdint>
#include <optional>
#include <vector>

#include "optimizer/rule.h"

namespace optc {

// Whether the node gives the elements of its first operand other dims and no other order: Reshape, Flatten, Squeeze,
// Unsqueeze. false for an invalid id.
bool is_view(const RuleContext &context, NodeId node);

// What a Reshape of dims `from`, without allowzero, is told to give dims `to`: numbers, -1 for a symbolic dim, or,
// where several are symbolic, a 0 for each that the operand has at that place and -1 for one that it has not, if no run
// succeeds where the copied ones are 0. nullopt: it cannot be said so (a dim is 0, several are not the operand's).
std::optional<std::vector<int64_t>> target_shape(const RuleContext &context, const Shape &from, const Shape &to);
// Of a Reshape of `operand` that gives what `value` has.
std::optional<std::vector<int64_t>> target_shape(const RuleContext &context, ValueId operand, ValueId value);

}  // namespace optc
