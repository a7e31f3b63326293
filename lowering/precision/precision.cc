#include "lowering/precision/precision.h"
#include "ir/program/recurrent.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "lowering/fusion/fusion.h"
#include "lowering/precision/poles.h"
#include "lowering/precision/range.h"

namespace optc {
namespace {

constexpr int64_t kSmallConstant =
    4096;                          // elements; smaller ones that no contraction multiplies are not worth a rounding
constexpr double kTiny = 0x1p-12;  // constants all below this would lie in f16's subnormals for the most part

class Storage {
 public:
  Storage(Program &program, const LoweringOptions &options, Steps &steps, PrecisionReport &report)
      : p_(program),
        options_(options),
        steps_(steps),
        report_(report),
        narrow_(options.precision),
        groups_(program.buffers.size()),
        why_(program.buffers.size()) {
    for (size_t i = 0; i < groups_.size(); ++i) {
      BufferId b(i);
      while (p_.buffer(b).alias.valid()) b = p_.buffer(b).alias;
      groups_[i] = b.index;
    }
  }

  void run() {
    for (size_t i = 0; i < p_.buffers.size(); ++i) by_kind(BufferId(i));
    for (BufferId b : p_.outputs) keep(b, "the caller's memory");
    for (const auto &[name, why] : options_.keep_f32)
      for (size_t i = 0; i < p_.buffers.size(); ++i)
        if (p_.buffers[i].name == name) keep(BufferId(i), why);
    each_kernel([&](const Kernel &kernel) { by_kernel(kernel); });
    constants();
    ranges();
    poles();
    choose();
    for (changed_ = true; changed_;) {
      changed_ = false;
      each_kernel([&](const Kernel &kernel) { by_contraction(kernel); });
    }
    rewrite();
  }

 private:
  bool narrow(BufferId b) const { return why_[groups_[b.index]].empty(); }
  void keep(BufferId b, const std::string &why) {
    if (!b.valid() || !narrow(b)) return;
    why_[groups_[b.index]] = why;
    changed_ = true;
  }

  void each_kernel(const std::function<void(const Kernel &)> &f) const {
    std::function<void(const std::vector<KernelId> &)> walk = [&](const std::vector<KernelId> &order) {
      for (KernelId k : order) {
        f(p_.kernel(k));
        if (const ControlFlow *control = p_.kernel(k).control())
          for (const auto &body : control->bodies) walk(body);
      }
    };
    walk(p_.order);
  }

  void by_kind(BufferId id) {
    const Buffer &b = p_.buffer(id);
    if (!b.type.is_tensor() || b.element() != ElementType::kFloat32)
      keep(id, "another type");
    else if (b.kind == BufferKind::kInput || b.kind == BufferKind::kOutput)
      keep(id, "the caller's memory");
    else if (b.kind == BufferKind::kObject || b.kind == BufferKind::kScratch)
      keep(id, "memory of a library call");
  }

  void by_kernel(const Kernel &kernel) {
    if (const LibraryCall *call = kernel.library()) {
      const BufferId narrow = weights_of_steps(kernel);
      for (const auto *list : {&call->inputs, &call->outputs})
        for (BufferId b : *list)
          if (b != narrow) keep(b, "library function " + call->function);
      return;
    }
    if (const ControlFlow *c = kernel.control()) {
      for (BufferId b : {c->condition, c->trip_count, c->iteration, c->body_condition}) keep(b, "control flow");
      for (const auto *list : {&c->outputs, &c->initial, &c->body_inputs})
        for (BufferId b : *list) keep(b, "control flow");
      for (const auto &list : c->results)
        for (BufferId b : list) keep(b, "control flow");
      return;
    }
    // What one iteration leaves to the next (a running sum) would lose its digits over and over.
    if (kernel.nest()->sequential) {
      const std::vector<BufferId> read = reads(p_, kernel);
      for (BufferId b : writes(p_, kernel))
        if (std::find(read.begin(), read.end(), b) != read.end()) keep(b, "a running value");
    }
    for (const Stage &stage : kernel.nest()->stages)
      for (const StageOutput &o : stage.outputs) {
        if (o.buffer.valid() && o.combine != Combine::kStore) keep(o.buffer, "a scatter");
        std::unordered_set<uint32_t> seen;
        for (ScalarId id : {o.value, o.initial, o.condition}) discrete(id, seen);
        for (Dim d : o.index) index(d, seen);
      }
  }

