#pragma once
// A model in memory while it is converted. Seen by convert/ only.

#include <onnx/onnx_pb.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "convert/convert.h"
#include "ir/constant.h"

namespace optc {

// Tensors of at least kKeptOutside bytes hold no data in `proto`, but a note (`weight_of`) of their place in `weights`.
struct ModelFile {
  std::string path;
  onnx::ModelProto proto;
  std::vector<Constant> weights;
  ModelForm form = ModelForm::kBinary;
  bool has_external = false;         // some of its tensors were external data
  std::set<std::string> read_files;  // canonical paths of the model and of its external data
};
inline constexpr size_t kKeptOutside = 256;

// read.cc. Each tensor is checked: its dims, type and bytes fit.
Result<ModelFile> read_model_file(const std::string &path, Diagnostics &diagnostics);
// The weight that the tensor's data stands in; null: in the tensor itself.
const Constant *weight_of(const ModelFile &model, const onnx::TensorProto &tensor);
// The tensor's data becomes `value`, of the type and dims that the tensor then has.
void set_weight(ModelFile &model, onnx::TensorProto &tensor, Constant value);
// Reads a tensor wherever its data stands.
Result<Constant> tensor_value(const ModelFile &model, const onnx::TensorProto &tensor, const std::string &what,
                              Diagnostics &diagnostics);

// walk.cc. Tensors of all graphs, attributes and functions in order. training_info is left out. A failure ends the
// walk.
struct TensorPlace {
  std::string what;          // words for messages: "initializer 'w'"
  bool initializer = false;  // of a graph, and dense
};
using TensorVisitor = std::function<Status(onnx::TensorProto &, const TensorPlace &place)>;
Status for_each_tensor(onnx::ModelProto &model, const TensorVisitor &visit);
// All graphs, those in attributes of nodes too: outer ones first.
void for_each_graph(onnx::GraphProto &graph, const std::function<void(onnx::GraphProto &)> &visit);
int64_t count_nodes(const onnx::ModelProto &model);

// write.cc
// A file that the model is read from is not replaced by accident: other models may have their weights in it.
Status check_not_read(const ModelFile &model, const std::string &path, bool force, Diagnostics &diagnostics);
Status write_model_file(ModelFile &model, const ConvertOptions &options, ConvertFacts &facts, Diagnostics &diagnostics);

// loss.cc. What one message holds and the other does not, by kind of thing.
struct Loss {
  std::vector<std::string> notes;    // what computes nothing: "doc_string of 3 nodes"
  std::vector<std::string> content;  // what the model computes with
};
// Both with their tensors' data inside or as external data of the same files.
Loss compare_models(const onnx::ModelProto &before, const onnx::ModelProto &after);

}  // namespace optc
