// Dim as text: what parse_dim reads.
#include "ir/dim/dim.h"
#include "ir/dim/range.h"

namespace optc {
namespace {

std::string atom_str(const DimAtom *atom) {
  switch (atom->kind) {
    case AtomKind::kSymbol:
      return atom->symbol->name;
    case AtomKind::kFloorDiv:
      return "(" + atom->a.str() + ")/(" + atom->b.str() + ")";
    case AtomKind::kMod:
      return "(" + atom->a.str() + ")%(" + atom->b.str() + ")";
    case AtomKind::kMin:
      return "min(" + atom->a.str() + ", " + atom->b.str() + ")";
    case AtomKind::kMax:
      return "max(" + atom->a.str() + ", " + atom->b.str() + ")";
  }
  return {};
}

}  // namespace

std::string Dim::str() const {
  if (!node_) return std::to_string(value_);
  std::string text;
  for (const DimTerm &t : node_->terms) {
    int64_t c = t.coefficient;
    if (!text.empty()) {
      text += c < 0 ? " - " : " + ";
      c = c < 0 ? -c : c;
    } else if (c == -1) {
      text += "-";
      c = 1;
    }
    if (c != 1) text += std::to_string(c) + "*";
    for (size_t i = 0; i < t.atoms.size(); ++i) {
      if (i) text += "*";
      const bool quotient = t.atoms[i]->kind == AtomKind::kFloorDiv || t.atoms[i]->kind == AtomKind::kMod;
      text += quotient ? "(" + atom_str(t.atoms[i]) + ")" : atom_str(t.atoms[i]);
    }
  }
  if (node_->constant > 0) text += " + " + std::to_string(node_->constant);
  if (node_->constant < 0) text += " - " + std::to_string(-node_->constant);
  return text;
}

std::string range_text(const DimSymbol &symbol) {
  if (symbol.min == symbol.max) return std::to_string(symbol.min);
  std::string text = std::to_string(symbol.min);
  text += symbol.max >= kDimOverflow ? " or more" : " to " + std::to_string(symbol.max);
  if (symbol.multiple > 1) text += ", a multiple of " + std::to_string(symbol.multiple);
  return text;
}

}  // namespace optc
