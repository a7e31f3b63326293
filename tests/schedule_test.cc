// Schedules: what lowering chooses, that it is said and read back, that the verifier sees a wrong one and emit refuses
// it, and that the memory it asks for is what the plans of runtime/cpu need.
#include "ir/program/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "emit/cpp/emit.h"
#include "ir/program/gpu_machine.h"
#include "ir/program/tensor_core.h"
#include "runtime/cpu/attention_plan.h"
#include "runtime/cpu/conv_transposed_plan.h"
#include "runtime/cpu/gemm_blocks_plan.h"
#include "runtime/cpu/gemm_i8_plan.h"
#include "runtime/cpu/rnn_plan.h"
#include "tests/lowered.h"

namespace optc {
namespace {

std::string conv(const std::string &x, const std::string &w, int64_t group, int64_t kernel, int64_t stride,
                 int64_t dilation, int64_t begin, int64_t end) {
  const auto two = [](int64_t n) { return "ints [" + std::to_string(n) + ", " + std::to_string(n) + "]"; };
  const std::string b = std::to_string(begin), e = std::to_string(end);
  return "graph \"conv\" (x: " + x + ") -> (y) {\n  const w: " + w +
         " = hash \"a\"\n  y = Conv(x, w) {dilations = " + two(dilation) + ", group = " + std::to_string(group) +
         ", kernel_shape = " + two(kernel) + ", pads = ints [" + b + ", " + b + ", " + e + ", " + e +
         "], strides = " + two(stride) + ", auto_pad = \"NOTSET\"}\n}";
}

// One graph for each schedule (and form of it), by the name that it must get.
const std::vector<std::pair<std::string, std::string>> kGraphs = {
    {"pointwise", R"(graph "g" (x: f32[N,8]) -> (y) { y = Exp(x) })"},
    {"rows", R"(graph "g" (x: f32[N,8]) -> (y) { y = Softmax(x) {axis = -1} })"},
    {"loops", R"(graph "g" (x: f64[N,8], w: f64[8,8]) -> (y) { y = MatMul(x, w) })"},
    {"library", R"(graph "g" (x: f32[N,8]) -> (y) { y = NonZero(x) })"},
    {"gemm", R"(graph "g" (x: f32[N,8]) -> (y) { const w: f32[8,16] = hash "a"
      y = MatMul(x, w) })"},
    {"gemm", R"(graph "g" (x: f32[N,3,S,8], w: f32[N,3,8,S]) -> (y) { y = MatMul(x, w) })"},
    {"gemm", R"(graph "g" (x: f32[2,3000], w: f32[3000,20]) -> (y) { a = MatMul(x, w)
      y = Relu(a) })"},
    {"gemm", R"(graph "g" (x: f32[N,3000], r: f32[N,20]) -> (y) { const w: f32[3000,20] = hash "a"
      a = MatMul(x, w)
      y = Add(a, r) })"},
    {"gemm", R"(graph "g" (x: u8[N,8], z: u8[], r: f32[16]) -> (y) { const w: i8[8,16] = hash "a"
      const v: i8[16] = hash "b"
      a = MatMulInteger(x, w, z, v)
      b = Cast(a) {to = 1}
      y = Mul(b, r) })"},
    {"gemm", R"(graph "g" (x: i8[N,3,S,8], w: u8[N,3,8,S], v: i8[S]) -> (y) { y = MatMulInteger(x, w, v) })"},
    {"gemm", R"(graph "g" (x: f16[N,3000]) -> (y) { const w: f16[3000,20] = hash "a"
      a = MatMul(x, w)
      y = Relu(a) })"},
    {"gemm", R"(graph "g" (x: bf16[N,3,S,8], w: bf16[N,3,8,S]) -> (y) { y = MatMul(x, w) })"},
    {"gemm", R"(graph "g" (x: f32[8,N]) -> (y) { const w: f32[8,16] = hash "a"
      y = Gemm(x, w) {transA = 1} })"},
    {"gemm.blocks", R"(graph "g" (x: f32[N,64], r: f32[N,48]) -> (y) { const q: u4[64,48] = hash "a"
      const s: f32[2,48] = hash "b"
      const z: u4[2,48] = hash "c"
      w = DequantizeLinear(q, s, z) {axis = 0, block_size = 32}
      a = MatMul(x, w)
      y = Add(a, r) })"},
    {"gemm.blocks", R"(graph "g" (x: f16[3,N,1100]) -> (y) { const q: i8[40,1100] = hash "a"
      const s: f16[40] = hash "b"
      w = DequantizeLinear(q, s) {axis = 0}
      t = Transpose(w) {perm = ints [1, 0]}
      y = MatMul(x, t) })"},
    {"conv.gemm", conv("f32[N,8,H,W]", "f32[16,8,1,1]", 1, 1, 2, 1, 0, 0)},
    {"conv.direct", conv("f32[N,8,H,W]", "f32[16,8,3,3]", 1, 3, 2, 1, 1, 0)},
    {"conv.depthwise", conv("f32[N,8,H,W]", "f32[8,1,3,3]", 8, 3, 1, 2, 1, 1)},
    {"conv.winograd4", conv("f32[N,32,H,W]", "f32[32,32,3,3]", 1, 3, 1, 1, 1, 1)},
    {"conv.winograd2", conv("f32[N,32,8,6]", "f32[32,32,3,3]", 1, 3, 1, 1, 1, 1)},
    {"conv.direct", R"(graph "g" (x: f32[N,4,L]) -> (y) { const w: f32[8,4,3] = hash "a"
      y = Conv(x, w) {dilations = ints [1], group = 1, kernel_shape = ints [3], pads = ints [1, 1], strides = ints [2],
                      auto_pad = "NOTSET"} })"},
    {"conv.gemm", R"(graph "g" (x: f32[N,4,L]) -> (y) { const w: f32[8,4,1] = hash "a"
      y = Conv(x, w) {dilations = ints [1], group = 1, kernel_shape = ints [1], pads = ints [0, 0], strides = ints [1],
                      auto_pad = "NOTSET"} })"},
    {"conv.direct", R"(graph "g" (x: f32[N,4,D,H,W]) -> (y) { const w: f32[8,4,3,3,3] = hash "a"
      y = Conv(x, w) {dilations = ints [1, 1, 1], group = 1, kernel_shape = ints [3, 3, 3],
                      pads = ints [1, 1, 1, 1, 1, 1], strides = ints [1, 2, 2], auto_pad = "NOTSET"} })"},
    {"conv.gemm", R"(graph "g" (x: f32[N,4,D,H,W]) -> (y) { const w: f32[8,4,1,1,1] = hash "a"
      y = Conv(x, w) {dilations = ints [1, 1, 1], group = 1, kernel_shape = ints [1, 1, 1],
                      pads = ints [0, 0, 0, 0, 0, 0], strides = ints [1, 1, 1], auto_pad = "NOTSET"} })"},
    {"conv.transposed", R"(graph "g" (x: f32[N,8,H,W]) -> (y) { const w: f32[8,6,4,3] = hash "a"
      y = ConvTranspose(x, w) {dilations = ints [1, 1], group = 1, kernel_shape = ints [4, 3],
                               pads = ints [1, 0, 1, 1], strides = ints [2, 3], auto_pad = "NOTSET"} })"},
    {"conv.transposed", R"(graph "g" (x: f32[N,4,L]) -> (y) { const w: f32[4,3,5] = hash "a"
      y = ConvTranspose(x, w) {dilations = ints [2], group = 2, kernel_shape = ints [5], pads = ints [0, 0],
                               output_padding = ints [1], strides = ints [2], auto_pad = "NOTSET"} })"},
    {"conv.integer", R"(graph "g" (x: u8[N,8,H,W], z: u8[]) -> (y) { const w: i8[6,4,3,2] = hash "a"
      const v: i8[6] = hash "b"
      a = ConvInteger(x, w, z, v) {dilations = ints [1, 2], group = 2, kernel_shape = ints [3, 2],
                                   pads = ints [1, 0, 1, 1], strides = ints [2, 1], auto_pad = "NOTSET"}
      b = Cast(a) {to = 1}
      y = Relu(b) })"},
    {"conv.integer", R"(graph "g" (x: i8[N,8,H,W]) -> (y) { const w: u8[8,1,3,3] = hash "a"
      const s: f32[] = [0.5]
      const z: i8[] = [3]
      const v: u8[] = [7]
      y = QLinearConv(x, s, z, w, s, v, s, z) {dilations = ints [1, 1], group = 8, kernel_shape = ints [3, 3],
                                               pads = ints [1, 1, 1, 1], strides = ints [1, 1], auto_pad = "NOTSET"} })"},
    {"conv.integer", R"(graph "g" (x: u8[N,4,H,W]) -> (y) { const w: i8[6,4,1,1] = hash "a"
      const s: f32[] = [0.5]
      const t: f32[6] = [0.5, 0.25, 0.125, 1.0, 2.0, 0.75]
      const z: u8[] = [3]
      const v: i8[6] = splat 0
      a = DequantizeLinear(x, s, z)
      b = DequantizeLinear(w, t, v) {axis = 0}
      y = Conv(a, b) {dilations = ints [1, 1], group = 1, kernel_shape = ints [1, 1], pads = ints [0, 0, 0, 0],
                      strides = ints [1, 1], auto_pad = "NOTSET"} })"},
    {"attention", R"(graph "g" (q: f32[N,4,S,8], k: f32[N,4,T,8], v: f32[N,4,T,6], m: f32[N,1,S,T]) -> (y) {
      y = optc.Attention(q, k, v, m) {scale = 0.5} })"},
    {"attention", R"(graph "g" (q: f32[1,2,1,8], k: f32[1,2,9,8], v: f32[1,2,9,1]) -> (y) {
      y = optc.Attention(q, k, v) {scale = 0.5} })"},
    {"rnn", R"(graph "g" (x: f32[S,N,5]) -> (y) { const w: f32[2,12,5] = hash "a"
      const r: f32[2,12,3] = hash "b"
      const b: f32[2,24] = hash "c"
      y = LSTM(x, w, r, b) {hidden_size = 3, direction = "bidirectional"} })"},
    {"rnn", R"(graph "g" (x: f32[S,N,5]) -> (y) { const w: i8[2,5,12] = hash "a"
      const r: i8[2,3,12] = hash "b"
      const s: f32[2] = [0.01, 0.02]
      const t: f32[2,12] = splat 0.01
      const z: i8[2] = [0, 1]
      const v: i8[2,12] = hash "z"
      y = com.microsoft.DynamicQuantizeLSTM(x, w, r, _, _, _, _, _, s, z, t, v) {hidden_size = 3,
                                                                               direction = "bidirectional"} })"},
    {"rnn", R"(graph "g" (x: f16[S,N,5], h: f16[1,N,3]) -> (y) { const w: f16[1,9,5] = hash "a"
      const r: f16[1,9,3] = hash "b"
      const b: f16[1,18] = hash "c"
      y = GRU(x, w, r, b, _, h) {hidden_size = 3} })"},
    // Dequantized factors.
    {"gemm", R"(graph "g" (x: u8[N,8], r: f32[N,16]) -> (y) { const w: i8[8,16] = hash "a"
      const s: f32[] = [0.5]
      const t: f32[16] = splat 0.25
      const z: u8[] = [3]
      const v: i8[16] = hash "b"
      a = DequantizeLinear(x, s, z)
      b = DequantizeLinear(w, t, v) {axis = 1}
      c = MatMul(a, b)
      y = Add(c, r) })"},
};

