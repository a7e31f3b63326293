#pragma once
// convert/: a model file becomes another model file. It works on the messages themselves (ModelProto), not on a Graph:
// what is not asked to change stays as it is, in its order, with names, doc strings and metadata, and operators need
// not be known. Tensors are not copied through protobuf: they stay in the mapped files until they are written.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "importer/forms.h"
#include "ir/types.h"
#include "support/diagnostics.h"
#include "support/result.h"

namespace optc {

// Where the bytes of tensors go.
enum class WeightsPlace : uint8_t {
  kAsRead,    // as kExternal in OUT.data where the model has external data, else as kInside
  kInside,    // all in the model
  kExternal,  // initializers of at least `external_threshold` bytes into `external_file`
};

struct ConvertOptions {
  std::string input, output;      // no output: only weights_to is written
  std::optional<ModelForm> form;  // of the output; without it the output's name says it
  WeightsPlace weights = WeightsPlace::kAsRead;
  std::string external_file;  // lies beside the output or below it; relative to its folder
  int64_t external_threshold = 1024;
  // In the order in which they are done; what is empty changes nothing.
  int64_t opset = 0;  // version of ai.onnx; 0: the model's own
  // f32, f16 or bf16: what computes in another of these does so in this one (kUndefined: all as it is). Inputs and
  // outputs keep their types, with casts, unless `float_io`. `keep_float`: operators, "node:NAME" or "node:PREFIX*"
  // that stay.
  ElementType float_type = ElementType::kUndefined;
  bool float_io = false;
  std::vector<std::string> keep_float;
  std::string merge;  // a second model, which takes values of the first as its inputs:
  std::vector<std::pair<std::string, std::string>> connect;  // value of the first, input of the second
  std::string merge_prefix;                                  // of all other names of the second
  std::string extract;                                       // "a,b..c": the part between these values
  std::vector<std::pair<std::string, std::string>> rename;   // value, "dim:NAME" or "node:NAME"; the new name
  std::string weights_from, weights_to;                      // files of safetensors; initializers by name
  bool allow_loss = false;  // what the form cannot hold is left out and said in a warning
  bool force = false;       // files that the model is read from may be replaced
};

// What ConvertOptions::float_type did.
struct FloatFacts {
  int64_t nodes = 0, casts = 0, constants = 0;  // that have the new type; that were added; that were rounded
  struct Stays {
    std::string node, op, why;
  };
  std::vector<Stays> stays;  // nodes with floats that do not have it
};

// What was written.
struct ConvertFacts {
  ModelForm read_as = ModelForm::kBinary, form = ModelForm::kBinary;
  int64_t nodes = 0;  // of all graphs and functions
  int64_t tensors = 0, tensor_bytes = 0;
  std::vector<std::pair<std::string, int64_t>> opsets;  // domain ("ai.onnx" for the default one), version
  std::vector<std::pair<std::string, int64_t>> files;   // path, bytes; the model first
  std::optional<FloatFacts> floats;                     // of the first model, where its floats were changed
};

// Errors: kUsage, kIo, kInvalid (the model), kUnsupported (what the output's form cannot hold). Nothing is written
// then.
Status convert_model(const ConvertOptions &options, ConvertFacts &facts, Diagnostics &diagnostics);

}  // namespace optc
