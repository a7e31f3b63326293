#include "lowering/buffers/buffers.h"

#include <algorithm>
#include <string>

#include "ir/program/placement.h"
#include "lowering/fusion/fusion.h"
#include "runtime/bundle/place.h"

namespace optc {
namespace {

// Offsets where all sizes are constant.
void lay_out(Program &program) {
  std::vector<int64_t> bytes, offsets(program.placements.size());
  std::vector<int32_t> first, last;
  program.arena_bytes = program.lower_bound_bytes = kDimOverflow;
  for (const Placement &p : program.placements) {
    if (!p.bytes.is_constant() || p.bytes.value() >= kDimOverflow) return;
    bytes.push_back(p.bytes.value());
    first.push_back(static_cast<int32_t>(p.first));
    last.push_back(static_cast<int32_t>(p.last));
  }
  int64_t bound = 0;
  program.arena_bytes =
      place(bytes.data(), first.data(), last.data(), static_cast<int32_t>(bytes.size()), offsets.data(), &bound);
  program.lower_bound_bytes = bound;
  for (size_t i = 0; i < offsets.size(); ++i) program.placements[i].offset = offsets[i];
}

class Placer {
 public:
  Placer(Program &program, Steps *steps)
      : p_(program), steps_(steps), uses_(program), root_(program.buffers.size()), lives_(lifetimes(program, uses_)) {
    for (size_t i = 0; i < root_.size(); ++i) root_[i] = uses_.root(BufferId(i));
  }

  void run() {
    if (steps_) in_place();
    p_.placements.clear();
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer &b = p_.buffers[i];
      if ((b.kind != BufferKind::kTemporary && b.kind != BufferKind::kScratch) || b.alias.valid() ||
          !lives_[i].touched() || !b.type.is_tensor())
        continue;
      p_.placements.push_back({BufferId(i), kDimOverflow, storage_bytes(b), lives_[i].first, lives_[i].last});
    }
    if (!share())
      for (Placement &p : p_.placements) p.first = 0, p.last = std::max(p.last, p_.order.size() - 1);
    lay_out(p_);
  }

 private:
  // Whether buffers share the bytes of those that live at other times; without that each has its own all the time.
  bool share() {
    if (!steps_ || p_.placements.size() < 2) return true;
    if (!steps_->allowed("place.share")) return false;
    steps_->record("place.share", "the arena of " + std::to_string(p_.placements.size()) + " buffers", {});
    return true;
  }

  // Result of step s into the bytes of an operand whose last use is s.
  void in_place() {
    for (size_t step = 0; step < p_.order.size(); ++step) {
      Kernel &kernel = p_.kernel(p_.order[step]);
      const LoopNest *nest = kernel.nest();
      if (!nest || nest->sequential) continue;
      const Stage &last = nest->stages.back();
      if (last.outputs.size() != 1 || !last.outputs[0].buffer.valid() || last.outputs[0].combine != Combine::kStore ||
          last.outputs[0].condition.valid())
        continue;
      const StageOutput &out = last.outputs[0];
      Buffer &result = p_.buffer(out.buffer);
      if (result.kind != BufferKind::kTemporary || result.alias.valid() || uses_.writers(out.buffer).size() != 1 ||
          lives_[out.buffer.index].first != step)
        continue;
      if (!computed_once(all_loops(*nest, last), out.index, result.shape())) continue;
      for (BufferId operand : uses_.reads(p_.order[step])) {
        const BufferId root = root_[operand.index];
        const Buffer &source = p_.buffer(operand), &place = p_.buffer(root);
        if (place.kind != BufferKind::kTemporary || lives_[root.index].last != step ||
            source.element() != result.element() || !whole(operand) || !(storage_bytes(place) == storage_bytes(result)))
          continue;
        if (!read_only_where_written(*nest, root, out)) continue;
        if (!steps_->allowed("place.in_place")) return;
        steps_->record("place.in_place", result.name + " over " + place.name, kernel.origin);
        // The result becomes a view of the operand's place, whose lifetime goes on.
        result.alias = root;
        result.alias_offset = 0;
        lives_[root.index].last = lives_[out.buffer.index].last;
        lives_[out.buffer.index] = Lifetime();
        for (BufferId name : uses_.names(out.buffer)) root_[name.index] = root;
        break;
      }
    }
  }

  // Each element is computed in one iteration: another one would read the result for the operand. Its only writer
  // writes all elements of a result, so that it has no iteration to spare when it has as many as there are elements.
  static bool computed_once(const std::vector<Loop> &loops, const std::vector<Dim> &index, const Shape &shape) {
    Dim iterations = 1;
    for (const Loop &l : loops) iterations = iterations * l.extent;
    return iterations == element_count(shape) || invert_store(loops, index, index, shape).has_value();
  }

  // A view of all of its root, from its start.
  bool whole(BufferId b) const {
    for (; p_.buffer(b).alias.valid(); b = p_.buffer(b).alias)
      if (!p_.buffer(b).alias_offset.is(0)) return false;
    return true;
  }

  bool read_only_where_written(const LoopNest &nest, BufferId root, const StageOutput &out) {
    const Dim at = linear_offset(p_.buffer(out.buffer), out.index);
    for (size_t s = 0; s < nest.stages.size(); ++s)
      for (ScalarId id : loads_of(p_, nest.stages[s])) {
        const Scalar &load = p_.scalars.at(id);
        if (root_[load.buffer.index] != root) continue;
        if (s + 1 != nest.stages.size() || !(linear_offset(p_.buffer(load.buffer), load.index) == at)) return false;
      }
    return true;
  }

  Program &p_;
  Steps *steps_;  // null: nothing is put in place, bytes are shared
  Uses uses_;
  std::vector<BufferId> root_;
  std::vector<Lifetime> lives_;
};

}  // namespace

void place_buffers(Program &program, Steps &steps) { Placer(program, &steps).run(); }
void place_buffers(Program &program) { Placer(program, nullptr).run(); }

}  // namespace optc
