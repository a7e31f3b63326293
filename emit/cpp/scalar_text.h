#pragma once
// The C++ spelling of one scalar operation, for a scalar variable or for vector lanes (runtime/cpu/simd.h, math.h;
// runtime/bundle/scalar.h).

#include <string>

#include "ir/program/lanes.h"
#include "ir/program/program.h"

namespace optc {

// Binding strength of a C++ expression, strongest first.
enum Precedence {
  kAtomPrecedence,
  kUnaryPrecedence,
  kMulPrecedence,
  kAddPrecedence,
  kShiftPrecedence,
  kRelationPrecedence,
  kEqualityPrecedence,
  kBitPrecedence,
  kLogicPrecedence,
  kTernaryPrecedence
};

struct Text {
  std::string s;
  int precedence = kAtomPrecedence;
  bool lanes = false;  // a vector; else a scalar that is the same for all lanes
};
std::string wrap(const Text &text, int weakest);  // with parentheses if it binds weaker than that

const char *lane_type_name(LaneClass lanes);                        // "vf", "vd", "vi", "vm"
std::string splat_text(const std::string &value, LaneClass lanes);  // one value in all lanes: "splat(1.0f)"

Text constant_text(ElementType type, uint64_t bits);
// The operation on its operands; `lanes`: at least one operand is a vector. The result's type is node.type.
Text operation_text(const Scalar &node, ElementType operand, const Text *args, bool lanes);
// Elements in memory: pointer and index are expressions.
std::string load_text(ElementType type, const std::string &pointer, const std::string &index);
std::string store_text(ElementType type, const std::string &pointer, const std::string &index,
                       const std::string &value);
// combine(a, b) of a reduction or scatter on values of that type.
Text combine_text(Combine combine, ElementType type, const Text &a, const Text &b);
std::string identity_text(Combine combine, ElementType type);

}  // namespace optc
