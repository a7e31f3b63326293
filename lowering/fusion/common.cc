#include <algorithm>
#include <unordered_map>

#include "ir/program/cover.h"
#include "lowering/fusion/fusion.h"

namespace optc {

bool is_map(const Kernel &kernel) {
  const LoopNest *nest = kernel.nest();
  if (!nest || nest->sequential || nest->stages.size() != 1 || !nest->locals.empty() || nest->contraction) return false;
  for (const StageOutput &o : nest->stages[0].outputs)
    if (!o.buffer.valid() || o.combine != Combine::kStore || o.condition.valid() || o.initial.valid()) return false;
  return true;
}

void for_each_sequence(Program &program, const std::function<void(std::vector<KernelId> &)> &f) {
  f(program.order);
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    if (!program.kernels[i].alive || !program.kernels[i].control()) continue;
    const size_t bodies = program.kernels[i].control()->bodies.size();
    for (size_t b = 0; b < bodies; ++b) {
      std::vector<KernelId> body =
          program.kernels[i].control()->bodies[b];  // a copy: f may add kernels, which moves them
      f(body);
      std::get<ControlFlow>(program.kernels[i].body).bodies[b] = std::move(body);
    }
  }
}

std::vector<Loop> all_loops(const LoopNest &nest, const Stage &stage) {
  std::vector<Loop> loops = nest.loops;
  loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
  return loops;
}

std::vector<ScalarId> loads_of(const Program &program, const Stage &stage) {
  std::vector<ScalarId> loads;
  for (const StageOutput &o : stage.outputs) {
    for (ScalarId id : {o.value, o.initial, o.condition})
      if (id.valid()) collect_loads(program, id, loads);
    for (Dim d : o.index) {
      std::vector<const DimSymbol *> symbols;
      collect_symbols(d, symbols);
      for (const DimSymbol *symbol : symbols)
        if (symbol->kind == SymbolKind::kScalar) collect_loads(program, ScalarId(size_t{symbol->scalar}), loads);
    }
  }
  return loads;
}

bool has_quotient(Dim d) {
  if (d.is_constant()) return false;
  for (const DimTerm &t : d.node()->terms)
    for (const DimAtom *a : t.atoms)
      if (a->kind == AtomKind::kFloorDiv || a->kind == AtomKind::kMod) return true;
  return false;
}

void substitute_nest(Program &program, LoopNest &nest, const ScalarSubstitution &substitution) {
  auto one = [&](ScalarId id) { return id.valid() ? substitute(program, id, substitution) : id; };
  for (Stage &stage : nest.stages)
    for (StageOutput &o : stage.outputs) {
      o.value = one(o.value);
      o.initial = one(o.initial);
      o.condition = one(o.condition);
      for (Dim &d : o.index) d = substitute_index(program, d, substitution);
    }
  if (nest.contraction) {
    Contraction &c = *nest.contraction;
    for (ScalarId *id : {&c.lhs, &c.rhs, &c.query, &c.key, &c.value, &c.mask, &c.scale}) *id = one(*id);
  }
}

std::optional<DimSubstitution> invert_store(const std::vector<Loop> &loops, const std::vector<Dim> &store_index,
                                            const std::vector<Dim> &index, const Shape &shape) {
  std::unordered_map<const DimSymbol *, Dim> value;
  for (size_t k = 0; k < store_index.size(); ++k) {
    const auto radix = mixed_radix(store_index[k], loops);
    if (!radix || !radix->begin.is(0) || !(radix->length == shape[k])) return std::nullopt;
    for (size_t i = 0; i < radix->digits.size(); ++i) {
      const Digit &d = radix->digits[i];
      const auto whole = [&](const Loop &l) { return l.index == d.symbol && l.extent == d.high && d.low.is(1); };
      if (std::none_of(loops.begin(), loops.end(), whole) || value.count(d.symbol)) return std::nullopt;
      Dim v = index[k];
      if (i + 1 < radix->digits.size()) v = floor_div(v, d.weight);
      if (i > 0) v = mod(v, d.high);
      value.emplace(d.symbol, v);
    }
  }
  for (const Loop &l : loops)
    if (!value.count(l.index)) return std::nullopt;  // stored several times
  return DimSubstitution([value](const DimSymbol &s) -> std::optional<Dim> {
    auto it = value.find(&s);
    return it == value.end() ? std::nullopt : std::optional<Dim>(it->second);
  });
}

void remove_dead_kernels(Program &program) {
  Uses uses(program);
  // A kernel is needed when another one reads a byte of what it writes.
  auto needed = [&](KernelId k) {
    for (BufferId b : uses.writes(k))
      for (BufferId name : uses.names(b)) {
        if (uses.is_result(name)) return true;
        for (KernelId r : uses.readers(name))
          if (r != k) return true;
      }
    return false;
  };
  std::vector<KernelId> left;
  for (size_t i = program.kernels.size(); i-- > 0;)
    if (program.kernels[i].alive) left.push_back(KernelId(i));
  while (!left.empty()) {
    const KernelId k = left.back();
    left.pop_back();
    if (!program.kernel(k).alive || !program.kernel(k).nest() || needed(k)) continue;
    // Without it, who wrote what it read may be needed by nobody.
    for (BufferId b : uses.reads(k))
      for (BufferId name : uses.names(b))
        for (KernelId w : uses.writers(name))
          if (w != k) left.push_back(w);
    program.kernel(k).alive = false;
    uses.remove(k);
  }
  for_each_sequence(program, [&](std::vector<KernelId> &order) {
    std::erase_if(order, [&](KernelId k) { return !program.kernel(k).alive; });
  });
}

}  // namespace optc
