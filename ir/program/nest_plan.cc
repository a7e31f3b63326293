#include "ir/program/nest_plan.h"

#include <algorithm>

#include "ir/program/lanes.h"

namespace optc {

NestPlan::NestPlan(const Program &program, const Kernel &kernel)
    : program_(program), kernel_(kernel), nest_(*kernel.nest()) {
  for (const Stage &stage : nest_.stages)
    for (const StageOutput &o : stage.outputs)
      if (o.buffer.valid()) {
        written_buffers_.insert(o.buffer.index);
        const int bits = bit_width(program_.buffer(o.buffer).element());
        if (bits > 0 && bits < 8) serial_ = true;  // neighbours share a byte
      }
  if (nest_.sequential) serial_ = true;
  outer_ = nest_.loops;
  drop_unit_loops(outer_);
  plans_.resize(nest_.stages.size());
  for (size_t i = 0; i < plans_.size(); ++i) plan_stage(nest_.stages[i], plans_[i]);
}

// A map that reads a tensor along one loop and stores along another, as from channels last to row-major: the loop that
// reads runs next to the innermost one, so that a line of the cache is used while it is there. Where rows are short the
// loops are better joined.
void NestPlan::keep_lines() {
  constexpr int64_t kShortestRow = 32, kFitsAnyway = 131072;
  if (serial_ || plans_.size() != 1 || !plans_[0].loops.empty() || outer_.size() < 3) return;
  const Loop last = outer_.back();
  Dim elements = 1;
  for (const Loop &l : outer_) elements = elements * l.extent;
  if (!elements.is_constant() || elements.value() <= kFitsAnyway || last.extent.value() < kShortestRow) return;
  for (const Item &item : plans_[0].order) {
    if (item.index || program_.scalars.at(item.id).op != ScalarOp::kLoad) continue;
    const Dim offset = load_offset(program_.scalars.at(item.id));
    const auto across = affine_in(offset, last.index);
    if (!across || !across->coefficient.is_constant() || across->coefficient.value() < 8) continue;
    const auto along = std::find_if(outer_.begin(), outer_.end() - 2, [&](const Loop &l) {
      const auto part = affine_in(offset, l.index);
      return part && part->coefficient.is(1);
    });
    if (along == outer_.end() - 2) continue;
    std::rotate(along, along + 1, outer_.end() - 1);
    return;
  }
}

void NestPlan::plan_loops() {
  follow_storage();
  keep_lines();
  join_loops(outer_);
  for (StagePlan &plan : plans_) join_loops(plan.loops);
  for (size_t i = 0; i < plans_.size(); ++i) measure_stage(nest_.stages[i], plans_[i]);
  borders_ = true;
  choose_lanes();
  find_transpose();
}

Dim NestPlan::fix(Dim d) const {
  if (d.is_constant() || fixed_.empty()) return d;
  return substitute(d, [&](const DimSymbol &s) -> std::optional<Dim> {
    const auto it = fixed_.find(&s);
    if (it == fixed_.end()) return std::nullopt;
    return it->second;
  });
}

Dim NestPlan::offset_of(const Buffer &buffer, const std::vector<Dim> &index) const {
  return fix(linear_offset(buffer, index));
}

Dim NestPlan::local_offset(const Local &local, const std::vector<Dim> &index) const {
  Dim offset = 0;
  for (size_t k = 0; k < index.size(); ++k) offset = offset * local.shape[k] + index[k];
  return fix(offset);
}

Dim NestPlan::load_offset(const Scalar &s) const {
  return s.op == ScalarOp::kLoad ? offset_of(program_.buffer(s.buffer), s.index)
                                 : local_offset(nest_.locals[s.local.index], s.index);
}

void NestPlan::collect(StagePlan &plan, ScalarId id, std::set<uint32_t> &seen) {
  if (!id.valid() || !seen.insert(id.index).second) return;
  const Scalar &s = program_.scalars.at(id);
  for (ScalarId a : s.args) collect(plan, a, seen);
  if (s.op == ScalarOp::kIndex) collect_dim(plan, s.index_value, seen);
  for (Dim d : s.index) collect_dim(plan, d, seen);
  plan.order.push_back({id, nullptr});
}

void NestPlan::collect_dim(StagePlan &plan, Dim d, std::set<uint32_t> &seen) {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  for (const DimSymbol *s : symbols) {
    if (s->kind != SymbolKind::kScalar) continue;
    collect(plan, ScalarId(size_t{s->scalar}), seen);
    collect_dim(plan, s->extent, seen);
    const bool known = std::any_of(plan.order.begin(), plan.order.end(), [&](const Item &i) { return i.index == s; });
    if (!known) plan.order.push_back({ScalarId(), s});
  }
}

void NestPlan::plan_stage(const Stage &stage, StagePlan &plan) {
  plan.loops = stage.loops;
  drop_unit_loops(plan.loops);
  std::set<uint32_t> seen;
  for (const StageOutput &o : stage.outputs) {
    collect(plan, o.initial, seen);
    collect(plan, o.condition, seen);
    for (Dim d : o.index) collect_dim(plan, d, seen);
    collect(plan, o.value, seen);
  }
}

void NestPlan::drop_unit_loops(std::vector<Loop> &loops) {
  std::vector<Loop> kept;
  for (const Loop &l : loops) {
    if (l.extent.is(1))
      fixed_.emplace(l.index, Dim(0));
    else
      kept.push_back(l);
  }
  loops = std::move(kept);
}

// Two neighbouring loops are one when every access runs through both with one stride, and nothing else looks at their
// counters.
bool NestPlan::can_join(const Loop &a, const Loop &b) const {
  const Dim inner = fix(b.extent);
  auto access = [&](Dim offset) {
    const auto in_a = affine_in(offset, a.index);
    if (!in_a) return false;
    const auto in_b = affine_in(in_a->rest, b.index);
    if (!in_b || uses_symbol(in_a->coefficient, b.index)) return false;
    return in_a->coefficient == in_b->coefficient * inner;
  };
  auto unused = [&](Dim d) {
    const Dim f = fix(d);
    return !uses_symbol(f, a.index) && !uses_symbol(f, b.index);
  };
  for (const StagePlan &plan : plans_) {
    for (const Loop &l : plan.loops)
      if (!unused(l.extent)) return false;
    for (const Item &item : plan.order) {
      if (item.index) {
        if (!unused(item.index->extent)) return false;
        continue;
      }
      const Scalar &s = program_.scalars.at(item.id);
      if (s.op == ScalarOp::kIndex && !unused(s.index_value)) return false;
      if ((s.op == ScalarOp::kLoad || s.op == ScalarOp::kLocal) && !access(load_offset(s))) return false;
    }
  }
  for (const Stage &stage : nest_.stages)
    for (const StageOutput &o : stage.outputs)
      if (!access(o.buffer.valid() ? offset_of(program_.buffer(o.buffer), o.index)
                                   : local_offset(nest_.locals[o.local.index], o.index)))
        return false;
  for (const Loop &l : outer_)
    if (!unused(l.extent)) return false;
  return true;
}

// Shared loops run in any order: in that of the result's storage, so that channels that lie innermost run in lanes.
void NestPlan::follow_storage() {
  if (serial_ || nest_.stages.empty()) return;
  for (const StageOutput &o : nest_.stages.back().outputs) {
    if (!o.buffer.valid() || program_.buffer(o.buffer).order.empty()) continue;
    std::vector<Loop> last;
    for (int k : program_.buffer(o.buffer).order) {
      const DimSymbol *s = single_symbol(fix(o.index[static_cast<size_t>(k)]));
      const auto it = std::find_if(outer_.begin(), outer_.end(), [&](const Loop &l) { return l.index == s; });
      if (it == outer_.end()) continue;
      last.push_back(*it);
      outer_.erase(it);
    }
    outer_.insert(outer_.end(), last.begin(), last.end());
    return;
  }
}

void NestPlan::join_loops(std::vector<Loop> &loops) {
  for (size_t i = loops.size(); i-- > 1;) {
    Loop &a = loops[i - 1], &b = loops[i];
    if (!can_join(a, b)) continue;
    fixed_.emplace(a.index, Dim(0));
    b.extent = fix(a.extent) * fix(b.extent);
    loops.erase(loops.begin() + static_cast<long>(i) - 1);
  }
}

bool NestPlan::proved(const Scalar &load) const {
  if (load.op == ScalarOp::kLocal) return true;
  const Shape &shape = program_.buffer(load.buffer).shape();
  for (size_t k = 0; k < load.index.size(); ++k)
    if (!proved_in_range(load.index[k], shape[k])) return false;
  return true;
}

bool NestPlan::contains_unproved(const StagePlan &plan, ScalarId id) {
  if (!id.valid()) return false;
  if (const auto it = plan.unproved.find(id.index); it != plan.unproved.end()) return it->second;
  const Scalar &s = program_.scalars.at(id);
  bool result = s.op == ScalarOp::kLoad && !plan.always.count(id.index) && !proved(s);
  for (ScalarId a : s.args) result = contains_unproved(plan, a) || result;
  std::vector<const DimSymbol *> symbols;
  if (s.op == ScalarOp::kIndex) collect_symbols(s.index_value, symbols);
  for (Dim d : s.index) collect_symbols(d, symbols);
  // An index that is computed is checked where it is bound, which may end the run.
  for (const DimSymbol *symbol : symbols)
    result = result || (symbol->kind == SymbolKind::kScalar && !plan.always_indices.count(symbol));
  plan.unproved[id.index] = result;
  return result;
}

void NestPlan::mark_always_dim(StagePlan &plan, Dim d) {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  for (const DimSymbol *s : symbols)
    if (s->kind == SymbolKind::kScalar && plan.always_indices.insert(s).second)
      mark_always(plan, ScalarId(size_t{s->scalar}));
}

void NestPlan::mark_always(StagePlan &plan, ScalarId id) {
  if (!id.valid() || !plan.always.insert(id.index).second) return;
  const Scalar &s = program_.scalars.at(id);
  mark_always(plan, s.args[0]);
  if (s.op != ScalarOp::kSelect) {
    mark_always(plan, s.args[1]);
    mark_always(plan, s.args[2]);
  }
  if (s.op == ScalarOp::kIndex) mark_always_dim(plan, s.index_value);
  for (Dim d : s.index) mark_always_dim(plan, d);
}

bool NestPlan::lazy(const StagePlan &plan, ScalarId id) {
  return !plan.always.count(id.index) && contains_unproved(plan, id);
}

int NestPlan::dim_depth(StagePlan &plan, Dim d) {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(fix(d), symbols);
  int depth = 0;
  for (const DimSymbol *s : symbols) {
    if (s->kind == SymbolKind::kLoop) {
      const auto it = level_.find(s);
      if (it != level_.end()) depth = std::max(depth, it->second);
    } else if (s->kind == SymbolKind::kScalar) {
      depth = std::max(depth, std::max(node_depth(plan, ScalarId(size_t{s->scalar})), dim_depth(plan, s->extent)));
    }
  }
  return depth;
}

int NestPlan::node_depth(StagePlan &plan, ScalarId id) {
  if (!id.valid()) return 0;
  if (const auto it = plan.depth.find(id.index); it != plan.depth.end()) return it->second;
  const Scalar &s = program_.scalars.at(id);
  const int innermost = static_cast<int>(outer_.size() + plan.loops.size());
  int depth = 0;
  for (ScalarId a : s.args) depth = std::max(depth, node_depth(plan, a));
  if (s.op == ScalarOp::kIndex) depth = std::max(depth, dim_depth(plan, s.index_value));
  for (Dim d : s.index) depth = std::max(depth, dim_depth(plan, d));
  if (s.op == ScalarOp::kLocal) depth = std::max(depth, static_cast<int>(outer_.size()));
  if (s.op == ScalarOp::kLoad && written_buffers_.count(s.buffer.index)) depth = innermost;
  if (lazy(plan, id)) depth = innermost;
  plan.depth[id.index] = depth;
  return depth;
}

void NestPlan::measure_stage(const Stage &stage, StagePlan &plan) {
  for (size_t i = 0; i < outer_.size(); ++i) level_[outer_[i].index] = static_cast<int>(i) + 1;
  for (size_t i = 0; i < plan.loops.size(); ++i) level_[plan.loops[i].index] = static_cast<int>(outer_.size() + i) + 1;
  for (const StageOutput &o : stage.outputs) {
    mark_always(plan, o.initial);
    mark_always(plan, o.condition);
    if (o.condition.valid()) continue;
    mark_always(plan, o.value);
    for (Dim d : o.index) mark_always_dim(plan, d);
  }
  const int innermost = static_cast<int>(outer_.size() + plan.loops.size());
  auto use = [&](ScalarId id, int depth) {
    if (!id.valid()) return;
    ++plan.uses[id.index];
    plan.deepest[id.index] = std::max(plan.deepest[id.index], depth);
  };
  auto use_dim = [&](Dim d, int depth) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols)
      if (s->kind == SymbolKind::kScalar) plan.index_deepest[s] = std::max(plan.index_deepest[s], depth);
  };
  for (const StageOutput &o : stage.outputs) {
    use(o.value, innermost);
    use(o.condition, innermost);
    use(o.initial, static_cast<int>(outer_.size()));
    for (Dim d : o.index) use_dim(d, innermost);
  }
  for (const Item &item : plan.order) {
    if (item.index) {
      use(ScalarId(size_t{item.index->scalar}), node_depth(plan, ScalarId(size_t{item.index->scalar})));
      continue;
    }
    const Scalar &s = program_.scalars.at(item.id);
    const int depth = node_depth(plan, item.id);
    for (ScalarId a : s.args) use(a, depth);
    if (s.op == ScalarOp::kIndex) use_dim(s.index_value, depth);
    for (Dim d : s.index) use_dim(d, depth);
  }
}

