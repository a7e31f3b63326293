#pragma once
// Dim: an integer expression, interned and kept in one canonical form. It serves three purposes with one algebra:
//   * the dimensions of tensors: "static" is the case where every Dim is a constant;
//   * the indices of loads and stores in a Program, whose symbols are loop counters;
//   * the values of small integer tensors that only compute shapes.
//
// Canonical form: a polynomial over atoms with int64 coefficients. An atom is a symbol, floor_div(a, b), mod(a, b),
// min(a, b) or max(a, b). Two Dims of one table are equal iff the same canonical form; `==` is a pointer comparison.
//   x floor_div and mod follow Python; a divisor that is not positive in some run gives 0, and the dividend as the
//   rest, in the evaluator and in emitted code. They recombine: c*b*(a floor_div b) + c*(a mod b) = c*a.
// Arithmetic that leaves int64 saturates to kDimOverflow, and so does what is computed from that; importers check
// products of static dims before they trust them.
//
// A DimTable owns the interned nodes; Graph and the Programs made of it share one. Dims that are constants belong to no
// table. Not thread-safe.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace optc {

class DimTable;
struct DimNode;
struct DimAtom;

inline constexpr int64_t kDimOverflow = int64_t{1} << 62;

class Dim {
 public:
  Dim() = default;                       // 0
  Dim(int64_t value) : value_(value) {}  // NOLINT: a number is a Dim
  bool is_constant() const { return node_ == nullptr; }
  int64_t value() const { return value_; }  // is_constant() only
  bool is(int64_t v) const { return node_ == nullptr && value_ == v; }
  const DimNode *node() const { return node_; }  // null for constants
  std::string str() const;                       // "2*N*S + 1", "(N*12) / 5", "(a) % 4", "min(a, b)"
  friend bool operator==(Dim a, Dim b) { return a.node_ == b.node_ && a.value_ == b.value_; }

 private:
  friend class DimTable;
  Dim(const DimNode *node, int64_t) : node_(node) {}
  const DimNode *node_ = nullptr;
  int64_t value_ = 0;
};

enum class SymbolKind : uint8_t {
  kModel,   // a named dimension of the model; its value is read off an input's dims
  kData,    // a size that a kernel finds while it runs (NonZero, Unique); defined once by that kernel
  kLoop,    // a loop counter, 0 <= s < extent
  kScalar,  // an index computed by a scalar expression of a Program (a gathered index); DimSymbol::scalar says which
};

struct DimSymbol {
  uint32_t id = 0;
  SymbolKind kind = SymbolKind::kModel;
  std::string name;
  int64_t min = 0;               // known bounds, inclusive
  int64_t max = kDimOverflow;    // kDimOverflow: unbounded
  int64_t multiple = 1;          // the value is a multiple of this
  Dim extent;                    // kLoop and kScalar: 0 <= s < extent (min is 0 then)
  uint32_t scalar = UINT32_MAX;  // kScalar: index of the ScalarId in its Program
};

enum class AtomKind : uint8_t { kSymbol, kFloorDiv, kMod, kMin, kMax };

struct DimAtom {
  uint32_t id = 0;  // order of creation; terms sort by it
  AtomKind kind = AtomKind::kSymbol;
  const DimSymbol *symbol = nullptr;  // kSymbol
  Dim a, b;                           // the others
};

struct DimTerm {
  int64_t coefficient = 0;
  std::vector<const DimAtom *> atoms;  // sorted by id, repeats are powers; never empty
};

struct DimNode {
  DimTable *table = nullptr;
  uint32_t id = 0;
  int64_t constant = 0;
  std::vector<DimTerm> terms;  // sorted, no two with the same atoms, no zero coefficient; never empty
};

class DimTable {
 public:
  DimTable() = default;
  DimTable(const DimTable &) = delete;
  DimTable &operator=(const DimTable &) = delete;

