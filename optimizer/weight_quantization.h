#pragma once
// Constant weights of products in 8 or 4 bits (--quantize-weights): integers with a scale, and a zero point where that
// comes nearer, for each column or for each block of what a product sums, and a DequantizeLinear where the weight was.
// Every reader of the model then sees the same numbers: the evaluator, bundles, a model that is written, an oracle.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct WeightFormat {
  int bits = 4;              // 8 or 4
  int64_t block = 32;        // so many numbers, along what the product sums, have one scale; 0: a whole column
  bool activations = false;  // what f32 products multiply by them is rounded to 8 bits, in the same blocks
};
std::string to_string(const WeightFormat &format);  // "int4:32", "int8", "int4:32,activations=int8"

// Weights of fewer elements stay: their bytes are not what a run waits for.
inline constexpr int64_t kLeastQuantized = 4096;

// A constant matrix of f32, f16 or bf16 with kLeastQuantized elements or more that a MatMul or a Gemm has on its right,
// as it is or transposed.
struct ProductWeight {
  ValueId value;
  int axis = 0;         // of the matrix, over which the products sum
  std::string problem;  // why it cannot be quantized; empty: it can
};
// In the order of their first product. A table that is also gathered from is one of them: what it gives is then
// dequantized for the rows that are gathered.
std::vector<ProductWeight> find_product_weights(const Graph &graph);

struct QuantizedWeight {
  Constant codes, scale, zero;  // operands of DequantizeLinear; no zero point: an invalid Constant
  int64_t axis = 0, block = 0;  // attributes of it
  double error = 0;             // root of the mean square of what it changes, over that of the weight
  int64_t bytes() const;
};
// Rounds to the nearest of 2^bits equally spaced numbers. Of the two usual grids each weight has the one of less
// error: around 0, as wide as the largest magnitude (int8, int4); or, where that lessens the squared error by a tenth
// at least, from the smallest to the largest number, with a zero point (uint8, uint4). The scale has the weight's type.
// Nothing where a number is not finite.
std::optional<QuantizedWeight> quantize(const Constant &weight, int axis, const WeightFormat &format);

// The products by `weight`, which is not replaced yet, that multiply f32 along the last axis of their left operand:
// that operand is rounded in blocks (ops/block_rounding.h). How many there are.
Result<int64_t> round_activations(Graph &graph, const ProductWeight &weight, const WeightFormat &format,
                                  Diagnostics &diagnostics);

// Whatever reads `weight` reads it dequantized from now on.
Status replace_weight(Graph &graph, const ProductWeight &weight, const QuantizedWeight &quantized,
                      Diagnostics &diagnostics);

}  // namespace optc
