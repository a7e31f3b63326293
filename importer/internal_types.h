#pragma once
// TypeProto and dim_param -> Type and Dim. Seen by importer/ only.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "importer/importer.h"

namespace onnx {
class TensorShapeProto;
class TypeProto;
}  // namespace onnx

namespace optc {

// Names of dimensions in a file are labels without a grammar: "batch", "", "?", "-1", "s0 + 1", formulas of 400
// characters. A name that is an identifier becomes the model's symbol of that name; a formula over such symbols becomes
// that expression; anything else a symbol with a sanitized name (equal labels stay equal), and an empty label a symbol
// of its own.
class DimNamer {
 public:
  DimNamer(DimTable &table, const ImportOptions &options) : table_(table), options_(options) {}

  // Notes the plain names among a main input's dims: formulas may use them, whichever input comes first.
  void note_plain_names(const onnx::TypeProto &type);
  // The type of a main input. `--shape` of that name takes the declared shape's place.
  Result<Type> input_type(const onnx::TypeProto &type, const std::string &input, Diagnostics &diagnostics);
  // A declared type inside the model. Known names keep their symbol, other dims are not taken: `shape` is left out when
  // any dim is unknown.
  Result<Type> inner_type(const onnx::TypeProto &type, const std::string &value, Diagnostics &diagnostics);
  // Reports pins that named nothing.
  Status check_pins(Diagnostics &diagnostics) const;

 private:
  Result<Type> convert(const onnx::TypeProto &type, const std::string &value, bool input, int depth,
                       Diagnostics &diagnostics);
  Dim label(const std::string &text, const std::string &value, int axis);
  Dim plain(const std::string &name);
  Dim fresh(const std::string &value, int axis);
  std::optional<Dim> given_dim(const std::string &text, std::optional<Dim> declared, const std::string &input,
                               int axis);

  DimTable &table_;
  const ImportOptions &options_;
  std::map<std::string, Dim> labels_;  // of main inputs
  std::map<std::string, bool> plain_;  // plain names -> noted
  std::vector<std::string> pinned_, names_;
  std::vector<std::string> shaped_;
};

// Element type and constant dims only: what ONNX's function bodies ask of their inputs' types. False: has no TypeProto
// form.
bool to_type_proto(const Type &type, onnx::TypeProto &out);

}  // namespace optc