  // Keeps what steers indices, integers and angles.
  void discrete(ScalarId id, std::unordered_set<uint32_t> &seen) {
    if (!id.valid() || !seen.insert(id.index).second) return;
    const Scalar &s = p_.scalars.at(id);
    if (s.op == ScalarOp::kCast && !is_float(s.type) && s.type != ElementType::kBool &&
        is_float(p_.scalars.at(s.args[0]).type))
      keep_loads(s.args[0], "it becomes an integer");
    if (s.op == ScalarOp::kSin || s.op == ScalarOp::kCos || s.op == ScalarOp::kTan) keep_loads(s.args[0], "an angle");
    if (s.op == ScalarOp::kIndex) index(s.index_value, seen);
    for (Dim d : s.index) index(d, seen);
    for (int i = 0; i < arity(s.op); ++i) discrete(s.args[i], seen);
  }
  void index(Dim d, std::unordered_set<uint32_t> &seen) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols) {
      if (s->kind != SymbolKind::kScalar) continue;
      const ScalarId id(size_t{s->scalar});
      keep_loads(id, "it becomes an index");
      discrete(id, seen);
    }
  }
  void keep_loads(ScalarId id, const char *why) {
    std::vector<ScalarId> loads;
    collect_loads(p_, id, loads);
    for (ScalarId l : loads) keep(p_.scalars.at(l).buffer, why);
  }

  // R of a recurrent layer's steps, which a GPU takes in 16 bits, too; invalid: the kernel has none.
  static BufferId weights_of_steps(const Kernel &kernel) {
    const LibraryCall *call = kernel.library();
    return call && call->function == "rnn_steps" ? call->inputs[RecurrentSteps::kR] : BufferId();
  }

  // The buffers that a contraction multiplies.
  std::vector<BufferId> operands(const Kernel &kernel) const {
    std::vector<BufferId> out;
    const LoopNest *nest = kernel.nest();
    if (!nest || !nest->contraction) return out;
    const Contraction &c = *nest->contraction;
    for (ScalarId id : {c.lhs, c.rhs, c.query, c.key, c.value}) {
      if (!id.valid()) continue;
      std::vector<ScalarId> loads;
      collect_loads(p_, id, loads);
      for (ScalarId l : loads) out.push_back(p_.scalars.at(l).buffer);
    }
    return out;
  }