void NestPlan::set_lanes(const DimSymbol *lanes, bool columns) {
  lanes_ = lanes;
  columns_ = columns;
  varies_.clear();
}

bool NestPlan::dim_varies(Dim d) {
  if (!lanes_) return false;
  std::vector<const DimSymbol *> symbols;
  collect_symbols(fix(d), symbols);
  for (const DimSymbol *s : symbols) {
    if (s == lanes_) return true;
    if (s->kind == SymbolKind::kScalar && varies(ScalarId(size_t{s->scalar}))) return true;
  }
  return false;
}

bool NestPlan::varies(ScalarId id) {
  if (!id.valid() || !lanes_) return false;
  if (const auto it = varies_.find(id.index); it != varies_.end()) return it->second;
  const Scalar &s = program_.scalars.at(id);
  bool result = s.op == ScalarOp::kLocal && columns_;
  for (ScalarId a : s.args) result = result || varies(a);
  if (s.op == ScalarOp::kIndex) result = result || dim_varies(s.index_value);
  for (Dim d : s.index) result = result || dim_varies(d);
  varies_[id.index] = result;
  return result;
}

size_t NestPlan::reduction_level(const StageOutput &output, const StagePlan &plan) const {
  size_t level = 0;
  for (size_t i = 0; i < plan.loops.size(); ++i) {
    bool used = false;
    for (Dim d : output.index) used = used || uses_symbol(fix(d), plan.loops[i].index);
    if (!used) continue;
    if (level != i) return SIZE_MAX;
    level = i + 1;
  }
  return level;
}

