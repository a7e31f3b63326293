// f32 values of a kernel that are seen in 16 bits only, because all that is computed of them is rounded to f16 or bf16,
// are computed by fewer instructions on a GPU: constants of one product are one, a product that is added is a fused
// multiply-add, 1 + tanh(x) is 2 sigmoid(2x), and exp, tanh, sigmoid and quotients err by some units of f32's last
// place (ScalarOp's `rounded`), where 16 bits see the 2^13th part of that.
//
// A function's own operand counts as seen as far as its form goes, but keeps its functions: exp magnifies their errors.
#include <cmath>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/constant_bits.h"
#include "lowering/precision/precision.h"

namespace optc {
namespace {

bool is_arithmetic(ScalarOp op) {
  switch (op) {
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kMul:
    case ScalarOp::kDiv:
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kMin:
    case ScalarOp::kMax:
    case ScalarOp::kFma:
    case ScalarOp::kSelect:
      return true;
    default:
      return false;
  }
}
bool is_shortened(ScalarOp op) {
  return op == ScalarOp::kExp || op == ScalarOp::kTanh || op == ScalarOp::kSigmoid || op == ScalarOp::kDiv;
}
// Of a bounded slope, or exp, whose result errs with its operand's last place as the short form does.
bool is_smooth(ScalarOp op) {
  return op == ScalarOp::kExp || op == ScalarOp::kTanh || op == ScalarOp::kSigmoid || op == ScalarOp::kErf;
}

class Rounded {
 public:
  Rounded(Program &program, LoopNest &nest) : pool_(program.scalars), nest_(nest) {}

  bool rewrite() {
    for (const Stage &stage : nest_.stages)
      for (const StageOutput &o : stage.outputs) {
        if (o.buffer.valid())
          stored(o.value);
        else
          used_outside(o.value);
        for (const ScalarId id : {o.condition, o.initial}) used_outside(id);
        for (const Dim d : o.index) used_outside(d);
      }
    if (const auto &c = nest_.contraction)  // templates look at them
      for (const ScalarId id : {c->lhs, c->rhs, c->query, c->key, c->value, c->mask, c->scale}) used_outside(id);
    find();
    if (seen_.empty()) return false;
    bool any = false;
    for (Stage &stage : nest_.stages)
      for (StageOutput &o : stage.outputs) {
        if (!o.buffer.valid()) continue;
        const ScalarId now = value(o.value);
        any = any || !(now == o.value);
        o.value = now;
      }
    return any;
  }

 private:
  void used_outside(ScalarId id) {
    if (!id.valid()) return;
    outside_.insert(id.index);
    visit(id);
  }
  // What is stored is itself f32 or already rounded.
  void stored(ScalarId id) {
    if (pool_.at(id).type == ElementType::kFloat32) outside_.insert(id.index);
    visit(id);
  }
  void used_outside(Dim d) {
    if (d.is_constant()) return;
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols)
      if (s->kind == SymbolKind::kScalar) used_outside(ScalarId(s->scalar));
  }
  void visit(ScalarId id) {
    if (!visited_.insert(id.index).second) return;
    const Scalar &s = pool_.at(id);
    for (const Dim d : s.index) used_outside(d);
    if (s.op == ScalarOp::kIndex) used_outside(s.index_value);
    for (const ScalarId a : s.args)
      if (a.valid()) {
        visit(a);
        users_[a.index].push_back(id);
      }
    order_.push_back(id);
  }
  static bool is_16_bits(ElementType t) { return t == ElementType::kFloat16 || t == ElementType::kBFloat16; }

  // Which values are seen in 16 bits only (seen_), and what only they and functions of theirs take (inner_).
  void find() {
    for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
      const uint32_t id = at->index;
      if (pool_.at(*at).type != ElementType::kFloat32 || outside_.count(id) || pool_.at(*at).op == ScalarOp::kConstant)
        continue;
      bool seen = true, inner = true;
      for (const ScalarId user : users_[id]) {
        const Scalar &u = pool_.at(user);
        const bool rounds = u.op == ScalarOp::kCast && is_16_bits(u.type), arithmetic = is_arithmetic(u.op);
        seen = seen && (rounds || (arithmetic && seen_.count(user.index)));
        inner = inner &&
                (rounds || (arithmetic && inner_.count(user.index)) || (is_smooth(u.op) && seen_.count(user.index)));
      }
      if (seen) seen_.insert(id);
      if (inner) inner_.insert(id);
    }
  }
  bool alone(ScalarId id) { return inner_.count(id.index) && users_[id.index].size() == 1; }

  ScalarId value(ScalarId id) {
    if (!id.valid()) return id;
    if (const auto it = done_.find(id.index); it != done_.end()) return it->second;
    const ScalarId now = make(id);
    done_.emplace(id.index, now);
    return now;
  }