// The text of the graph number `which` of those for a schedule.
std::string graph_of(const std::string &schedule, size_t which = 0) {
  for (const auto &[wanted, text] : kGraphs)
    if (wanted == schedule && which-- == 0) return text;
  return "";
}

// The same for a GPU's.
const std::vector<std::pair<std::string, std::string>> kGpuGraphs = {
    {"gemm.tensor_core", R"(graph "g" (x: f32[N,64]) -> (y) { const w: f32[64,48] = hash "a"
      y = MatMul(x, w) })"},
    {"gemm.tensor_core", R"(graph "g" (x: f16[5,2000]) -> (y) { const w: f16[2000,32] = hash "a"
      a = MatMul(x, w)
      y = Relu(a) })"},
    {"gemm.tensor_core", conv("f32[2,8,H,W]", "f32[16,8,3,3]", 1, 3, 2, 1, 1, 0)},
    {"conv.depthwise.strips", conv("f16[N,8,H,W]", "f16[8,1,3,3]", 8, 3, 1, 2, 1, 1)},
    {"conv.depthwise.strips", conv("f32[2,6,9,7]", "f32[6,1,5,5]", 6, 5, 2, 1, 2, 1)},
    {"conv.depthwise.strips", R"(graph "g" (x: bf16[N,4,L]) -> (y) { const w: bf16[4,1,3] = hash "a"
      a = Conv(x, w) {dilations = ints [1], group = 4, kernel_shape = ints [3], pads = ints [1, 1], strides = ints [2],
                      auto_pad = "NOTSET"}
      y = Relu(a) })"},
    {"rnn.steps", R"(graph "g" (x: f32[S,N,5], h: f32[2,N,3]) -> (y) { const w: f32[2,9,5] = hash "a"
      const r: f32[2,9,3] = hash "b"
      const b: f32[2,18] = hash "c"
      y = GRU(x, w, r, b, _, h) {hidden_size = 3, direction = "bidirectional", linear_before_reset = 1} })"},
    {"gemm.warpgroup", R"(graph "g" (x: f16[N,3,64]) -> (y) { const w: f16[64,48] = hash "a"
      a = MatMul(x, w)
      y = Relu(a) })"},
    {"gemm.warpgroup", R"(graph "g" (x: f16[4,N,64], w: f16[4,64,72]) -> (y) { y = MatMul(x, w) })"},
    {"conv.warpgroup", R"(graph "g" (x: f16[N,16,9,14]) -> (y) { const v: f16[64,16,1,1] = hash "a"
      const w: f16[48,64,3,3] = hash "b"
      a = Conv(x, v) {dilations = ints [1, 1], group = 1, kernel_shape = ints [1, 1], pads = ints [0, 0, 0, 0],
                      strides = ints [1, 1], auto_pad = "NOTSET"}
      y = Conv(a, w) {dilations = ints [2, 2], group = 1, kernel_shape = ints [3, 3], pads = ints [2, 2, 1, 1],
                      strides = ints [2, 2], auto_pad = "NOTSET"} })"},
    {"conv.warpgroup", R"(graph "g" (x: bf16[N,16,L], r: bf16[N,24,L]) -> (y) { const v: bf16[16,16,1] = hash "a"
      const w: bf16[24,16,3] = hash "b"
      a = Conv(x, v) {dilations = ints [1], group = 1, kernel_shape = ints [1], pads = ints [0, 0], strides = ints [1],
                      auto_pad = "NOTSET"}
      b = Conv(a, w) {dilations = ints [1], group = 1, kernel_shape = ints [3], pads = ints [1, 1], strides = ints [1],
                      auto_pad = "NOTSET"}
      y = Add(b, r) })"},
    // What the last product reads takes the place of another buffer once its schedule is chosen.
    {"gemm.warpgroup", R"(graph "g" (x: f16[N,64]) -> (y) { const w: f16[64,64] = hash "a"
      a = MatMul(x, w)
      b = Softmax(a) {axis = -1}
      c = MatMul(b, w)
      d = Add(c, a)
      y = MatMul(d, w) })"},
    {"pointwise", R"(graph "g" (x: f32[N,8]) -> (y) { y = Exp(x) })"},
    {"loops", R"(graph "g" (x: f64[N,8], w: f64[8,8]) -> (y) { y = MatMul(x, w) })"},
    {"library", R"(graph "g" (x: f32[N,8]) -> (y) { y = NonZero(x) })"},
};

