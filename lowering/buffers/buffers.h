#pragma once
// The one plan of memory: which temporaries lie in the arena, from which kernel to which (Program::placements, by
// buffer), and whose results take over the bytes of an operand that dies there, because each element is read only where
// it is written. ir/program/placement.h says what must hold of it. Sharing bytes over time is the last step of lowering
// ("place.share"): without it each buffer has its own, so that bisection tells a wrong plan from a wrong kernel.
//
// Offsets are found by the search of runtime/bundle/place.h: here where all sizes are constant, else (offset and
// Program::arena_bytes are kDimOverflow then) by the bundle, for the dims of a run.

#include "ir/program/program.h"
#include "lowering/steps.h"

namespace optc {

void place_buffers(Program &program, Steps &steps);
// Nothing in the bytes of operands: for a Program that is not lowered.
void place_buffers(Program &program);

}  // namespace optc
