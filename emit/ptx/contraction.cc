// Matrix products and convolutions of a Program on the tensor-core template: which loop walks memory, how wide it may
// be fetched, which tile fits the shape, and the stages after the sum as the epilogue.

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "emit/ptx/draft.h"
#include "emit/ptx/gemm.h"
#include "emit/ptx/tiles.h"

namespace optc::ptx {

namespace {

bool is_zero(const Program &program, ScalarId id) {
  const Scalar &s = program.scalars.at(id);
  return s.op == ScalarOp::kConstant && s.bits == 0;
}

}  // namespace

Operand peel(const Program &program, ScalarId id) {
  Operand operand;
  operand.whole = id;
  while (true) {
    const Scalar &s = program.scalars.at(id);
    if (s.op == ScalarOp::kLoad) {
      operand.load = id;
      operand.stored = program.buffer(s.buffer).element();
      return operand;
    }
    if (s.op == ScalarOp::kSelect && is_zero(program, s.args[2])) {
      operand.conditions.push_back(s.args[0]);
      id = s.args[1];
      continue;
    }
    if (s.op == ScalarOp::kCast && s.type == ElementType::kFloat32) {
      const ElementType from = program.scalars.at(s.args[0]).type;
      if (from == ElementType::kFloat16 || from == ElementType::kBFloat16) {
        id = s.args[0];
        const Scalar &narrow = program.scalars.at(id);
        if (narrow.op == ScalarOp::kCast && program.scalars.at(narrow.args[0]).op == ScalarOp::kLoad &&
            program.scalars.at(narrow.args[0]).type == ElementType::kFloat32)
          operand.wide = narrow.args[0];
        if (program.scalars.at(id).op != ScalarOp::kLoad && program.scalars.at(id).op != ScalarOp::kSelect)
          operand.stored = from;
        continue;
      }
    }
    if (operand.stored == ElementType::kUndefined) operand.stored = s.type;
    return operand;  // something computed
  }
}

// The type whose products are exact for the operand: what it is stored or rounded as.
ElementType precision(const Program &program, const Operand &operand) {
  if (operand.load.valid() || operand.stored == ElementType::kFloat16 || operand.stored == ElementType::kBFloat16)
    return operand.stored;
  const Scalar &s = program.scalars.at(operand.whole);
  if (s.op == ScalarOp::kCast) {
    const ElementType from = program.scalars.at(s.args[0]).type;
    if (from == ElementType::kFloat16 || from == ElementType::kBFloat16) return from;
  }
  return s.type;
}

// How many elements from `loop`'s counter on lie together, aligned to their size: 16, 8 or 4 bytes' worth, 1 when only
// the stride is 1, 0 when it is not.
int together(const Program &program, const Operand &operand, const Loop &loop, unsigned size) {
  const Scalar &s = program.scalars.at(operand.load);
  auto part = affine_over(program, root_offset(program, s.buffer, s.index), loop.index);
  if (!part || !part->coefficient.is(1)) return 0;
  for (ScalarId c : operand.conditions)
    if (uses_loop(program, c, loop.index)) return 1;
  for (unsigned bytes = 16; bytes >= 4 && bytes > size; bytes /= 2) {
    const int count = static_cast<int>(bytes / size);
    if (divisible_by(loop.extent, count) && divisible_by(part->rest, count)) return count;
  }
  return 1;
}

bool wide_together(const Program &program, const Operand &operand, const Loop &loop) {
  if (!operand.wide.valid()) return false;
  const Scalar &s = program.scalars.at(operand.wide);
  auto part = affine_over(program, root_offset(program, s.buffer, s.index), loop.index);
  if (!part || !part->coefficient.is(1) || !divisible_by(part->rest, 8) || !divisible_by(loop.extent, 8)) return false;
  for (ScalarId c : operand.conditions)
    if (uses_loop(program, c, loop.index)) return false;
  return true;
}

Value narrow_elements(Scope scope, const Operand &operand, GemmType type, const DimSymbol *along, int group,
                      Value inside) {
  Builder &b = scope.context().b;
  if (group > 1) scope.vectorize(along, group);
  scope.only_where(inside);
  llvm::Type *element = type == GemmType::kF16 ? static_cast<llvm::Type *>(b.ir.getHalfTy()) : b.ir.getInt16Ty();
  auto one = [&](int lane) -> Value {
    Value v = scope.scalar(operand.whole, lane);
    if (type == GemmType::kF16) return b.ir.CreateFPTrunc(v, element);  // exact
    return b.ir.CreateTrunc(b.ir.CreateLShr(b.ir.CreateBitCast(v, b.t_i32()), b.i32(16)), element);
  };
  auto or_zero = [&](Value v) { return b.ir.CreateSelect(inside, v, llvm::Constant::getNullValue(v->getType())); };
  if (group == 1) return or_zero(one(0));
  Value all = llvm::PoisonValue::get(llvm::FixedVectorType::get(element, static_cast<unsigned>(group)));
  for (int lane = 0; lane < group; ++lane) all = b.ir.CreateInsertElement(all, one(lane), static_cast<uint64_t>(lane));
  return or_zero(b.ir.CreateBitCast(all, llvm::FixedVectorType::get(b.t_i32(), static_cast<unsigned>(group) / 2)));
}

namespace {

struct Side {
  Operand operand;
  std::vector<Loop> outer;  // m or n loops
  bool k_contiguous = true;
  unsigned chunk_bytes = 0;
  int group = 1;          // elements computed at once
  bool constant = false;  // a weight at an address that depends on no data
};

// Chooses the direction and the width of the fetches of one side. `k_inner` is the last of the k loops.
void choose_access(const Program &program, Side &side, const Loop &k_inner, unsigned size) {
  side.chunk_bytes = size == 4 ? 4 : 0;
  if (!side.operand.load.valid()) {
    side.chunk_bytes = 0;
    if (size != 2) return;
    const bool along_k = wide_together(program, side.operand, k_inner);
    if (!along_k && (side.outer.empty() || !wide_together(program, side.operand, side.outer.back()))) return;
    side.k_contiguous = along_k;
    side.group = 8;
    return;
  }
  const Scalar &load = program.scalars.at(side.operand.load);
  side.constant = side.operand.conditions.empty() &&
                  program.buffer(root_of(program, load.buffer).buffer).kind == BufferKind::kConstant;
  for (Dim d : load.index) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols) side.constant = side.constant && s->kind != SymbolKind::kScalar;
  }
  const int along_k = together(program, side.operand, k_inner, size);
  const int along_outer = side.outer.empty() ? 0 : together(program, side.operand, side.outer.back(), size);
  side.k_contiguous = along_k >= along_outer || along_outer == 0;
  const int best = std::max(along_k, along_outer);
  const unsigned bytes = static_cast<unsigned>(best) * size;
  if (bytes >= 4) side.chunk_bytes = bytes;
}

