#pragma once
// A model file as a ModelProto whose weights stay in the file. Seen by importer/ and convert/ only.

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <string_view>

#include "importer/forms.h"
#include "importer/wire.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// A model in any form but binary. kInvalid when it cannot be parsed, or nests too deep.
Status parse_text(ModelForm form, std::string_view text, onnx::ModelProto &model, Diagnostics &diagnostics);
// Whether ONNX's parser, which calls itself for each bracket and knows no limit, must not be given the text.
bool nests_too_deep(std::string_view text);
// `scan` is the result of scan_model on the bytes. kInvalid when protobuf cannot parse it.
Status parse_model(const WireScan &scan, onnx::ModelProto &model, Diagnostics &diagnostics);
// check.cc. The number of nodes once local functions are inlined; more than `limit` is limit + 1.
int64_t inlined_nodes(const onnx::ModelProto &model, int64_t limit);

}  // namespace optc
