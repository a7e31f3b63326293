#pragma once
// Definite assignment (invariant P10 of a Program): every element of a temporary or an output that is read was written
// before. Told by the boxes that stores write and loads read (cover.h); where that is not seen (gathered indices,
// conditions, sizes that cannot be compared), nothing is said, and the evaluator's run of the lowered Program tells.

#include <functional>
#include <string>

#include "ir/program/program.h"

namespace optc {

// Calls `fail` for each read of elements that nobody wrote.
void check_assignment(const Program &program, const std::function<void(const std::string &)> &fail);

}  // namespace optc
