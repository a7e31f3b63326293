#pragma once
// What the forms of a loop nest (loops.cc, rows.cc, serial.cc) share.

#include <map>
#include <unordered_map>
#include <utility>

#include "emit/ptx/draft.h"

namespace optc::ptx {

// Every index expression of some outputs: element offsets, which loops may be merged over, and those that must stay as
// they are.
struct Accesses {
  const Program &program;
  std::vector<Dim> offsets, opaque;
  std::unordered_map<uint32_t, bool> seen;

  void visit_symbols(Dim d) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols)
      if (s->kind == SymbolKind::kScalar) visit(ScalarId(s->scalar));
  }
  void visit(ScalarId id) {
    if (!id.valid() || !seen.emplace(id.index, true).second) return;
    const Scalar &s = program.scalars.at(id);
    if (s.op == ScalarOp::kLoad) offsets.push_back(root_offset(program, s.buffer, s.index));
    if (s.op == ScalarOp::kIndex) opaque.push_back(s.index_value);
    if (s.op == ScalarOp::kLocal) opaque.insert(opaque.end(), s.index.begin(), s.index.end());
    if (s.op == ScalarOp::kIndex) visit_symbols(s.index_value);
    for (Dim d : s.index) visit_symbols(d);
    for (int i = 0; i < arity(s.op); ++i) visit(s.args[i]);
  }
  void visit(const StageOutput &output) {
    visit(output.value);
    visit(output.condition);
    visit(output.initial);
    if (output.buffer.valid())
      offsets.push_back(root_offset(program, output.buffer, output.index));
    else
      opaque.insert(opaque.end(), output.index.begin(), output.index.end());
    for (Dim d : output.index) visit_symbols(d);
  }
  bool mergeable(const Loop &a, const Loop &b) const {
    for (Dim d : opaque)
      if (uses_loop(program, d, a.index) || uses_loop(program, d, b.index)) return false;
    for (Dim d : offsets) {
      auto outer = affine_in(d, a.index), inner = affine_in(d, b.index);
      if (!outer || !inner || !(outer->coefficient == inner->coefficient * b.extent)) return false;
    }
    return true;
  }
};

// Brings the loop over which the first store is contiguous to the end, and merges neighbours that every access walks as
// one.
struct LoopOrder {
  std::vector<Loop> loops;
  std::vector<const DimSymbol *> zeros;
};
LoopOrder order_loops(const Program &program, std::vector<Loop> loops, const std::vector<StageOutput> &outputs,
                      bool may_merge);

// The scalars that an index expression reads (gathered indices).
void scalar_symbols(Dim d, std::vector<ScalarId> &out);

// The values of an expression in all lanes.
Values lane_values(Scope &scope, ScalarId id);
// Stores one output of a stage that goes to a buffer.
void store_output(const Scope &at, const StageOutput &output, Value active);

// Where a local of a nest lives.
struct LocalPlace {
  Values scalar;                                      // one a lane
  Value array = nullptr;                              // per thread, or a row of shared memory
  std::map<std::pair<size_t, int>, Value> registers;  // a row that its thread alone touches: by step and lane
};

struct Locals {
  const LoopNest &nest;
  KernelContext &k;
  std::vector<LocalPlace> places;
  size_t step = 0;  // of a row's straight-line code

  Locals(const LoopNest &n, KernelContext &context) : nest(n), k(context), places(n.locals.size()) {}

  Value element(Scope &scope, LocalId id, const std::vector<Dim> &index, int lane) {
    const Local &local = nest.locals[id.index];
    Dim offset = 0;
    for (size_t i = 0; i < index.size(); ++i) offset = offset * local.shape[i] + index[i];
    return k.b.at(storage_type(k.b, local.type), places[id.index].array, scope.index(offset, lane));
  }
  Value read(Scope &scope, const Scalar &s, int lane) {
    const LocalPlace &place = places[s.local.index];
    if (!place.registers.empty()) return place.registers.at({step, lane});
    if (!place.array) return place.scalar[std::min<size_t>(static_cast<size_t>(lane), place.scalar.size() - 1)];
    Value v = k.b.load(storage_type(k.b, s.type), element(scope, s.local, s.index, lane), storage_size(s.type));
    return from_storage(k.b, s.type, v);
  }
  void write(Scope &scope, LocalId id, const std::vector<Dim> &index, int lane, Value v) {
    const ElementType type = nest.locals[id.index].type;
    k.b.store(to_storage(k.b, type, v), element(scope, id, index, lane), storage_size(type));
  }
};

// The reduction step of one output: old combined with the value, where the condition holds. A sum of f32 may be carried
// in f64: then `old` is an f64.
Value accumulate(Scope &scope, const StageOutput &output, ElementType type, Value old, int lane, Value active);

// The stages' loops one after the other, at the point that `base` is.
void run_serial(const LoopNest &nest, KernelContext &k, const Scope &base);

// The elements that a thread takes at once where `group` of them share a stage's rows.
int row_lanes(const Program &program, const LoopNest &nest, const Stage &stage, unsigned group);
// Whether each element of a local row is written and read by one thread alone, in straight-line code.
bool in_registers(const Program &program, const LoopNest &nest, LocalId local, unsigned group);
// The shared memory that `rows` rows in a block take for the nest's arrays where `group` threads share each; nullopt
// where their sizes have no bound.
std::optional<int64_t> row_scratch_bytes(const Program &program, const LoopNest &nest, unsigned group, unsigned rows);
// The stages of one row: `group` threads share it, `rows` of them are in a block (1 when the group is larger than a
// warp). `member` is the thread in its group, `row` the row in the block; nothing is stored where `active` (i1, or
// null) does not hold.
void run_rows(const LoopNest &nest, KernelContext &k, unsigned group, unsigned rows, Value member, Value row,
              const Scope &base, Value active);

}  // namespace optc::ptx
