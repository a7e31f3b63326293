#pragma once
// The order of nodes in a file. Seen by importer/ only.

#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include <onnx/onnx_pb.h>

#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

using NodeList = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

// Calls `use` for each name that the graph takes from around it (captures), nested graphs included. May repeat a name.
void for_each_capture(const onnx::GraphProto &graph, const std::function<void(const std::string &)> &use);

// The values that a node names in its attributes (Gradient: those of xs, of zs, and y), which must come before it too.
std::vector<std::string> names_in_attributes(const onnx::NodeProto &node);

// The order in which nodes can be converted: the file's where it is sorted (as ONNX demands), else a stable topological
// order. A cycle is an error that names it.
Result<std::vector<int>> node_order(const NodeList &nodes, Diagnostics &diagnostics);

// A node's name in messages and origins: its own, or "Op_index".
std::string node_label(const onnx::NodeProto &node, int64_t index);

}  // namespace optc
