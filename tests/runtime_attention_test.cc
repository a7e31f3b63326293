// runtime/cpu/attention.h against the definition in double, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "runtime/cpu/attention_plan.h"

#define OPTC_KERNELS "tests/runtime_attention_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/runtime_isas.h"

namespace {

enum MaskKind { kNone, kBias, kKeyBias, kAllowed, kKeyAllowed };

struct Case {
  OptcAttention a;
  MaskKind mask;
};

std::vector<float> random_floats(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> v(n);
  for (float &x : v) x = normal(random);
  return v;
}

void check(const Case &c) {
  const OptcAttention &a = c.a;
  const auto k = random_floats(a.batch * a.keys * a.kv_heads * a.d, 2);
  auto q = random_floats(a.batch * a.queries * a.heads * a.d, 1);
  if (a.queries > 1) q.back() = std::nanf("");  // scores of NaN
  auto v = random_floats(a.batch * a.keys * a.kv_heads * a.dv, 3);
  // Masks [batch, 1, queries or 1, keys].
  const bool by_query = c.mask == kBias || c.mask == kAllowed, has_bias = c.mask == kBias || c.mask == kKeyBias,
             has_mask = c.mask != kNone;
  if (by_query && !a.causal) v[0] = std::nanf("");  // of a key that one query does not see: 0 * NaN
  const int64_t rows = by_query ? a.queries : 1;
  const int64_t strides[4] = {rows * a.keys, 0, by_query ? a.keys : 0, 1};
  auto bias = random_floats(a.batch * rows * a.keys, 4);
  std::vector<uint8_t> allowed(a.batch * rows * a.keys);
  for (size_t i = 0; i < allowed.size(); ++i) {
    allowed[i] = (i * 2654435761u >> 16) % 3 != 0;
    if (i % 5 == 0) bias[i] = -INFINITY;
  }
  if (has_mask && by_query)  // a query that sees nothing
    for (int64_t j = 0; j < a.keys; ++j) allowed[j] = 0, bias[j] = -INFINITY;

  std::vector<double> expected(a.batch * a.queries * a.heads * a.dv);
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t h = 0; h < a.heads; ++h)
      for (int64_t i = 0; i < a.queries; ++i) {
        const int64_t kv = h / (a.heads / a.kv_heads);
        std::vector<double> p(a.keys);
        double most = -INFINITY, total = 0;
        for (int64_t j = 0; j < a.keys; ++j) {
          double s = 0;
          for (int64_t x = 0; x < a.d; ++x)
            s += double(q[((b * a.queries + i) * a.heads + h) * a.d + x]) *
                 k[((b * a.keys + j) * a.kv_heads + kv) * a.d + x];
          s *= a.scale;
          if (a.softcap != 0) s = a.softcap * std::tanh(s / a.softcap);
          const int64_t at = b * strides[0] + i * strides[2] + j;
          if (has_mask && has_bias) s += bias[at];
          if (has_mask && !has_bias && !allowed[at]) s = -INFINITY;
          if (a.causal && j > i + a.causal_offset) s = -INFINITY;
          p[j] = s, most = std::max(most, s);
        }
        for (double &s : p) s = std::isinf(most) && !std::isnan(s) ? 0 : std::exp(s - most), total += s;
        for (int64_t x = 0; x < a.dv; ++x) {
          const auto sum_by = [&](auto weight) {
            double sum = 0;
            for (int64_t j = 0; j < a.keys; ++j) sum += weight(j) * v[((b * a.keys + j) * a.kv_heads + kv) * a.dv + x];
            return sum;
          };
          double want = sum_by([&](int64_t j) { return p[j]; }) / total;  // NaN without probabilities
          if (a.keys == 0 || (a.masked_rows == OPTC_ROWS_ZERO_PROBABILITIES && !(total > 0)))
            want = sum_by([](int64_t) { return 0.0; });
          else if (a.masked_rows == OPTC_ROWS_ZERO_RESULT && total == 0)
            want = 0;
          expected[((b * a.queries + i) * a.heads + h) * a.dv + x] = want;
        }
      }
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_attention)) {
    const size_t room = optc_attention_scratch_floats(a), guard = 32;
    std::vector<float> scratch(room + guard, std::nanf("")), out(expected.size() + guard, std::nanf(""));
    f.function(a, q.data(), k.data(), v.data(), has_mask && has_bias ? bias.data() : nullptr,
               has_mask && !has_bias ? allowed.data() : nullptr, strides, scratch.data(), out.data());
    for (size_t i = 0; i < guard; ++i) {
      ASSERT_TRUE(std::isnan(scratch[room + i])) << "scratch overrun on " << f.isa;
      ASSERT_TRUE(std::isnan(out[expected.size() + i])) << "output overrun on " << f.isa;
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(out[i])) << f.isa << " at " << i;
        continue;
      }
      ASSERT_NEAR(out[i], expected[i], 2e-6 * (1 + std::abs(expected[i])))
          << f.isa << " at " << i << ", queries " << a.queries << " keys " << a.keys;
    }
  }
}

TEST(RuntimeAttention, AgreesWithTheDefinition) {
  const Case cases[] = {
      {{2, 3, 3, 40, 40, 16, 16, 0.25f, 0, false, 0}, kNone},
      {{1, 2, 2, 197, 197, 20, 24, 0.22f, 0, false, 0}, kNone},
      {{2, 4, 2, 65, 33, 64, 64, 0.125f, 0, false, 0}, kBias},
      {{2, 4, 1, 17, 50, 8, 5, 0.35f, 0, false, 0}, kKeyBias},
      {{1, 2, 2, 49, 130, 32, 32, 0.18f, 3.0f, false, 0}, kAllowed},
      {{2, 2, 2, 70, 70, 16, 16, 0.25f, 0, false, 0}, kKeyAllowed},
      {{1, 2, 2, 100, 100, 16, 16, 0.25f, 0, true, 0}, kNone},
      {{1, 1, 1, 20, 90, 16, 16, 0.25f, 0, true, 70}, kBias},
      {{1, 1, 1, 30, 10, 16, 16, 0.25f, 0, true, -25}, kNone},  // the first queries see nothing
      {{1, 2, 1, 80, 2500, 24, 24, 0.2f, 0, false, 0}, kNone},  // online softmax
      {{1, 1, 1, 2100, 2100, 8, 8, 0.35f, 0, true, 0}, kKeyAllowed},
      {{2, 6, 3, 1, 77, 64, 64, 0.125f, 0, false, 0}, kNone},
      {{1, 2, 2, 3, 40, 20, 70, 0.2f, 5.0f, true, 37}, kBias},
      {{1, 2, 2, 4, 9, 7, 3, 0.4f, 0, false, 0}, kAllowed},
      {{1, 1, 1, 6, 0, 8, 8, 0.4f, 0, false, 0}, kNone},
  };
  for (Case c : cases)
    for (const OptcMaskedRows rows : {OPTC_ROWS_NAN, OPTC_ROWS_ZERO_PROBABILITIES, OPTC_ROWS_ZERO_RESULT}) {
      c.a.masked_rows = rows;
      check(c);
      if (HasFatalFailure()) return;
    }
}

}  // namespace
