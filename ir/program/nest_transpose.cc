// Copies that read along one loop and write along another: a tile of both goes through registers, so that neither side
// walks across the lines of the cache.
#include <algorithm>

#include "ir/program/nest_plan.h"

namespace optc {

void NestPlan::find_transpose() {
  constexpr int64_t kShortest = 8;
  if (serial_ || outer_.size() < 2 || plans_.size() != 1 || !plans_[0].loops.empty()) return;
  const std::vector<StageOutput> &outputs = nest_.stages[0].outputs;
  if (outputs.size() != 1 || !outputs[0].buffer.valid() || outputs[0].condition.valid()) return;
  const StageOutput &o = outputs[0];
  const Scalar &load = program_.scalars.at(o.value);
  const Buffer &buffer = program_.buffer(o.buffer);
  if (o.combine != Combine::kStore || load.op != ScalarOp::kLoad || written_buffers_.count(load.buffer.index)) return;
  if (buffer.element() != ElementType::kFloat32 && buffer.element() != ElementType::kInt32) return;
  for (const Item &item : plans_[0].order)
    if (item.index) return;  // a computed index is checked
  const Dim from = load_offset(load), to = offset_of(buffer, o.index);
  const Loop &along = outer_.back();
  const auto step = [](Dim offset, const Loop &loop) -> std::optional<Dim> {
    const auto part = affine_in(offset, loop.index);
    return part ? std::optional<Dim>(part->coefficient) : std::nullopt;
  };
  const auto is = [](const std::optional<Dim> &d, int64_t value) { return d && d->is(value); };
  const auto long_enough = [](Dim d) { return !d.is_constant() || d.value() >= kShortest; };
  const auto in_row = step(from, along);
  if (!is(step(to, along), 1) || !in_row || is(in_row, 0) || is(in_row, 1) || !long_enough(along.extent)) return;
  for (size_t i = 0; i + 1 < outer_.size(); ++i) {
    const auto out_row = step(to, outer_[i]);
    if (!is(step(from, outer_[i]), 1) || !out_row || is(out_row, 0) || !long_enough(outer_[i].extent)) continue;
    transpose_ = Transpose{i, load.buffer, o.buffer, from, to, *in_row, *out_row};
    return;
  }
}

}  // namespace optc
