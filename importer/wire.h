#pragma once
// A scan of a ModelProto in protobuf's wire format. It finds every TensorProto.raw_data, wherever a tensor may stand
// (initializers, attributes, sparse tensors, subgraphs, functions), and makes a reduced stream that protobuf then
// parses: each raw_data is replaced by its four-byte index into `raw`. So weights are mapped, never copied, and a file
// beyond protobuf's 2 GB can be read. https://protobuf.dev/programming-guides/encoding

#include <cstdint>
#include <string>
#include <vector>

#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct WireSpan {
  uint64_t offset = 0, length = 0;  // in the scanned bytes
};

struct WireScan {
  std::string reduced;
  std::vector<WireSpan> raw;
};

// training_info is no part of inference and is dropped, or kept as it is, its tensors with their bytes.
enum class Training : uint8_t { kDrop, kKeep };

// kInvalid when the stream is cut short or malformed.
Result<WireScan> scan_model(const uint8_t *data, size_t size, Diagnostics &diagnostics,
                            Training training = Training::kDrop);

}  // namespace optc
