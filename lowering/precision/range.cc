#include "lowering/precision/range.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/constant_bits.h"
#include "ir/program/contraction_view.h"

namespace optc {
namespace {

constexpr double kOrdinary = 256, kLargestHalf = 65504, kUnbounded = 1e300;

Magnitude larger(const Magnitude &a, const Magnitude &b) {
  return {std::max(a.degree, b.degree), std::max(a.scale, b.scale), a.counts || b.counts};
}
Magnitude bounded(double by) { return {0, by, false}; }

double constant_value(const Scalar &s) {
  return is_float(s.type) ? float_of_bits(s.type, s.bits) : static_cast<double>(integer_of_bits(s.type, s.bits));
}

}  // namespace

bool fits_half(const Magnitude &m) {
  return !m.counts && m.scale * std::pow(kOrdinary, std::max(0.0, m.degree)) <= kLargestHalf;
}

bool fits_bfloat16(const Magnitude &m) {
  // Far beyond f32's range nothing is known, and f32 itself would overflow.
  constexpr double kBeyondF32 = 1e40;
  return !m.counts && (m.scale <= kLargestBFloat16 || m.scale > kBeyondF32);
}

double largest_magnitude(const Constant &constant) {
  const float *data = constant.as<float>();
  float top = 0;
  for (int64_t i = 0; i < constant.count(); ++i) {
    const float v = std::fabs(data[i]);
    if (v > top && v <= std::numeric_limits<float>::max()) top = v;
  }
  return top;
}

std::unordered_map<uint32_t, Magnitude> RangeAnalysis::stores(const Kernel &kernel) {
  std::unordered_map<uint32_t, Magnitude> out;
  const LoopNest *nest = kernel.nest();
  if (!nest) return out;
  nest_ = nest;
  locals_.assign(nest->locals.size(), Magnitude{});
  const bool attention = nest->contraction && nest->contraction->kind == ContractionKind::kAttention;
  for (size_t i = 0; i < nest->stages.size(); ++i) {
    stage_ = i;
    known_.clear();  // a scalar that reads a local means another value in each stage
    for (const StageOutput &o : nest->stages[i].outputs) {
      Magnitude m = scalar(o.value);
      if (o.initial.valid()) m = larger(m, scalar(o.initial));
      if (attention || (nest->contraction && i == nest->contraction->stage)) {
        // Sums of products with weights stay as large as what goes in; a weighted mean anyway.
        m = {1, 1, false};
      } else if (o.combine == Combine::kSum) {
        Dim times = 1;
        for (const Loop &l : nest->stages[i].loops)
          if (std::none_of(o.index.begin(), o.index.end(), [&](Dim d) { return uses_symbol(d, l.index); }))
            times = times * l.extent;
        m.scale *= times.is_constant() ? static_cast<double>(times.value()) : 4096.0;
      } else if (o.combine == Combine::kProduct) {
        m = {1, kUnbounded, false};
      }
      if (o.buffer.valid()) {
        auto [it, fresh] = out.emplace(o.buffer.index, m);
        if (!fresh) it->second = larger(it->second, m);
      } else {
        Magnitude &local = locals_[o.local.index];
        local = larger(local, m);
      }
    }
  }
  return out;
}

bool RangeAnalysis::same(ScalarId a, ScalarId b, const DimSubstitution &loops) const {
  const Scalar &x = program_.scalars.at(a), &y = program_.scalars.at(b);
  if (x.op != y.op || x.type != y.type || x.flag != y.flag || x.bits != y.bits || x.buffer != y.buffer ||
      x.local != y.local || x.index.size() != y.index.size() || x.index_value != substitute(y.index_value, loops))
    return false;
  for (size_t i = 0; i < x.index.size(); ++i)
    if (x.index[i] != substitute(y.index[i], loops)) return false;
  for (int i = 0; i < arity(x.op); ++i)
    if (!same(x.args[i], y.args[i], loops)) return false;
  return true;
}

bool RangeAnalysis::shifted_by_its_maximum(const Scalar &difference) const {
  if (difference.op != ScalarOp::kSub) return false;
  const Scalar &subtracted = program_.scalars.at(difference.args[1]);
  if (subtracted.op != ScalarOp::kLocal) return false;
  const StageOutput *maximum = nullptr;
  const Stage *stage = nullptr;
  for (size_t i = 0; i < nest_->stages.size(); ++i)
    for (const StageOutput &o : nest_->stages[i].outputs) {
      if (o.buffer.valid() || o.local != subtracted.local) continue;
      if (maximum || o.combine != Combine::kMax || o.condition.valid() || i >= stage_) return false;
      maximum = &o;
      stage = &nest_->stages[i];
    }
  const std::vector<Loop> &here = nest_->stages[stage_].loops;
  if (!maximum || stage->loops.size() != here.size()) return false;
  for (size_t i = 0; i < here.size(); ++i)
    if (stage->loops[i].extent != here[i].extent) return false;
  const DimSubstitution loops = [&](const DimSymbol &symbol) -> std::optional<Dim> {
    for (size_t i = 0; i < here.size(); ++i)
      if (stage->loops[i].index == &symbol) return program_.dims->symbol_value(here[i].index);
    return std::nullopt;
  };
  if (maximum->index.size() != subtracted.index.size()) return false;
  for (size_t i = 0; i < maximum->index.size(); ++i)
    if (subtracted.index[i] != substitute(maximum->index[i], loops)) return false;
  return same(difference.args[0], maximum->value, loops);
}

Magnitude RangeAnalysis::scalar(ScalarId id) {
  if (auto it = known_.find(id.index); it != known_.end()) return it->second;
  const Magnitude m = compute(program_.scalars.at(id));
  known_.emplace(id.index, m);
  return m;
}

Magnitude RangeAnalysis::compute(const Scalar &s) {
  auto arg = [&](int i) { return scalar(s.args[i]); };
  auto op_of = [&](int i) -> const Scalar & { return program_.scalars.at(s.args[i]); };
  switch (s.op) {
    case ScalarOp::kConstant: {
      const double v = constant_value(s);
      return bounded(std::isfinite(v) ? std::fabs(v) : 0);  // f16 has infinities
    }
    case ScalarOp::kIndex:
      return {1, 1, true};
    case ScalarOp::kLoad:
      return is_float(s.type)               ? buffers_[s.buffer.index]
             : s.type == ElementType::kBool ? bounded(1)
                                            : Magnitude{1, 1, true};
    case ScalarOp::kLocal:
      return locals_[s.local.index];
    case ScalarOp::kTanh:
    case ScalarOp::kSigmoid:
    case ScalarOp::kErf:
    case ScalarOp::kSin:
    case ScalarOp::kCos:
    case ScalarOp::kSign:
    case ScalarOp::kNot:
    case ScalarOp::kIsNan:
    case ScalarOp::kIsInf:
    case ScalarOp::kEq:
    case ScalarOp::kNe:
    case ScalarOp::kLt:
    case ScalarOp::kLe:
      return bounded(1);
    case ScalarOp::kAsin:
    case ScalarOp::kAcos:
    case ScalarOp::kAtan:
      return bounded(4);
    case ScalarOp::kExp:
    case ScalarOp::kExpm1: {
      // exp(x - max x) is at most 1; others grow as they like.
      if (shifted_by_its_maximum(op_of(0))) return bounded(1);
      const Magnitude m = arg(0);
      return m.degree <= 0 && m.scale <= 11 ? bounded(std::exp(m.scale)) : bounded(kUnbounded);
    }
    case ScalarOp::kLog:
    case ScalarOp::kLog1p:
      return bounded(kOrdinary);
    case ScalarOp::kSqrt: {
      const Magnitude m = arg(0);
      return {m.degree / 2, std::sqrt(m.scale), false};
    }
    case ScalarOp::kTan:
    case ScalarOp::kSinh:
    case ScalarOp::kCosh:
    case ScalarOp::kAcosh:
    case ScalarOp::kAsinh:
    case ScalarOp::kAtanh:
      return bounded(kUnbounded);
    case ScalarOp::kCast: {
      const ElementType from = op_of(0).type;
      if (from == ElementType::kBool) return bounded(1);
      Magnitude m = arg(0);
      if (!is_float(s.type) || !is_float(from)) m.counts = true;
      return m;
    }
    case ScalarOp::kAdd:
    case ScalarOp::kSub: {
      const Magnitude a = arg(0), b = arg(1);
      return {std::max(a.degree, b.degree), a.scale + b.scale, a.counts || b.counts};
    }
    case ScalarOp::kMul:
    case ScalarOp::kFma: {
      const Magnitude a = arg(0), b = arg(1);
      const bool square = s.args[0] == s.args[1];
      const double degree = square || a.degree < 0 || b.degree < 0 ? a.degree + b.degree : std::max(a.degree, b.degree);
      Magnitude m{degree, a.scale * b.scale, a.counts || b.counts};
      if (s.op == ScalarOp::kFma) {
        const Magnitude c = arg(2);
        m = {std::max(m.degree, c.degree), m.scale + c.scale, m.counts || c.counts};
      }
      return m;
    }
    case ScalarOp::kDiv: {
      const Magnitude a = arg(0), b = arg(1);
      if (op_of(1).op == ScalarOp::kConstant) {
        const double by = std::fabs(constant_value(op_of(1)));
        return {a.degree, by > 0 ? a.scale / by : kUnbounded, a.counts};
      }
      return {a.degree - b.degree, a.scale, a.counts};
    }
    case ScalarOp::kPow: {
      const Magnitude a = arg(0);
      if (op_of(1).op != ScalarOp::kConstant) return {2 * a.degree, a.scale, a.counts};
      const double by = constant_value(op_of(1));
      return {a.degree * by, std::pow(std::max(a.scale, 1e-30), by), a.counts};
    }
    case ScalarOp::kMin:
    case ScalarOp::kMax: {
      // A bound on the far side of zero (a clip by the type's lowest value) adds nothing.
      const bool maximum = s.op == ScalarOp::kMax;
      for (int i = 0; i < 2; ++i)
        if (op_of(i).op == ScalarOp::kConstant) {
          const double c = constant_value(op_of(i));
          if (maximum ? c <= 0 : c >= 0) return arg(1 - i);
        }
      return larger(arg(0), arg(1));
    }
    case ScalarOp::kSelect:
      return larger(arg(1), arg(2));
    case ScalarOp::kMod:
    case ScalarOp::kFmod:
      return arg(1);
    default: {
      if (arity(s.op) == 0) return bounded(kUnbounded);
      Magnitude m = arg(0);
      for (int i = 1; i < arity(s.op); ++i) m = larger(m, arg(i));
      return m;
    }
  }
}

}  // namespace optc
