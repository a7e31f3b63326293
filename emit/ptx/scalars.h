#pragma once
// Scalar expressions and index expressions of a Program as LLVM IR.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "emit/ptx/builder.h"
#include "emit/ptx/ptx.h"
#include "ir/program/access.h"
#include "ir/program/program.h"

namespace optc::ptx {

// A kernel under construction: the builder, and where its buffers and symbols are.
struct KernelContext {
  const Program &program;
  Builder &b;
  std::vector<std::pair<BufferId, Value>> pointers;          // roots
  std::vector<std::pair<const DimSymbol *, Value>> symbols;  // i32, of the model
  Value workspace = nullptr;                                 // where the draft asked for it
  Value fault = nullptr;                                     // of a kernel that computes indices (PtxArgument::kFault)
  Values maps;                                               // the addresses of the draft's tensor maps
  bool reads_are_invariant = true;  // no buffer that is read shares memory with one that is written
  Value pointer(BufferId root) const;
};

// The types that arithmetic is done in; 16-bit ones go through f32.
inline bool wide_float(ElementType t) { return t == ElementType::kFloat32 || t == ElementType::kFloat64; }

llvm::Type *storage_type(Builder &b, ElementType type);   // in memory: bool is i8, bf16 is i16
llvm::Type *register_type(Builder &b, ElementType type);  // in a register: bool is i1, f16 is half, bf16 is i16
unsigned storage_size(ElementType type);                  // bytes
Value to_storage(Builder &b, ElementType type, Value v);
Value from_storage(Builder &b, ElementType type, Value v);
Value constant_value(Builder &b, ElementType type, uint64_t bits);

// A point in straight-line code: the values of loop symbols and locals, with a cache of what was computed there. With
// `lanes` > 1 the symbol `vector_symbol` stands for that many consecutive values, of which the scope's value is the
// first, a multiple of `lanes`.
class Scope {
 public:
  explicit Scope(KernelContext &context) : k_(context) { caches_.emplace_back(); }
  KernelContext &context() { return k_; }
  void set(const DimSymbol *symbol, Value i32_value) { symbols_[symbol] = i32_value; }
  void vectorize(const DimSymbol *symbol, int lanes) {
    vector_symbol_ = lanes > 1 ? symbol : nullptr;
    lanes_ = lanes;
    depends_.clear();
  }
  int lanes() const { return lanes_; }
  // A loop that was merged into its inner neighbour: its counter stays 0.
  void set_zero(const DimSymbol *symbol) {
    zeros_.push_back(symbol);
    set(symbol, k_.b.i32(0));
  }
  // Reads of locals: (the scope that reads, so that indices see its counters; the kLocal scalar; lane) -> value.
  std::function<Value(Scope &, const Scalar &, int lane)> read_local;
  // Operands that a template supplies in place of an expression.
  void define(ScalarId id, Value v) { defined_[id.index] = v; }

  Value scalar(ScalarId id, int lane = 0);
  // Emits the loads of `id` that are always made, before anything is computed of them: they are in flight together.
  void fetch(ScalarId id);
  Value index(Dim d, int lane = 0, bool wide = false);  // i32, or i64 when wide
  Value condition(ScalarId id, int lane = 0);           // i1; true when id is invalid
  // The value of `id` where `taken` (i1) holds, anything elsewhere; loads stay in range where it does not hold.
  Value guarded(ScalarId id, ScalarId condition, Value taken, int lane = 0);
  // From here on only loads where `taken` (i1) holds are in range.
  void only_where(Value taken) { guard_ = taken; }
  // The address of an element, and whether the Dim's lane 0 .. lanes-1 are contiguous and aligned there.
  Value address(BufferId buffer, const std::vector<Dim> &index, int lane = 0);
  bool contiguous(BufferId buffer, const std::vector<Dim> &index) const;
  // Stores lanes values (one when lanes is 1) at `index`.
  void store(BufferId buffer, const std::vector<Dim> &index, const Values &values);
  bool depends(ScalarId id);  // on the vector symbol
  bool depends(Dim d);

 private:
  Value compute(const Scalar &s, int lane);
  Value load(const Scalar &s, int lane);
  Value symbol(const DimSymbol *s, int lane);
  Value checked_index(const DimSymbol &s, int lane);  // i32, inside its dimension; one outside is reported
  Value unary(const Scalar &s, ElementType from, Value a);
  Value binary(const Scalar &s, ElementType from, Value a, Value b);
  Value cast(ElementType from, ElementType to, Value a);

  KernelContext &k_;
  std::unordered_map<const DimSymbol *, Value> symbols_;
  const DimSymbol *vector_symbol_ = nullptr;
  int lanes_ = 1;
  std::unordered_map<uint32_t, Value> defined_;
  std::vector<const DimSymbol *> zeros_;
  std::unordered_set<uint32_t> fetched_;
  struct Cache {
    std::map<std::pair<uint32_t, int>, Value> values,
        indices;  // by scalar (of indices: the one behind the symbol), lane
  };
  std::vector<Cache> caches_;  // one level for each branch of a select that we are in
  std::unordered_map<uint32_t, bool> depends_;
  Value guard_ = nullptr;  // i1: the branch that we are in is taken; loads outside it may be out of range
  bool guard_varies_ = false;
};

// Combining of reductions.
Value identity(Builder &b, Combine combine, ElementType type);
Value combine(Builder &b, Combine how, ElementType type, Value x, Value y);

}  // namespace optc::ptx
