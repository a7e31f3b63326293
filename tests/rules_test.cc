// Goldens (golden.h) of rewrite rules: a graph's text before and after; the head has
//   rule NAME              the only rule or pass that runs (more lines: more of them)
//   written                the result is to be a model, in operators of ONNX
// A near miss expects the same graph after as before. Each golden also asserts that the text round-trips, that the
// verifier is content, that a second run changes nothing, that before and after compute the same on random inputs, and
// that at sizes that the graph refuses before it is refused after, too, and at no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "ir/graph/text.h"
#include "ir/graph/verifier.h"
#include "ops/build.h"
#include "ops/registry.h"
#include "optimizer/optimize.h"
#include "tests/golden.h"
#include "tests/same_results.h"

namespace optc {
namespace {

// Before and after a rewrite, on random inputs of those sizes: both refuse the sizes, or both compute the same.
void expect_same(const Program &p, const Program &q, bool exact, const DimValues &values) {
  std::mt19937 random(11);
  std::string at;
  for (const SymbolSource &s : p.sources) at += s.symbol->name + " = " + std::to_string(*values(*s.symbol)) + " ";
  SCOPED_TRACE(at);
  Diagnostics before, after;
  const std::vector<RuntimeValue> inputs = random_inputs(p, values, random);
  const auto want = evaluate(p, inputs, {}, before), got = evaluate(q, inputs, {}, after);
  EXPECT_EQ(want.ok(), got.ok()) << "before: " << said(before) << "after: " << said(after);
  if (!want.ok() || !got.ok()) {
    EXPECT_TRUE(want.ok() || want.failure().kind != ErrorKind::kInternal) << said(before);
    return;
  }
  ASSERT_EQ(want->size(), got->size());
  for (size_t o = 0; o < want->size(); ++o) {
    const Constant &x = (*want)[o].tensor, &y = (*got)[o].tensor;
    ASSERT_EQ(x.dims(), y.dims());
    ASSERT_EQ(x.type(), y.type());
    if (exact) {
      EXPECT_TRUE(x.equals(y)) << "an exact rule changed bits of output " << o;
      continue;
    }
    // In 16 bits a value that lies at the border of two numbers may be rounded to the other one.
    const double unit = x.type() == ElementType::kFloat16    ? 0x1p-10
                        : x.type() == ElementType::kBFloat16 ? 0x1p-7
                                                             : 1e-6;
    EXPECT_LE(relative_difference(x, y), 2 * unit);
  }
}

class RuleGolden : public testing::TestWithParam<std::string> {};

TEST_P(RuleGolden, FiresAsWritten) {
  Golden golden = read_golden(GetParam(), "rule ");
  OptimizeOptions options;
  constexpr std::string_view kWritten = "written\n";
  if (golden.before.rfind(kWritten, 0) == 0) {
    options.operators = {"the set", [](std::string_view op, ElementType) { return op.rfind("optc.", 0) != 0; }};
    golden.head += kWritten;
    golden.before.erase(0, kWritten.size());
  }
  const std::vector<std::string> &rules = golden.words;
  ASSERT_FALSE(rules.empty());
  for (const std::string &rule : rules) {
    const auto known = list_rules();
    ASSERT_TRUE(std::any_of(known.begin(), known.end(), [&](const RuleInfo &r) {
      return r.name == rule || r.pass == rule;
    })) << rule;
  }
  Diagnostics diagnostics;
  Result<Graph> parsed = parse_graph(golden.before, diagnostics);
  ASSERT_TRUE(parsed.ok()) << said(diagnostics);
  Graph graph = *std::move(parsed);
  ASSERT_TRUE(infer_graph(graph, diagnostics).ok()) << said(diagnostics);
  const Graph original = graph.clone();

  options.only = rules;
  OptimizeReport report;
  ASSERT_TRUE(optimize(graph, options, report, diagnostics).ok()) << said(diagnostics);
  ASSERT_TRUE(verify(graph, diagnostics).ok()) << said(diagnostics);
  if (golden.path.find("_miss_") != std::string::npos) {
    EXPECT_TRUE(report.rewrites.empty()) << "a near miss fired " << report.rewrites.front().rule;
  }
  const std::string text = print(graph);
  expect_golden(golden, print(original), text);
  Result<Graph> again = parse_graph(text, diagnostics);
  ASSERT_TRUE(again.ok()) << said(diagnostics);
  EXPECT_EQ(print(*again), text);
  OptimizeReport nothing;
  ASSERT_TRUE(optimize(graph, options, nothing, diagnostics).ok()) << said(diagnostics);
  EXPECT_TRUE(nothing.rewrites.empty()) << "a second run fired " << nothing.rewrites.front().rule;

  bool exact = true;
  for (const RewriteRecord &r : report.rewrites) exact &= r.numerics == NumericsClass::kExact;
  Result<Program> p = build_program(original, diagnostics), q = build_program(graph, diagnostics);
  ASSERT_TRUE(p.ok() && q.ok()) << said(diagnostics);
  expect_same(*p, *q, exact, [](const DimSymbol &s) { return std::optional<int64_t>(s.name == "N" ? 2 : 5); });
  std::mt19937 sizes(5);
  for (int round = 0; round < 24; ++round) {
    std::map<std::string, int64_t> drawn;
    expect_same(*p, *q, exact, [&](const DimSymbol &s) {
      return std::optional<int64_t>(drawn.emplace(s.name, sizes() % 9).first->second);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, RuleGolden, testing::ValuesIn(golden_files("testdata/rules")), golden_name);

}  // namespace
}  // namespace optc
