#include "emit/ptx/tiles.h"

#include <algorithm>
#include <cmath>

namespace optc::ptx {

namespace {

std::vector<GemmTile> tiles_for(GemmType type) {
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
// multiprocessor and of all.
struct Costs {
  double fetch, latency, instruction, product, kernel, value, join, memory, all_memory;
};

// A model of the time on a card of 132 multiprocessors, in cycles; its numbers are fitted to bench/gpu/tiles.py on an
// H200 (1755 MHz). A multiprocessor's four parts issue an instruction a cycle each: products, what splits operands in
// TF32 pairs, and what fetches; the blocks of tile.k follow one another at the pace of the slowest of issue, tensor
// cores, a warp's own latency, and the way to memory, and partly of them all.
double modelled_cycles(GemmType type, const GemmTile &tile, int splits, const Fetch &fetch, double m, double n,
                       double k, double batch) {
  static constexpr Costs kHalf = {17.8, 11, 0.56, 17, 3850, 108, 1340, 65, 4830};
  static constexpr Costs kF32 = {11.2, 108, 0.36, 9.2, 4700, 75, 1500, 56, 4000};
  const bool half = element_bytes(type) == 2, three = type == GemmType::kThreeTF32;
  const Costs &c = half ? kHalf : kF32;
  const double size = element_bytes(type), warps = tile.warps();
  const double warp_m = tile.m / tile.warps_m, warp_n = tile.n / tile.warps_n;
  const double tiles = std::ceil(m / tile.m) * std::ceil(n / tile.n) * batch, blocks = tiles * splits;
  const double steps = std::ceil(std::ceil(k / tile.k) / splits);
  const double inner = static_cast<double>(tile.k) / (half ? 16 : 8) / tile.warps_k;  // instructions deep, a warp
  const double products = (warp_m / 16) * (warp_n / 8) * inner * (three ? 3 : 1);
  const double fragments = (warp_m + warp_n) / 16 * inner;
  auto fetches = [&](int extent, unsigned bytes) {
    return extent * tile.k * size / (bytes > 0 ? bytes : size) / tile.threads();
  };
  const double instructions =
      products +
      fragments * (three  ? 17
                   : half ? 1
                          : 5) +
      (fetches(tile.m, fetch.a) + fetches(tile.n, fetch.b)) * c.fetch * (fetch.conditions ? 2 : 1) + 20;
  // Blocks that a multiprocessor can hold, by its memory and registers, and those that it gets.
  const double registers = warp_m * warp_n > 1024 ? 250 : warp_m * warp_n == 1024 ? 168 : 128;
  const double fit = std::max(1.0, std::min(std::floor(227e3 / (gemm_shared_bytes(type, tile) + 1024)),
                                            std::floor(65536 / (registers * tile.threads()))));
  const double each = std::ceil(blocks / 132), resident = std::min(fit, each), rounds = std::ceil(each / resident);
  const double bytes = (std::min<double>(m, tile.m) + std::min<double>(n, tile.n)) * tile.k * size;
  const double by_part = resident * warps / 4;
  const double issue = by_part * instructions, tensor = by_part * products * c.product,
               memory = resident * bytes / c.memory;
  const double step =
      std::max({issue, tensor, memory, c.latency + c.instruction * instructions}) + 0.15 * (issue + tensor + memory);
  const double all_memory = blocks * steps * bytes / c.all_memory;
  // Parts of a tile: written, counted, and read by the last one.
  const double part_bytes = 4.0 * tile.m * tile.n * splits;
  const double join = splits == 1 ? 0 : c.join + 0.01 * part_bytes + tiles * part_bytes / c.all_memory;
  return std::max(rounds * steps * step, all_memory) + c.kernel + rounds * tile.m * tile.n / tile.threads() * c.value +
         join;
}

}  // namespace

int64_t steps_of_part(int64_t k, const GemmTile &tile, int splits) {
  const int64_t steps = (k + tile.k - 1) / tile.k;
  return (steps + splits - 1) / splits;
}

Choice choose_tile(GemmType type, Dim m, Dim n, Dim k, Dim batch, int copies, const Fetch &fetch,
                   const PtxOptions &options) {
  const bool computed = fetch.a == 0 || fetch.b == 0;
  std::vector<Choice> choices;
  const bool known = m.is_constant() && n.is_constant() && k.is_constant() && batch.is_constant();
  const std::vector<GemmTile> tiles = tiles_for(type);
  const bool forced = options.tile >= 0 && options.tile < static_cast<int>(tiles.size());
  for (const GemmTile &tile : tiles) {
    if (forced && &tile != &tiles[static_cast<size_t>(options.tile)]) continue;
    if (computed && (tile.m + tile.n) * tile.k / tile.threads() > 32) continue;  // computed elements wait in registers
    const size_t before = choices.size();
    choices.push_back({tile, 1});
    if (!known || k.value() == 0 || options.splits == 1 || copies > 1) continue;
    const int64_t count = (m.value() + tile.m - 1) / tile.m * ((n.value() + tile.n - 1) / tile.n) * batch.value();
    for (const int splits : {2, 3, 4, 6, 8}) {
      const int64_t part = steps_of_part(k.value(), tile, splits), steps = (k.value() + tile.k - 1) / tile.k;
      if (part < 2 || (splits - 1) * part >= steps || count > kWorkspaceCounters || count * splits > 65535) continue;
      if (options.splits == splits) choices.resize(before);
      choices.push_back({tile, splits});
      if (options.splits == splits) break;
    }
  }
  if (choices.empty()) choices.push_back({tiles.back(), 1});
  std::vector<double> cost(choices.size(), 0);
  for (const double unknown : known ? std::vector<double>{1} : std::vector<double>{128, 1024}) {
    auto size = [&](Dim d) { return d.is_constant() ? static_cast<double>(d.value()) : unknown; };
    std::vector<double> here;
    for (const Choice &c : choices)
      here.push_back(modelled_cycles(type, c.tile, c.splits, fetch, size(m), size(n), size(k),
                                     (batch.is_constant() ? size(batch) : 12) * copies));
    const double least = *std::min_element(here.begin(), here.end());
    for (size_t i = 0; i < choices.size(); ++i) cost[i] += here[i] / least;
  }
  return choices[static_cast<size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin())];
}

}  // namespace optc::ptx
