// emit/ptx/warpgroup.h: products and convolutions on wgmma, their operands by TMA: whether tensor maps can name them,
// and by which tile.

#include <algorithm>
#include <cmath>

#include "ir/program/contraction_view.h"
#include "ir/program/gpu_launch.h"
#include "ir/program/gpu_machine.h"
#include "ir/program/tensor_core.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

// What one block has to itself, in cycles: a step of the ring, and what is done behind the last step of a tile.
struct Timed {
  WarpgroupTile tile;
  double step, finish;
};
constexpr double kKernel = 1980;  // a launch, until the first step
constexpr Timed kTiles[] = {
    {{64, 64, 5, 1, false}, 291, 886},     {{64, 128, 6, 1, false}, 365, 1103},
    {{128, 64, 6, 2, false}, 410, 1234},   {{128, 128, 5, 2, true}, 587, 3873},
    {{128, 256, 3, 2, false}, 1230, 2650}, {{128, 192, 4, 2, false}, 925, 2400}};  // between those of its neighbours

// Lines of 128 bytes that begin inside of one of the second cache's sectors of 32 are asked for twice.
struct Lines {
  bool whole_a = true, whole_b = true;
  double step(const Timed &t) const {
    if (whole_a && whole_b) return t.step;
    constexpr double kRequest = 2.5;
    return std::max(t.step, kRequest * (t.tile.m * (whole_a ? 1 : 2) + t.tile.n * (whole_b ? 1 : 2)));
  }
};

// A model of the time in cycles, fitted to bench/gpu/products on an H200: blocks walk their
// tiles one after the other. Where warpgroups take turns, what is behind one's last step runs beside the other's steps.
double modelled_cycles(const GpuMachine &machine, const Timed &t, const Lines &lines, double m, double n, double steps,
                       double batch) {
  const double rounds = std::ceil(std::ceil(m / t.tile.m) * std::ceil(n / t.tile.n) * batch / machine.multiprocessors),
               inside = steps * lines.step(t);
  if (t.tile.turns) return kKernel + rounds * std::max(inside, t.finish / 2) + t.finish;
  return kKernel + rounds * (inside + t.finish);
}

struct Ranked {
  WarpgroupTile tile;
  double cycles = 0;
};

// The quickest first. `taps`: steps run through k so many times; `copies`: products like this one in the same launch.
std::vector<Ranked> ranked(const WarpgroupProduct &s, const Lines &lines, Dim k, int64_t taps, int copies,
                           const LoweringOptions &options) {
  const Dim dims[] = {total_extent(s.a.outer), total_extent(s.b.outer), k, total_extent(s.batch)};
  const bool known = std::all_of(std::begin(dims), std::end(dims), [](Dim d) { return d.is_constant(); });
  // Sizes that are known at run time only count as small and as large ones.
  const std::vector<double> table = known ? std::vector<double>{1} : std::vector<double>{128, 1024};
  const auto size = [](Dim d, double open) { return d.is_constant() ? static_cast<double>(d.value()) : open; };
  std::vector<Ranked> list;
  for (const Timed &timed : kTiles) {
    if (options.warpgroup_tile >= 0 &&
        &timed != kTiles + static_cast<size_t>(options.warpgroup_tile) % std::size(kTiles))
      continue;
    Ranked r{timed.tile, 0};
    for (const double unknown : table) {
      const double steps = static_cast<double>(taps) * std::ceil(size(dims[2], unknown) / kWarpgroupDepth);
      r.cycles += modelled_cycles(*options.machine, timed, lines, size(dims[0], unknown), size(dims[1], unknown), steps,
                                  size(dims[3], 12) * copies) /
                  static_cast<double>(table.size());
    }
    list.push_back(r);
  }
  std::stable_sort(list.begin(), list.end(), [](const Ranked &x, const Ranked &y) { return x.cycles < y.cycles; });
  return list;
}

Ways choose(const LoweringOptions &options, const std::string *tuned, Dim k, int64_t taps, const Lines &lines,
            WarpgroupProduct &schedule) {
  Ways ways;
  for (int copies = 1; copies <= kMostJoinedKernels; ++copies) {
    const std::vector<Ranked> list = ranked(schedule, lines, k, taps, copies, options);
    schedule.tiles.push_back(list[0].tile);
    if (copies > 1) continue;  // launches of several were not measured
    for (const Ranked &r : list) {
      ways.push_back({std::string(to_string(schedule.type)) + " wgmma " + std::to_string(r.tile.m) + "x" +
                          std::to_string(r.tile.n) + (r.tile.turns ? " in turns" : ""),
                      r.cycles / (options.machine->clock_ghz * 1e3)});
      if (tuned && ways.back().what == *tuned) schedule.tiles[0] = r.tile;
    }
  }
  return ways;
}

bool of_whole_sectors(const TensorMap &map) {
  constexpr int64_t kSector = 16;                                                         // elements
  const auto whole = [](Dim d) { return !d.is_constant() || divisible_by(d, kSector); };  // of open ones most are
  return whole(map.offset) && std::all_of(map.strides.begin() + 1, map.strides.end(), whole);
}

