// One thread for each iteration of a nest's outer loops, the stages' loops one after the other inside; and what all
// forms of a nest share.

#include <algorithm>

#include "emit/ptx/nests.h"

namespace optc::ptx {

void scalar_symbols(Dim d, std::vector<ScalarId> &out) {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  for (const DimSymbol *s : symbols)
    if (s->kind == SymbolKind::kScalar) out.push_back(ScalarId(s->scalar));
}

LoopOrder order_loops(const Program &program, std::vector<Loop> loops, const std::vector<StageOutput> &outputs,
                      bool may_merge) {
  for (const StageOutput &output : outputs) {
    if (!output.buffer.valid()) continue;
    Dim offset = root_offset(program, output.buffer, output.index);
    for (size_t i = 0; i + 1 < loops.size(); ++i) {
      auto part = affine_over(program, offset, loops[i].index);
      auto last = affine_over(program, offset, loops.back().index);
      if (part && part->coefficient.is(1) && !(last && last->coefficient.is(1))) {
        std::rotate(loops.begin() + static_cast<std::ptrdiff_t>(i), loops.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    loops.end());
        break;
      }
    }
    break;
  }
  LoopOrder result;
  if (may_merge) {
    Accesses accesses{program, {}, {}, {}};
    for (const StageOutput &output : outputs) accesses.visit(output);
    for (size_t i = 0; i + 1 < loops.size(); ++i) {
      if (!accesses.mergeable(loops[i], loops[i + 1])) {
        result.loops.push_back(loops[i]);
        continue;
      }
      result.zeros.push_back(loops[i].index);
      loops[i + 1].extent = loops[i].extent * loops[i + 1].extent;
    }
    if (!loops.empty()) result.loops.push_back(loops.back());
  } else {
    result.loops = std::move(loops);
  }
  return result;
}

Values lane_values(Scope &scope, ScalarId id) {
  Values out;
  for (int lane = 0; lane < scope.lanes(); ++lane) out.push_back(scope.scalar(id, lane));
  return out;
}

void store_output(const Scope &at, const StageOutput &output, Value active) {
  Scope scope = at;
  KernelContext &k = scope.context();
  const ElementType type = k.program.buffer(output.buffer).element();
  auto put = [&](Scope &inner) {
    if (output.combine == Combine::kStore) {
      inner.store(output.buffer, output.index, lane_values(inner, output.value));
      return;
    }
    for (int lane = 0; lane < inner.lanes(); ++lane) {  // a scatter: read, combine, write
      Value p = inner.address(output.buffer, output.index, lane);
      Value old = from_storage(k.b, type, k.b.load(storage_type(k.b, type), p, storage_size(type)));
      k.b.store(to_storage(k.b, type, combine(k.b, output.combine, type, old, inner.scalar(output.value, lane))), p,
                storage_size(type));
    }
  };
  k.b.when(active, [&] {
    if (!output.condition.valid()) {
      put(scope);
    } else if (!scope.depends(output.condition)) {
      k.b.when(scope.scalar(output.condition), [&] {
        Scope inner = scope;
        put(inner);
      });
    } else {
      for (int lane = 0; lane < scope.lanes(); ++lane)
        k.b.when(scope.scalar(output.condition, lane), [&] {
          Scope inner = scope;
          Value v = inner.scalar(output.value, lane);
          Value p = inner.address(output.buffer, output.index, lane);
          if (output.combine != Combine::kStore) {
            Value old = from_storage(k.b, type, k.b.load(storage_type(k.b, type), p, storage_size(type)));
            v = combine(k.b, output.combine, type, old, v);
          }
          k.b.store(to_storage(k.b, type, v), p, storage_size(type));
        });
    }
  });
}

Value accumulate(Scope &scope, const StageOutput &output, ElementType type, Value old, int lane, Value active) {
  Builder &b = scope.context().b;
  Value take = active;
  Value v;
  if (output.condition.valid()) {
    Value c = scope.scalar(output.condition, lane);
    v = scope.guarded(output.value, output.condition, c, lane);
    take = take ? b.both(take, c) : c;
  } else {
    v = scope.scalar(output.value, lane);
  }
  const bool wide = type == ElementType::kFloat32 && old->getType()->isDoubleTy();
  if (wide) v = b.ir.CreateFPExt(v, old->getType());
  Value next = combine(b, output.combine, wide ? ElementType::kFloat64 : type, old, v);
  return take ? b.ir.CreateSelect(take, next, old) : next;
}

namespace {

class SerialNest {
 public:
  SerialNest(const LoopNest &nest, KernelContext &k) : nest_(nest), k_(k), locals_(nest, k) {
    for (size_t i = 0; i < nest.locals.size(); ++i) {
      if (nest.locals[i].shape.empty()) continue;
      Dim count = element_count(nest.locals[i].shape);
      locals_.places[i].array =
          k.b.local_array(storage_type(k.b, nest.locals[i].type), static_cast<uint64_t>(upper_bound(count)));
    }
  }

