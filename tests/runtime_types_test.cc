// runtime/cpu/{gemm_types,rows}.h on every instruction set of this machine.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "runtime/cpu/gemm_plan.h"

#define OPTC_KERNELS "tests/runtime_types_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/runtime_isas.h"

namespace {

TEST(RuntimeGemmTypes, DoubleByRowsAndTransposed) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const auto &[m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {5, 37, 20}, {9, 64, 33}, {4, 3, 0}}) {
    std::vector<double> a(m * k), b(k * n);
    for (double &v : a) v = uniform(random);
    for (double &v : b) v = uniform(random);
    for (bool transposed : {false, true})
      for (const auto &f : OPTC_ISA_FUNCTIONS(run_gemm_f64)) {
        const int64_t rs = transposed ? 1 : n, cs = transposed ? k : 1;
        std::vector<double> c(m * n + 16, NAN);
        f.function(m, n, k, a.data(), b.data(), rs, cs, c.data());
        for (int i = 0; i < 16; ++i) ASSERT_TRUE(std::isnan(c[m * n + i]));
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            long double sum = 0;
            for (int64_t x = 0; x < k; ++x) sum += (long double)a[i * k + x] * b[x * rs + j * cs];
            ASSERT_NEAR(c[i * n + j], double(sum), 1e-14) << f.isa;
          }
      }
  }
}

TEST(RuntimeGemmTypes, EightBitIntegersExactly) {
  for (const auto &[m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {5, 37, 21}, {9, 100, 64}, {3, 32, 1000}}) {
    std::vector<uint8_t> a(m * k), b(k * n);
    for (size_t i = 0; i < a.size(); ++i) a[i] = uint8_t(i * 2654435761u >> 13);
    for (size_t i = 0; i < b.size(); ++i) b[i] = i % 11 == 0 ? 128 : uint8_t(i * 2246822519u >> 11);
    a[0] = 255, b[0] = 255;
    for (bool a_signed : {false, true})
      for (bool b_signed : {false, true})
        for (int zeros : {0, 1, 2}) {  // none, one for all, one a row and column
          std::vector<int32_t> a_zero(m), b_zero(n);
          for (int64_t i = 0; i < m; ++i) a_zero[i] = (a_signed ? -128 : 0) + int(zeros == 2 ? i * 37 % 256 : 200);
          for (int64_t j = 0; j < n; ++j) b_zero[j] = (b_signed ? -128 : 0) + int(j * 31 % 256);
          for (const auto &f : OPTC_ISA_FUNCTIONS(run_gemm_i8)) {
            std::vector<int16_t> packed((n + 31) / 32 * 32 * (k + 1)), scratch(4 * (k + 1));
            std::vector<int32_t> c(m * n);
            f.function(a_signed, b_signed, m, n, k, a.data(), b.data(), zeros ? a_zero.data() : nullptr, zeros == 2,
                       zeros ? b_zero.data() : nullptr, packed.data(), scratch.data(), c.data());
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) {
                int64_t sum = 0;
                for (int64_t x = 0; x < k; ++x) {
                  const int av = a_signed ? int8_t(a[i * k + x]) : a[i * k + x],
                            bv = b_signed ? int8_t(b[x * n + j]) : b[x * n + j];
                  sum += (av - (zeros == 2 ? a_zero[i]
                                : zeros    ? a_zero[0]
                                           : 0)) *
                         int64_t(bv - (zeros ? b_zero[j] : 0));
                }
                ASSERT_EQ(c[i * n + j], sum) << f.isa << " " << m << "x" << n << "x" << k;
              }
          }
        }
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
