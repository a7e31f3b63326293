// libFuzzer target: any bytes through the importer, and what is taken through the optimizer. Seeds: small .onnx files.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "importer/importer.h"
#include "ir/graph/verifier.h"
#include "optimizer/optimize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const auto bytes = std::make_shared<std::string>(reinterpret_cast<const char *>(data), size);
  optc::Diagnostics diagnostics;
  auto graph = optc::import_bytes(*bytes, bytes, "", {}, diagnostics);
  if (!graph.ok()) {
    if (!diagnostics.has_error()) std::abort();  // a refusal says why
    return 0;
  }
  if (!optc::verify(*graph, diagnostics).ok()) std::abort();
  optc::OptimizeOptions options;
  options.max_folded_bytes = 1 << 16;
  optc::OptimizeReport report;
  if (!optc::optimize(*graph, options, report, diagnostics).ok() && !diagnostics.has_error()) std::abort();
  return 0;
}
