#include "evaluate/nest.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace optc::evaluate_detail {

// --- Uses
// --------------------------------------------------------------------------------------------------------------

namespace {

struct UseWalker {
  const Program &program;
  Uses &out;
  std::unordered_set<uint32_t> seen;
  std::unordered_set<const DimSymbol *> seen_symbols;

  void scalar(ScalarId id) {
    if (!id.valid() || !seen.insert(id.index).second) return;
    const Scalar &s = program.scalars.at(id);
    for (int i = 0; i < arity(s.op); ++i) scalar(s.args[i]);
    if (s.op == ScalarOp::kIndex) dim(s.index_value);
    if (s.op == ScalarOp::kLoad) out.loads.push_back(id);
    if (s.op == ScalarOp::kLocal) out.locals.push_back(s.local);
    for (const Dim d : s.index) dim(d);
  }
  void dim(Dim d) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *symbol : symbols) {
      if (!seen_symbols.insert(symbol).second) continue;
      if (symbol->kind == SymbolKind::kLoop) out.loops.push_back(symbol);
      if (symbol->kind != SymbolKind::kScalar) continue;
      scalar(ScalarId(static_cast<size_t>(symbol->scalar)));
      dim(symbol->extent);
    }
  }
};

}  // namespace

bool Uses::has_loop(const DimSymbol *symbol) const {
  return std::find(loops.begin(), loops.end(), symbol) != loops.end();
}
bool Uses::has_local(LocalId local) const { return std::find(locals.begin(), locals.end(), local) != locals.end(); }

void collect_uses(const Program &program, ScalarId root, Uses &out) {
  UseWalker walker{program, out, {}, {}};
  walker.seen_symbols.insert(out.loops.begin(), out.loops.end());
  walker.scalar(root);
}

void collect_uses(const Program &program, Dim index, Uses &out) {
  UseWalker walker{program, out, {}, {}};
  walker.seen_symbols.insert(out.loops.begin(), out.loops.end());
  walker.dim(index);
}

// --- Running
// -----------------------------------------------------------------------------------------------------------

namespace {

constexpr int64_t kLocalBytes = int64_t{256}
                                << 20;  // scratch of all lanes together, beyond which the outer loops are steps

uint64_t identity_bits(Combine how, ElementType type) {
  const bool floating = is_float(type);
  double value = 0;
  int64_t integer = 0;
  switch (how) {
    case Combine::kProduct:
      value = 1, integer = 1;
      break;
    case Combine::kAnd:
      integer = type == ElementType::kBool ? 1 : -1;
      break;
    case Combine::kMax:
      value = -std::numeric_limits<double>::infinity();
      if (is_signed_integer(type)) integer = static_cast<int64_t>(~uint64_t{0} << (bit_width(type) - 1));
      break;
    case Combine::kMin:
      value = std::numeric_limits<double>::infinity();
      if (is_signed_integer(type))
        integer = static_cast<int64_t>((uint64_t{1} << (bit_width(type) - 1)) - 1);
      else if (type == ElementType::kBool)
        integer = 1;
      else if (is_unsigned_integer(type))
        integer = wrap_integer(type, -1);
      break;
    default:
      break;
  }
  uint64_t bits;
  if (floating)
    std::memcpy(&bits, &value, 8);
  else
    std::memcpy(&bits, &integer, 8);
  return bits;
}

class Runner : public PlanContext {
 public:
  Runner(NestHost &host, const LoopNest &nest, std::string &error) : host_(host), nest_(nest), error_(error) {}

  NestResult run(bool use_matrix_products);

  const Program &program() const override { return host_.program(); }
  const SymbolValues &symbols() const override { return host_.symbols(); }
  const Array *buffer(BufferId id, std::string &reason) override {
    auto found = arrays_.find(id.index);
    if (found != arrays_.end()) return &found->second;
    Tensor tensor;
    if (!host_.readable(id, tensor, reason)) return nullptr;
    return &note(id, tensor);
  }
  const Array *local(LocalId id) override { return id.index < locals_.size() ? &locals_[id.index] : nullptr; }
  bool spend(double work) override { return host_.spend(work); }
  const Precomputed *precomputed(LocalId id) override {
    auto found = precomputed_.find(id.index);
    return found == precomputed_.end() ? nullptr : &found->second;
  }

