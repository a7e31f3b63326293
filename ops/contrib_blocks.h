#pragma once
// What the operators of com.microsoft share that have weights packed in bytes.

#include "ops/body.h"

namespace optc {

// Bytes [..., n] as the numbers of `bits` (2, 4 or 8) that they hold, the low bits first: uint8 [..., n * 8 / bits].
ValueId unpacked(Body &body, ValueId bytes, int64_t bits);
// The same; a constant keeps its bytes and gets the type that they have.
ValueId packed_integers(Body &body, ValueId bytes, int64_t bits);

}  // namespace optc
