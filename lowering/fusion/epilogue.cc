#include <algorithm>
#include <unordered_map>

#include "ir/dim/saturation.h"
#include "ir/program/address.h"
#include "ir/program/contraction_view.h"
#include "lowering/fusion/fusion.h"
#include "lowering/fusion/legality.h"
#include "lowering/schedule/schedule.h"
#include "ops/build.h"

namespace optc {
namespace {

class EpilogueFuser {
 public:
  EpilogueFuser(Program &program, Uses &uses, const LoweringOptions &options, Steps &steps)
      : program_(program), uses_(uses), options_(options), steps_(steps) {}

  int64_t run() {
    for_each_sequence(program_, [this](std::vector<KernelId> &order) { sequence(order); });
    return count_;
  }

 private:
  void sequence(std::vector<KernelId> &order) {
    std::unordered_map<uint32_t, size_t> stands;  // where in `order`
    for (size_t i = 0; i < order.size(); ++i) stands[order[i].index] = i;
    for (size_t at = 0; at < order.size(); ++at) {
      // Readers in order: when one was merged, its own reader is looked at later with the merged kernel as producer.
      const KernelId reader = order[at];
      if (!reader.valid() || !is_map(program_.kernel(reader))) continue;
      // The latest producer first: the kernel runs at the reader's place, and the nearer one moves least.
      std::vector<KernelId> producers;
      for (BufferId b : uses_.reads(reader))
        for (KernelId w : uses_.writers(uses_.root(b)))
          if (w != reader && uses_.same_sequence(w, reader) &&
              std::find(producers.begin(), producers.end(), w) == producers.end())
            producers.push_back(w);
      std::sort(producers.begin(), producers.end(), [&](KernelId a, KernelId b) { return uses_.before(b, a); });
      for (KernelId producer : producers) {
        if (!merge(producer, reader) && !merge_parts(producer, reader)) continue;
        // The merged kernel lives under the producer's id, at the reader's place.
        order[stands.at(producer.index)] = KernelId();
        order[at] = producer;
        stands[producer.index] = at;
        ++count_;
        break;
      }
    }
    std::erase_if(order, [](KernelId k) { return !k.valid(); });
  }

  static bool finishes(const LoopNest &nest) {
    if (nest.sequential || nest.stages.size() < 2) return false;
    for (size_t s = 0; s + 1 < nest.stages.size(); ++s)
      for (const StageOutput &o : nest.stages[s].outputs)
        if (o.buffer.valid()) return false;
    for (const StageOutput &o : nest.stages.back().outputs)
      if (!o.buffer.valid() || o.combine != Combine::kStore || o.condition.valid()) return false;
    return true;
  }

  bool merge(KernelId producer_id, KernelId reader_id) {
    if (!steps_.allowed("fuse.epilogue")) return false;
    const Kernel &producer = program_.kernel(producer_id);
    const LoopNest *source = producer.nest();
    if (!source || !finishes(*source) || source->stages.back().outputs.size() != 1) return false;
    const StageOutput &store = source->stages.back().outputs[0];
    if (!defines_whole(program_, uses_, producer_id, source->stages.back(), store)) return false;
    if (!may_run_at(uses_, producer_id, reader_id)) return false;
    const StageOutput result = store;
    const BufferId buffer = result.buffer;

    const LoopNest reader = *program_.kernel(reader_id).nest();
    const Stage &map = reader.stages[0];
    const std::vector<Loop> map_loops = all_loops(reader, map);
    const std::optional<Scalar> only = only_load(map, buffer);
    if (!only) return false;
    const Scalar &load = *only;
    const Shape view_shape = program_.buffer(load.buffer).shape(), shape = program_.buffer(buffer).shape();
    std::vector<Dim> stored = result.index;
    if (load.buffer != buffer) {
      // A view of other elements than all of them, or of an order that is not the logical one, is no view of a value.
      if (!uses_.offset(load.buffer).is(0) || !(element_count(view_shape) == element_count(shape)) ||
          !row_major(program_.buffer(buffer)) || !row_major(program_.buffer(load.buffer)))
        return false;
      stored = unflatten_index(flatten_index(result.index, shape), view_shape);
    }
    auto inverse = invert_store(map_loops, load.index, stored, view_shape);
    if (!inverse) {
      // The same elements in the same order under another shape.
      Shape extents;
      std::vector<Dim> counters;
      for (const Loop &l : map_loops) {
        extents.push_back(l.extent);
        const auto counter = symbol_dim(l.index);
        counters.push_back(counter);
      }
      const Dim place = flatten_index(load.index, view_shape);
      if (is_saturated(place) || !(place == flatten_index(counters, extents)) ||
          !(element_count(view_shape) == element_count(extents)))
        return false;
      inverse = invert_store(map_loops, counters, unflatten_index(flatten_index(stored, view_shape), extents), extents);
      if (!inverse) return false;
    }
    ScalarSubstitution substitution;
    substitution.symbols = *inverse;
    substitution.on_load = [&](const Scalar &l) { return l.buffer == load.buffer ? result.value : ScalarId(); };
    LoopNest merged = *source;
    Stage &last = merged.stages.back();
    last.outputs.clear();
    move_outputs(map, substitution, last.outputs);
    if (!addressable(program_, merged)) return false;
    Kernel trial = producer;
    trial.body = merged;
    if (merged.contraction) {
      const Contraction &c = *merged.contraction;
      if (c.kind == ContractionKind::kAttention || !epilogue_is_row_wise(program_, trial)) return false;
      if (forfeits_template(program_, producer, trial, options_)) return false;
    } else if (!row_wise(source->stages.back(), last)) {
      return false;
    }
    replace(producer_id, reader_id, std::move(trial));
    return true;
  }

