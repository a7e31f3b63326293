#include <unordered_set>

#include "ir/program/contraction_view.h"
#include "ir/program/uses.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

// Operations of one node. Only arithmetic is work of the model: a select and its comparisons say where a padded image
// ends, and that would make a convolution with pads several times the work of one without.
int64_t work(ScalarOp op) {
  if (arity(op) == 0) return 0;
  if (is_transcendental(op)) return 20;
  switch (op) {
    case ScalarOp::kCast:
    case ScalarOp::kBitcast:
    case ScalarOp::kSelect:
    case ScalarOp::kEq:
    case ScalarOp::kNe:
    case ScalarOp::kLt:
    case ScalarOp::kLe:
    case ScalarOp::kNot:
    case ScalarOp::kAnd:
    case ScalarOp::kOr:
    case ScalarOp::kXor:
    case ScalarOp::kIsNan:
    case ScalarOp::kIsInf:
      return 0;
    case ScalarOp::kFma:
      return 2;
    default:
      return 1;
  }
}

int64_t operations(const Program &program, ScalarId id, std::unordered_set<uint32_t> &seen) {
  if (!id.valid() || !seen.insert(id.index).second) return 0;
  const Scalar &s = program.scalars.at(id);
  int64_t count = work(s.op);
  for (int i = 0; i < arity(s.op); ++i) count += operations(program, s.args[i], seen);
  return count;
}

Dim bytes(const Buffer &b) {
  return b.type.is_tensor() ? storage_bytes(b.element(), element_count(b.shape())) : Dim(0);
}

// Of a buffer a kernel may write a part: a row of a cache, a part of a Concat.
Dim written_bytes(const Program &program, const Kernel &kernel, BufferId b) {
  const Dim all = bytes(program.buffer(b));
  const LoopNest *nest = kernel.nest();
  if (!nest || !program.buffer(b).type.is_tensor()) return all;
  Dim count = 0;
  for (const Stage &stage : nest->stages)
    for (const StageOutput &o : stage.outputs)
      if (o.buffer == b) count += total_extent(nest->loops) * total_extent(stage.loops);
  const Dim stored = storage_bytes(program.buffer(b).element(), count);
  return proved_at_least(all, stored) ? stored : all;
}

}  // namespace

void estimate_costs(Program &program) {
  for (Kernel &kernel : program.kernels) {
    if (!kernel.alive) continue;
    KernelCost cost;
    cost.bytes_read = cost.bytes_written = cost.flops = 0;
    for (BufferId b : reads(program, kernel))
      if (program.buffer(b).kind != BufferKind::kScratch) cost.bytes_read += bytes(program.buffer(b));
    for (BufferId b : writes(program, kernel))
      if (program.buffer(b).kind != BufferKind::kScratch) cost.bytes_written += written_bytes(program, kernel, b);
    if (const LoopNest *nest = kernel.nest()) {
      for (const Stage &stage : nest->stages) {
        std::unordered_set<uint32_t> seen;
        int64_t per_iteration = 0;
        for (const StageOutput &o : stage.outputs) {
          per_iteration += operations(program, o.value, seen);
          if (o.combine != Combine::kStore) ++per_iteration;
        }
        Dim iterations = total_extent(nest->loops) * total_extent(stage.loops);
        // Of a transposed convolution's taps one in so many meets an input.
        if (nest->contraction && nest->contraction->transposed && &stage == &nest->stages[nest->contraction->stage])
          for (int64_t stride : nest->contraction->strides) iterations = floor_div(iterations, Dim(stride));
        cost.flops += iterations * Dim(per_iteration);
      }
    }
    kernel.cost = cost;
  }
}

}  // namespace optc