const Loop *find_loop(const std::vector<Loop> &loops, const DimSymbol *symbol) {
  for (const Loop &loop : loops)
    if (loop.index == symbol) return &loop;
  return nullptr;
}

void gather_loops(const std::vector<Loop> &all, const std::vector<const DimSymbol *> &symbols, std::vector<Loop> &out) {
  for (const DimSymbol *s : symbols) {
    const Loop *loop = find_loop(all, s);
    if (loop) out.push_back(*loop);  // one that is missing had extent 1 and was removed
  }
}

struct Plan {
  GemmType type = GemmType::kThreeTF32;
  GemmTile tile;
  int splits = 1;
  std::vector<Loop> batch, k;
  Side a, b;
  LocalId sum;
  std::vector<const Stage *> after;
  ScalarId initial;
};

bool reaches(const Program &program, ScalarId from, ScalarId to) {
  std::unordered_set<uint32_t> seen;
  std::vector<ScalarId> stack{from};
  while (!stack.empty()) {
    const ScalarId id = stack.back();
    stack.pop_back();
    if (id == to) return true;
    if (!seen.insert(id.index).second) continue;
    const Scalar &s = program.scalars.at(id);
    stack.insert(stack.end(), s.args, s.args + arity(s.op));
  }
  return false;
}

