#include "ir/program/access.h"

#include <unordered_set>

namespace optc {

Root root_of(const Program &program, BufferId id) {
  Dim offset = 0;
  while (program.buffer(id).alias.valid()) {
    offset += program.buffer(id).alias_offset;
    id = program.buffer(id).alias;
  }
  return {id, offset};
}

Dim root_offset(const Program &program, BufferId id, const std::vector<Dim> &index) {
  return linear_offset(program.buffer(id), index) + root_of(program, id).offset;
}

namespace {

// Expressions share parts: each is visited once.
struct LoopSearch {
  const Program &program;
  const DimSymbol *symbol;
  std::vector<ScalarId> open;
  std::unordered_set<uint32_t> seen;
  bool found = false;

  void look(Dim d) {
    if (d.is_constant()) return;
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *used : symbols) {
      found = found || used == symbol;
      if (used->kind == SymbolKind::kScalar) open.push_back(ScalarId(used->scalar));
    }
  }
  bool run() {
    while (!found && !open.empty()) {
      const ScalarId id = open.back();
      open.pop_back();
      if (!seen.insert(id.index).second) continue;
      const Scalar &s = program.scalars.at(id);
      if (s.op == ScalarOp::kIndex) look(s.index_value);
      for (Dim d : s.index) look(d);
      open.insert(open.end(), s.args, s.args + arity(s.op));
    }
    return found;
  }
};

}  // namespace

bool uses_loop(const Program &program, Dim d, const DimSymbol *symbol) {
  LoopSearch search{program, symbol, {}, {}};
  search.look(d);
  return search.run();
}

bool uses_loop(const Program &program, ScalarId id, const DimSymbol *symbol) {
  return LoopSearch{program, symbol, {id}, {}}.run();
}

std::optional<AffinePart> affine_over(const Program &program, Dim offset, const DimSymbol *symbol) {
  auto part = affine_in(offset, symbol);
  if (!part || uses_loop(program, part->rest, symbol) || uses_loop(program, part->coefficient, symbol))
    return std::nullopt;
  return part;
}

}  // namespace optc
