#include "importer/importer.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <onnx/onnx_pb.h>

#include <stdexcept>

#include "importer/internal_converter.h"
#include "importer/internal_parse.h"
#include "importer/internal_tensor.h"
#include "importer/wire.h"
#include "ir/graph/verifier.h"
#include "support/file.h"

namespace optc {
namespace {

Result<Graph> read_bytes(std::string_view bytes, std::shared_ptr<const void> owner, const std::string &folder,
                         const ImportOptions &options, Reading reading, Diagnostics &diagnostics) {
  if (bytes.empty()) return diagnostics.error(ErrorKind::kInvalid, "the file is empty: no model");
  const auto *data = reinterpret_cast<const uint8_t *>(bytes.data());
  OPTC_ASSIGN(const WireScan scan, scan_model(data, bytes.size(), diagnostics));
  try {
    onnx::ModelProto model;
    OPTC_TRY(parse_model(scan, model, diagnostics));
    const google::protobuf::LogSilencer quiet;  // what is wrong is said by a diagnostic
    ExternalFiles external(folder);
    TensorSource source;
    source.scan = &scan;
    source.data = data;
    source.owner = std::move(owner);
    source.external = folder.empty() ? nullptr : &external;
    OPTC_ASSIGN(Graph graph, Converter(model, source, options, reading, diagnostics).run());
    OPTC_TRY(verify(graph, diagnostics, reading == Reading::kCompile ? Typing::kComplete : Typing::kAsDeclared));
    return graph;
  } catch (const std::bad_alloc &) {
    return diagnostics.error(ErrorKind::kUnsupported, "the model does not fit in memory");
  } catch (const std::exception &error) {
    return diagnostics.error(ErrorKind::kInternal, std::string("the importer failed: ") + error.what());
  }
}

Result<Graph> read_text(ModelForm form, std::string_view text, const std::string &folder, const ImportOptions &options,
                        Reading reading, Diagnostics &diagnostics) {
  onnx::ModelProto model;
  OPTC_TRY(parse_text(form, text, model, diagnostics));
  auto bytes = std::make_shared<std::string>();
  if (!model.SerializeToString(bytes.get()))
    return diagnostics.error(ErrorKind::kInvalid, "the text is not a complete ONNX model");
  const std::string_view view(*bytes);
  return read_bytes(view, std::move(bytes), folder, options, reading, diagnostics);
}

Result<Graph> read_file(const std::string &path, const ImportOptions &options, Reading reading,
                        Diagnostics &diagnostics) {
  if (diagnostics.file().empty()) diagnostics.set_file(path);
  OPTC_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::open(path, diagnostics));
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string_view bytes = file->text();
  const ModelForm form = form_of_file(path, bytes);
  Result<Graph> graph = form == ModelForm::kBinary ? read_bytes(bytes, file, folder, options, reading, diagnostics)
                                                   : read_text(form, bytes, folder, options, reading, diagnostics);
  if (graph.ok()) {
    graph->info().source_path = path;
    graph->info().source_hash = xxh3_128(file->data(), file->size());
  }
  return graph;
}

}  // namespace

Status parse_model(const WireScan &scan, onnx::ModelProto &model, Diagnostics &diagnostics) {
  const google::protobuf::LogSilencer quiet;  // what is wrong is said by a diagnostic
  google::protobuf::io::ArrayInputStream stream(scan.reduced.data(), static_cast<int>(scan.reduced.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(INT32_MAX);
  if (!model.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage())
    return diagnostics.error(ErrorKind::kInvalid, "the file is not an ONNX model (protobuf cannot parse it)");
  return {};
}

Result<Graph> import_bytes(std::string_view bytes, std::shared_ptr<const void> owner, const std::string &folder,
                           const ImportOptions &options, Diagnostics &diagnostics) {
  return read_bytes(bytes, std::move(owner), folder, options, Reading::kCompile, diagnostics);
}

Result<Graph> import_model(const std::string &path, const ImportOptions &options, Diagnostics &diagnostics) {
  return read_file(path, options, Reading::kCompile, diagnostics);
}

Result<Graph> read_graph(const std::string &path, Diagnostics &diagnostics) {
  const ImportOptions plain;
  return read_file(path, plain, Reading::kAsWritten, diagnostics);
}

}  // namespace optc
