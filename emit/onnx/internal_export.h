#pragma once
// The parts of the exporter. Seen by emit/onnx, and write_type by convert/.

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emit/onnx/export.h"
#include "ops/registry.h"

namespace optc {

std::pair<std::string, std::string> split_op(std::string_view op);  // domain ("" for ai.onnx), operator
const onnx::OpSchema *schema_at(const std::string &domain, const std::string &op, int64_t version);

// own_ops.cc: operators that only optc has become ONNX's.
Status lower_own_operators(Graph &graph, Diagnostics &diagnostics);
// norm_chains.cc: normalizations that `opset` lacks become chains of the newest version's operators.
Status lower_normalizations(Graph &graph, int64_t opset, Diagnostics &diagnostics);
// form_chains.cc: the same for other operators and forms of them (Gelu, parts of shapes, shapes with zeros).
Status lower_later_forms(Graph &graph, int64_t opset, Diagnostics &diagnostics);
// versions.cc: brings every node to the form of `opset` (of ai.onnx; other domains keep optc's version).
Status lower_versions(Graph &graph, int64_t opset, Diagnostics &diagnostics);
// The nodes of ONNX's function body for a node whose operator `opset` lacks; empty when there is none that `opset` can
// say.
std::vector<onnx::NodeProto> function_body(const onnx::NodeProto &node, const std::vector<onnx::TypeProto> &input_types,
                                           int64_t opset, int depth = 0);

// Takes the Constant nodes out of such a body: they become initializers, of the type that a CastLike behind them would
// give where `known` (names of values of the call) says it, and those CastLikes go.
std::vector<onnx::TensorProto> take_constants(std::vector<onnx::NodeProto> &body,
                                              const std::unordered_map<std::string, ElementType> &known);

// proto.cc
void write_type(const Type &type, onnx::TypeProto &out);
// False: the attribute holds what ONNX cannot say.
bool write_attribute(const std::string &name, const Attribute &attribute, onnx::AttributeProto &out);
// All of a TensorProto but its raw_data; false: the data is in it already (strings).
bool write_tensor_header(const std::string &name, const Constant &constant, onnx::TensorProto &out);
void write_tensor(const std::string &name, const Constant &constant, onnx::TensorProto &out);

}  // namespace optc
