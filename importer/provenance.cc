#include "importer/provenance.h"

#include <exception>

#include "importer/internal_parse.h"
#include "support/file.h"

namespace optc {
namespace {

void collect(const onnx::GraphProto &graph, std::vector<NodeNote> &notes) {
  for (const auto &node : graph.node()) {
    for (const auto &entry : node.metadata_props())
      if (entry.key().rfind("optc.", 0) == 0 && !node.name().empty())
        notes.push_back({node.name(), entry.key(), entry.value()});
    for (const auto &attribute : node.attribute()) {
      if (attribute.has_g()) collect(attribute.g(), notes);
      for (const auto &inner : attribute.graphs()) collect(inner, notes);
    }
  }
}

}  // namespace

Result<std::vector<NodeNote>> read_notes(const std::string &path, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::open(path, diagnostics));
  std::vector<NodeNote> notes;
  if (form_of_file(path, file->text()) != ModelForm::kBinary)
    return notes;
  OPTC_ASSIGN(const WireScan scan, scan_model(file->data(), file->size(), diagnostics));
  try {
    onnx::ModelProto model;
    OPTC_TRY(parse_model(scan, model, diagnostics));
    collect(model.graph(), notes);
  } catch (const std::bad_alloc &) {
    return diagnostics.error(ErrorKind::kUnsupported, "the model does not fit in memory");
  }
  return notes;
}

}  // namespace optc
