#pragma once
// What an exporter noted at the nodes of a model file (`NodeProto.metadata_props`). A Graph does not carry it; `optc
// diff` reads it to link the nodes of an optimized model with those of the model that it was made of.

#include <string>
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

}  // namespace optc
