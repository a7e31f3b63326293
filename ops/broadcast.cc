// Broadcasting of dims that the run decides, and other conditions between dims.

#include <algorithm>
#include <optional>
#include <vector>

#include "ir/dim/saturation.h"
#include "ops/conditions.h"
#include "ops/registry.h"

namespace optc {
namespace {

// Skip connections whose sizes an exporter did not prove equal double their dims with each layer. Beyond this size the
// simpler of two dims that must broadcast is taken, with a check at run time that it is the result.
constexpr uint64_t kLargestBroadcast = 256;

// A size as largest * present: `present` is 0 where the size is 0, else 1.
struct Parts {
  Dim largest, present;
};

// The only term of a Dim without a constant and with a coefficient of 1.
const DimTerm *plain_term(Dim d) {
  if (!d.node() || d.node()->constant != 0 || d.node()->terms.size() != 1) return nullptr;
  const DimTerm &term = d.node()->terms[0];
  return term.coefficient == 1 ? &term : nullptr;
}

Parts parts_of(Dim d) {
  if (lower_bound(d) >= 1) return {d, 1};
  if (upper_bound(d) <= 1) return {1, d};
  if (const DimTerm *term = plain_term(d); term && term->atoms.size() == 2)
    for (size_t i = 0; i < 2; ++i) {
      DimTable &table = *d.node()->table;
      const Dim present = table.of_atom(term->atoms[i]), largest = table.of_atom(term->atoms[1 - i]);
      if (lower_bound(present) >= 0 && upper_bound(present) <= 1 && proved_at_least(largest, present))
        return {largest, present};
    }
  return {d, min(d, 1)};
}

// Whether `part` is one of the operands of nested minima or maxima.
bool has_operand(Dim extreme, AtomKind kind, Dim part) {
  if (extreme == part) return true;
  const DimTerm *term = plain_term(extreme);
  if (!term || term->atoms.size() != 1 || term->atoms[0]->kind != kind) return false;
  return has_operand(term->atoms[0]->a, kind, part) || has_operand(term->atoms[0]->b, kind, part);
}

// Of two dims that are equal or one of which is 1, the size that they broadcast to: their larger one, but 0 where one
// is 0 and the other 1. The sizes of a chain of operands grow with the number of different ones.
Dim broadcast_size(Dim d, Dim e) {
  const Parts x = parts_of(d), y = parts_of(e);
  const Dim largest = has_operand(x.largest, AtomKind::kMax, y.largest) ? x.largest : max(x.largest, y.largest);
  // x.present is at most 1 already.
  const Dim last = y.present == min(e, 1) ? e : y.present;
  const Dim present = has_operand(x.present, AtomKind::kMin, last) ? x.present : min(x.present, last);
  return present == min(largest, 1) ? largest : largest * present;
}

// The one of two expressions that is the other one times something.
std::optional<Dim> multiple_of(Dim d, Dim e) {
  if (exact_div(d, e)) return d;
  return exact_div(e, d) ? std::optional<Dim>(e) : std::nullopt;
}

// Whether `d` never falls as its symbols grow: sums of symbols and of quotients of such sums by numbers.
bool never_falls(Dim d) {
  if (!d.node()) return true;
  for (const DimTerm &term : d.node()->terms) {
    if (term.coefficient < 0 || term.atoms.size() != 1) return false;
    const DimAtom &atom = *term.atoms[0];
    if (atom.kind == AtomKind::kSymbol) continue;
    if (atom.kind != AtomKind::kFloorDiv || !atom.b.is_constant() || !never_falls(atom.a)) return false;
  }
  return true;
}

// What every run needs of one dim of the inputs becomes a bound of that dim, which the signature shows and each run
// checks: later sizes are then known not to be negative. False where `needed >= least` says no such thing.
bool raise_symbol(InferContext &context, Dim needed, Dim least) {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(needed, symbols);
  if (!least.is_constant() || symbols.size() != 1 || symbols[0]->kind != SymbolKind::kModel || !never_falls(needed) ||
      !(context.node().region == Graph::main()))
    return false;
  const DimSymbol *symbol = symbols[0];
  const auto holds = [&](int64_t value) {
    const auto at = evaluate(needed, [&](const DimSymbol &) { return std::optional<int64_t>(value); });
    return at && *at >= least.value();
  };
  int64_t low = symbol->min, high = std::min<int64_t>(symbol->max, int64_t{1} << 31);
  if (low > high || !holds(high)) return false;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (holds(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  context.dims().set_bounds(symbol, high, symbol->max);
  return true;
}

}  // namespace

Status at_most(InferContext &context, Dim left, Dim right, std::string_view what) {
  if (proved_at_least(right, left)) return {};
  if (proved_less(right, left))
    return context.invalid(std::string(what) + " must be at most " + right.str() + ", but is " + left.str());
  if (!raise_symbol(context, right, left)) context.constrain(max(left, right), right);
  return {};
}

Status broadcasts_to(InferContext &context, Dim operand, Dim result, std::string_view what) {
  operand = settle(operand);
  result = settle(result);
  if (operand == result || operand.is(1)) return {};
  const bool differ =
      (operand.is_constant() && result.is_constant()) || proved_less(operand, result) || proved_less(result, operand);
  if (differ && (operand.is(0) || lower_bound(operand) > 1))
    return context.invalid(std::string(what) + " of " + operand.str() + " does not broadcast to " + result.str());
  context.constrain(result, operand, true);
  return {};
}

Status one_or_each(InferContext &context, size_t i, Dim length, std::string_view what) {
  if (!context.has_input(i)) return {};
  OPTC_TRY(context.require_shape(i));
  const Shape &shape = context.shape(i);
  if (shape.empty() || (shape.size() == 1 && shape[0].is(1))) return {};
  if (shape.size() > 1) return context.invalid(std::string(what) + " must be a scalar or a vector");
  OPTC_ASSIGN([[maybe_unused]] Dim size, context.same(shape[0], length, "the length of " + std::string(what)));
  return {};
}

Result<Shape> InferContext::broadcast(const std::vector<Shape> &shapes) {
  size_t rank = 0;
  for (const Shape &s : shapes) rank = std::max(rank, s.size());
  Shape result(rank, Dim(1));
  for (size_t k = 0; k < rank; ++k) {
    Dim d = 1;
    bool is_operand = true;   // d, and not the size of several
    std::vector<Dim> unsure;  // operands that may be 1 or must equal the result
    for (const Shape &s : shapes) {
      if (k + s.size() < rank) continue;
      Dim e = settle(s[k + s.size() - rank]);
      if (e == d || e.is(1)) continue;
      if (d.is(1)) {
        d = e;
        continue;
      }
      const auto take = [&] {
        if (is_operand) unsure.push_back(d);
        d = e;
        is_operand = true;
      };
      const bool d_not_one = lower_bound(d) > 1 || d.is(0), e_not_one = lower_bound(e) > 1 || e.is(0);
      const bool differ = (d.is_constant() && e.is_constant()) || proved_less(d, e) || proved_less(e, d);
      if (d_not_one && e_not_one && differ)
        return invalid("the shapes of the inputs do not broadcast: " + d.str() + " against " + e.str());
      if (d_not_one) {
        unsure.push_back(e);
      } else if (e_not_one) {
        take();
      } else if (const auto whole = multiple_of(d, e)) {
        // B*S against S (after a Reshape that an exporter made for B = 1): both can only be right when they are equal
        // or the smaller one is 1, and the larger one is the result either way.
        if (d == *whole) {
          unsure.push_back(e);
        } else {
          take();
        }
      } else if (const Dim size = broadcast_size(d, e); dim_size(size) <= kLargestBroadcast) {
        if (is_operand) unsure.push_back(d);
        unsure.push_back(e);
        d = size;
        is_operand = false;
      } else if (dim_size(d) <= dim_size(e)) {
        unsure.push_back(e);
      } else {
        take();
      }
    }
    for (Dim e : unsure)
      if (e != d) constrain(d, e, lower_bound(e) <= 1);
    result[k] = d;
  }
  return result;
}

}  // namespace optc