  // The load of the tensor with this root, if all that the map computes of it comes from one, which does not say where
  // it stores.
  std::optional<Scalar> only_load(const Stage &map, BufferId root) const {
    const auto is_other = [&](ScalarId l) { return uses_.root(program_.scalars.at(l).buffer) != root; };
    std::vector<ScalarId> values, all = loads_of(program_, map);
    for (const StageOutput &o : map.outputs) collect_loads(program_, o.value, values);
    std::erase_if(values, is_other);
    std::erase_if(all, is_other);
    if (values.size() != 1 || all.size() != 1) return std::nullopt;
    return program_.scalars.at(values[0]);
  }

  // What the map stores, computed at the counters of the producer.
  void move_outputs(const Stage &map, const ScalarSubstitution &substitution, std::vector<StageOutput> &outputs) {
    for (StageOutput moved : map.outputs) {
      moved.value = substitute(program_, moved.value, substitution);
      for (Dim &d : moved.index) d = substitute_index(program_, d, substitution);
      outputs.push_back(std::move(moved));
    }
  }

  // `merged`, of the producer, is both kernels from here on.
  void replace(KernelId producer_id, KernelId reader_id, Kernel merged) {
    const Kernel &reader = program_.kernel(reader_id);
    add_origin(merged.origin, reader.origin);
    merged.rules.insert(merged.rules.end(), reader.rules.begin(), reader.rules.end());
    if (!reader.note.empty()) merged.note += " + " + reader.note;
    steps_.record("fuse.epilogue", reader.name + " into " + merged.name, merged.origin);
    program_.kernel(producer_id) = std::move(merged);
    program_.kernel(reader_id).alive = false;
    uses_.remove(reader_id);
    uses_.update(producer_id);
    uses_.move(producer_id, reader_id);
  }

  // The same for a map that stores a tensor in several parts (the halves of a rotation): each part runs the reader, an
  // append to a cache say, on what it would have stored.
  bool merge_parts(KernelId producer_id, KernelId reader_id) {
    if (!steps_.allowed("fuse.epilogue")) return false;
    const Kernel &producer = program_.kernel(producer_id);
    if (!is_map(producer) || producer.nest()->stages[0].outputs.size() < 2) return false;
    const std::vector<StageOutput> parts = producer.nest()->stages[0].outputs;
    const BufferId buffer = parts[0].buffer;
    const Buffer &tensor = program_.buffer(buffer);
    if (tensor.kind != BufferKind::kTemporary || uses_.root(buffer) != buffer || !row_major(tensor) ||
        std::any_of(parts.begin(), parts.end(), [&](const StageOutput &o) { return o.buffer != buffer; }) ||
        !may_run_at(uses_, producer_id, reader_id))
      return false;
    for (BufferId name : uses_.names(buffer))
      if (uses_.is_result(name) || uses_.writers(name).size() != (name == buffer ? 1 : 0)) return false;

    const LoopNest reader = *program_.kernel(reader_id).nest();
    const Stage &map = reader.stages[0];
    const std::vector<Loop> map_loops = all_loops(reader, map);
    const std::optional<Scalar> load = only_load(map, buffer);
    // All of the tensor is read: each element that a part stores is one of the reader's.
    if (!load || load->buffer != buffer || !(total_extent(map_loops) == element_count(tensor.shape()))) return false;
    // One kernel reads in any order what it writes in any order.
    for (KernelId k : {producer_id, reader_id})
      for (BufferId read : uses_.reads(k))
        for (BufferId written : uses_.writes(reader_id))
          if (uses_.root(read) == uses_.root(written)) return false;

    Kernel trial = producer;
    LoopNest merged = *producer.nest();
    merged.stages[0].outputs.clear();
    for (const StageOutput &part : parts) {
      const auto inverse = invert_store(map_loops, load->index, part.index, tensor.shape());
      if (!inverse) return false;
      ScalarSubstitution substitution;
      substitution.symbols = *inverse;
      substitution.on_load = [&](const Scalar &l) { return l.buffer == buffer ? part.value : ScalarId(); };
      move_outputs(map, substitution, merged.stages[0].outputs);
    }
    for (const StageOutput &o : merged.stages[0].outputs)
      if (std::any_of(o.index.begin(), o.index.end(), has_quotient)) return false;
    if (!addressable(program_, merged) || !row_wise(producer.nest()->stages[0], merged.stages[0])) return false;
    trial.body = std::move(merged);
    replace(producer_id, reader_id, std::move(trial));
    return true;
  }

  // A store along the row must stay a store along the row.
  bool row_wise(const Stage &before, const Stage &after) {
    if (before.loops.empty()) return true;
    const DimSymbol *inner = before.loops.back().index;
    for (const StageOutput &o : after.outputs) {
      const auto part = affine_in(linear_offset(program_.buffer(o.buffer), o.index), inner);
      if (!part || !part->coefficient.is(1)) return false;
    }
    return true;
  }

  Dim symbol_dim(const DimSymbol *symbol) { return program_.dims->symbol_value(symbol); }

  Program &program_;
  Uses &uses_;
  const LoweringOptions &options_;
  Steps &steps_;
  int64_t count_ = 0;
};

}  // namespace

int64_t fuse_epilogues(Program &program, Uses &uses, const LoweringOptions &options, Steps &steps) {
  return EpilogueFuser(program, uses, options, steps).run();
}

}  // namespace optc
