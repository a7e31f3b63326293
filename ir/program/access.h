#pragma once
// Where loads and stores lie in memory, as expressions of the loop counters.

#include <optional>
#include <vector>

#include "ir/program/program.h"

namespace optc {

// What a buffer is in memory: the root of its alias chain, and the offset into it in elements.
struct Root {
  BufferId buffer;
  Dim offset;
};
Root root_of(const Program &program, BufferId id);
// Element offset of a logical index, counted from the root buffer's first element.
Dim root_offset(const Program &program, BufferId id, const std::vector<Dim> &index);

// Whether an expression reads a loop counter, through gathered indices too.
bool uses_loop(const Program &program, ScalarId id, const DimSymbol *symbol);
bool uses_loop(const Program &program, Dim d, const DimSymbol *symbol);
// How an offset moves with a loop counter; nullopt where it is not affine in it, or holds a gathered index that moves,
// too.
std::optional<AffinePart> affine_over(const Program &program, Dim offset, const DimSymbol *symbol);

}  // namespace optc
