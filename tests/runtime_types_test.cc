// runtime/cpu/{gemm_i8,rows}.h on every instruction set of this machine.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "runtime/cpu/gemm_i8_plan.h"

struct GemmI8Case {
  int64_t m, n, k;
  bool a_signed, b_signed, transposed;
  const void *a_zero, *b_zero;
  int64_t a_step, b_step;
  int dot;
  int64_t threads = 1;  // that the plan is for
};

#define OPTC_KERNELS "tests/runtime_types_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/runtime_isas.h"

namespace {

// Every value of the type, from unaligned memory, at every length of the first part; nothing is written beside.
template <class T, class Functions>
void check_narrow(const Functions &functions) {
  for (const auto &f : functions)
    for (int64_t n = 0; n < 70; ++n) {
      const int64_t count = n + 65536;
      std::vector<T> x(count + 1), q(count + 33, T(77));
      std::vector<int32_t> w(count, -1);
      for (int64_t i = 0; i < count; ++i) x[i + 1] = T(i * 7 + n);
      f.function(x.data() + 1, count, w.data(), q.data() + 1);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(w[i], int32_t(x[i + 1])) << f.isa << " " << n << " " << i;
        ASSERT_EQ(q[i + 1], x[i + 1]) << f.isa << " " << n << " " << i;
      }
      ASSERT_EQ(q[0], T(77));
      for (int64_t i = count + 1; i < count + 33; ++i) ASSERT_EQ(q[i], T(77)) << f.isa;
    }
}
TEST(RuntimeNarrow, WidensAndWraps) {
  check_narrow<int8_t>(OPTC_ISA_FUNCTIONS(run_narrow_i8));
  check_narrow<uint8_t>(OPTC_ISA_FUNCTIONS(run_narrow_u8));
  check_narrow<int16_t>(OPTC_ISA_FUNCTIONS(run_narrow_i16));
  check_narrow<uint16_t>(OPTC_ISA_FUNCTIONS(run_narrow_u16));
}

// Every kind of edge: of tiles, of panels, of groups of four and of blocks of 64 products, of tasks.
TEST(RuntimeGemmI8, IsExact) {
  const std::vector<std::array<int64_t, 3>> sizes = {{1, 1, 1},     {5, 37, 21},  {9, 100, 64},   {3, 32, 1000},
                                                     {33, 64, 128}, {50, 80, 63}, {18, 130, 192}, {300, 70, 130},
                                                     {7, 48, 4},    {4, 16, 0},   {16, 15, 65},   {70, 17, 2}};
  std::mt19937 random(1);
  for (const auto &[m, n, k] : sizes) {
    std::vector<uint8_t> a(m * k), b(k * n), zeros(m + n);
    for (uint8_t &v : a) v = uint8_t(random() % 3 ? random() : 255);
    for (uint8_t &v : b) v = uint8_t(random() % 3 ? random() : 128);
    for (uint8_t &v : zeros) v = uint8_t(random());
    std::vector<uint8_t> packed(optc_gemm_i8_packed_bytes(n, k)), guard(64, 0xa5);
    for (int form = 0; form < 32; ++form)
      for (int zero : {0, 1, 2}) {  // none, one for all, one a row and column
        GemmI8Case t{m, n, k, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0, nullptr, nullptr, 0, 0, 0};
        if (zero > 0 && form & 8) t.a_zero = zeros.data(), t.a_step = zero - 1;
        if (zero > 0 && form & 16) t.b_zero = zeros.data() + m, t.b_step = zero - 1;
        const auto value = [](const void *p, int64_t i, bool is_signed) -> int64_t {
          const uint8_t byte = static_cast<const uint8_t *>(p)[i];
          return is_signed ? int8_t(byte) : byte;
        };
        std::vector<int64_t> expected(m * n);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t x = 0; x < k; ++x) {
            const int64_t av = value(a.data(), t.transposed ? x * m + i : i * k + x, t.a_signed) -
                               (t.a_zero ? value(t.a_zero, i * t.a_step, t.a_signed) : 0);
            for (int64_t j = 0; j < n; ++j)
              expected[i * n + j] += av * (value(b.data(), t.transposed ? j * k + x : x * n + j, t.b_signed) -
                                           (t.b_zero ? value(t.b_zero, j * t.b_step, t.b_signed) : 0));
          }
        t.threads = form % 3 == 1 ? 16 : 1;
        for (const bool pack : {true, false})
          for (const auto &f : OPTC_ISA_FUNCTIONS(run_gemm_i8))
            for (t.dot = 0; t.dot <= (f.isa == std::string("avx512") ? optc_isa_dot_detect() : 0); ++t.dot) {
              const int64_t bytes = optc_gemm_i8_scratch(m, k, pack);
              std::vector<uint8_t> scratch(bytes + 64, 0xa5);
              std::vector<int32_t> c(m * n, 77);
              f.function(t, a.data(), b.data(), pack ? packed.data() : nullptr, scratch.data(), c.data());
              ASSERT_EQ(memcmp(scratch.data() + bytes, guard.data(), 64), 0);
              for (int64_t i = 0; i < m * n; ++i)
                ASSERT_EQ(c[i], expected[i]) << f.isa << " dot " << t.dot << " form " << form << " zero " << zero << " "
                                             << m << "x" << n << "x" << k << " at " << i / n << ", " << i % n;
            }
      }
  }
}

// Sums beyond int32 wrap, whatever the grouping is.
TEST(RuntimeGemmI8, WrapsModulo2To32) {
  const int64_t k = 70000;
  const std::vector<uint8_t> a(k, 255), b(k, 255), zero{0};
  std::vector<uint8_t> packed(optc_gemm_i8_packed_bytes(1, k)), scratch(optc_gemm_i8_scratch(1, k, true));
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_gemm_i8)) {
    int32_t c = 0;
    f.function({1, 1, k, false, false, false, zero.data(), zero.data(), 0, 0, 0}, a.data(), b.data(), packed.data(),
               scratch.data(), &c);
    EXPECT_EQ(c, static_cast<int32_t>(static_cast<uint32_t>(k * 255 * 255))) << f.isa;
  }
}

TEST(RuntimeRows, MomentsMaximumAndSoftmax) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(3, 2);
  for (int64_t n : {1, 3, 16, 17, 64, 100, 769}) {
    std::vector<float> x(n);
    for (float &v : x) v = normal(random);
    double mean = 0, variance = 0, most = -INFINITY, sum = 0;
    for (float v : x) mean += v / double(n), most = std::max<double>(most, v);
    for (float v : x) variance += (v - mean) * (v - mean) / double(n), sum += std::exp(v - most);
    for (const auto &f : OPTC_ISA_FUNCTIONS(run_rows)) {
      float got_mean, got_variance, got_most;
      std::vector<float> softmax(n + 16, NAN);
      f.function(x.data(), n, &got_mean, &got_variance, &got_most, softmax.data());
      EXPECT_NEAR(got_mean, mean, 1e-6);
      EXPECT_NEAR(got_variance, variance, 1e-5);
      EXPECT_EQ(got_most, float(most));
      for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(softmax[i], std::exp(x[i] - most) / sum, 2e-7) << f.isa;
      for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(softmax[n + i]));
    }
    x[n / 2] = NAN;
    for (const auto &f : OPTC_ISA_FUNCTIONS(run_rows)) {
      float a, b, got_most;
      std::vector<float> softmax(n);
      f.function(x.data(), n, &a, &b, &got_most, softmax.data());
      EXPECT_TRUE(std::isnan(got_most)) << f.isa;
    }
  }
}

}  // namespace
