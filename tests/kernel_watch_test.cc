// Bundles under the eyes of the evaluator: one that is right, and ones with a fault planted into a line of their
// source, each of which must be named.
#include "driver/kernel_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "lowering/lower.h"
#include "tests/bundle_testing.h"

namespace optc {
namespace {

using testing::messages;
using testing::program_of;
using testing::random_tensor;

constexpr const char *kNet = R"(graph "net" (x: f32[N,8,6,6], c: bool[]) -> (y, top, where) {
    const w: f32[8,8,3,3] = hash "a"
    const v: f32[8,8,1,1] = hash "b"
    const k: i64[1] = [3]
    const axes: i64[1] = [-1]
    a: f32[N,8,6,6] = Conv(x, w) {dilations = ints [1, 1], group = 1, kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"} @ "conv_a"
    r: f32[N,8,6,6] = Relu(a) @ "relu"
    b: f32[N,8,6,6] = Conv(r, v) {dilations = ints [1, 1], group = 1, kernel_shape = ints [1, 1], pads = ints [0, 0, 0, 0], strides = ints [1, 1], auto_pad = "NOTSET"} @ "conv_b"
    j: f32[N,16,6,6] = Concat(r, b) {axis = 1} @ "concat"
    s: f32[N,16,6,6] = Softmax(j) {axis = -1} @ "softmax"
    y: f32[N,16,6,6] = If(c) @ "if"
    region then_branch () -> (t) {
      t: f32[N,16,6,6] = LeakyRelu(s) {alpha = 0.1875} @ "leaky"
    }
    region else_branch () -> (e) {
      e: f32[N,16,6,6] = Neg(s) @ "neg"
    }
    top: f32[N,16,6,3], where: i64[N,16,6,3] = TopK(s, k) {axis = -1, largest = 1, sorted = 1} @ "topk"
  })";

struct Watched {
  std::shared_ptr<const Program> program;
  WatchReport report;
  std::string said;
};

// The text of a bundle's file, with the first `from` replaced; false: it is not there.
bool patch(const std::string &path, const std::string &from, const std::string &to) {
  std::string text = testing::BuiltBundle::text_of(path);
  const size_t at = text.find(from);
  if (at == std::string::npos) return false;
  text.replace(at, from.size(), to);
  std::ofstream(path) << text;
  return true;
}

Watched watch(const std::string &text, const std::vector<Constant> &inputs, const WatchOptions &options,
              const std::function<void(const std::string &bundle, const Program &program)> &plant = {},
              int threads = 2) {
  Watched result;
  Diagnostics diagnostics;
  Result<Program> program = program_of(text, diagnostics);
  EXPECT_TRUE(program.ok()) << messages(diagnostics);
  if (!program.ok()) return result;
  LoweringReport report;
  EXPECT_TRUE(lower_program(*program, {}, report, diagnostics).ok()) << messages(diagnostics);
  BundleOptions bundle_options;
  bundle_options.probe = true;
  testing::BuiltBundle built;
  const std::string made = built.make(*program, bundle_options, "g++", "-O1", [&](const std::string &folder) {
    if (plant) plant(folder, *program);
  });
  EXPECT_EQ(made, "");
  if (!made.empty()) return result;
  BundleRunOptions run_options;
  run_options.threads = threads;
  auto bundle = Bundle::load(built.library(), "m", run_options, diagnostics);
  EXPECT_TRUE(bundle.ok()) << messages(diagnostics);
  if (!bundle.ok()) return result;
  std::vector<RuntimeValue> values;
  for (const Constant &input : inputs) values.push_back(RuntimeValue::of(input));
  const WatchedProgram made_of{std::make_shared<const Program>(std::move(*program)), {}, false};
  for (int run = 0; run < 2; ++run)
    EXPECT_TRUE(watch_bundle(made_of, **bundle, values, options, result.report, diagnostics).ok())
        << messages(diagnostics);
  result.said = print(*made_of.program);
  result.program = made_of.program;
  return result;
}

std::vector<Constant> net_inputs(bool branch = true) {
  return {random_tensor(ElementType::kFloat32, {2, 8, 6, 6}, 1), Constant::scalar(ElementType::kBool, branch ? 1 : 0)};
}

bool names(const KernelFinding &f, const std::string &node) {
  return std::any_of(f.nodes.begin(), f.nodes.end(),
                     [&](const std::string &n) { return n.find("'" + node + "'") != std::string::npos; });
}

TEST(KernelWatch, ARightBundleAgreesKernelByKernel) {
  const Watched w = watch(kNet, net_inputs(), {true, true, true});
  ASSERT_FALSE(w.report.difference) << w.report.difference->kernel << ": " << w.report.difference->problem << "\n"
                                    << w.said;
  EXPECT_FALSE(w.report.nan || w.report.infinity);
  EXPECT_TRUE(w.report.not_compared.empty());
  int64_t kernels = 0;  // all but the construct and the branch that is not taken
  for (const Kernel &k : w.program->kernels) kernels += k.alive && !k.control();
  EXPECT_EQ(static_cast<int64_t>(w.report.kernels.size()), kernels - 1) << w.said;
  EXPECT_EQ(w.report.compared, 2 * (kernels - 1));
}

// On one thread row scratch fits between two buffers with no byte to spare: the guard behind it lies in neither.
TEST(KernelWatch, GuardsLieInNoBuffer) {
  const Watched w = watch(R"(graph "net" (x: f32[1,8,3,1]) -> (y) {
    const w: f32[8,32,2,4] = hash "w"
    r: f32[1,8,3,1] = Relu(x) @ "relu"
    y: f32[1,32,6,4] = ConvTranspose(r, w) {dilations = ints [1, 1], group = 1, kernel_shape = ints [2, 4], output_padding = ints [0, 0], pads = ints [0, 0, 0, 0], strides = ints [2, 3], auto_pad = "NOTSET"} @ "up"
  })",
                          {random_tensor(ElementType::kFloat32, {1, 8, 3, 1}, 1)}, {true, true}, {}, 1);
  ASSERT_FALSE(w.report.difference) << w.report.difference->kernel << ": " << w.report.difference->problem << "\n"
                                    << w.said;
  EXPECT_NE(w.said.find("conv.transposed"), std::string::npos) << w.said;
}