LoweringOptions gpu_options() {
  LoweringOptions options;
  options.target = LoweringOptions::Target::kGpu;
  return options;
}

// All graphs, with what they are lowered for.
struct Case {
  std::string schedule, text;
  LoweringOptions options;
};
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto &[schedule, text] : kGraphs) cases.push_back({schedule, text, {}});
  for (const auto &[schedule, text] : kGpuGraphs) {
    cases.push_back({schedule, text, gpu_options()});
    if (!schedule.ends_with(".warpgroup")) continue;
    cases.back().options.warpgroups = true;
    cases.back().options.disabled = {"schedule.gemm.tensor_core"};  // which is quicker for little
  }
  return cases;
}

const Kernel *find(const Program &program, const std::string &schedule) {
  for (KernelId k : program.order)
    if (name(program.kernel(k).schedule) == schedule) return &program.kernel(k);
  return nullptr;
}

TEST(Schedule, IsChosenSaidAndReadBack) {
  for (const auto &[schedule, text, options] : all_cases()) {
    SCOPED_TRACE(text);
    const Lowered lowered = lower_text(text, options);
    ASSERT_TRUE(find(lowered.program, schedule)) << lowered.text;
    for (KernelId k : lowered.program.order) {
      const Schedule &chosen = lowered.program.kernel(k).schedule;
      const std::string line = print(lowered.program, chosen);
      Diagnostics diagnostics;
      const Result<Schedule> read = parse_schedule(line, lowered.program, diagnostics);
      ASSERT_TRUE(read.ok()) << line << "\n" << said(diagnostics);
      EXPECT_EQ(read->index(), chosen.index());
      EXPECT_EQ(print(lowered.program, *read), line);
      EXPECT_NE(lowered.text.find("schedule " + line + "\n"), std::string::npos) << line;
    }
  }
}

