#pragma once
// Integers as dimensions use them: saturating at +-kDimOverflow, division rounding down.

#include <cstdint>

#include "ir/dim/dim.h"

namespace optc {

inline int64_t clamp_size(__int128 v) {
  if (v >= kDimOverflow) return kDimOverflow;
  if (v <= -kDimOverflow) return -kDimOverflow;
  return static_cast<int64_t>(v);
}
inline bool is_beyond(int64_t v) { return v >= kDimOverflow || v <= -kDimOverflow; }  // a saturated number
inline int64_t sat_add(int64_t a, int64_t b) {
  return is_beyond(a) ? a : is_beyond(b) ? b : clamp_size(static_cast<__int128>(a) + b);
}
inline int64_t sat_mul(int64_t a, int64_t b) { return clamp_size(static_cast<__int128>(a) * b); }
inline int64_t floor_div_i(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q * b != a && ((a < 0) != (b < 0)) ? q - 1 : q;
}

// The same by a divisor of a run, which may not be positive: then 0, and the dividend as the rest.
inline int64_t quotient_i(int64_t a, int64_t b) { return b <= 0 ? 0 : floor_div_i(a, b); }
inline int64_t rest_i(int64_t a, int64_t b) { return a - quotient_i(a, b) * b; }

// The constant term of a sum.
inline int64_t constant_of(Dim d) { return d.node() ? d.node()->constant : d.value(); }

// The atom, when d is exactly one.
inline const DimAtom *only_atom(Dim d) {
  if (!d.node() || d.node()->constant != 0 || d.node()->terms.size() != 1) return nullptr;
  const DimTerm &t = d.node()->terms[0];
  return t.coefficient == 1 && t.atoms.size() == 1 ? t.atoms[0] : nullptr;
}
inline const DimAtom *only_atom(Dim d, AtomKind kind) {
  const DimAtom *atom = only_atom(d);
  return atom && atom->kind == kind ? atom : nullptr;
}

}  // namespace optc
