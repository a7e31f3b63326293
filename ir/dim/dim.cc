#include "ir/dim/dim.h"

#include <algorithm>
#include <numeric>

#include "ir/dim/internal_numbers.h"
#include "ir/dim/saturation.h"

namespace optc {
namespace {

DimTable *table_of(Dim a, Dim b) { return a.node() ? a.node()->table : b.node()->table; }

void append_terms(std::vector<DimTerm> &terms, Dim d, int64_t factor) {
  if (!d.node()) return;
  for (const DimTerm &t : d.node()->terms) terms.push_back({sat_mul(t.coefficient, factor), t.atoms});
}

bool atoms_less(const std::vector<const DimAtom *> &a, const std::vector<const DimAtom *> &b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [](const DimAtom *x, const DimAtom *y) { return x->id < y->id; });
}

// Sorts, merges equal atom lists and drops zeros.
void merge(std::vector<DimTerm> &terms) {
  std::sort(terms.begin(), terms.end(),
            [](const DimTerm &a, const DimTerm &b) { return atoms_less(a.atoms, b.atoms); });
  size_t out = 0;
  for (size_t i = 0; i < terms.size();) {
    DimTerm sum = std::move(terms[i]);
    for (++i; i < terms.size() && terms[i].atoms == sum.atoms; ++i)
      sum.coefficient = sat_add(sum.coefficient, terms[i].coefficient);
    if (sum.coefficient != 0) terms[out++] = std::move(sum);
  }
  terms.resize(out);
}

std::vector<const DimAtom *> with_atoms(std::vector<const DimAtom *> a, const std::vector<const DimAtom *> &b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end(), [](const DimAtom *x, const DimAtom *y) { return x->id < y->id; });
  return a;
}

// atoms minus the multiset `part`; nullopt if part is not contained.
std::optional<std::vector<const DimAtom *>> without_atoms(std::vector<const DimAtom *> atoms,
                                                          const std::vector<const DimAtom *> &part) {
  for (const DimAtom *p : part) {
    auto it = std::find(atoms.begin(), atoms.end(), p);
    if (it == atoms.end()) return std::nullopt;
    atoms.erase(it);
  }
  return atoms;
}

// A divisor that can be split off term by term: coefficient * atoms.
struct Monomial {
  int64_t coefficient = 1;
  std::vector<const DimAtom *> atoms;
};
std::optional<Monomial> as_monomial(Dim d) {
  if (d.is_constant()) return Monomial{d.value(), {}};
  if (d.node()->constant == 0 && d.node()->terms.size() == 1)
    return Monomial{d.node()->terms[0].coefficient, d.node()->terms[0].atoms};
  return std::nullopt;
}

// c*b*(a/b)*rest + c*(a mod b)*rest -> c*a*rest; true when one pair was recombined into `terms` and `constant`.
bool recombine(std::vector<DimTerm> &terms, int64_t &constant) {
  for (size_t i = 0; i < terms.size(); ++i) {
    for (const DimAtom *atom : terms[i].atoms) {
      if (atom->kind != AtomKind::kMod) continue;
      const auto divisor = as_monomial(atom->b);
      if (!divisor || divisor->coefficient == 0) continue;
      const std::vector<const DimAtom *> rest = *without_atoms(terms[i].atoms, {atom});
      const int64_t want = sat_mul(terms[i].coefficient, divisor->coefficient);
      // The matching quotient may be one atom floor_div(a, b), or folded into a polynomial when part of it was split
      // off; compare through the canonical quotient of the very same dividend.
      const Dim quotient = floor_div(atom->a, atom->b);
      if (quotient.is_constant()) continue;
      const DimNode *q = quotient.node();
      if (q->terms.size() != 1 || q->constant != 0 || q->terms[0].coefficient != 1) continue;
      const auto sought = with_atoms(with_atoms(rest, divisor->atoms), q->terms[0].atoms);
      for (size_t j = 0; j < terms.size(); ++j) {
        if (j == i || terms[j].atoms != sought || terms[j].coefficient != want) continue;
        const int64_t c = terms[i].coefficient;
        const Dim dividend = atom->a;
        terms.erase(terms.begin() + static_cast<long>(std::max(i, j)));
        terms.erase(terms.begin() + static_cast<long>(std::min(i, j)));
        if (rest.empty()) {
          append_terms(terms, dividend, c);
          constant = sat_add(constant, sat_mul(c, constant_of(dividend)));
        } else {
          if (dividend.node())
            for (const DimTerm &t : dividend.node()->terms)
              terms.push_back({sat_mul(t.coefficient, c), with_atoms(t.atoms, rest)});
          if (constant_of(dividend) != 0) terms.push_back({sat_mul(c, constant_of(dividend)), rest});
        }
        merge(terms);
        return true;
      }
    }
  }
  return false;
}

}  // namespace