  // The model's dimension of that name; the same name gives the same symbol.
  Dim model_symbol(std::string_view name);
  // A new symbol; the name gets a numeric suffix when it is taken.
  Dim new_symbol(SymbolKind kind, std::string_view name, int64_t min = 0, int64_t max = kDimOverflow);
  Dim new_loop(std::string_view name, Dim extent);
  Dim scalar_symbol(uint32_t scalar, Dim extent);  // one symbol a scalar and extent
  DimSymbol *find(std::string_view name);          // null when there is none
  DimSymbol *symbol(uint32_t id) { return &symbols_[id]; }
  Dim symbol_value(const DimSymbol *symbol) {
    return of_atom(symbol_atoms_[symbol->id]);
  }  // the Dim that is just this symbol
  // Narrows the bounds of a symbol (for --dim and for facts that operators prove). Interned expressions stay as they
  // are.
  void set_bounds(const DimSymbol *symbol, int64_t min, int64_t max);

  Dim polynomial(int64_t constant, std::vector<DimTerm> terms);  // brings into canonical form
  Dim atom(AtomKind kind, Dim a, Dim b);
  Dim of_atom(const DimAtom *atom);
  size_t symbol_count() const { return symbols_.size(); }

 private:
  const DimAtom *intern_symbol(DimSymbol *symbol);
  std::deque<DimSymbol> symbols_;
  std::deque<DimAtom> atoms_;
  std::deque<DimNode> nodes_;
  std::vector<const DimAtom *> symbol_atoms_;
  std::unordered_map<std::string, const DimNode *> node_index_;
  std::unordered_map<std::string, const DimAtom *> atom_index_;
  std::unordered_map<std::string, uint32_t> names_;
  std::unordered_map<std::string, uint32_t> next_suffix_;
};

Dim operator+(Dim a, Dim b);
Dim operator-(Dim a, Dim b);
Dim operator*(Dim a, Dim b);
Dim operator-(Dim a);
inline Dim &operator+=(Dim &a, Dim b) { return a = a + b; }
inline Dim &operator*=(Dim &a, Dim b) { return a = a * b; }
Dim floor_div(Dim a, Dim b);  // b > 0 (a constant b <= 0 gives kDimOverflow)
Dim ceil_div(Dim a, Dim b);
Dim mod(Dim a, Dim b);
Dim min(Dim a, Dim b);
Dim max(Dim a, Dim b);

// Bounds that are proved from the symbols' bounds and extents; ±kDimOverflow when nothing is known.
int64_t lower_bound(Dim d);
int64_t upper_bound(Dim d);
bool proved_at_least(Dim a, Dim b);           // a >= b for all values of the symbols
bool proved_less(Dim a, Dim b);               // a < b
bool proved_in_range(Dim index, Dim extent);  // 0 <= index < extent
bool divisible_by(Dim d, int64_t divisor);    // proved
std::optional<Dim> exact_div(Dim a, Dim b);   // a / b where b divides a for all values, else nullopt

// The value under the given symbols' values; nullopt if one is missing.
using DimValues = std::function<std::optional<int64_t>(const DimSymbol &)>;
std::optional<int64_t> evaluate(Dim d, const DimValues &values);
// Replaces symbols; those for which the function gives nullopt stay.
using DimSubstitution = std::function<std::optional<Dim>(const DimSymbol &)>;
Dim substitute(Dim d, const DimSubstitution &replacement);
void collect_symbols(Dim d, std::vector<const DimSymbol *> &out);  // each once, in order of first appearance
bool uses_symbol(Dim d, const DimSymbol *symbol);

// The affine view of an index: d = coefficient * symbol + rest, with `symbol` in no atom of rest and coefficient free
// of loop counters. nullopt when the symbol occurs inside a division, mod, min, max or to a power.
struct AffinePart {
  Dim coefficient, rest;
};
std::optional<AffinePart> affine_in(Dim d, const DimSymbol *symbol);

Dim settle(Dim d);                      // symbols whose bounds leave one value become that value
const DimSymbol *single_symbol(Dim d);  // the symbol, when d is exactly one; else null

// Parses what str() prints (and what users give: "N", "2*N+1"). Unknown names become model symbols. nullopt on bad
// syntax.
std::optional<Dim> parse_dim(std::string_view text, DimTable &table);

}  // namespace optc

template <>
struct std::hash<optc::Dim> {
  size_t operator()(optc::Dim d) const noexcept {
    return d.is_constant() ? std::hash<int64_t>()(d.value()) : std::hash<const void *>()(d.node()) * 31;
  }
};