// The factors as the sum has them. The contraction's `lhs` and `rhs` may be bare loads of what is summed, without the
// condition that makes a convolution's padding zero.
bool find_factors(const Program &program, const Contraction &c, ScalarId value, ScalarId *lhs, ScalarId *rhs) {
  const Scalar &s = program.scalars.at(value);
  if (s.op != ScalarOp::kMul) return false;
  *lhs = s.args[0];
  *rhs = s.args[1];
  if (reaches(program, *lhs, c.lhs) && reaches(program, *rhs, c.rhs)) return true;
  std::swap(*lhs, *rhs);
  return reaches(program, *lhs, c.lhs) && reaches(program, *rhs, c.rhs);
}

// Reads the contraction's description; nullopt when the nest is more than one sum with stages after it.
std::optional<Plan> make_plan(const Program &program, const LoopNest &nest, F32Products f32, const PtxOptions &options,
                              int copies) {
  const Contraction &c = *nest.contraction;
  if (c.kind == ContractionKind::kAttention || nest.sequential || c.stage != 0 || nest.stages.empty())
    return std::nullopt;
  const Stage &stage = nest.stages[0];
  if (stage.outputs.size() != 1 || nest.locals.size() != 1) return std::nullopt;
  const StageOutput &output = stage.outputs[0];
  if (!output.local.valid() || output.combine != Combine::kSum || !nest.locals[output.local.index].shape.empty() ||
      nest.locals[output.local.index].type != ElementType::kFloat32 || output.condition.valid())
    return std::nullopt;
  ScalarId lhs, rhs;
  if (!find_factors(program, c, output.value, &lhs, &rhs)) return std::nullopt;
  Plan plan;
  plan.sum = output.local;
  plan.initial = output.initial;
  for (size_t i = 1; i < nest.stages.size(); ++i) {
    if (!nest.stages[i].loops.empty()) return std::nullopt;
    for (const StageOutput &o : nest.stages[i].outputs)
      if (!o.buffer.valid() || o.combine != Combine::kStore) return std::nullopt;
    plan.after.push_back(&nest.stages[i]);
  }
  std::vector<Loop> loops = nest.loops;
  loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
  std::vector<Loop> batch, rows, columns;
  gather_loops(loops, c.batch, batch);
  gather_loops(loops, c.m, rows);
  gather_loops(loops, c.n, columns);
  gather_loops(loops, c.k, plan.k);
  if (plan.k.empty()) return std::nullopt;
  // A batch loop that one side does not use is rows (or columns) of the other: [B, S, K] x [K, N] is one product.
  for (const Loop &loop : batch) {
    if (!uses_loop(program, rhs, loop.index))
      plan.a.outer.push_back(loop);
    else if (!uses_loop(program, lhs, loop.index))
      plan.b.outer.push_back(loop);
    else
      plan.batch.push_back(loop);
  }
  plan.a.outer.insert(plan.a.outer.end(), rows.begin(), rows.end());
  plan.b.outer.insert(plan.b.outer.end(), columns.begin(), columns.end());
  if (plan.batch.size() + plan.k.size() + plan.a.outer.size() + plan.b.outer.size() != loops.size())
    return std::nullopt;
  for (const Loop &loop : plan.k)
    if (!find_loop(stage.loops, loop.index)) return std::nullopt;
  // A product of few columns and rows in each of many batches (depthwise convolution) is no matrix product.
  Dim m = product(plan.a.outer), n = product(plan.b.outer), k = product(plan.k);
  if (m.is_constant() && n.is_constant() && k.is_constant() && (std::min(m.value(), n.value()) < 4 || k.value() < 8) &&
      product(plan.batch).is_constant() && product(plan.batch).value() > 1)
    return std::nullopt;
  plan.a.operand = peel(program, lhs);
  plan.b.operand = peel(program, rhs);
  const ElementType pa = precision(program, plan.a.operand), pb = precision(program, plan.b.operand);
  if (pa == ElementType::kFloat16 && pb == ElementType::kFloat16)
    plan.type = GemmType::kF16;
  else if (pa == ElementType::kBFloat16 && pb == ElementType::kBFloat16)
    plan.type = GemmType::kBF16;
  else if (program.scalars.at(lhs).type == ElementType::kFloat32 &&
           program.scalars.at(rhs).type == ElementType::kFloat32 && f32 != F32Products::kIEEE)
    plan.type = f32 == F32Products::kTF32 ? GemmType::kTF32 : GemmType::kThreeTF32;
  else
    return std::nullopt;
  const bool half = element_bytes(plan.type) == 2;
  for (Side *side : {&plan.a, &plan.b})
    if (side->operand.load.valid() &&
        side->operand.stored != (plan.type == GemmType::kF16    ? ElementType::kFloat16
                                 : plan.type == GemmType::kBF16 ? ElementType::kBFloat16
                                                                : ElementType::kFloat32)) {
      if (half) return std::nullopt;
      side->operand.load = ScalarId();  // mixed types: computed as f32
    }

  // Output contiguous along m (NCHW): exchange the sides, so that neighbouring accumulators are neighbours in memory.
  for (const Stage *after : plan.after)
    for (const StageOutput &o : after->outputs) {
      if (plan.a.outer.empty() || plan.b.outer.empty()) break;
      Dim offset = root_offset(program, o.buffer, o.index);
      auto along_m = affine_over(program, offset, plan.a.outer.back().index),
           along_n = affine_over(program, offset, plan.b.outer.back().index);
      if (along_m && along_m->coefficient.is(1) && !(along_n && along_n->coefficient.is(1))) {
        std::swap(plan.a, plan.b);
        goto oriented;
      }
      goto oriented;
    }
oriented:
  // The last k loop is the one that most operands walk with stride 1.
  const unsigned size = element_bytes(plan.type);
  size_t inner = plan.k.size() - 1;
  int best = -1;
  for (size_t i = 0; i < plan.k.size(); ++i) {
    int score = 0;
    for (const Side *side : {&plan.a, &plan.b})
      if (side->operand.load.valid())
        score += together(program, side->operand, plan.k[i], size);
      else if (size == 2 && wide_together(program, side->operand, plan.k[i]))
        score += 8;
    if (score > best || (score == best && i == plan.k.size() - 1)) {
      best = score;
      inner = i;
    }
  }
  std::rotate(plan.k.begin() + static_cast<std::ptrdiff_t>(inner),
              plan.k.begin() + static_cast<std::ptrdiff_t>(inner) + 1, plan.k.end());
  choose_access(program, plan.a, plan.k.back(), size);
  choose_access(program, plan.b, plan.k.back(), size);
  const Choice choice =
      choose_tile(plan.type, product(plan.a.outer), product(plan.b.outer), product(plan.k), product(plan.batch), copies,
                  {plan.a.chunk_bytes, plan.b.chunk_bytes,
                   !plan.a.operand.conditions.empty() || !plan.b.operand.conditions.empty()},
                  options);
  plan.tile = choice.tile;
  plan.splits = choice.splits;
  return plan;
}

