#pragma once
// How an element type is spelled in emitted code: as stored in memory, and as held in a scalar variable or in vector
// lanes.

#include <string>

#include "ir/types.h"

namespace optc {

struct CppType {
  const char *storage;  // element of a pointer: "float", "uint16_t" for f16, "uint8_t" for bool and packed types
  const char *value;    // a scalar variable: "float" for every small float, "int8_t" for i4, "bool"
  const char *suffix;   // names the format in the runtime's conversion functions ("f16", "i4"); null: plain C++ type
  int per_byte;         // elements in a byte of storage: 1, 2 (4-bit) or 4 (2-bit)
};
const CppType &cpp_type(ElementType type);
bool is_small_float(ElementType type);  // held as f32: f16, bf16, float8, float4

}  // namespace optc
