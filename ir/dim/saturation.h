#pragma once
// Where Dims end: arithmetic that leaves int64 saturates to kDimOverflow, and so does an expression of more than
// kMaxDimSize parts (powers of sums, which a few bytes of a model can ask for). Neither is the value it stands for.

#include <cstdint>

#include "ir/dim/dim.h"

namespace optc {

inline constexpr uint64_t kMaxDimSize = 4096;
// Of an offset of more parts the entries are computed for themselves: fusions may make it larger, and it is read by
// people.
inline constexpr uint64_t kLargeOffset = 512, kLargeEntry = 8;

uint64_t dim_size(Dim d);  // terms and atoms, those inside of atoms included
bool is_saturated(Dim d);  // some number in `d` left int64, or it grew too large

}  // namespace optc
