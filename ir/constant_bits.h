#pragma once
// The bits of a scalar constant (Scalar::bits: the element's own, in the low bits) as a number, and back.

#include <cstdint>

#include "ir/types.h"

namespace optc {

// Of a floating-point type, exactly.
double float_of_bits(ElementType type, uint64_t bits);
// Rounded to nearest even; float8 saturates.
uint64_t bits_of_float(ElementType type, double value);
// Of an integer or bool type: sign-extended where the type is signed.
int64_t integer_of_bits(ElementType type, uint64_t bits);
// The low bits that an integer type keeps; bool: 0 or 1.
uint64_t bits_of_integer(ElementType type, uint64_t value);

}  // namespace optc
