// runtime/cpu/gemm_blocks_i8.h against sums in int64 and double, on every instruction set of this machine, with VNNI
// and without.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "runtime/cpu/gemm_blocks_plan.h"

struct BytesCase {
  int64_t m, n, k, block;
  int bits;
  int64_t a_row, a_inner, threads;
  int dot;
};

#define OPTC_KERNELS "tests/runtime_gemm_blocks_i8_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/block_products.h"
#include "tests/runtime_isas.h"

namespace {

enum class Numbers { kRandom, kLargest };  // of integers; the largest: sums are as large as they can be
enum class Scales { kRandom, kOne };       // kOne: of one block, results are the integers

struct Problem {
  BytesCase t;
  bool has_zeros;
  std::vector<int8_t> a, zeros;
  std::vector<float> a_scales, scales;
  std::vector<uint32_t> codes;
  std::vector<double> want, magnitude;
  std::vector<int64_t> last_sums;  // of the last block, by row and column

  Problem(BytesCase given, bool with_zeros, Numbers numbers, Scales of, uint32_t seed)
      : t(given), has_zeros(with_zeros) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const int64_t blocks = optc_block_count(t.k, t.block), most = int64_t{1} << t.bits, half = most / 2;
    const bool largest = numbers == Numbers::kLargest;
    std::vector<int64_t> q(size_t(t.k * t.n)), zero(size_t(blocks * t.n), half);
    std::vector<float> scale(size_t(blocks * t.n), 1);
    for (auto &v : q) v = largest ? most - 1 : int64_t(random() % uint32_t(most));
    if (has_zeros)
      for (auto &v : zero) v = largest ? 0 : int64_t(random() % uint32_t(most));
    a.resize(size_t(t.m * t.k));
    for (auto &v : a) v = int8_t(largest ? -128 : int64_t(random() % 255) - 127);
    a_scales.assign(size_t(t.m * blocks), 1);
    if (of == Scales::kRandom) {
      for (auto &v : scale) v = uniform(random);
      for (auto &v : a_scales) v = std::fabs(uniform(random));
    }
    codes.resize(size_t(optc_block_words(t.n, t.k, t.bits)));
    optc_pack_block_bytes(codes.data(), t.k, t.n, t.bits,
                          [&](int64_t k, int64_t n) { return int32_t(q[size_t(k * t.n + n)] - half); });
    scales.resize(size_t(optc_block_scales(t.n, t.k, t.block)));
    optc_pack_of_blocks(scales.data(), t.k, t.n, t.block,
                        [&](int64_t b, int64_t n) { return scale[size_t(b * t.n + n)]; });
    zeros.resize(scales.size());
    optc_pack_of_blocks(zeros.data(), t.k, t.n, t.block,
                        [&](int64_t b, int64_t n) { return zero[size_t(b * t.n + n)] - half; });
    for (int64_t i = 0; i < t.m; ++i)
      for (int64_t j = 0; j < t.n; ++j) {
        double sum = 0, size = 0;
        int64_t whole = 0;
        for (int64_t b = 0; b < blocks; ++b) {
          whole = 0;
          for (int64_t k = b * t.block; k < std::min(t.k, (b + 1) * t.block); ++k)
            whole += a[size_t(i * t.a_row + k * t.a_inner)] * (q[size_t(k * t.n + j)] - zero[size_t(b * t.n + j)]);
          const double part = double(whole) * scale[size_t(b * t.n + j)] * a_scales[size_t(i * blocks + b)];
          sum += part, size += std::fabs(part);
        }
        want.push_back(sum), magnitude.push_back(size), last_sums.push_back(whole);
      }
  }
};

