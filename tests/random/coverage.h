#pragma once
// What a lowered Program exercises, as words: cells of the table that a run of random graphs must fill.

#include <string>
#include <vector>

#include "ir/program/program.h"

namespace optc::testing {

// Each kernel, in control flow too, gives "STRATEGY", "STRATEGY/OPERAND/EPILOGUE" for each form of its operands, and
// kernels of a contraction also "STRATEGY:EDGE" for where its sizes end between whole tiles. Sorted, each once.
//   STRATEGY   name of the Schedule ("gemm" is "gemm.constant" or "gemm.given" by B), "library.FUNCTION", "if", "loop"
//   OPERAND    input, constant or temporary, where the storage is plain; "view" (shares another buffer's bytes),
//              "part" (a view at an offset), "permuted" (another order than row-major), "padded"
//   EPILOGUE   "store" (the result alone); "map" (arithmetic behind a contraction or reduction); "reads" (which reads
//              other tensors); with "+many" where it stores several tensors and "+part" where it stores into a view
std::vector<std::string> coverage_cells(const Program &program);

}  // namespace optc::testing
