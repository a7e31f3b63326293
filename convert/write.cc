#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <onnx/defs/printer.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "convert/internal_model.h"
#include "importer/internal_parse.h"
#include "support/staging.h"

namespace optc {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxProtobuf = INT32_MAX - (size_t{1} << 20);
constexpr size_t kMaxTextWeights = size_t{256} << 20;
constexpr size_t kExternalAlignment = 4096;  // as ONNX recommends for mapping

// The file of external data, laid out: equal bytes in memory stand in it once.
class DataFile {
 public:
  void place(onnx::TensorProto &tensor, const Constant &value, const std::string &location) {
    const auto [it, fresh] = offsets_.try_emplace({value.data(), value.size()}, 0);
    if (fresh) {
      end_ = (end_ + kExternalAlignment - 1) / kExternalAlignment * kExternalAlignment;
      it->second = end_;
      end_ += value.size();
      pieces_.emplace_back(it->second, value);
    }
    tensor.clear_external_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    const auto put = [&](const char *key, const std::string &text) {
      auto *entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(text);
    };
    put("location", location);
    put("offset", std::to_string(it->second));
    put("length", std::to_string(value.size()));
  }

  bool empty() const { return pieces_.empty(); }
  size_t size() const { return end_; }
  void write(StagedFile &file) const {
    const std::string zeros(kExternalAlignment, '\0');
    size_t at = 0;
    for (const auto &[offset, value] : pieces_) {
      file.write(zeros.data(), offset - at);
      file.write(value.data(), value.size());
      at = offset + value.size();
    }
  }

 private:
  std::map<std::pair<const uint8_t *, size_t>, size_t> offsets_;
  std::vector<std::pair<size_t, Constant>> pieces_;
  size_t end_ = 0;
};

class ToStagedFile : public google::protobuf::io::CopyingOutputStream {
 public:
  explicit ToStagedFile(StagedFile &file) : file_(file) {}
  bool Write(const void *data, int size) override {
    file_.write(data, static_cast<size_t>(size));
    written += static_cast<size_t>(size);
    return true;
  }
  size_t written = 0;

 private:
  StagedFile &file_;
};

bool is_identifier(const std::string &text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// ONNX's text form. A tensor in an attribute has no name there but an identifier.
std::string print_onnx_text(const onnx::ModelProto &proto) {
  onnx::ModelProto printed = proto;
  std::function<void(onnx::NodeProto &)> strip = [](onnx::NodeProto &node) {
    for (auto &attribute : *node.mutable_attribute())
      if (attribute.has_t() && !is_identifier(attribute.t().name())) attribute.mutable_t()->clear_name();
  };
  for_each_graph(*printed.mutable_graph(), [&](onnx::GraphProto &graph) {
    for (auto &node : *graph.mutable_node()) strip(node);
  });
  for (auto &function : *printed.mutable_functions())
    for (auto &node : *function.mutable_node()) strip(node);
  std::ostringstream out;
  out << printed;
  return std::move(out).str() + "\n";
}

// Elements that ONNX's text form prints as "...": pairs of complex numbers and packed sub-byte types.
Status check_printable(onnx::ModelProto &proto, Diagnostics &diagnostics) {
  return for_each_tensor(proto, [&](onnx::TensorProto &tensor, const TensorPlace &place) -> Status {
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL || tensor.data_type() == onnx::TensorProto::STRING)
      return {};
    std::ostringstream out;
    onnx::TensorProto one;
    one.set_data_type(tensor.data_type());
    out << one;
    if (out.str().find("...") == std::string::npos) return {};
    const auto type = static_cast<onnx::TensorProto::DataType>(tensor.data_type());
    return diagnostics.error(
        ErrorKind::kUnsupported,
        place.what + ": ONNX's text form has no elements of type " + onnx::TensorProto::DataType_Name(type), {},
        "--external-data FILE --threshold 0 keeps initializers outside; --to json holds them");
  });
}

// protobuf prints -0.0 as the integer -0, and reads that as 0.
std::string with_negative_zeros(const std::string &json) {
  std::string out;
  out.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') {
      const size_t from = i;
      for (++i; i < json.size() && json[i] != '"'; ++i) i += json[i] == '\\';
      out.append(json, from, i + 1 - from);
      continue;
    }
    out += json[i];
    const char next = i + 1 < json.size() ? json[i + 1] : 0;
    if (json[i] == '0' && i > 0 && json[i - 1] == '-' && (next == ',' || next == '\n' || next == ' ' || next == '}'))
      if (i < 2 || (json[i - 2] != 'e' && json[i - 2] != 'E')) out += ".0";
  }
  return out;
}

