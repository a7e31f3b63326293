#pragma once
// importer/: an ONNX model becomes a Graph of one opset version. The only place but convert/ that reads a ModelProto.
//
// A model file is hostile until proven otherwise: no size, index, path or depth in it is trusted, and every wrong model
// ends in one clear error. Weights stay where they are (the mapped model file or its external data) and are never
// copied through protobuf.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph/graph.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// A named dimension pinned to a value (min == max) or to a range.
struct DimPin {
  std::string name;
  int64_t min = 0;
  int64_t max = kDimOverflow;
};

// An operator that the application supplies as a C function of the bundle.
struct ExternOperator {
  std::string domain, name;
  // The types of its outputs, dims as text ("1", "N"); empty: those that the model declares.
  std::vector<std::pair<ElementType, std::vector<std::string>>> outputs;
};

struct ImportOptions {
  std::vector<DimPin> dims;
  // Shapes of inputs that take the place of the declared ones: input name -> dims as text ("1", "N", "2*N + 1").
  std::vector<std::pair<std::string, std::vector<std::string>>> shapes;
  // Files of functions in ONNX's text form, which give operators of domains that neither ONNX nor optc knows a body.
  std::vector<std::string> custom_ops;
  std::vector<ExternOperator> externs;
  int64_t max_nodes = int64_t{1} << 17;  // after functions are inlined
  // An initializer that is listed as an input too is a constant, as before IR 4, and no default that a caller may
  // replace.
  bool constant_defaults = false;
};

// Reads a model in any of its forms (forms.h). External data is looked up in the model's folder only. Errors: kIo
// (cannot be read), kInvalid, kUnsupported (all unsupported operators in one diagnostic), kUsage (a pin that names
// nothing).
Result<Graph> import_model(const std::string &path, const ImportOptions &options, Diagnostics &diagnostics);

// The same from bytes that `owner` keeps alive (constants of the Graph point into them). `folder` is where external
// data lies; empty: a model with external data is refused.
Result<Graph> import_bytes(std::string_view bytes, std::shared_ptr<const void> owner, const std::string &folder,
                           const ImportOptions &options, Diagnostics &diagnostics);

// The graph as the file has it, of whatever operators and domains: for comparing files, not for compiling. Nothing is
// checked against an operator's definition, brought to another version, expanded or inferred: a value has the type that
// the file declares, or none. Three things are read as import_model reads them: Constant nodes are constants, calls of
// the model's own functions are their bodies, and attributes that ONNX gives a default are present. An attribute that
// is a list of tensors, types or graphs is one attribute (or region) an item: "name[0]", "name[1]". Errors as
// import_model's, but for operators: kUnsupported is left for what a Graph cannot hold.
Result<Graph> read_graph(const std::string &path, Diagnostics &diagnostics);

}  // namespace optc
