// The scratch memory that schedules ask for is what the plans of runtime/cpu need.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/cpu/attention_plan.h"
#include "runtime/cpu/conv_transposed_plan.h"
#include "runtime/cpu/gemm_blocks_plan.h"
#include "runtime/cpu/gemm_i8_plan.h"
#include "runtime/cpu/rnn_plan.h"
#include "tests/schedule_graphs.h"

namespace optc {
namespace {

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
  const auto check = [](const std::string &form, int64_t m, int64_t n, int64_t k, bool symbol, int64_t element) {
    const std::string type = element == 8 ? "f64[" : "f32[";
    const std::string mm = symbol ? "N" : std::to_string(m), kk = std::to_string(k), nn = std::to_string(n);
    const std::string batch = form == "batch" ? "3," : "";
    const bool packed = form == "transposed";
    const Lowered lowered =
        lower_text("graph \"g\" (x: " + type + batch + mm + "," + kk + "]" +
                       (packed ? "" : ", w: " + type + batch + kk + "," + nn + "]") + ") -> (y) { " +
                       (packed ? "const w: " + type + kk + "," + nn + "] = hash \"a\"\n" : "") + " a = MatMul(x, w)\n" +
                       (form == "batch" ? "y = Tanh(a)" : "y = Transpose(a) {perm = ints [1, 0]}") + " }",
                   {});
    const Kernel *kernel = find(lowered.program, "gemm");
    EXPECT_TRUE(kernel) << lowered.text;
    if (!kernel || std::get<GemmSchedule>(kernel->schedule).partial != GemmSchedule::Partial::kScratch) return 0;
    const OptcGemm plan = optc_gemm_plan(m, n, k, 1, 1, element);
    int64_t sums = 0;
    for (int64_t t = 0; t < optc_gemm_tasks(plan); ++t) {
      const OptcGemmTask task = optc_gemm_task(plan, t);
      sums = std::max(sums, (task.m1 - task.m0) * (task.n1 - task.n0));
    }
    const int64_t need = element * sums + 4 * (packed ? 0 : kOptcGemmPanelFloats);
    EXPECT_GE(bytes_for(*kernel, {{"N", m}}), need) << form << " " << m << " " << n << " " << k << " " << symbol;
    return 1;
  };
  int in_scratch = 0;
  for (const std::string form : {"given", "batch", "transposed"})
    for (const int64_t k : {1025, 2050})
      for (const int64_t n : {20, 64, 65, 130, 200})
        for (const int64_t m : {1, 5, 20, 193})
          for (const bool symbol : {false, true})
            for (const int64_t element : {4, 8}) in_scratch += check(form, m, n, k, symbol, element);
  EXPECT_GE(in_scratch, 160);
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

TEST(Schedule, ScratchOfQuantizedActivationsIsThatOfTheirPlan) {
  for (const int64_t m : {1, 5, 193, 500})
    for (const bool symbol : {false, true}) {
      const std::string mm = symbol ? "N" : std::to_string(m);
      const Lowered lowered = lower_text(
          "graph \"g\" (x: f32[" + mm + ",320], s: f32[" + mm + ",10]) -> (y) { const q: i8[320,70] = hash \"a\"\n" +
              " const t: f32[10,70] = hash \"b\"\n w = DequantizeLinear(q, t) {axis = 0, block_size = 32}\n" +
              " p = QuantizeLinear(x, s) {axis = 1, block_size = 32, output_dtype = 3}\n" +
              " a = DequantizeLinear(p, s) {axis = 1, block_size = 32}\n y = MatMul(a, w) }",
          {});
      const Kernel *kernel = find(lowered.program, "gemm.blocks");
      ASSERT_TRUE(kernel) << lowered.text;
      EXPECT_TRUE(std::get<GemmBlocksSchedule>(kernel->schedule).activations.scale.buffer.valid()) << lowered.text;
      const OptcGemm plan = optc_gemm_plan(m, 70, 320);
      int64_t need = 0;
      for (int64_t t = 0; t < optc_gemm_tasks(plan); ++t) {
        const OptcGemmTask task = optc_gemm_task(plan, t);
        need = std::max(need, optc_gemm_blocks_i8_bytes(task.m1 - task.m0, 320, 32));
      }
      EXPECT_GE(bytes_for(*kernel, {{"N", m}}), need) << m << " " << symbol;
    }
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
