// A group of threads (a warp or a block) for each iteration of a nest's outer loops: it walks a row in steps of group *
// lanes elements. Short rows are straight-line code.

#include <algorithm>
#include <tuple>

#include "emit/ptx/nests.h"

namespace optc::ptx {

namespace {

int lanes_of(const Program &program, const std::vector<StageOutput> &outputs, const std::vector<Loop> &loops,
             unsigned group) {
  if (loops.empty()) return 1;
  Dim total = total_extent(loops);
  unsigned size = 4;
  for (const StageOutput &output : outputs)
    if (output.buffer.valid()) size = std::min(size, storage_size(program.buffer(output.buffer).element()));
  std::vector<ScalarId> loads;
  for (const StageOutput &output : outputs) collect_loads(program, output.value, loads);
  for (ScalarId id : loads) {
    const Scalar &s = program.scalars.at(id);
    if (uses_loop(program, root_offset(program, s.buffer, s.index), loops.back().index))
      size = std::min(size, storage_size(program.buffer(s.buffer).element()));
  }
  int lanes = static_cast<int>(std::max(1u, 16 / std::max(2u, size)));
  while (lanes > 1 && (!divisible_by(loops.back().extent, lanes) ||
                       (total.is_constant() && total.value() < static_cast<int64_t>(group) * lanes && lanes > 2)))
    lanes /= 2;
  return lanes;
}

bool straight_line(Dim total, unsigned group, int lanes) {
  const int64_t step = static_cast<int64_t>(group) * lanes;
  return total.is_constant() && (total.value() + step - 1) / step <= std::min(64 / std::max(1, lanes), 16);
}

bool sums_rows(const LoopNest &nest, const StageOutput &output) {
  return output.local.valid() && !nest.locals[output.local.index].shape.empty() && output.combine != Combine::kStore;
}

}  // namespace

// The lanes of a stage: the widest that any stage with the same single loop wants, so that all stages of a row give
// each thread the same elements.
int row_lanes(const Program &program, const LoopNest &nest, const Stage &stage, unsigned group) {
  int lanes = 0;
  for (const Stage &other : nest.stages) {
    if (&other != &stage &&
        (stage.loops.size() != 1 || other.loops.size() != 1 || !(other.loops[0].extent == stage.loops[0].extent)))
      continue;
    std::vector<StageOutput> outputs;
    for (const StageOutput &output : other.outputs)
      if (!sums_rows(nest, output)) outputs.push_back(output);
    if (!outputs.empty())
      lanes =
          std::max(lanes, lanes_of(program, outputs, order_loops(program, other.loops, outputs, false).loops, group));
  }
  return std::max(1, lanes);
}

// Whether a row of scratch can live in its threads' registers: each element is written and read where the loops of the
// stages stand at it, so always by the same thread, in straight-line code.
bool in_registers(const Program &program, const LoopNest &nest, LocalId local, unsigned group) {
  if (nest.locals[local.index].shape.size() != 1) return false;
  const Dim extent = nest.locals[local.index].shape[0];
  for (const Stage &stage : nest.stages) {
    bool touched = false, own = true;
    std::vector<ScalarId> stack;
    std::unordered_map<uint32_t, bool> seen;
    auto is_counter = [&](const std::vector<Dim> &index) {
      return stage.loops.size() == 1 && index.size() == 1 && single_symbol(index[0]) == stage.loops[0].index;
    };
    for (const StageOutput &output : stage.outputs) {
      if (output.local == local) {
        touched = true;
        own = own && is_counter(output.index) && output.combine == Combine::kStore && !output.condition.valid();
      }
      for (ScalarId id : {output.value, output.condition, output.initial})
        if (id.valid()) stack.push_back(id);
      for (Dim d : output.index) scalar_symbols(d, stack);
    }
    while (!stack.empty()) {
      const ScalarId id = stack.back();
      stack.pop_back();
      if (!seen.emplace(id.index, true).second) continue;
      const Scalar &s = program.scalars.at(id);
      if (s.op == ScalarOp::kLocal && s.local == local) {
        touched = true;
        own = own && is_counter(s.index);
      }
      if (s.op == ScalarOp::kIndex) scalar_symbols(s.index_value, stack);
      for (Dim d : s.index) scalar_symbols(d, stack);
      for (int i = 0; i < arity(s.op); ++i) stack.push_back(s.args[i]);
    }
    if (!touched) continue;
    if (!own || !(stage.loops[0].extent == extent) ||
        !straight_line(extent, group, row_lanes(program, nest, stage, group)))
      return false;
    for (const StageOutput &output : stage.outputs)
      if (sums_rows(nest, output)) return false;
  }
  return true;
}

namespace {

class RowNest {
 public:
  // `group` threads share a row; `rows` of them are in a block (1 when the group is larger than a warp).
  RowNest(const LoopNest &nest, KernelContext &k, unsigned group, unsigned rows, Value member, Value row)
      : nest_(nest), k_(k), locals_(nest, k), group_(group), member_(member) {
    Builder &b = k.b;
    for (size_t i = 0; i < nest.locals.size(); ++i) {
      if (nest.locals[i].shape.empty() || in_registers(k.program, nest, LocalId(i), group)) continue;
      const unsigned size = storage_size(nest.locals[i].type);
      const unsigned bytes =
          (static_cast<unsigned>(upper_bound(element_count(nest.locals[i].shape))) * size + 15) / 16 * 16;
      const unsigned at = b.reserve_shared(bytes * rows);
      locals_.places[i].array = b.shared(b.add(b.mul(row, bytes), at));
    }
  }