TEST(Schedule, WrongTextIsAnError) {
  const Lowered lowered = lower_text(kGraphs[4].second, {});
  const std::string line = print(lowered.program, find(lowered.program, "gemm")->schedule);
  const auto error = [&](std::string text) {
    Diagnostics diagnostics;
    EXPECT_FALSE(parse_schedule(text, lowered.program, diagnostics).ok()) << text;
    return said(diagnostics);
  };
  const auto with = [&](const std::string &from, const std::string &to) {
    std::string text = line;
    EXPECT_NE(text.find(from), std::string::npos) << line;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_NE(error("gem").find("'gem' is no schedule"), std::string::npos);
  EXPECT_NE(error("gemm").find("the field 'view.batch' is missing"), std::string::npos);
  EXPECT_NE(error(line + "; more=1").find("one field too many"), std::string::npos);
  EXPECT_NE(error(with("view.rows=", "view.row=")).find("expected the field 'view.rows'"), std::string::npos);
  EXPECT_NE(error(with("view.rows=N", "view.rows=N +")).find("no value of the field 'view.rows'"), std::string::npos);
  EXPECT_NE(error(with("view.rows=N", "view.rows=M")).find("no value of the field 'view.rows'"), std::string::npos);
  EXPECT_NE(error(with("packed=w_packed", "packed=other")).find("no value of the field 'packed'"), std::string::npos);
  EXPECT_NE(error(with("partial=none", "partial=some")).find("no value of the field 'partial'"), std::string::npos);
  for (size_t i = 0; i < line.size(); ++i) {  // cut anywhere: never a schedule, never a crash
    Diagnostics diagnostics;
    const auto read = parse_schedule(line.substr(0, i), lowered.program, diagnostics);
    EXPECT_TRUE(!read.ok() || print(lowered.program, *read) != line) << i;
  }
}

// Each of these makes a schedule that says something else than its nest.
TEST(Schedule, TheVerifierSeesAWrongOne) {
  const auto plant = [](const std::string &schedule, const std::string &number, const auto &fault, size_t which = 0) {
    for (const auto &[wanted, text, options] : all_cases()) {
      if (wanted != schedule || which-- > 0) continue;
      SCOPED_TRACE(text);
      Lowered lowered = lower_text(text, options);
      const Kernel *kernel = find(lowered.program, schedule);
      ASSERT_TRUE(kernel);
      fault(lowered.program, const_cast<Kernel *>(kernel)->schedule);
      Diagnostics diagnostics;
      EXPECT_FALSE(verify(lowered.program, diagnostics).ok()) << print(lowered.program, *kernel);
      EXPECT_NE(said(diagnostics).find("verifier " + number), std::string::npos) << said(diagnostics);
      return;
    }
    ADD_FAILURE() << "no graph";
  };
  const auto gemm = [](Schedule &s) -> GemmSchedule & { return std::get<GemmSchedule>(s); };
  plant("gemm", "S1", [](Program &, Schedule &s) { s = LibrarySchedule{}; });
  plant("library", "S1", [](Program &, Schedule &s) { s = MapSchedule{}; });
  plant("pointwise", "S1", [](Program &, Schedule &s) { s = GemmSchedule{}; });
  plant("gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.a_row = 9; });
  plant("gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.a.offset = 1; });
  plant("gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.b_inner = 8; });
  plant("gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.columns = 15; });
  plant("gemm", "S2", [&](Program &, Schedule &s) { std::swap(gemm(s).view.a.buffer, gemm(s).view.b.buffer); });
  plant("gemm", "S3", [&](Program &, Schedule &s) { gemm(s).view.m.clear(), gemm(s).view.rows = 1; });
  plant(
      "gemm", "S3", [&](Program &, Schedule &s) { gemm(s).view.batch.pop_back(); }, 1);
  plant("gemm", "S4", [&](Program &p, Schedule &s) { gemm(s).packed.buffer = p.inputs[0]; });
  // Products of bytes are the fifth and sixth.
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.b_column = 8; }, 4);
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { gemm(s).view.a.element = ElementType::kInt16; }, 4);
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { std::swap(gemm(s).view.a, gemm(s).view.b); }, 5);
  plant(
      "gemm", "S4", [&](Program &p, Schedule &s) { gemm(s).packed.buffer = p.inputs[0]; }, 4);
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { gemm(s).zeros.a.from.buffer = BufferId(); }, 4);
  plant(
      "gemm", "S2", [&](Program &, Schedule &s) { gemm(s).zeros.b.value = 1; }, 4);
  const auto blocks = [](Schedule &s) -> GemmBlocksSchedule & { return std::get<GemmBlocksSchedule>(s); };
  plant("gemm", "S1", [](Program &, Schedule &s) { s = GemmBlocksSchedule{}; });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.block = 16; });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.scale.strides[0] = 1; });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.zero.strides[1] = 2; });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.zero.buffer = BufferId(); });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.zero_value = 1; });
  plant("gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).view.b_inner = 47; });
  plant("gemm.blocks", "S3", [&](Program &, Schedule &s) { blocks(s).view.m.clear(), blocks(s).view.rows = 1; });
  plant("gemm.blocks", "S4", [&](Program &p, Schedule &s) { blocks(s).codes.buffer = p.inputs[0]; });
  plant(
      "gemm.blocks", "S2", [&](Program &, Schedule &s) { blocks(s).scales.rounded = ElementType::kFloat32; }, 1);
  const auto integers = [](Schedule &s) -> ConvolutionIntegerSchedule & {
    return std::get<ConvolutionIntegerSchedule>(s);
  };
  plant("conv.integer", "S2", [&](Program &, Schedule &s) { integers(s).zeros.b.step = 2; });
  plant("conv.integer", "S2", [&](Program &, Schedule &s) { integers(s).operands.geometry.dilations[2] = 1; });
  plant("conv.integer", "S1", [&](Program &, Schedule &s) { integers(s).depthwise = true; });
  plant("conv.direct", "S1", [&](Program &, Schedule &s) {
    s = ConvolutionIntegerSchedule{*convolution(s), {}, false, task_scratch(s)};
  });
  plant(
      "conv.integer", "S2", [&](Program &, Schedule &s) { integers(s).zeros.a.value = 4; }, 1);
  plant("conv.direct", "S2", [](Program &, Schedule &s) { convolution(s)->height = 7; });
  plant("conv.direct", "S2", [](Program &, Schedule &s) { convolution(s)->geometry.pads_begin[1] = 0; });
  plant("conv.direct", "S2", [](Program &, Schedule &s) { convolution(s)->channel_stride = 3; });
  plant(
      "conv.direct", "S2", [](Program &, Schedule &s) { convolution(s)->width = 2; }, 1);
  plant("conv.transposed", "S2", [](Program &, Schedule &s) { convolution(s)->geometry.pads_end[2] = 0; });
  plant("conv.transposed", "S2", [](Program &, Schedule &s) { convolution(s)->geometry.strides[1] = 3; });
  plant("conv.transposed", "S1", [](Program &, Schedule &s) {
    s = ConvolutionDirectSchedule{*convolution(s), task_scratch(s)};
  });
  plant("conv.direct", "S1", [](Program &, Schedule &s) {
    s = ConvolutionTransposedSchedule{*convolution(s), task_scratch(s)};
  });
  plant(
      "conv.direct", "S2", [](Program &, Schedule &s) { convolution(s)->plane_stride = 1; }, 2);
  plant("conv.winograd4", "S2", [](Program &, Schedule &s) { convolution(s)->geometry.channels = 16; });
  const auto attention = [](Schedule &s) -> AttentionSchedule & { return std::get<AttentionSchedule>(s); };
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).query.head = 8; });
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).key.row = 7; });
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).mask.query = 0; });
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).mask.buffer = BufferId(); });
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).output.batch = 1; });
  plant("attention", "S2", [&](Program &, Schedule &s) { attention(s).keys = attention(s).queries; });
  const auto product = [](Schedule &s) -> GemmTensorCoreSchedule & { return std::get<GemmTensorCoreSchedule>(s); };
  plant("pointwise", "S1", [](Program &, Schedule &s) { s = GemmTensorCoreSchedule{}; });
  plant("gemm.tensor_core", "S2", [&](Program &, Schedule &s) { product(s).type = TensorCoreType::kF16; });
  plant("gemm.tensor_core", "S3", [&](Program &, Schedule &s) { product(s).a.outer.clear(); });
  plant("gemm.tensor_core", "S3", [&](Program &, Schedule &s) { std::swap(product(s).a, product(s).b); });
  plant("gemm.tensor_core", "S3", [&](Program &, Schedule &s) { product(s).exchanged = true; });
  plant("gemm.tensor_core", "S4", [&](Program &, Schedule &s) { product(s).a.constant = true; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).tiles.clear(); });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).tiles[0].tile.m = 24; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).tiles[3].tile.warps_k = 3; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).tiles[0].splits = 0; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).a.k_contiguous = false; });
  plant("gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).b.chunk_bytes = 32; });
  plant(
      "gemm.tensor_core", "S5", [&](Program &, Schedule &s) { product(s).a.group = 8; }, 1);
  const auto strips = [](Schedule &s) -> ConvolutionStripsSchedule & { return std::get<ConvolutionStripsSchedule>(s); };
  const std::string depthwise = "conv.depthwise.strips";
  plant("pointwise", "S1", [](Program &, Schedule &s) { s = ConvolutionStripsSchedule{}; });
  plant(depthwise, "S2", [&](Program &, Schedule &s) { strips(s).image.height = 7; });
  plant(depthwise, "S2", [&](Program &, Schedule &s) { strips(s).image.pixel_stride = 7; });
  plant(depthwise, "S2", [&](Program &, Schedule &s) { strips(s).image.geometry.dilations[2] = 1; });
  plant(depthwise, "S3", [&](Program &, Schedule &s) { std::swap(strips(s).rows, strips(s).columns); });
  plant(depthwise, "S3", [&](Program &, Schedule &s) { strips(s).images.clear(); });
  plant(depthwise, "S3", [&](Program &, Schedule &s) { strips(s).taps.pop_back(); });
  plant(depthwise, "S5", [&](Program &, Schedule &s) { strips(s).block_lines = 7, strips(s).block_strips = 1; });
  plant(depthwise, "S5", [&](Program &, Schedule &s) { strips(s).strip = 40; });
  plant(
      depthwise, "S5", [&](Program &, Schedule &s) { strips(s).vector = 4; }, 1);
  const auto recurrent = [](Schedule &s) -> RecurrentSchedule & { return std::get<RecurrentSchedule>(s); };
  plant("rnn", "S4", [&](Program &p, Schedule &s) { recurrent(s).sums.buffer = p.outputs[0]; });
  plant("rnn", "S1", [&](Program &, Schedule &s) { recurrent(s).weights = ElementType::kInt8; });
  plant(
      "rnn", "S2", [&](Program &, Schedule &s) { recurrent(s).weights = ElementType::kUInt8; }, 1);
  plant(
      "rnn", "S4", [&](Program &, Schedule &s) { recurrent(s).layers[1].r_scale.buffer = BufferId(); }, 1);
  const auto steps = [](Schedule &s) -> RecurrentStepsSchedule & { return std::get<RecurrentStepsSchedule>(s); };
  plant("rnn.steps", "S1", [](Program &, Schedule &s) { s = RecurrentSchedule{}; });
  plant("rnn.steps", "S2", [&](Program &, Schedule &s) { steps(s).hidden = 4; });
  plant("rnn.steps", "S2", [&](Program &, Schedule &s) { steps(s).weights = ElementType::kFloat16; });
  plant("rnn.steps", "S4", [&](Program &p, Schedule &s) { steps(s).r.buffer = p.inputs[0]; });
  plant("rnn.steps", "S5", [&](Program &, Schedule &s) { steps(s).chunks = 0; });
  plant("rnn.steps", "S5", [&](Program &, Schedule &s) { steps(s).cached = steps(s).chunks + 1; });
  const auto groups = [](Schedule &s) -> GemmWarpgroupSchedule & { return std::get<GemmWarpgroupSchedule>(s); };
  plant("gemm.warpgroup", "S2", [&](Program &, Schedule &s) { groups(s).map_a.strides[1] = 72; });
  plant("gemm.warpgroup", "S2", [&](Program &, Schedule &s) { groups(s).map_b.extents[0] = 40; });
  plant("gemm.warpgroup", "S2", [&](Program &, Schedule &s) { groups(s).map_b.offset = 8; });
  plant("gemm.warpgroup", "S2", [&](Program &, Schedule &s) { groups(s).map_a.buffer = groups(s).map_b.buffer; });
  plant(
      "gemm.warpgroup", "S2", [&](Program &, Schedule &s) { groups(s).map_a.strides[2] = 64; }, 1);
  plant("gemm.warpgroup", "S3", [&](Program &, Schedule &s) { groups(s).a.outer.clear(); });
  plant("gemm.warpgroup", "S5", [&](Program &, Schedule &s) { groups(s).tiles.clear(); });
  plant("gemm.warpgroup", "S5", [&](Program &, Schedule &s) { groups(s).tiles[0].m = 96; });
  plant("gemm.warpgroup", "S5", [&](Program &, Schedule &s) { groups(s).tiles[1].stages = 40; });
  plant("gemm.warpgroup", "S5", [&](Program &, Schedule &s) { groups(s).blocks = 0; });
  const auto walks = [](Schedule &s) -> ConvolutionWarpgroupSchedule & {
    return std::get<ConvolutionWarpgroupSchedule>(s);
  };
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.lower[0] = -1; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.upper[1] += 1; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.steps[0] = 1; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.dilations[1] = 1; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.taps[1] = 2; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.pixels[1] = 9; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).image.strides[2] = 64; });
  plant("conv.warpgroup", "S2", [&](Program &, Schedule &s) { walks(s).filters.strides[3] = 64; });
  plant("conv.warpgroup", "S3", [&](Program &, Schedule &s) { walks(s).a.outer.pop_back(); });
  plant("conv.warpgroup", "S5", [&](Program &, Schedule &s) {
    walks(s).k.insert(walks(s).k.begin(), walks(s).k.back());
    walks(s).k.pop_back();
  });
  plant("conv.warpgroup", "S5", [&](Program &, Schedule &s) { walks(s).tiles[0].n = 32; });
  plant("gemm.warpgroup", "S3", [&](Program &, Schedule &s) { s = ConvolutionWarpgroupSchedule{}; });
}

