#pragma once
// Which elements an index takes over the iterations of its loops, and whether several such boxes together make up a
// whole. The answers are exact where they are given: a box is the set of elements that are met, not a hull.

#include <optional>
#include <vector>

#include "ir/program/program.h"

namespace optc {

// A part of a loop counter: floor(symbol / low) mod (high / low). A whole counter is {symbol, 1, extent}; quotients and
// remainders of one by divisors of its extent are parts that vary independently of one another.
struct Digit {
  const DimSymbol *symbol = nullptr;
  Dim low, high;
  Dim weight;  // what one step of it adds to the index
  Dim extent() const;
};

// index = begin + sum of digits, each weighing what all those behind it span together (a mixed radix): it takes each
// value of [begin, begin + length) exactly once. Digits from the most significant on. nullopt: no such form is seen.
struct Radix {
  Dim begin, length;
  std::vector<Digit> digits;
};
std::optional<Radix> mixed_radix(Dim index, const std::vector<Loop> &loops);

// A box: [begin, begin + length) in each dimension.
struct Span {
  Dim begin, length;
};
using Box = std::vector<Span>;
Box whole_box(const Shape &shape);

// The elements that `index` takes over all iterations of `loops`. nullopt: no box, or none that is seen (a diagonal,
// gathered indices, strides with gaps).
std::optional<Box> box_of(const std::vector<Loop> &loops, const std::vector<Dim> &index);

// Whether the boxes together hold every element of `wanted`. kNo: for some sizes, of which every one of `demands`
// holds, there is an element in none of them. kUnknown: neither is seen.
enum class Cover : uint8_t { kYes, kNo, kUnknown };
Cover covers(const std::vector<Box> &boxes, const Box &wanted, const std::vector<DimConstraint> &demands = {});

}  // namespace optc
