#pragma once
// The files of operators: one line each, by name. A file defines `std::span<const OpDef> NAME_ops();`.

#define OPTC_OP_FILES(X) \
  X(activation)          \
  X(binary)              \
  X(cast)                \
  X(unary)
