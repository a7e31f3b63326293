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
#include <map>
#include <tuple>

#include "emit/ptx/draft.h"

namespace optc::ptx {

namespace {

constexpr int64_t kSharedLimit = 96 << 10;  // what a block may use on every target

// The scalars that an index expression reads (gathered indices).
void scalar_symbols(Dim d, std::vector<ScalarId> &out) {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  for (const DimSymbol *s : symbols)
    if (s->kind == SymbolKind::kScalar) out.push_back(ScalarId(s->scalar));
}

bool constant_at_most(Dim d, int64_t limit) { return upper_bound(d) <= limit; }

// Every index expression of some outputs: element offsets, which loops may be merged over, and those that must stay as
// they are.
struct Accesses {
  const Program &program;
  std::vector<Dim> offsets, opaque;
  std::unordered_map<uint32_t, bool> seen;

  void visit_symbols(Dim d) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols)
      if (s->kind == SymbolKind::kScalar) visit(ScalarId(s->scalar));
  }
  void visit(ScalarId id) {
    if (!id.valid() || !seen.emplace(id.index, true).second) return;
    const Scalar &s = program.scalars.at(id);
    if (s.op == ScalarOp::kLoad) offsets.push_back(root_offset(program, s.buffer, s.index));
    if (s.op == ScalarOp::kIndex) opaque.push_back(s.index_value);
    if (s.op == ScalarOp::kLocal) opaque.insert(opaque.end(), s.index.begin(), s.index.end());
    if (s.op == ScalarOp::kIndex) visit_symbols(s.index_value);
    for (Dim d : s.index) visit_symbols(d);
    for (int i = 0; i < arity(s.op); ++i) visit(s.args[i]);
  }
  void visit(const StageOutput &output) {
    visit(output.value);
    visit(output.condition);
    visit(output.initial);
    if (output.buffer.valid())
      offsets.push_back(root_offset(program, output.buffer, output.index));
    else
      opaque.insert(opaque.end(), output.index.begin(), output.index.end());
    for (Dim d : output.index) visit_symbols(d);
  }
  bool mergeable(const Loop &a, const Loop &b) const {
    for (Dim d : opaque)
      if (uses_symbol(d, a.index) || uses_symbol(d, b.index)) return false;
    for (Dim d : offsets) {
      auto outer = affine_in(d, a.index), inner = affine_in(d, b.index);
      if (!outer || !inner || !(outer->coefficient == inner->coefficient * b.extent)) return false;
    }
    return true;
  }
};

// Brings the loop over which the first store is contiguous to the end, and merges neighbours that every access walks as
// one.
struct LoopOrder {
  std::vector<Loop> loops;
  std::vector<const DimSymbol *> zeros;
};