bool NestPlan::lanes_value(const StagePlan &plan, ScalarId id, int64_t &cost, std::set<uint32_t> &seen) {
  if (!id.valid() || !varies(id)) return true;
  if (!seen.insert(id.index).second) return true;
  if (lazy(plan, id)) return false;
  const Scalar &s = program_.scalars.at(id);
  ElementType operand = s.type;
  if (arity(s.op) > 0 && s.op != ScalarOp::kSelect) operand = program_.scalars.at(s.args[0]).type;
  if (!lanes_support(s, operand)) return false;
  for (ScalarId a : s.args)
    if (!lanes_value(plan, a, cost, seen)) return false;
  switch (s.op) {
    case ScalarOp::kIndex: {
      const Dim d = fix(s.index_value);
      const auto part = affine_in(d, lanes_);
      if (!part) cost += 4;
      if (!part) return borders_ && columns_ && dim_in_lanes(d);
      return part->coefficient.is_constant() && !dim_varies(part->rest) && part->coefficient.value() >= -64 &&
             part->coefficient.value() <= 64;
    }
    case ScalarOp::kLocal:
      if (columns_) return s.type != ElementType::kInt64 && !dim_varies(load_offset(s));
      [[fallthrough]];
    case ScalarOp::kLoad: {
      if (s.type == ElementType::kInt64) return false;
      const auto part = affine_in(load_offset(s), lanes_);
      if (!part) {
        if (!borders_ || !columns_ || s.op != ScalarOp::kLoad) return false;
        const auto border = held(load_offset(s));
        const bool plain = border && border->step == 1;
        cost += plain ? 2 : 12;
        return plain ||
               (s.type == ElementType::kFloat32 && (border || dim_in_lanes(moving_part(load_offset(s)).first)));
      }
      if (dim_varies(part->rest)) {
        const auto gather = gathered(s);
        cost += 12;
        return gather && lanes_value(plan, gather->value, cost, seen);
      }
      if (part->coefficient.is(1)) {
        cost += 1;
        return s.op == ScalarOp::kLoad || s.type != ElementType::kBool;
      }
      cost += 8;
      return s.type == ElementType::kFloat32 || s.type == ElementType::kFloat64;
    }
    case ScalarOp::kEq:
    case ScalarOp::kNe:
    case ScalarOp::kLt:
    case ScalarOp::kLe:
    case ScalarOp::kCast:
      // i64 runs in int32 lanes, which is right for loop counters only.
      if (operand == ElementType::kInt64)
        for (ScalarId a : s.args)
          if (a.valid() && varies(a) && program_.scalars.at(a).op != ScalarOp::kIndex) return false;
      return true;
    default:
      return true;
  }
}

