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
  std::vector<std::string> addends;
  const auto call = [](const char *function, std::vector<std::string> list, bool number, int64_t value) {
    if (number) list.push_back(std::to_string(value));
    if (list.size() == 1) return list[0];
    std::string text = function;
    for (size_t i = 0; i < list.size(); ++i) text += (i ? ", " : "(") + list[i];
    return text + ")";
  };
  // Positive terms first: "n - 1" and not "-1 + n".
  for (const bool negative : {false, true}) {
    for (const DimTerm &term : node.terms) {
      if ((term.coefficient < 0) != negative) continue;
      Text text;
      std::vector<std::string> factors;
      for (const DimAtom *a : term.atoms) {
        const Text factor = atom(*a);
        factors.push_back(factor.s);
        text = text.s.empty()
                   ? factor
                   : Text{wrap(text, kMulPrecedence) + " * " + wrap(factor, kUnaryPrecedence), kMulPrecedence};
      }
      if (saturating_) {
        const bool plain = factors.size() == 1 && term.coefficient == 1;
        precedence = plain ? text.precedence : kAtomPrecedence;
        addends.push_back(call("times", factors, !plain && term.coefficient != 1, term.coefficient));
        continue;
      }
      const int64_t magnitude = negative ? -term.coefficient : term.coefficient;
      if (magnitude != 1) text = {wrap(text, kMulPrecedence) + " * " + std::to_string(magnitude), kMulPrecedence};
      append(negative, text);
    }
    if (!saturating_ && node.constant != 0 && (node.constant < 0) == negative)
      append(negative, {std::to_string(negative ? -node.constant : node.constant)});
  }
  if (saturating_) {  // one term is itself, else a call
    const bool plain = addends.size() == 1 && node.constant == 0;
    return wrap({call("plus", addends, !plain, node.constant), plain ? precedence : kAtomPrecedence}, weakest);
  }
  return wrap({out, precedence}, weakest);
}

std::string DimText::size(Dim d) {
  saturating_ = true;
  std::string text = dim(d);
  saturating_ = false;
  return text;
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
