// Cuts loops where an index divides their counter.
//
// A value of each group of channels that is read beside the elements (the scale of a group normalization, one half of a
// concatenation) has an index like r / 1024 in a loop of 4096: no vector lanes hold that. In two loops, of 4 and of
// 1024, the inner one runs along memory and the value is fixed in it.
#include <algorithm>
#include <set>

#include "lowering/fusion/fusion.h"

namespace optc {
namespace {

constexpr int64_t kShortestRun = 16;  // iterations behind the cut: a vector of the widest instruction set

// Addresses and counters as values: what a loop computes of its counter.
void collect_dims(const Program &program, ScalarId id, std::set<uint32_t> &seen, std::vector<Dim> &out) {
  if (!id.valid() || !seen.insert(id.index).second) return;
  const Scalar &s = program.scalars.at(id);
  for (ScalarId a : s.args) collect_dims(program, a, seen, out);
  if (s.op == ScalarOp::kIndex) out.push_back(s.index_value);
  if (s.op == ScalarOp::kLoad)
    out.push_back(linear_offset(program.buffer(s.buffer), s.index));
  else
    out.insert(out.end(), s.index.begin(), s.index.end());
}

std::vector<Dim> dims_of(const Program &program, const LoopNest &nest) {
  std::vector<Dim> dims;
  std::set<uint32_t> seen;
  for (const Stage &stage : nest.stages)
    for (const StageOutput &o : stage.outputs) {
      for (ScalarId id : {o.value, o.initial, o.condition}) collect_dims(program, id, seen, dims);
      if (o.buffer.valid())
        dims.push_back(linear_offset(program.buffer(o.buffer), o.index));
      else
        dims.insert(dims.end(), o.index.begin(), o.index.end());
    }
  return dims;
}

// The quotients and remainders in `d` whose dividend moves with `symbol`: how many, and the greatest divisor by
// which the loop can be cut.
void find_cuts(Dim d, const Loop &loop, int64_t &count, int64_t &divisor) {
  if (d.is_constant()) return;
  for (const DimTerm &t : d.node()->terms)
    for (const DimAtom *a : t.atoms) {
      if (a->kind == AtomKind::kSymbol) continue;
      find_cuts(a->a, loop, count, divisor);
      find_cuts(a->b, loop, count, divisor);
      if (a->kind != AtomKind::kFloorDiv && a->kind != AtomKind::kMod) continue;
      if (!uses_symbol(a->a, loop.index)) continue;
      ++count;
      if (!a->b.is_constant()) continue;
      const int64_t b = a->b.value(), extent = loop.extent.value();
      if (b >= kShortestRun && b < extent && extent % b == 0 && b > divisor) divisor = b;
    }
}

struct Cuts {
  int64_t count = 0, divisor = 0;
};
Cuts cuts_of(const Program &program, const LoopNest &nest, const Loop &loop) {
  Cuts cuts;
  for (Dim d : dims_of(program, nest)) find_cuts(d, loop, cuts.count, cuts.divisor);
  return cuts;
}

// Cuts one loop of `loops`, one of the lists of the nest; false: none can be cut.
bool split_one(Program &program, LoopNest &nest, std::vector<Loop> LoopNest::*shared, size_t stage) {
  auto list = [&](LoopNest &n) -> std::vector<Loop> & { return shared ? n.*shared : n.stages[stage].loops; };
  for (size_t i = 0; i < list(nest).size(); ++i) {
    const Loop loop = list(nest)[i];
    if (!loop.extent.is_constant()) continue;
    const Cuts before = cuts_of(program, nest, loop);
    if (before.divisor == 0) continue;
    const Dim outer = program.dims->new_loop(loop.index->name, loop.extent.value() / before.divisor),
              inner = program.dims->new_loop(loop.index->name, before.divisor);
    LoopNest cut = nest;
    const Loop parts[] = {{single_symbol(outer), loop.extent.value() / before.divisor},
                          {single_symbol(inner), before.divisor}};
    std::vector<Loop> &loops = list(cut);
    loops.erase(loops.begin() + static_cast<long>(i));
    loops.insert(loops.begin() + static_cast<long>(i), std::begin(parts), std::end(parts));
    ScalarSubstitution substitution;
    substitution.symbols = [&](const DimSymbol &s) -> std::optional<Dim> {
      if (&s != loop.index) return std::nullopt;
      return outer * before.divisor + inner;
    };
    substitute_nest(program, cut, substitution);
    const int64_t left = cuts_of(program, cut, parts[0]).count + cuts_of(program, cut, parts[1]).count;
    if (left >= before.count) continue;
    nest = std::move(cut);
    return true;
  }
  return false;
}

}  // namespace

void split_loops(Program &program, Steps &steps) {
  for (Kernel &kernel : program.kernels) {
    LoopNest *nest = kernel.alive ? kernel.nest() : nullptr;
    if (!nest || nest->contraction || nest->sequential) continue;
    bool any = false;
    // Each cut leaves fewer quotients.
    while (steps.allowed("loops.split")) {
      bool cut = split_one(program, *nest, &LoopNest::loops, 0);
      for (size_t s = 0; s < nest->stages.size() && !cut; ++s) cut = split_one(program, *nest, nullptr, s);
      if (!cut) break;
      any = true;
    }
    if (any) steps.record("loops.split", kernel.name);
  }
}

}  // namespace optc