std::optional<NestPlan::Gathered> NestPlan::gathered(const Scalar &load) {
  if (load.op != ScalarOp::kLoad || program_.buffer(load.buffer).element() != ElementType::kFloat32)
    return std::nullopt;
  const Dim offset = load_offset(load);
  std::vector<const DimSymbol *> symbols;
  collect_symbols(offset, symbols);
  const DimSymbol *index = nullptr;
  for (const DimSymbol *s : symbols) {
    if (s->kind != SymbolKind::kScalar || !varies(ScalarId(size_t{s->scalar}))) continue;
    if (index) return std::nullopt;
    index = s;
  }
  if (!index) return std::nullopt;
  const auto part = affine_in(offset, index);
  const Dim extent = fix(index->extent);
  if (!part || dim_varies(part->rest) || !part->coefficient.is_constant() || !extent.is_constant()) return std::nullopt;
  // Addresses are int32 in the lanes.
  const int64_t factor = part->coefficient.value();
  if (factor < 1 || extent.value() > INT32_MAX / factor) return std::nullopt;
  const Scalar &cast = program_.scalars.at(ScalarId(size_t{index->scalar}));
  if (cast.op != ScalarOp::kCast || program_.scalars.at(cast.args[0]).type != ElementType::kInt32) return std::nullopt;
  return Gathered{index, cast.args[0], factor, part->rest};
}

