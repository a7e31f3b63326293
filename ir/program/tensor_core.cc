#include "ir/program/tensor_core.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "ir/program/access.h"
#include "ir/program/contraction_view.h"

namespace optc {

namespace {

bool is_zero(const Program &program, ScalarId id) {
  const Scalar &s = program.scalars.at(id);
  return s.op == ScalarOp::kConstant && s.bits == 0;
}

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

}  // namespace

std::string_view to_string(TensorCoreType type) {
  static constexpr std::string_view kNames[] = {"f16", "bf16", "tf32", "3xtf32"};
  return kNames[static_cast<size_t>(type)];
}

unsigned element_bytes(TensorCoreType type) {
  return type == TensorCoreType::kF16 || type == TensorCoreType::kBF16 ? 2 : 4;
}

unsigned tensor_core_shared_bytes(TensorCoreType type, const TensorCoreTile &tile) {
  const unsigned ring = static_cast<unsigned>(tile.stages * (tile.m + tile.n) * tile.k) * element_bytes(type);
  const unsigned exchange = tile.warps_k > 1 ? static_cast<unsigned>(tile.warps_k * tile.m * tile.n) * 4 : 0;
  return std::max(ring, exchange);
}

int64_t steps_of_part(int64_t k, const TensorCoreTile &tile, int64_t splits) {
  const int64_t steps = (k + tile.k - 1) / tile.k;
  return (steps + splits - 1) / splits;
}

bool fits_registers(const TensorCoreProduct &product, const TensorCoreTile &tile, const ProductOperand &x,
                    const ProductOperand &y) {
  const Dim k = total_extent(product.k);
  return x.load.valid() && y.load.valid() && x.conditions.empty() && y.conditions.empty() &&
         element_bytes(product.type) == 2 && product.a.k_contiguous && product.b.k_contiguous &&
         product.a.chunk_bytes == 16 && product.b.chunk_bytes == 16 && k.is_constant() && k.value() > 0 &&
         k.value() <= int64_t{kMostRegisterSteps} * tile.k;
}

bool is_tile(TensorCoreType type, const TensorCoreTile &tile) {
  const int instruction = 32 / static_cast<int>(element_bytes(type));
  if (through_registers(tile))
    return element_bytes(type) == 2 && tile.m == 16 && tile.n > 0 && tile.n <= 64 && tile.n % 8 == 0 &&
           tile.warps_m == 1 && tile.warps_n == 1 && tile.warps_k > 1 && tile.threads() <= 1024 &&
           tile.k == kRegisterDepth * tile.warps_k;
  return tile.m > 0 && tile.n > 0 && tile.k > 0 && tile.warps_m > 0 && tile.warps_n > 0 && tile.warps_k > 0 &&
         tile.stages > 1 && tile.threads() <= 1024 && tile.m % (16 * tile.warps_m) == 0 &&
         tile.n % (16 * tile.warps_n) == 0 && tile.k % (instruction * tile.warps_k) == 0;
}

ProductOperand peel(const Program &program, ScalarId id) {
  ProductOperand operand;
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
ElementType precision(const Program &program, const ProductOperand &operand) {
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
int together(const Program &program, const ProductOperand &operand, const Loop &loop, unsigned size) {
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

bool wide_together(const Program &program, const ProductOperand &operand, const Loop &loop) {
  if (!operand.wide.valid()) return false;
  const Scalar &s = program.scalars.at(operand.wide);
  auto part = affine_over(program, root_offset(program, s.buffer, s.index), loop.index);
  if (!part || !part->coefficient.is(1) || !divisible_by(part->rest, 8) || !divisible_by(loop.extent, 8)) return false;
  for (ScalarId c : operand.conditions)
    if (uses_loop(program, c, loop.index)) return false;
  return true;
}

bool fit(TensorCoreType type, ProductOperand &operand) {
  const ElementType meant = type == TensorCoreType::kF16    ? ElementType::kFloat16
                            : type == TensorCoreType::kBF16 ? ElementType::kBFloat16
                                                            : ElementType::kFloat32;
  if (!operand.load.valid() || operand.stored == meant) return true;
  if (element_bytes(type) == 2) return false;
  operand.load = ScalarId();  // mixed types: computed as f32
  return true;
}

bool is_constant(const Program &program, const ProductOperand &operand) {
  if (!operand.load.valid() || !operand.conditions.empty()) return false;
  const Scalar &load = program.scalars.at(operand.load);
  if (program.buffer(root_of(program, load.buffer).buffer).kind != BufferKind::kConstant) return false;
  for (Dim d : load.index) {
    std::vector<const DimSymbol *> symbols;
    collect_symbols(d, symbols);
    for (const DimSymbol *s : symbols)
      if (s->kind == SymbolKind::kScalar) return false;
  }
  return true;
}

bool product_sum(const Program &program, const LoopNest &nest, ProductSum &sum) {
  if (!nest.contraction) return false;
  const Contraction &c = *nest.contraction;
  if (c.kind == ContractionKind::kAttention || nest.sequential || c.stage != 0 || nest.stages.empty()) return false;
  const Stage &stage = nest.stages[0];
  if (stage.outputs.size() != 1 || nest.locals.size() != 1) return false;
  const StageOutput &output = stage.outputs[0];
  if (!output.local.valid() || output.combine != Combine::kSum || !nest.locals[output.local.index].shape.empty() ||
      nest.locals[output.local.index].type != ElementType::kFloat32 || output.condition.valid())
    return false;
  for (size_t i = 1; i < nest.stages.size(); ++i) {
    if (!nest.stages[i].loops.empty()) return false;
    for (const StageOutput &o : nest.stages[i].outputs)
      if (!o.buffer.valid() || o.combine != Combine::kStore) return false;
  }
  return find_factors(program, c, output.value, &sum.lhs, &sum.rhs);
}

const Loop *find_loop(const std::vector<Loop> &loops, const DimSymbol *symbol) {
  for (const Loop &loop : loops)
    if (loop.index == symbol) return &loop;
  return nullptr;
}

}  // namespace optc
