#include "emit/cpp/nest.h"

namespace optc {

std::string DimText::dim(Dim d, int weakest) {
  if (d.is_constant())
    return d.value() < 0 && weakest < kUnaryPrecedence ? "(" + std::to_string(d.value()) + ")"
                                                       : std::to_string(d.value());
  const DimNode &node = *d.node();
  std::string out;
  int precedence = kAtomPrecedence;
  auto append = [&](bool negative, const Text &text) {
    if (out.empty()) {
      out = negative ? "-" + wrap(text, kMulPrecedence) : text.s;
      precedence = negative ? kUnaryPrecedence : text.precedence;
      if (negative && text.precedence > kUnaryPrecedence) precedence = kMulPrecedence;
      return;
    }
    out += negative ? " - " : " + ";
    out += wrap(text, kMulPrecedence);
    precedence = kAddPrecedence;
  };
  // Positive terms first: "n - 1" and not "-1 + n".
  for (const bool negative : {false, true}) {
    for (const DimTerm &term : node.terms) {
      if ((term.coefficient < 0) != negative) continue;
      Text text;
      for (const DimAtom *a : term.atoms) {
        const Text factor = atom(*a);
        text = text.s.empty()
                   ? factor
                   : Text{wrap(text, kMulPrecedence) + " * " + wrap(factor, kUnaryPrecedence), kMulPrecedence};
      }
      const int64_t magnitude = negative ? -term.coefficient : term.coefficient;
      if (magnitude != 1) text = {wrap(text, kMulPrecedence) + " * " + std::to_string(magnitude), kMulPrecedence};
      append(negative, text);
    }
    if (node.constant != 0 && (node.constant < 0) == negative)
      append(negative, {std::to_string(negative ? -node.constant : node.constant)});
  }
  return wrap({out, precedence}, weakest);
}

Text DimText::atom(const DimAtom &a) {
  switch (a.kind) {
    case AtomKind::kSymbol:
      return {symbol(*a.symbol)};
    case AtomKind::kMin:
      return {"least(" + dim(a.a) + ", " + dim(a.b) + ")"};
    case AtomKind::kMax:
      return {"most(" + dim(a.a) + ", " + dim(a.b) + ")"};
    case AtomKind::kFloorDiv:
    case AtomKind::kMod: {
      const bool divide = a.kind == AtomKind::kFloorDiv;
      // C++ truncates: the same for a dividend that is not negative.
      if (lower_bound(a.a) >= 0 && lower_bound(a.b) >= 1)
        return {dim(a.a, kMulPrecedence) + (divide ? " / " : " % ") + dim(a.b, kUnaryPrecedence), kMulPrecedence};
      return {(divide ? "floor_div(" : "floor_mod(") + dim(a.a) + ", " + dim(a.b) + ")"};
    }
  }
  return {"0"};
}

}  // namespace optc