ScalarId NestPlan::widened(const StageOutput &output, const StagePlan &plan) {
  if (!output.buffer.valid() || program_.buffer(output.buffer).element() != ElementType::kInt64) return {};
  if (one_column_ || (columns_ && !plan.loops.empty()) || !varies(output.value)) return {};
  const Scalar &s = program_.scalars.at(output.value);
  if (s.op == ScalarOp::kIndex) return output.value;
  if (s.op != ScalarOp::kCast) return {};
  const ElementType from = program_.scalars.at(s.args[0]).type;
  return from == ElementType::kInt64 || lane_class(from) == LaneClass::kNone ? ScalarId() : s.args[0];
}

// Whether iterations of `loop` meet in no element of what this nest writes: each access names one of its own.
bool NestPlan::independent(const Loop &loop) const {
  std::unordered_map<uint32_t, std::set<size_t>> places;  // by buffer: entries of all its indices that are the counter
  const auto meet = [&](BufferId buffer, const std::vector<Dim> &index) {
    std::set<size_t> here;
    for (size_t k = 0; k < index.size(); ++k)
      if (single_symbol(fix(index[k])) == loop.index) here.insert(k);
    const auto [known, first] = places.emplace(buffer.index, here);
    if (first) return;
    for (auto at = known->second.begin(); at != known->second.end();)
      at = here.count(*at) ? std::next(at) : known->second.erase(at);
  };
  for (const Stage &stage : nest_.stages)
    for (const StageOutput &o : stage.outputs)
      if (o.buffer.valid()) meet(o.buffer, o.index);
  for (const StagePlan &plan : plans_)
    for (const Item &item : plan.order) {
      if (item.index) continue;
      const Scalar &s = program_.scalars.at(item.id);
      if (s.op == ScalarOp::kLoad && written_buffers_.count(s.buffer.index)) meet(s.buffer, s.index);
    }
  return std::none_of(places.begin(), places.end(), [](const auto &p) { return p.second.empty(); });
}