// No printer falls back to another form: what it cannot print is a fault of optc.
TEST(Schedule, EmitRefusesANestOfAnotherForm) {
  Lowered lowered = lower_text(kGraphs[4].second, {});
  Kernel kernel = *find(lowered.program, "gemm");
  kernel.nest()->sequential = true;
  Diagnostics diagnostics;
  const auto text = print_kernel(lowered.program, kernel, diagnostics);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.failure().kind, ErrorKind::kInternal);
  EXPECT_NE(said(diagnostics).find("kernel " + kernel.name), std::string::npos) << said(diagnostics);
}

// What was weighed is reported, the chosen way first, and does not cost more than its runners-up; what fewer
// multiprocessors make of it is another choice; no tile needs more shared memory than the smallest of the cards has.
TEST(Schedule, TilesAreChosenByTheMachine) {
  LoweringOptions options = gpu_options();
  std::set<std::string> first;
  for (const GpuMachine &machine : gpu_machines()) {
    options.machine = &machine;
    const Lowered lowered = lower_text(R"(graph "g" (x: f16[512,768]) -> (y) { const w: f16[768,3072] = hash "a"
      y = MatMul(x, w) })",
                                       options);
    ASSERT_EQ(lowered.report.choices.size(), 1u);
    const ScheduleChoice &choice = lowered.report.choices[0];
    EXPECT_EQ(choice.kernel, find(lowered.program, "gemm.tensor_core")->name);
    ASSERT_EQ(choice.ranked.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_GE(choice.ranked[i].microseconds, choice.ranked[0].microseconds);
      EXPECT_GT(choice.ranked[i].microseconds, 1) << machine.target;
    }
    first.insert(choice.ranked[0].what);
    const auto &chosen = std::get<GemmTensorCoreSchedule>(find(lowered.program, "gemm.tensor_core")->schedule);
    ASSERT_EQ(chosen.tiles.size(), static_cast<size_t>(kMostJoinedKernels));
    for (size_t i = 0; i < chosen.tiles.size(); ++i) {
      EXPECT_LE(tensor_core_shared_bytes(chosen.type, chosen.tiles[i].tile), 99u << 10);
      EXPECT_TRUE(i == 0 || chosen.tiles[i].splits == 1);
    }
  }
  EXPECT_GT(first.size(), 1u);
}

