#pragma once
// emit/onnx: Graph -> a standard ONNX model. Names are kept; each operator is written in the form of the target opset,
// by its operator's version steps (`down`) or, where the target has no such operator, by ONNX's function body.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph/graph.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct ExportOptions {
  // Version of ai.onnx. 0: the model's own, or the lowest above it that can say the Graph (a warning tells which).
  int64_t opset = 0;
  // Constants of at least `external_threshold` bytes go to NAME.data beside the model. Also done when the model would
  // exceed 2 GB.
  bool external = false;
  int64_t external_threshold = 1024;
  // The rules that shaped what came from an origin: noted at its nodes as metadata `optc.rules`, beside `optc.origin`,
  // where a node is no longer the model's own. `optc diff` reads both.
  std::unordered_map<uint32_t, std::vector<std::string>> rules;
};

// The whole model in memory, weights inside. Fails with kUnsupported beyond 2 GB and where the opset cannot say the
// Graph.
Result<std::string> export_model(const Graph &graph, const ExportOptions &options, Diagnostics &diagnostics);
// Writes `path` (and `path`.data); constants go from where they lie to the file, without a copy in memory.
Status export_file(const Graph &graph, const std::string &path, const ExportOptions &options, Diagnostics &diagnostics);

}  // namespace optc
