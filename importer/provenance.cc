#include "importer/provenance.h"

#include <exception>

#include "importer/internal_parse.h"
#include "support/file.h"

namespace optc {
namespace {

constexpr std::string_view kScopes = "pkg.torch.onnx.name_scopes";

void collect(const onnx::GraphProto &graph, std::string_view prefix, std::vector<NodeNote> &notes) {
  for (const auto &node : graph.node()) {
    for (const auto &entry : node.metadata_props())
      if (entry.key().rfind(prefix, 0) == 0 && !node.name().empty())
        notes.push_back({node.name(), entry.key(), entry.value()});
    for (const auto &attribute : node.attribute()) {
      if (attribute.has_g()) collect(attribute.g(), prefix, notes);
      for (const auto &inner : attribute.graphs()) collect(inner, prefix, notes);
    }
  }
}

Result<std::vector<NodeNote>> notes_of(const std::string &path, std::string_view prefix, Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::shared_ptr<const MappedFile> file, MappedFile::open(path, diagnostics));
  std::vector<NodeNote> notes;
  if (form_of_file(path, file->text()) != ModelForm::kBinary) return notes;
  OPTC_ASSIGN(const WireScan scan, scan_model(file->data(), file->size(), diagnostics));
  try {
    onnx::ModelProto model;
    OPTC_TRY(parse_model(scan, model, diagnostics));
    collect(model.graph(), prefix, notes);
  } catch (const std::bad_alloc &) {
    return diagnostics.error(ErrorKind::kUnsupported, "the model does not fit in memory");
  }
  return notes;
}

// "['', 'm', 'm.encoder', 'add_1']": a list as Python prints it; the last is the operation itself.
std::vector<std::string> scopes_of(const std::string &text) {
  std::vector<std::string> scopes;
  for (size_t from = text.find('\''); from != std::string::npos;) {
    const size_t to = text.find('\'', from + 1);
    if (to == std::string::npos) break;
    scopes.push_back(text.substr(from + 1, to - from - 1));
    from = text.find('\'', to + 1);
  }
  if (!scopes.empty()) scopes.pop_back();
  return scopes;
}

}  // namespace

Result<std::vector<NodeNote>> read_notes(const std::string &path, Diagnostics &diagnostics) {
  return notes_of(path, "optc.", diagnostics);
}

Result<std::unordered_map<std::string, std::vector<std::string>>> noted_scopes(const std::string &path,
                                                                               Diagnostics &diagnostics) {
  OPTC_ASSIGN(const std::vector<NodeNote> notes, notes_of(path, kScopes, diagnostics));
  std::unordered_map<std::string, std::vector<std::string>> scopes;
  for (const NodeNote &note : notes)
    if (note.key == kScopes) scopes[note.node] = scopes_of(note.value);
  return scopes;
}

}  // namespace optc