// Of the ways that a product can have, the quickest by the model; on warpgroups only where all targets have them.
TEST(Schedule, ProductsRunOnWarpgroupsWhereThatIsQuicker) {
  const auto chosen = [](const std::string &sizes, bool warpgroups) {
    LoweringOptions options = gpu_options();
    options.warpgroups = warpgroups;
    const Lowered lowered = lower_text("graph \"g\" (x: f16[" + sizes.substr(0, sizes.find(' ')) + "], w: f16[" +
                                           sizes.substr(sizes.find(' ') + 1) + "]) -> (y) { y = MatMul(x, w) }",
                                       options);
    EXPECT_EQ(lowered.report.choices.size(), 1u);
    for (const ScheduleChoice &choice : lowered.report.choices)
      for (const ScheduleChoice::Way &way : choice.ranked)
        EXPECT_GE(way.microseconds, choice.ranked[0].microseconds) << way.what;
    return name(lowered.program.kernel(lowered.program.order[0]).schedule);
  };
  EXPECT_EQ(chosen("2048,2048 2048,2048", true), "gemm.warpgroup");
  EXPECT_EQ(chosen("2048,2048 2048,2048", false), "gemm.tensor_core");
  EXPECT_EQ(chosen("1,4096 4096,4096", true), "gemm.tensor_core");
  EXPECT_EQ(chosen("16,4096 4096,64", true), "gemm.tensor_core");
}

TEST(Schedule, ImagesAreWalkedWhereMapsCanNameThem) {
  const auto chosen = [](const std::string &text) {
    LoweringOptions options = gpu_options();
    options.warpgroups = true;
    options.disabled = {"schedule.gemm.tensor_core"};
    const Lowered lowered = lower_text(text, options);
    for (KernelId k : lowered.program.order)
      if (const std::string schedule = name(lowered.program.kernel(k).schedule); schedule == "conv.warpgroup")
        return true;
    return false;
  };
  EXPECT_TRUE(chosen(conv("f16[N,64,9,14]", "f16[48,64,3,3]", 1, 3, 1, 1, 1, 1)));
  EXPECT_TRUE(chosen(conv("f16[N,64,H,W]", "f16[48,64,3,3]", 1, 3, 1, 1, 1, 1)));
  EXPECT_FALSE(chosen(conv("f16[N,64,9,14]", "f16[48,32,3,3]", 2, 3, 1, 1, 1, 1)));  // groups
  EXPECT_FALSE(chosen(conv("f16[N,60,9,14]", "f16[48,60,3,3]", 1, 3, 1, 1, 1, 1)));
  EXPECT_FALSE(chosen(conv("f16[N,64,9,14]", "f16[48,64,3,3]", 1, 3, 1, 1, 130, 1)));
}

// A kernel that runs on the host is not given a schedule of the card.
TEST(Schedule, WhatHasNoGpuFormStaysPlain) {
  LoweringOptions options = gpu_options();
  const Lowered lowered = lower_text(R"(graph "g" (x: f32[4096,8,131072]) -> (y) { const w: f32[8,4] = hash "a"
    t = Transpose(x) {perm = ints [0, 2, 1]}
    y = MatMul(t, w) })",
                                     options);
  EXPECT_FALSE(find(lowered.program, "gemm.tensor_core")) << lowered.text;
  options.disabled = {"schedule.gemm.tensor_core"};
  EXPECT_FALSE(find(lower_text(kGpuGraphs[0].second, options).program, "gemm.tensor_core"));
}

