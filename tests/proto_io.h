#pragma once
// Serialized values of ONNX tests (TensorProto, SequenceProto, OptionalProto in input_I.pb and output_I.pb) <->
// RuntimeValue.

#include <string>
#include <string_view>

#include "evaluate/evaluate.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc::testing {

// Parses bytes as the kind of value that `type` says.
Result<RuntimeValue> parse_value(std::string_view bytes, const Type &type, const std::string &what,
                                 Diagnostics &diagnostics);
std::string serialize_value(const RuntimeValue &value, const Type &type, const std::string &name);

}  // namespace optc::testing