// The operand's callbacks. `base` has the batch's counters.
GemmOperand operand_of(KernelContext &k, const Scope &base, const Plan &plan, const Side &side) {
  GemmOperand out;
  out.k_contiguous = side.k_contiguous;
  out.chunk_bytes = side.chunk_bytes;
  out.constant = side.constant;
  auto place = [&plan, &side](Scope &scope, Value outer, Value inner) {
    delinearize(scope, side.outer, side.k_contiguous ? outer : inner);
    delinearize(scope, plan.k, side.k_contiguous ? inner : outer);
  };
  out.chunk = [&k, &base, &side, place](Value outer, Value inner) {
    Scope scope = base;
    place(scope, outer, inner);
    GemmOperand::Chunk chunk{nullptr, nullptr};
    for (ScalarId c : side.operand.conditions) {
      Value v = chunk.valid ? scope.guarded(c, c, chunk.valid) : scope.scalar(c);
      chunk.valid = chunk.valid ? k.b.both(chunk.valid, v) : v;
    }
    const Scalar &load = k.program.scalars.at(side.operand.load);
    chunk.pointer = scope.address(load.buffer, load.index);
    return chunk;
  };
  out.group = side.group;
  out.element = [&k, &base, &plan, &side, place](Value outer, Value inner, Value inside) -> Value {
    Scope scope = base;
    place(scope, outer, inner);
    if (element_bytes(plan.type) == 2) {
      const Loop &along = side.k_contiguous || side.outer.empty() ? plan.k.back() : side.outer.back();
      return narrow_elements(scope, side.operand, plan.type, along.index, side.group, inside);
    }
    scope.only_where(inside);
    Value v = scope.scalar(side.operand.whole);
    return k.b.ir.CreateSelect(inside, v, k.b.f32(0));
  };
  return out;
}

