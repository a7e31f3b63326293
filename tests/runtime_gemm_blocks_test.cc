// runtime/cpu/gemm_blocks.h against sums in double, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ir/constant.h"
#include "runtime/cpu/gemm_blocks_plan.h"

struct BlocksCase {
  int64_t m, n, k, block;
  int bits, zero;  // zero points: 0 none, 1 bytes, 2 floats
  float center;
  bool half;  // A and the dequantized weights are f16
  int64_t a_row, a_inner, threads;
};

#define OPTC_KERNELS "tests/runtime_gemm_blocks_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/block_products.h"
#include "tests/runtime_isas.h"

namespace {

using optc::float_to_half;
using optc::half_to_float;

float rounded(float x) { return half_to_float(float_to_half(x)); }

// A product drawn at random: weights as numbers, as they are packed, and its result in double.
struct Problem {
  BlocksCase t;
  std::vector<float> a, scales;
  std::vector<uint16_t> halves;
  std::vector<uint32_t> codes;
  std::vector<int8_t> byte_zeros;
  std::vector<float> float_zeros;
  std::vector<double> want, magnitude;

  Problem(BlocksCase given, uint32_t seed) : t(given) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const int64_t blocks = optc_block_count(t.k, t.block), most = int64_t{1} << t.bits;
    std::vector<int64_t> q(t.k * t.n);
    std::vector<float> zero(blocks * t.n, t.center), scale(blocks * t.n);
    for (auto &v : q) v = int64_t(random() % uint32_t(most));
    for (auto &v : scale) v = t.half ? rounded(uniform(random)) : uniform(random);
    for (auto &v : zero)
      if (t.zero == 1)
        v = float(random() % uint32_t(most));
      else if (t.zero == 2)
        v = uniform(random) * float(most);
    a.resize(t.m * t.k);
    for (float &v : a) v = t.half ? rounded(uniform(random)) : uniform(random);
    for (float v : a) halves.push_back(float_to_half(v));

    const auto center = int64_t(t.center);
    codes.resize(optc_block_words(t.n, t.k, t.bits));
    optc_pack_block_codes(codes.data(), t.k, t.n, t.bits,
                          [&](int64_t k, int64_t n) { return int32_t(q[k * t.n + n] - center); });
    scales.resize(optc_block_scales(t.n, t.k, t.block));
    optc_pack_of_blocks(scales.data(), t.k, t.n, t.block, [&](int64_t b, int64_t n) { return scale[b * t.n + n]; });
    byte_zeros.resize(scales.size());
    float_zeros.resize(scales.size());
    optc_pack_of_blocks(byte_zeros.data(), t.k, t.n, t.block,
                        [&](int64_t b, int64_t n) { return zero[b * t.n + n] - t.center; });
    optc_pack_of_blocks(float_zeros.data(), t.k, t.n, t.block, [&](int64_t b, int64_t n) { return zero[b * t.n + n]; });

    for (int64_t i = 0; i < t.m; ++i)
      for (int64_t j = 0; j < t.n; ++j) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < t.k; ++k) {
          const int64_t b = k / t.block * t.n + j;
          float w = (float(q[k * t.n + j]) - zero[b]) * scale[b];
          if (t.half) w = rounded(w);
          const double p = double(a[i * t.a_row + k * t.a_inner]) * w;
          sum += p, size += std::fabs(p);
        }
        want.push_back(sum), magnitude.push_back(size);
      }
  }

  const void *zeros() const {
    return t.zero == 1 ? static_cast<const void *>(byte_zeros.data()) : t.zero == 2 ? float_zeros.data() : nullptr;
  }
};

void check(const BlocksCase &given, uint32_t seed) {
  Problem p(given, seed);
  constexpr size_t kGuard = 64;
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_gemm_blocks)) {
    std::vector<float> first;
    for (const bool in_output : {true, false})
      for (const int64_t threads : {1, 2, 7}) {
        p.t.threads = threads;
        const size_t need = size_t(optc_gemm_blocks_floats(std::min<int64_t>(192, p.t.m), p.t.n, p.t.k,
                                                           p.t.m <= kOptcBlockFewRows, !in_output));
        std::vector<float> scratch(need + kGuard, 12345.0f);
        std::vector<float> c(p.want.size() + 2 * kGuard, std::nanf(""));
        f.function(p.t, p.t.half ? static_cast<const void *>(p.halves.data()) : p.a.data(), p.codes.data(),
                   p.scales.data(), p.zeros(), in_output ? c.data() + kGuard : nullptr, scratch.data(),
                   c.data() + kGuard);
        for (size_t i = 0; i < kGuard; ++i) {
          ASSERT_TRUE(std::isnan(c[i]) && std::isnan(c[c.size() - 1 - i]));
          ASSERT_EQ(scratch[need + i], 12345.0f);
        }
        if (first.empty()) first = c;
        ASSERT_EQ(std::memcmp(first.data(), c.data(), c.size() * sizeof(float)), 0) << "other bits by " << threads;
        for (size_t i = 0; i < p.want.size(); ++i)
          ASSERT_NEAR(p.want[i], c[kGuard + i], 1e-7 * (4 + std::sqrt(double(p.t.k))) * p.magnitude[i] + 1e-30)
              << f.isa << " " << p.t.m << "x" << p.t.n << "x" << p.t.k << " block " << p.t.block << " of " << p.t.bits
              << " bits, zeros " << p.t.zero << " element " << i;
      }
  }
}

TEST(RuntimeGemmBlocks, IsTheDequantizedProduct) {
  uint32_t seed = 1;
  for (const optc::BlockProductShape &s : optc::kBlockProductShapes)
    for (const int bits : {4, 8})
      for (const int zero : {0, 1, 2})
        for (const bool half : {false, true})
          check({s.m, s.n, s.k, s.block, bits, zero, bits == 4 ? 8.0f : 128.0f, half, s.k, 1, 1}, seed++);
}

TEST(RuntimeGemmBlocks, RowsThatDoNotRunAlongTheSum) {
  for (const int64_t m : {1, 3, 9}) check({m, 33, 50, 16, 4, 1, 8, false, 1, m, 1}, 5);
}

// A weight of a column is not seen by its neighbours: sums of infinite and NaN activations are those of the product.
TEST(RuntimeGemmBlocks, WhatLiesBehindTheSumIsNotMultiplied) {
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_gemm_blocks))
    for (const int64_t m : {1, 8}) {
      const BlocksCase t{m, 3, 21, 16, 4, 1, 8, false, 21, 1, 1};
      Problem p(t, 3);
      std::vector<float> a(size_t(m) * 21 + 32, std::nanf(""));  // the row behind the last one
      std::copy(p.a.begin(), p.a.end(), a.begin());
      std::vector<float> c(size_t(m) * 3), scratch(optc_gemm_blocks_floats(m, 3, 21, m <= kOptcBlockFewRows, false));
      f.function(t, a.data(), p.codes.data(), p.scales.data(), p.zeros(), nullptr, scratch.data(), c.data());
      for (size_t i = 0; i < c.size(); ++i) ASSERT_NEAR(c[i], p.want[i], 1e-5 * (1 + p.magnitude[i])) << f.isa;
    }
}

}  // namespace
