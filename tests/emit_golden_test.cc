// Goldens of the C++ that is printed for kernels: testdata/kernels/*.golden. A file holds
//   # <what it shows>
//   <graph text>
//   ----
//   <the functions of its lowered kernels, in the order of execution>
// Each golden also asserts that printing again, from the text onwards, gives the same bytes.
// OPTC_BLESS=1 in the environment writes what comes out into the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "emit/cpp/emit.h"
#include "ir/graph/text.h"
#include "lowering/lower.h"
#include "ops/registry.h"

namespace optc {
namespace {
namespace fs = std::filesystem;

std::string said(const Diagnostics &diagnostics) {
  std::string all;
  for (const Diagnostic &d : diagnostics.all()) all += format(d);
  return all;
}

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

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto &entry : fs::directory_iterator(fs::path(OPTC_SOURCE_DIR) / "testdata/kernels"))
    if (entry.path().extension() == ".golden") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

class KernelGolden : public testing::TestWithParam<std::string> {};

TEST_P(KernelGolden, PrintsAsWritten) {
  std::ifstream in(GetParam());
  std::string head, graph, after, line;
  bool second = false;
  while (std::getline(in, line)) {
    if (line == "----" && !second)
      second = true;
    else
      (second ? after : line.rfind("#", 0) == 0 ? head : graph) += line + "\n";
  }
  Diagnostics diagnostics;
  const Result<std::string> once = printed(graph, diagnostics), twice = printed(graph, diagnostics);
  ASSERT_TRUE(once.ok() && twice.ok()) << said(diagnostics);
  EXPECT_EQ(*once, *twice);
  EXPECT_FALSE(once->empty());
  if (std::getenv("OPTC_BLESS"))
    std::ofstream(GetParam()) << head << graph << "----\n" << *once;
  else
    EXPECT_EQ(*once, after);
}

std::string golden_name(const testing::TestParamInfo<std::string> &info) {
  std::string name = fs::path(info.param).stem().string();
  for (char &c : name)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Cpp, KernelGolden, testing::ValuesIn(golden_files()), golden_name);

}  // namespace
}  // namespace optc
