// What is proved of a Dim from the bounds and extents of its symbols.

#include <algorithm>
#include <vector>

#include "ir/dim/dim.h"
#include "ir/dim/internal_numbers.h"

namespace optc {
namespace {

struct Interval {
  int64_t low, high;
};
// depth: of the atoms around; differences: of the pairs of extremes that are being compared.
Interval bounds(Dim d, int depth, int differences);

Interval add(Interval a, Interval b) {
  auto sum = [](int64_t x, int64_t y) {
    if (x <= -kDimOverflow || y <= -kDimOverflow) return -kDimOverflow;
    if (x >= kDimOverflow || y >= kDimOverflow) return kDimOverflow;
    return sat_add(x, y);
  };
  return {sum(a.low, b.low), sum(a.high, b.high)};
}
Interval mul(Interval a, Interval b) {
  const int64_t p[4] = {sat_mul(a.low, b.low), sat_mul(a.low, b.high), sat_mul(a.high, b.low), sat_mul(a.high, b.high)};
  return {*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
}

Interval atom_bounds(const DimAtom *atom, int depth, int differences) {
  constexpr Interval kUnknown{-kDimOverflow, kDimOverflow};
  if (depth > 24) return kUnknown;
  switch (atom->kind) {
    case AtomKind::kSymbol: {
      const DimSymbol &s = *atom->symbol;
      if (s.kind == SymbolKind::kLoop || s.kind == SymbolKind::kScalar) {
        const int64_t high = bounds(s.extent, depth + 1, differences).high;
        return {0, std::min(s.max, high >= kDimOverflow ? kDimOverflow : std::max<int64_t>(high - 1, 0))};
      }
      return {s.min, s.max};
    }
    case AtomKind::kFloorDiv: {
      const Interval a = bounds(atom->a, depth + 1, differences), b = bounds(atom->b, depth + 1, differences);
      if (b.low <= 0) return a.low >= 0 ? Interval{0, a.high} : kUnknown;
      auto div = [](int64_t x, int64_t y) { return x >= kDimOverflow || x <= -kDimOverflow ? x : floor_div_i(x, y); };
      const int64_t low = a.low >= 0 ? (b.high >= kDimOverflow ? 0 : div(a.low, b.high)) : div(a.low, b.low);
      const int64_t high = a.high >= 0 ? div(a.high, b.low) : (b.high >= kDimOverflow ? -1 : div(a.high, b.high));
      return {low, high};
    }
    case AtomKind::kMod: {
      const Interval b = bounds(atom->b, depth + 1, differences), a = bounds(atom->a, depth + 1, differences);
      if (b.low < 0) return kUnknown;
      int64_t high = b.high >= kDimOverflow ? kDimOverflow : std::max<int64_t>(b.high - 1, 0);
      if (a.low >= 0) high = std::min(high, a.high);
      return {0, high};
    }
    case AtomKind::kMin: {
      const Interval a = bounds(atom->a, depth + 1, differences), b = bounds(atom->b, depth + 1, differences);
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    }
    case AtomKind::kMax: {
      const Interval a = bounds(atom->a, depth + 1, differences), b = bounds(atom->b, depth + 1, differences);
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    }
  }
  return kUnknown;
}

Interval term_bounds(const DimTerm &t, int depth, int differences) {
  Interval product{t.coefficient, t.coefficient};
  for (const DimAtom *atom : t.atoms) product = mul(product, atom_bounds(atom, depth, differences));
  return product;
}

bool is_extreme(const DimTerm &t) {
  return t.atoms.size() == 1 && (t.atoms[0]->kind == AtomKind::kMin || t.atoms[0]->kind == AtomKind::kMax);
}

// Of c*f - c*e where f and e are both minima or both maxima: min(x, p) - min(y, q) lies between the smaller and the
// larger one of x - y and p - q.
Interval difference_bounds(const DimTerm &f, const DimTerm &e, int depth, int differences) {
  const DimAtom *x = f.atoms[0], *y = e.atoms[0];
  Interval result{-kDimOverflow, kDimOverflow};
  for (const auto &[first, second] : {std::pair(x->a - y->a, x->b - y->b), std::pair(x->a - y->b, x->b - y->a)}) {
    const Interval a = bounds(first, depth + 1, differences + 1), b = bounds(second, depth + 1, differences + 1);
    result.low = std::max(result.low, std::min(a.low, b.low));
    result.high = std::min(result.high, std::max(a.high, b.high));
  }
  return mul({f.coefficient, f.coefficient}, result);
}

Interval bounds(Dim d, int depth, int differences) {
  constexpr int kMostDifferences = 3;
  if (d.is_constant()) return {d.value(), d.value()};
  const std::vector<DimTerm> &terms = d.node()->terms;
  Interval sum{d.node()->constant, d.node()->constant};
  std::vector<bool> done(terms.size());
  for (size_t i = 0; i < terms.size(); ++i) {
    if (done[i]) continue;
    Interval part = term_bounds(terms[i], depth, differences);
    if (differences < kMostDifferences && is_extreme(terms[i]))
      for (size_t j = i + 1; j < terms.size(); ++j) {
        if (done[j] || !is_extreme(terms[j]) || terms[j].atoms[0]->kind != terms[i].atoms[0]->kind ||
            terms[j].coefficient != -terms[i].coefficient)
          continue;
        const Interval pair = difference_bounds(terms[i], terms[j], depth, differences);
        part = add(part, term_bounds(terms[j], depth, differences));
        part = {std::max(part.low, pair.low), std::min(part.high, pair.high)};
        done[j] = true;
        break;
      }
    sum = add(sum, part);
  }
  return sum;
}

// Replaces loop counters (and other symbols with a symbolic extent) by the end of their range that makes d smallest,
// where d is monotone in them: the result is a lower bound of d, free of those counters.
Dim minimized(Dim d) {
  for (int round = 0; round < 16 && d.node(); ++round) {
    const DimSymbol *pick = nullptr;
    bool low_end = true;
    for (const DimTerm &t : d.node()->terms) {
      for (const DimAtom *atom : t.atoms) {
        if (atom->kind != AtomKind::kSymbol || atom->symbol->extent.is_constant()) continue;
        if (atom->symbol->kind != SymbolKind::kLoop && atom->symbol->kind != SymbolKind::kScalar) continue;
        const auto part = affine_in(d, atom->symbol);
        if (!part) continue;
        const Interval c = bounds(part->coefficient, 0, 0);
        if (c.low >= 0) {
          pick = atom->symbol;
          low_end = true;
        } else if (c.high <= 0) {
          pick = atom->symbol;
          low_end = false;
        }
        if (pick) break;
      }
      if (pick) break;
    }
    if (!pick) return d;
    const Dim end = low_end ? Dim(0) : pick->extent - 1;
    d = substitute(d, [&](const DimSymbol &s) { return &s == pick ? std::optional<Dim>(end) : std::nullopt; });
  }
  return d;
}

}  // namespace

int64_t lower_bound(Dim d) { return bounds(d, 0, 0).low; }
int64_t upper_bound(Dim d) { return bounds(d, 0, 0).high; }

namespace {

// The atom, when d is exactly one min or max.
const DimAtom *extreme(Dim d) {
  const DimAtom *atom = only_atom(d);
  return atom && (atom->kind == AtomKind::kMin || atom->kind == AtomKind::kMax) ? atom : nullptr;
}

// a >= b by the lattice alone: x >= min(x, y), max(x, y) >= x.
bool above(Dim a, Dim b, int depth) {
  if (a == b) return true;
  if (a.is_constant() && b.is_constant()) return a.value() >= b.value();
  if (depth > 6) return false;
  if (const DimAtom *y = extreme(b)) {
    const bool first = above(a, y->a, depth + 1);
    if (y->kind == AtomKind::kMin ? first || above(a, y->b, depth + 1) : first && above(a, y->b, depth + 1))
      return true;
  }
  if (const DimAtom *x = extreme(a)) {
    const bool first = above(x->a, b, depth + 1);
    if (x->kind == AtomKind::kMax ? first || above(x->b, b, depth + 1) : first && above(x->b, b, depth + 1))
      return true;
  }
  return false;
}

}  // namespace

bool proved_at_least(Dim a, Dim b) {
  if (above(a, b, 0)) return true;
  const Dim difference = a - b;
  if (lower_bound(difference) >= 0) return true;
  return difference.node() && lower_bound(minimized(difference)) >= 0;
}
bool proved_less(Dim a, Dim b) { return proved_at_least(b, a + Dim(1)); }

bool proved_in_range(Dim index, Dim extent) {
  // x mod m with 0 <= m <= extent needs no numbers.
  if (const DimAtom *atom = only_atom(index)) {
    if (atom->kind == AtomKind::kMod && atom->b == extent) return true;
    if (atom->kind == AtomKind::kSymbol && atom->symbol->kind != SymbolKind::kModel &&
        atom->symbol->kind != SymbolKind::kData && atom->symbol->extent == extent)
      return true;
  }
  return proved_at_least(index, Dim(0)) && proved_less(index, extent);
}

}  // namespace optc
