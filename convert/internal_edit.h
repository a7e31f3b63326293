#pragma once
// What changes a model besides its form. Each leaves a whole model or fails with one error. Seen by convert/ only.

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/internal_model.h"

namespace optc {

// names.cc
using NameSet = std::unordered_set<std::string>;
using NameMap = std::unordered_map<std::string, std::string>;
NameSet value_names(const onnx::GraphProto &graph);  // of the graph and of those inside it
NameSet node_names(const onnx::GraphProto &graph);
std::string fresh_name(const std::string &wish, NameSet &taken);  // `wish`, or wish_2, ...; is then taken
// Values that are in the map get their new name, in all graphs.
void rename_values(onnx::GraphProto &graph, const NameMap &names);
// Values of outer graphs that the node's graphs read, in order, each once.
std::vector<std::string> captures(const onnx::NodeProto &node);
// --rename OLD=NEW of a value, dim:OLD=NEW of a dimension's name, node:OLD=NEW of a node.
Status rename(ModelFile &model, const std::vector<std::pair<std::string, std::string>> &renames,
              Diagnostics &diagnostics);

// types.cc: types of the values of all graphs by name, as declared or as ONNX's inference finds them.
// What ONNX's inference, which checks types as it goes, finds wrong in the model; empty: nothing.
std::string type_fault(const onnx::ModelProto &model);
onnx::ModelProto with_types(const onnx::ModelProto &model);  // ONNX's inference written into it, where it succeeds
using TypesByName = std::unordered_map<std::string, onnx::TypeProto>;
// `ambiguous`: names of graphs beside one another that are values of different types; these have none.
TypesByName infer_types(const onnx::ModelProto &model, NameSet *ambiguous = nullptr);
// Adds what optc's own inference knows of the file that the model was read from, which follows constants and values of
// outer graphs further: nothing where it has an operator that optc does not know.
void add_types_of_file(const std::string &path, const NameSet &ambiguous, TypesByName &types);
std::string type_text(const onnx::TypeProto &type);  // "tensor(float)"; empty: not known

// extract.cc: the part of the main graph between the values named in "a,b..c,d".
Status extract(ModelFile &model, const std::string &range, Diagnostics &diagnostics);

// merge.cc: `other` behind `model`, its inputs (second) fed by values of the model (first). All other names of `other`
// get the prefix; where it is empty, names that both have are an error if they are inputs or outputs, and changed
// otherwise.
Status merge(ModelFile &model, ModelFile other, const std::vector<std::pair<std::string, std::string>> &connect,
             const std::string &prefix, Diagnostics &diagnostics);

// inline.cc
bool can_inline(const onnx::ModelProto &model);  // whether the calls of local functions are not too many to follow
// Calls of local functions become the nodes of their bodies; a warning says `why`.
Status inline_functions(onnx::ModelProto &model, const std::string &why, Diagnostics &diagnostics);

// opset.cc: every node in its form of that version of ai.onnx; nodes whose definition is the same stay as they are.
Status set_opset(ModelFile &model, int64_t opset, Diagnostics &diagnostics);

// The same Constant with its value as a tensor, where it has one of the attributes that came with opset 12.
bool constant_as_tensor(onnx::NodeProto &node);

// floats.cc: f32, f16 and bf16 become ConvertOptions::float_type, but for what has no such form or would lose more than
// rounding.
Status set_float_type(ModelFile &model, const ConvertOptions &options, ConvertFacts &facts, Diagnostics &diagnostics);

// safetensors.cc: https://github.com/huggingface/safetensors, initializers by name.
Status write_safetensors(ModelFile &model, const ConvertOptions &options, ConvertFacts &facts,
                         Diagnostics &diagnostics);
Status read_safetensors(ModelFile &model, const std::string &path, Diagnostics &diagnostics);

}  // namespace optc
