#pragma once
// The tensor-core product as a template: D[m, n] = sum over k of A[m, k] * B[k, n], f32 accumulation, in blocks of
// tile_m x tile_n x tile_k through a ring of shared memory filled by cp.async. What A and B are is said by callbacks,
// so that matrix products of any strides, convolutions (an implicit gather) and operands with computed elements are one
// main loop.
//
// Shared memory is swizzled (16-byte chunks xor row bits) so that ldmatrix and the scalar reads of transposed f32 tiles
// are free of bank conflicts. f32 operands run as TF32: once, or three times (high*high + high*low + low*high) with the
// accumulators added to a second set every 256 of a warp's k where that is longer than 384, because tensor cores
// truncate when they accumulate.
//
// A tile without stages (through_registers) is for a few rows, bound by memory: a thread has 16 bytes of a column in
// registers as the products take them, in an order of k that both factors have, many of them on their way at a time.
//
// Several blocks may share a tile and split k (split-K): each stores its sums in the workspace, and the one that
// finishes last adds them up in the order of the parts, so that results do not depend on who was last, and runs the
// epilogue.

#include <functional>

#include "emit/ptx/builder.h"
#include "ir/program/tensor_core.h"

namespace optc::ptx {

struct GemmOperand {
  // Which index is contiguous in memory (and in the shared tile's rows): k, or m / n.
  bool k_contiguous = true;
  // Bytes fetched at once: 16, 8 or 4 by cp.async; 0: elements are computed one at a time.
  unsigned chunk_bytes = 16;
  // The address of the chunk whose first element is (outer, inner), and whether it may be read (i1 or null: always).
  // `inner` is the contiguous index. Both are in range of the operand rounded up to chunks when `valid` is asked for.
  struct Chunk {
    Value pointer, valid;
  };
  std::function<Chunk(Value outer, Value inner)> chunk;
  // chunk_bytes == 0: `group` elements as they lie in shared memory: one (half or i16 for 16-bit types, float for f32)
  // or eight of 16 bits (<4 x i32>). 0 where `inside` (i1) does not hold: the indices may be out of range there.
  int group = 1;
  std::function<Value(Value outer, Value inner, Value inside)> element;
  // No kernel writes it: a chained kernel fetches it before it waits for those before it.
  bool constant = false;
  // The chunks lie in shared memory (Gemm::before_products has put them there): they are copied by loads and stores.
  bool in_shared = false;
};

struct Gemm {
  TensorCoreType type = TensorCoreType::kF16;
  TensorCoreTile tile;
  Value m = nullptr, n = nullptr, k = nullptr;   // sizes, i32
  Value row0 = nullptr, column0 = nullptr;       // corner of this block's tile
  Value k_begin = nullptr, k_end = nullptr;      // the part of k that this block sums, k_begin a multiple of tile.k
  int64_t part_of_k = 0;                         // how much of k a block sums at most; 0: not known
  int splits = 1;                                // blocks that share a tile
  Value split = nullptr, tile_number = nullptr;  // splits > 1: this block's part of k, and its tile among all of them
  Value counters = nullptr, parts = nullptr;     // splits > 1: a zeroed i32 a tile, left zeroed; split_bytes for parts
  GemmOperand a, b;                              // a: outer/inner = (m, k) or (k, m); b: (n, k) or (k, n)
  // Two products of the same rows: the columns of a tile are half of them this product's, and then those of another one
  // at the same places (`n` and `column0` count both; the epilogue's column is one of the first alone). The tile is one
  // that can_pair, and n a multiple of its columns.
  bool paired = false;
  std::function<void(Value row, Value column, const Values &sums, const Values &others)> paired_epilogue;  // two each
  // Called behind the wait for the kernels before, with all threads; null: nothing. It ends with a barrier.
  std::function<void()> before_products;
  // The sum at (row, column) in f32 arithmetic, term by term; both are in range. What the tensor cores give is not
  // f32's answer where it is not finite: the parts of an operand that is infinite, or becomes it when it is rounded,
  // give NaN. Null: operands are exact (16 bits).
  std::function<Value(Value row, Value column)> plain_sum;
  // Called with neighbouring accumulators of one row (columns column, column + 1), for which row < m and column < n
  // hold; the second value is null where column + 1 == n is possible and the caller must not store it (then `pair` says
  // at run time whether it exists).
  std::function<void(Value row, Value column, Value first, Value second, Value pair)> epilogue;
};

// The bytes of `parts` for one tile.
int64_t split_bytes(const TensorCoreTile &tile, int splits);

// Whether a tile can be two products' (Gemm::paired).
bool can_pair(const TensorCoreTile &tile);

// The sums of a warp's part of k of a tile without stages, four for each 8 columns as `Builder::mma` has them. Waits
// for the kernels before. What the fetches of weights find on their way there is in flight while it does.
Values sums_through_registers(Builder &b, const Gemm &gemm);

// Emits the whole block: main loop and epilogue, and the wait for the kernels before. Uses the builder's shared memory
// from its current end.
void emit_gemm(Builder &b, const Gemm &gemm);

}  // namespace optc::ptx