std::string joined(const std::vector<std::string> &list) {
  std::string text;
  for (const std::string &item : list) text += (text.empty() ? "" : ", ") + item;
  return text;
}

// The model in a form of text, which is read back: what is not there any more is lost.
Result<std::string> text_of(onnx::ModelProto &proto, ModelForm form, const ConvertOptions &options,
                            Diagnostics &diagnostics) {
  std::string text;
  if (form == ModelForm::kText) {
    OPTC_TRY(check_printable(proto, diagnostics));
    text = print_onnx_text(proto);
  } else if (form == ModelForm::kJson) {
    google::protobuf::util::JsonPrintOptions print;
    print.add_whitespace = true;
    print.preserve_proto_field_names = true;
    const auto status = google::protobuf::util::MessageToJsonString(proto, &text, print);
    if (!status.ok())
      return diagnostics.error(ErrorKind::kUnsupported, "JSON cannot hold the model: " + std::string(status.message()));
    text = with_negative_zeros(text);
  } else if (!google::protobuf::TextFormat::PrintToString(proto, &text)) {
    return diagnostics.error(ErrorKind::kUnsupported, "protobuf's text format cannot hold the model");
  }
  const std::string name(to_string(form));
  onnx::ModelProto back;
  Diagnostics reading;
  if (!parse_text(form, text, back, reading).ok())
    return diagnostics.error(ErrorKind::kUnsupported,
                             "the " + name + " form cannot hold the model: what is written cannot be read back: " +
                                 (reading.all().empty() ? "" : reading.all().front().message),
                             {}, form == ModelForm::kText ? "--to json or --to textproto may hold it" : "");
  const Loss loss = compare_models(proto, back);
  if (!loss.content.empty())
    return diagnostics.error(ErrorKind::kUnsupported,
                             "the " + name + " form cannot hold what the model computes with: " + joined(loss.content),
                             {}, form == ModelForm::kText ? "--to json or --to textproto may hold it" : "");
  if (!loss.notes.empty() && !options.allow_loss)
    return diagnostics.error(
        ErrorKind::kUnsupported, "the " + name + " form cannot hold " + joined(loss.notes), {},
        std::string("--allow-loss leaves them out") + (form == ModelForm::kText ? "; --to json holds them" : ""));
  if (!loss.notes.empty())
    diagnostics.warning("left out, which the " + name + " form cannot hold: " + joined(loss.notes));
  return text;
}

// A path of external data as a model states it: relative, below the model's folder.
Status check_external_name(const ConvertOptions &options, Diagnostics &diagnostics) {
  const fs::path path(options.external_file);
  bool good = !path.empty() && path.is_relative() && options.external_file.find('\\') == std::string::npos &&
              path.has_filename();
  for (const fs::path &part : path) good = good && part != "..";
  if (good) return {};
  return diagnostics.error(
      ErrorKind::kUsage,
      "--external-data " + options.external_file + " does not lie in the folder of " + options.output, {},
      "name a file relative to that folder, without ..");
}

}  // namespace

Status check_not_read(const ModelFile &model, const std::string &path, bool force, Diagnostics &diagnostics) {
  std::error_code error;
  const fs::path full = fs::canonical(path, error);
  if (error || force || !model.read_files.count(full.string())) return {};
  return diagnostics.error(ErrorKind::kUsage, "the model is read from " + path + ", which would be replaced", {},
                           "another name keeps it; --force replaces it");
}

