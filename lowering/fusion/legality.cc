#include "lowering/fusion/legality.h"

#include <algorithm>

#include "ir/program/cover.h"
#include "lowering/fusion/fusion.h"

namespace optc {

bool reads_same_values_at(const Uses &uses, KernelId kernel, KernelId place) {
  if (!uses.same_sequence(kernel, place) || !uses.before(kernel, place)) return false;
  const auto &reads = uses.reads(kernel);
  return std::none_of(reads.begin(), reads.end(), [&](BufferId b) { return uses.written_between(b, kernel, place); });
}

bool may_run_at(const Uses &uses, KernelId kernel, KernelId place) {
  if (!reads_same_values_at(uses, kernel, place)) return false;
  for (BufferId b : uses.writes(kernel)) {
    if (uses.written_between(b, kernel, place)) return false;
    for (BufferId name : uses.names(b))
      for (KernelId reader : uses.readers(name))
        if (reader != place && reader != kernel) return false;
  }
  return true;
}

bool defines_whole(const Program &program, const Uses &uses, KernelId kernel, const Stage &stage,
                   const StageOutput &store) {
  if (!store.buffer.valid() || store.combine != Combine::kStore || store.condition.valid()) return false;
  const Buffer &buffer = program.buffer(store.buffer);
  if (buffer.kind != BufferKind::kTemporary || buffer.alias.valid()) return false;
  for (BufferId name : uses.names(store.buffer)) {
    if (uses.is_result(name)) return false;
    for (KernelId writer : uses.writers(name))
      if (writer != kernel) return false;
  }
  const LoopNest &nest = *program.kernel(kernel).nest();
  for (const Stage &s : nest.stages)
    for (const StageOutput &o : s.outputs)
      if (&o != &store && o.buffer.valid() && uses.root(o.buffer) == store.buffer) return false;
  const auto box = box_of(all_loops(nest, stage), store.index);
  return box && covers({*box}, whole_box(buffer.shape())) == Cover::kYes;
}

bool may_be_reordered(const Program &program, const Uses &uses, BufferId id) {
  const Buffer &buffer = program.buffer(id);
  if (buffer.kind != BufferKind::kTemporary || !buffer.type.is_tensor() || uses.names(id).size() != 1 ||
      uses.is_result(id))
    return false;
  const auto is_nest = [&](KernelId k) { return program.kernel(k).nest() != nullptr; };
  return std::all_of(uses.readers(id).begin(), uses.readers(id).end(), is_nest) &&
         std::all_of(uses.writers(id).begin(), uses.writers(id).end(), is_nest);
}

}  // namespace optc
