// Loop nests without a template of their own.
//
// Three ways to spread a nest over threads:
//   pointwise  one thread for each few consecutive iterations of all loops (16 bytes of output where the layout allows)
//   rows       a group of threads (a warp or a block) for each iteration of the outer loops; the stages' loops are
//   spread over the
//              group, reductions end in shuffles and shared memory in a fixed order
//   serial     one thread for each iteration of the outer loops, the stages' loops one after the other inside
// A nest whose iterations must run in order is one thread.

#include <algorithm>

#include "emit/ptx/nests.h"

namespace optc::ptx {

namespace {

constexpr int64_t kSharedLimit = 96 << 10;  // what a block may use on every target

bool constant_at_most(Dim d, int64_t limit) { return upper_bound(d) <= limit; }

// The widest number of consecutive iterations that one thread should take, from the element types that are stored.
int lanes_for(const Program &program, const std::vector<StageOutput> &outputs, const std::vector<Loop> &loops) {
  if (loops.empty()) return 1;
  unsigned size = 16;
  for (const StageOutput &output : outputs)
    if (output.buffer.valid()) size = std::min(size, storage_size(program.buffer(output.buffer).element()));
  int lanes = std::min(8, static_cast<int>(16 / size));
  while (lanes > 1 && !divisible_by(loops.back().extent, lanes)) lanes /= 2;
  return lanes;
}

// How many groups of lanes one thread takes, so that about eight 16-byte loads are in flight in a thread (4 are enough
// on full multiprocessors), without a body that is too long and with all multiprocessors full.
int batch_for(const Program &program, const std::vector<StageOutput> &outputs, int lanes, Dim groups) {
  std::vector<ScalarId> loads;
  for (const StageOutput &output : outputs) {
    if (output.condition.valid() || output.combine != Combine::kStore) return 1;
    collect_loads(program, output.value, loads);
  }
  Accesses accesses{program, {}, {}, {}};
  for (const StageOutput &output : outputs) accesses.visit(output);
  const int nodes = static_cast<int>(accesses.seen.size());
  int batch = loads.size() > 2 ? 4 : 8;
  if (loads.size() > 4) batch = 2;
  while (batch > 1 && (nodes * lanes * batch > 2048 || upper_bound(groups) / batch < 132 * 2048 ||
                       upper_bound(groups) >= int64_t{1} << 31))
    batch /= 2;
  return std::min(batch, 4);
}

Draft pointwise_draft(const Program &program, std::vector<Loop> loops, const std::vector<StageOutput> &outputs) {
  LoopOrder order = order_loops(program, std::move(loops), outputs, true);
  const int lanes = lanes_for(program, outputs, order.loops);
  Dim groups = floor_div(total_extent(order.loops), lanes);
  Draft draft;
  draft.form = "pointwise";
  draft.threads = upper_bound(groups) > 132 * 256 * 4 ? 256 : 128;
  // A thread's groups lie in consecutive rows, where what depends on the column alone is read once, or a block apart.
  int batch = batch_for(program, outputs, lanes, groups);
  const size_t n = order.loops.size();
  const DimSymbol *row = nullptr;
  while (batch > 1) {
    if (n > 1 && divisible_by(order.loops[n - 2].extent, batch)) {
      row = order.loops[n - 2].index;
      break;
    }
    if (divisible_by(groups, static_cast<int64_t>(draft.threads) * batch)) break;
    batch /= 2;
  }
  std::vector<Loop> outer = order.loops;
  if (row) outer[n - 2].extent = floor_div(outer[n - 2].extent, batch);
  Dim threads = floor_div(groups, batch);
  draft.grid[0] = ceil_div(threads, draft.threads);
  draft.body = [order, outputs, lanes, outer, row, batch, threads](KernelContext &k) {
    Builder &b = k.b;
    Scope scope(k);
    for (const DimSymbol *zero : order.zeros) scope.set_zero(zero);
    Value first = b.add(b.mul(b.block(0), row ? b.threads() : b.threads() * static_cast<unsigned>(batch)), b.tid());
    auto groups_at = [&] {
      std::vector<Scope> at;
      for (int i = 0; i < batch; ++i) {
        at.push_back(scope);
        Value group = row ? first : b.add(first, static_cast<int64_t>(b.threads()) * i);
        Value block_row = delinearize(at.back(), outer, b.mul(group, lanes), row);
        if (row) at.back().set(row, b.add(b.mul(block_row, batch), i));
        if (!order.loops.empty()) at.back().vectorize(order.loops.back().index, lanes);
      }
      return at;
    };
    b.when(row || batch == 1 ? b.lt(first, scope.index(threads)) : b.ir.getTrue(), [&] {
      std::vector<Scope> at = groups_at();
      // All loads before the first value, all values of a group before its stores.
      for (Scope &group : at)
        for (const StageOutput &output : outputs)
          if (!output.condition.valid() && output.combine == Combine::kStore) group.fetch(output.value);
      for (Scope &group : at) {
        for (const StageOutput &output : outputs)
          if (!output.condition.valid() && output.combine == Combine::kStore) lane_values(group, output.value);
        for (const StageOutput &output : outputs) store_output(group, output, b.ir.getTrue());
      }
    });
  };
  return draft;
}

}  // namespace

Value delinearize(Scope &scope, const std::vector<Loop> &loops, Value flat, const DimSymbol *wanted) {
  Builder &b = scope.context().b;
  Value found = nullptr;
  for (size_t i = loops.size(); i-- > 0;) {
    Value extent = i > 0 ? scope.index(loops[i].extent) : nullptr;
    Value v = i > 0 ? b.rem(flat, extent) : flat;
    scope.set(loops[i].index, v);
    if (loops[i].index == wanted) found = v;
    if (i > 0) flat = b.div(flat, extent);
  }
  return found;
}

std::optional<int64_t> row_scratch_bytes(const Program &program, const LoopNest &nest, unsigned group, unsigned rows) {
  int64_t bytes = 0;
  for (size_t i = 0; i < nest.locals.size(); ++i) {
    const Local &local = nest.locals[i];
    if (local.shape.empty() || in_registers(program, nest, LocalId(i), group)) continue;
    const Dim count = element_count(local.shape);
    if (!constant_at_most(count, kSharedLimit)) return std::nullopt;
    bytes += (upper_bound(count) * storage_size(local.type) + 15) / 16 * 16 * rows;
  }
  return bytes;
}

std::vector<Draft> draft_loops(const Program &program, const Kernel &kernel, std::string *why) {
  const LoopNest &nest = *kernel.nest();
  bool in_order = nest.sequential, locals = !nest.locals.empty(), stage_loops = false, all_store = true;
  for (const Stage &stage : nest.stages) {
    stage_loops = stage_loops || !stage.loops.empty();
    for (const StageOutput &output : stage.outputs) {
      if (output.buffer.valid() && output.combine != Combine::kStore) in_order = true;
      all_store = all_store && output.combine == Combine::kStore && output.buffer.valid();
    }
  }
  if (in_order) {
    Draft draft;
    draft.form = "in order";
    draft.threads = 32;
    draft.body = [&nest](KernelContext &k) {
      Builder &b = k.b;
      b.when(b.ir.CreateICmpEQ(b.tid(), b.i32(0)), [&] {
        Scope scope(k);
        std::function<void(size_t, const Scope &)> level = [&](size_t depth, const Scope &outer) {
          if (depth == nest.loops.size()) {
            run_serial(nest, k, outer);
            return;
          }
          Scope here = outer;
          b.loop(b.i32(0), here.index(nest.loops[depth].extent), b.i32(1), [&](Value i) {
            Scope inner = outer;
            inner.set(nest.loops[depth].index, i);
            level(depth + 1, inner);
          });
        };
        level(0, scope);
      });
    };
    return {draft};
  }
  if (!locals && all_store) {
    // Stages that only store are independent of one another: one launch a set of loops.
    std::vector<Draft> drafts;
    std::vector<StageOutput> plain;
    for (const Stage &stage : nest.stages) {
      if (stage.loops.empty()) {
        plain.insert(plain.end(), stage.outputs.begin(), stage.outputs.end());
        continue;
      }
      std::vector<Loop> loops = nest.loops;
      loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
      drafts.push_back(pointwise_draft(program, loops, stage.outputs));
    }
    if (!plain.empty()) drafts.insert(drafts.begin(), pointwise_draft(program, nest.loops, plain));
    return drafts;
  }

  // Rows or serial? Rows when the innermost stage loop walks memory with unit stride, or when there are few outer
  // iterations.
  Dim outer = total_extent(nest.loops);
  int64_t width = 1;
  bool unit = false, stores_rows = false, arrays = false;
  for (const Local &local : nest.locals) arrays = arrays || !local.shape.empty();
  for (const Stage &stage : nest.stages) {
    if (stage.loops.empty()) continue;
    width = std::max(width, std::min<int64_t>(upper_bound(total_extent(stage.loops)), int64_t{1} << 30));
    std::vector<ScalarId> loads;
    for (const StageOutput &output : stage.outputs) {
      collect_loads(program, output.value, loads);
      stores_rows = stores_rows || output.buffer.valid();
    }
    for (ScalarId id : loads) {
      const Scalar &s = program.scalars.at(id);
      auto part = affine_over(program, root_offset(program, s.buffer, s.index), stage.loops.back().index);
      unit = unit || (part && part->coefficient.is(1));
    }
  }
  const int64_t many = upper_bound(outer);
  const bool rows =
      stage_loops && ((unit && width >= 32) || (width >= 128 && many < 8192) || (stores_rows && unit && width >= 16));
  if (rows) {
    // Four 16-byte loads a thread, which hold the row in registers; more threads where the rows are few.
    int lanes = 1;
    for (const Stage &stage : nest.stages)
      if (!stage.loops.empty()) lanes = std::max(lanes, row_lanes(program, nest, stage, 1));
    const int64_t taken = std::max(4 * lanes, 8);
    unsigned group = 32;
    while (group < 512 && (width > group * taken || (width > int64_t{group} * lanes && many * group < 132 * 512)))
      group *= 2;
    if (many >= 4096 && width <= 1024) group = 32;
    const unsigned per_block = group == 32 && many >= 528 ? 4 : 1;
    if (const auto shared = row_scratch_bytes(program, nest, group, per_block);
        shared && *shared <= kSharedLimit - 8192) {
      Draft draft;
      draft.form = "rows";
      draft.threads = group * per_block;
      // 64 registers a thread: 1024 threads a multiprocessor, 64 KiB of loads in flight
      draft.min_blocks = 1024 / draft.threads;
      draft.grid[0] = ceil_div(outer, per_block);
      draft.body = [&nest, outer, group, per_block](KernelContext &k) {
        Builder &b = k.b;
        Scope scope(k);
        Value row_in_block = per_block == 1 ? b.i32(0) : b.warp();
        Value member = per_block == 1 ? b.tid() : b.lane();
        Value row = b.add(b.mul(b.block(0), per_block), row_in_block), active = nullptr;
        if (per_block > 1 && !divisible_by(outer, per_block)) {
          active = b.lt(row, scope.index(outer));
          row = b.ir.CreateSelect(active, row, b.i32(0));  // whole groups stay for the barriers
        }
        delinearize(scope, nest.loops, row);
        run_rows(nest, k, group, per_block, member, row_in_block, scope, active);
      };
      return {draft};
    }
  }
  if (arrays) {
    for (const Local &local : nest.locals)
      if (!local.shape.empty() && !constant_at_most(element_count(local.shape), 4096)) {
        *why = "row scratch '" + local.name + "' does not fit shared memory";
        return {};
      }
  }
  std::vector<StageOutput> stores;
  for (const Stage &stage : nest.stages)
    if (stage.loops.empty())
      for (const StageOutput &output : stage.outputs)
        if (output.buffer.valid()) stores.push_back(output);
  LoopOrder order = order_loops(program, nest.loops, stores, false);
  int lanes = stores.empty() || arrays ? 1 : lanes_for(program, stores, order.loops);
  while (lanes > 1 && (many / lanes < 132 * 256 || lanes > 4)) lanes /= 2;
  Draft draft;
  draft.form = "serial";
  draft.threads = 128;
  Dim groups = floor_div(outer, lanes);
  draft.grid[0] = ceil_div(groups, draft.threads);
  draft.body = [&nest, order, groups, lanes](KernelContext &k) {
    Builder &b = k.b;
    Scope scope(k);
    Value group = b.add(b.mul(b.block(0), b.threads()), b.tid());
    b.when(b.lt(group, scope.index(groups)), [&] {
      Scope at = scope;
      delinearize(at, order.loops, b.mul(group, lanes));
      if (!order.loops.empty()) at.vectorize(order.loops.back().index, lanes);
      run_serial(nest, k, at);
    });
  };
  return {draft};
}

}  // namespace optc::ptx