  void run(const Scope &base, Value active) {
    for (size_t i = 0; i < nest_.stages.size(); ++i) {
      run_stage(base, nest_.stages[i], active);
      bool rows_written = false;
      for (const StageOutput &output : nest_.stages[i].outputs)
        rows_written = rows_written || (output.local.valid() && locals_.places[output.local.index].array);
      if (rows_written) k_.b.barrier();
    }
  }

 private:
  void run_stage(const Scope &base, const Stage &stage, Value active) {
    Builder &b = k_.b;
    Scope scope = base;
    Locals *locals = &locals_;
    scope.read_local = [locals](Scope &at, const Scalar &s, int lane) { return locals->read(at, s, lane); };
    std::vector<StageOutput> spread;
    std::vector<const StageOutput *> scalars;
    for (const StageOutput &output : stage.outputs) {
      const bool array = output.local.valid() && !nest_.locals[output.local.index].shape.empty();
      if (array && output.combine != Combine::kStore) {
        partial_rows(scope, stage, output);
        continue;
      }
      spread.push_back(output);
    }
    for (const StageOutput &output : spread)
      if (output.local.valid() && nest_.locals[output.local.index].shape.empty()) scalars.push_back(&output);
    if (spread.empty()) return;

    LoopOrder order = order_loops(k_.program, stage.loops, spread, false);
    Dim total = total_extent(order.loops);
    const int lanes = row_lanes(k_.program, nest_, stage, group_);
    const int step = static_cast<int>(group_) * lanes;
    const bool straight = straight_line(total, group_, lanes);
    // Sums in a few independent parts: short chains of additions, and smaller errors.
    const int parts = straight && lanes > 1 ? std::min(lanes, 4) : 1;
    Values sums;
    for (const StageOutput *output : scalars)
      for (int part = 0; part < parts; ++part)
        sums.push_back(identity(b, output->combine, nest_.locals[output->local.index].type));
    auto body = [&](Scope &at, const Values &in, Value inside) {
      Values out = in;
      for (size_t i = 0; i < scalars.size(); ++i)
        for (int lane = 0; lane < lanes; ++lane) {
          const size_t part = i * static_cast<size_t>(parts) + static_cast<size_t>(lane % parts);
          out[part] = accumulate(at, *scalars[i], nest_.locals[scalars[i]->local.index].type, out[part], lane, inside);
        }
      for (const StageOutput &output : spread) {
        Value may = inside ? (active ? b.both(active, inside) : inside) : (active ? active : b.ir.getTrue());
        if (output.buffer.valid()) {
          store_output(at, output, may);
        } else if (LocalPlace &place = locals_.places[output.local.index];
                   !nest_.locals[output.local.index].shape.empty()) {
          if (!place.array) {
            for (int lane = 0; lane < lanes; ++lane)
              written_.emplace_back(&place, std::make_pair(locals_.step, lane), at.scalar(output.value, lane));
            continue;
          }
          b.when(inside ? inside : b.ir.getTrue(), [&] {
            Scope in_scope = at;
            for (int lane = 0; lane < lanes; ++lane)
              b.when(in_scope.condition(output.condition, lane), [&] {
                Scope inner = in_scope;
                locals_.write(inner, output.local, output.index, lane, inner.scalar(output.value, lane));
              });
          });
        }
      }
      return out;
    };
    auto at_index = [&](Value flat) {
      Scope at = scope;
      delinearize(at, order.loops, flat);
      if (!order.loops.empty()) at.vectorize(order.loops.back().index, lanes);
      return at;
    };
    Value first = b.mul(member_, lanes);
    if (straight) {
      // Straight-line code: loads of a later stage that an earlier one made are the same value.
      std::vector<std::pair<Scope, Value>> steps;
      for (int64_t at = 0; at < total.value(); at += step) {
        Value flat = b.add(first, at);
        Value inside = nullptr;
        if (at + step > total.value()) {
          inside = b.lt(flat, b.i32(total.value()));
          flat = b.ir.CreateSelect(inside, flat, b.i32(0));
        }
        steps.emplace_back(at_index(flat), inside);
        // The row itself, in its first stage; what else a later stage reads would only take registers.
        for (const StageOutput &output : spread)
          if (&stage == &nest_.stages.front() && !output.condition.valid()) steps.back().first.fetch(output.value);
      }
      for (locals_.step = 0; locals_.step < steps.size(); ++locals_.step)
        sums = body(steps[locals_.step].first, sums, steps[locals_.step].second);
      for (auto &[place, where, value] : written_) place->registers[where] = value;
      written_.clear();
    } else {
      sums = b.loop(first, scope.index(total), b.i32(step), sums, [&](Value flat, const Values &in) {
        Scope at = at_index(flat);
        return body(at, in, nullptr);
      });
    }
    for (size_t i = 0; i < scalars.size(); ++i) {  // the parts of each in one, in a tree
      const ElementType type = nest_.locals[scalars[i]->local.index].type;
      const size_t at = i * static_cast<size_t>(parts);
      for (size_t width = static_cast<size_t>(parts) / 2; width > 0; width /= 2)
        for (size_t part = 0; part < width; ++part)
          sums[at + part] = combine(b, scalars[i]->combine, type, sums[at + part], sums[at + part + width]);
      sums[i] = sums[at];
    }
    for (size_t i = 0; i < scalars.size(); ++i) {
      const StageOutput &output = *scalars[i];
      const ElementType type = nest_.locals[output.local.index].type;
      Value v = output.combine == Combine::kStore ? sums[i] : all(output.combine, type, sums[i]);
      if (output.initial.valid() && output.combine != Combine::kStore)
        v = combine(b, output.combine, type, scope.scalar(output.initial), v);
      locals_.places[output.local.index].scalar = {v};
    }
  }

