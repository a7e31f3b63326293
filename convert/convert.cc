#include "convert/convert.h"

#include "convert/internal_model.h"

namespace optc {
namespace {

Status convert(const ConvertOptions &options, ConvertFacts &facts, Diagnostics &diagnostics) {
  OPTC_ASSIGN(ModelFile model, read_model_file(options.input, diagnostics));
  facts.read_as = model.form;
  facts.nodes = count_nodes(model.proto);
  for (const auto &opset : model.proto.opset_import())
    facts.opsets.emplace_back(opset.domain().empty() ? "ai.onnx" : opset.domain(), opset.version());
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
