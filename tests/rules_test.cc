// Goldens of rewrite rules: testdata/rules/*.golden. A file holds
//   # <what it shows>
//   rule NAME              the only rule that runs (more lines: more rules)
//   <graph text before>
//   ----
//   <graph text after>
// A near miss expects the same graph after as before. Each golden also asserts that the text round-trips, that the
// verifier is content, that a second run changes nothing, and that before and after compute the same on random inputs.
// OPTC_BLESS=1 in the environment writes what comes out into the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "evaluate/evaluate.h"
#include "ir/graph/text.h"
#include "ir/graph/verifier.h"
#include "ops/build.h"
#include "ops/registry.h"
#include "optimizer/optimize.h"
#include "tests/random_values.h"

namespace optc {
namespace {
namespace fs = std::filesystem;

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto &entry : fs::directory_iterator(fs::path(OPTC_SOURCE_DIR) / "testdata/rules"))
    if (entry.path().extension() == ".golden") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, FiresAsWritten) {
  std::ifstream in(GetParam());
  std::string head, before, after, line;
  std::vector<std::string> rules;
  bool second = false;
  while (std::getline(in, line)) {
    if (line == "----")
      second = true;
    else if (second)
      after += line + "\n";
    else if (line.rfind("rule ", 0) == 0)
      rules.push_back(line.substr(5)), head += line + "\n";
    else if (line.rfind("#", 0) == 0)
      head += line + "\n";
    else
      before += line + "\n";
  }
  ASSERT_FALSE(rules.empty());
  for (const std::string &rule : rules) {
    const auto known = list_rules();
    ASSERT_TRUE(std::any_of(known.begin(), known.end(), [&](const RuleInfo &r) { return r.name == rule; })) << rule;
  }
  Diagnostics diagnostics;
  Result<Graph> parsed = parse_graph(before, diagnostics);
  ASSERT_TRUE(parsed.ok()) << said(diagnostics);
  Graph graph = *std::move(parsed);
  ASSERT_TRUE(infer_graph(graph, diagnostics).ok()) << said(diagnostics);
  const Graph original = graph.clone();

  OptimizeOptions options;
  options.only = rules;
  OptimizeReport report;
  ASSERT_TRUE(optimize(graph, options, report, diagnostics).ok()) << said(diagnostics);
  ASSERT_TRUE(verify(graph, diagnostics).ok()) << said(diagnostics);
  const std::string text = print(graph);
  if (std::getenv("OPTC_BLESS")) {
    std::ofstream(GetParam()) << head << print(original) << "----\n" << text;
  } else {
    EXPECT_EQ(text, after);
  }
  Result<Graph> again = parse_graph(text, diagnostics);
  ASSERT_TRUE(again.ok()) << said(diagnostics);
  EXPECT_EQ(print(*again), text);
  OptimizeReport nothing;
  ASSERT_TRUE(optimize(graph, options, nothing, diagnostics).ok()) << said(diagnostics);
  EXPECT_TRUE(nothing.rewrites.empty()) << "a second run fired " << nothing.rewrites.front().rule;

  bool exact = true;
  for (const RewriteRecord &r : report.rewrites) exact &= r.numerics == NumericsClass::kExact;
  std::mt19937 random(11);
  Result<Program> p = build_program(original, diagnostics), q = build_program(graph, diagnostics);
  ASSERT_TRUE(p.ok() && q.ok()) << said(diagnostics);
  const DimValues values = [](const DimSymbol &s) { return std::optional<int64_t>(s.name == "N" ? 2 : 5); };
  std::vector<RuntimeValue> inputs;
  for (BufferId b : p->inputs) inputs.push_back(RuntimeValue::of(random_tensor(p->buffer(b).type, values, random)));
  const auto want = evaluate(*p, inputs, {}, diagnostics), got = evaluate(*q, inputs, {}, diagnostics);
  ASSERT_TRUE(want.ok() && got.ok()) << said(diagnostics);
  ASSERT_EQ(want->size(), got->size());
  for (size_t o = 0; o < want->size(); ++o) {
    const Constant &x = (*want)[o].tensor, &y = (*got)[o].tensor;
    ASSERT_EQ(x.dims(), y.dims());
    ASSERT_EQ(x.type(), y.type());
    if (exact) {
      EXPECT_TRUE(x.equals(y)) << "an exact rule changed bits of output " << o;
      continue;
    }
    double range = 1e-30, worst = 0;
    for (int64_t i = 0; i < x.count(); ++i) {
      range = std::max(range, std::fabs(x.as_double(i)));
      worst = std::max(worst, std::fabs(x.as_double(i) - y.as_double(i)));
    }
    // In 16 bits a value that lies at the border of two numbers may be rounded to the other one.
    const double unit = x.type() == ElementType::kFloat16    ? 0x1p-10
                        : x.type() == ElementType::kBFloat16 ? 0x1p-7
                                                             : 1e-6;
    EXPECT_LE(worst / range, 2 * unit);
  }
}

std::string golden_name(const testing::TestParamInfo<std::string> &info) {
  std::string name = fs::path(info.param).stem().string();
  for (char &c : name)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Rules, Golden, testing::ValuesIn(golden_files()), golden_name);

}  // namespace
}  // namespace optc
