#pragma once
// Conditions between dims that inference states: an error when they cannot hold, nothing when they are proved, else a
// constraint that is checked when the Program runs.

#include <string_view>

#include "ops/registry.h"

namespace optc {

inline constexpr int64_t kMaxRank = 64;

// left <= right.
Status at_most(InferContext &context, Dim left, Dim right, std::string_view what);
// operand is result or 1: it broadcasts to a result that it cannot change.
Status broadcasts_to(InferContext &context, Dim operand, Dim result, std::string_view what);

}  // namespace optc
