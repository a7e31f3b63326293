// Operands of products as TMA's tensor maps name them.

#include <algorithm>

#include "ir/program/access.h"
#include "ir/program/contraction_view.h"
#include "ir/program/device_schedule.h"
#include "ir/program/tensor_core.h"

namespace optc {
namespace {

constexpr size_t kMostDims = 5;  // of a tensor map
constexpr int64_t kAligned = 8;  // elements of 16 bits in the 16 bytes that strides and addresses are made of
constexpr int64_t kMostShared = 227 << 10;  // of a block on sm_90a

// Sizes that are known when a context is made ready for its dims: of the model's dims alone.
bool known_early(Dim d) {
  std::vector<const DimSymbol *> symbols;
  collect_symbols(d, symbols);
  return std::all_of(symbols.begin(), symbols.end(), [](const DimSymbol *s) { return s->kind == SymbolKind::kModel; });
}

}  // namespace

bool is_tile(const WarpgroupTile &t) {
  const int sharing = t.turns ? 1 : t.warpgroups;  // warpgroups that have rows of one tile
  if (t.warpgroups < 1 || t.warpgroups > 2 || (t.turns && t.warpgroups != 2) || t.stages < 2) return false;
  if (t.m <= 0 || t.n <= 0 || t.m % (64 * sharing) != 0 || t.n % 64 != 0 || t.m > 256 || t.n > 256) return false;
  return t.m / sharing * t.n <= 128 * 128 && warpgroup_shared_bytes(t) <= kMostShared;
}

int64_t warpgroup_shared_bytes(const WarpgroupTile &t) {
  const int64_t ring = int64_t{t.stages} * (t.m + t.n) * kWarpgroupDepth * 2,
                rows = int64_t{t.warpgroups} * 4 * 16 * kWarpgroupRow * 4, barriers = 8 * (2 * int64_t{t.stages} + 2);
  return ring + rows + barriers;
}

bool is_tensor_map(const Program &program, const TensorMap &map) {
  const Root root = root_of(program, map.buffer);
  const Dim from_root = map.offset + root.offset;
  if (map.extents.size() > kMostDims || !map.strides[0].is(1) || !divisible_by(from_root, kAligned)) return false;
  for (size_t d = 1; d < map.strides.size(); ++d)
    if (map.strides[d].is(0) || lower_bound(map.strides[d]) < 0 || !divisible_by(map.strides[d], kAligned))
      return false;
  for (const auto *list : {&map.extents, &map.strides})
    if (!std::all_of(list->begin(), list->end(), known_early)) return false;
  return known_early(from_root) && !found_at_run_time(storage_count(program.buffer(root.buffer)));
}

bool same(const TensorMap &a, const TensorMap &b) {
  return a.buffer == b.buffer && a.offset == b.offset && a.extents == b.extents && a.strides == b.strides;
}

std::optional<TensorMap> tensor_map(const Program &program, const TensorCoreProduct &product,
                                    const TensorCoreProduct::Operand &side, const ProductOperand &operand) {
  if (!operand.load.valid() || !operand.conditions.empty() || side.outer.empty() || product.k.empty())
    return std::nullopt;
  std::vector<Loop> loops = product.k;
  loops.insert(loops.end(), side.outer.begin(), side.outer.end());
  loops.insert(loops.end(), product.batch.begin(), product.batch.end());
  const auto view = affine_operand(program, operand.load, loops);
  if (!view) return std::nullopt;
  const size_t k_count = product.k.size(), outer_count = side.outer.size();
  const auto strides = view->strides.begin();
  const auto at = [&](size_t i) { return strides + static_cast<std::ptrdiff_t>(i); };
  const auto k = uniform_stride(product.k, {at(0), at(k_count)}),
             outer = uniform_stride(side.outer, {at(k_count), at(k_count + outer_count)});
  if (!k || !outer) return std::nullopt;
  TensorMap map;
  map.buffer = view->buffer;
  map.offset = view->offset;
  map.extents = {total_extent(product.k), total_extent(side.outer)};
  map.strides = {*k, *outer};
  if (!side.k_contiguous) {
    std::swap(map.extents[0], map.extents[1]);
    std::swap(map.strides[0], map.strides[1]);
  }
  for (size_t i = 0; i < product.batch.size(); ++i) {
    map.extents.push_back(product.batch[i].extent);
    map.strides.push_back(*at(k_count + outer_count + i));
  }
  if (!is_tensor_map(program, map)) return std::nullopt;
  return map;
}

}  // namespace optc