const DimAtom *DimTable::intern_symbol(DimSymbol *symbol) {
  DimAtom atom;
  atom.id = static_cast<uint32_t>(atoms_.size());
  atom.kind = AtomKind::kSymbol;
  atom.symbol = symbol;
  atoms_.push_back(atom);
  symbol_atoms_.push_back(&atoms_.back());
  return &atoms_.back();
}

Dim DimTable::new_symbol(SymbolKind kind, std::string_view name, int64_t min, int64_t max) {
  std::string unique(name);
  if (names_.count(unique)) {
    uint32_t &suffix = next_suffix_[unique];
    std::string candidate;
    do candidate = unique + "_" + std::to_string(++suffix);
    while (names_.count(candidate));
    unique = candidate;
  }
  DimSymbol symbol;
  symbol.id = static_cast<uint32_t>(symbols_.size());
  symbol.kind = kind;
  symbol.name = unique;
  symbol.min = min;
  symbol.max = max;
  symbols_.push_back(symbol);
  names_.emplace(unique, symbol.id);
  return of_atom(intern_symbol(&symbols_.back()));
}

Dim DimTable::model_symbol(std::string_view name) {
  if (auto it = names_.find(std::string(name)); it != names_.end()) return of_atom(symbol_atoms_[it->second]);
  return new_symbol(SymbolKind::kModel, name);
}

Dim DimTable::new_loop(std::string_view name, Dim extent) {
  // A loop made of i_3 is another i, not i_3_1.
  const size_t end = name.find_last_not_of("0123456789");
  if (end != std::string_view::npos && end > 0 && end + 1 < name.size() && name[end] == '_') name = name.substr(0, end);
  const Dim d = new_symbol(SymbolKind::kLoop, name);
  symbols_.back().extent = extent;
  return d;
}

Dim DimTable::scalar_symbol(uint32_t scalar, Dim extent) {
  const std::string name = "$" + std::to_string(scalar) + "<" + extent.str();
  if (auto it = names_.find(name); it != names_.end()) return of_atom(symbol_atoms_[it->second]);
  const Dim d = new_symbol(SymbolKind::kScalar, name);
  symbols_.back().extent = extent;
  symbols_.back().scalar = scalar;
  return d;
}

DimSymbol *DimTable::find(std::string_view name) {
  auto it = names_.find(std::string(name));
  return it == names_.end() ? nullptr : &symbols_[it->second];
}

void DimTable::set_bounds(const DimSymbol *symbol, int64_t min, int64_t max) {
  DimSymbol &s = symbols_[symbol->id];
  s.min = std::max(s.min, min);
  s.max = std::min(s.max, max);
}

Dim DimTable::of_atom(const DimAtom *atom) { return polynomial(0, {{1, {atom}}}); }

Dim DimTable::polynomial(int64_t constant, std::vector<DimTerm> terms) {
  merge(terms);
  while (recombine(terms, constant)) {
  }
  // What is no value stays none: next to other terms it would be taken for a number.
  if (!terms.empty() && (is_beyond(constant) || std::any_of(terms.begin(), terms.end(),
                                                            [](const DimTerm &t) { return is_beyond(t.coefficient); })))
    return Dim(kDimOverflow);
  if (terms.empty()) return Dim(constant);
  std::string key = std::to_string(constant);
  for (const DimTerm &t : terms) {
    key += '+';
    key += std::to_string(t.coefficient);
    for (const DimAtom *a : t.atoms) {
      key += '*';
      key += std::to_string(a->id);
    }
  }
  auto it = node_index_.find(key);
  if (it == node_index_.end()) {
    DimNode node;
    node.table = this;
    node.id = static_cast<uint32_t>(nodes_.size());
    node.constant = constant;
    node.terms = std::move(terms);
    nodes_.push_back(std::move(node));
    it = node_index_.emplace(std::move(key), &nodes_.back()).first;
    if (dim_size(Dim(&nodes_.back(), 0)) > kMaxDimSize) nodes_.back().terms.clear();  // measured once, never given
  }
  if (it->second->terms.empty()) return Dim(kDimOverflow);
  return Dim(it->second, 0);
}

