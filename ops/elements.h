#pragma once
// Elements that obey their type: the values of small integer tensors that inference knows as Dims. Dims are exact
// integers; an element of a tensor wraps at the width of its type.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ir/constant.h"
#include "ir/dim/dim.h"
#include "ir/types.h"

namespace optc {

class InferContext;

// constant_elements (registry.h) is null, too, when an element is no number that a Dim states exactly (beyond +-2^62).
// The same for the bounds of a slice, where such numbers say "to the end": they saturate.
std::shared_ptr<const std::vector<Dim>> constant_bounds(const Constant &constant);

// What an element of an integer or bool type holds when exact arithmetic gives `value`.
struct TypedElement {
  Dim value;
  // Set when `value` is in the range of the type for sizes as they are used, which is not proved: the run must check
  // at_least <= value <= at_most.
  std::optional<int64_t> at_least, at_most;
};
// Numbers wrap. Expressions are kept when they are proved to be in range; those of 32 and 64 bits also when only sizes
// beyond those of real tensors leave it. nullopt: the run has to compute the element.
std::optional<TypedElement> typed_element(ElementType type, Dim value);

// InferContext::set_elements for the dims of tensors, which no size drives out of int64; nothing is set when one of
// them is too large an expression.
void set_sizes(InferContext &context, size_t output, std::vector<Dim> sizes);

}  // namespace optc