 private:
  struct StageRun {
    std::vector<PlanLoop> loops;
    std::vector<StageOutput> outputs;
    std::vector<Loop> source;  // for extents that depend on outer counters
    std::unique_ptr<StagePlan> plan;
    struct Initial {
      std::unique_ptr<StagePlan> plan;  // null: fill with the identity
      std::vector<size_t> steps;        // its step loops inside the outer ones
      std::vector<int64_t> extents;
      LocalId local;
      Combine combine;
    };
    std::vector<Initial> initial;
    int64_t total = 1;
  };

  const Array &note(BufferId id, const Tensor &tensor) {
    Array array;
    array.type = tensor.type;
    array.data = tensor.data();
    array.dims = tensor.dims;
    array.strides = tensor.strides;
    array.name = program().buffer(id).name;
    array.origin = tensor.offset;
    if (host_.takes_over(id)) {
      array.written = tensor.block->replacing.get();
    } else {
      array.written = tensor.block->written.get();
      array.replacing = tensor.block->replacing.get();
    }
    keep_.push_back(tensor.block);
    return arrays_.emplace(id.index, std::move(array)).first->second;
  }
  NestResult plan_error(const StagePlan &plan) {
    error_ = plan.error();
    return plan.internal_error() ? NestResult::kInternal : NestResult::kFault;
  }
  NestResult extents();
  bool hazard(const StageRun &stage, bool &same_index) const;
  NestResult make_plans();
  double work(int64_t outer_total) const;
  NestResult run_unit(int64_t block, int n);
  bool run_steps(StageRun &stage, StagePlan &plan, size_t first, size_t k, int64_t block, int n);
  NestResult start_locals(StageRun &stage, int64_t block, int n);
  void round_locals(const StageRun &stage);
  NestResult walk_outer(size_t k);
  void set_outer(size_t loop, int64_t value);

