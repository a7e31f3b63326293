#pragma once
// What an exporter noted at the nodes of a model file (`NodeProto.metadata_props`). A Graph does not carry it; `optc
// diff` reads it to link the nodes of an optimized model with those of the model that it was made of.

#include <string>
#include <unordered_map>
#include <vector>

#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

struct NodeNote {
  std::string node;  // its name, as the Graph that import_model makes of the file has it
  std::string key, value;
};

// The notes whose key begins with "optc.", of all nodes that have a name, those of subgraphs too. A model in text form
// has none. Errors as import_model's.
Result<std::vector<NodeNote>> read_notes(const std::string &path, Diagnostics &diagnostics);

// The modules of the exporting program that each node is of, outermost first ("m.encoder", "m.encoder.layer.0"), by
// node name; of models that PyTorch's exporter wrote ("pkg.torch.onnx.name_scopes"), else nothing.
Result<std::unordered_map<std::string, std::vector<std::string>>> noted_scopes(const std::string &path,
                                                                               Diagnostics &diagnostics);

}  // namespace optc