bool NestPlan::lanes_possible(const Stage &stage, const StagePlan &plan, int64_t &cost) {
  std::set<uint32_t> seen;
  for (const StageOutput &o : stage.outputs) {
    const ScalarId narrow = widened(o, plan);
    if (!lanes_value(plan, narrow.valid() ? narrow : o.value, cost, seen) ||
        !lanes_value(plan, o.condition, cost, seen))
      return false;
    if (o.initial.valid() && varies(o.initial)) return false;
    const bool conditional = o.condition.valid() && varies(o.condition);
    if (o.buffer.valid()) {
      if (o.combine != Combine::kStore || conditional) return false;
      const Buffer &buffer = program_.buffer(o.buffer);
      const bool wide = buffer.element() == ElementType::kInt64;
      if (lane_class(buffer.element()) == LaneClass::kNone || (wide && !narrow.valid())) return false;
      const auto part = affine_in(offset_of(buffer, o.index), lanes_);
      if (!part || dim_varies(part->rest) || (part->coefficient.is(0) && !one_column_)) return false;
      if (!part->coefficient.is(1) && !one_column_) {
        if (buffer.element() != ElementType::kFloat32 && buffer.element() != ElementType::kFloat64) return false;
        cost += 16;
      }
      continue;
    }
    const Local &local = nest_.locals[o.local.index];
    const Dim offset = local_offset(local, o.index);
    const bool floats = local.type == ElementType::kFloat32 || local.type == ElementType::kFloat64;
    if (columns_) {
      if (dim_varies(offset) || lane_class(local.type) == LaneClass::kNone || local.type == ElementType::kInt64)
        return false;
      const bool arithmetic = floats || local.type == ElementType::kInt32;
      const bool logic = o.combine == Combine::kAnd || o.combine == Combine::kOr;
      if (o.combine != Combine::kStore && !(logic ? local.type == ElementType::kBool : arithmetic)) return false;
      if (conditional && o.combine == Combine::kStore) return false;
      if (!local.shape.empty()) {
        const Dim count = fix(element_count(local.shape));
        if (!count.is_constant() || count.value() > 256) return false;
        if (reduction_level(o, plan) == SIZE_MAX && o.combine != Combine::kStore) return false;
      }
      continue;
    }
    const bool extreme = o.combine == Combine::kMin || o.combine == Combine::kMax;
    if (!floats && !(extreme && local.type == ElementType::kInt32)) return false;
    if (o.combine == Combine::kStore) {
      const auto part = affine_in(offset, lanes_);
      if (conditional || !part || !part->coefficient.is(1) || dim_varies(part->rest)) return false;
      continue;
    }
    if (o.combine == Combine::kAnd || o.combine == Combine::kOr) return false;
    if (dim_varies(offset) || reduction_level(o, plan) == SIZE_MAX) return false;
  }
  return true;
}

void NestPlan::choose_lanes() {
  auto long_enough = [](Dim extent, int64_t least_extent) {
    return !extent.is_constant() || extent.value() >= least_extent;
  };
  int64_t row_cost = 0, column_cost = 0;
  size_t rows = 0, row_stages = 0;
  std::vector<const DimSymbol *> row_lanes(plans_.size());
  for (size_t i = 0; i < plans_.size() && !serial_; ++i) {
    StagePlan &plan = plans_[i];
    if (plan.loops.empty()) continue;
    ++rows;
    if (!long_enough(plan.loops.back().extent, 8)) continue;
    set_lanes(plan.loops.back().index, false);
    int64_t cost = 0;
    if (!lanes_possible(nest_.stages[i], plan, cost)) continue;
    row_cost += cost;
    row_lanes[i] = lanes_;
    ++row_stages;
  }
  bool columns = !outer_.empty() && long_enough(outer_.back().extent, 4) && (!serial_ || independent(outer_.back()));
  if (columns) {
    set_lanes(outer_.back().index, true);
    for (size_t i = 0; i < plans_.size() && columns; ++i)
      columns = lanes_possible(nest_.stages[i], plans_[i], column_cost);
  }
  if (columns && (rows == 0 || row_stages < rows || column_cost < row_cost)) return find_interior();  // lanes as set
  set_lanes(nullptr, false);
  for (size_t i = 0; i < plans_.size(); ++i) plans_[i].lanes = row_lanes[i];
}

}  // namespace optc
