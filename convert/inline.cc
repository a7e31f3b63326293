// Local functions, inlined by ONNX's library, which follows every call: functions that call one another many times are
// not given to it.

#include <onnx/inliner/inliner.h>

#include "convert/internal_edit.h"
#include "importer/importer.h"
#include "importer/internal_parse.h"

namespace optc {

bool can_inline(const onnx::ModelProto &model) {
  const int64_t most = ImportOptions{}.max_nodes;
  return model.functions_size() == 0 || inlined_nodes(model, most) <= most;
}

Status inline_functions(onnx::ModelProto &model, const std::string &why, Diagnostics &diagnostics) {
  if (!can_inline(model))
    return diagnostics.error(ErrorKind::kUnsupported,
                             "the model has more than " + std::to_string(ImportOptions{}.max_nodes) +
                                 " nodes once its functions are inlined",
                             {}, "functions that call one another many times grow without bound");
  try {
    onnx::inliner::InlineLocalFunctions(model, false);
  } catch (const std::exception &error) {
    return diagnostics.error(ErrorKind::kInvalid, std::string("the functions cannot be inlined: ") + error.what());
  }
  diagnostics.warning("the model's functions are inlined: " + why);
  return {};
}

}  // namespace optc