  void run(const Scope &base) {
    for (const Stage &stage : nest_.stages) run_stage(base, stage);
  }

 private:
  Scope scope_at(const Scope &base) {
    Scope scope = base;
    Locals *locals = &locals_;
    scope.read_local = [locals](Scope &at, const Scalar &s, int lane) { return locals->read(at, s, lane); };
    return scope;
  }

  // A sum of f32 that one thread takes so many steps for is kept in f64: in f32 it is off by up to as many roundings,
  // and stands still where the next number is less than half a unit of its last place.
  bool is_long_sum(const Stage &stage, const StageOutput &output) const {
    constexpr int64_t kLong = 4096;
    return output.combine == Combine::kSum && nest_.locals[output.local.index].type == ElementType::kFloat32 &&
           upper_bound(total_extent(stage.loops)) > kLong;
  }

  void run_stage(const Scope &base, const Stage &stage) {
    Builder &b = k_.b;
    const int lanes = base.lanes();
    Scope scope = scope_at(base);
    Values carried;
    std::vector<const StageOutput *> scalars;
    for (const StageOutput &output : stage.outputs) {
      if (output.buffer.valid()) continue;
      const Local &local = nest_.locals[output.local.index];
      if (local.shape.empty()) {
        scalars.push_back(&output);
        const ElementType kept = is_long_sum(stage, output) ? ElementType::kFloat64 : local.type;
        for (int lane = 0; lane < lanes; ++lane) carried.push_back(identity(b, output.combine, kept));
      } else if (output.combine != Combine::kStore) {
        Value start =
            output.initial.valid() ? Scope(scope).scalar(output.initial) : identity(b, output.combine, local.type);
        b.loop(b.i32(0), scope.index(element_count(local.shape)), b.i32(1), [&](Value i) {
          Value p = b.at(storage_type(b, local.type), locals_.places[output.local.index].array, i);
          b.store(to_storage(b, local.type, start), p, storage_size(local.type));
        });
      }
    }
    Values last = nest_loops(scope, stage, 0, carried, scalars);
    for (size_t i = 0; i < scalars.size(); ++i) {
      const StageOutput &output = *scalars[i];
      const ElementType type = nest_.locals[output.local.index].type;
      Values &place = locals_.places[output.local.index].scalar;
      place.assign(last.begin() + static_cast<std::ptrdiff_t>(i * static_cast<size_t>(lanes)),
                   last.begin() + static_cast<std::ptrdiff_t>((i + 1) * static_cast<size_t>(lanes)));
      if (is_long_sum(stage, output))
        for (Value &sum : place) sum = b.ir.CreateFPTrunc(sum, b.ir.getFloatTy());
      if (output.initial.valid() && output.combine != Combine::kStore)
        for (int lane = 0; lane < lanes; ++lane)
          place[static_cast<size_t>(lane)] =
              combine(b, output.combine, type, scope.scalar(output.initial, lane), place[static_cast<size_t>(lane)]);
    }
  }

  Values nest_loops(const Scope &scope, const Stage &stage, size_t depth, const Values &carried,
                    const std::vector<const StageOutput *> &scalars) {
    Builder &b = k_.b;
    if (depth < stage.loops.size()) {
      Scope here = scope;
      return b.loop(b.i32(0), here.index(stage.loops[depth].extent), b.i32(1), carried,
                    [&](Value i, const Values &phis) {
                      Scope inner = scope;
                      inner.set(stage.loops[depth].index, i);
                      return nest_loops(inner, stage, depth + 1, phis, scalars);
                    });
    }
    Scope at = scope;
    Values next;
    for (size_t i = 0; i < scalars.size(); ++i)
      for (int lane = 0; lane < at.lanes(); ++lane)
        next.push_back(accumulate(at, *scalars[i], nest_.locals[scalars[i]->local.index].type,
                                  carried[i * static_cast<size_t>(at.lanes()) + static_cast<size_t>(lane)], lane,
                                  nullptr));
    for (const StageOutput &output : stage.outputs) {
      if (output.buffer.valid()) {
        store_output(at, output, b.ir.getTrue());
        continue;
      }
      const Local &local = nest_.locals[output.local.index];
      if (local.shape.empty()) continue;
      for (int lane = 0; lane < at.lanes(); ++lane) {
        Scope inner = at;
        b.when(inner.condition(output.condition, lane), [&] {
          Scope in = inner;
          Value v = in.scalar(output.value, lane);
          if (output.combine != Combine::kStore) {
            Value p = locals_.element(in, output.local, output.index, lane);
            Value old = from_storage(b, local.type, b.load(storage_type(b, local.type), p, storage_size(local.type)));
            v = combine(b, output.combine, local.type, old, v);
          }
          locals_.write(in, output.local, output.index, lane, v);
        });
      }
    }
    return next;
  }

  const LoopNest &nest_;
  KernelContext &k_;
  Locals locals_;
};

}  // namespace

void run_serial(const LoopNest &nest, KernelContext &k, const Scope &base) { SerialNest(nest, k).run(base); }

}  // namespace optc::ptx