// The sum at (row, column) as the nest has it, term by term.
Value plain_sum(KernelContext &k, const Scope &base, const Plan &plan, Value size, Value row, Value column) {
  Builder &b = k.b;
  Scope scope = base;
  delinearize(scope, plan.a.outer, row);
  delinearize(scope, plan.b.outer, column);
  return b.loop(
      b.i32(0), size, b.i32(1), {b.f32(0)},
      [&](Value at, const Values &in) {
        Scope term = scope;
        delinearize(term, plan.k, at);
        return Values{b.ir.CreateFAdd(
            in[0], b.ir.CreateFMul(term.scalar(plan.a.operand.whole), term.scalar(plan.b.operand.whole)))};
      },
      true)[0];
}

void emit_epilogue(KernelContext &k, const Scope &base, const Plan &plan, Value row, Value column, Value first,
                   Value second, Value pair) {
  Builder &b = k.b;
  const bool even = !plan.b.outer.empty() && divisible_by(plan.b.outer.back().extent, 2);
  auto one = [&](Value at, const Values &sums) {
    Scope scope = base;
    delinearize(scope, plan.a.outer, row);
    delinearize(scope, plan.b.outer, at);
    if (sums.size() == 2) scope.vectorize(plan.b.outer.back().index, 2);
    scope.read_local = [&plan, &sums, &k](Scope &reader, const Scalar &, int lane) {
      Value v = sums[static_cast<size_t>(lane)];
      return plan.initial.valid() ? k.b.ir.CreateFAdd(reader.scalar(plan.initial, lane), v) : v;
    };
    for (const Stage *stage : plan.after)
      for (const StageOutput &output : stage->outputs) {
        auto store = [&](Scope &at_scope) {
          Values values;
          for (int lane = 0; lane < at_scope.lanes(); ++lane) values.push_back(at_scope.scalar(output.value, lane));
          at_scope.store(output.buffer, output.index, values);
        };
        if (!output.condition.valid()) {
          store(scope);
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
  };
  if (even) {
    one(column, {first, second});
  } else {
    one(column, {first});
    b.when(pair, [&] { one(b.add(column, 1), {second}); });
  }
}

}  // namespace

std::vector<Draft> draft_contraction(const Program &program, const Kernel &kernel, F32Products f32,
                                     const PtxOptions &options, int copies) {
  const LoopNest &nest = *kernel.nest();
  if (!nest.contraction) return {};
  auto plan = make_plan(program, nest, f32, options, copies);
  if (!plan) return {};
  const GemmTile tile = plan->tile;
  static constexpr const char *kNames[] = {"f16", "bf16", "tf32", "3xtf32"};
  Draft draft;
  draft.form = "gemm." + std::string(kNames[static_cast<int>(plan->type)]) + " " + std::to_string(tile.m) + "x" +
               std::to_string(tile.n) + "x" + std::to_string(tile.k) +
               (tile.warps_k > 1 ? " k/" + std::to_string(tile.warps_k) : "") +
               (plan->splits > 1 ? " split " + std::to_string(plan->splits) : "") + " fetch " +
               std::to_string(plan->a.chunk_bytes) + (plan->a.group > 1 ? "x8" : "") +
               (plan->a.k_contiguous ? "k" : "m") + " " + std::to_string(plan->b.chunk_bytes) +
               (plan->b.group > 1 ? "x8" : "") + (plan->b.k_contiguous ? "k" : "n");
  draft.threads = static_cast<unsigned>(tile.threads());
  draft.grid[0] = ceil_div(product(plan->b.outer), tile.n);
  draft.grid[1] = ceil_div(product(plan->a.outer), tile.m);
  draft.grid[2] = product(plan->batch) * Dim(plan->splits);
  if (plan->splits > 1)
    draft.workspace_bytes =
        (draft.grid[0] * draft.grid[1] * product(plan->batch)).value() * split_bytes(tile, plan->splits);
  draft.waits = true;
  draft.early_next = upper_bound(product(plan->a.outer)) <= 16;  // weights through once: bound by memory
  draft.body = [plan = *plan](KernelContext &k) {
    Builder &b = k.b;
    Scope base(k);
    const bool split = plan.splits > 1;
    Value in_batch = split ? b.div(b.block(2), plan.splits) : b.block(2);
    delinearize(base, plan.batch, in_batch);
    Gemm gemm;
    gemm.type = plan.type;
    gemm.tile = plan.tile;
    gemm.m = base.index(product(plan.a.outer));
    gemm.n = base.index(product(plan.b.outer));
    gemm.k = base.index(product(plan.k));
    gemm.row0 = b.mul(b.block(1), plan.tile.m);
    gemm.column0 = b.mul(b.block(0), plan.tile.n);
    gemm.k_begin = b.i32(0);
    gemm.k_end = gemm.k;
    gemm.splits = plan.splits;
    if (product(plan.k).is_constant())
      gemm.part_of_k = steps_of_part(product(plan.k).value(), plan.tile, plan.splits) * plan.tile.k;
    if (split) {
      const int64_t size = product(plan.k).value(), part = steps_of_part(size, plan.tile, plan.splits) * plan.tile.k;
      const Dim across = ceil_div(product(plan.b.outer), plan.tile.n),
                down = ceil_div(product(plan.a.outer), plan.tile.m);
      gemm.split = b.rem(b.block(2), plan.splits);
      gemm.k_begin = b.mul(gemm.split, part);
      gemm.k_end = b.min(b.add(gemm.k_begin, part), gemm.k);
      gemm.tile_number = b.add(b.mul(b.add(b.mul(in_batch, down.value()), b.block(1)), across.value()), b.block(0));
      gemm.counters = k.workspace;
      gemm.parts = b.at(b.t_i32(), k.workspace, b.i32(kWorkspaceCounters));
    }
    gemm.a = operand_of(k, base, plan, plan.a);
    gemm.b = operand_of(k, base, plan, plan.b);
    if (element_bytes(plan.type) == 4)
      gemm.plain_sum = [&](Value row, Value column) { return plain_sum(k, base, plan, gemm.k, row, column); };
    gemm.epilogue = [&](Value row, Value column, Value first, Value second, Value pair) {
      emit_epilogue(k, base, plan, row, column, first, second, pair);
    };
    emit_gemm(b, gemm);
  };
  return {draft};
}

}  // namespace optc::ptx
