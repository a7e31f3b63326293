// Steps of lowering: counted by one gate, left out by name, and found by bisection when one of them is wrong.
#include "driver/bisect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/lowered.h"
#include "tests/random_nets.h"

namespace optc {
namespace {

constexpr const char *kNet = R"(graph "net" (x: f32[N,4,6,6]) -> (y, u) {
  const w: f32[8,4,3,3] = hash "a"
  const b: f32[8] = hash "b"
  const v: f32[8,5] = hash "c"
  c = Conv(x, w, b) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1]}
  r = Relu(c)
  t = Transpose(r) {perm = ints [0, 2, 3, 1]}
  p = MatMul(t, v)
  s = Sigmoid(p)
  y = Softmax(s) {axis = 3}
  h = Neg(x)
  u = Abs(h)
})";

std::optional<int64_t> two(const DimSymbol &) { return 2; }

std::vector<RuntimeValue> run(const Program &program, const std::vector<RuntimeValue> &inputs) {
  Diagnostics diagnostics;
  auto outputs = evaluate(program, inputs, {}, diagnostics);
  EXPECT_TRUE(outputs.ok()) << said(diagnostics);
  return outputs.ok() ? *outputs : std::vector<RuntimeValue>();
}

TEST(Steps, EveryNumberOfThemIsAProgramThatComputesTheSame) {
  const Lowered whole = lower_text(kNet, {});
  const int64_t count = static_cast<int64_t>(whole.report.steps.size());
  std::set<std::string> names;
  for (const LoweringStep &s : whole.report.steps) {
    names.insert(s.name);
    EXPECT_FALSE(s.where.empty()) << s.name;
    // Of which nodes it is: the page shows that.
    EXPECT_EQ(s.origin.empty(), s.name == "place.share") << s.name;
    EXPECT_TRUE(std::is_sorted(s.origin.begin(), s.origin.end()));
    for (uint32_t o : s.origin) EXPECT_LT(o, whole.program.origins.size()) << s.name;
    EXPECT_TRUE(std::any_of(lowering_steps().begin(), lowering_steps().end(), [&](const LoweringStepInfo &i) {
      return i.name == s.name;
    })) << s.name;
  }
  for (const char *name : {"layout.channels_last", "fuse.epilogue", "fuse.inline", "schedule.gemm"})
    EXPECT_TRUE(names.count(name)) << name;
  for (int64_t n = 0; n <= count; ++n) {
    LoweringOptions options;
    options.max_steps = n;
    const Lowered some = lower_text(kNet, options);
    ASSERT_EQ(static_cast<int64_t>(some.report.steps.size()), n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(some.report.steps[i].where, whole.report.steps[i].where) << i;
    expect_same_results(some, two, 1e-5);
  }
}

TEST(Steps, AStepIsLeftOutByItsNameOrFamily) {
  for (const char *given : {"fuse.epilogue", "fuse", "layout", "schedule.conv", "place.in_place", "place.share"}) {
    LoweringOptions options;
    options.disabled = {given};
    const Lowered r = lower_text(kNet, options);
    for (const LoweringStep &s : r.report.steps) EXPECT_FALSE(names_step(given, s.name)) << s.name;
    expect_same_results(r, two, 1e-5);
  }
}

// With a GPU target they are the steps of the Program that runs on the GPU.
TEST(Steps, AreThoseOfTheMachineThatTheModelIsCompiledFor) {
  Diagnostics diagnostics;
  struct Silent : Listener {
    void begin(std::string_view) override {}
    void progress(int64_t, int64_t) override {}
    void end(std::string_view, const std::string &, double) override {}
  } silent;
  auto graph = parse_graph(kNet, diagnostics);
  ASSERT_TRUE(graph.ok() && infer_graph(*graph, diagnostics).ok()) << said(diagnostics);
  for (const bool gpu : {false, true}) {
    CompileOptions options;
    if (gpu) options.targets = {"cpu", "sm_90a"};
    const auto steps = list_steps(*graph, options, silent, diagnostics);
    ASSERT_TRUE(steps.ok()) << said(diagnostics);
    const auto has = [&](const char *name) {
      return std::any_of(steps->begin(), steps->end(), [&](const CompileStep &s) { return s.name == name; });
    };
    EXPECT_EQ(has("schedule.gemm"), !gpu);
    EXPECT_EQ(has("schedule.gemm.tensor_core"), gpu);
  }
}

// Wherever the wrong step is: found, in log2(count) + 2 runs at most.
TEST(Steps, BisectionAsksAboutLog2TimesOfAnyCount) {
  for (const int64_t count : {1, 2, 3, 20, 41, 1000, 4097}) {
    int64_t most = 2;
    for (int64_t power = 1; power < count; power *= 2) ++most;
    for (int64_t k = 0; k < 20; ++k) {
      const int64_t planted = 1 + k * (count - 1) / 19;
      int64_t asked = 0;
      const Result<int64_t> found = first_wrong_step(count, [&](int64_t n) -> Result<bool> {
        ++asked;
        return n < planted;
      });
      ASSERT_TRUE(found.ok());
      EXPECT_EQ(*found, planted) << "of " << count;
      EXPECT_LE(asked, most) << planted << " of " << count;
    }
  }
}

// A Program that turns wrong with one of its steps: after it, the largest constant that a kernel reads is another one.
TEST(Steps, BisectionNamesTheStepThatIsWrong) {
  const Lowered whole = lower_text(kNet, {});
  const int64_t count = static_cast<int64_t>(whole.report.steps.size());
  std::mt19937 random(3);
  const std::vector<RuntimeValue> inputs = random_inputs(whole.plain, two, random);
  const std::vector<RuntimeValue> want = run(whole.plain, inputs);
  for (int64_t planted : {int64_t{1}, count / 2, count}) {
    int64_t asked = 0;
    Result<int64_t> found = first_wrong_step(count, [&](int64_t n) -> Result<bool> {
      ++asked;
      LoweringOptions options;
      options.max_steps = n;
      Lowered some = lower_text(kNet, options);
      if (n >= planted)
        for (Buffer &b : some.program.buffers)
          if (b.kind == BufferKind::kConstant && b.element() == ElementType::kFloat32 && b.constant.count() == 8)
            b.constant = Constant::owned(ElementType::kFloat32, {8}, std::vector<uint8_t>(32, 0));
      const std::vector<RuntimeValue> got = run(some.program, inputs);
      return relative_difference(want[0].tensor, got[0].tensor) < 1e-4;
    });
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, planted);
    EXPECT_LE(asked, 8);
  }
}

}  // namespace
}  // namespace optc
