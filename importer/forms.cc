#include "importer/forms.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <string>

#include "importer/internal_parse.h"

namespace optc {
namespace {

constexpr int kMaxDepth = 100;  // of brackets and messages, as protobuf's own limit on nested messages

struct Ending {
  std::string_view text;
  ModelForm form;
};
constexpr Ending kEndings[] = {
    {".onnxtxt", ModelForm::kText},       {".onnx.txt", ModelForm::kText},       {".json", ModelForm::kJson},
    {".onnxjson", ModelForm::kJson},      {".textproto", ModelForm::kTextProto}, {".pbtxt", ModelForm::kTextProto},
    {".prototxt", ModelForm::kTextProto}, {".onnx", ModelForm::kBinary},         {".pb", ModelForm::kBinary},
};

// How deep brackets nest outside of strings and comments.
int depth_of(std::string_view text) {
  int depth = 0, most = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
        break;
      case '#':
        while (i < text.size() && text[i] != '\n') ++i;
        break;
      case '(':
      case '[':
      case '{':
      case '<':
        most = std::max(most, ++depth);
        break;
      case ')':
      case ']':
      case '}':
      case '>':
        --depth;
        break;
      default:
        break;
    }
  }
  return most;
}

std::string parse_onnx_text(std::string_view text, onnx::ModelProto &model) {
  if (nests_too_deep(text)) return "brackets nest more than " + std::to_string(kMaxDepth) + " deep";
  try {
    onnx::OnnxParser parser(text);
    const onnx::Common::Status status = parser.Parse(model);
    if (!status.IsOK()) return status.ErrorMessage();
    return parser.EndOfInput() ? "" : "text after the end of the model";
  } catch (const std::exception &error) {
    return error.what();
  }
}

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string &message) override {
    if (text.empty())
      text = "line " + std::to_string(line + 1) + ", column " + std::to_string(column + 1) + ": " + message;
  }
  std::string text;
};

std::string parse_textproto(std::string_view text, onnx::ModelProto &model) {
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMaxDepth);
  if (parser.ParseFromString(std::string(text), &model)) return "";
  return error.text.empty() ? "it cannot be parsed" : error.text;
}

std::string parse_json(std::string_view text, onnx::ModelProto &model) {
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(text.data(), text.size()), &model, google::protobuf::util::JsonParseOptions());
  return status.ok() ? "" : std::string(status.message());
}

}  // namespace

bool nests_too_deep(std::string_view text) { return depth_of(text) > kMaxDepth; }

std::string_view to_string(ModelForm form) {
  switch (form) {
    case ModelForm::kBinary:
      return "binary";
    case ModelForm::kText:
      return "text";
    case ModelForm::kJson:
      return "json";
    case ModelForm::kTextProto:
      return "textproto";
  }
  return "";
}

std::optional<ModelForm> form_of_name(std::string_view path) {
  for (const Ending &ending : kEndings)
    if (path.size() >= ending.text.size() && path.substr(path.size() - ending.text.size()) == ending.text)
      return ending.form;
  return std::nullopt;
}

// A serialized ModelProto begins with small field keys (0x08 for the IR version); text has no control characters but
// white space.
ModelForm form_of_file(std::string_view path, std::string_view bytes) {
  const std::optional<ModelForm> named = form_of_name(path);
  if (named && *named != ModelForm::kBinary) return *named;
  const std::string_view head = bytes.substr(0, 512);
  char first = 0;
  for (const char c : head) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 && c != '\n' && c != '\r' && c != '\t') return ModelForm::kBinary;
    if (u > 0x20 && first == 0) first = c;
  }
  return first == 0 ? ModelForm::kBinary : first == '{' ? ModelForm::kJson : ModelForm::kText;
}

Status parse_text(ModelForm form, std::string_view text, onnx::ModelProto &model, Diagnostics &diagnostics) {
  if (text.starts_with("version https://git-lfs"))  // what a clone without Git LFS has in the place of a large file
    return diagnostics.error(ErrorKind::kInvalid, "the file is a pointer of Git LFS, not the model", "",
                             "fetch the model with 'git lfs pull'");
  const google::protobuf::LogSilencer quiet;  // what is wrong is said by a diagnostic
  std::string message = form == ModelForm::kText   ? parse_onnx_text(text, model)
                        : form == ModelForm::kJson ? parse_json(text, model)
                                                   : parse_textproto(text, model);
  if (message.empty()) return {};
  for (char &c : message)
    if (c == '\n') c = ' ';
  if (message.size() > 600) message = message.substr(0, 600) + "...";
  const char *what = form == ModelForm::kText   ? "the text"
                     : form == ModelForm::kJson ? "the JSON"
                                                : "the protobuf text";
  return diagnostics.error(ErrorKind::kInvalid, std::string(what) + " is not an ONNX model: " + message);
}

}  // namespace optc