Dim DimTable::atom(AtomKind kind, Dim a, Dim b) {
  auto part = [](Dim d) { return d.node() ? "n" + std::to_string(d.node()->id) : "c" + std::to_string(d.value()); };
  std::string key = std::to_string(static_cast<int>(kind)) + part(a) + part(b);
  auto it = atom_index_.find(key);
  if (it == atom_index_.end()) {
    DimAtom atom;
    atom.id = static_cast<uint32_t>(atoms_.size());
    atom.kind = kind;
    atom.a = a;
    atom.b = b;
    atoms_.push_back(atom);
    it = atom_index_.emplace(std::move(key), &atoms_.back()).first;
  }
  return of_atom(it->second);
}

Dim operator+(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) return Dim(sat_add(a.value(), b.value()));
  std::vector<DimTerm> terms;
  append_terms(terms, a, 1);
  append_terms(terms, b, 1);
  return table_of(a, b)->polynomial(sat_add(constant_of(a), constant_of(b)), std::move(terms));
}

Dim operator-(Dim a) { return a * Dim(-1); }
Dim operator-(Dim a, Dim b) { return a + (-b); }

Dim operator*(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) return Dim(sat_mul(a.value(), b.value()));
  if (a.is(0) || b.is(0)) return Dim(0);
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  if (a.node() && b.node() && a.node()->terms.size() * b.node()->terms.size() > kMaxDimSize) return Dim(kDimOverflow);
  std::vector<DimTerm> terms;
  append_terms(terms, a, constant_of(b));
  append_terms(terms, b, constant_of(a));
  if (a.node() && b.node())
    for (const DimTerm &x : a.node()->terms)
      for (const DimTerm &y : b.node()->terms)
        terms.push_back({sat_mul(x.coefficient, y.coefficient), with_atoms(x.atoms, y.atoms)});
  return table_of(a, b)->polynomial(sat_mul(constant_of(a), constant_of(b)), std::move(terms));
}

namespace {

// a = quotient * b + remainder, splitting off every term that b divides.
void split(Dim a, Dim b, Dim &quotient, Dim &remainder) {
  quotient = 0;
  remainder = a;
  if (a == b) {
    quotient = 1;
    remainder = 0;
    return;
  }
  const auto monomial = as_monomial(b);
  if (!monomial) {
    // A divisor of several terms: only whole multiples of it are split off.
    if (b.node() && a.node()) {
      const DimTerm &lead = b.node()->terms.back();
      for (const DimTerm &t : a.node()->terms) {
        const auto rest = without_atoms(t.atoms, lead.atoms);
        if (!rest || t.coefficient % lead.coefficient != 0) continue;
        Dim factor = rest->empty() ? Dim(t.coefficient / lead.coefficient)
                                   : a.node()->table->polynomial(0, {{t.coefficient / lead.coefficient, *rest}});
        const Dim left = a - factor * b;
        const size_t before = a.node()->terms.size(), after = left.node() ? left.node()->terms.size() : 0;
        if (after + b.node()->terms.size() <= before) {
          Dim q, r;
          split(left, b, q, r);
          quotient = q + factor;
          remainder = r;
          return;
        }
      }
    }
    return;
  }
  DimTable *table = table_of(a, b);
  std::vector<DimTerm> q, r;
  int64_t q_constant = 0, r_constant = 0;
  if (a.node()) {
    for (const DimTerm &t : a.node()->terms) {
      const auto rest = without_atoms(t.atoms, monomial->atoms);
      if (!rest) {
        r.push_back(t);
        continue;
      }
      const int64_t c = floor_div_i(t.coefficient, monomial->coefficient);
      const int64_t left = t.coefficient - c * monomial->coefficient;
      if (left != 0) {  // only whole multiples: a left-over coefficient would leave the term in both parts
        r.push_back(t);
        continue;
      }
      if (rest->empty())
        q_constant = sat_add(q_constant, c);
      else
        q.push_back({c, *rest});
    }
  }
  r_constant = constant_of(a);
  if (monomial->atoms.empty()) {
    const int64_t c = floor_div_i(r_constant, monomial->coefficient);
    q_constant = sat_add(q_constant, c);
    r_constant -= c * monomial->coefficient;
  }
  quotient = table->polynomial(q_constant, std::move(q));
  remainder = table->polynomial(r_constant, std::move(r));
}

int64_t content(Dim d, bool with_constant) {  // gcd of the coefficients
  int64_t g = with_constant ? std::abs(constant_of(d)) : 0;
  if (d.node())
    for (const DimTerm &t : d.node()->terms) g = std::gcd(g, std::abs(t.coefficient));
  return g;
}
Dim scaled_down(Dim d, int64_t g) {  // g divides every coefficient; the constant is floored
  if (d.is_constant()) return Dim(floor_div_i(d.value(), g));
  std::vector<DimTerm> terms = d.node()->terms;
  for (DimTerm &t : terms) t.coefficient /= g;
  return d.node()->table->polynomial(floor_div_i(d.node()->constant, g), std::move(terms));
}

}  // namespace

