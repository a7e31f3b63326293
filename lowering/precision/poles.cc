#include "lowering/precision/poles.h"

#include <algorithm>
#include <cmath>

#include "ir/constant_bits.h"

namespace optc {
namespace {

double constant_value(const Scalar &s) {
  return is_float(s.type) ? float_of_bits(s.type, s.bits) : static_cast<double>(integer_of_bits(s.type, s.bits));
}
bool is_whole(double v) { return std::isfinite(v) && v == std::floor(v); }

}  // namespace

PoleAnalysis::PoleAnalysis(const Program &program, ElementType narrow, Keep keep)
    : program_(program),
      underflows_(narrow == ElementType::kFloat16),
      keep_(std::move(keep)),
      buffers_(program.buffers.size()) {}

size_t PoleAnalysis::root(BufferId b) const {
  while (program_.buffer(b).alias.valid()) b = program_.buffer(b).alias;
  return b.index;
}

void PoleAnalysis::visit(const Kernel &kernel) {
  nest_ = kernel.nest();
  if (!nest_ || (nest_->contraction && nest_->contraction->kind == ContractionKind::kAttention)) return;
  signs_.clear();
  visited_.clear();
  std::unordered_set<uint32_t> seen;
  for (size_t i = 0; i < nest_->stages.size(); ++i)
    for (const StageOutput &o : nest_->stages[i].outputs) {
      for (ScalarId id : {o.value, o.initial, o.condition}) poles(id, seen);
      if (!o.buffer.valid() || (nest_->contraction && i == nest_->contraction->stage)) continue;
      const Needed needed = buffers_[root(o.buffer)];
      if (needed.what && o.combine == Combine::kStore) need(o.value, static_cast<Need>(needed.what), needed.why);
    }
}

// The signs do not depend on how operands were rounded.
PoleAnalysis::Sign PoleAnalysis::sign(ScalarId id) {
  const auto [it, fresh] = signs_.emplace(id.index, Sign::kUnknown);  // unknown, too, while it is being computed
  if (!fresh) return it->second;
  const Sign result = compute_sign(program_.scalars.at(id));
  return signs_[id.index] = result;
}

PoleAnalysis::Sign PoleAnalysis::compute_sign(const Scalar &s) {
  const auto arg = [&](int i) { return sign(s.args[i]); };
  switch (s.op) {
    case ScalarOp::kConstant: {
      const double v = constant_value(s);
      return v > 0 ? Sign::kPositive : v == 0 ? Sign::kNotNegative : Sign::kUnknown;
    }
    case ScalarOp::kLocal:
      return sign_of_local(s.local);
    case ScalarOp::kCosh:
      return Sign::kPositive;
    case ScalarOp::kExp:
    case ScalarOp::kAbs:
    case ScalarOp::kSigmoid:
    case ScalarOp::kAcos:
      return Sign::kNotNegative;
    case ScalarOp::kSqrt:
      return arg(0) == Sign::kPositive ? Sign::kPositive : Sign::kNotNegative;
    case ScalarOp::kCast:
      if (program_.scalars.at(s.args[0]).type == ElementType::kBool) return Sign::kNotNegative;
      return is_float(s.type) && is_float(program_.scalars.at(s.args[0]).type) ? arg(0) : Sign::kUnknown;
    case ScalarOp::kAdd: {
      const Sign a = arg(0), b = arg(1);
      return std::min(a, b) == Sign::kUnknown ? Sign::kUnknown : std::max(a, b);
    }
    case ScalarOp::kMul: {
      if (s.args[0] == s.args[1]) return arg(0) == Sign::kPositive ? Sign::kPositive : Sign::kNotNegative;
      return std::min(arg(0), arg(1));
    }
    case ScalarOp::kFma: {
      const Sign product = s.args[0] == s.args[1] ? Sign::kNotNegative : std::min(arg(0), arg(1));
      return std::min(product, arg(2)) == Sign::kUnknown ? Sign::kUnknown : std::max(product, arg(2));
    }
    case ScalarOp::kDiv:
      // A positive one by what is not bounded may be as small as it likes.
      return std::min(
          {arg(0), arg(1),
           program_.scalars.at(s.args[1]).op == ScalarOp::kConstant ? Sign::kPositive : Sign::kNotNegative});
    case ScalarOp::kPow: {
      const Scalar &by = program_.scalars.at(s.args[1]);
      const bool even = by.op == ScalarOp::kConstant && is_whole(constant_value(by) / 2);
      return even ? Sign::kNotNegative : std::min(arg(0), Sign::kNotNegative);
    }
    case ScalarOp::kMax:
      return std::max(arg(0), arg(1));
    case ScalarOp::kMin:
      return std::min(arg(0), arg(1));
    case ScalarOp::kSelect:
      return std::min(arg(1), arg(2));
    default:
      return Sign::kUnknown;
  }
}

PoleAnalysis::Sign PoleAnalysis::sign_of_local(LocalId local) {
  Sign result = Sign::kPositive;
  bool written = false;
  for (const Stage &stage : nest_->stages)
    for (const StageOutput &o : stage.outputs) {
      if (o.buffer.valid() || o.local != local) continue;
      written = true;
      result = std::min(result, sign(o.value));
      if (o.initial.valid()) result = std::min(result, sign(o.initial));
      if (o.combine == Combine::kSum || o.combine == Combine::kProduct) result = std::min(result, Sign::kNotNegative);
    }
  return written ? result : Sign::kUnknown;
}

void PoleAnalysis::poles(ScalarId id, std::unordered_set<uint32_t> &seen) {
  if (!id.valid() || !seen.insert(id.index).second) return;
  const Scalar &s = program_.scalars.at(id);
  for (int i = 0; i < arity(s.op); ++i) poles(s.args[i], seen);
  if (arity(s.op) == 0 || !is_float(program_.scalars.at(s.args[0]).type)) return;
  switch (s.op) {
    case ScalarOp::kDiv:
      return need(s.args[1], kZero, "a divisor");
    case ScalarOp::kLog:
      return need(s.args[0], kZero, "a logarithm's argument");
    case ScalarOp::kLog1p:
      if (sign(s.args[0]) == Sign::kUnknown) need(s.args[0], kExact, "a logarithm's argument");
      return;
    case ScalarOp::kSqrt:
      return need(s.args[0], kSign, "a root's argument");
    case ScalarOp::kAsin:
    case ScalarOp::kAcos:
    case ScalarOp::kAcosh:
    case ScalarOp::kAtanh:
      return need(s.args[0], kExact, "the argument of a function with bounds");
    case ScalarOp::kMod:
    case ScalarOp::kFmod:
      for (int i = 0; i < 2; ++i) need(s.args[i], kExact, "an operand of a remainder");
      return;
    case ScalarOp::kEq:
    case ScalarOp::kNe:
      for (int i = 0; i < 2; ++i) need(s.args[i], kExact, "compared for equality");
      return;
    case ScalarOp::kPow: {
      const Scalar &exponent = program_.scalars.at(s.args[1]);
      if (exponent.op != ScalarOp::kConstant) {
        for (int i = 0; i < 2; ++i) need(s.args[i], kExact, "in a power of a computed exponent");
        return;
      }
      const double by = constant_value(exponent);
      if (by < 0)
        need(s.args[0], kZero, "the base of a power");
      else if (!is_whole(by))
        need(s.args[0], kSign, "the base of a power");
      return;
    }
    case ScalarOp::kCast:
      if (s.type == ElementType::kBool) need(s.args[0], kZero, "compared with zero");
      return;
    default:
      return;
  }
}

void PoleAnalysis::need(ScalarId id, Need what, const char *why) {
  uint8_t &before = visited_[id.index];
  if (before >= what) return;
  before = what;
  const Scalar &s = program_.scalars.at(id);
  const auto args = [&](Need needed) {
    for (int i = 0; i < arity(s.op); ++i) need(s.args[i], needed, why);
  };
  if (s.op == ScalarOp::kLoad) return need_load(s, what, why);
  if (s.op == ScalarOp::kLocal) return need_local(s.local, what, why);
  if (what == kExact) return args(kExact);
  if (sign(id) == Sign::kPositive || (what == kSign && sign(id) == Sign::kNotNegative)) return;
  switch (s.op) {
    // Zero where an operand is, of the operands' signs.
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kSign:
    case ScalarOp::kSqrt:
    case ScalarOp::kExpm1:
    case ScalarOp::kSinh:
    case ScalarOp::kTanh:
    case ScalarOp::kAtan:
    case ScalarOp::kAsinh:
    case ScalarOp::kErf:
    case ScalarOp::kMul:
    case ScalarOp::kDiv:
    case ScalarOp::kMin:
    case ScalarOp::kMax:
      return args(what);
    case ScalarOp::kCast:
      if (is_float(program_.scalars.at(s.args[0]).type)) args(what);
      return;
    case ScalarOp::kSelect:
      need(s.args[1], what, why);
      return need(s.args[2], what, why);
    case ScalarOp::kExp:  // no zero
    case ScalarOp::kSigmoid:
      return;
    case ScalarOp::kAdd:
      return args(sign(id) == Sign::kUnknown ? kExact : what);
    case ScalarOp::kFma:
      return args(sign(id) == Sign::kUnknown ? kExact : what);
    default:
      return args(kExact);
  }
}

void PoleAnalysis::need_load(const Scalar &load, Need what, const char *why) {
  if (what == kExact || (what == kZero && underflows_)) keep_(load.buffer, why);
  Needed &needed = buffers_[root(load.buffer)];
  if (needed.what >= what) return;
  needed = {static_cast<uint8_t>(what), why};
  changed = true;
}

void PoleAnalysis::need_local(LocalId local, Need what, const char *why) {
  for (size_t i = 0; i < nest_->stages.size(); ++i) {
    if (nest_->contraction && i == nest_->contraction->stage) continue;
    for (const StageOutput &o : nest_->stages[i].outputs) {
      if (o.buffer.valid() || o.local != local) continue;
      const bool reduces = o.combine == Combine::kSum || o.combine == Combine::kProduct;
      if (reduces && (what == kExact || sign(o.value) == Sign::kUnknown)) continue;  // a reduction's operands
      need(o.value, what, why);
    }
  }
}

}  // namespace optc
