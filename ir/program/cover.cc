#include "ir/program/cover.h"

#include <algorithm>
#include <functional>

#include "ir/graph/constraint.h"

namespace optc {
namespace {

// An atom as a part of a loop counter; nullopt when it is no such part, or one that is not independent of the rest.
std::optional<Digit> part_of_counter(const DimAtom &atom, const std::vector<Loop> &loops) {
  switch (atom.kind) {
    case AtomKind::kSymbol:
      for (const Loop &l : loops)
        if (l.index == atom.symbol) return Digit{l.index, 1, l.extent, 1};
      return std::nullopt;
    case AtomKind::kFloorDiv:
    case AtomKind::kMod: {
      if (!atom.a.node() || atom.a.node()->constant != 0 || atom.a.node()->terms.size() != 1) return std::nullopt;
      const DimTerm &term = atom.a.node()->terms[0];
      if (term.coefficient != 1 || term.atoms.size() != 1) return std::nullopt;
      const auto inner = part_of_counter(*term.atoms[0], loops);
      if (!inner) return std::nullopt;
      const Dim middle = inner->low * atom.b;
      if (!exact_div(inner->high, middle)) return std::nullopt;  // the upper part would not be a whole number of turns
      if (atom.kind == AtomKind::kFloorDiv) return Digit{inner->symbol, middle, inner->high, 1};
      return Digit{inner->symbol, inner->low, middle, 1};
    }
    case AtomKind::kMin:
    case AtomKind::kMax:
      return std::nullopt;
  }
  return std::nullopt;
}

bool mentions_loops(Dim d) {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  return std::any_of(symbols.begin(), symbols.end(),
                     [](const DimSymbol *s) { return s->kind == SymbolKind::kLoop || s->kind == SymbolKind::kScalar; });
}

// Parts of one counter that overlap do not vary independently.
bool independent(const std::vector<Digit> &digits) {
  for (size_t i = 0; i < digits.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Digit &a = digits[i], &b = digits[j];
      if (a.symbol != b.symbol) continue;
      if (!exact_div(a.low, b.high) && !exact_div(b.low, a.high)) return false;
    }
  return true;
}

bool holds(const DimConstraint &c, const std::function<std::optional<int64_t>(const DimSymbol &)> &value) {
  const auto left = evaluate(c.left, value), right = evaluate(c.right, value);
  return left && right && constraint_holds(*left, *right, c.or_one);
}

// Of lengths that are not negative for any sizes: whether there are sizes for which all are positive and which the
// model takes; some are tried.
bool positive_somewhere(const std::vector<Dim> &lengths, const std::vector<DimConstraint> &demands) {
  // Where one could be negative, what the model demands of its sizes may well make it 0.
  if (std::any_of(lengths.begin(), lengths.end(), [](Dim d) { return lower_bound(d) < 0; })) return false;
  std::vector<const DimSymbol *> symbols;
  for (Dim d : lengths) collect_symbols(d, symbols);
  for (const int64_t size : {1, 2, 3, 5, 8, 64})
    for (const size_t apart : {0, 1, 2}) {  // one size for all, or sizes that differ
      const auto value = [&](const DimSymbol &s) -> std::optional<int64_t> {
        const size_t i = static_cast<size_t>(std::find(symbols.begin(), symbols.end(), &s) - symbols.begin());
        const int64_t wish = size + static_cast<int64_t>(i * apart % 5);
        return std::clamp((wish + s.multiple - 1) / s.multiple * s.multiple, s.min, s.max);
      };
      if (std::all_of(lengths.begin(), lengths.end(), [&](Dim d) { return evaluate(d, value).value_or(0) > 0; }) &&
          std::all_of(demands.begin(), demands.end(), [&](const DimConstraint &c) { return holds(c, value); }))
        return true;
    }
  return false;
}

// Whether every element of `wanted`, from dimension `axis` on, is in one of the boxes, all of which hold it before.
// `slices`: the lengths in the dimensions before, which are positive where there is such an element.
Cover covers_from(size_t axis, std::vector<const Box *> boxes, const Box &wanted, std::vector<Dim> &slices,
                  const std::vector<DimConstraint> &demands) {
  if (axis == wanted.size()) return boxes.empty() ? Cover::kNo : Cover::kYes;
  Dim at = wanted[axis].begin;
  const Dim end = at + wanted[axis].length;
  while (!proved_at_least(at, end)) {
    // The boxes that hold the slice at `at`, and how far the shortest of them goes on.
    std::vector<const Box *> here;
    Dim step = end - at;
    bool unknown = false;
    for (const Box *r : boxes) {
      const Span &s = (*r)[axis];
      const Dim behind = s.begin + s.length - at;
      if (proved_at_least(0, s.length) || proved_at_least(0, behind)) continue;  // empty, or before
      if (proved_at_least(at, s.begin)) {
        here.push_back(r);
        if (proved_at_least(step, behind))
          step = behind;
        else if (!proved_at_least(behind, step))
          unknown = true;
      } else if (!proved_at_least(s.begin, at)) {
        unknown = true;
      } else if (proved_at_least(step, s.begin - at)) {
        step = s.begin - at;
      } else if (!proved_at_least(s.begin - at, step)) {
        unknown = true;
      }
    }
    if (unknown) return Cover::kUnknown;
    slices.push_back(step);
    Cover c;
    if (here.empty()) {
      for (size_t k = axis + 1; k < wanted.size(); ++k) slices.push_back(wanted[k].length);
      c = positive_somewhere(slices, demands) ? Cover::kNo : Cover::kUnknown;
      slices.resize(axis + 1);
    } else {
      c = covers_from(axis + 1, here, wanted, slices, demands);
    }
    slices.pop_back();
    if (c != Cover::kYes) return c;
    at = at + step;
  }
  return Cover::kYes;
}

// The common case, without a search: slices along one axis, in order, each from where the one before ends.
bool tiles_in_order(const std::vector<Box> &boxes, const Box &wanted) {
  auto same = [](const Span &a, const Span &b) { return a.begin == b.begin && a.length == b.length; };
  if (boxes.empty()) return false;
  size_t axis = 0;
  while (axis < wanted.size() && same(boxes[0][axis], wanted[axis])) ++axis;
  if (axis == wanted.size()) return true;
  Dim at = wanted[axis].begin;
  for (const Box &b : boxes) {
    for (size_t k = 0; k < wanted.size(); ++k)
      if (k == axis ? !(b[k].begin == at) : !same(b[k], wanted[k])) return false;
    at = at + b[axis].length;
  }
  return at == wanted[axis].begin + wanted[axis].length;
}

}  // namespace

Dim Digit::extent() const { return exact_div(high, low).value_or(Dim(kDimOverflow)); }

std::optional<Radix> mixed_radix(Dim index, const std::vector<Loop> &loops) {
  Radix radix;
  if (index.is_constant()) {
    radix.begin = index;
    radix.length = 1;
    return radix;
  }
  DimTable *table = index.node()->table;
  std::vector<Digit> digits;
  Dim rest = index.node()->constant;
  for (const DimTerm &term : index.node()->terms) {
    std::optional<Digit> digit;
    std::vector<const DimAtom *> others;
    for (const DimAtom *atom : term.atoms) {
      if (!mentions_loops(table->of_atom(atom))) {
        others.push_back(atom);
        continue;
      }
      if (digit) return std::nullopt;  // a product of counters
      digit = part_of_counter(*atom, loops);
      if (!digit) return std::nullopt;
    }
    Dim factor = term.coefficient;
    for (const DimAtom *atom : others) factor = factor * table->of_atom(atom);
    if (!digit) {
      rest = rest + factor;
      continue;
    }
    const auto same = std::find_if(digits.begin(), digits.end(), [&](const Digit &d) {
      return d.symbol == digit->symbol && d.low == digit->low && d.high == digit->high;
    });
    if (same != digits.end()) {
      same->weight = same->weight + factor;
    } else {
      digit->weight = factor;
      digits.push_back(*digit);
    }
  }
  std::erase_if(digits, [](const Digit &d) { return d.extent().is(1); });
  if (!independent(digits)) return std::nullopt;
  Dim weight = 1;
  while (!digits.empty()) {
    const auto next = std::find_if(digits.begin(), digits.end(), [&](const Digit &d) { return d.weight == weight; });
    if (next == digits.end()) return std::nullopt;
    weight = weight * next->extent();
    radix.digits.insert(radix.digits.begin(), *next);
    digits.erase(next);
  }
  radix.begin = rest;
  radix.length = weight;
  return radix;
}

Box whole_box(const Shape &shape) {
  Box box;
  for (Dim d : shape) box.push_back({0, d});
  return box;
}

std::optional<Box> box_of(const std::vector<Loop> &loops, const std::vector<Dim> &index) {
  Box box;
  std::vector<Digit> all;
  for (Dim d : index) {
    const auto radix = mixed_radix(d, loops);
    if (!radix) return std::nullopt;
    box.push_back({radix->begin, radix->length});
    all.insert(all.end(), radix->digits.begin(), radix->digits.end());
  }
  if (!independent(all)) return std::nullopt;
  // A loop without iterations leaves out everything, also where the index does not name it.
  for (const Loop &l : loops)
    if (!proved_at_least(l.extent, 1) &&
        std::none_of(all.begin(), all.end(), [&](const Digit &d) { return d.symbol == l.index; }))
      return std::nullopt;
  return box;
}

Cover covers(const std::vector<Box> &boxes, const Box &wanted, const std::vector<DimConstraint> &demands) {
  for (const Box &r : boxes)
    if (r.size() != wanted.size()) return Cover::kUnknown;
  for (const Span &s : wanted)
    if (s.length.is(0)) return Cover::kYes;
  if (tiles_in_order(boxes, wanted)) return Cover::kYes;
  std::vector<const Box *> all;
  for (const Box &r : boxes) all.push_back(&r);
  std::vector<Dim> slices;
  return covers_from(0, std::move(all), wanted, slices, demands);
}

}  // namespace optc
