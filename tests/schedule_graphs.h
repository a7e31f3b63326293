// One graph for each schedule and form of it, for the tests of schedules.
#ifndef OPTC_TESTS_SCHEDULE_GRAPHS_H
#define OPTC_TESTS_SCHEDULE_GRAPHS_H
#include <string>
#include <utility>
#include <vector>

#include "ir/program/schedule.h"
#include "tests/lowered.h"

namespace optc {

// A Conv of one plane; sizes of kernel, strides, dilations and pads are the same in both directions.
inline std::string conv(const std::string &x, const std::string &w, int64_t group, int64_t kernel, int64_t stride,
                        int64_t dilation, int64_t begin, int64_t end) {
  const auto two = [](int64_t n) { return "ints [" + std::to_string(n) + ", " + std::to_string(n) + "]"; };
  const std::string b = std::to_string(begin), e = std::to_string(end);
  return "graph \"conv\" (x: " + x + ") -> (y) {\n  const w: " + w +
         " = hash \"a\"\n  y = Conv(x, w) {dilations = " + two(dilation) + ", group = " + std::to_string(group) +
         ", kernel_shape = " + two(kernel) + ", pads = ints [" + b + ", " + b + ", " + e + ", " + e +
         "], strides = " + two(stride) + ", auto_pad = \"NOTSET\"}\n}";
}

// One graph for each schedule (and form of it), by the name that it must get.
inline const std::vector<std::pair<std::string, std::string>> kGraphs = {
    {"pointwise", R"(graph "g" (x: f32[N,8]) -> (y) { y = Exp(x) })"},
    {"rows", R"(graph "g" (x: f32[N,8]) -> (y) { y = Softmax(x) {axis = -1} })"},
    {"loops", R"(graph "g" (x: i32[N,8], w: i32[8,8]) -> (y) { y = MatMul(x, w) })"},
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
    {"gemm.blocks", R"(graph "g" (x: f32[N,3,64], s: f32[N,3,2], r: f32[N,3,48]) -> (y) { const q: u4[64,48] = hash "a"
      const t: f32[2,48] = hash "b"
      const z: u4[2,48] = hash "c"
      p = QuantizeLinear(x, s) {axis = 2, block_size = 32, output_dtype = 3}
      a = DequantizeLinear(p, s) {axis = 2, block_size = 32}
      w = DequantizeLinear(q, t, z) {axis = 0, block_size = 32}
      b = MatMul(a, w)
      y = Add(b, r) })"},
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
    // Of double.
    {"gemm", R"(graph "g" (x: f64[N,8], r: f64[16]) -> (y) { const w: f64[8,16] = hash "a"
      a = MatMul(x, w)
      b = Add(a, r)
      y = Sigmoid(b) })"},
    {"gemm", R"(graph "g" (x: f64[N,3,S,T], w: f64[N,3,T,S]) -> (y) { y = MatMul(x, w) })"},
    {"gemm", R"(graph "g" (x: f64[1100,N], w: f64[20,1100], c: f64[20]) -> (y) {
      y = Gemm(x, w, c) {transA = 1, transB = 1} })"},
};

// The text of the graph number `which` of those for a schedule.
inline std::string graph_of(const std::string &schedule, size_t which = 0) {
  for (const auto &[wanted, text] : kGraphs)
    if (wanted == schedule && which-- == 0) return text;
  return "";
}

// The same for a GPU's.
inline const std::vector<std::pair<std::string, std::string>> kGpuGraphs = {
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

inline LoweringOptions gpu_options() {
  LoweringOptions options;
  options.target = LoweringOptions::Target::kGpu;
  return options;
}

// All graphs, with what they are lowered for.
struct ScheduleCase {
  std::string schedule, text;
  LoweringOptions options;
};
inline std::vector<ScheduleCase> all_cases() {
  std::vector<ScheduleCase> cases;
  for (const auto &[schedule, text] : kGraphs) cases.push_back({schedule, text, {}});
  for (const auto &[schedule, text] : kGpuGraphs) {
    cases.push_back({schedule, text, gpu_options()});
    if (!schedule.ends_with(".warpgroup")) continue;
    cases.back().options.warpgroups = true;
    cases.back().options.disabled = {"schedule.gemm.tensor_core"};  // which is quicker for little
  }
  return cases;
}

inline const Kernel *find(const Program &program, const std::string &schedule) {
  for (KernelId k : program.order)
    if (name(program.kernel(k).schedule) == schedule) return &program.kernel(k);
  return nullptr;
}

}  // namespace optc
#endif  // OPTC_TESTS_SCHEDULE_GRAPHS_H
