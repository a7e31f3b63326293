#pragma once
// Values in files: .npy (NumPy), and .pb (TensorProto, SequenceProto, OptionalProto or MapProto, as
// ONNX's own tests keep them).

#include <string>

#include "evaluate/evaluate.h"
#include "ir/types.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// `expected` says which kind of message a .pb file holds, and which type raw two-byte NumPy data has; kNone: a tensor.
Result<RuntimeValue> read_value(const std::string &path, const Type &expected, Diagnostics &diagnostics);
// Tensors of types that NumPy has no name for (bfloat16, float8, 4 bits, strings) and everything that is not a tensor
// go to .pb only.
Status write_value(const std::string &path, const RuntimeValue &value, Diagnostics &diagnostics);
bool has_numpy_type(ElementType type);

}  // namespace optc