Status write_model_file(ModelFile &model, const ConvertOptions &options, ConvertFacts &facts,
                        Diagnostics &diagnostics) {
  const std::optional<ModelForm> form = options.form ? options.form : form_of_name(options.output);
  if (!form)
    return diagnostics.error(ErrorKind::kUsage, "the name " + options.output + " does not say which form to write", {},
                             "end it in .onnx, .onnxtxt, .json or .textproto, or give --to");
  const google::protobuf::LogSilencer quiet;
  facts.form = *form;
  onnx::ModelProto &proto = model.proto;
  size_t bytes = 0, inside = proto.ByteSizeLong();
  OPTC_TRY(for_each_tensor(proto, [&](onnx::TensorProto &tensor, const TensorPlace &) -> Status {
    const Constant *weight = weight_of(model, tensor);
    ++facts.tensors;
    if (weight) bytes += weight->size();
    return {};
  }));
  facts.tensor_bytes = static_cast<int64_t>(bytes);
  bool external =
      options.weights == WeightsPlace::kExternal || (options.weights == WeightsPlace::kAsRead && model.has_external);
  if (!external && *form == ModelForm::kBinary && inside + bytes > kMaxProtobuf) {
    if (options.weights == WeightsPlace::kInside)
      return diagnostics.error(ErrorKind::kUnsupported, "the model has more than 2 GB, which no ONNX file can hold", {},
                               "--external-data FILE puts the weights beside it");
    external = true;
  }
  ConvertOptions placed = options;
  if (placed.external_file.empty()) placed.external_file = fs::path(options.output).filename().string() + ".data";
  DataFile data;
  // Tensors too short to be kept outside of the message while it is read stay in it, but for a lower threshold.
  OPTC_TRY(for_each_tensor(proto, [&](onnx::TensorProto &tensor, const TensorPlace &place) -> Status {
    if (tensor.data_type() == onnx::TensorProto::STRING) return {};
    const bool kept = weight_of(model, tensor) != nullptr;
    const bool outside = external && place.initializer;
    if (!kept && (!outside || options.external_threshold >= static_cast<int64_t>(kKeptOutside))) return {};
    OPTC_ASSIGN(const Constant value, tensor_value(model, tensor, place.what, diagnostics));
    if (outside && value.size() > 0 && static_cast<int64_t>(value.size()) >= options.external_threshold) {
      tensor.clear_raw_data();
      tensor.clear_float_data();
      tensor.clear_int32_data();
      tensor.clear_int64_data();
      tensor.clear_uint64_data();
      tensor.clear_double_data();
      data.place(tensor, value, placed.external_file);
    } else if (kept) {
      tensor.clear_external_data();
      tensor.clear_data_location();
      tensor.set_raw_data(value.data(), value.size());
      inside += value.size();
    }
    return {};
  }));
  if (!data.empty()) OPTC_TRY(check_external_name(placed, diagnostics));
  const std::string data_path = (fs::path(options.output).parent_path() / placed.external_file).string();
  OPTC_TRY(check_not_read(model, options.output, options.force, diagnostics));
  if (!data.empty()) OPTC_TRY(check_not_read(model, data_path, options.force, diagnostics));
  if (!data.empty() && fs::path(data_path).lexically_normal() == fs::path(options.output).lexically_normal())
    return diagnostics.error(ErrorKind::kUsage, "--external-data names the model's own file");

  std::string text;
  if (*form != ModelForm::kBinary) {
    if (inside > kMaxTextWeights)
      return diagnostics.error(ErrorKind::kUnsupported,
                               "the model has " + std::to_string(inside >> 20) + " MiB of weights, too much for text",
                               {}, "--external-data FILE puts them beside it");
    OPTC_ASSIGN(text, text_of(proto, *form, options, diagnostics));
  } else if (proto.ByteSizeLong() > kMaxProtobuf) {
    return diagnostics.error(ErrorKind::kUnsupported, "the model has more than 2 GB besides its large weights");
  }

  OPTC_ASSIGN(const auto file, StagedFile::create(options.output, diagnostics));
  size_t written = text.size();
  if (*form == ModelForm::kBinary) {
    ToStagedFile sink(*file);
    google::protobuf::io::CopyingOutputStreamAdaptor stream(&sink);
    if (!proto.SerializePartialToZeroCopyStream(&stream) || !stream.Flush())
      return diagnostics.error(ErrorKind::kInternal, "the model cannot be serialized");
    written = sink.written;
  } else {
    file->write(text.data(), text.size());
  }
  if (!data.empty()) {
    OPTC_ASSIGN(const auto weights, StagedFile::create(data_path, diagnostics));
    data.write(*weights);
    OPTC_TRY(weights->commit(diagnostics));
  }
  OPTC_TRY(file->commit(diagnostics));
  facts.files.emplace(facts.files.begin(), options.output, static_cast<int64_t>(written));
  if (!data.empty()) facts.files.emplace(facts.files.begin() + 1, data_path, static_cast<int64_t>(data.size()));
  return {};
}

}  // namespace optc
