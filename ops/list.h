#pragma once
// The files of operators: one line each. A file defines `std::span<const OpDef> NAME_ops();`.

#define OPTC_OP_FILES(X) \
  X(math)                \
  X(matmul)              \
  X(softmax)
