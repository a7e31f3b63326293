// Matrix products and convolutions of a Program on the tensor-core templates, as their schedule says: operands and
// epilogue.

#include <algorithm>

#include "emit/ptx/draft.h"
#include "emit/ptx/gemm.h"
#include "emit/ptx/nests.h"
#include "emit/ptx/paired.h"
#include "emit/ptx/warpgroup.h"

namespace optc::ptx {

Value narrow_elements(Scope scope, const ProductOperand &operand, TensorCoreType type, const DimSymbol *along,
                      int group, Value inside) {
  Builder &b = scope.context().b;
  if (group > 1) scope.vectorize(along, group);
  scope.only_where(inside);
  llvm::Type *element = type == TensorCoreType::kF16 ? static_cast<llvm::Type *>(b.ir.getHalfTy()) : b.ir.getInt16Ty();
  auto one = [&](int lane) -> Value {
    Value v = scope.scalar(operand.whole, lane);
    if (type == TensorCoreType::kF16) return b.ir.CreateFPTrunc(v, element);  // exact
    return b.ir.CreateTrunc(b.ir.CreateLShr(b.ir.CreateBitCast(v, b.t_i32()), b.i32(16)), element);
  };
  auto or_zero = [&](Value v) { return b.ir.CreateSelect(inside, v, llvm::Constant::getNullValue(v->getType())); };
  if (group == 1) return or_zero(one(0));
  Value all = llvm::PoisonValue::get(llvm::FixedVectorType::get(element, static_cast<unsigned>(group)));
  for (int lane = 0; lane < group; ++lane) all = b.ir.CreateInsertElement(all, one(lane), static_cast<uint64_t>(lane));
  return or_zero(b.ir.CreateBitCast(all, llvm::FixedVectorType::get(b.t_i32(), static_cast<unsigned>(group) / 2)));
}

void store_sums(Scope scope, const LoopNest &nest, const Values &sums) {
  KernelContext &k = scope.context();
  Builder &b = k.b;
  const ScalarId initial = nest.stages[0].outputs[0].initial;
  scope.read_local = [&sums, &b, initial](Scope &reader, const Scalar &, int lane) {
    Value v = sums[static_cast<size_t>(lane)];
    return initial.valid() ? b.ir.CreateFAdd(reader.scalar(initial, lane), v) : v;
  };
  for (size_t i = 1; i < nest.stages.size(); ++i)
    for (const StageOutput &output : nest.stages[i].outputs) {
      if (!output.condition.valid()) {
        Values values;
        for (int lane = 0; lane < scope.lanes(); ++lane) values.push_back(scope.scalar(output.value, lane));
        scope.store(output.buffer, output.index, values);
        continue;
      }
      for (size_t lane = 0; lane < sums.size(); ++lane)
        b.when(scope.scalar(output.condition, static_cast<int>(lane)), [&] {
          Scope inner = scope;
          Value v = inner.scalar(output.value, static_cast<int>(lane));
          const ElementType type = k.program.buffer(output.buffer).element();
          b.store(to_storage(b, type, v), inner.address(output.buffer, output.index, static_cast<int>(lane)),
                  storage_size(type));
        });
    }
}

Value stored_sum(Scope scope, const LoopNest &nest, Value sum) {
  KernelContext &k = scope.context();
  const ScalarId initial = nest.stages[0].outputs[0].initial;
  scope.read_local = [sum, &k, initial](Scope &reader, const Scalar &, int lane) {
    return initial.valid() ? k.b.ir.CreateFAdd(reader.scalar(initial, lane), sum) : sum;
  };
  const StageOutput &output = nest.stages[1].outputs[0];
  const ElementType type = k.program.buffer(output.buffer).element();
  return from_storage(k.b, type, to_storage(k.b, type, scope.scalar(output.value)));
}

namespace {

// The loops by role, and the nest's expressions that they stand for. (The nest is the Program's.)
struct Plan {
  TensorCoreProduct schedule;
  ProductOperand a, b;
  const LoopNest *nest = nullptr;
};

// The operand's callbacks. `base` has the batch's counters.
GemmOperand operand_of(KernelContext &k, const Scope &base, const Plan &plan, const TensorCoreProduct::Operand &side,
                       const ProductOperand &factor) {
  GemmOperand out;
  out.k_contiguous = side.k_contiguous;
  out.chunk_bytes = static_cast<unsigned>(side.chunk_bytes);
  out.constant = side.constant;
  auto place = [&plan, &side](Scope &scope, Value outer, Value inner) {
    delinearize(scope, side.outer, side.k_contiguous ? outer : inner);
    delinearize(scope, plan.schedule.k, side.k_contiguous ? inner : outer);
  };
  out.chunk = [&k, &base, &factor, place](Value outer, Value inner) {
    Scope scope = base;
    place(scope, outer, inner);
    GemmOperand::Chunk chunk{nullptr, nullptr};
    for (ScalarId c : factor.conditions) {
      Value v = chunk.valid ? scope.guarded(c, c, chunk.valid) : scope.scalar(c);
      chunk.valid = chunk.valid ? k.b.both(chunk.valid, v) : v;
    }
    const Scalar &load = k.program.scalars.at(factor.load);
    chunk.pointer = scope.address(load.buffer, load.index);
    return chunk;
  };
  out.group = static_cast<int>(side.group);
  out.element = [&k, &base, &plan, &side, &factor, place, group = out.group](Value outer, Value inner,
                                                                             Value inside) -> Value {
    Scope scope = base;
    place(scope, outer, inner);
    if (element_bytes(plan.schedule.type) == 2) {
      const Loop &along = side.k_contiguous || side.outer.empty() ? plan.schedule.k.back() : side.outer.back();
      return narrow_elements(scope, factor, plan.schedule.type, along.index, group, inside);
    }
    scope.only_where(inside);
    Value v = scope.scalar(factor.whole);
    return k.b.ir.CreateSelect(inside, v, k.b.f32(0));
  };
  return out;
}

// The sum at (row, column) as the nest has it, term by term.
Value plain_sum(KernelContext &k, const Scope &base, const Plan &plan, Value size, Value row, Value column) {
  Builder &b = k.b;
  Scope scope = base;
  delinearize(scope, plan.schedule.a.outer, row);
  delinearize(scope, plan.schedule.b.outer, column);
  return b.loop(
      b.i32(0), size, b.i32(1), {b.f32(0)},
      [&](Value at, const Values &in) {
        Scope term = scope;
        delinearize(term, plan.schedule.k, at);
        return Values{b.ir.CreateFAdd(in[0], b.ir.CreateFMul(term.scalar(plan.a.whole), term.scalar(plan.b.whole)))};
      },
      true)[0];
}

// What is stored of sums.size() neighbours of a row, a power of two that divides the columns' last loop; `column` is a
// multiple of it.
void emit_epilogue(const Scope &base, const Plan &plan, Value row, Value column, const Values &sums) {
  Scope scope = base;
  delinearize(scope, plan.schedule.a.outer, row);
  delinearize(scope, plan.schedule.b.outer, column);
  if (sums.size() > 1) scope.vectorize(plan.schedule.b.outer.back().index, static_cast<int>(sums.size()));
  store_sums(scope, *plan.nest, sums);
}
// The same of one column where the other product's result there is what the epilogue reads.
void emit_paired_epilogue(const Scope &base, const Plan &plan, const Plan &other, const std::vector<ScalarId> &loads,
                          Value row, Value column, Value sum, Value other_sum) {
  Scope of_other = base;
  delinearize(of_other, other.schedule.a.outer, row);
  delinearize(of_other, other.schedule.b.outer, column);
  Value given = stored_sum(of_other, *other.nest, other_sum);
  Scope scope = base;
  delinearize(scope, plan.schedule.a.outer, row);
  delinearize(scope, plan.schedule.b.outer, column);
  for (ScalarId load : loads) scope.define(load, given);
  store_sums(scope, *plan.nest, {sum});
}
// The second factor's chunks where each tile of columns is half of one product's and half of the other's.
std::function<GemmOperand::Chunk(Value, Value)> paired_chunks(Builder &b, const GemmOperand &one,
                                                              const GemmOperand &other, int columns) {
  return
      [&b, one = one.chunk, other = other.chunk, k_contiguous = one.k_contiguous, columns](Value outer, Value inner) {
        Value column = k_contiguous ? outer : inner;
        Value in_tile = b.rem(column, columns), of_other = b.lt(b.i32(columns / 2 - 1), in_tile);
        Value place = b.add(b.mul(b.div(column, columns), columns / 2), b.rem(in_tile, columns / 2));
        const auto at = [&](const auto &chunk) { return k_contiguous ? chunk(place, inner) : chunk(outer, place); };
        const GemmOperand::Chunk first = at(one), second = at(other);
        return GemmOperand::Chunk{b.ir.CreateSelect(of_other, second.pointer, first.pointer), nullptr};
      };
}
// How many neighbours emit_epilogue takes, of `most`.
int epilogue_lanes(const Plan &plan, int most) {
  const std::vector<Loop> &columns = plan.schedule.b.outer;
  while (most > 1 && (columns.empty() || !divisible_by(columns.back().extent, most))) most /= 2;
  return most;
}

// Runs a nest of rows with the whole block, all of its rows one after the other. What it writes goes to shared memory,
// where the kernel finds it from here on.
void compute_rows(KernelContext &k, const Kernel &kernel) {
  Builder &b = k.b;
  const LoopNest &nest = *kernel.nest();
  const BufferId root = root_of(k.program, writes(k.program, kernel)[0]).buffer;
  const Buffer &result = k.program.buffer(root);
  const int64_t bytes = upper_bound(storage_count(result)) * storage_size(result.element());
  k.pointers.emplace_back(root, b.shared(b.reserve_shared(static_cast<unsigned>(bytes))));
  k.reads_are_invariant = false;
  const Dim count = total_extent(nest.loops);
  auto row = [&](Value at) {
    Scope scope(k);
    delinearize(scope, nest.loops, at);
    run_rows(nest, k, b.threads(), 1, b.tid(), b.i32(0), scope, nullptr);
    b.barrier();  // what reductions exchange, the next row writes, too
  };
  if (count.is(1))
    row(b.i32(0));
  else
    b.loop(b.i32(0), Scope(k).index(count), b.i32(1), row);
}

// Nothing where the nest has not the form of its schedule.
std::optional<Plan> make_plan(const Program &program, const Kernel &kernel, const TensorCoreProduct &s) {
  ProductSum sum;
  if (!kernel.nest() || !product_sum(program, *kernel.nest(), sum)) return std::nullopt;
  Plan plan;
  plan.schedule = s;
  plan.a = peel(program, s.exchanged ? sum.rhs : sum.lhs);
  plan.b = peel(program, s.exchanged ? sum.lhs : sum.rhs);
  if (!fit(s.type, plan.a) || !fit(s.type, plan.b)) return std::nullopt;
  plan.nest = kernel.nest();
  return plan;
}

}  // namespace

std::optional<Draft> draft_tensor_core(const Program &program, const Kernel &kernel, const GemmTensorCoreSchedule &s,
                                       int copies, const Kernel *rows, const Kernel *paired) {
  const auto made = make_plan(program, kernel, s);
  std::optional<Plan> other;
  std::vector<ScalarId> given;  // the loads of the other's result
  if (paired) {
    const auto *schedule = std::get_if<GemmTensorCoreSchedule>(&paired->schedule);
    if (schedule) other = make_plan(program, *paired, *schedule);
    if (!other || !pair_tile(s)) return std::nullopt;
    given = loads_of_pair(program, kernel, *paired);
  }
  if (!made || copies < 1 || static_cast<size_t>(copies) > s.tiles.size()) return std::nullopt;
  const TensorCoreChoice &choice = s.tiles[static_cast<size_t>(copies) - 1];
  const TensorCoreTile tile = paired ? *pair_tile(s) : choice.tile;
  const int splits = paired ? 1 : choice.splits;
  const Dim m = total_extent(s.a.outer), n = total_extent(s.b.outer) * Dim(paired ? 2 : 1), k_size = total_extent(s.k),
            batch = total_extent(s.batch);
  if (through_registers(tile) && !fits_registers(s, tile, made->a, made->b)) return std::nullopt;
  if (splits > 1 && !(m.is_constant() && n.is_constant() && k_size.is_constant() && batch.is_constant()))
    return std::nullopt;
  Draft draft;
  draft.form = "gemm." + std::string(to_string(s.type)) + " " + std::to_string(tile.m) + "x" + std::to_string(tile.n) +
               "x" + std::to_string(tile.k) + (tile.warps_k > 1 ? " k/" + std::to_string(tile.warps_k) : "") +
               (through_registers(tile) ? " registers" : "") + (splits > 1 ? " split " + std::to_string(splits) : "") +
               " fetch " + std::to_string(s.a.chunk_bytes) + (s.a.group > 1 ? "x8" : "") +
               (s.a.k_contiguous ? "k" : "m") + " " + std::to_string(s.b.chunk_bytes) + (s.b.group > 1 ? "x8" : "") +
               (s.b.k_contiguous ? "k" : "n");
  if (paired) draft.form += " paired";
  if (rows) draft.form += " behind rows";
  draft.threads = static_cast<unsigned>(tile.threads());
  // What is in registers leaves room for the next block. Others of few rows have as few: they may be beside it.
  if (element_bytes(s.type) == 2 && upper_bound(m) <= kFewRows) draft.min_blocks = 2;
  draft.grid[0] = ceil_div(n, tile.n);
  draft.grid[1] = ceil_div(m, tile.m);
  draft.grid[2] = batch * Dim(splits);
  if (splits > 1) draft.workspace_bytes = (draft.grid[0] * draft.grid[1] * batch).value() * split_bytes(tile, splits);
  draft.waits = true;
  draft.early_next = upper_bound(m) <= 16;  // weights through once: bound by memory
  draft.body = [plan = *made, other, given, tile, splits, m, n, k_size, rows](KernelContext &k) {
    Builder &b = k.b;
    Scope base(k);
    const TensorCoreProduct &s = plan.schedule;
    Value in_batch = splits > 1 ? b.div(b.block(2), splits) : b.block(2);
    delinearize(base, s.batch, in_batch);
    Gemm gemm;
    gemm.type = s.type;
    gemm.tile = tile;
    gemm.m = base.index(m);
    gemm.n = base.index(n);
    gemm.k = base.index(k_size);
    gemm.row0 = b.mul(b.block(1), tile.m);
    gemm.column0 = b.mul(b.block(0), tile.n);
    gemm.k_begin = b.i32(0);
    gemm.k_end = gemm.k;
    gemm.splits = splits;
    if (k_size.is_constant()) gemm.part_of_k = steps_of_part(k_size.value(), tile, splits) * tile.k;
    if (splits > 1) {
      gemm.split = b.rem(b.block(2), splits);
      gemm.k_begin = b.mul(gemm.split, gemm.part_of_k);
      gemm.k_end = b.min(b.add(gemm.k_begin, gemm.part_of_k), gemm.k);
      gemm.tile_number =
          b.add(b.mul(b.add(b.mul(in_batch, ceil_div(m, tile.m).value()), b.block(1)), ceil_div(n, tile.n).value()),
                b.block(0));
      gemm.counters = k.workspace;
      gemm.parts = b.at(b.t_i32(), k.workspace, b.i32(kWorkspaceCounters));
    }
    gemm.a = operand_of(k, base, plan, s.a, plan.a);
    gemm.b = operand_of(k, base, plan, s.b, plan.b);
    if (other) {
      const GemmOperand second = operand_of(k, base, *other, other->schedule.b, other->b);
      gemm.b.chunk = paired_chunks(b, gemm.b, second, tile.n);
      gemm.paired = true;
      gemm.paired_epilogue = [&](Value row, Value column, const Values &sums, const Values &others) {
        for (size_t i = 0; i < 2; ++i)
          emit_paired_epilogue(base, plan, *other, given, row, b.add(column, static_cast<int64_t>(i)), sums[i],
                               others[i]);
      };
    }
    if (rows) {
      gemm.a.in_shared = true;
      gemm.before_products = [&k, rows] { compute_rows(k, *rows); };
    }
    if (element_bytes(s.type) == 4)
      gemm.plain_sum = [&](Value row, Value column) { return plain_sum(k, base, plan, gemm.k, row, column); };
    const bool even = epilogue_lanes(plan, 2) == 2;
    gemm.epilogue = [&](Value row, Value column, Value first, Value second, Value pair) {
      if (even) return emit_epilogue(base, plan, row, column, {first, second});
      emit_epilogue(base, plan, row, column, {first});
      b.when(pair, [&] { emit_epilogue(base, plan, row, b.add(column, 1), {second}); });
    };
    emit_gemm(b, gemm);
  };
  return draft;
}

namespace {

// A map of boxes of 64 by `extent` of its first two dims.
PtxTensorMap map_of(const Program &program, const TensorMap &from, int extent) {
  PtxTensorMap map;
  const Root root = root_of(program, from.buffer);
  map.buffer = root.buffer;
  map.byte_offset = (from.offset + root.offset) * Dim(2);
  map.type = program.buffer(from.buffer).element();
  map.extents = from.extents;
  for (Dim stride : from.strides) map.byte_strides.push_back(stride * Dim(2));
  map.box.assign(from.extents.size(), 1);
  map.box[0] = 64;
  map.box[1] = extent;
  return map;
}
PtxTensorMap map_of(const Program &program, const TensorMap &from, const TensorCoreProduct::Operand &side, int extent) {
  return map_of(program, from, side.k_contiguous ? extent : kWarpgroupDepth);
}
std::vector<PtxTensorMap> maps_of(const Program &program, const GemmWarpgroupSchedule &s, const WarpgroupTile &tile) {
  return {map_of(program, s.map_a, s.a, tile.m), map_of(program, s.map_b, s.b, tile.n)};
}
std::vector<PtxTensorMap> maps_of(const Program &program, const ConvolutionWarpgroupSchedule &s,
                                  const WarpgroupTile &tile) {
  PtxTensorMap image = map_of(program, s.image, s.exchanged ? tile.n : tile.m);
  image.walk = {s.image.lower, s.image.upper, s.image.steps};
  if (s.exchanged) return {map_of(program, s.filters, s.a, tile.m), std::move(image)};
  return {std::move(image), map_of(program, s.filters, s.b, tile.n)};
}

std::string form_of(const GemmWarpgroupSchedule &) { return "gemm."; }
std::string form_of(const ConvolutionWarpgroupSchedule &) { return "conv."; }
std::string walk_of(const GemmWarpgroupSchedule &s) {
  return std::string(" tma ") + (s.a.k_contiguous ? "k" : "m") + " " + (s.b.k_contiguous ? "k" : "n");
}
std::string walk_of(const ConvolutionWarpgroupSchedule &s) {
  const std::string filters = s.exchanged ? (s.a.k_contiguous ? "k" : "m") : (s.b.k_contiguous ? "k" : "n");
  return " tma " + (s.exchanged ? filters + " image" : "image " + filters);
}

void set_steps(const Scope &outside, const GemmWarpgroupSchedule &s, WarpgroupGemm &gemm) {
  Scope sizes = outside;
  gemm.k = sizes.index(total_extent(s.k));
}
void set_steps(const Scope &outside, const ConvolutionWarpgroupSchedule &s, WarpgroupGemm &gemm) {
  Scope sizes = outside;
  gemm.k = sizes.index(s.k.back().extent);
  gemm.taps = s.image.taps[0] * s.image.taps[1];
  WarpgroupGemm::Image image;
  image.window = [&s, outside](Value pixel) {
    Scope scope = outside;
    Builder &b = scope.context().b;
    Value inner = scope.index(s.image.pixels[0]), outer = scope.index(s.image.pixels[1]),
          line = b.ir.CreateUDiv(pixel, inner);
    const auto begin = [&](Value at, size_t d) { return b.add(b.mul(at, s.image.steps[d]), b.i32(s.image.lower[d])); };
    return Values{begin(b.ir.CreateURem(pixel, inner), 0), begin(b.ir.CreateURem(line, outer), 1),
                  b.ir.CreateUDiv(line, outer)};
  };
  image.offsets = [&s, outside](Value tap) {
    Scope scope = outside;
    Builder &b = scope.context().b;
    return Values{b.mul(b.rem(tap, s.image.taps[0]), s.image.dilations[0]),
                  b.mul(b.div(tap, s.image.taps[0]), s.image.dilations[1])};
  };
  (s.exchanged ? gemm.b : gemm.a).image = std::move(image);
  gemm.tap_coordinates = [taps = std::vector<Loop>(s.k.begin(), s.k.end() - 1), outside](Value tap) {
    Values coordinates;
    for (size_t i = taps.size(); i-- > 0;) {
      Scope scope = outside;
      coordinates.push_back(delinearize(scope, taps, tap, taps[i].index));
    }
    return coordinates;
  };
}

template <typename S>
std::optional<Draft> draft_on_warpgroups(const Program &program, const Kernel &kernel, const S &s, int copies) {
  const auto made = make_plan(program, kernel, s);
  if (!made || element_bytes(s.type) != 2 || copies < 1 || static_cast<size_t>(copies) > s.tiles.size())
    return std::nullopt;
  const WarpgroupTile tile = s.tiles[static_cast<size_t>(copies) - 1];
  const Dim m = total_extent(s.a.outer), n = total_extent(s.b.outer), batch = total_extent(s.batch);
  const Dim tiles = ceil_div(m, tile.m) * ceil_div(n, tile.n) * batch;
  Draft draft;
  draft.form = form_of(s) + std::string(to_string(s.type)) + " wgmma " + std::to_string(tile.m) + "x" +
               std::to_string(tile.n) + (tile.turns ? " in turns" : "") + walk_of(s);
  draft.threads = static_cast<unsigned>(128 * (tile.warpgroups + 1));
  draft.grid[0] = min(tiles, Dim(s.blocks));
  draft.waits = true;
  draft.early_next = tiles.is_constant() && tiles.value() <= s.blocks;
  draft.maps = [tile, &program](const Kernel &member) { return maps_of(program, std::get<S>(member.schedule), tile); };
  draft.body = [plan = *made, s, tile, m, n, batch](KernelContext &k) {
    Builder &b = k.b;
    const Scope outside(k);
    Scope sizes = outside;
    WarpgroupGemm gemm;
    gemm.type = s.type == TensorCoreType::kF16 ? MmaType::kF16 : MmaType::kBF16;
    gemm.tile = tile;
    gemm.blocks = s.blocks;
    gemm.by_shuffles = tile.turns && s.shuffles;
    gemm.m = sizes.index(m);
    gemm.n = sizes.index(n);
    gemm.batches = sizes.index(batch);
    gemm.a = {k.maps.at(0), s.a.k_contiguous, std::nullopt};
    gemm.b = {k.maps.at(1), s.b.k_contiguous, std::nullopt};
    set_steps(outside, s, gemm);
    gemm.batch_coordinates = [&](Value at) {
      Values coordinates;
      for (const Loop &loop : s.batch) {
        Scope scope = outside;
        coordinates.push_back(delinearize(scope, s.batch, at, loop.index));
      }
      return coordinates;
    };
    const int lanes = epilogue_lanes(plan, 8);
    gemm.epilogue = [&](Value at, Value row, Value column, const Values &sums) {
      Scope base = outside;
      delinearize(base, s.batch, at);
      for (int i = 0; i < 8; i += lanes) {
        const Values part(sums.begin() + i, sums.begin() + i + lanes);
        Value from = b.add(column, i);
        // `column` alone is known to be one.
        b.when(i == 0 ? b.ir.getTrue() : b.lt(from, gemm.n), [&] { emit_epilogue(base, plan, row, from, part); });
      }
    };
    emit_warpgroup_gemm(b, gemm);
  };
  return draft;
}

}  // namespace

std::optional<Draft> draft_warpgroup(const Program &program, const Kernel &kernel, const GemmWarpgroupSchedule &s,
                                     int copies) {
  return draft_on_warpgroups(program, kernel, s, copies);
}
std::optional<Draft> draft_warpgroup(const Program &program, const Kernel &kernel,
                                     const ConvolutionWarpgroupSchedule &s, int copies) {
  return draft_on_warpgroups(program, kernel, s, copies);
}

}  // namespace optc::ptx
