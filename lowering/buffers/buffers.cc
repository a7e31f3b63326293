#include "lowering/buffers/buffers.h"

#include <algorithm>
#include <unordered_set>

#include "ir/program/placement.h"
#include "lowering/fusion/fusion.h"

namespace optc {
namespace {

class Placer {
 public:
  Placer(Program &program, Steps &steps) : p_(program), steps_(steps), uses_(program), root_(program.buffers.size()) {
    for (size_t i = 0; i < root_.size(); ++i) root_[i] = uses_.root(BufferId(i));
  }

  void run() {
    lifetimes();
    in_place();
    p_.placements.clear();
    std::vector<MemoryBlock> blocks;
    bool constant = true;
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer &b = p_.buffers[i];
      if ((b.kind != BufferKind::kTemporary && b.kind != BufferKind::kScratch) || b.alias.valid() || !touched_[i])
        continue;
      Placement placement;
      placement.buffer = BufferId(i);
      placement.bytes = bytes_of(b);
      placement.first = first_[i];
      placement.last = last_[i];
      placement.offset = kDimOverflow;
      constant &= placement.bytes.is_constant() && placement.bytes.value() < kDimOverflow;
      p_.placements.push_back(placement);
    }
    if (!constant) {
      p_.arena_bytes = kDimOverflow;
      p_.lower_bound_bytes = kDimOverflow;
      return;
    }
    for (const Placement &placement : p_.placements)
      blocks.push_back({placement.bytes.value(), placement.first, placement.last, -1});
    const ArenaSize arena = place_blocks(blocks);
    for (size_t i = 0; i < blocks.size(); ++i) p_.placements[i].offset = blocks[i].offset;
    p_.arena_bytes = arena.bytes;
    p_.lower_bound_bytes = arena.bound;
  }

 private:
  static Dim bytes_of(const Buffer &b) {
    const Dim count = storage_count(b);
    const int bits = bit_width(b.element());
    return bits >= 8 ? count * Dim(bits / 8) : ceil_div(count * Dim(bits), 8);
  }

  // Control flow counts as one step; what its bodies use lives over the whole of it.
  void lifetimes() {
    first_.assign(p_.buffers.size(), SIZE_MAX);
    last_.assign(p_.buffers.size(), 0);
    touched_.assign(p_.buffers.size(), false);
    auto touch = [&](BufferId b, size_t step) {
      const size_t i = root_[b.index].index;
      touched_[i] = true;
      first_[i] = std::min(first_[i], step);
      last_[i] = std::max(last_[i], step);
    };
    for (size_t step = 0; step < p_.order.size(); ++step) {
      for (BufferId b : reads(p_, p_.kernel(p_.order[step]))) touch(b, step);
      for (BufferId b : writes(p_, p_.kernel(p_.order[step]))) touch(b, step);
    }
  }

  // Result of step s into the bytes of an operand whose last use is s.
  void in_place() {
    for (size_t step = 0; step < p_.order.size(); ++step) {
      Kernel &kernel = p_.kernel(p_.order[step]);
      const LoopNest *nest = kernel.nest();
      if (!nest || nest->sequential || !strategy_allows(kernel)) continue;
      const Stage &last = nest->stages.back();
      if (last.outputs.size() != 1 || !last.outputs[0].buffer.valid() || last.outputs[0].combine != Combine::kStore)
        continue;
      const StageOutput &out = last.outputs[0];
      Buffer &result = p_.buffer(out.buffer);
      if (result.kind != BufferKind::kTemporary || result.alias.valid() || uses_.writers(out.buffer).size() != 1 ||
          first_[out.buffer.index] != step)
        continue;
      for (BufferId operand : reads(p_, kernel)) {
        const BufferId root = root_[operand.index];
        const Buffer &source = p_.buffer(operand), &place = p_.buffer(root);
        if (place.kind != BufferKind::kTemporary || uses_.is_result(operand) || uses_.is_result(root) ||
            last_[root.index] != step || source.element() != result.element() || !whole(operand) ||
            !(bytes_of(place) == bytes_of(result)))
          continue;
        if (!read_only_where_written(*nest, root, out)) continue;
        if (!steps_.allowed("place.in_place")) return;
        steps_.record("place.in_place", result.name + " over " + place.name);
        // The result becomes a view of the operand's place, whose lifetime goes on.
        result.alias = root;
        result.alias_offset = 0;
        last_[root.index] = std::max(last_[root.index], last_[out.buffer.index]);
        touched_[out.buffer.index] = false;
        for (BufferId &r : root_)
          if (r == out.buffer) r = root;
        break;
      }
    }
  }

  // A view of all of its root, from its start.
  bool whole(BufferId b) const {
    for (; p_.buffer(b).alias.valid(); b = p_.buffer(b).alias)
      if (!p_.buffer(b).alias_offset.is(0)) return false;
    return true;
  }

  static bool strategy_allows(const Kernel &kernel) { return kernel.strategy.parameter("in_place", 1) != 0; }

  bool read_only_where_written(const LoopNest &nest, BufferId root, const StageOutput &out) {
    const Dim at = linear_offset(p_.buffer(out.buffer), out.index);
    for (size_t s = 0; s < nest.stages.size(); ++s) {
      for (const StageOutput &o : nest.stages[s].outputs) {
        std::vector<ScalarId> loads;
        for (ScalarId id : {o.value, o.initial, o.condition})
          if (id.valid()) collect_loads(p_, id, loads);
        for (ScalarId id : loads) {
          const Scalar &load = p_.scalars.at(id);
          if (root_[load.buffer.index] != root) continue;
          if (s + 1 != nest.stages.size()) return false;
          if (!(linear_offset(p_.buffer(load.buffer), load.index) == at)) return false;
        }
      }
    }
    return true;
  }

  Program &p_;
  Steps &steps_;
  Uses uses_;
  std::vector<BufferId> root_;
  std::vector<size_t> first_, last_;
  std::vector<bool> touched_;
};

}  // namespace

void place_buffers(Program &program, Steps &steps) { Placer(program, steps).run(); }

}  // namespace optc