// One number of a kernel inside a branch.
TEST(KernelWatch, AWrongKernelInABranchIsNamed) {
  const std::string text = R"(graph "net" (x: f32[N,8,6,6], c: bool[]) -> (y) {
    s: f32[N,8,6,6] = Tanh(x) @ "tanh"
    m: f32[N,8,6,1] = ReduceMax(s) {axes = ints [-1], keepdims = 1} @ "most"
    y: f32[N,8,6,6] = If(c) @ "if"
    region then_branch () -> (t) {
      d: f32[N,8,6,6] = Sub(s, m) @ "sub"
      t: f32[N,8,6,6] = LeakyRelu(d) {alpha = 0.1875} @ "leaky"
    }
    region else_branch () -> (e) {
      e: f32[N,8,6,6] = Neg(s) @ "neg"
    }
  })";
  const auto plant = [](const std::string &bundle, const Program &) {
    EXPECT_TRUE(patch(bundle + "/src/kernels_0.inc", "0.1875f", "0.25f"));
  };
  const Watched wrong = watch(text, net_inputs(), {}, plant);
  ASSERT_TRUE(wrong.report.difference) << wrong.said;
  const KernelFinding &f = *wrong.report.difference;
  EXPECT_TRUE(names(f, "leaky")) << f.kernel;
  EXPECT_FALSE(f.strategy.empty());
  EXPECT_TRUE(f.isa == "avx512" || f.isa == "avx2" || f.isa == "base") << f.isa;
  EXPECT_NE(f.problem.find("elements differ"), std::string::npos) << f.problem;
  EXPECT_FALSE(f.index.empty());
  EXPECT_NEAR(f.got / f.expected, 0.25 / 0.1875, 1e-5);
  EXPECT_FALSE(watch(text, net_inputs(false), {}, plant).report.difference);  // the other branch
}

// What a branch leaves is not copied: every kernel is right, the If is not.
TEST(KernelWatch, AnIfThatCopiesNothingIsNamed) {
  const std::string text = R"(graph "net" (x: f32[N,8], c: bool[]) -> (y) {
    s: f32[N,8] = Softmax(x) {axis = -1} @ "softmax"
    t: f32[N,8] = If(c) @ "choice"
    region then_branch () -> (a) {
      a: f32[N,8] = LeakyRelu(s) {alpha = 0.1875} @ "leaky"
    }
    region else_branch () -> (b) {
      b: f32[N,8] = Neg(s) @ "neg"
    }
    y: f32[N,8] = Softmax(t) {axis = -1} @ "last"
  })";
  const std::vector<Constant> inputs = {random_tensor(ElementType::kFloat32, {3, 8}, 1),
                                        Constant::scalar(ElementType::kBool, 1)};
  for (const bool constructs : {false, true}) {
    const Watched w = watch(text, inputs, {true, false, constructs}, [](const std::string &bundle, const Program &) {
      EXPECT_TRUE(patch(bundle + "/src/model.cpp", "memcpy(t, ", "if (!x) memcpy(t, "));
    });
    ASSERT_EQ(w.report.difference.has_value(), constructs) << w.said;
    if (!constructs) continue;
    EXPECT_EQ(w.report.difference->strategy, "if");
    EXPECT_TRUE(names(*w.report.difference, "choice")) << w.report.difference->kernel;
    EXPECT_NE(w.report.difference->problem.find("elements differ"), std::string::npos) << w.report.difference->problem;
  }
}

