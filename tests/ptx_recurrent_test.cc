// LSTM, GRU and RNN on a GPU (lowering/fusion/recurrent.cc, emit/ptx/recurrent.cc): whole layers in the emulator beside
// the library function on the evaluator.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/lowered.h"
#include "tests/ptx_machine.h"

namespace optc::testing {
namespace {

using Sizes = std::map<std::string, int64_t>;

struct Layer {
  const char *what, *text;
  double tolerance = 2e-6;
};

LoweringOptions gpu(ElementType precision = kF32) {
  LoweringOptions options;
  options.target = LoweringOptions::Target::kGpu;
  options.precision = precision;
  return options;
}

const Kernel *steps_of(const Program &program) {
  for (KernelId k : program.order)
    if (const LibraryCall *call = program.kernel(k).library(); call && call->function == "rnn_steps")
      return &program.kernel(k);
  return nullptr;
}

// What the emulator makes of a graph, and the evaluator of its operators.
void expect_same(const char *text, const LoweringOptions &options, const Sizes &sizes, const std::string &target,
                 double tolerance) {
  Lowered lowered = lower_text(text, options);
  ASSERT_FALSE(lowered.text.empty());
  ASSERT_TRUE(steps_of(lowered.program)) << lowered.text;
  std::mt19937 random(3);
  const std::vector<RuntimeValue> inputs = random_inputs(
      lowered.plain, [&](const DimSymbol &s) { return std::optional(sizes.at(s.name)); }, random);
  Diagnostics diagnostics;
  EvaluateOptions plain;
  plain.use_runtime_kernels = false;
  const auto want = evaluate(lowered.plain, inputs, plain, diagnostics);
  ASSERT_TRUE(want.ok()) << said(diagnostics);
  Machine machine(lowered.program, "ieee", target, 0, {}, -1, options.machine->multiprocessors);
  for (const PtxKernel &k : machine.output.kernels) ASSERT_TRUE(k.on_gpu) << k.reason << "\n" << lowered.text;
  machine.fill(1, [&](const DimSymbol &s) { return sizes.at(s.name); });
  machine.load_constants();
  for (size_t i = 0; i < inputs.size(); ++i)
    for (int64_t e = 0; e < inputs[i].tensor.count(); ++e)
      machine.put(lowered.program.inputs[i], static_cast<size_t>(e), inputs[i].tensor.as_double(e));
  machine.run();
  for (size_t o = 0; o < want->size(); ++o) {
    const Constant &expected = (*want)[o].tensor;
    double largest = 1e-30;
    for (int64_t e = 0; e < expected.count(); ++e) largest = std::max(largest, std::fabs(expected.as_double(e)));
    for (int64_t e = 0; e < expected.count(); ++e)
      ASSERT_NEAR(machine.get(lowered.program.outputs[o], static_cast<size_t>(e)), expected.as_double(e),
                  tolerance * largest)
          << "output " << o << " at " << e << "\n"
          << lowered.text;
  }
}

const Layer kLayers[] = {
    {"an LSTM of both directions", R"(graph "g" (x: f32[S,N,5]) -> (y, h, c) {
      const w: f32[2,12,5] = hash "a"
      const r: f32[2,12,3] = hash "b"
      const b: f32[2,24] = hash "c"
      y, h, c = LSTM(x, w, r, b) {hidden_size = 3, direction = "bidirectional"} })"},
    {"an LSTM backwards, with states, peepholes and a clip, batch first", R"(
      graph "g" (x: f32[N,S,4], h0: f32[N,1,40], c0: f32[N,1,40], p: f32[1,120]) -> (y, h, c) {
      const w: f32[1,160,4] = hash "a"
      const r: f32[1,160,40] = hash "b"
      const b: f32[1,320] = hash "c"
      y, h, c = LSTM(x, w, r, b, _, h0, c0, p) {hidden_size = 40, direction = "reverse", layout = 1, clip = 0.5} })"},
    {"an LSTM whose forget gate is 1 - i, of other activations", R"(graph "g" (x: f32[S,N,4]) -> (h) {
      const w: f32[1,20,4] = hash "a"
      const r: f32[1,20,5] = hash "b"
      _, h = LSTM(x, w, r) {hidden_size = 5, input_forget = 1, activations = strings ["HardSigmoid", "Softsign", "Affine"],
                            activation_alpha = floats [0.3, 0.7], activation_beta = floats [0.4, 0.1]} })"},
    {"a GRU", R"(graph "g" (x: f32[S,N,5], h0: f32[1,N,7]) -> (y, h) {
      const w: f32[1,21,5] = hash "a"
      const r: f32[1,21,7] = hash "b"
      const b: f32[1,42] = hash "c"
      y, h = GRU(x, w, r, b, _, h0) {hidden_size = 7} })"},
    {"a GRU of one unit, whose block has more threads than its memory has sums", R"(
      graph "g" (x: f32[S,N,2], h0: f32[1,N,1]) -> (y, h) {
      const w: f32[1,3,2] = hash "a"
      const r: f32[1,3,1] = hash "b"
      y, h = GRU(x, w, r, _, _, h0) {hidden_size = 1} })"},
    {"a GRU with linear_before_reset, both directions", R"(graph "g" (x: f32[S,N,5]) -> (y, h) {
      const w: f32[2,99,5] = hash "a"
      const r: f32[2,99,33] = hash "b"
      const b: f32[2,198] = hash "c"
      y, h = GRU(x, w, r, b) {hidden_size = 33, linear_before_reset = 1, direction = "bidirectional"} })"},
    {"a GRU with linear_before_reset without a bias", R"(graph "g" (x: f32[S,N,5]) -> (y) {
      const w: f32[1,6,5] = hash "a"
      const r: f32[1,6,2] = hash "b"
      y = GRU(x, w, r) {hidden_size = 2, linear_before_reset = 1} })"},
    {"an RNN", R"(graph "g" (x: f32[S,N,1]) -> (y, h) {
      const w: f32[1,9,1] = hash "a"
      const r: f32[1,9,9] = hash "b"
      y, h = RNN(x, w, r) {hidden_size = 9} })"},
    {"an RNN of Elu, leaky beyond", R"(graph "g" (x: f32[S,N,3]) -> (y) {
      const w: f32[2,9,3] = hash "a"
      const r: f32[2,9,9] = hash "b"
      const b: f32[2,18] = hash "c"
      y = RNN(x, w, r, b) {hidden_size = 9, direction = "bidirectional", activations = strings ["Elu", "Elu"],
                           activation_alpha = floats [0.5, 0.5]} })"},
    {"an LSTM of f16", R"(graph "g" (x: f16[S,N,8]) -> (y) {
      const w: f16[1,64,8] = hash "a"
      const r: f16[1,64,16] = hash "b"
      const b: f16[1,128] = hash "c"
      y = LSTM(x, w, r, b) {hidden_size = 16} })",
     1e-3},
};

