#pragma once
// The product of emit/ptx/gemm.h on warpgroups of sm_90a: D[m, n] = sum over k of A[m, k] * B[k, n] of 16-bit operands
// in f32. A block walks tiles; the thread of one warpgroup has TMA fetch steps of 64 of k into a ring in shared memory
// (full and empty barriers), the others multiply (wgmma), each its rows of every tile or in turns a tile of its own,
// and finish: sums go through a warp's part of shared memory or through shuffles, so that a thread has eight
// neighbours of a row.
// A convolution is the same product with one other fetch: the rows of its image's tile are output pixels, and a step is
// 64 channels of one tap (TMA's im2col mode).
//
// Ring, barriers, order of tiles: as in the kernels of CUTLASS's and DeepGEMM's documentation, in form our own.

#include <functional>
#include <optional>

#include "emit/ptx/hopper.h"
#include "ir/program/tensor_core.h"

namespace optc::ptx {

struct WarpgroupGemm {
  MmaType type = MmaType::kF16;
  WarpgroupTile tile;
  Value m = nullptr, n = nullptr, k = nullptr, batches = nullptr;  // sizes, i32; k > 0
  int64_t blocks = 1;                                              // of the launch at most; they walk the tiles
  bool by_shuffles = false;  // how sums find their row: else through shared memory
  int64_t taps = 1;          // of a convolution: the sum runs through k for each of them
  // An image in im2col: k are its channels, m (n) its output pixels.
  struct Image {
    std::function<Values(Value pixel)> window;  // where it begins, as coordinates behind the channel's
    std::function<Values(Value tap)> offsets;   // from there, i32
  };
  struct Operand {
    Value map = nullptr;       // of boxes of 64 contiguous elements by the tile's rows (columns), or by 64 of k
    bool k_contiguous = true;  // else m or n
    std::optional<Image> image;
  } a, b;
  // The coordinates in the maps behind those of the product's own: in both (a convolution has no batches); in that of
  // the filters.
  std::function<Values(Value batch)> batch_coordinates;
  std::function<Values(Value tap)> tap_coordinates;  // empty: none
  // Eight sums of a row, from `column` on, a multiple of 8. row < m and column < n hold, not more.
  std::function<void(Value batch, Value row, Value column, const Values &sums)> epilogue;
};

// The whole kernel, the wait for those before it included. Uses the builder's shared memory from its current end.
void emit_warpgroup_gemm(Builder &b, const WarpgroupGemm &gemm);

}  // namespace optc::ptx
