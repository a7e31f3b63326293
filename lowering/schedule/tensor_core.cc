// emit/ptx/gemm.h: products and convolutions on a GPU's tensor cores: which loop is whose, which one walks memory, and
// how wide it may be fetched. tensor_core_tiles.cc chooses the tile.

#include "ir/program/tensor_core.h"

#include <algorithm>
#include <utility>

#include "ir/program/access.h"
#include "ir/program/contraction_view.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

struct Side {
  ProductOperand operand;
  GemmTensorCoreSchedule::Operand access;
};

void gather_loops(const std::vector<Loop> &all, const std::vector<const DimSymbol *> &symbols, std::vector<Loop> &out) {
  for (const DimSymbol *s : symbols) {
    const Loop *loop = find_loop(all, s);
    if (loop) out.push_back(*loop);  // one that is missing had extent 1 and was removed
  }
}

// Direction and width of the fetches of one side. `k_inner` is the last of the k loops.
void choose_access(const Program &program, Side &side, const Loop &k_inner, unsigned size) {
  GemmTensorCoreSchedule::Operand &o = side.access;
  o.chunk_bytes = size == 4 ? 4 : 0;
  if (!side.operand.load.valid()) {
    o.chunk_bytes = 0;
    if (size != 2) return;
    const bool along_k = wide_together(program, side.operand, k_inner);
    if (!along_k && (o.outer.empty() || !wide_together(program, side.operand, o.outer.back()))) return;
    o.k_contiguous = along_k;
    o.group = 8;
    return;
  }
  o.constant = is_constant(program, side.operand);
  const int along_k = together(program, side.operand, k_inner, size);
  const int along_outer = o.outer.empty() ? 0 : together(program, side.operand, o.outer.back(), size);
  o.k_contiguous = along_k >= along_outer || along_outer == 0;
  const int64_t bytes = int64_t{std::max(along_k, along_outer)} * size;
  if (bytes >= 4) o.chunk_bytes = bytes;
}

// Whether the first store behind the sum lies along the rows and not along the columns (NCHW).
bool stores_along_rows(const Program &program, const LoopNest &nest, const Loop &row, const Loop &column) {
  for (size_t i = 1; i < nest.stages.size(); ++i)
    for (const StageOutput &o : nest.stages[i].outputs) {
      const Dim offset = root_offset(program, o.buffer, o.index);
      const auto along_m = affine_over(program, offset, row.index),
                 along_n = affine_over(program, offset, column.index);
      return along_m && along_m->coefficient.is(1) && !(along_n && along_n->coefficient.is(1));
    }
  return false;
}

}  // namespace

std::optional<GemmTensorCoreSchedule> tensor_core_schedule(const Program &program, const Kernel &kernel,
                                                           F32Products f32) {
  const LoopNest &nest = *kernel.nest();
  ProductSum sum;
  if (!product_sum(program, nest, sum)) return std::nullopt;
  const Contraction &c = *nest.contraction;
  const Stage &stage = nest.stages[0];
  std::vector<Loop> loops = nest.loops;
  loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
  GemmTensorCoreSchedule s;
  Side a, b;
  std::vector<Loop> batch, rows, columns;
  gather_loops(loops, c.batch, batch);
  gather_loops(loops, c.m, rows);
  gather_loops(loops, c.n, columns);
  gather_loops(loops, c.k, s.k);
  if (s.k.empty()) return std::nullopt;
  // A batch loop that one side does not use is rows (or columns) of the other: [B, S, K] x [K, N] is one product.
  for (const Loop &loop : batch) {
    if (!uses_loop(program, sum.rhs, loop.index))
      a.access.outer.push_back(loop);
    else if (!uses_loop(program, sum.lhs, loop.index))
      b.access.outer.push_back(loop);
    else
      s.batch.push_back(loop);
  }
  a.access.outer.insert(a.access.outer.end(), rows.begin(), rows.end());
  b.access.outer.insert(b.access.outer.end(), columns.begin(), columns.end());
  if (s.batch.size() + s.k.size() + a.access.outer.size() + b.access.outer.size() != loops.size()) return std::nullopt;
  for (const Loop &loop : s.k)
    if (!find_loop(stage.loops, loop.index)) return std::nullopt;
  for (const Loop &loop : a.access.outer)
    if (uses_loop(program, sum.rhs, loop.index)) return std::nullopt;
  for (const Loop &loop : b.access.outer)
    if (uses_loop(program, sum.lhs, loop.index)) return std::nullopt;
  // A product of few columns and rows in each of many batches (depthwise convolution) is no matrix product.
  const Dim m = total_extent(a.access.outer), n = total_extent(b.access.outer), k = total_extent(s.k),
            batches = total_extent(s.batch);
  if (m.is_constant() && n.is_constant() && k.is_constant() && (std::min(m.value(), n.value()) < 4 || k.value() < 8) &&
      batches.is_constant() && batches.value() > 1)
    return std::nullopt;
  a.operand = peel(program, sum.lhs);
  b.operand = peel(program, sum.rhs);
  const ElementType pa = precision(program, a.operand), pb = precision(program, b.operand);
  if (pa == ElementType::kFloat16 && pb == ElementType::kFloat16)
    s.type = TensorCoreType::kF16;
  else if (pa == ElementType::kBFloat16 && pb == ElementType::kBFloat16)
    s.type = TensorCoreType::kBF16;
  else if (program.scalars.at(sum.lhs).type == ElementType::kFloat32 &&
           program.scalars.at(sum.rhs).type == ElementType::kFloat32 && f32 != F32Products::kIEEE)
    s.type = f32 == F32Products::kTF32 ? TensorCoreType::kTF32 : TensorCoreType::kThreeTF32;
  else
    return std::nullopt;
  if (!fit(s.type, a.operand) || !fit(s.type, b.operand)) return std::nullopt;
  // Neighbouring sums are to be neighbours in memory.
  if (!a.access.outer.empty() && !b.access.outer.empty() &&
      stores_along_rows(program, nest, a.access.outer.back(), b.access.outer.back())) {
    std::swap(a, b);
    s.exchanged = true;
  }
  // The last k loop is the one that most operands walk with stride 1.
  const unsigned size = element_bytes(s.type);
  size_t inner = s.k.size() - 1;
  int best = -1;
  for (size_t i = 0; i < s.k.size(); ++i) {
    int score = 0;
    for (const Side *side : {&a, &b})
      if (side->operand.load.valid())
        score += together(program, side->operand, s.k[i], size);
      else if (size == 2 && wide_together(program, side->operand, s.k[i]))
        score += 8;
    if (score > best || (score == best && i == s.k.size() - 1)) {
      best = score;
      inner = i;
    }
  }
  std::rotate(s.k.begin() + static_cast<std::ptrdiff_t>(inner), s.k.begin() + static_cast<std::ptrdiff_t>(inner) + 1,
              s.k.end());
  choose_access(program, a, s.k.back(), size);
  choose_access(program, b, s.k.back(), size);
  s.a = std::move(a.access);
  s.b = std::move(b.access);
  return s;
}

}  // namespace optc
