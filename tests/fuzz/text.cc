// libFuzzer target: any text through the graph parser. What is taken prints and parses back to the same, and goes
// through every rewrite rule. Seeds: the graphs of testdata/rules (tests/fuzz/seeds.sh).
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ir/graph/text.h"
#include "ir/graph/verifier.h"
#include "ops/registry.h"
#include "optimizer/optimize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  optc::Diagnostics diagnostics;
  auto graph = optc::parse_graph({reinterpret_cast<const char *>(data), size}, diagnostics);
  if (!graph.ok()) {
    if (!diagnostics.has_error()) std::abort();  // a refusal says why
    return 0;
  }
  const std::string text = optc::print(*graph);
  auto again = optc::parse_graph(text, diagnostics);
  if (!again.ok() || optc::print(*again) != text) std::abort();
  if (!optc::infer_graph(*graph, diagnostics).ok() || !optc::verify(*graph, diagnostics).ok()) return 0;
  optc::OptimizeOptions options;
  options.max_folded_bytes = 1 << 16;
  optc::OptimizeReport report;
  if (optc::optimize(*graph, options, report, diagnostics).ok() && !optc::verify(*graph, diagnostics).ok())
    std::abort();
  return 0;
}
