#include <google/protobuf/stubs/logging.h>

#include <charconv>
#include <filesystem>

#include "convert/internal_model.h"
#include "importer/internal_parse.h"
#include "importer/internal_tensor.h"
#include "support/file.h"

namespace optc {
namespace {

// The note at a tensor whose data stands in ModelFile::weights. A file cannot hold it: all external data is resolved.
constexpr const char *kWeightKey = "optc.weight";

void clear_data(onnx::TensorProto &tensor) {
  tensor.clear_float_data();
  tensor.clear_int32_data();
  tensor.clear_int64_data();
  tensor.clear_uint64_data();
  tensor.clear_double_data();
  tensor.clear_string_data();
  tensor.clear_raw_data();
  tensor.clear_external_data();
  tensor.clear_data_location();
}

// An element type that optc does not know: its bytes are taken as they are. Without a scan they are in the tensor.
Status keep_unknown(onnx::TensorProto &tensor, const TensorSource &source, const std::string &what,
                    Diagnostics &diagnostics) {
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL)
    return diagnostics.error(ErrorKind::kUnsupported,
                             what + ": external data of element type " + std::to_string(tensor.data_type()));
  if (!source.scan || !tensor.has_raw_data()) return {};
  uint32_t index = 0;
  for (size_t i = 0; i < 4 && i < tensor.raw_data().size(); ++i)
    index |= static_cast<uint32_t>(static_cast<uint8_t>(tensor.raw_data()[i])) << (8 * i);
  if (index >= source.scan->raw.size())
    return diagnostics.error(ErrorKind::kInvalid, what + ": raw_data that the scan did not see");
  const WireSpan span = source.scan->raw[index];
  tensor.set_raw_data(source.data + span.offset, span.length);
  return {};
}

Status take_tensor(ModelFile &model, onnx::TensorProto &tensor, const TensorSource &source, const std::string &what,
                   Diagnostics &diagnostics) {
  const bool external = tensor.data_location() == onnx::TensorProto::EXTERNAL;
  model.has_external |= external;
  if (onnx::TensorProto::DataType_IsValid(tensor.data_type()) && tensor.data_type() != onnx::TensorProto::UNDEFINED &&
      element_type_of(tensor.data_type()) == ElementType::kUndefined)
    return keep_unknown(tensor, source, what, diagnostics);
  OPTC_ASSIGN(Constant value, convert_tensor(tensor, source, what, diagnostics));
  if (value.type() == ElementType::kString) return {};
  const bool raw = tensor.has_raw_data();
  if (value.size() >= kKeptOutside) {
    set_weight(model, tensor, std::move(value));
  } else if (external || raw) {
    tensor.clear_external_data();
    tensor.clear_data_location();
    tensor.set_raw_data(value.data(), value.size());
  }
  return {};
}

// Tensors of training are left where they are, in the message: external data of theirs is not followed.
bool has_external(const onnx::GraphProto &graph) {
  for (const auto &tensor : graph.initializer())
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL) return true;
  return false;
}

}  // namespace

const Constant *weight_of(const ModelFile &model, const onnx::TensorProto &tensor) {
  if (tensor.external_data_size() != 1 || tensor.external_data(0).key() != kWeightKey) return nullptr;
  const std::string &text = tensor.external_data(0).value();
  size_t index = 0;
  std::from_chars(text.data(), text.data() + text.size(), index);
  return &model.weights[index];
}

void set_weight(ModelFile &model, onnx::TensorProto &tensor, Constant value) {
  clear_data(tensor);
  tensor.set_data_type(static_cast<int32_t>(value.type()));
  tensor.clear_dims();
  for (const int64_t d : value.dims()) tensor.add_dims(d);
  if (value.type() == ElementType::kString) {
    for (const std::string &text : value.string_values()) tensor.add_string_data(text);
    return;
  }
  if (value.size() < kKeptOutside) {
    tensor.set_raw_data(value.data(), value.size());
    return;
  }
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto *entry = tensor.add_external_data();
  entry->set_key(kWeightKey);
  entry->set_value(std::to_string(model.weights.size()));
  model.weights.push_back(std::move(value));
}

Result<Constant> tensor_value(const ModelFile &model, const onnx::TensorProto &tensor, const std::string &what,
                              Diagnostics &diagnostics) {
  if (const Constant *weight = weight_of(model, tensor)) return *weight;
  return convert_tensor(tensor, TensorSource{}, what, diagnostics);
}

Result<ModelFile> read_model_file(const std::string &path, Diagnostics &diagnostics) {
  namespace fs = std::filesystem;
  OPTC_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::open(path, diagnostics));
  const std::string_view bytes = file->text();
  if (bytes.empty()) return diagnostics.error(ErrorKind::kInvalid, "the file is empty: no model");
  ModelFile model;
  model.path = path;
  model.form = form_of_file(path, bytes);
  const google::protobuf::LogSilencer quiet;  // what is wrong is said by a diagnostic
  try {
    TensorSource source;
    WireScan scan;
    if (model.form == ModelForm::kBinary) {
      OPTC_ASSIGN(scan, scan_model(file->data(), file->size(), diagnostics, Training::kKeep));
      OPTC_TRY(parse_model(scan, model.proto, diagnostics));
      source.scan = &scan;
      source.data = file->data();
      source.owner = file;
    } else {
      OPTC_TRY(parse_text(model.form, bytes, model.proto, diagnostics));
    }
    if (!model.proto.has_graph()) return diagnostics.error(ErrorKind::kInvalid, "the model has no graph");
    for (const auto &training : model.proto.training_info())
      if (has_external(training.initialization()) || has_external(training.algorithm()))
        return diagnostics.error(ErrorKind::kUnsupported, "training_info with external data");
    const fs::path folder = fs::path(path).parent_path();
    ExternalFiles external(folder.empty() ? "." : folder.string());
    source.external = &external;
    OPTC_TRY(for_each_tensor(model.proto, [&](onnx::TensorProto &tensor, const TensorPlace &place) {
      return take_tensor(model, tensor, source, place.what, diagnostics);
    }));
    std::error_code ignored;
    model.read_files.insert(fs::canonical(path, ignored).string());
    for (const auto &[name, unused] : external.files()) model.read_files.insert(name);
  } catch (const std::bad_alloc &) {
    return diagnostics.error(ErrorKind::kUnsupported, "the model does not fit in memory");
  }
  return model;
}

}  // namespace optc
