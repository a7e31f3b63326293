#include "ir/program/address.h"

#include "ir/dim/saturation.h"

namespace optc {

bool addressable(const Program &program, const LoopNest &nest) {
  Dim iterations = 1;
  for (const Loop &loop : nest.loops) iterations = iterations * loop.extent;
  if (is_saturated(iterations)) return false;
  std::vector<ScalarId> loads;
  for (const Stage &stage : nest.stages) {
    Dim inner = iterations;
    for (const Loop &loop : stage.loops) inner = inner * loop.extent;
    if (is_saturated(inner)) return false;
    for (const StageOutput &o : stage.outputs) {
      if (o.buffer.valid() && is_saturated(linear_offset(program.buffer(o.buffer), o.index))) return false;
      for (ScalarId id : {o.value, o.initial, o.condition})
        if (id.valid()) collect_loads(program, id, loads);
    }
  }
  for (ScalarId id : loads) {
    const Scalar &load = program.scalars.at(id);
    if (is_saturated(linear_offset(program.buffer(load.buffer), load.index))) return false;
  }
  return true;
}

std::vector<Dim> with_named_entries(Program &program, BufferId buffer, std::vector<Dim> index) {
  const Dim offset = linear_offset(program.buffer(buffer), index);
  if (!is_saturated(offset) && dim_size(offset) <= kLargeOffset) return index;
  const Shape shape = program.buffer(buffer).shape();
  for (size_t k = 0; k < index.size(); ++k)
    if (dim_size(index[k]) > kLargeEntry)
      index[k] = program.dims->scalar_symbol(program.scalars.index(index[k]).index, shape[k]);
  return index;
}

}  // namespace optc
