// What a row keeps for its later stages is computed again where it is too long to be kept.
//
// A GPU's rows have their scratch in shared memory: the exponentials of a softmax, the differences of a normalization.
// Where no bound of a row fits there (the length of a cache that grows), each stage computes them anew of what it loads
// again, which costs a read of the row, and no trip to the host.
#include <algorithm>
#include <optional>
#include <set>

#include "lowering/fusion/fusion.h"

namespace optc {
namespace {

// Bytes of the scratch of one row, at most: it leaves room for a second block of threads on a multiprocessor.
constexpr int64_t kKeptBytes = 96 << 10;

struct Writer {
  size_t stage = 0, output = 0;
};

// The one output that writes the local; nullopt: none or several do.
std::optional<Writer> writer_of(const LoopNest &nest, LocalId local) {
  std::optional<Writer> found;
  for (size_t s = 0; s < nest.stages.size(); ++s)
    for (size_t o = 0; o < nest.stages[s].outputs.size(); ++o) {
      if (!(nest.stages[s].outputs[o].local == local)) continue;
      if (found) return std::nullopt;
      found = Writer{s, o};
    }
  return found;
}

// The loop counters by which the local is written, dim by dim, where each has one of its own and all are the stage's.
std::optional<std::vector<const DimSymbol *>> counters(const Stage &stage, const StageOutput &output) {
  std::vector<const DimSymbol *> found;
  for (const Dim d : output.index) {
    const DimSymbol *const s = single_symbol(d);
    const auto of = [&](const Loop &l) { return l.index == s; };
    if (!s || std::find(found.begin(), found.end(), s) != found.end() ||
        std::none_of(stage.loops.begin(), stage.loops.end(), of))
      return std::nullopt;
    found.push_back(s);
  }
  if (found.size() != stage.loops.size()) return std::nullopt;  // else another iteration's value would stand there
  return found;
}

// Whether the value is the same wherever a stage from `stage` on computes it: it reads what only earlier stages write,
// and nothing that the kernel stores.
bool stays(const Program &program, const Uses &uses, const LoopNest &nest, ScalarId value, size_t stage) {
  std::vector<ScalarId> stack{value};
  std::set<uint32_t> seen;
  const auto behind = [&](Dim d) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols)
      if (s->kind == SymbolKind::kScalar) stack.push_back(ScalarId(s->scalar));
  };
  const auto stores = [&](BufferId b) {
    return std::any_of(nest.stages.begin(), nest.stages.end(), [&](const Stage &s) {
      return std::any_of(s.outputs.begin(), s.outputs.end(),
                         [&](const StageOutput &o) { return o.buffer.valid() && uses.root(o.buffer) == uses.root(b); });
    });
  };
  while (!stack.empty()) {
    const ScalarId id = stack.back();
    stack.pop_back();
    if (!id.valid() || !seen.insert(id.index).second) continue;
    const Scalar &s = program.scalars.at(id);
    if (s.op == ScalarOp::kLoad && stores(s.buffer)) return false;
    if (s.op == ScalarOp::kLocal)
      for (size_t k = stage; k < nest.stages.size(); ++k)
        for (const StageOutput &o : nest.stages[k].outputs)
          if (o.local == s.local) return false;
    for (const Dim d : s.index) behind(d);
    if (s.op == ScalarOp::kIndex) behind(s.index_value);
    for (const ScalarId a : s.args) stack.push_back(a);
  }
  return true;
}

// Whether the local could be dropped; then it is, and its readers compute its value.
bool recompute(Program &program, const Uses &uses, LoopNest &nest, LocalId local) {
  const auto writer = writer_of(nest, local);
  if (!writer) return false;
  Stage &stage = nest.stages[writer->stage];
  const StageOutput output = stage.outputs[writer->output];
  const auto by = counters(stage, output);
  if (!by || output.combine != Combine::kStore || output.condition.valid() ||
      program.scalars.at(output.value).type != nest.locals[local.index].type ||
      !stays(program, uses, nest, output.value, writer->stage))
    return false;
  stage.outputs.erase(stage.outputs.begin() + static_cast<std::ptrdiff_t>(writer->output));
  ScalarSubstitution again;
  again.on_local = [&](const Scalar &read) -> ScalarId {
    if (!(read.local == local)) {
      if (read.local.index < local.index) return ScalarId();
      return program.scalars.local(LocalId(read.local.index - 1), read.type, read.index);
    }
    ScalarSubstitution at;
    at.symbols = [&](const DimSymbol &s) -> std::optional<Dim> {
      const auto found = std::find(by->begin(), by->end(), &s);
      if (found == by->end()) return std::nullopt;
      return read.index[static_cast<size_t>(found - by->begin())];
    };
    at.on_local = [&](const Scalar &inner) -> ScalarId {
      if (inner.local.index < local.index) return ScalarId();
      return program.scalars.local(LocalId(inner.local.index - 1), inner.type, inner.index);
    };
    return substitute(program, output.value, at);
  };
  substitute_nest(program, nest, again);
  for (Stage &s : nest.stages)
    for (StageOutput &o : s.outputs)
      if (o.local.valid() && o.local.index > local.index) o.local = LocalId(o.local.index - 1);
  nest.locals.erase(nest.locals.begin() + static_cast<std::ptrdiff_t>(local.index));
  std::erase_if(nest.stages, [](const Stage &s) { return s.outputs.empty(); });
  return true;
}

}  // namespace

void recompute_rows(Program &program, Steps &steps) {
  const Uses uses(program);
  for (Kernel &kernel : program.kernels) {
    LoopNest *nest = kernel.nest();
    if (!kernel.alive || !nest || nest->contraction || nest->sequential) continue;
    int64_t bytes = 0;
    for (const Local &l : nest->locals)
      if (!l.shape.empty())
        bytes += storage_bytes(l.type, std::min<int64_t>(upper_bound(element_count(l.shape)), kKeptBytes)).value_or(0);
    if (bytes <= kKeptBytes) continue;
    bool any = false;
    for (size_t i = nest->locals.size(); i-- > 0;)
      if (!nest->locals[i].shape.empty() && steps.allowed("rows.recompute"))
        any = recompute(program, uses, *nest, LocalId(static_cast<uint32_t>(i))) || any;
    if (any) steps.record("rows.recompute", kernel.name, kernel.origin);
  }
}

}  // namespace optc
