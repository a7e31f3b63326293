#include <algorithm>
#include <unordered_map>

#include "lowering/fusion/fusion.h"

namespace optc {

bool is_map(const Kernel &kernel) {
  const LoopNest *nest = kernel.nest();
  if (!nest || nest->sequential || nest->stages.size() != 1 || !nest->locals.empty() || nest->contraction) return false;
  for (const StageOutput &o : nest->stages[0].outputs)
    if (!o.buffer.valid() || o.combine != Combine::kStore || o.condition.valid() || o.initial.valid()) return false;
  return true;
}

Uses::Uses(const Program &program)
    : readers(program.buffers.size()),
      writers(program.buffers.size()),
      output(program.buffers.size(), false),
      aliased(program.buffers.size(), false) {
  // Control flow first: what its bodies touch counts as read by it, so that nothing outside fuses across its border.
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const Kernel &kernel = program.kernels[i];
    if (!kernel.alive) continue;
    const KernelId id(i);
    for (BufferId b : reads(program, kernel)) readers[b.index].push_back(id);
    for (BufferId b : writes(program, kernel)) writers[b.index].push_back(id);
    if (const ControlFlow *control = kernel.control()) {
      for (const auto &list : control->results)
        for (BufferId b : list)
          if (b.valid()) output[b.index] = true;
      for (BufferId b : control->body_inputs)
        if (b.valid()) output[b.index] = true;
    }
  }
  for (BufferId b : program.outputs) output[b.index] = true;
  for (const Buffer &b : program.buffers)
    if (b.alias.valid()) aliased[b.alias.index] = true;
}

bool reads_stable_values(const Program &program, const Kernel &kernel, const Uses &uses) {
  for (BufferId b : reads(program, kernel))
    for (BufferId root = b; root.valid(); root = program.buffer(root).alias)
      if (!uses.is_stable(root)) return false;
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

namespace {

struct Digit {
  const DimSymbol *symbol;
  Dim coefficient, extent;
};

// index entry = sum of digits of a mixed radix that covers [0, dim) exactly once: digits from the most significant on.
std::optional<std::vector<Digit>> mixed_radix(Dim entry, Dim dim, const std::vector<Loop> &loops) {
  std::vector<Digit> digits;
  Dim rest = entry;
  for (const Loop &l : loops) {
    const auto part = affine_in(rest, l.index);
    if (!part) return std::nullopt;
    if (part->coefficient.is(0)) continue;
    digits.push_back({l.index, part->coefficient, l.extent});
    rest = part->rest;
  }
  if (!rest.is(0)) return std::nullopt;
  // Order so that each digit's weight is the span of those behind it.
  std::vector<Digit> ordered;
  Dim weight = 1;
  while (ordered.size() < digits.size()) {
    bool found = false;
    for (const Digit &d : digits) {
      if (std::any_of(ordered.begin(), ordered.end(), [&](const Digit &o) { return o.symbol == d.symbol; })) continue;
      if (d.coefficient == weight) {
        ordered.push_back(d);
        weight = weight * d.extent;
        found = true;
        break;
      }
    }
    if (!found) return std::nullopt;
  }
  if (!(weight == dim)) return std::nullopt;
  std::reverse(ordered.begin(), ordered.end());
  return ordered;
}

}  // namespace

std::optional<DimSubstitution> invert_store(const std::vector<Loop> &loops, const std::vector<Dim> &store_index,
                                            const std::vector<Dim> &index, const Shape &shape) {
  std::unordered_map<const DimSymbol *, Dim> value;
  for (size_t k = 0; k < store_index.size(); ++k) {
    const auto digits = mixed_radix(store_index[k], shape[k], loops);
    if (!digits) return std::nullopt;
    Dim weight = shape[k];
    for (size_t i = 0; i < digits->size(); ++i) {
      const Digit &d = (*digits)[i];
      if (value.count(d.symbol)) return std::nullopt;  // a diagonal
      Dim v = index[k];
      if (i + 1 < digits->size()) v = floor_div(v, d.coefficient);
      if (i > 0) v = mod(v, d.extent);
      value.emplace(d.symbol, v);
    }
    (void)weight;
  }
  for (const Loop &l : loops)
    if (!value.count(l.index)) return std::nullopt;  // stored several times
  return DimSubstitution([value](const DimSymbol &s) -> std::optional<Dim> {
    auto it = value.find(&s);
    return it == value.end() ? std::nullopt : std::optional<Dim>(it->second);
  });
}

void remove_dead_kernels(Program &program) {
  for (bool changed = true; changed;) {
    changed = false;
    const Uses uses(program);
    std::vector<bool> in_body(program.kernels.size(), false);
    for (const Kernel &k : program.kernels)
      if (const ControlFlow *control = k.control())
        for (const auto &body : control->bodies)
          for (KernelId id : body) in_body[id.index] = true;
    std::vector<bool> live_alias(program.buffers.size(), false);
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      const Buffer &b = program.buffers[i];
      if (b.alias.valid() && (!uses.readers[i].empty() || uses.output[i]))
        for (BufferId a = b.alias; a.valid(); a = program.buffer(a).alias) live_alias[a.index] = true;
    }
    for (size_t i = 0; i < program.kernels.size(); ++i) {
      Kernel &kernel = program.kernels[i];
      if (!kernel.alive || !kernel.nest()) continue;
      bool needed = false;
      for (BufferId b : writes(program, kernel)) {
        // Written into a view: its root is what is read.
        for (BufferId a = b; a.valid(); a = program.buffer(a).alias) {
          needed |= uses.output[a.index] || live_alias[a.index];
          for (KernelId r : uses.readers[a.index]) needed |= r != KernelId(i);
        }
      }
      if (needed) continue;
      kernel.alive = false;
      changed = true;
    }
    if (!changed) break;
    auto drop = [&](std::vector<KernelId> &order) {
      std::erase_if(order, [&](KernelId k) { return !program.kernel(k).alive; });
    };
    drop(program.order);
    for (Kernel &k : program.kernels)
      if (auto *control = std::get_if<ControlFlow>(&k.body))
        for (auto &body : control->bodies) drop(body);
  }
}

}  // namespace optc