// How sums of tiles in turns find their rows. Stores to shared memory wait beside the other warpgroup's products, whose
// operands keep it busy: 128 x 128 sums took 6350 cycles, by shuffles 2900 (H200). Memory is quicker all the same where
// rows are read behind the sums (a residual: in lines of 128 bytes, by shuffles of 64) and where a function is computed
// there that is not a short form (lowering/precision/rounded.cc).
bool by_shuffles(const Program &program, const LoopNest &nest, const WarpgroupProduct &s) {
  std::vector<ScalarId> left, seen;
  for (const Stage &stage : nest.stages)
    for (const StageOutput &o : stage.outputs)
      if (o.buffer.valid()) left.insert(left.end(), {o.value, o.condition});
  const auto is_row = [&](const DimSymbol *symbol) {
    return symbol->kind == SymbolKind::kScalar ||
           std::any_of(s.a.outer.begin(), s.a.outer.end(), [&](const Loop &l) { return l.index == symbol; });
  };
  while (!left.empty()) {
    const ScalarId id = left.back();
    left.pop_back();
    if (!id.valid() || std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
    seen.push_back(id);
    const Scalar &scalar = program.scalars.at(id);
    if (is_transcendental(scalar.op) && scalar.flag != kRounded) return false;
    std::vector<const DimSymbol *> symbols;
    if (scalar.op == ScalarOp::kLoad)
      for (const Dim d : scalar.index) collect_symbols(d, symbols);
    if (std::any_of(symbols.begin(), symbols.end(), is_row)) return false;
    left.insert(left.end(), std::begin(scalar.args), std::end(scalar.args));
  }
  return true;
}

// Whether the template can have the product, its operands aside.
bool can_have(const Program &program, const Kernel &kernel, const GemmTensorCoreSchedule &product,
              const LoweringOptions &options, ProductSum &sum) {
  constexpr size_t kMapBytes = 2 * 128 + 64;  // of a launch's parameters, aligned
  return options.warpgroups && options.tile < 0 && options.splits <= 0 && element_bytes(product.type) == 2 &&
         product_sum(program, *kernel.nest(), sum) && lower_bound(total_extent(product.k)) >= 1 &&
         parameter_bytes(program, kernel) + kMapBytes <= kMostParameterBytes;
}

}  // namespace

std::optional<GemmWarpgroupSchedule> warpgroup_schedule(const Program &program, const Kernel &kernel,
                                                        const GemmTensorCoreSchedule &product,
                                                        const LoweringOptions &options) {
  ProductSum sum;
  if (!can_have(program, kernel, product, options, sum)) return std::nullopt;
  GemmWarpgroupSchedule s;
  static_cast<TensorCoreProduct &>(s) = product;
  auto a = tensor_map(program, s, s.a, peel(program, product.exchanged ? sum.rhs : sum.lhs));
  auto b = tensor_map(program, s, s.b, peel(program, product.exchanged ? sum.lhs : sum.rhs));
  if (!a || !b) return std::nullopt;
  s.map_a = std::move(*a);
  s.map_b = std::move(*b);
  s.blocks = options.machine->multiprocessors;
  s.shuffles = by_shuffles(program, *kernel.nest(), s);
  return s;
}

std::optional<ConvolutionWarpgroupSchedule> convolution_warpgroup_schedule(const Program &program, const Kernel &kernel,
                                                                           const GemmTensorCoreSchedule &product,
                                                                           const LoweringOptions &options) {
  ProductSum sum;
  if (!can_have(program, kernel, product, options, sum)) return std::nullopt;
  ConvolutionWarpgroupSchedule s;
  static_cast<TensorCoreProduct &>(s) = product;
  auto image = image_map(program, s, s.exchanged ? s.b : s.a, peel(program, sum.lhs));
  auto filters = filter_map(program, s, s.exchanged ? s.a : s.b, peel(program, sum.rhs));
  if (!image || !filters) return std::nullopt;
  s.image = std::move(*image);
  s.filters = std::move(*filters);
  s.blocks = options.machine->multiprocessors;
  s.shuffles = by_shuffles(program, *kernel.nest(), s);
  return s;
}

Ways choose_tiles(const LoweringOptions &options, const std::string *tuned, GemmWarpgroupSchedule &schedule) {
  const Lines lines{of_whole_sectors(schedule.map_a), of_whole_sectors(schedule.map_b)};
  return choose(options, tuned, total_extent(schedule.k), 1, lines, schedule);
}

Ways choose_tiles(const LoweringOptions &options, const std::string *tuned, ConvolutionWarpgroupSchedule &schedule) {
  const std::vector<int64_t> &taps = schedule.image.taps;
  return choose(options, tuned, schedule.k.back().extent, taps[0] * taps[1], {}, schedule);
}

}  // namespace optc
