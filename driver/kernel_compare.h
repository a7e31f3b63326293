#pragma once
// What a kernel of a bundle computed, beside what the evaluator computes of the same memory.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/constant.h"
#include "ir/program/program.h"

namespace optc {

// How exactly a kernel's floats are determined by its inputs.
struct Exactness {
  enum class Kind : uint8_t {
    kExact,      // loads, rounded operations and maxima: the same bits everywhere
    kFunctions,  // exp, tanh, ...: each implementation has its own last digits
    kSums,       // sums, of products too, in another order
    kWinograd,   // products of transformed operands
  } kind = Kind::kExact;
  double terms = 1;   // of the longest sum
  bool tf32 = false;  // the operands of its products are rounded to TF32
};
Exactness exactness_of(const Program &program, const Kernel &kernel, const DimValues &values);

struct KernelDifference {
  int64_t differing = 0, count = 0;
  std::string index;  // of the worst element, "[0,3,1]"
  double got = 0, expected = 0;
  double allowed = 0;   // by which the worst element may be apart
  double range = 0;     // max |expected| of the finite elements
  double largest = 0;   // difference of two numbers, also of what is within the tolerance; not of other bits: 0
  std::string problem;  // where it is not a matter of size: other dims
};
// Element by element: floats within a tolerance of their type and the kernel's exactness, relative to the range; whole
// numbers are equal, except that 8-bit results of inexact arithmetic may fall on the other side of a rounding. NaN and
// infinities stand at the same places.
KernelDifference compare_elements(const Constant &got, const Constant &expected, const Exactness &exactness);

// NaNs and infinities of a float tensor.
struct Specials {
  bool nan = false, infinity = false;
  std::string nan_index, infinity_index;  // of the first
};
// `where`: only of elements in one of these boxes, [begin, end) in each dimension; nullopt: of all.
using IndexBox = std::vector<std::pair<int64_t, int64_t>>;
Specials find_specials(const Constant &value, const std::optional<std::vector<IndexBox>> &where = std::nullopt);
// The elements of `buffer` that the kernel writes at these sizes, as boxes; nullopt where they are none that are seen.
std::optional<std::vector<IndexBox>> written_elements(const Kernel &kernel, BufferId buffer, const DimValues &values);
// Whether an infinite constant stands in the kernel: a mask, or the start of a maximum.
bool has_infinite_constant(const Program &program, const Kernel &kernel);

}  // namespace optc
