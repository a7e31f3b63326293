#pragma once
// Products of what is dequantized in blocks along the sum: the parts of the factor, and where they lie.

#include <optional>

#include "ir/program/contraction_view.h"

namespace optc {

// A factor of a product as DequantizeLinear builds it: (element - zero) * scale in f32, of integers of 2 to 8 bits,
// rounded to f16 or bf16 or (kFloat32) not, then widened. The parts are loads, in the factor perhaps behind casts that
// change no value.
struct BlockFactor {
  ScalarId element, scale;
  ScalarId zero;  // invalid: zero_value
  int64_t zero_value = 0;
  ElementType rounded = ElementType::kFloat32;
};
std::optional<BlockFactor> block_factor(const Program &program, ScalarId factor);

// The same of bytes without a zero point, scaled in f32 and not rounded: activations that a product multiplies as they
// are.
std::optional<BlockFactor> activation_factor(const Program &program, ScalarId factor);

// A product whose B is a block factor, with scales and zero points of one block along the sum each. nullopt also where
// the sum is not one loop. Where its A is an activation factor, it has the blocks of B.
struct BlockProduct {
  GemmView view;  // b: the integers; a too where activations have a scale
  BlockScales scales;
  RowScales activations;
};
std::optional<BlockProduct> block_product(const Program &program, const Kernel &kernel);

// Integers that a schedule can keep packed: how many bits a number is stored in (4, 8; 0: not such a type), and what is
// subtracted from it to make it a two's complement number of so many bits.
int packed_bits(ElementType type);
int64_t packed_center(ElementType type);

}  // namespace optc
