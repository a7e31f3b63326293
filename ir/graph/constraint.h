#pragma once
// What a DimConstraint (graph.h) says of two numbers.

#include <cstdint>

namespace optc {

// Whether left == right holds, or with `or_one` (an operand that broadcasts) right == 1.
inline bool constraint_holds(int64_t left, int64_t right, bool or_one) {
  return left == right || (or_one && right == 1);
}

}  // namespace optc
