// What a dimension is for given symbols: its value, another expression, its part in one symbol.
#include <algorithm>

#include "ir/dim/dim.h"
#include "ir/dim/internal_numbers.h"
#include "ir/dim/saturation.h"

namespace optc {

uint64_t dim_size(Dim d) {
  if (!d.node()) return 1;
  uint64_t size = 0;
  for (const DimTerm &t : d.node()->terms) {
    ++size;
    for (const DimAtom *a : t.atoms) size += a->kind == AtomKind::kSymbol ? 1 : 1 + dim_size(a->a) + dim_size(a->b);
  }
  return size;
}

bool is_saturated(Dim d) {
  if (!d.node()) return is_beyond(d.value());
  for (const DimTerm &t : d.node()->terms)  // a sum that holds one is one (DimTable::polynomial)
    for (const DimAtom *a : t.atoms)
      if (a->kind != AtomKind::kSymbol && (is_saturated(a->a) || is_saturated(a->b))) return true;
  return false;
}

std::optional<int64_t> evaluate(Dim d, const DimValues &values) {
  if (d.is_constant()) return d.value();
  int64_t sum = d.node()->constant;
  for (const DimTerm &t : d.node()->terms) {
    int64_t product = t.coefficient;
    for (const DimAtom *atom : t.atoms) {
      int64_t v = 0;
      if (atom->kind == AtomKind::kSymbol) {
        const auto value = values(*atom->symbol);
        if (!value) return std::nullopt;
        v = *value;
      } else {
        const auto a = evaluate(atom->a, values), b = evaluate(atom->b, values);
        if (!a || !b) return std::nullopt;
        switch (atom->kind) {
          case AtomKind::kFloorDiv:
            v = quotient_i(*a, *b);
            break;
          case AtomKind::kMod:
            v = rest_i(*a, *b);
            break;
          case AtomKind::kMin:
            v = std::min(*a, *b);
            break;
          case AtomKind::kMax:
            v = std::max(*a, *b);
            break;
          case AtomKind::kSymbol:
            break;
        }
      }
      product = sat_mul(product, v);
    }
    sum = sat_add(sum, product);
  }
  return sum;
}

Dim substitute(Dim d, const DimSubstitution &replacement) {
  if (d.is_constant()) return d;
  Dim sum(d.node()->constant);
  for (const DimTerm &t : d.node()->terms) {
    Dim product(t.coefficient);
    for (const DimAtom *atom : t.atoms) {
      Dim factor;
      if (atom->kind == AtomKind::kSymbol) {
        const auto r = replacement(*atom->symbol);
        factor = r ? *r : d.node()->table->of_atom(atom);
      } else {
        const Dim a = substitute(atom->a, replacement), b = substitute(atom->b, replacement);
        switch (atom->kind) {
          case AtomKind::kFloorDiv:
            factor = floor_div(a, b);
            break;
          case AtomKind::kMod:
            factor = mod(a, b);
            break;
          case AtomKind::kMin:
            factor = min(a, b);
            break;
          case AtomKind::kMax:
            factor = max(a, b);
            break;
          case AtomKind::kSymbol:
            break;
        }
      }
      product = product * factor;
    }
    sum = sum + product;
  }
  return sum;
}

void collect_symbols(Dim d, std::vector<const DimSymbol *> &out) {
  if (d.is_constant()) return;
  for (const DimTerm &t : d.node()->terms)
    for (const DimAtom *atom : t.atoms) {
      if (atom->kind == AtomKind::kSymbol) {
        if (std::find(out.begin(), out.end(), atom->symbol) == out.end()) out.push_back(atom->symbol);
      } else {
        collect_symbols(atom->a, out);
        collect_symbols(atom->b, out);
      }
    }
}

bool uses_symbol(Dim d, const DimSymbol *symbol) {
  if (d.is_constant()) return false;
  for (const DimTerm &t : d.node()->terms)
    for (const DimAtom *atom : t.atoms) {
      if (atom->kind == AtomKind::kSymbol ? atom->symbol == symbol
                                          : uses_symbol(atom->a, symbol) || uses_symbol(atom->b, symbol))
        return true;
    }
  return false;
}

std::optional<AffinePart> affine_in(Dim d, const DimSymbol *symbol) {
  AffinePart part{Dim(0), Dim(constant_of(d))};
  if (!d.node()) return part;
  std::vector<DimTerm> coefficient, rest;
  int64_t coefficient_constant = 0;
  for (const DimTerm &t : d.node()->terms) {
    int power = 0;
    std::vector<const DimAtom *> others;
    for (const DimAtom *atom : t.atoms) {
      if (atom->kind == AtomKind::kSymbol && atom->symbol == symbol) {
        ++power;
        continue;
      }
      if (atom->kind != AtomKind::kSymbol && (uses_symbol(atom->a, symbol) || uses_symbol(atom->b, symbol)))
        return std::nullopt;
      others.push_back(atom);
    }
    if (power > 1) return std::nullopt;
    if (power == 0)
      rest.push_back(t);
    else if (others.empty())
      coefficient_constant = sat_add(coefficient_constant, t.coefficient);
    else
      coefficient.push_back({t.coefficient, std::move(others)});
  }
  DimTable *table = d.node()->table;
  part.coefficient = table->polynomial(coefficient_constant, std::move(coefficient));
  part.rest = table->polynomial(d.node()->constant, std::move(rest));
  return part;
}

Dim settle(Dim d) {
  return substitute(d, [](const DimSymbol &s) {
    const bool size = s.kind == SymbolKind::kModel || s.kind == SymbolKind::kData;
    return size && s.min == s.max ? std::optional<Dim>(Dim(s.min)) : std::nullopt;
  });
}

const DimSymbol *single_symbol(Dim d) {
  if (!d.node() || d.node()->constant != 0 || d.node()->terms.size() != 1) return nullptr;
  const DimTerm &t = d.node()->terms[0];
  if (t.coefficient != 1 || t.atoms.size() != 1 || t.atoms[0]->kind != AtomKind::kSymbol) return nullptr;
  return t.atoms[0]->symbol;
}

}  // namespace optc