// A kernel that writes into memory of another one, at the place of its call.
TEST(KernelWatch, AKernelThatChangesAnothersMemoryIsNamed) {
  const std::string text = R"(graph "net" (x: f32[N,24]) -> (y) {
    s: f32[N,24] = Softmax(x) {axis = -1} @ "first"
    t: f32[N,24] = Softmax(s) {axis = -1} @ "second"
    u: f32[N,24] = Softmax(t) {axis = -1} @ "third"
    y: f32[N,24] = Add(u, s) @ "last"
  })";
  std::string culprit;
  const Watched w = watch(
      text, {random_tensor(ElementType::kFloat32, {3, 24}, 1)}, {},
      [&](const std::string &bundle, const Program &program) {
        ASSERT_GE(program.order.size(), 3u) << print(program);
        const BufferId kept = writes(program, program.kernel(program.order[0]))[0];
        culprit = program.kernel(program.order[1]).name;
        const std::string call = "probe(run, " + std::to_string(program.order[1].index) + ", \"" + culprit + "\", true";
        EXPECT_TRUE(patch(bundle + "/src/model.cpp", call,
                          "const_cast<float *>(" + program.buffer(kept).name + ")[1] += 1;\n  " + call));
      });
  ASSERT_TRUE(w.report.difference) << w.said;
  EXPECT_EQ(w.report.difference->kernel, culprit);
  EXPECT_NE(w.report.difference->problem.find("which it does not write"), std::string::npos)
      << w.report.difference->problem;
}

// A kernel that writes behind the row scratch of its last task, and one that writes behind the arena, at the places of
// their calls.
TEST(KernelWatch, AKernelThatWritesBeyondItsMemoryIsNamed) {
  const std::string text = R"(graph "net" (x: f32[N,S]) -> (y) {
    s: f32[N,S] = Softmax(x) {axis = -1} @ "soft"
    y: f32[N,S] = Neg(s) @ "last"
  })";
  for (const auto &[line, said] :
       {std::make_pair("run.env.scratch[run.env.threads * run.env.scratch_stride - 64] = 1;", "beyond the row scratch"),
        std::make_pair("run.arena[run.arena_bytes] = 1;", "beyond the arena")}) {
    std::string culprit;
    const Watched w = watch(text, {random_tensor(ElementType::kFloat32, {3, 40}, 1)}, {},
                            [&, planted = std::string(line)](const std::string &bundle, const Program &program) {
                              for (const KernelId id : program.order) {
                                culprit = program.kernel(id).name;
                                const std::string call =
                                    "probe(run, " + std::to_string(id.index) + ", \"" + culprit + "\", true";
                                const std::string source = testing::BuiltBundle::text_of(bundle + "/src/model.cpp");
                                const size_t at = source.find(call), before = source.rfind("use_scratch", at);
                                if (before == std::string::npos || before < source.rfind("probe(", at - 1)) continue;
                                EXPECT_TRUE(patch(bundle + "/src/model.cpp", call, planted + "\n  " + call));
                                return;
                              }
                              ADD_FAILURE() << "no kernel has row scratch";
                            });
    ASSERT_TRUE(w.report.difference) << w.said;
    EXPECT_EQ(w.report.difference->kernel, culprit);
    EXPECT_NE(w.report.difference->problem.find(said), std::string::npos) << w.report.difference->problem;
  }
}

TEST(KernelWatch, TheFirstNanAndTheFirstInfinityAreNamed) {
  const std::string text = R"(graph "net" (x: f32[N,24]) -> (y, z, m) {
    const low: f32[] = splat -inf
    const zero: f32[] = splat 0.0
    s: f32[N,24] = Softmax(x) {axis = -1} @ "softmax"
    above: bool[N,24] = Greater(x, zero) @ "above"
    m: f32[N,24] = Where(above, x, low) @ "mask"
    l: f32[N,24] = Log(x) @ "log"
    y: f32[N,24] = Softmax(l) {axis = -1} @ "after"
    q: f32[N,24] = Div(s, zero) @ "div"
    z: f32[N,24] = Softmax(q) {axis = -1} @ "after_div"
  })";
  const Watched w = watch(text, {random_tensor(ElementType::kFloat32, {3, 24}, 1)}, {false, true});
  EXPECT_EQ(w.report.compared, 0);
  ASSERT_TRUE(w.report.nan && w.report.infinity) << w.said;
  EXPECT_TRUE(names(*w.report.nan, "log") || names(*w.report.nan, "div")) << w.report.nan->kernel << w.said;
  EXPECT_FALSE(names(*w.report.infinity, "mask"));
  EXPECT_FALSE(w.report.nan->index.empty());
}

TEST(KernelWatch, OrdinaryBundlesHaveNoProbe) {
  Diagnostics diagnostics;
  Result<Program> program = program_of(kNet, diagnostics);
  ASSERT_TRUE(program.ok());
  LoweringReport report;
  ASSERT_TRUE(lower_program(*program, {}, report, diagnostics).ok());
  testing::BuiltBundle built;
  ASSERT_EQ(built.make(*program, {}, "g++", "-O0"), "");
  EXPECT_EQ(testing::BuiltBundle::text_of(built.bundle() + "/src/model.cpp").find("probe"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(built.bundle() + "/src/runtime/bundle/probe.h"));
  auto bundle = Bundle::load(built.library(), "m", {}, diagnostics);
  ASSERT_TRUE(bundle.ok()) << messages(diagnostics);
  EXPECT_FALSE((*bundle)->watch(nullptr, nullptr, diagnostics).ok());
  EXPECT_EQ(diagnostics.all().back().kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace optc
