#pragma once
// Whether it can be seen that a zero has the other sign.

#include <string>

#include "optimizer/rule.h"

namespace optc {

// The first reader of `value`, behind any elementwise nodes and views, to whose result the sign of a zero in it may
// matter ("Div 'name'", "the output 'y'"); empty: none. A sum of products does not tell zeros apart: the sign of its
// own zeros depends on where it begins, which ONNX leaves open.
std::string tells_zeros_apart(const RuleContext &context, ValueId value);

}  // namespace optc
