#include "emit/ptx/attention_plan.h"

#include <functional>

#include "emit/ptx/tile.h"

namespace optc::ptx {

namespace {

// The local that a scalar reads at exactly the counter `at`, or invalid.
LocalId local_at(const Program &program, ScalarId id, const DimSymbol *at) {
  const Scalar &s = program.scalars.at(id);
  if (s.op != ScalarOp::kLocal) return LocalId();
  if (!at) return s.index.empty() ? s.local : LocalId();
  return s.index.size() == 1 && single_symbol(s.index[0]) == at ? s.local : LocalId();
}

bool reads_other_locals(const Program &program, ScalarId id, LocalId allowed, const DimSymbol *at) {
  const Scalar &s = program.scalars.at(id);
  if (s.op == ScalarOp::kLocal) return !(local_at(program, id, at) == allowed);
  for (int i = 0; i < arity(s.op); ++i)
    if (reads_other_locals(program, s.args[i], allowed, at)) return true;
  return false;
}

// Whether a product that is not finite makes a score that is not finite, or one that does not depend on it: then a row
// in which the tensor cores' products are not f32's shows it at its end.
bool shows_products(const Program &program, ScalarId id, LocalId product) {
  const Scalar &s = program.scalars.at(id);
  std::function<bool(ScalarId)> reads = [&](ScalarId at) {
    const Scalar &x = program.scalars.at(at);
    if (x.op == ScalarOp::kLocal) return x.local == product;
    for (int i = 0; i < arity(x.op); ++i)
      if (reads(x.args[i])) return true;
    return false;
  };
  switch (s.op) {
    case ScalarOp::kLocal:
    case ScalarOp::kTanh:
    case ScalarOp::kNeg:
    case ScalarOp::kMul:
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kDiv:
      for (int i = 0; i < arity(s.op); ++i)
        if (!shows_products(program, s.args[i], product)) return false;
      return true;
    case ScalarOp::kSelect:
      return !reads(s.args[0]) && shows_products(program, s.args[1], product) &&
             shows_products(program, s.args[2], product);
    default:
      return !reads(id);
  }
}

constexpr int64_t kFewBlocks = 264;  // two a multiprocessor of large cards

int padded(int64_t n) {
  int p = 32;
  while (p < n) p *= 2;
  return p;
}

}  // namespace

std::optional<AttentionPlan> attention_plan(const Program &program, const LoopNest &nest) {
  if (!nest.contraction || nest.contraction->kind != ContractionKind::kAttention || nest.sequential ||
      nest.stages.size() != 7)
    return std::nullopt;
  AttentionPlan plan;
  const auto &pool = program.scalars;
  for (size_t i = 0; i < 6; ++i)
    if (nest.stages[i].outputs.size() != 1 || !nest.stages[i].outputs[0].local.valid() ||
        nest.stages[i].outputs[0].condition.valid() || nest.stages[i].outputs[0].initial.valid())
      return std::nullopt;
  auto output = [&](size_t i) -> const StageOutput & { return nest.stages[i].outputs[0]; };
  auto array = [&](size_t i) { return output(i).index.size() == 1 ? single_symbol(output(i).index[0]) : nullptr; };
  auto other_loop = [&](size_t i, const DimSymbol *not_this) -> const Loop * {
    if (nest.stages[i].loops.size() != 2) return nullptr;
    return &nest.stages[i].loops[nest.stages[i].loops[0].index == not_this ? 1 : 0];
  };
  auto product_of = [&](ScalarId id, ScalarId *x, ScalarId *y) {
    if (pool.at(id).op != ScalarOp::kMul || pool.at(id).type != ElementType::kFloat32) return false;
    *x = pool.at(id).args[0];
    *y = pool.at(id).args[1];
    return true;
  };
  // product[j] = sum of query * key over d
  const DimSymbol *j = array(0);
  ScalarId q, key;
  if (!j || output(0).combine != Combine::kSum || !product_of(output(0).value, &q, &key)) return std::nullopt;
  const Loop *d = other_loop(0, j);
  if (!d) return std::nullopt;
  plan.product = output(0).local;
  plan.inner = *d;
  for (const Loop &loop : nest.stages[0].loops)
    if (loop.index == j) plan.keys = loop;
  if (uses_loop(program, q, j)) std::swap(q, key);
  if (uses_loop(program, q, j)) return std::nullopt;
  // scores[j] = f(product[j])
  plan.score = &output(1);
  plan.score_key = array(1);
  if (!plan.score_key || output(1).combine != Combine::kStore ||
      reads_other_locals(program, output(1).value, plan.product, plan.score_key))
    return std::nullopt;
  const LocalId scores = output(1).local;
  if (!shows_products(program, output(1).value, plan.product)) return std::nullopt;
  // top = max scores
  auto one_loop = [&](size_t i) { return nest.stages[i].loops.size() == 1 ? nest.stages[i].loops[0].index : nullptr; };
  if (!one_loop(2) || output(2).combine != Combine::kMax || !output(2).index.empty() ||
      !(local_at(program, output(2).value, one_loop(2)) == scores))
    return std::nullopt;
  plan.top = output(2).local;
  // weights[j] = exp(scores[j] - top)
  const DimSymbol *wj = array(3);
  const Scalar &e = pool.at(output(3).value);
  if (!wj || output(3).combine != Combine::kStore || e.op != ScalarOp::kExp) return std::nullopt;
  const Scalar &away = pool.at(e.args[0]);
  if (away.op != ScalarOp::kSub || !(local_at(program, away.args[0], wj) == scores) ||
      !(local_at(program, away.args[1], nullptr) == plan.top))
    return std::nullopt;
  plan.weights = output(3).local;
  // sum
  if (!one_loop(4) || output(4).combine != Combine::kSum || !output(4).index.empty() ||
      !(local_at(program, output(4).value, one_loop(4)) == plan.weights))
    return std::nullopt;
  plan.sum = output(4).local;
  // result[e] = sum of weights * value over j
  const DimSymbol *width = array(5);
  ScalarId w, value;
  if (!width || output(5).combine != Combine::kSum || !product_of(output(5).value, &w, &value)) return std::nullopt;
  const Loop *vj = other_loop(5, width);
  if (!vj) return std::nullopt;
  const auto is_weight = [&](ScalarId id) {
    const Scalar &s = pool.at(id);
    plan.zero_probabilities = s.op == ScalarOp::kSelect && pool.at(s.args[0]).op == ScalarOp::kIsNan &&
                              local_at(program, pool.at(s.args[0]).args[0], nullptr) == plan.sum &&
                              pool.at(s.args[1]).op == ScalarOp::kConstant && pool.at(s.args[1]).bits == 0;
    return local_at(program, plan.zero_probabilities ? s.args[2] : id, vj->index) == plan.weights;
  };
  if (!is_weight(w)) std::swap(w, value);
  if (!is_weight(w)) return std::nullopt;
  plan.value_key = vj->index;
  for (const Loop &loop : nest.stages[5].loops)
    if (loop.index == width) plan.width = loop;
  plan.result = output(5).local;
  // the last stage stores to buffers
  plan.last = &nest.stages[6];
  if (plan.last->loops.size() != 1) return std::nullopt;
  plan.result_width = plan.last->loops[0].index;
  for (const StageOutput &o : plan.last->outputs)
    if (!o.buffer.valid() || o.combine != Combine::kStore || o.condition.valid()) return std::nullopt;

  for (const Loop &loop : nest.loops)
    (uses_loop(program, key, loop.index) || uses_loop(program, value, loop.index) ? plan.batch : plan.rows)
        .push_back(loop);
  if (!plan.inner.extent.is_constant() || !plan.width.extent.is_constant() || plan.inner.extent.value() > 128 ||
      plan.width.extent.value() > 128)
    return std::nullopt;
  plan.query = peel(program, q);
  plan.key = peel(program, key);
  plan.value = peel(program, value);
  for (const ProductOperand *o : {&plan.query, &plan.key, &plan.value})
    if ((!o->load.valid() && !o->wide.valid()) || !o->conditions.empty() || o->stored != plan.query.stored)
      return std::nullopt;
  switch (plan.query.stored) {
    case ElementType::kFloat32:
      plan.type = TensorCoreType::kThreeTF32;
      break;
    case ElementType::kFloat16:
      plan.type = TensorCoreType::kF16;
      break;
    case ElementType::kBFloat16:
      plan.type = TensorCoreType::kBF16;
      break;
    default:
      return std::nullopt;
  }
  const unsigned size = element_bytes(plan.type);
  // 0: f32 that is rounded as it is read, eight at a time; nullopt: neither way.
  auto bytes = [&](const ProductOperand &o, const Loop &along) -> std::optional<unsigned> {
    if (!o.load.valid()) return wide_together(program, o, along) ? std::optional<unsigned>(0) : std::nullopt;
    const unsigned n = static_cast<unsigned>(together(program, o, along, size)) * size;
    if (n >= 4) return n;
    return size == 4 ? std::optional<unsigned>(4) : std::nullopt;
  };
  const auto query_bytes = bytes(plan.query, plan.inner), key_bytes = bytes(plan.key, plan.inner),
             value_bytes = bytes(plan.value, plan.width);
  if (!query_bytes || !key_bytes || !value_bytes) return std::nullopt;
  plan.query_bytes = *query_bytes;
  plan.key_bytes = *key_bytes;
  plan.value_bytes = *value_bytes;
  plan.padded_inner = padded(plan.inner.extent.value());
  plan.padded_width = padded(plan.width.extent.value());
  plan.tile = size == 4 ? 32 : 64;
  const Dim all_rows = total_extent(plan.rows), heads = total_extent(plan.batch);
  if (all_rows.is_constant() && heads.is_constant()) {
    auto blocks = [&](int rows) { return (all_rows.value() + rows - 1) / rows * heads.value(); };
    const bool fits = size == 2 || plan.padded_inner + plan.padded_width <= 128;
    if (blocks(32) < kFewBlocks && fits) {
      plan.row_warps = 1;
      plan.key_warps = 4;
      plan.tile = 64;
    } else if (blocks(64) < kFewBlocks) {
      plan.row_warps = 2;
      plan.key_warps = 2;
    }
  }
  return plan;
}

}  // namespace optc::ptx