Dim floor_div(Dim a, Dim b) {
  if (b.is_constant() && b.value() <= 0) return Dim(kDimOverflow);
  if (a.is_constant() && is_beyond(a.value())) return a;
  if (a.is_constant() && b.is_constant()) return Dim(floor_div_i(a.value(), b.value()));
  if (b.is(1)) return a;
  if (a.is(0)) return Dim(0);
  Dim q, r;
  split(a, b, q, r);
  if (r.is(0)) return q;
  if (proved_in_range(r, b)) return q;
  if (b.is_constant()) {
    // floor((g x + c) / (g b')) = floor((x + floor(c/g)) / b')
    if (const int64_t g = std::gcd(content(r, false), b.value()); g > 1)
      return q + floor_div(scaled_down(r, g), Dim(b.value() / g));
    // floor(floor(x / c) / b) = floor(x / (c b))
    if (const DimAtom *atom = only_atom(r, AtomKind::kFloorDiv); atom && atom->b.is_constant())
      return q + floor_div(atom->a, Dim(sat_mul(atom->b.value(), b.value())));
  }
  return q + table_of(a, b)->atom(AtomKind::kFloorDiv, r, b);
}

Dim ceil_div(Dim a, Dim b) { return floor_div(a + b - Dim(1), b); }

Dim mod(Dim a, Dim b) {
  if (b.is_constant() && b.value() <= 0) return Dim(kDimOverflow);
  if (a.is_constant() && is_beyond(a.value())) return Dim(kDimOverflow);
  if (a.is_constant() && b.is_constant()) return Dim(a.value() - floor_div_i(a.value(), b.value()) * b.value());
  if (b.is(1)) return Dim(0);
  Dim q, r;
  split(a, b, q, r);
  if (r.is(0)) return Dim(0);
  if (proved_in_range(r, b)) return r;
  if (b.is_constant()) {
    const int64_t g = std::gcd(content(r, true), b.value());
    if (g > 1) return Dim(g) * mod(scaled_down(r, g), Dim(b.value() / g));
    // (x mod (k b)) mod b = x mod b
    if (const DimAtom *atom = only_atom(r, AtomKind::kMod);
        atom && atom->b.is_constant() && atom->b.value() % b.value() == 0)
      return mod(atom->a, b);
  }
  return table_of(a, b)->atom(AtomKind::kMod, r, b);
}

Dim min(Dim a, Dim b) {
  if (proved_at_least(b, a)) return a;
  if (proved_at_least(a, b)) return b;
  if (a.node() && b.node() ? a.node()->id > b.node()->id : !a.node()) std::swap(a, b);
  // min(min(x, c), b) of numbers b and c: c is the weaker one, or the result were proved.
  if (const DimAtom *atom = only_atom(a, AtomKind::kMin); atom && b.is_constant() && atom->b.is_constant())
    return min(atom->a, b);
  return table_of(a, b)->atom(AtomKind::kMin, a, b);
}

Dim max(Dim a, Dim b) {
  if (proved_at_least(a, b)) return a;
  if (proved_at_least(b, a)) return b;
  if (a.node() && b.node() ? a.node()->id > b.node()->id : !a.node()) std::swap(a, b);
  // max(max(x, c), b) of numbers b and c: c is the weaker one, or the result were proved.
  if (const DimAtom *atom = only_atom(a, AtomKind::kMax); atom && b.is_constant() && atom->b.is_constant())
    return max(atom->a, b);
  return table_of(a, b)->atom(AtomKind::kMax, a, b);
}

bool divisible_by(Dim d, int64_t divisor) {
  if (d.is_constant()) return d.value() % divisor == 0;
  if (d.node()->constant % divisor != 0) return false;
  for (const DimTerm &t : d.node()->terms) {
    int64_t g = t.coefficient;
    for (const DimAtom *a : t.atoms)
      if (a->kind == AtomKind::kSymbol) g = sat_mul(g, a->symbol->multiple);
    if (g % divisor != 0) return false;
  }
  return true;
}

std::optional<Dim> exact_div(Dim a, Dim b) {
  if (b.is_constant() && b.value() <= 0) return std::nullopt;
  if (a.is_constant() && b.is_constant())
    return a.value() % b.value() == 0 ? std::optional<Dim>(a.value() / b.value()) : std::nullopt;
  if (a.is(0)) return Dim(0);
  Dim q, r;
  split(a, b, q, r);
  return r.is(0) ? std::optional<Dim>(q) : std::nullopt;
}

}  // namespace optc
