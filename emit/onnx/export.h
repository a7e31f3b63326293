#pragma once
// emit/onnx: Graph -> a standard ONNX model. Names are kept; each operator is written in the form of the target opset,
// by its operator's version steps (`down`) or, where the target has no such operator, by ONNX's function body.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/graph/graph.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// The newest version of ai.onnx that optc writes.
inline constexpr int64_t kNewestOpset = 28;
// The lowest IR version that may carry an opset (ONNX's table of versions).
int64_t ir_of_opset(int64_t opset);
// The version of ai.onnx that the model imports; the newest that optc writes where it imports none.
int64_t opset_of(const Graph &graph);
// Whether that version has the operator (as Node::op spells it) for a first operand of such elements. Operators of
// optc's own are in none.
bool opset_has(int64_t opset, std::string_view op, ElementType of);

// What stands in a file: nodes of all graphs, a call of a function counted as its body; constants are no nodes.
struct FileFacts {
  int64_t opset = 0;  // of ai.onnx; 0: not imported
  int64_t nodes = 0, parameter_bytes = 0;
  std::map<std::string, int64_t> operators;  // as Node::op spells them
};
// Of a Graph as it was read from a file (importer.h, read_graph).
FileFacts facts_of_file(const Graph &as_written);

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
// `facts`, when given, gets what stands in the file. An empty `path` writes nothing and only counts.
Status export_file(const Graph &graph, const std::string &path, const ExportOptions &options, Diagnostics &diagnostics,
                   FileFacts *facts = nullptr);

}  // namespace optc