TEST(PtxRecurrent, LayersComputeWhatTheyMean) {
  for (const Layer &layer : kLayers)
    for (const Sizes &sizes : {Sizes{{"S", 5}, {"N", 3}}, Sizes{{"S", 1}, {"N", 1}}}) {
      SCOPED_TRACE(layer.what);
      expect_same(layer.text, gpu(), sizes, "sm_80", layer.tolerance);
      expect_same(layer.text, gpu(), sizes, "sm_90a", layer.tolerance);
      if (HasFatalFailure()) return;
    }
}

// Several columns a thread, several rows a block, weights that have no room in shared memory, parts of a sum.
TEST(PtxRecurrent, SizesThatDoNotFitABlock) {
  const char *wide = R"(graph "g" (x: f32[2,2,3]) -> (y) {
      const w: f32[1,1200,3] = hash "a"
      const r: f32[1,1200,300] = hash "b"
      y = LSTM(x, w, r) {hidden_size = 300} })";
  expect_same(wide, gpu(), {}, "sm_80", 5e-6);
  const char *many = R"(graph "g" (x: f32[3,5,3]) -> (y, h) {
      const w: f32[1,18,3] = hash "a"
      const r: f32[1,18,6] = hash "b"
      y, h = GRU(x, w, r) {hidden_size = 6} })";
  GpuMachine small = machine_of({"sm_80"});
  small.multiprocessors = 2;
  LoweringOptions options = gpu();
  options.machine = &small;
  expect_same(many, options, {}, "sm_80", 2e-6);
}

// --precision: R is a constant of a product, and is stored as one.
TEST(PtxRecurrent, WeightsIn16Bits) {
  const char *text = R"(graph "g" (x: f32[S,N,24]) -> (y) {
      const w: f32[1,96,24] = hash "a"
      const r: f32[1,96,24] = hash "b"
      y = LSTM(x, w, r) {hidden_size = 24} })";
  for (ElementType type : {kF16, kBF16}) {
    const Lowered lowered = lower_text(text, gpu(type));
    const Kernel *steps = steps_of(lowered.program);
    ASSERT_TRUE(steps) << lowered.text;
    EXPECT_EQ(std::get<RecurrentStepsSchedule>(steps->schedule).weights, type) << lowered.text;
    expect_same(text, gpu(type), {{"S", 4}, {"N", 2}}, "sm_90a", type == kF16 ? 5e-3 : 4e-2);
  }
}

// What has no form on a GPU stays the one call that it was.
TEST(PtxRecurrent, OthersStayOnTheCpu) {
  const char *lengths = R"(graph "g" (x: f32[S,N,5], n: i32[N]) -> (y) {
      const w: f32[1,9,5] = hash "a"
      const r: f32[1,9,3] = hash "b"
      y = GRU(x, w, r, _, n) {hidden_size = 3} })";
  EXPECT_FALSE(steps_of(lower_text(lengths, gpu()).program));
  const char *given = R"(graph "g" (x: f32[S,N,5], r: f32[1,9,3]) -> (y) {
      const w: f32[1,9,5] = hash "a"
      y = GRU(x, w, r) {hidden_size = 3} })";
  EXPECT_FALSE(steps_of(lower_text(given, gpu()).program));
  EXPECT_FALSE(steps_of(lower_text(kLayers[0].text, LoweringOptions()).program));
  LoweringOptions without = gpu();
  without.disabled = {"split.rnn"};
  EXPECT_FALSE(steps_of(lower_text(kLayers[0].text, without).program));
}

}  // namespace
}  // namespace optc::testing
