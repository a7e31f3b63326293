// Lanes that meet a border: the window of a pool beside its image, the margin of a Pad. There an index is held inside
// of its dimension by minima and maxima, and a guard says which lanes lie inside. Away from the border each of those
// has one answer for all lanes; the part of the loop where that is so runs by plain loads.
#include <algorithm>

#include "ir/program/nest_plan.h"

namespace optc {
namespace {

constexpr int64_t kSize = 64;  // taken for a size that is not known: where the greater part of a loop is asked for

bool is_extreme(const DimAtom &atom) { return atom.kind == AtomKind::kMin || atom.kind == AtomKind::kMax; }

// The atom and its coefficient, when `d` is one term of one atom.
const DimAtom *one_atom(Dim d, int64_t &coefficient) {
  if (!d.node() || d.node()->constant != 0 || d.node()->terms.size() != 1) return nullptr;
  const DimTerm &term = d.node()->terms[0];
  coefficient = term.coefficient;
  return term.atoms.size() == 1 ? term.atoms[0] : nullptr;
}

}  // namespace

// The part of `d` whose terms move with the lanes, and the rest.
std::pair<Dim, Dim> NestPlan::moving_part(Dim d) {
  if (!d.node()) return {0, d};
  DimTable &table = *d.node()->table;
  std::vector<DimTerm> moving, rest;
  for (const DimTerm &t : d.node()->terms) (dim_varies(table.polynomial(0, {t})) ? moving : rest).push_back(t);
  return {table.polynomial(0, std::move(moving)), table.polynomial(d.node()->constant, std::move(rest))};
}

// rest + max(min(at, high), low), where `at` has a constant step in the lanes. The bounds may be missing, or nested the
// other way round, which is the same where low <= high.
std::optional<NestPlan::Held> NestPlan::held(Dim offset) {
  auto [moving, rest] = moving_part(offset);
  Held result{rest, moving, 0, {}, {}};
  int64_t coefficient = 0;
  for (const DimAtom *atom = one_atom(moving, coefficient); atom && is_extreme(*atom);
       atom = one_atom(result.at, coefficient)) {
    const bool first = dim_varies(atom->a);
    if (coefficient != 1 || first == dim_varies(atom->b)) return std::nullopt;
    std::optional<Dim> &bound = atom->kind == AtomKind::kMin ? result.high : result.low;
    if (bound) return std::nullopt;
    bound = first ? atom->b : atom->a;
    result.at = first ? atom->a : atom->b;
  }
  if (!result.low && !result.high) return std::nullopt;
  if (result.low && result.high && !proved_at_least(*result.high, *result.low)) return std::nullopt;
  const auto part = affine_in(result.at, lanes_);
  if (!part || !part->coefficient.is_constant() || dim_varies(part->rest)) return std::nullopt;
  result.step = part->coefficient.value();
  if (result.step < 1 || result.step > 64) return std::nullopt;
  return result;
}

// Whether integer lanes can compute `d`: sums of products of one moving factor, a counter or an extreme of such sums.
bool NestPlan::dim_in_lanes(Dim d) {
  if (!dim_varies(d)) return true;
  for (const DimTerm &t : d.node()->terms) {
    int moving = 0;
    for (const DimAtom *atom : t.atoms) {
      if (!dim_varies(d.node()->table->of_atom(atom))) continue;
      if (++moving > 1) return false;
      if (atom->kind == AtomKind::kSymbol ? atom->symbol != lanes_
                                          : !is_extreme(*atom) || !dim_in_lanes(atom->a) || !dim_in_lanes(atom->b))
        return false;
    }
  }
  return true;
}

// `d` with the symbols that stand for sizes and counters in the middle of their ranges.
std::optional<int64_t> NestPlan::in_the_middle(Dim d) {
  const DimValues values = [&](const DimSymbol &s) -> std::optional<int64_t> {
    if (s.kind == SymbolKind::kScalar) return std::nullopt;
    if (s.kind != SymbolKind::kLoop) return std::clamp(kSize, s.min, s.max);
    const auto extent = in_the_middle(extent_of(s));
    return extent ? std::optional<int64_t>(std::max<int64_t>(0, (*extent - 1) / 2)) : std::nullopt;
  };
  return evaluate(d, values);
}

Dim NestPlan::extent_of(const DimSymbol &loop) const {
  const auto is_it = [&](const Loop &l) { return l.index == &loop; };
  for (const StagePlan &plan : plans_)
    if (const auto at = std::find_if(plan.loops.begin(), plan.loops.end(), is_it); at != plan.loops.end())
      return fix(at->extent);
  if (const auto at = std::find_if(outer_.begin(), outer_.end(), is_it); at != outer_.end()) return fix(at->extent);
  return fix(loop.extent);
}

// Narrows the interior to where e >= 0 whatever the loops inside of the lanes do; false: that is not seen.
bool NestPlan::narrow(Dim e) {
  // c * floor(p / q) + r, c = 1 or -1: by p.
  const auto [moving, still] = moving_part(e);
  int64_t c = 0;
  if (const DimAtom *atom = one_atom(moving, c);
      atom && atom->kind == AtomKind::kFloorDiv && atom->b.is_constant() && atom->b.value() > 0) {
    if (c == 1) return narrow(atom->a + still * atom->b);
    if (c == -1) return narrow((still + 1) * atom->b - atom->a - 1);
    return false;
  }
  const auto part = affine_in(e, lanes_);
  if (!part || !part->coefficient.is_constant() || part->coefficient.is(0)) return false;
  Dim least = part->rest;
  for (const StagePlan &plan : plans_)
    for (const Loop &l : plan.loops) {
      if (!uses_symbol(least, l.index)) continue;
      const auto inner = affine_in(least, l.index);
      if (!inner || !inner->coefficient.is_constant()) return false;
      const Dim last = inner->coefficient.value() < 0 ? fix(l.extent) - 1 : Dim(0);
      least = inner->rest + inner->coefficient * last;
    }
  std::vector<const DimSymbol *> symbols;
  collect_symbols(least, symbols);
  for (const DimSymbol *s : symbols)
    if (s->kind == SymbolKind::kScalar) return false;
  const int64_t step = part->coefficient.value();
  if (step > 0)
    interior_->begin = max(interior_->begin, ceil_div(-least, step));
  else
    interior_->end = min(interior_->end, floor_div(least, -step) + 1);
  return true;
}

// Decides what moves with the lanes and has one answer in the middle of their loop: whether e >= 0. `ties`: where e is
// 0, either answer will do.
std::optional<bool> NestPlan::decide(Dim e, bool ties) {
  const auto middle = in_the_middle(e);
  if (!middle) return std::nullopt;
  const bool yes = *middle >= 0;
  if (!narrow(yes ? e : ties ? -e : -e - 1)) return std::nullopt;
  return yes;
}

// `d` in the interior: each extreme that moves with the lanes is the one of its sides that holds there. nullopt: that
// is not seen of one.
std::optional<Dim> NestPlan::in_interior(Dim d) {
  if (!dim_varies(d)) return d;
  Dim sum = d.node()->constant;
  for (const DimTerm &t : d.node()->terms) {
    Dim product = t.coefficient;
    for (const DimAtom *atom : t.atoms) {
      Dim factor = d.node()->table->of_atom(atom);
      if (atom->kind != AtomKind::kSymbol && dim_varies(factor)) {
        const auto a = in_interior(atom->a), b = in_interior(atom->b);
        if (!a || !b) return std::nullopt;
        const bool is_min = atom->kind == AtomKind::kMin;
        if (!is_extreme(*atom)) {
          factor = atom->kind == AtomKind::kFloorDiv ? floor_div(*a, *b) : mod(*a, *b);
        } else if (!dim_varies(*a - *b)) {
          factor = is_min ? min(*a, *b) : max(*a, *b);
        } else {
          const auto known = sides_.find(atom);
          const auto first = known != sides_.end() ? std::optional<bool>(known->second) : decide(*a - *b, true);
          if (!first) return std::nullopt;
          sides_[atom] = *first;
          factor = *first == is_min ? *b : *a;
        }
      }
      product = product * factor;
    }
    sum = sum + product;
  }
  return sum;
}

// The value of a counter or of a constant.
std::optional<Dim> NestPlan::integer(ScalarId id) const {
  const Scalar &s = program_.scalars.at(id);
  if (s.op == ScalarOp::kIndex) return fix(s.index_value);
  if (s.op == ScalarOp::kConstant && s.type == ElementType::kInt64) return Dim(static_cast<int64_t>(s.bits));
  return std::nullopt;
}

// Once the lanes are chosen: the interior of their loop, where each index that moves with them is affine.
void NestPlan::find_interior() {
  constexpr int64_t kShortest = 8;
  interior_ = Interior{0, extent_of(*lanes_)};
  bool held_any = false, seen = true;
  for (const StagePlan &plan : plans_)
    for (const Item &item : plan.order) {
      if (item.index) continue;
      const Scalar &s = program_.scalars.at(item.id);
      const bool load = s.op == ScalarOp::kLoad;
      if (!load && s.op != ScalarOp::kIndex) continue;
      const Dim d = load ? load_offset(s) : fix(s.index_value);
      if (!dim_varies(d) || affine_in(d, lanes_)) continue;
      held_any = true;
      const auto inside = in_interior(d);
      const auto part = inside ? affine_in(*inside, lanes_) : std::nullopt;
      seen = seen && part && part->coefficient.is_constant() && (!load || part->coefficient.value() > 0);
    }
  const auto length = [&] { return interior_->end - interior_->begin; };
  if (!held_any || !seen || (length().is_constant() && length().value() < kShortest)) {
    interior_.reset();
    return;
  }
  // Guards: one whose answer is not seen is computed there as elsewhere.
  for (const StagePlan &plan : plans_)
    for (const Item &item : plan.order) {
      if (item.index) continue;
      const Scalar &s = program_.scalars.at(item.id);
      if ((s.op != ScalarOp::kLt && s.op != ScalarOp::kLe) || !varies(item.id)) continue;
      const auto a = integer(s.args[0]), b = integer(s.args[1]);
      if (!a || !b) continue;
      const auto low = in_interior(*a), high = in_interior(*b);
      if (!low || !high) continue;
      const Dim e = *high - *low - Dim(s.op == ScalarOp::kLt ? 1 : 0);
      if (!dim_varies(e)) continue;
      if (const auto holds = decide(e, false)) guards_[item.id.index] = *holds;
    }
  if (length().is_constant() && length().value() < kShortest) {
    interior_.reset();
    guards_.clear();
  }
}

}  // namespace optc
