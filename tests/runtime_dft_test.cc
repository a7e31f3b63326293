// runtime/cpu/dft.h beside the definition, in long double.
#include "runtime/cpu/dft.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>
#include <vector>

namespace {

struct Line {
  std::vector<double> re, im;
};

Line random_line(int64_t n) {
  std::mt19937_64 random(static_cast<uint64_t>(n));
  std::uniform_real_distribution<double> value(-1, 1);
  Line x;
  for (int64_t k = 0; k < n; ++k) x.re.push_back(value(random)), x.im.push_back(value(random));
  return x;
}

Line transformed(const Line &x, bool inverse = false) {
  Line y = x;
  OptcDft *plan = optc_dft_plan(static_cast<int64_t>(x.re.size()));
  EXPECT_NE(plan, nullptr);
  optc_dft_run(plan, inverse ? y.im.data() : y.re.data(), inverse ? y.re.data() : y.im.data());
  optc_dft_free(plan);
  return y;
}

// The largest error of some bins over the root mean square of a bin, which is sqrt(2 n / 3) for these numbers.
double error_of(int64_t n, bool inverse, int64_t step) {
  const Line x = random_line(n), y = transformed(x, inverse);
  std::vector<long double> c(static_cast<size_t>(n)), s(c);
  const long double angle = 2 * std::acos(-1.0L) / static_cast<long double>(n);
  for (size_t k = 0; k < c.size(); ++k)
    c[k] = std::cos(angle * static_cast<long double>(k)),
    s[k] = (inverse ? 1 : -1) * std::sin(angle * static_cast<long double>(k));
  long double worst = 0;
  for (int64_t k = 0; k < n; k += step) {
    long double u = 0, v = 0;
    for (int64_t j = 0; j < n; ++j) {
      const size_t w = static_cast<size_t>(j * k % n), at = static_cast<size_t>(j);
      u += x.re[at] * c[w] - x.im[at] * s[w], v += x.re[at] * s[w] + x.im[at] * c[w];
    }
    const size_t at = static_cast<size_t>(k);
    worst = std::max({worst, std::fabs(u - y.re[at]), std::fabs(v - y.im[at])});
  }
  return static_cast<double>(worst / std::sqrt(2.0L * static_cast<long double>(n) / 3));
}

TEST(Dft, EveryLengthUpTo300) {
  for (int64_t n = 1; n <= 300; ++n)
    for (bool inverse : {false, true}) EXPECT_LT(error_of(n, inverse, 1), 4e-15) << n;
}

TEST(Dft, LongLines) {
  // Powers, products of small primes, primes, and products with large ones.
  for (int64_t n : {4096, 32768, 6000, 44100, 29791, 59049, 1009, 10007, 65537, 2 * 10007, 997 * 31, 48000})
    EXPECT_LT(error_of(n, false, n / 40 + 1), 1e-14) << n;
}

TEST(Dft, AnImpulseHasAFlatSpectrum) {
  for (int64_t n : {1, 2, 3, 4, 37, 64, 1000, 1009}) {
    Line x{std::vector<double>(static_cast<size_t>(n)), std::vector<double>(static_cast<size_t>(n))};
    x.re[0] = 1;
    const Line y = transformed(x);
    for (size_t k = 0; k < y.re.size(); ++k) {
      ASSERT_NEAR(y.re[k], 1, 1e-14);
      ASSERT_NEAR(y.im[k], 0, 1e-14);
    }
  }
}

// By the definition it would take most of an hour.
TEST(Dft, LongPrimesEndSoon) {
  const auto begun = std::chrono::steady_clock::now();
  const Line x = random_line(1000003), y = transformed(x), z = transformed(y, true);
  for (size_t k = 0; k < x.re.size(); ++k) ASSERT_NEAR(z.re[k] / 1000003, x.re[k], 1e-13);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60));
}

TEST(Dft, RefusesWhatHasNoMemory) {
  EXPECT_EQ(optc_dft_plan(0), nullptr);
  EXPECT_EQ(optc_dft_plan(INT64_C(1) << 41), nullptr);
}

}  // namespace