// Calls f(name, results) for every instruction set and for one, two and seven threads.
template <class F>
void run_all(Problem &p, F f) {
  constexpr size_t kGuard = 64;
  for (const auto &isa : OPTC_ISA_FUNCTIONS(run_gemm_blocks_i8))
    for (int dot = OPTC_DOT_NONE; dot <= (std::string(isa.isa) == "avx512" ? optc_isa_dot_detect() : 0); ++dot) {
      std::vector<float> first;
      for (const int64_t threads : {1, 2, 7}) {
        p.t.threads = threads, p.t.dot = dot;
        const size_t need = size_t(optc_gemm_blocks_i8_bytes(std::min<int64_t>(192, p.t.m), p.t.k, p.t.block));
        std::vector<uint8_t> scratch(need + kGuard, 77);
        std::vector<float> c(p.want.size() + 2 * kGuard, std::nanf(""));
        isa.function(p.t, p.a.data(), p.a_scales.data(), p.codes.data(), p.scales.data(),
                     p.has_zeros ? p.zeros.data() : nullptr, scratch.data(), c.data() + kGuard);
        for (size_t i = 0; i < kGuard; ++i) {
          ASSERT_TRUE(std::isnan(c[i]) && std::isnan(c[c.size() - 1 - i]));
          ASSERT_EQ(scratch[need + i], 77);
        }
        if (first.empty()) first = c;
        ASSERT_EQ(std::memcmp(first.data(), c.data(), c.size() * sizeof(float)), 0) << "other bits by " << threads;
        f(isa.isa + std::string(dot ? " with VNNI" : ""), c.data() + kGuard);
      }
    }
}

void check(const BytesCase &t, bool zeros, uint32_t seed) {
  Problem p(t, zeros, Numbers::kRandom, Scales::kRandom, seed);
  const double blocks = double(optc_block_count(t.k, t.block));
  run_all(p, [&](const std::string &isa, const float *c) {
    for (size_t i = 0; i < p.want.size(); ++i)
      ASSERT_NEAR(p.want[i], c[i], 1.2e-7 * (2 + blocks) * p.magnitude[i] + 1e-30)
          << isa << " " << t.m << "x" << t.n << "x" << t.k << " block " << t.block << " of " << t.bits
          << " bits, zeros " << zeros << " element " << i;
  });
}

TEST(RuntimeGemmBlocksI8, IsTheProductOfTheIntegersScaledByBlocks) {
  uint32_t seed = 1;
  for (const optc::BlockProductShape &s : optc::kBlockProductShapes)
    for (const int bits : {4, 8})
      for (const bool zeros : {false, true}) check({s.m, s.n, s.k, s.block, bits, s.k, 1, 1, 0}, zeros, seed++);
}

TEST(RuntimeGemmBlocksI8, RowsThatDoNotRunAlongTheSum) {
  for (const int64_t m : {1, 3, 9}) check({m, 33, 50, 16, 4, 1, m, 1, 0}, true, 5);
}

// Scales of one, and one block: what comes out are the integer sums, on every instruction set the same, also where
// every product is as large as it can be.
TEST(RuntimeGemmBlocksI8, SumsAreExact) {
  uint32_t seed = 1;
  for (const int bits : {4, 8})
    for (const bool zeros : {false, true})
      for (const Numbers numbers : {Numbers::kRandom, Numbers::kLargest})
        for (const int64_t m : {1, 2, 5})
          for (const int64_t k : {8, 100, 256}) {  // 256 * 128 * 255 is an exact float
            Problem p({m, 49, k, 256, bits, k, 1, 1, 0}, zeros, numbers, Scales::kOne, seed++);
            run_all(p, [&](const std::string &isa, const float *c) {
              for (size_t i = 0; i < p.want.size(); ++i)
                ASSERT_EQ(double(p.last_sums[i]), double(c[i])) << isa << " " << bits << " bits, k " << k;
            });
          }
}

// The longest block: int32 holds the sum, and rounding it to f32 is all that is lost.
TEST(RuntimeGemmBlocksI8, LongestBlock) {
  for (const bool zeros : {false, true}) {
    Problem p({1, 3, kOptcBlockI8Longest, kOptcBlockI8Longest, 8, kOptcBlockI8Longest, 1, 1, 0}, zeros,
              Numbers::kLargest, Scales::kOne, 1);
    run_all(p, [&](const std::string &isa, const float *c) {
      for (size_t i = 0; i < p.want.size(); ++i) ASSERT_EQ(float(p.last_sums[i]), c[i]) << isa;
    });
  }
}

}  // namespace