LoopOrder order_loops(const Program &program, std::vector<Loop> loops, const std::vector<StageOutput> &outputs,
                      bool may_merge) {
  for (const StageOutput &output : outputs) {
    if (!output.buffer.valid()) continue;
    Dim offset = root_offset(program, output.buffer, output.index);
    for (size_t i = 0; i + 1 < loops.size(); ++i) {
      auto part = affine_in(offset, loops[i].index);
      auto last = affine_in(offset, loops.back().index);
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

std::vector<Value> lane_values(Scope &scope, ScalarId id) {
  Values out;
  for (int lane = 0; lane < scope.lanes(); ++lane) out.push_back(scope.scalar(id, lane));
  return out;
}

// Stores one output of a stage that goes to a buffer.
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

// --- Locals
// -----------------------------------------------------------------------------------------------------------------------

struct LocalPlace {
  Values scalar;                                      // one a lane
  Value array = nullptr;                              // per thread, or a row of shared memory
  std::map<std::pair<size_t, int>, Value> registers;  // a row that its thread alone touches: by step and lane
};

struct Locals {
  const LoopNest &nest;
  KernelContext &k;
  std::vector<LocalPlace> places;
  size_t step = 0;  // of a row's straight-line code

  Locals(const LoopNest &n, KernelContext &context) : nest(n), k(context), places(n.locals.size()) {}

  Value element(Scope &scope, LocalId id, const std::vector<Dim> &index, int lane) {
    const Local &local = nest.locals[id.index];
    Dim offset = 0;
    for (size_t i = 0; i < index.size(); ++i) offset = offset * local.shape[i] + index[i];
    return k.b.at(storage_type(k.b, local.type), places[id.index].array, scope.index(offset, lane));
  }
  Value read(Scope &scope, const Scalar &s, int lane) {
    const LocalPlace &place = places[s.local.index];
    if (!place.registers.empty()) return place.registers.at({step, lane});
    if (!place.array) return place.scalar[std::min<size_t>(static_cast<size_t>(lane), place.scalar.size() - 1)];
    Value v = k.b.load(storage_type(k.b, s.type), element(scope, s.local, s.index, lane), storage_size(s.type));
    return from_storage(k.b, s.type, v);
  }
  void write(Scope &scope, LocalId id, const std::vector<Dim> &index, int lane, Value v) {
    const ElementType type = nest.locals[id.index].type;
    k.b.store(to_storage(k.b, type, v), element(scope, id, index, lane), storage_size(type));
  }
};

// The reduction step of one output: old combined with the value, where the condition holds.
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
  Value next = combine(b, output.combine, type, old, v);
  return take ? b.ir.CreateSelect(take, next, old) : next;
}

// --- Serial
// ------------------------------------------------------------------------------------------------------------------------

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
        for (int lane = 0; lane < lanes; ++lane) carried.push_back(identity(b, output.combine, local.type));
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

// --- Rows
// A group of threads walks a row in steps of group * lanes elements. Short rows are straight-line code.

int lanes_of(const Program &program, const std::vector<StageOutput> &outputs, const std::vector<Loop> &loops,
             unsigned group) {
  if (loops.empty()) return 1;
  Dim total = product(loops);
  unsigned size = 4;
  for (const StageOutput &output : outputs)
    if (output.buffer.valid()) size = std::min(size, storage_size(program.buffer(output.buffer).element()));
  std::vector<ScalarId> loads;
  for (const StageOutput &output : outputs) collect_loads(program, output.value, loads);
  for (ScalarId id : loads) {
    const Scalar &s = program.scalars.at(id);
    if (uses_symbol(root_offset(program, s.buffer, s.index), loops.back().index))
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

// --------------------------------------------------------------------------------------------------------------------------

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
    Dim total = product(order.loops);
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
      for (Dim d : output.index) used = used || uses_symbol(d, loop.index);
      (used ? kept : summed).push_back(loop);
    }
    Scope start = scope;
    b.loop(member_, start.index(product(kept)), b.i32(group_), [&](Value flat) {
      Scope at = scope;
      delinearize(at, kept, flat);
      Values sum = b.loop(b.i32(0), at.index(product(summed)), b.i32(1), {identity(b, output.combine, type)},
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

// --- Choice
// ------------------------------------------------------------------------------------------------------------------------

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
  Dim groups = floor_div(product(order.loops), lanes);
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
  draft.body = [&program, order, outputs, lanes, outer, row, batch, threads](KernelContext &k) {
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

Dim product(const std::vector<Loop> &loops) {
  Dim total = 1;
  for (const Loop &loop : loops) total *= loop.extent;
  return total;
}

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
            SerialNest(nest, k).run(outer);
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
  Dim outer = product(nest.loops);
  int64_t width = 1;
  bool unit = false, stores_rows = false, arrays = false;
  for (const Local &local : nest.locals) arrays = arrays || !local.shape.empty();
  for (const Stage &stage : nest.stages) {
    if (stage.loops.empty()) continue;
    width = std::max(width, std::min<int64_t>(upper_bound(product(stage.loops)), int64_t{1} << 30));
    std::vector<ScalarId> loads;
    for (const StageOutput &output : stage.outputs) {
      collect_loads(program, output.value, loads);
      stores_rows = stores_rows || output.buffer.valid();
    }
    for (ScalarId id : loads) {
      const Scalar &s = program.scalars.at(id);
      auto part = affine_in(root_offset(program, s.buffer, s.index), stage.loops.back().index);
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
    int64_t shared = 0;
    bool fits = true;
    for (const Local &local : nest.locals) {
      if (local.shape.empty()) continue;
      if (in_registers(program, nest, LocalId(static_cast<size_t>(&local - nest.locals.data())), group)) continue;
      Dim count = element_count(local.shape);
      fits = fits && constant_at_most(count, kSharedLimit);
      if (fits) shared += (upper_bound(count) * storage_size(local.type) + 15) / 16 * 16 * per_block;
    }
    if (fits && shared <= kSharedLimit - 8192) {
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
        RowNest(nest, k, group, per_block, member, row_in_block).run(scope, active);
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
      SerialNest(nest, k).run(at);
    });
  };
  return {draft};
}

}  // namespace optc::ptx
