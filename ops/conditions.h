#pragma once
// Conditions between dims that inference states: an error when they cannot hold, nothing when they are proved, else a
// constraint that is checked when the Program runs.

#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/registry.h"

namespace optc {

inline constexpr int64_t kMaxRank = 64;

// left <= right.
Status at_most(InferContext &context, Dim left, Dim right, std::string_view what);
// operand is result or 1: it broadcasts to a result that it cannot change.
Status broadcasts_to(InferContext &context, Dim operand, Dim result, std::string_view what);
// Input `i`, where the node has it, is a scalar, a vector of one element or of `length` (a zero point, a scale).
Status one_or_each(InferContext &context, size_t i, Dim length, std::string_view what);

// What inference cannot prove of a Graph, node by node in the order of all_nodes(), each condition once a region.
// Branches that no run takes state nothing.
struct StatedCondition {
  DimConstraint constraint;
  NodeId node;
};
Result<std::vector<StatedCondition>> stated_conditions(const Graph &graph, Diagnostics &diagnostics);

// Conditions as a set: a condition is in it too when it, or one that asks more, was added.
class ConditionSet {
 public:
  bool contains(const DimConstraint &c) const;
  bool add(const DimConstraint &c);  // false: it was in it

 private:
  std::unordered_map<Dim, std::vector<std::pair<Dim, bool>>> known_;  // by left: right, or_one
};

}  // namespace optc
