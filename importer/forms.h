#pragma once
// The forms in which a model lies in a file. What every reader of models understands, and `optc convert` writes.

#include <cstdint>
#include <optional>
#include <string_view>

namespace optc {

enum class ModelForm : uint8_t {
  kBinary,     // a serialized ModelProto: .onnx, .pb
  kText,       // ONNX's text form: .onnxtxt, .onnx.txt
  kJson,       // protobuf's JSON mapping of a ModelProto: .json, .onnxjson
  kTextProto,  // protobuf's text format of a ModelProto: .textproto, .pbtxt, .prototxt
};
std::string_view to_string(ModelForm form);  // "binary", "text", "json", "textproto"

// The form that a file's name ends in; nothing for another ending.
std::optional<ModelForm> form_of_name(std::string_view path);
// The form of a file that is there: by its name, else by what stands in it.
ModelForm form_of_file(std::string_view path, std::string_view bytes);

}  // namespace optc
