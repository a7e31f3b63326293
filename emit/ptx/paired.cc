#include "emit/ptx/paired.h"

#include <algorithm>

#include "emit/ptx/gemm.h"
#include "ir/program/access.h"
#include "ir/program/contraction_view.h"
#include "ir/program/tensor_core.h"

namespace optc::ptx {

namespace {

bool same_extents(const std::vector<Loop> &a, const std::vector<Loop> &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Loop &x, const Loop &y) { return x.extent == y.extent; });
}

bool same_access(const TensorCoreProduct::Operand &a, const TensorCoreProduct::Operand &b) {
  return same_extents(a.outer, b.outer) && a.k_contiguous == b.k_contiguous && a.chunk_bytes == b.chunk_bytes &&
         a.group == b.group && a.constant == b.constant;
}

// A counter of the first product as the second one's that has its role.
DimSubstitution counters(const Program &program, const TensorCoreProduct &from, const TensorCoreProduct &to) {
  std::vector<std::pair<const DimSymbol *, const DimSymbol *>> pairs;
  const auto add = [&](const std::vector<Loop> &x, const std::vector<Loop> &y) {
    for (size_t i = 0; i < x.size(); ++i) pairs.emplace_back(x[i].index, y[i].index);
  };
  add(from.batch, to.batch);
  add(from.k, to.k);
  add(from.a.outer, to.a.outer);
  add(from.b.outer, to.b.outer);
  return [pairs, dims = program.dims](const DimSymbol &s) -> std::optional<Dim> {
    for (const auto &[x, y] : pairs)
      if (x == &s) return dims->symbol_value(y);
    return std::nullopt;
  };
}

// A plain load, of what a product's factor is in memory.
std::optional<std::pair<BufferId, Dim>> place_of(const Program &program, ScalarId factor) {
  const ProductOperand operand = peel(program, factor);
  if (!operand.load.valid() || !operand.conditions.empty()) return std::nullopt;
  const Scalar &load = program.scalars.at(operand.load);
  return std::make_pair(root_of(program, load.buffer).buffer, root_offset(program, load.buffer, load.index));
}

// One sum and one store of it.
bool is_plain(const LoopNest &nest) {
  return nest.stages.size() == 2 && nest.stages[1].loops.empty() && nest.stages[1].outputs.size() == 1 &&
         !nest.stages[1].outputs[0].condition.valid() && nest.stages[1].outputs[0].buffer.valid();
}

std::vector<ScalarId> loads_of_output(const Program &program, const StageOutput &output) {
  std::vector<ScalarId> loads;
  collect_loads(program, output.value, loads);
  return loads;
}

}  // namespace

std::vector<ScalarId> loads_of_pair(const Program &program, const Kernel &second, const Kernel &first) {
  const BufferId result = root_of(program, first.nest()->stages[1].outputs[0].buffer).buffer;
  std::vector<ScalarId> loads = loads_of_output(program, second.nest()->stages[1].outputs[0]);
  std::erase_if(loads, [&](ScalarId id) { return root_of(program, program.scalars.at(id).buffer).buffer != result; });
  return loads;
}

std::optional<TensorCoreTile> pair_tile(const GemmTensorCoreSchedule &second) {
  for (const size_t copies : {2, 1}) {
    if (second.tiles.size() < copies || second.tiles[copies - 1].splits != 1) continue;
    TensorCoreTile tile = second.tiles[copies - 1].tile;
    // So many columns that there are few blocks to compute the rows (launches.h).
    if (through_registers(tile)) tile.n = std::max(tile.n, 32);
    if (can_pair(tile)) return tile;
  }
  return std::nullopt;
}

std::optional<BufferId> pair_result(const Program &program, const Kernel &first, const Kernel &second) {
  const auto *a = std::get_if<GemmTensorCoreSchedule>(&first.schedule),
             *b = std::get_if<GemmTensorCoreSchedule>(&second.schedule);
  if (!a || !b || a->type != b->type || element_bytes(b->type) != 2 || a->exchanged != b->exchanged)
    return std::nullopt;
  const auto tile = pair_tile(*b);
  const Dim m = total_extent(b->a.outer), n = total_extent(b->b.outer);
  if (!tile || upper_bound(m) > kFewRows || !n.is_constant() || n.value() % (tile->n / 2) != 0 ||
      b->b.chunk_bytes == 0 || b->a.chunk_bytes == 0)
    return std::nullopt;
  // A chunk of columns is one product's alone.
  if (!b->b.k_contiguous && tile->n / 2 * 2 % b->b.chunk_bytes != 0) return std::nullopt;
  ProductSum of_a, of_b;
  if (!first.nest() || !second.nest() || !product_sum(program, *first.nest(), of_a) ||
      !product_sum(program, *second.nest(), of_b) || !is_plain(*first.nest()) || !is_plain(*second.nest()) ||
      !same_extents(a->batch, b->batch) || !same_extents(a->k, b->k) || !same_access(a->a, b->a) ||
      !same_access(a->b, b->b))
    return std::nullopt;
  const DimSubstitution as_second = counters(program, *a, *b);
  const auto rows_a = place_of(program, a->exchanged ? of_a.rhs : of_a.lhs),
             rows_b = place_of(program, b->exchanged ? of_b.rhs : of_b.lhs),
             columns_a = place_of(program, a->exchanged ? of_a.lhs : of_a.rhs),
             columns_b = place_of(program, b->exchanged ? of_b.lhs : of_b.rhs);
  if (!rows_a || !rows_b || !columns_a || !columns_b || rows_a->first != rows_b->first ||
      substitute(rows_a->second, as_second) != rows_b->second)
    return std::nullopt;
  const StageOutput &stored = first.nest()->stages[1].outputs[0], &read_in = second.nest()->stages[1].outputs[0];
  const BufferId result = root_of(program, stored.buffer).buffer;
  if (program.buffer(result).kind != BufferKind::kTemporary) return std::nullopt;
  // It is read where it would have been stored, and by nothing but the epilogue, whose own result may lie in its place.
  const Dim place = substitute(root_offset(program, stored.buffer, stored.index), as_second);
  const bool in_place = root_of(program, read_in.buffer).buffer == result;
  if (in_place && root_offset(program, read_in.buffer, read_in.index) != place) return std::nullopt;
  const std::vector<ScalarId> loads = loads_of_pair(program, second, first);
  for (ScalarId id : loads) {
    const Scalar &load = program.scalars.at(id);
    if (root_offset(program, load.buffer, load.index) != place ||
        program.buffer(load.buffer).element() != program.buffer(stored.buffer).element())
      return std::nullopt;
  }
  const auto touches = [&](const StageOutput &output, bool value) {
    std::vector<ScalarId> all;
    if (value) collect_loads(program, output.value, all);
    if (output.initial.valid()) collect_loads(program, output.initial, all);
    return std::any_of(all.begin(), all.end(),
                       [&](ScalarId id) { return root_of(program, program.scalars.at(id).buffer).buffer == result; });
  };
  if (loads.empty() || touches(second.nest()->stages[0].outputs[0], true) || touches(read_in, false))
    return std::nullopt;
  bool behind = false;
  for (KernelId id : program.order) {
    const Kernel &kernel = program.kernel(id);
    behind = behind || &kernel == &second;
    if (&kernel == &first || &kernel == &second || (behind && in_place)) continue;
    for (const std::vector<BufferId> &touched : {reads(program, kernel), writes(program, kernel)})
      for (BufferId used : touched)
        if (root_of(program, used).buffer == result) return std::nullopt;
  }
  return result;
}

}  // namespace optc::ptx