  NestHost &host_;
  const LoopNest &nest_;
  std::string &error_;
  std::unordered_map<uint32_t, Array> arrays_;
  std::vector<std::shared_ptr<Block>> keep_;
  std::unordered_map<uint32_t, Precomputed> precomputed_;
  std::vector<Array> locals_;
  std::vector<int64_t> local_counts_;
  std::vector<PlanLoop> outer_;
  std::vector<Loop> outer_source_;
  std::vector<StageRun> stages_;
  bool ragged_ = false, outer_lanes_ = false, stage_lanes_ = false;
  SymbolValues live_;  // ragged nests: counters too
};

NestResult Runner::extents() {
  std::vector<PlanLoop> known;
  auto add = [&](const Loop &loop, std::vector<PlanLoop> &to) -> bool {
    PlanLoop p;
    p.symbol = loop.index;
    if (const auto value = symbols().evaluate(loop.extent)) {
      p.extent = std::max<int64_t>(*value, 0);
    } else {
      StagePlan probe(*this, known);
      int64_t low = 0, high = 0;
      if (!probe.bounds(loop.extent, low, high)) {
        error_ = probe.error();
        return false;
      }
      p.extent = std::max<int64_t>(high, 0);
      ragged_ = true;
    }
    known.push_back(p);
    to.push_back(p);
    return true;
  };
  for (const Loop &loop : nest_.loops)
    if (!add(loop, outer_)) return NestResult::kInternal;
  outer_source_ = nest_.loops;
  for (const Stage &stage : nest_.stages) {
    // The outputs of a stage without loops happen one after the other: a later one may read what an earlier one left in
    // a local.
    const bool split = stage.loops.empty() && stage.outputs.size() > 1;
    for (size_t i = 0; i < (split ? stage.outputs.size() : 1); ++i) {
      StageRun run;
      known.resize(outer_.size());
      for (const Loop &loop : stage.loops)
        if (!add(loop, run.loops)) return NestResult::kInternal;
      run.source = stage.loops;
      if (split)
        run.outputs = {stage.outputs[i]};
      else
        run.outputs = stage.outputs;
      for (const PlanLoop &p : run.loops) run.total *= p.extent;
      stages_.push_back(std::move(run));
    }
  }
  return NestResult::kDone;
}

// Whether the stage loads from memory that it writes; same_index: only the very elements that the iteration itself
// stores.
bool Runner::hazard(const StageRun &stage, bool &same_index) const {
  Uses uses;
  for (const StageOutput &o : stage.outputs) {
    collect_uses(program(), o.value, uses);
    if (o.condition.valid()) collect_uses(program(), o.condition, uses);
    for (const Dim d : o.index) collect_uses(program(), d, uses);
  }
  auto root = [this](BufferId b) {
    while (program().buffer(b).alias.valid()) b = program().buffer(b).alias;
    return b;
  };
  auto place = [this](BufferId b, const std::vector<Dim> &index) {
    Dim at = linear_offset(program().buffer(b), index);
    for (; program().buffer(b).alias.valid(); b = program().buffer(b).alias) at = at + program().buffer(b).alias_offset;
    return at;
  };
  auto same_element = [&](const StageOutput &o, const Scalar &load) {
    if (o.buffer == load.buffer) return o.index == load.index;
    return place(o.buffer, o.index) == place(load.buffer, load.index);
  };
  bool found = false;
  same_index = true;
  for (const ScalarId id : uses.loads) {
    const Scalar &load = program().scalars.at(id);
    for (const StageOutput &o : stage.outputs) {
      if (!o.buffer.valid() || root(o.buffer) != root(load.buffer)) continue;
      found = true;
      if (!same_element(o, load)) same_index = false;
    }
  }
  for (const StageOutput &o : stage.outputs) {
    if (!o.local.valid() || !uses.has_local(o.local)) continue;
    found = true;
    same_index = same_index && stage.loops.empty();
  }
  return found;
}

NestResult Runner::make_plans() {
  for (StageRun &stage : stages_) {
    std::vector<PlanLoop> loops = outer_;
    for (PlanLoop &p : loops) p.lane = outer_lanes_;
    std::vector<bool> inner(outer_.size(), false);
    for (PlanLoop p : stage.loops) {
      p.lane = stage_lanes_;
      loops.push_back(p);
      inner.push_back(true);
    }
    stage.plan = std::make_unique<StagePlan>(*this, loops);
    std::vector<const uint8_t *> changing;
    for (const StageOutput &o : stage.outputs) {
      PlanOutput out;
      if (o.buffer.valid())
        out.target = arrays_.at(o.buffer.index);
      else
        out.target = locals_[o.local.index];
      changing.push_back(out.target.data);
      out.index = o.index;
      out.value = o.value;
      out.condition = o.condition;
      out.combine = o.combine;
      if (!stage.plan->add(out)) return plan_error(*stage.plan);
      if (!o.local.valid() || o.combine == Combine::kStore) continue;

      StageRun::Initial initial;
      initial.local = o.local;
      initial.combine = o.combine;
      if (o.initial.valid()) {
        Uses uses;
        for (const Dim d : o.index) collect_uses(program(), d, uses);
        std::vector<PlanLoop> own = outer_;
        for (PlanLoop &p : own) p.lane = outer_lanes_;
        std::vector<bool> own_inner(outer_.size(), false);
        for (PlanLoop p : stage.loops) {
          if (!uses.has_loop(p.symbol)) continue;
          p.lane = false;
          initial.steps.push_back(own.size());
          initial.extents.push_back(p.extent);
          own.push_back(p);
          own_inner.push_back(true);
        }
        initial.plan = std::make_unique<StagePlan>(*this, own);
        PlanOutput start;
        start.target = locals_[o.local.index];
        start.index = o.index;
        start.value = o.initial;
        if (!initial.plan->add(start)) return plan_error(*initial.plan);
        initial.plan->finish(own_inner, {});
      }
      stage.initial.push_back(std::move(initial));
    }
    stage.plan->finish(inner, changing);
  }
  return NestResult::kDone;
}

// Of all stages, as they run by lanes.
double Runner::work(int64_t outer_total) const {
  constexpr double kStart = 32;  // elements in whose time an operation on a block of lanes is begun
  const auto blocks = [](int64_t lanes) { return static_cast<double>((lanes + kLanes - 1) / kLanes); };
  const auto of_lanes = [&](int64_t lanes) { return blocks(lanes) * kStart + static_cast<double>(lanes); };
  double sum = 0;
  for (const StageRun &stage : stages_) {
    const double outer = outer_lanes_ ? of_lanes(outer_total) : static_cast<double>(outer_total),
                 inner = stage_lanes_ ? of_lanes(stage.total) : static_cast<double>(stage.total),
                 one = outer_lanes_ || stage_lanes_ ? 1 : kStart + 1;
    sum += outer * inner * one * stage.plan->operations();
  }
  return sum;
}

NestResult Runner::start_locals(StageRun &stage, int64_t block, int n) {
  for (StageRun::Initial &initial : stage.initial) {
    if (!initial.plan) {
      const Array &local = locals_[initial.local.index];
      const uint64_t bits = identity_bits(initial.combine, local.type);
      uint64_t *cells = reinterpret_cast<uint64_t *>(local.data);
      std::fill_n(cells, local_counts_[initial.local.index] * (outer_lanes_ ? kLanes : 1), bits);
      continue;
    }
    initial.plan->begin(block, n);
    int64_t total = 1;
    for (const int64_t e : initial.extents) total *= e;
    for (int64_t i = 0; i < total; ++i) {
      int64_t rest = i;
      for (size_t k = initial.steps.size(); k-- > 0;) {
        initial.plan->set_step(initial.steps[k], rest % initial.extents[k]);
        rest /= initial.extents[k];
      }
      if (!initial.plan->run(block, n)) return plan_error(*initial.plan);
    }
  }
  return NestResult::kDone;
}

// Sums of floats were kept wide; the local has the type that it has.
void Runner::round_locals(const StageRun &stage) {
  for (const StageRun::Initial &initial : stage.initial) {
    const Array &local = locals_[initial.local.index];
    if (lane_class(local.type) != LaneClass::kF32) continue;
    double *cells = reinterpret_cast<double *>(local.data);
    const int64_t count = local_counts_[initial.local.index] * (outer_lanes_ ? kLanes : 1);
    if (local.type == ElementType::kFloat32) {
      for (int64_t i = 0; i < count; ++i) cells[i] = static_cast<float>(cells[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) cells[i] = round_small(local.type, static_cast<float>(cells[i]), true);
    }
  }
}

bool Runner::run_steps(StageRun &stage, StagePlan &plan, size_t first, size_t k, int64_t block, int n) {
  if (k == stage.loops.size()) return plan.run(block, n);
  int64_t extent = stage.loops[k].extent;
  if (ragged_) extent = live_.evaluate(stage.source[k].extent).value_or(0);
  for (int64_t i = 0; i < extent; ++i) {
    plan.set_step(first + k, i);
    if (ragged_) live_.set(*stage.loops[k].symbol, i);
    if (!run_steps(stage, plan, first, k + 1, block, n)) return false;
  }
  return true;
}

NestResult Runner::run_unit(int64_t block, int n) {
  for (StageRun &stage : stages_) {
    if (const NestResult r = start_locals(stage, block, n); r != NestResult::kDone) return r;
    if (stage_lanes_) {
      if (stage.total > 0) stage.plan->begin(0, static_cast<int>(std::min<int64_t>(kLanes, stage.total)));
      for (int64_t at = 0; at < stage.total; at += kLanes)
        if (!stage.plan->run(at, static_cast<int>(std::min<int64_t>(kLanes, stage.total - at))))
          return plan_error(*stage.plan);
    } else {
      stage.plan->begin(block, n);
      if (!run_steps(stage, *stage.plan, outer_.size(), 0, block, n)) return plan_error(*stage.plan);
    }
    round_locals(stage);
  }
  return NestResult::kDone;
}

void Runner::set_outer(size_t loop, int64_t value) {
  for (StageRun &stage : stages_) {
    stage.plan->set_step(loop, value);
    for (StageRun::Initial &initial : stage.initial)
      if (initial.plan) initial.plan->set_step(loop, value);
  }
  if (ragged_) live_.set(*outer_[loop].symbol, value);
}

NestResult Runner::walk_outer(size_t k) {
  if (k == outer_.size()) return run_unit(0, 1);
  int64_t extent = outer_[k].extent;
  if (ragged_) extent = live_.evaluate(outer_source_[k].extent).value_or(0);
  for (int64_t i = 0; i < extent; ++i) {
    set_outer(k, i);
    if (const NestResult r = walk_outer(k + 1); r != NestResult::kDone) return r;
  }
  return NestResult::kDone;
}

NestResult Runner::run(bool use_matrix_products) {
  for (const Stage &stage : nest_.stages) {
    for (const StageOutput &o : stage.outputs) {
      if (!o.buffer.valid() || arrays_.count(o.buffer.index)) continue;
      Tensor tensor;
      if (!host_.writable(o.buffer, tensor)) return NestResult::kSaid;
      note(o.buffer, tensor);
    }
  }
  if (const NestResult r = extents(); r != NestResult::kDone) return r;
  int64_t outer_total = 1;
  for (const PlanLoop &p : outer_) outer_total *= p.extent;
  if (outer_total == 0) return NestResult::kDone;

  // Locals: their sizes.
  int64_t scratch = 0;
  for (const Local &local : nest_.locals) {
    Array array;
    array.type = local.type;
    array.local = true;
    array.name = local.name;
    for (const Dim d : local.shape) {
      const auto extent = symbols().evaluate(d);
      if (!extent) {
        error_ = "the local '" + local.name + "' has a size that is not known";
        return NestResult::kInternal;
      }
      array.dims.push_back(std::max<int64_t>(*extent, 0));
    }
    array.strides = row_major_strides(array.dims);
    local_counts_.push_back(product(array.dims));
    scratch += local_counts_.back();
    locals_.push_back(std::move(array));
  }

  if (use_matrix_products && !ragged_) {
    std::vector<LoopExtent> outer;
    for (const PlanLoop &p : outer_) outer.push_back({p.symbol, p.extent});
    for (size_t i = 0; i < stages_.size();) {
      StageRun &stage = stages_[i];
      std::vector<LoopExtent> loops;
      for (const PlanLoop &p : stage.loops) loops.push_back({p.symbol, p.extent});
      bool same = true, done = false;
      if (stage.outputs.size() == 1 && stage.outputs[0].local.valid() && !hazard(stage, same)) {
        const LocalId local = stage.outputs[0].local;
        int writers = 0;
        for (const StageRun &other : stages_)
          for (const StageOutput &o : other.outputs) writers += o.local == local;
        Precomputed replacement;
        const auto result = writers == 1
                                ? precompute_products(*this, outer, loops, stage.outputs[0], nest_.locals[local.index],
                                                      locals_[local.index].dims, replacement, keep_, error_)
                                : std::nullopt;
        done = result == NestResult::kDone;
        if (result && !done) return *result;
        if (done) precomputed_.emplace(local.index, std::move(replacement));
      }
      if (done)
        stages_.erase(stages_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
    if (stages_.empty()) return NestResult::kDone;
  }

  // How lanes run: over all loops, over the outer ones, over each stage's own, or not at all.
  bool locals_used = false, any_hazard = false, bad_hazard = false;
  for (const StageRun &stage : stages_) {
    for (const StageOutput &o : stage.outputs) locals_used = locals_used || o.local.valid();
    bool same = true;
    if (!hazard(stage, same)) continue;
    any_hazard = true;
    bad_hazard = bad_hazard || !same;
  }
  const bool flat = stages_.size() == 1 && !locals_used;
  if (ragged_ || (nest_.sequential && bad_hazard)) {
    outer_lanes_ = stage_lanes_ = false;
  } else if (flat && !bad_hazard) {
    stage_lanes_ = true;
    StageRun &stage = stages_[0];
    stage.loops.insert(stage.loops.begin(), outer_.begin(), outer_.end());
    stage.total *= outer_total;
    outer_.clear();
    outer_total = 1;
  } else if (nest_.sequential) {
    stage_lanes_ = true;
  } else if (bad_hazard) {
    outer_lanes_ = true;
  } else {
    int64_t by_outer = 0, by_stage = 0;
    for (const StageRun &stage : stages_) {
      by_outer += (outer_total + kLanes - 1) / kLanes * stage.total;
      by_stage += outer_total * ((stage.total + kLanes - 1) / kLanes);
    }
    outer_lanes_ = by_outer <= by_stage && scratch * kLanes * 8 <= kLocalBytes;
    stage_lanes_ = !outer_lanes_;
  }
  (void)any_hazard;
  for (size_t i = 0; i < locals_.size(); ++i) {
    if (precomputed_.count(static_cast<uint32_t>(i))) continue;
    locals_[i].lane_minor = outer_lanes_;
    auto block = make_block(ElementType::kFloat64, local_counts_[i] * (outer_lanes_ ? kLanes : 1));
    if (!block) {
      error_ = "there is not enough memory for the local '" + locals_[i].name + "'";
      return NestResult::kInternal;
    }
    locals_[i].data = block->data;
    keep_.push_back(std::move(block));
  }
  if (const NestResult r = make_plans(); r != NestResult::kDone) return r;
  if (!spend(work(outer_total))) return NestResult::kSaid;
  if (outer_lanes_) {
    for (int64_t at = 0; at < outer_total; at += kLanes) {
      const NestResult r = run_unit(at, static_cast<int>(std::min<int64_t>(kLanes, outer_total - at)));
      if (r != NestResult::kDone) return r;
    }
    return NestResult::kDone;
  }
  if (ragged_) live_ = symbols();
  return walk_outer(0);
}

}  // namespace

NestResult run_nest(NestHost &host, const LoopNest &nest, bool use_matrix_products, std::string &error) {
  return Runner(host, nest, error).run(use_matrix_products);
}

}  // namespace optc::evaluate_detail
