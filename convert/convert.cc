#include "convert/convert.h"

#include "convert/internal_edit.h"

namespace optc {
namespace {

Status convert(const ConvertOptions &options, ConvertFacts &facts, Diagnostics &diagnostics) {
  OPTC_ASSIGN(ModelFile model, read_model_file(options.input, diagnostics));
  facts.read_as = model.form;
  const bool floats = options.float_type != ElementType::kUndefined;
  const bool edits =
      options.opset || floats || !options.merge.empty() || !options.extract.empty() || !options.rename.empty();
  if (edits && model.proto.training_info_size() > 0)
    return diagnostics.error(ErrorKind::kUnsupported, "a model with training_info can only change its form");
  if (options.opset) OPTC_TRY(set_opset(model, options.opset, diagnostics));
  if (floats) OPTC_TRY(set_float_type(model, options, facts, diagnostics));
  if (!options.merge.empty()) {
    OPTC_ASSIGN(ModelFile other, read_model_file(options.merge, diagnostics));
    if (other.proto.training_info_size() > 0)
      return diagnostics.error(ErrorKind::kUnsupported, "--merge: the second model has training_info");
    if (options.opset) OPTC_TRY(set_opset(other, options.opset, diagnostics));
    if (floats) OPTC_TRY(set_float_type(other, options, facts, diagnostics));
    OPTC_TRY(merge(model, std::move(other), options.connect, options.merge_prefix, diagnostics));
  }
  if (!options.extract.empty()) OPTC_TRY(extract(model, options.extract, diagnostics));
  if (!options.rename.empty()) OPTC_TRY(rename(model, options.rename, diagnostics));
  if (!options.weights_from.empty()) OPTC_TRY(read_safetensors(model, options.weights_from, diagnostics));
  facts.nodes = count_nodes(model.proto);
  for (const auto &opset : model.proto.opset_import())
    facts.opsets.emplace_back(opset.domain().empty() ? "ai.onnx" : opset.domain(), opset.version());
  // Both files are complete before the first takes its place: the weights are checked before the model is written.
  if (!options.weights_to.empty()) OPTC_TRY(write_safetensors(model, options, facts, diagnostics));
  if (options.output.empty()) return {};
  return write_model_file(model, options, facts, diagnostics);
}

}  // namespace

Status convert_model(const ConvertOptions &options, ConvertFacts &facts, Diagnostics &diagnostics) {
  try {
    return convert(options, facts, diagnostics);
  } catch (const std::bad_alloc &) {
    return diagnostics.error(ErrorKind::kUnsupported, "the model does not fit in memory");
  } catch (const std::exception &error) {
    return diagnostics.error(ErrorKind::kInternal, std::string("the conversion failed: ") + error.what());
  }
}

}  // namespace optc
