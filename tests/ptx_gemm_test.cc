// Kernels of emit/ptx on tensor cores: run by the emulator against references in double.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "tests/ptx_machine.h"

namespace optc::testing {
namespace {

// --- Products

void check_product(const Product &c, const std::string &f32 = "3xtf32") {
  NestProgram n;
  n.given_in_f32 = c.given_in_f32;
  n.matmul(c.type, c.batch, c.m, c.n, c.k, c.transposed, c.batched);
  Machine m(n.program, f32, "sm_80", c.splits);
  ASSERT_EQ(m.output.kernels.size(), 1u);
  const std::string form = m.output.kernels[0].form;
  EXPECT_EQ(form.rfind("gemm.", 0), 0u) << form;
  if (c.splits > 1) {
    EXPECT_NE(form.find(" split " + std::to_string(c.splits)), std::string::npos) << form;
  }
  m.fill(6);
  m.run(11);
  const double tolerance = f32 == "tf32" && c.type == kF32 ? 2e-3 : 3 * rounding(c.type);
  expect_product(m, n.program, c, tolerance, form);
}

TEST(PtxGemm, AllTypesLayoutsAndRaggedShapes) {
  for (ElementType type : {kF16, kBF16, kF32})
    for (bool transposed : {false, true}) {
      check_product({type, 1, 64, 64, 128, transposed, false});
      check_product({type, 1, 37, 41, 19, transposed, false});  // nothing divides anything
      check_product({type, 1, 24, 72, 40, transposed, false});
      check_product({type, 3, 17, 40, 24, transposed, true});
      check_product({type, 2, 5, 48, 64, transposed, false});  // batch becomes rows
    }
}

TEST(PtxGemm, OperandsInF32AreRoundedAsTheyAreRead) {
  for (ElementType type : {kF16, kBF16}) {
    check_product({type, 1, 40, 48, 96, false, false, true});  // eight at a time
    check_product({type, 1, 1, 24, 784, true, false, true});
    check_product({type, 1, 37, 41, 19, false, false, true});  // one at a time
    check_product({type, 2, 17, 40, 72, true, true, true});
  }
  NestProgram n;
  n.given_in_f32 = true;
  n.matmul(kF16, 1, 40, 48, 96, false, false);
  Machine m(n.program);
  EXPECT_NE(m.output.kernels[0].form.find("0x8k"), std::string::npos) << m.output.kernels[0].form;
}

TEST(PtxGemm, LongKIsPromotedAndShortKIsOneBlock) {
  check_product({kF32, 1, 16, 32, 1100, false, false});
  check_product({kF32, 1, 16, 32, 8, false, false});
  check_product({kF16, 1, 130, 70, 16, true, false});
  check_product({kF16, 1, 16, 32, 144, true, false});
  check_product({kBF16, 1, 16, 32, 700, false, false});
  check_product({kF32, 1, 16, 32, 96, true, false}, "tf32");
  for (bool transposed : {false, true}) {  // one row: many warps along k
    check_product({kF16, 1, 1, 64, 1600, transposed, false});
    check_product({kF16, 1, 3, 40, 776, transposed, false});
  }
}

TEST(PtxGemm, FewRowsGoThroughRegisters) {
  std::set<std::string> tiles;
  for (const char *target : {"sm_80", "sm_90a"})
    for (const auto &[c, multiprocessors] : std::vector<std::pair<Product, int>>{
             {{kF16, 1, 1, 64, 256, true, false}, 0},
             {{kBF16, 1, 1, 41, 72, true, false}, 0},
             {{kF16, 1, 3, 33, 800, true, false}, 0},
             {{kBF16, 1, 4, 16, 4104, true, false}, 0},  // more steps than are in flight
             {{kBF16, 2, 2, 24, 520, true, false}, 0},
             {{kF16, 3, 4, 40, 264, true, true}, 0},
             {{kF16, 1, 2, 16, 1288, true, false}, 1},
             {{kBF16, 1, 1, 60, 2056, true, false}, 1}}) {
      NestProgram n;
      n.matmul(c.type, c.batch, c.m, c.n, c.k, c.transposed, c.batched);
      Machine m(n.program, "3xtf32", target, 0, {"schedule.gemm.warpgroup", "schedule.conv.warpgroup"}, -1,
                multiprocessors);
      const std::string form = m.output.kernels[0].form;
      EXPECT_NE(form.find(" registers"), std::string::npos) << form;
      tiles.insert(form.substr(form.find(' ') + 1, form.find("x256") - form.find(' ') - 1));
      m.fill(6);
      m.run(11);
      expect_product(m, n.program, c, 3 * rounding(c.type), form);
    }
  EXPECT_EQ(tiles, (std::set<std::string>{"16x8", "16x16", "16x32"}));
  // What does not lie in chunks along k, or is of more rows, does not.
  for (const Product &c : {Product{kF16, 1, 1, 64, 256, false, false}, Product{kF16, 1, 5, 64, 256, true, false},
                           Product{kF16, 1, 1, 64, 252, true, false}, Product{kF32, 1, 1, 64, 256, true, false}}) {
    NestProgram n;
    n.matmul(c.type, c.batch, c.m, c.n, c.k, c.transposed, c.batched);
    Machine m(n.program);
    EXPECT_EQ(m.output.kernels[0].form.find(" registers"), std::string::npos) << m.output.kernels[0].form;
  }
}

TEST(PtxGemm, WhatIsNotFiniteStaysInItsRowAndColumn) {
  // 3 rows of 8, 41 columns of 48, 72 of 256 along k: all that is behind the ends is on hand, and must not count.
  constexpr size_t kM = 3, kN = 41, kK = 72;
  NestProgram n;
  n.matmul(kF16, 1, kM, kN, kK, true, false);
  Machine m(n.program, "3xtf32", "sm_90a");
  ASSERT_NE(m.output.kernels[0].form.find(" registers"), std::string::npos) << m.output.kernels[0].form;
  m.fill(6);
  const auto &in = n.program.inputs;
  m.put(in[0], 1 * kK + 70, INFINITY);   // row 1
  m.put(in[1], 40 * kK + 71, NAN);       // the last column
  m.put(in[1], 17 * kK + 3, -INFINITY);  // column 17
  m.run(11);
  for (size_t i = 0; i < kM; ++i)
    for (size_t j = 0; j < kN; ++j) {
      double sum = m.get(in[2], j);
      for (size_t k = 0; k < kK; ++k) sum += m.get(in[0], i * kK + k) * m.get(in[1], j * kK + k);
      const double want = std::isnan(sum) ? sum : std::max(sum, 0.0), got = m.get(n.program.outputs[0], i * kN + j);
      if (std::isfinite(want)) {
        EXPECT_NEAR(got, want, 0.02) << i << "," << j;
      } else {
        EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << i << "," << j << ": " << got;
      }
    }
}

TEST(PtxGemm, BlocksThatShareATileAddUpInTheOrderOfTheParts) {
  for (ElementType type : {kF16, kF32})
    for (int splits : {2, 3}) {
      check_product({type, 1, 70, 90, 2100, false, false, false, splits});  // several tiles, a short last part
      check_product({type, 2, 20, 40, 2048, true, true, false, splits});
    }
  check_product({kF32, 1, 20, 36, 2048, true, false, false, 8});
  check_product({kF16, 1, 3, 16, 4200, true, false, true, 4});  // operands computed
}

TEST(PtxGemm, ConvolutionAsImplicitProduct) {
  struct Case {
    ElementType type;
    int64_t batch, size, channels, out, kernel, stride, pad;
  };
  for (const Case &c :
       {Case{kF16, 1, 8, 16, 24, 3, 1, 1}, Case{kF32, 2, 7, 8, 16, 3, 2, 1}, Case{kF32, 1, 9, 3, 8, 3, 2, 1},
        Case{kF16, 1, 6, 3, 10, 3, 1, 0}, Case{kF32, 1, 6, 20, 12, 1, 1, 0}}) {
    NestProgram n;
    n.convolution(c.type, c.batch, c.size, c.channels, c.out, c.kernel, c.stride, c.pad);
    Machine m(n.program);
    EXPECT_EQ(m.output.kernels[0].form.rfind("gemm.", 0), 0u) << m.output.kernels[0].form;
    m.fill(8);
    m.run(3);
    NestProgram::Convolution v;
    v.type = c.type;
    v.batch = c.batch;
    v.size = {c.size, c.size};
    v.channels = c.channels;
    v.out = c.out;
    v.kernel = {c.kernel, c.kernel};
    v.strides = {c.stride, c.stride};
    v.begin = v.end = {c.pad, c.pad};
    expect_convolution(m, n.program, v, m.output.kernels[0].form);
  }
}

// --- What is not finite

// Values that a sum of f32 products must take as they are: their parts in TF32 are infinite or NaN, or are lost.
const std::vector<double> &specials() {
  static const std::vector<double> values{
      INFINITY, -INFINITY, NAN, 3.4028234e38, -3.4028234e38, 3.4020e38, 1e-40, -1e-42, 1e-30, 1e30, 0, -0.0};
  return values;
}
// Puts one of them at every few places of a buffer of `count` elements; the rest stays.
void put_specials(Machine &m, BufferId buffer, size_t count, size_t every, size_t from) {
  for (size_t i = from; i < count; i += every) m.put(buffer, i, specials()[i / every % specials().size()]);
}
// Adds a product as f32 does, in the order of the sum.
void add_product(float &sum, double a, double b) { sum += static_cast<float>(a) * static_cast<float>(b); }

// NaN where f32's sum is, infinities where it has them, else close. size: of the terms; where finite terms add up to
// more than f32 holds, their order decides.
void expect_f32(double got, float want, double size, double tolerance, const std::string &where) {
  if (std::isfinite(size) && size > std::numeric_limits<float>::max()) return;
  if (std::isnan(want))
    ASSERT_TRUE(std::isnan(got)) << where << ": " << got;
  else if (std::isinf(want))
    ASSERT_EQ(got, want) << where;
  else
    ASSERT_NEAR(got, want, tolerance * size + 1e-37) << where;
}

TEST(PtxGemm, InfinitiesNaNsAndTheLargestNumbersAreAsInF32) {
  struct Case {
    int64_t batch, m, n, k;
    bool transposed, batched;
    int splits = 0;
    const char *f32 = "3xtf32";
  };
  int64_t seen = 0;
  for (const Case &c :
       {Case{1, 37, 41, 19, false, false}, Case{1, 64, 64, 128, true, false}, Case{1, 1, 64, 800, false, false},
        Case{2, 17, 40, 24, true, true}, Case{1, 20, 36, 2048, true, false, 8}, Case{1, 33, 30, 1100, false, false},
        Case{1, 24, 72, 40, false, false, 0, "tf32"}})
    for (size_t which : {size_t{0}, size_t{1}, size_t{2}}) {
      NestProgram n;
      n.matmul(kF32, c.batch, c.m, c.n, c.k, c.transposed, c.batched);
      Machine m(n.program, c.f32, "sm_80", c.splits);
      ASSERT_EQ(m.output.kernels[0].form.rfind("gemm.", 0), 0u);
      m.fill(6);
      const auto &in = n.program.inputs;
      const size_t M = static_cast<size_t>(c.m), N = static_cast<size_t>(c.n), K = static_cast<size_t>(c.k),
                   B = static_cast<size_t>(c.batch);
      if (which != 1) put_specials(m, in[0], B * M * K, 3 * K + 1, K / 2);
      if (which != 0) put_specials(m, in[1], (c.batched ? B : 1) * K * N, 5 * (c.transposed ? K : N) + 1, 0);
      m.run(11);
      for (size_t b = 0; b < B; ++b)
        for (size_t i = 0; i < M; ++i)
          for (size_t j = 0; j < N; ++j) {
            float sum = 0;
            double size = 1;
            for (size_t k = 0; k < K; ++k) {
              const double x = m.get(in[0], (b * M + i) * K + k),
                           y = m.get(in[1], (c.batched ? b * K * N : 0) + (c.transposed ? j * K + k : k * N + j));
              add_product(sum, x, y);
              size += std::fabs(x * y);
            }
            sum += static_cast<float>(m.get(in[2], j));
            const float want = std::isnan(sum) ? sum : std::max(sum, 0.0f);
            seen += !std::isfinite(want);
            expect_f32(m.get(n.program.outputs[0], (b * M + i) * N + j), want, size,
                       std::string(c.f32) == "tf32" ? 2e-3 : 3 * rounding(kF32),
                       m.output.kernels[0].form + " at " + std::to_string(i) + "," + std::to_string(j));
          }
    }
  EXPECT_GT(seen, 1000);
}

TEST(PtxGemm, ConvolutionsOfInfinitiesAreAsInF32) {
  NestProgram n;
  const size_t size = 7, channels = 8, out = 16, q = 4;
  n.convolution(kF32, 1, size, channels, out, 3, 2, 1);
  Machine m(n.program);
  m.fill(8);
  const BufferId x = n.program.inputs[0], w = n.program.inputs[1], y = n.program.outputs[0];
  put_specials(m, x, size * size * channels, 61, 17);
  m.run(3);
  int64_t seen = 0;
  for (size_t i = 0; i < q; ++i)
    for (size_t j = 0; j < q; ++j)
      for (size_t o = 0; o < out; ++o) {
        float sum = 0;
        double terms = 1;
        for (size_t k = 0; k < channels; ++k)
          for (size_t r = 0; r < 3; ++r)
            for (size_t s = 0; s < 3; ++s) {
              const size_t h = 2 * i + r - 1, v = 2 * j + s - 1;
              const double a = h < size && v < size ? m.get(x, (h * size + v) * channels + k) : 0,
                           b = m.get(w, ((o * 3 + r) * 3 + s) * channels + k);
              add_product(sum, a, b);
              terms += std::fabs(a * b);
            }
        seen += !std::isfinite(sum);
        expect_f32(m.get(y, (i * q + j) * out + o), sum, terms, 3 * rounding(kF32),
                   std::to_string(i) + "," + std::to_string(j) + "," + std::to_string(o));
      }
  EXPECT_GT(seen, 20);
}

TEST(PtxAttention, MaskedRaggedAndSingleQueries) {
  struct Case {
    ElementType type;
    int64_t batch, heads, queries, keys, inner, width;
    bool given_in_f32 = false;
  };
  for (const Case &c :
       {Case{kF32, 1, 2, 70, 45, 16, 16}, Case{kF32, 2, 1, 1, 100, 64, 64}, Case{kF32, 1, 1, 5, 33, 10, 7},
        Case{kF16, 1, 2, 70, 150, 64, 32}, Case{kBF16, 1, 1, 3, 64, 32, 16}, Case{kF32, 1, 1, 9, 40, 128, 128},
        Case{kF16, 1, 2, 1, 130, 64, 64, true}, Case{kBF16, 1, 1, 20, 37, 16, 24, true},
        Case{kF16, 1, 5, 96, 40, 16, 16}, Case{kF32, 33, 8, 3, 40, 16, 16}, Case{kF16, 45, 3, 33, 70, 16, 16}}) {
    NestProgram n;
    n.given_in_f32 = c.given_in_f32;
    n.attention(c.type, c.batch, c.heads, c.queries, c.keys, c.inner, c.width);
    Machine m(n.program);
    EXPECT_EQ(m.output.kernels[0].form.rfind("attention.", 0), 0u) << m.output.kernels[0].form;
    m.fill(9);
    const auto &in = n.program.inputs;
    const size_t S = static_cast<size_t>(c.queries), T = static_cast<size_t>(c.keys), D = static_cast<size_t>(c.inner),
                 E = static_cast<size_t>(c.width);
    // Row 0 sees nothing, row 1 only the last key, the others all but the first three.
    for (size_t i = 0; i < S; ++i)
      for (size_t j = 0; j < T; ++j) {
        const bool hidden = S > 1 && (i == 0 || (i == 1 && j + 1 < T) || (i > 1 && j < 3));
        if (hidden) m.put(in[3], i * T + j, -INFINITY);
      }
    m.run(5);
    for (size_t g = 0; g < static_cast<size_t>(c.batch * c.heads); ++g)
      for (size_t i = 0; i < S; ++i) {
        std::vector<double> p(T);
        double top = -INFINITY, total = 0;
        for (size_t j = 0; j < T; ++j) {
          for (size_t d = 0; d < D; ++d) p[j] += m.get(in[0], (g * S + i) * D + d) * m.get(in[1], (g * T + j) * D + d);
          p[j] = 0.25 * p[j] + m.get(in[3], i * T + j);
          top = std::max(top, p[j]);
        }
        for (size_t j = 0; j < T; ++j) total += p[j] = std::exp(p[j] - top);
        for (size_t e = 0; e < E; ++e) {
          double want = 0;
          for (size_t j = 0; j < T; ++j) want += p[j] / total * m.get(in[2], (g * T + j) * E + e);
          if (std::isinf(top)) want = 0;
          ASSERT_NEAR(m.get(n.program.outputs[0], (g * S + i) * E + e), want, 3 * rounding(c.type))
              << m.output.kernels[0].form << " head " << g << " query " << i << " column " << e;
        }
      }
  }
}

TEST(PtxAttention, InfinitiesNaNsAndTheLargestNumbersAreAsInF32) {
  struct Case {
    int64_t batch, heads, queries, keys, inner, width;
  };
  int64_t finite = 0, others = 0;
  for (const Case &c :
       {Case{1, 2, 70, 45, 16, 16}, Case{2, 1, 1, 100, 64, 64}, Case{1, 1, 5, 33, 10, 7}, Case{33, 8, 3, 20, 16, 16}})
    for (size_t which : {size_t{0}, size_t{1}, size_t{2}}) {
      if (c.batch == 33 && which != 1) continue;  // many blocks
      NestProgram n;
      const bool guarded = which != 1;
      n.masked_rows = guarded ? MaskedRows::kZeroProbabilities : MaskedRows::kNaN;
      n.attention(kF32, c.batch, c.heads, c.queries, c.keys, c.inner, c.width);
      Machine m(n.program);
      ASSERT_EQ(m.output.kernels[0].form.rfind("attention.", 0), 0u);
      m.fill(9);
      const auto &in = n.program.inputs;
      const size_t S = static_cast<size_t>(c.queries), T = static_cast<size_t>(c.keys),
                   D = static_cast<size_t>(c.inner), E = static_cast<size_t>(c.width),
                   G = static_cast<size_t>(c.batch * c.heads);
      if (which == 0) put_specials(m, in[0], G * S * D, 3 * D + 1, D / 2);
      if (which == 1) put_specials(m, in[1], G * T * D, 7 * D + 1, 2);
      if (which == 2) put_specials(m, in[2], G * T * E, 4 * E + 1, 1);
      for (size_t i = 0; i < S; ++i)  // row 0 sees nothing, others all but every fifth
        for (size_t j = 0; j < T; ++j)
          if ((S > 1 && i == 0) || j % 5 == 2) m.put(in[3], i * T + j, -INFINITY);
      m.run(5);
      for (size_t g = 0; g < G; ++g)
        for (size_t i = 0; i < S; ++i) {
          std::vector<float> p(T);
          float top = -INFINITY, total = 0;
          double terms = 0;
          for (size_t j = 0; j < T; ++j) {
            for (size_t d = 0; d < D; ++d) {
              const double x = m.get(in[0], (g * S + i) * D + d), y = m.get(in[1], (g * T + j) * D + d);
              add_product(p[j], x, y);
              terms = std::max(terms, std::fabs(x * y));
            }
            p[j] = 0.25f * p[j] + static_cast<float>(m.get(in[3], i * T + j));
            top = std::isnan(top) || p[j] <= top ? top : p[j];
          }
          for (size_t j = 0; j < T; ++j) total += p[j] = std::exp(p[j] - top);
          const bool zeros = guarded && std::isnan(total);
          for (size_t e = 0; e < E; ++e) {
            float want = 0;
            double size = 1;
            for (size_t j = 0; j < T; ++j) {
              const double v = m.get(in[2], (g * T + j) * E + e);
              add_product(want, zeros ? 0 : p[j], v);
              size += zeros ? 0 : std::fabs(v) * p[j];
            }
            if (!zeros) want /= total;
            ++(std::isfinite(want) ? finite : others);
            // Scores as large as these are not known to the digits that exp needs.
            if (std::isfinite(want) && terms > 10 && terms < 1e37) continue;
            expect_f32(m.get(n.program.outputs[0], (g * S + i) * E + e), want, size, 3 * rounding(kF32),
                       m.output.kernels[0].form + " specials in " + std::to_string(which) + ", head " +
                           std::to_string(g) + " query " + std::to_string(i) + " column " + std::to_string(e));
          }
        }
    }
  EXPECT_GT(finite, 1000);
  EXPECT_GT(others, 1000);
}

}  // namespace
}  // namespace optc::testing