  // An array that sums over some of the stage's loops: each element is one thread's work.
  void partial_rows(Scope &scope, const Stage &stage, const StageOutput &output) {
    Builder &b = k_.b;
    const ElementType type = nest_.locals[output.local.index].type;
    std::vector<Loop> kept, summed;
    for (const Loop &loop : stage.loops) {
      bool used = false;
      for (Dim d : output.index) used = used || uses_loop(k_.program, d, loop.index);
      (used ? kept : summed).push_back(loop);
    }
    Scope start = scope;
    b.loop(member_, start.index(total_extent(kept)), b.i32(group_), [&](Value flat) {
      Scope at = scope;
      delinearize(at, kept, flat);
      Values sum = b.loop(b.i32(0), at.index(total_extent(summed)), b.i32(1), {identity(b, output.combine, type)},
                          [&](Value inner, const Values &in) {
                            Scope deep = at;
                            delinearize(deep, summed, inner);
                            return Values{accumulate(deep, output, type, in[0], 0, nullptr)};
                          });
      Scope end = at;
      if (output.initial.valid()) sum[0] = combine(b, output.combine, type, end.scalar(output.initial), sum[0]);
      locals_.write(end, output.local, output.index, 0, sum[0]);
    });
  }

  // The combination over the group, in every member, always in the same order.
  Value all(Combine how, ElementType type, Value v) {
    Builder &b = k_.b;
    for (int mask = 16; mask > 0; mask /= 2) v = combine(b, how, type, v, b.shuffle_xor(v, mask));
    if (group_ <= 32) return v;
    const unsigned size = storage_size(type), warps = group_ / 32, at = b.reserve_shared(size * warps);
    b.when(b.ir.CreateICmpEQ(b.lane(), b.i32(0)),
           [&] { b.store(to_storage(b, type, v), b.shared(b.add(b.mul(b.warp(), size), at)), size); });
    b.barrier();
    Value sum = nullptr;
    for (unsigned i = 0; i < warps; ++i) {
      Value part = from_storage(b, type, b.load(storage_type(b, type), b.shared(at + i * size), size));
      sum = sum ? combine(b, how, type, sum, part) : part;
    }
    return sum;
  }

  const LoopNest &nest_;
  KernelContext &k_;
  Locals locals_;
  unsigned group_;
  Value member_;
  std::vector<std::tuple<LocalPlace *, std::pair<size_t, int>, Value>> written_;  // by the stage, for later ones
};

}  // namespace

void run_rows(const LoopNest &nest, KernelContext &k, unsigned group, unsigned rows, Value member, Value row,
              const Scope &base, Value active) {
  RowNest(nest, k, group, rows, member, row).run(base, active);
}

}  // namespace optc::ptx