// A fusion that would leave a product to plain loops is not made.
TEST(Schedule, FusionsLeaveAProductItsTemplate) {
  const char *const graphs[] = {
      R"(graph "g" (x: f32[N,8]) -> (y) { const w: f32[8,16] = hash "a"
        a = MatMul(x, w)
        y = Cast(a) {to = 7} })",
      R"(graph "g" (x: f32[N,8], r: f32[16,N]) -> (y) { const w: f32[8,16] = hash "a"
        t = Transpose(r) {perm = ints [1, 0]}
        a = MatMul(x, w)
        y = Add(a, t) })",
      R"(graph "g" (x: f32[N,8], i: i64[N,16]) -> (y) { const w: f32[8,16] = hash "a"
        a = MatMul(x, w)
        c = Cast(i) {to = 1}
        y = Mul(a, c) })",
  };
  for (const char *text : graphs) {
    const Lowered lowered = lower_text(text, {});
    EXPECT_TRUE(find(lowered.program, "gemm")) << lowered.text;
    expect_same_results(
        lowered, [](const DimSymbol &) { return std::optional<int64_t>(5); }, 1e-5);
  }
}

int64_t bytes_for(const Kernel &kernel, const std::vector<std::pair<std::string, int64_t>> &sizes) {
  const auto value = evaluate(task_scratch(kernel.schedule), [&](const DimSymbol &s) -> std::optional<int64_t> {
    for (const auto &[symbol, n] : sizes)
      if (symbol == s.name) return n;
    return std::nullopt;
  });
  EXPECT_TRUE(value.has_value());
  return value.value_or(-1);
}

TEST(Schedule, ScratchOfIntegerProductsHoldsWhatTheirPlansNeed) {
  for (const std::string w : {"packed", "symbol", "given"}) {
    for (int64_t k : {2, 8, 63, 64, 100, 5000, 100000}) {
      const bool given = w == "given", symbol = w == "symbol";
      const std::string kk = symbol ? "K" : std::to_string(k);
      const bool packed = !given && !symbol && k < 5000;
      const Lowered lowered =
          lower_text("graph \"g\" (x: u8[N," + kk + "]" + (packed ? "" : ", w: i8[" + kk + ",16]") + ") -> (y) { " +
                         (packed ? "const w: i8[" + kk + ",16] = hash \"a\"\n" : "") + " y = MatMulInteger(x, w) }",
                     {});
      const Kernel *kernel = find(lowered.program, "gemm");
      ASSERT_TRUE(kernel) << lowered.text;
      for (int64_t n : {1, 5, 32, 33, 256, 1000}) {
        const int64_t have = bytes_for(*kernel, {{"N", n}, {"K", k}}), need = optc_gemm_i8_scratch(n, k, packed);
        EXPECT_GE(have, need) << n << " " << k;
        EXPECT_LE(have, 2 * need + 262144) << n << " " << k;
      }
    }
  }
}

// Sums between blocks of k, of products in a batch and of results that are no plain rows.
TEST(Schedule, ScratchOfProductsHoldsTheirSumsBetweenBlocks) {
  const auto check = [](const std::string &form, int64_t m, int64_t n, int64_t k, bool symbol) {
    const std::string mm = symbol ? "N" : std::to_string(m), kk = std::to_string(k), nn = std::to_string(n);
    const std::string batch = form == "batch" ? "3," : "";
    const bool packed = form == "transposed";
    const Lowered lowered =
        lower_text("graph \"g\" (x: f32[" + batch + mm + "," + kk + "]" +
                       (packed ? "" : ", w: f32[" + batch + kk + "," + nn + "]") + ") -> (y) { " +
                       (packed ? "const w: f32[" + kk + "," + nn + "] = hash \"a\"\n" : "") + " a = MatMul(x, w)\n" +
                       (form == "batch" ? "y = Tanh(a)" : "y = Transpose(a) {perm = ints [1, 0]}") + " }",
                   {});
    const Kernel *kernel = find(lowered.program, "gemm");
    EXPECT_TRUE(kernel) << lowered.text;
    if (!kernel || std::get<GemmSchedule>(kernel->schedule).partial != GemmSchedule::Partial::kScratch) return 0;
    const OptcGemm plan = optc_gemm_plan(m, n, k);
    int64_t sums = 0;
    for (int64_t t = 0; t < optc_gemm_tasks(plan); ++t) {
      const OptcGemmTask task = optc_gemm_task(plan, t);
      sums = std::max(sums, (task.m1 - task.m0) * (task.n1 - task.n0));
    }
    const int64_t need = 4 * (sums + (packed ? 0 : kOptcGemmPanelFloats));
    EXPECT_GE(bytes_for(*kernel, {{"N", m}}), need) << form << " " << m << " " << n << " " << k << " " << symbol;
    return 1;
  };
  int in_scratch = 0;
  for (const std::string form : {"given", "batch", "transposed"})
    for (const int64_t k : {1025, 2050})
      for (const int64_t n : {20, 64, 65, 130, 200})
        for (const int64_t m : {1, 5, 20, 193})
          for (const bool symbol : {false, true}) in_scratch += check(form, m, n, k, symbol);
  EXPECT_GE(in_scratch, 80);
}

