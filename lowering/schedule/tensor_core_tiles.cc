// The choice of a tile, and of how many blocks share one, for a product on tensor cores.

#include <algorithm>
#include <cmath>

#include "ir/program/contraction_view.h"
#include "ir/program/gpu_machine.h"
#include "ir/program/tensor_core.h"
#include "lowering/schedule/schedule.h"

namespace optc {
namespace {

std::vector<TensorCoreTile> tiles_for(TensorCoreType type) {
  if (element_bytes(type) == 2)
    return {{128, 128, 32, 2, 2, 1, 4}, {128, 64, 32, 2, 2, 1, 4}, {64, 128, 32, 2, 2, 1, 4}, {128, 64, 64, 4, 2, 1, 4},
            {64, 64, 64, 2, 2, 2, 4},   {64, 64, 128, 2, 2, 2, 3}, {64, 64, 32, 2, 2, 1, 4},  {64, 64, 64, 2, 2, 1, 3},
            {64, 32, 64, 2, 1, 2, 4},   {64, 32, 128, 2, 1, 4, 4}, {32, 64, 64, 1, 2, 2, 4},  {32, 64, 128, 1, 2, 4, 4},
            {32, 32, 128, 1, 1, 4, 3},  {32, 32, 256, 1, 1, 8, 3}, {16, 64, 128, 1, 2, 2, 3}, {16, 32, 128, 1, 1, 4, 4},
            {16, 32, 256, 1, 1, 8, 4},  {16, 16, 256, 1, 1, 8, 6}, {64, 128, 64, 2, 4, 1, 4}, {64, 64, 64, 2, 2, 1, 4}};
  return {{128, 64, 32, 4, 2, 1, 3}, {64, 128, 32, 2, 4, 1, 3}, {64, 64, 32, 2, 2, 1, 4},  {64, 32, 64, 2, 1, 2, 3},
          {32, 64, 64, 1, 2, 2, 3},  {32, 32, 64, 1, 1, 4, 4},  {16, 64, 64, 1, 2, 2, 3},  {16, 32, 64, 1, 1, 4, 4},
          {64, 64, 64, 2, 2, 2, 3},  {128, 64, 32, 2, 2, 1, 3}, {64, 128, 32, 2, 2, 1, 3}, {32, 64, 64, 1, 2, 4, 4},
          {32, 32, 128, 1, 1, 8, 3}, {64, 32, 64, 2, 1, 4, 4},  {32, 32, 64, 1, 1, 4, 3},  {32, 64, 64, 1, 2, 2, 2},
          {64, 64, 32, 2, 2, 1, 3},  {64, 32, 64, 2, 1, 2, 2}};
}

// What modelled_cycles counts with, in cycles: a fetch; a warp's own way through a block of k, and an instruction of
// it; a product of 16 x 8; the whole kernel; a value that a thread finishes; joining parts. Bytes a cycle of a
// multiprocessor, and how much of the second cache's rate all together reach.
struct Costs {
  double fetch, latency, instruction, product, kernel, value, join, memory, of_cache;
};

// What the time of a product depends on beside its tile: bytes fetched at once, a side (0: computed, one by one).
struct Fetch {
  int64_t a = 16, b = 16;
  bool conditions = false;  // an address and a condition to compute for each, as a convolution has
};

// A model of the time in cycles; its numbers are fitted to bench/gpu/tiles.py on an H200, the machine's row says what
// other cards have of everything. A multiprocessor's four parts issue an instruction a cycle each: products, what
// splits operands in TF32 pairs, and what fetches; the blocks of tile.k follow one another at the pace of the slowest
// of issue, tensor cores, a warp's own latency, and the way to memory, and partly of them all.
double modelled_cycles(const GpuMachine &machine, TensorCoreType type, const TensorCoreTile &tile, int splits,
                       const Fetch &fetch, double m, double n, double k, double batch) {
  static constexpr Costs kHalf = {17.8, 11, 0.56, 17, 3850, 108, 1340, 65, 1};
  static constexpr Costs kF32 = {11.2, 108, 0.36, 9.2, 4700, 75, 1500, 56, 0.83};
  const bool half = element_bytes(type) == 2, three = type == TensorCoreType::kThreeTF32;
  const Costs &c = half ? kHalf : kF32;
  const double size = element_bytes(type), warps = tile.warps();
  const double warp_m = tile.m / tile.warps_m, warp_n = tile.n / tile.warps_n;
  const double tiles = std::ceil(m / tile.m) * std::ceil(n / tile.n) * batch, blocks = tiles * splits;
  const double steps = std::ceil(std::ceil(k / tile.k) / splits);
  const double inner = static_cast<double>(tile.k) / (half ? 16 : 8) / tile.warps_k;  // instructions deep, a warp
  const double products = (warp_m / 16) * (warp_n / 8) * inner * (three ? 3 : 1);
  const double fragments = (warp_m + warp_n) / 16 * inner;
  auto fetches = [&](int extent, int64_t bytes) {
    return extent * tile.k * size / (bytes > 0 ? static_cast<double>(bytes) : size) / tile.threads();
  };
  const double instructions =
      products +
      fragments * (three  ? 17
                   : half ? 1
                          : 5) +
      (fetches(tile.m, fetch.a) + fetches(tile.n, fetch.b)) * c.fetch * (fetch.conditions ? 2 : 1) + 20;
  // Blocks that a multiprocessor can hold, by its memory and registers, and those that it gets.
  const double registers = warp_m * warp_n > 1024 ? 250 : warp_m * warp_n == 1024 ? 168 : 128;
  const double fit = std::max(1.0, std::min(std::floor(static_cast<double>(machine.shared_bytes) /
                                                       (tensor_core_shared_bytes(type, tile) + 1024)),
                                            std::floor(65536 / (registers * tile.threads()))));
  const double each = std::ceil(blocks / machine.multiprocessors), resident = std::min(fit, each),
               rounds = std::ceil(each / resident);
  const double bytes = (std::min<double>(m, tile.m) + std::min<double>(n, tile.n)) * tile.k * size;
  const double by_part = resident * warps / 4;
  const double issue = by_part * instructions, tensor = by_part * products * c.product,
               memory = resident * bytes / c.memory;
  const double step =
      std::max({issue, tensor, memory, c.latency + c.instruction * instructions}) + 0.15 * (issue + tensor + memory);
  const double all_rate = c.of_cache * machine.cache_bytes_per_cycle;
  const double all_memory = blocks * steps * bytes / all_rate;
  // Parts of a tile: written, counted, and read by the last one.
  const double part_bytes = 4.0 * tile.m * tile.n * splits;
  const double join = splits == 1 ? 0 : c.join + 0.01 * part_bytes + tiles * part_bytes / all_rate;
  return std::max(rounds * steps * step, all_memory) + c.kernel + rounds * tile.m * tile.n / tile.threads() * c.value +
         join;
}

// Tiles without a ring, for products of so few rows that their weights pass once and nothing is worth as much as an
// even share of them for each multiprocessor.
constexpr TensorCoreTile kRegisterTiles[] = {
    {16, 32, 256, 1, 1, 8, 0}, {16, 16, 256, 1, 1, 8, 0}, {16, 8, 256, 1, 1, 8, 0}};

// The same model for them: the columns of the multiprocessor that has the most blocks come from memory.
double modelled_register_cycles(const GpuMachine &machine, const TensorCoreTile &tile, double n, double k,
                                double batch) {
  const double blocks = std::ceil(n / tile.n) * batch;
  const double rate = machine.memory_gb / machine.clock_ghz / machine.multiprocessors;        // bytes a cycle
  return 3000 + std::ceil(blocks / machine.multiprocessors) * (100 + tile.n * k * 2 / rate);  // 100: a block's begin
}

struct Costed {
  TensorCoreChoice choice;
  double cycles = 0;  // where sizes are open: the last size's least time, times the mean of what it costs by the least
  double relative = 0;  // sum over the table of sizes of the time by the least one's
};

// All that can run, the best first. `copies`: products like this one in the same launch, which cannot split k.
std::vector<Costed> costed(const GemmTensorCoreSchedule &s, const ProductOperand &x, const ProductOperand &y,
                           int copies, const LoweringOptions &options) {
  const bool conditions = !x.conditions.empty() || !y.conditions.empty();
  const Dim m = total_extent(s.a.outer), n = total_extent(s.b.outer), k = total_extent(s.k),
            batch = total_extent(s.batch);
  const bool computed = s.a.chunk_bytes == 0 || s.b.chunk_bytes == 0;
  const bool known = m.is_constant() && n.is_constant() && k.is_constant() && batch.is_constant();
  std::vector<TensorCoreTile> tiles = tiles_for(s.type);
  const bool few_rows = upper_bound(m) <= kRegisterRows && fits_registers(s, kRegisterTiles[0], x, y);
  if (few_rows) tiles.insert(tiles.end(), std::begin(kRegisterTiles), std::end(kRegisterTiles));
  const bool forced = options.tile >= 0 && options.tile < static_cast<int>(tiles.size());
  const GpuMachine &machine = *options.machine;
  std::vector<Costed> list;
  for (const TensorCoreTile &tile : tiles) {
    if (forced && &tile != &tiles[static_cast<size_t>(options.tile)]) continue;
    if (few_rows && !forced && options.splits < 2 && !through_registers(tile)) continue;
    if (tensor_core_shared_bytes(s.type, tile) > machine.block_shared_bytes) continue;
    if (computed && (tile.m + tile.n) * tile.k / tile.threads() > 32) continue;  // computed elements wait in registers
    if (std::any_of(list.begin(), list.end(), [&](const Costed &c) { return c.choice.tile == tile; })) continue;
    const size_t before = list.size();
    list.push_back({{tile, 1}});
    if (!known || k.value() == 0 || options.splits == 1 || copies > 1 || through_registers(tile)) continue;
    const int64_t count = (m.value() + tile.m - 1) / tile.m * ((n.value() + tile.n - 1) / tile.n) * batch.value();
    for (const int splits : {2, 3, 4, 6, 8}) {
      const int64_t part = steps_of_part(k.value(), tile, splits), steps = (k.value() + tile.k - 1) / tile.k;
      if (part < 2 || (splits - 1) * part >= steps || count > kWorkspaceCounters || count * splits > 65535) continue;
      if (options.splits == splits) list.resize(before);
      list.push_back({{tile, splits}});
      if (options.splits == splits) break;
    }
  }
  if (list.empty()) list.push_back({{tiles.back(), 1}});
  // Sizes that are known at run time only count as small and as large ones.
  const std::vector<double> table = known ? std::vector<double>{1} : std::vector<double>{128, 1024};
  double least = HUGE_VAL;
  for (const double unknown : table) {
    auto size = [&](Dim d) { return d.is_constant() ? static_cast<double>(d.value()) : unknown; };
    least = HUGE_VAL;
    for (Costed &c : list) {
      const double batches = (batch.is_constant() ? size(batch) : 12) * copies;
      c.cycles =
          through_registers(c.choice.tile)
              ? modelled_register_cycles(machine, c.choice.tile, size(n), size(k), batches)
              : modelled_cycles(machine, s.type, c.choice.tile, c.choice.splits,
                                {s.a.chunk_bytes, s.b.chunk_bytes, conditions}, size(m), size(n), size(k), batches);
      least = std::min(least, c.cycles);
    }
    for (Costed &c : list) c.relative += c.cycles / least;
  }
  for (Costed &c : list) c.cycles = least * c.relative / static_cast<double>(table.size());
  std::stable_sort(list.begin(), list.end(), [](const Costed &a, const Costed &b) { return a.relative < b.relative; });
  return list;
}

std::string text(const TensorCoreChoice &c) {
  std::string out = std::to_string(c.tile.m) + "x" + std::to_string(c.tile.n) + "x" + std::to_string(c.tile.k);
  if (c.tile.warps_k > 1) out += " k/" + std::to_string(c.tile.warps_k);
  if (through_registers(c.tile)) out += " registers";
  if (c.splits > 1) out += " split " + std::to_string(c.splits);
  return out;
}

}  // namespace

Ways choose_tiles(const Program &program, const Kernel &kernel, const LoweringOptions &options,
                  const std::string *tuned, GemmTensorCoreSchedule &schedule) {
  ProductSum sum;
  product_sum(program, *kernel.nest(), sum);
  const ProductOperand x = peel(program, sum.lhs), y = peel(program, sum.rhs);
  Ways ways;
  for (int copies = 1; copies <= kMostJoinedKernels; ++copies) {
    const std::vector<Costed> list = costed(schedule, x, y, copies, options);
    schedule.tiles.push_back(list[0].choice);
    if (copies > 1) continue;       // launches of several were not measured
    for (const Costed &c : list) {  // those that differ in the depth of the ring alone are one way
      const std::string what = std::string(to_string(schedule.type)) + " " + text(c.choice);
      if (std::any_of(ways.begin(), ways.end(), [&](const ScheduleChoice::Way &w) { return w.what == what; })) continue;
      ways.push_back({what, c.cycles / (options.machine->clock_ghz * 1e3)});
      if (tuned && what == *tuned) schedule.tiles[0] = c.choice;
    }
  }
  return ways;
}

}  // namespace optc
