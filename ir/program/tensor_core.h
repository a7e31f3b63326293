#pragma once
// Sums of products as tensor cores take them: the factors as loads under conditions, how wide they can be fetched, and
// what a tile needs. Lowering chooses a GemmTensorCoreSchedule by it, the verifier asks it again, emit/ptx makes code
// of the same answers.

#include <optional>
#include <string_view>
#include <vector>

#include "ir/program/program.h"

namespace optc {

// Blocks that share a tile count themselves in so many counters of the workspace, which are zero between launches.
inline constexpr int64_t kWorkspaceCounters = 1024;
// So many independent kernels of equal code share a launch at most.
inline constexpr int kMostJoinedKernels = 4;

std::string_view to_string(TensorCoreType type);  // "f16", "bf16", "tf32", "3xtf32"
unsigned element_bytes(TensorCoreType type);      // of an operand in shared memory
// Shared memory of a block.
unsigned tensor_core_shared_bytes(TensorCoreType type, const TensorCoreTile &tile);
// The parts of k for `splits` blocks, none of them empty: how many blocks of tile.k the others than the last have.
int64_t steps_of_part(int64_t k, const TensorCoreTile &tile, int64_t splits);
// Products of so many rows at most pass their weights through once, and wait for memory and for one another.
inline constexpr int64_t kFewRows = 16;
// A tile without stages has no ring: its operands, of 16 bits, go from memory to registers. It is for so few rows that
// they are read again by every block at no cost.
inline constexpr int64_t kRegisterRows = 4;
inline bool through_registers(const TensorCoreTile &tile) { return tile.stages == 0; }
// What a warp has of each column of such a tile in one step, and the steps that there may be: they are straight code.
inline constexpr int kRegisterDepth = 32, kMostRegisterSteps = 48;
// Whether the template can run the tile: its warps share it evenly, in fragments of 16 x 16 and k of 32 bytes. Without
// stages: 16 rows, fragments of 8 columns, of which each warp has a part of k.
bool is_tile(TensorCoreType type, const TensorCoreTile &tile);

// The same for warpgroups: rows in blocks of 64 for each, columns in blocks of 64, the ring in a block's shared memory.
bool is_tile(const WarpgroupTile &tile);
int64_t warpgroup_shared_bytes(const WarpgroupTile &tile);
// A warp's part of it, where 16 x 64 sums lie in rows while its threads finish them.
inline constexpr int kWarpgroupRow = 72;    // f32 numbers, padded
inline constexpr int kWarpgroupDepth = 64;  // of k in one step: 128 bytes

// A factor of a product as a load under conditions: c1 && c2 ? load : 0, with a cast from a 16-bit type taken off.
struct ProductOperand {
  ScalarId whole;                    // the expression, in f32
  ScalarId load;                     // invalid: not of this form
  std::vector<ScalarId> conditions;  // all must hold
  ElementType stored = ElementType::kUndefined;
  // A load of f32 that is rounded to `stored`, a 16-bit type, as it is read; `load` is invalid then.
  ScalarId wide;
};
ProductOperand peel(const Program &program, ScalarId id);
// Whether a product of the two operands can have such a tile (through_registers): both are read by 16 bytes along k,
// whose size is known, and always.
bool fits_registers(const TensorCoreProduct &product, const TensorCoreTile &tile, const ProductOperand &x,
                    const ProductOperand &y);
// The type whose products are exact for the operand: what it is stored or rounded as.
ElementType precision(const Program &program, const ProductOperand &operand);
// The same for the products' type, whose operands must be stored as it is: otherwise they are computed (f32) and `load`
// is taken off, or (16 bits) cannot be: false.
bool fit(TensorCoreType type, ProductOperand &operand);
// How many elements from `loop`'s counter on lie together, aligned to their size: 16, 8 or 4 bytes' worth, 1 when only
// the stride is 1, 0 when it is not.
int together(const Program &program, const ProductOperand &operand, const Loop &loop, unsigned size);
// Whether the f32 elements of `operand.wide` from `loop`'s counter on can be read eight at a time.
bool wide_together(const Program &program, const ProductOperand &operand, const Loop &loop);
// Whether no kernel writes what the operand reads, at addresses that depend on no data.
bool is_constant(const Program &program, const ProductOperand &operand);

// The operand as TMA takes it, where it can: a plain load at an address that is affine in the loops, those of k and
// those of rows (columns) each as one index, all strides but the contiguous one and the offset multiples of 16 bytes.
std::optional<TensorMap> tensor_map(const Program &program, const TensorCoreProduct &product,
                                    const TensorCoreProduct::Operand &side, const ProductOperand &operand);
// The same for a convolution, whose `k` is taps and then channels: its image, read where exactly its own bounds are the
// conditions, the rows (columns) its output pixels; and its filters. Windows reach 128 elements out of the image and
// 255 from their first tap at most, steps are 8 at most, a dim of space has two of the loops, all but images at most
// two dims. Channels that another loop moves, too, are runs that may overlap: a dim of space of their own.
std::optional<ImageMap> image_map(const Program &program, const TensorCoreProduct &product,
                                  const TensorCoreProduct::Operand &side, const ProductOperand &operand);
std::optional<TensorMap> filter_map(const Program &program, const TensorCoreProduct &product,
                                    const TensorCoreProduct::Operand &side, const ProductOperand &operand);
// Whether TMA can have the map, of the Program's own sizes alone: alignment, number of dims, sizes known early.
bool is_tensor_map(const Program &program, const TensorMap &map);
bool same(const TensorMap &a, const TensorMap &b);
bool same(const ImageMap &a, const ImageMap &b);

// The sum of products that a contraction is, when it is one sum with stages of stores after it: its factors as the sum
// has them, conditions included. False otherwise.
struct ProductSum {
  ScalarId lhs, rhs;
};
bool product_sum(const Program &program, const LoopNest &nest, ProductSum &sum);

const Loop *find_loop(const std::vector<Loop> &loops, const DimSymbol *symbol);  // null: not among them

}  // namespace optc