TEST(Schedule, ScratchOfQuantizedWeightsIsThatOfTheirPlan) {
  bool some_in_scratch = false;
  for (const int64_t m : {1, 4, 5, 20, 193})
    for (const int64_t k : {64, 1088, 2112})
      for (const bool symbol : {false, true})
        for (const bool added : {false, true}) {
          const std::string mm = symbol ? "N" : std::to_string(m), kk = std::to_string(k);
          const Lowered lowered = lower_text(
              "graph \"g\" (x: f32[" + mm + "," + kk + "], r: f32[" + mm + ",70]) -> (y) { const q: u4[" + kk +
                  ",70] = hash \"a\"\n const s: f32[" + std::to_string(k / 32) +
                  ",70] = hash \"b\"\n w = DequantizeLinear(q, s) {axis = 0, block_size = 32}\n a = MatMul(x, w)\n" +
                  (added ? "y = Add(a, r)" : "y = Relu(a)") + " }",
              {});
          const Kernel *kernel = find(lowered.program, "gemm.blocks");
          ASSERT_TRUE(kernel) << lowered.text;
          using Partial = GemmSchedule::Partial;
          const bool in_scratch = std::get<GemmBlocksSchedule>(kernel->schedule).partial == Partial::kScratch;
          some_in_scratch |= in_scratch;
          const OptcGemm plan = optc_gemm_plan(m, 70, k);
          int64_t need = 0;
          for (int64_t t = 0; t < optc_gemm_tasks(plan); ++t) {
            const OptcGemmTask task = optc_gemm_task(plan, t);
            need =
                std::max(need, optc_gemm_blocks_floats(task.m1 - task.m0, 70, k, m <= kOptcBlockFewRows, in_scratch));
          }
          EXPECT_GE(bytes_for(*kernel, {{"N", m}}), 4 * need) << m << " " << k << " " << symbol << added;
        }
  EXPECT_TRUE(some_in_scratch);
}

TEST(Schedule, ScratchOfConvolutionsIsThatOfTheirPlans) {
  std::mt19937 random(11);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 60; ++round) {
    const bool winograd = round % 2 == 0;
    const int64_t group = winograd ? 1 : int64_t{1} << draw(0, 3);
    const int64_t c = winograd ? draw(32, 200) : group * draw(1, 9), oc = winograd ? draw(32, 200) : group * draw(2, 9);
    const int64_t kernel = winograd ? 3 : draw(2, 5), stride = winograd ? 1 : draw(1, 3),
                  dilation = winograd ? 1 : draw(1, 2), begin = draw(0, 2), end = draw(0, 2);
    const auto text = conv("f32[N," + std::to_string(c) + ",H,W]",
                           "f32[" + std::to_string(oc) + "," + std::to_string(c / group) + "," +
                               std::to_string(kernel) + "," + std::to_string(kernel) + "]",
                           group, kernel, stride, dilation, begin, end);
    SCOPED_TRACE(text);
    const Lowered lowered = lower_text(text, {});
    const Kernel *found = find(lowered.program, "conv.direct");
    int64_t tile = 0;
    if (!found) found = find(lowered.program, "conv.winograd4"), tile = 4;
    if (!found) found = find(lowered.program, "conv.winograd2"), tile = 2;
    ASSERT_TRUE(found) << lowered.text;
    for (int i = 0; i < 20; ++i) {
      const int64_t reach = (kernel - 1) * dilation + 1, least = std::max<int64_t>(1, reach - begin - end);
      const int64_t n = draw(1, 3), h = draw(least, i < 10 ? least + 3 : 300), w = draw(least, i % 2 ? least + 3 : 300);
      const OptcConvShape shape{n,      h,        w,        c,     oc,    kernel, kernel, stride,
                                stride, dilation, dilation, begin, begin, end,    end,    group};
      const int64_t floats =
          tile ? optc_winograd_plan(shape, tile).scratch_floats : optc_direct_plan(shape).scratch_floats;
      EXPECT_EQ(bytes_for(*found, {{"N", n}, {"H", h}, {"W", w}}), 4 * floats) << n << " " << h << " " << w;
    }
  }
}

TEST(Schedule, ScratchOfTransposedConvolutionsIsThatOfTheirPlans) {
  const Lowered lowered = lower_text(graph_of("conv.transposed", 0), {});
  const Kernel *plane = find(lowered.program, "conv.transposed");
  ASSERT_TRUE(plane) << lowered.text;
  const Lowered of_line = lower_text(graph_of("conv.transposed", 1), {});
  const Kernel *line = find(of_line.program, "conv.transposed");
  ASSERT_TRUE(line) << of_line.text;
  for (int64_t h : {1, 2, 5, 16, 100, 300})
    for (int64_t w : {1, 3, 8, 200}) {
      const OptcConvShape s{2, h, w, 8, 6, 4, 3, 2, 3, 1, 1, 1, 0, 1, 1, 1};
      EXPECT_EQ(bytes_for(*plane, {{"N", 2}, {"H", h}, {"W", w}}), 4 * optc_transposed_scratch_floats(s))
          << h << " " << w;
      const OptcConvShape column{2, h, 1, 4, 6, 5, 1, 2, 1, 2, 1, 0, 0, -1, 0, 2};
      EXPECT_EQ(bytes_for(*line, {{"N", 2}, {"L", h}}), 4 * optc_transposed_scratch_floats(column)) << h;
    }
}

TEST(Schedule, ScratchOfAttentionAndRnnIsThatOfTheirPlans) {
  const Lowered lowered = lower_text(graph_of("attention"), {});
  const Kernel *attention = find(lowered.program, "attention");
  ASSERT_TRUE(attention) << lowered.text;
  for (int64_t s : {1, 2, 4, 5, 16, 100})
    for (int64_t t : {1, 15, 16, 1000, 1024, 5000}) {
      const OptcAttention plan{2, 4, 4, s, t, 8, 6, 1, 0, false, 0};
      EXPECT_EQ(bytes_for(*attention, {{"N", 2}, {"S", s}, {"T", t}}), 4 * optc_attention_scratch_floats(plan))
          << s << " " << t;
    }
  const Lowered lstm = lower_text(graph_of("rnn"), {});
  const Kernel *rnn = find(lstm.program, "rnn");
  ASSERT_TRUE(rnn) << lstm.text;
  OptcRnn layer{};
  layer.kind = OPTC_LSTM;
  layer.input = 5;
  layer.hidden = 3;
  EXPECT_EQ(bytes_for(*rnn, {}), optc_rnn_scratch(layer, kOptcRnnRows));
  const Lowered integers = lower_text(graph_of("rnn", 1), {});
  const Kernel *quantized = find(integers.program, "rnn");
  ASSERT_TRUE(quantized) << integers.text;
  for (int64_t steps : {1, 9, 400})
    for (int64_t n : {1, 2, 33, 700}) {
      const int64_t have = bytes_for(*quantized, {{"S", steps}, {"N", n}});
      EXPECT_GE(have, optc_rnn_quantized_scratch(layer, n)) << steps << " " << n;
      EXPECT_GE(have, optc_gemm_i8_scratch(steps * n, layer.input, true)) << steps << " " << n;
    }
}

}  // namespace
}  // namespace optc
