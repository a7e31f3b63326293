#pragma once
// A model file as a ModelProto whose weights stay in the file.

#include <onnx/onnx_pb.h>

#include <string_view>

#include "importer/wire.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

bool is_model_text(std::string_view bytes);  // ONNX's text form, not a serialized ModelProto
// `scan` is the result of scan_model on the bytes. kInvalid when protobuf cannot parse it.
Status parse_model(const WireScan &scan, onnx::ModelProto &model, Diagnostics &diagnostics);

}  // namespace optc
