#pragma once
// Placement of temporaries in one arena, by lifetime (ir/program/placement.h). In place: a kernel's result takes over
// the bytes of an operand that dies there, when each element is read only where it is written.
//
// With symbolic sizes the order and lifetimes are fixed here and the offsets are found at run time by the same search
// (runtime/bundle); Placement::offset is then kDimOverflow and Program::arena_bytes likewise.

#include "ir/program/program.h"
#include "lowering/steps.h"

namespace optc {

void place_buffers(Program &program, Steps &steps);

}  // namespace optc
