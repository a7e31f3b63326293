// Cuts loops where an index divides their counter.
//
// A value of each group of channels that is read beside the elements (the scale of a group normalization, one half of a
// concatenation) has an index like r / 1024 in a loop of 4096: no vector lanes hold that. In two loops, of 4 and of
// 1024, the inner one runs along memory and the value is fixed in it.
#include <optional>
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
Cuts cuts_of(const std::vector<Dim> &dims, const Loop &loop) {
  Cuts cuts;
  for (Dim d : dims) find_cuts(d, loop, cuts.count, cuts.divisor);
  return cuts;
}

// The lists of loops: the shared ones, then those of each stage.
std::vector<std::vector<Loop> *> lists_of(LoopNest &nest) {
  std::vector<std::vector<Loop> *> lists = {&nest.loops};
  for (Stage &stage : nest.stages) lists.push_back(&stage.loops);
  return lists;
}

// The nest with loop `i` of list `list` in two, the inner one of `divisor` iterations; nullopt where that leaves as
// many quotients as the `before` that there are.
std::optional<LoopNest> cut(Program &program, const LoopNest &nest, size_t list, size_t i, const Cuts &before) {
  LoopNest result = nest;
  std::vector<Loop> &loops = *lists_of(result)[list];
  const Loop loop = loops[i];
  const Dim times = loop.extent.value() / before.divisor, run = before.divisor;
  const Dim outer = program.dims->new_loop(loop.index->name, times),
            inner = program.dims->new_loop(loop.index->name, run);
  const Loop parts[] = {{single_symbol(outer), times}, {single_symbol(inner), run}};
  loops[i] = parts[0];
  loops.insert(loops.begin() + static_cast<long>(i) + 1, parts[1]);
  ScalarSubstitution substitution;
  substitution.symbols = [&](const DimSymbol &s) -> std::optional<Dim> {
    if (&s != loop.index) return std::nullopt;
    return outer * run + inner;
  };
  substitute_nest(program, result, substitution);
  const std::vector<Dim> dims = dims_of(program, result);
  if (cuts_of(dims, parts[0]).count + cuts_of(dims, parts[1]).count >= before.count) return std::nullopt;
  return result;
}

// Cuts one loop; false: none can be cut.
bool cut_one(Program &program, LoopNest &nest) {
  const std::vector<Dim> dims = dims_of(program, nest);
  const auto lists = lists_of(nest);
  for (size_t list = 0; list < lists.size(); ++list)
    for (size_t i = 0; i < lists[list]->size(); ++i) {
      const Loop &loop = (*lists[list])[i];
      if (!loop.extent.is_constant()) continue;
      const Cuts before = cuts_of(dims, loop);
      if (before.divisor == 0) continue;
      if (auto result = cut(program, nest, list, i, before)) {
        nest = std::move(*result);
        return true;
      }
    }
  return false;
}

}  // namespace

void split_loops(Program &program, Steps &steps) {
  for (Kernel &kernel : program.kernels) {
    LoopNest *nest = kernel.alive ? kernel.nest() : nullptr;
    if (!nest || nest->contraction || nest->sequential) continue;
    bool any = false;
    while (steps.allowed("loops.split") && cut_one(program, *nest)) any = true;  // each leaves fewer quotients
    if (any) steps.record("loops.split", kernel.name, kernel.origin);
  }
}

}  // namespace optc