  void constants() {
    std::vector<bool> multiplied(p_.buffers.size(), false);
    each_kernel([&](const Kernel &kernel) {
      for (BufferId b : operands(kernel)) multiplied[groups_[b.index]] = true;
      if (const BufferId r = weights_of_steps(kernel); r.valid()) multiplied[groups_[r.index]] = true;
    });
    sizes_.assign(p_.buffers.size(), -1);
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer &b = p_.buffers[i];
      const BufferId id(i);
      if (b.kind != BufferKind::kConstant || b.alias.valid() || !b.constant.valid() ||
          b.element() != ElementType::kFloat32)
        continue;
      sizes_[i] = largest_magnitude(b.constant);
      if (!narrow(id)) continue;
      if (!multiplied[i] && b.constant.count() < kSmallConstant) {
        keep(id, "a small constant");
      } else if (narrow_ == ElementType::kFloat16 && sizes_[i] > 65504) {
        keep(id, "values beyond f16's range");
      } else if (narrow_ == ElementType::kFloat16 && sizes_[i] > 0 && sizes_[i] < kTiny) {
        keep(id, "values below f16's normal range");
      } else if (narrow_ == ElementType::kBFloat16 && sizes_[i] > kLargestBFloat16) {
        keep(id, "values beyond bf16's range");
      }
    }
  }

  void ranges() {
    RangeAnalysis analysis(p_);
    for (size_t i = 0; i < p_.buffers.size(); ++i)
      if (const double size = sizes_[groups_[i]]; size >= 0) analysis.set(BufferId(i), {0, size, false});
    each_kernel([&](const Kernel &kernel) {
      for (const auto &[buffer, magnitude] : analysis.stores(kernel)) {
        const BufferId id(size_t{buffer});
        if (!narrow(id) || fits(magnitude)) {
          if (narrow(id)) continue;
        } else {
          keep(id, magnitude.counts                   ? "whole numbers as floats"
                   : narrow_ == ElementType::kFloat16 ? "values that may leave f16's range"
                                                      : "values at the end of f32's range");
        }
        for (size_t i = 0; i < groups_.size(); ++i)
          if (groups_[i] == groups_[id.index]) analysis.set(BufferId(i), magnitude);
      }
    });
  }
  void poles() {
    PoleAnalysis analysis(p_, narrow_, [&](BufferId b, const char *why) { keep(b, why); });
    do {
      analysis.changed = false;
      each_kernel([&](const Kernel &kernel) { analysis.visit(kernel); });
    } while (analysis.changed);
  }
  bool fits(const Magnitude &m) const {
    if (narrow_ == ElementType::kFloat16) return fits_half(m);
    return fits_bfloat16(m);
  }

  void by_contraction(const Kernel &kernel) {
    const auto all = operands(kernel);
    if (all.empty()) return;
    if (options_.target == LoweringOptions::Target::kCpu) {
      for (BufferId b : all) keep(b, "an operand of a CPU kernel that reads f32");
      return;
    }
    const Contraction &c = *kernel.nest()->contraction;
    const auto wide = [&](BufferId b) { return !narrow(b) && p_.buffer(b).element() == ElementType::kFloat32; };
    if (std::none_of(all.begin(), all.end(), wide)) return;
    // One that cannot be rounded as it is read takes the others with it.
    const bool attention = c.kind == ContractionKind::kAttention;
    if (std::any_of(all.begin(), all.end(), [&](BufferId b) { return wide(b) && !roundable(b, attention); }))
      for (BufferId b : all) keep(b, "multiplied with an operand that stays f32");
  }
  // Only the caller's tensors are rounded: others stayed f32 because of their values. Attention reads eight at a time.
  bool roundable(BufferId b, bool eight) const {
    if (why_[groups_[b.index]] != "the caller's memory") return false;
    const Buffer &buffer = p_.buffer(b);
    return !eight || (buffer.order.empty() && !buffer.shape().empty() && divisible_by(buffer.shape().back(), 8));
  }

  // What is left to be narrow, storage by storage: each is a step.
  void choose() {
    const std::string name = narrow_ == ElementType::kFloat16 ? "store.f16" : "store.bf16";
    std::vector<bool> touched(p_.buffers.size(), false);
    std::vector<std::vector<uint32_t>> origin(p_.buffers.size());  // of what writes it; of a constant of what reads it
    each_kernel([&](const Kernel &kernel) {
      for (BufferId b : reads(p_, kernel)) {
        touched[groups_[b.index]] = true;
        if (p_.buffer(BufferId(groups_[b.index])).kind == BufferKind::kConstant)
          add_origin(origin[groups_[b.index]], kernel.origin);
      }
      for (BufferId b : writes(p_, kernel)) {
        touched[groups_[b.index]] = true;
        add_origin(origin[groups_[b.index]], kernel.origin);
      }
    });
    for (size_t i = 0; i < groups_.size(); ++i) {
      const BufferId id(i);
      if (groups_[i] != i || !touched[i] || !narrow(id)) continue;
      if (steps_.allowed(name))
        steps_.record(name, p_.buffer(id).name, std::move(origin[i]));
      else
        keep(id, "left out by --disable-pass");
    }
  }

  // --- The change

  void rewrite() {
    std::vector<bool> used(p_.buffers.size(), false);  // fusion leaves buffers behind that no kernel touches
    each_kernel([&](const Kernel &kernel) {
      for (BufferId b : reads(p_, kernel)) used[b.index] = used[groups_[b.index]] = true;
      for (BufferId b : writes(p_, kernel)) used[b.index] = used[groups_[b.index]] = true;
    });
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      Buffer &b = p_.buffers[i];
      if (!used[i] || !b.type.is_tensor() || b.element() != ElementType::kFloat32) continue;
      const BufferId id(i);
      if (!narrow(id)) {
        if (b.kind == BufferKind::kTemporary || b.kind == BufferKind::kConstant)
          report_.kept.emplace_back(b.name, why_[groups_[i]]);
        continue;
      }
      converted_.insert(id.index);
      report_.narrow.push_back(b.name);
      ++(b.kind == BufferKind::kConstant ? report_.constants : report_.temporaries);
    }
    for (size_t k = 0; k < p_.kernels.size(); ++k)
      if (p_.kernels[k].alive && p_.kernels[k].nest()) rewrite_nest(p_.kernels[k]);
    for (uint32_t i : converted_) {
      Buffer &b = p_.buffers[i];
      b.type.element = narrow_;
      if (!b.constant.valid()) continue;
      sources_.push_back(b.constant);
      b.constant = converted(b.constant);
    }
  }

  void rewrite_nest(Kernel &kernel) {
    LoopNest nest = *kernel.nest();
    ScalarSubstitution loads;
    loads.on_load = [&](const Scalar &load) -> ScalarId {
      if (!converted_.count(load.buffer.index)) return ScalarId();
      return p_.scalars.cast(p_.scalars.load(load.buffer, narrow_, load.index), ElementType::kFloat32);
    };
    substitute_nest(p_, nest, loads);
    for (Stage &stage : nest.stages)
      for (StageOutput &o : stage.outputs)
        if (o.buffer.valid() && converted_.count(o.buffer.index)) o.value = p_.scalars.cast(o.value, narrow_);
    if (options_.target == LoweringOptions::Target::kGpu && nest.contraction) round_operands(nest, operands(kernel));
    kernel.body = std::move(nest);
  }

  // A product of one 16-bit and one f32 operand: the latter is rounded as it is read.
  void round_operands(LoopNest &nest, const std::vector<BufferId> &all) {
    const bool any = std::any_of(all.begin(), all.end(), [&](BufferId b) { return converted_.count(b.index) != 0; });
    if (!any) return;
    ScalarSubstitution round;
    round.on_load = [&](const Scalar &load) -> ScalarId {
      if (load.type != ElementType::kFloat32 || std::find(all.begin(), all.end(), load.buffer) == all.end())
        return ScalarId();
      const ScalarId same = p_.scalars.load(load.buffer, load.type, load.index);
      return p_.scalars.cast(p_.scalars.cast(same, narrow_), ElementType::kFloat32);
    };
    Contraction &c = *nest.contraction;
    const bool attention = c.kind == ContractionKind::kAttention;
    for (size_t i = 0; i < nest.stages.size(); ++i)
      if (attention || i == c.stage)  // not the epilogue: a residual stays as it is
        for (StageOutput &o : nest.stages[i].outputs) o.value = substitute(p_, o.value, round);
    for (ScalarId *id : {&c.lhs, &c.rhs, &c.query, &c.key, &c.value})
      if (id->valid()) *id = substitute(p_, *id, round);
  }

  Constant converted(const Constant &wide) {
    Constant &known = constants_[wide.identity()];  // one constant may be several buffers
    if (known.valid() && known.dims() == wide.dims()) return known;
    const bool half = narrow_ == ElementType::kFloat16;
    return known = Constant::made(narrow_, wide.dims(), half ? "f16" : "bf16", {wide}, [=](const Constant::Sink &sink) {
             constexpr int64_t kPiece = 1 << 19;
             const Constant plain = wide.plain();
             std::vector<uint16_t> piece;
             for (int64_t at = 0; at < plain.count(); at += kPiece) {
               const float *in = plain.as<float>() + at;
               piece.resize(static_cast<size_t>(std::min(kPiece, plain.count() - at)));
               for (size_t i = 0; i < piece.size(); ++i)
                 piece[i] = half ? float_to_half(in[i]) : float_to_bfloat16(in[i]);
               if (!sink(piece.data(), piece.size() * 2)) return false;
             }
             return true;
           });
  }

  Program &p_;
  const LoweringOptions &options_;
  Steps &steps_;
  PrecisionReport &report_;
  const ElementType narrow_;
  std::vector<uint32_t> groups_;  // root of the alias chain
  std::vector<std::string> why_;  // by root: why it stays f32; empty: it does not
  std::vector<double> sizes_;     // largest magnitude of a constant, else -1
  std::unordered_set<uint32_t> converted_;
  std::unordered_map<const void *, Constant> constants_;
  std::vector<Constant> sources_;  // keeps the bytes that `constants_` is keyed by
  bool changed_ = false;
};

}  // namespace

void choose_storage(Program &program, const LoweringOptions &options, Steps &steps, PrecisionReport &report) {
  if (options.precision == ElementType::kFloat32) return;
  Storage(program, options, steps, report).run();
}

}  // namespace optc
