// Goldens (golden.h) of the C++ that is printed for kernels: a graph's text, and the functions of its lowered kernels
// in the order of execution. Each also asserts that printing again, from the text onwards, gives the same bytes.
#include <gtest/gtest.h>

#include "emit/cpp/emit.h"
#include "ir/graph/text.h"
#include "lowering/lower.h"
#include "ops/registry.h"
#include "tests/golden.h"
#include "tests/random_values.h"

namespace optc {
namespace {

Result<std::string> printed(const std::string &graph_text, Diagnostics &diagnostics) {
  OPTC_ASSIGN(Graph graph, parse_graph(graph_text, diagnostics));
  OPTC_TRY(infer_graph(graph, diagnostics));
  LoweringReport report;
  OPTC_ASSIGN(const Program program, lower(graph, {}, report, diagnostics));
  std::string all;
  for (KernelId id : program.order) {
    OPTC_ASSIGN(const std::string text, print_kernel(program, program.kernel(id), diagnostics));
    all += text + "\n";
  }
  return all;
}

class KernelGolden : public testing::TestWithParam<std::string> {};

TEST_P(KernelGolden, PrintsAsWritten) {
  const Golden golden = read_golden(GetParam());
  Diagnostics diagnostics;
  const Result<std::string> once = printed(golden.before, diagnostics), twice = printed(golden.before, diagnostics);
  ASSERT_TRUE(once.ok() && twice.ok()) << said(diagnostics);
  EXPECT_EQ(*once, *twice);
  EXPECT_FALSE(once->empty());
  expect_golden(golden, golden.before, *once);
}
INSTANTIATE_TEST_SUITE_P(Cpp, KernelGolden, testing::ValuesIn(golden_files("testdata/kernels")), golden_name);

}  // namespace
}  // namespace optc