  ScalarId make(ScalarId id) {
    const Scalar s = pool_.at(id);  // a copy: the pool grows
    if (inner_.count(id.index)) {
      if (s.op == ScalarOp::kMul) return product(id);
      if (s.op == ScalarOp::kAdd || s.op == ScalarOp::kSub) return sum(id, s);
    }
    Scalar now = s;
    bool other = false;
    for (ScalarId &a : now.args) {
      const ScalarId was = a;
      a = value(a);
      other = other || !(a == was);
    }
    if (seen_.count(id.index) && is_shortened(s.op)) {
      now.flag = kRounded;
      other = true;
    }
    return other ? pool_.add_node(std::move(now)) : id;
  }

  // --- Products: factors, and one constant

  // Of a magnitude that moves no product of usual size out of range.
  static bool is_plain(double c) { return std::fabs(c) <= 65536 && std::fabs(c) >= 1.0 / 65536; }
  bool constant(ScalarId id, double &c) const {
    const Scalar &s = pool_.at(id);
    if (s.op != ScalarOp::kConstant || s.type != ElementType::kFloat32) return false;
    c = float_of_bits(s.type, s.bits);
    return is_plain(c);
  }
  // The other factor of a product by a constant, which goes into c; else the value itself.
  ScalarId without_constant(ScalarId id, double &c) const {
    const Scalar &s = pool_.at(id);
    double k = 1;
    if (s.op == ScalarOp::kMul)
      for (int side = 0; side < 2; ++side)
        if (constant(s.args[side], k) && is_plain(c * k)) {
          c *= k;
          return s.args[1 - side];
        }
    return id;
  }
  ScalarId times(ScalarId id, double c) {
    return pool_.binary(ScalarOp::kMul, id, pool_.constant(ElementType::kFloat32, c));
  }
  void gather(ScalarId id, std::vector<ScalarId> &factors, double &c) {
    const Scalar s = pool_.at(id);
    for (int i = 0; i < 2; ++i) {
      const ScalarId a = s.args[i];
      double k = 1;
      if (constant(a, k) && is_plain(c * k)) {
        c *= k;
      } else if (pool_.at(a).op == ScalarOp::kMul && alone(a)) {
        gather(a, factors, c);
      } else {
        const ScalarId now = value(a);
        factors.push_back(alone(a) ? without_constant(now, c) : now);
      }
    }
  }
  ScalarId product(ScalarId id) {
    std::vector<ScalarId> factors;
    double c = 1;
    gather(id, factors, c);
    if (factors.empty()) return id;
    // A constant above 1 last, another one first: what lies between is no larger than before.
    const bool last = std::fabs(c) >= 1, any = static_cast<float>(c) != 1;
    ScalarId result = any && !last ? times(factors[0], c) : factors[0];
    for (size_t i = 1; i < factors.size(); ++i) result = pool_.binary(ScalarOp::kMul, result, factors[i]);
    return any && last ? times(result, c) : result;
  }

  // --- Sums
  ScalarId sum(ScalarId id, const Scalar &s) {
    if (s.op == ScalarOp::kAdd && seen_.count(id.index))
      for (int side = 0; side < 2; ++side) {
        const ScalarId f = s.args[1 - side];
        double one = 0;
        if (!constant(s.args[side], one) || one != 1 || pool_.at(f).op != ScalarOp::kTanh || !alone(f)) continue;
        double twice = 2;
        const ScalarId x = without_constant(value(pool_.at(f).args[0]), twice);
        Scalar sigmoid;
        sigmoid.op = ScalarOp::kSigmoid;
        sigmoid.type = ElementType::kFloat32;
        sigmoid.flag = kRounded;
        sigmoid.args[0] = times(x, twice);
        return times(pool_.add_node(std::move(sigmoid)), 2);
      }
    ScalarId a = value(s.args[0]), b = value(s.args[1]);
    const auto is_product = [&](ScalarId was, ScalarId now) {
      return pool_.at(now).op == ScalarOp::kMul && alone(was) && pool_.at(was).op == ScalarOp::kMul;
    };
    const bool minus = s.op == ScalarOp::kSub;
    if (is_product(s.args[1], b)) {
      const Scalar m = pool_.at(b);
      return pool_.fma(minus ? pool_.unary(ScalarOp::kNeg, m.args[0]) : m.args[0], m.args[1], a);
    }
    if (is_product(s.args[0], a)) {
      const Scalar m = pool_.at(a);
      return pool_.fma(m.args[0], m.args[1], minus ? pool_.unary(ScalarOp::kNeg, b) : b);
    }
    return a == s.args[0] && b == s.args[1] ? id : pool_.binary(s.op, a, b);
  }

  ScalarPool &pool_;
  LoopNest &nest_;
  std::vector<ScalarId> order_;  // operands before users
  std::unordered_set<uint32_t> visited_, outside_, seen_, inner_;
  std::unordered_map<uint32_t, std::vector<ScalarId>> users_;
  std::unordered_map<uint32_t, ScalarId> done_;
};

}  // namespace

void shorten_rounded(Program &program, Steps &steps) {
  for (Kernel &kernel : program.kernels) {
    LoopNest *nest = kernel.nest();
    if (!kernel.alive || !nest || !steps.allowed("math.rounded")) continue;
    if (Rounded(program, *nest).rewrite()) steps.record("math.rounded", kernel.name, kernel.origin);
  }
}

}  // namespace optc
