#pragma once
// The choice of a tile, and of how many blocks share one, for a product on tensor cores.

#include "emit/ptx/gemm.h"
#include "emit/ptx/ptx.h"

namespace optc::ptx {

// What the time of a product depends on beside its tile: bytes fetched at once, a side (0: computed, one by one).
struct Fetch {
  unsigned a = 16, b = 16;
  bool conditions = false;  // an address and a condition to compute for each, as a convolution has
};

struct Choice {
  GemmTile tile;
  int splits = 1;
};

// The parts of k for `splits` blocks, none of them empty: how many blocks of tile.k the others than the last have.
int64_t steps_of_part(int64_t k, const GemmTile &tile, int splits);

// Sizes known at run time only count as small and as large ones, and their k is not split. copies: products like this
// one in the same launch.
Choice choose_tile(GemmType type, Dim m, Dim n, Dim k, Dim batch, int copies, const Fetch &fetch,
                   const PtxOptions &options);

}  // namespace optc::ptx
