// runtime/cpu/simd.h and math.h against the C library in double, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#define OPTC_KERNELS "tests/runtime_math_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/runtime_isas.h"

namespace {

using Unary = void (*)(const float *, float *, int);
const float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

float from_word(uint32_t word) {
  float x;
  memcpy(&x, &word, 4);
  return x;
}
uint32_t to_word(float x) {
  uint32_t word;
  memcpy(&word, &x, 4);
  return word;
}

// |got - expected| in units of the last place of the float nearest to expected.
double ulps(float got, double expected) {
  const float nearest = static_cast<float>(expected);
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got) ? 0 : 1e30;
  if (std::isinf(nearest) || std::isinf(got)) return nearest == got ? 0 : 1e30;
  const float magnitude = std::fabs(nearest);
  const double unit = double(std::nextafter(magnitude, kInf)) - magnitude;
  return std::isinf(unit) ? std::fabs(got - expected) / std::ldexp(1.0, 104) : std::fabs(got - expected) / unit;
}

// Floats of every exponent and sign, and the special values.
std::vector<float> samples(float low, float high, uint32_t step = 9973) {
  std::vector<float> x = {0.0f,
                          -0.0f,
                          kInf,
                          -kInf,
                          kNan,
                          1.0f,
                          -1.0f,
                          0.5f,
                          -0.5f,
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::lowest(),
                          std::numeric_limits<float>::denorm_min()};
  for (uint64_t w = 1; w < 0x7f800000u; w += step) {
    for (float v : {from_word(uint32_t(w)), -from_word(uint32_t(w))})
      if (v >= low && v <= high) x.push_back(v);
  }
  return x;
}

struct Case {
  const char *name;
  std::vector<IsaFunction<Unary>> vector, scalar;
  std::function<double(double)> reference;
  double bound;  // ulps
  float low = -kInf, high = kInf;
  double absolute = 0;
};

#define OPTC_CASE(name, reference, ...) \
  Case { #name, OPTC_ISA_FUNCTIONS(run_##name), OPTC_ISA_FUNCTIONS(run_scalar_##name), reference, __VA_ARGS__ }

TEST(RuntimeMath, WithinTheStatedErrors) {
  const auto gelu = [](double x) { return x == -INFINITY ? NAN : 0.5 * x * std::erfc(-x * M_SQRT1_2); };
  const auto gelu_tanh = [](double x) {
    return x == -INFINITY ? NAN : x / (1 + std::exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  };
  const std::vector<Case> cases = {
      OPTC_CASE(
          exp, [](double x) { return std::exp(x); }, 1.1),
      OPTC_CASE(
          expm1, [](double x) { return std::expm1(x); }, 1.5),
      OPTC_CASE(
          log, [](double x) { return std::log(x); }, 0.8),
      OPTC_CASE(
          log1p, [](double x) { return std::log1p(x); }, 1.5),
      OPTC_CASE(
          tanh, [](double x) { return std::tanh(x); }, 1.2),
      OPTC_CASE(
          sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 2.0),
      OPTC_CASE(
          erf, [](double x) { return std::erf(x); }, 1.0),
      OPTC_CASE(
          softplus, [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }, 2.0),
      OPTC_CASE(
          sin, [](double x) { return std::sin(x); }, 1.4, -1e8f, 1e8f),
      OPTC_CASE(
          cos, [](double x) { return std::cos(x); }, 1.4, -1e8f, 1e8f),
      OPTC_CASE(
          tan, [](double x) { return std::tan(x); }, 3.5, -1e8f, 1e8f),
      OPTC_CASE(
          asin, [](double x) { return std::asin(x); }, 1.8),
      OPTC_CASE(
          acos, [](double x) { return std::acos(x); }, 1.3),
      OPTC_CASE(
          atan, [](double x) { return std::atan(x); }, 1.5),
      OPTC_CASE(
          sinh, [](double x) { return std::sinh(x); }, 2.0),
      OPTC_CASE(
          cosh, [](double x) { return std::cosh(x); }, 1.8),
      OPTC_CASE(
          asinh, [](double x) { return std::asinh(x); }, 2.2),
      OPTC_CASE(
          acosh, [](double x) { return std::acosh(x); }, 2.0),
      OPTC_CASE(
          atanh, [](double x) { return std::atanh(x); }, 2.2),
      OPTC_CASE(gelu, gelu, 4.0, -1e30f, 1e30f, 1e-6),
      OPTC_CASE(gelu_tanh, gelu_tanh, 4.0, -1e10f, 1e10f, 1e-6),
      OPTC_CASE(
          sqrt, [](double x) { return std::sqrt(x); }, 0.5001),
      OPTC_CASE(
          floor, [](double x) { return std::floor(x); }, 0.0),
      OPTC_CASE(
          ceil, [](double x) { return std::ceil(x); }, 0.0),
      OPTC_CASE(
          trunc, [](double x) { return std::trunc(x); }, 0.0),
      OPTC_CASE(
          round_even, [](double x) { return std::nearbyint(x); }, 0.0),
      OPTC_CASE(
          sign, [](double x) { return std::isnan(x) ? x : double((x > 0) - (x < 0)); }, 0.0),
  };
  for (const Case &c : cases) {
    std::vector<float> x;
    for (float v : samples(c.low, c.high))
      if ((v >= c.low && v <= c.high) || std::isnan(v)) x.push_back(v);
    std::vector<float> y(x.size()), scalar(x.size());
    for (size_t isa = 0; isa < c.vector.size(); ++isa) {
      c.vector[isa].function(x.data(), y.data(), int(x.size()));
      c.scalar[isa].function(x.data(), scalar.data(), int(x.size()));
      double worst = 0;
      float at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double expected = c.reference(double(x[i]));
        const double error = std::fabs(y[i] - expected) <= c.absolute ? 0 : ulps(y[i], expected);
        if (error > worst) worst = error, at = x[i];
        ASSERT_EQ(to_word(std::isnan(y[i]) ? kNan : y[i]), to_word(std::isnan(scalar[i]) ? kNan : scalar[i]))
            << c.name << " of one float differs from a lane at " << x[i] << " on " << c.vector[isa].isa;
      }
      RecordProperty(std::string(c.name) + "_" + c.vector[isa].isa, std::to_string(worst));
      EXPECT_LE(worst, c.bound) << c.name << " at " << at << " on " << c.vector[isa].isa;
      if (getenv("OPTC_SHOW_ULPS")) printf("%-10s %-7s %8.3f ulp at %g\n", c.name, c.vector[isa].isa, worst, at);
    }
  }
}

TEST(RuntimeMath, PowOfEveryKindOfArguments) {
  std::vector<float> a, b;
  const std::vector<float> special = {0.0f,  -0.0f, 1.0f,  -1.0f, kInf,  -kInf,  kNan,    0.5f,  -0.5f,       2.0f,
                                      -2.0f, 3.0f,  -3.0f, 2.5f,  -2.5f, 1e-40f, -1e-40f, 1e30f, 16777217.0f, 1e38f};
  for (float x : special)
    for (float y : special) a.push_back(x), b.push_back(y);
  const size_t specials = a.size();
  for (uint32_t i = 0; i < 300000; ++i) {
    a.push_back(std::fabs(from_word(1 + (i * 7919u) % 0x7f7fffffu)));
    const float limit = 100 / std::max(1e-3f, std::fabs(std::log2(a.back())));
    b.push_back(limit * (float((i * 2654435761u) % 65536) / 32768 - 1));
  }
  std::vector<float> y(a.size());
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_pow)) {
    f.function(a.data(), b.data(), y.data(), int(a.size()));
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double expected = std::pow(double(a[i]), double(b[i]));
      const double error = ulps(y[i], expected);
      if (i < specials) {
        EXPECT_LE(error, 1.0) << "pow(" << a[i] << ", " << b[i] << ") = " << y[i] << ", not " << expected << " on "
                              << f.isa;
        if (expected == 0) {
          EXPECT_EQ(std::signbit(expected), std::signbit(y[i])) << a[i] << " " << b[i];
        }
      }
      worst = std::max(worst, error);
    }
    EXPECT_LE(worst, 1.0) << f.isa;
  }
}

TEST(RuntimeSimd, MinAndMaxPropagateNan) {
  const float v[] = {0, -1, 2, kInf, -kInf, kNan};
  std::vector<float> a, b;
  for (float x : v)
    for (float y : v) a.push_back(x), b.push_back(y);
  std::vector<float> low(a.size()), high(a.size());
  const auto minimum = OPTC_ISA_FUNCTIONS(run_min), maximum = OPTC_ISA_FUNCTIONS(run_max);
  for (size_t isa = 0; isa < minimum.size(); ++isa) {
    minimum[isa].function(a.data(), b.data(), low.data(), int(a.size()));
    maximum[isa].function(a.data(), b.data(), high.data(), int(a.size()));
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i]) || std::isnan(b[i])) {
        EXPECT_TRUE(std::isnan(low[i]) && std::isnan(high[i])) << a[i] << " " << b[i] << " " << minimum[isa].isa;
      } else {
        EXPECT_EQ(low[i], std::fmin(a[i], b[i]));
        EXPECT_EQ(high[i], std::fmax(a[i], b[i]));
      }
    }
  }
}

TEST(RuntimeSimd, CastsSaturateAndNanGivesZero) {
  const std::vector<float> x = {0.9f, -0.9f,  2147483520.0f, 2147483648.0f, 3e9f,   -2147483648.0f, -3e9f, kInf, -kInf,
                                kNan, 127.6f, -128.9f,       255.7f,        300.0f, -5.5f,          7.0f,  8.0f};
  const int n = int(x.size());
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_to_i32)) {
    std::vector<int32_t> y(n);
    f.function(x.data(), y.data(), n);
    const std::vector<int32_t> expected = {0,         0,         2147483520, INT32_MAX, INT32_MAX, INT32_MIN,
                                           INT32_MIN, INT32_MAX, INT32_MIN,  0,         127,       -128,
                                           255,       300,       -5,         7,         8};
    EXPECT_EQ(y, expected) << f.isa;
  }
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_to_i8_u8)) {
    std::vector<int8_t> s(n);
    std::vector<uint8_t> u(n);
    f.function(x.data(), s.data(), u.data(), n);
    const std::vector<int8_t> signed_expected = {0, 0,   127,  127, 127, -128, -128, 127, -128,
                                                 0, 127, -128, 127, 127, -5,   7,    8};
    const std::vector<uint8_t> unsigned_expected = {0, 0, 255, 255, 255, 0, 0, 255, 0, 0, 127, 0, 255, 255, 0, 7, 8};
    EXPECT_EQ(s, signed_expected) << f.isa;
    EXPECT_EQ(u, unsigned_expected) << f.isa;
  }
}

// Float16 by its definition: the nearest of all 63488 finite values, ties to the even one.
TEST(RuntimeSimd, Float16AndBfloat16RoundToNearestEven) {
  std::vector<uint16_t> all(65536);
  for (int i = 0; i < 65536; ++i) all[i] = uint16_t(i);
  std::vector<float> value(65536);
  const auto value_of = [](int h) {
    const int e = (h >> 10) & 31, m = h & 1023;
    const double v = e == 31 ? (m ? NAN : INFINITY) : e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25);
    return h & 0x8000 ? -v : v;
  };
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_load_f16)) {
    f.function(all.data(), value.data(), 65536);
    for (int i = 0; i < 65536; ++i) {
      const double expected = value_of(i);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(value[i]));
      } else {
        ASSERT_EQ(value[i], expected) << i << " " << f.isa;
        ASSERT_EQ(std::signbit(value[i]), std::signbit(expected)) << i;
      }
    }
  }
  std::vector<float> x = samples(-kInf, kInf, 4999);
  for (int h = 0; h < 0x7c00; ++h) {  // halves between neighbours, and the floats beside them
    const float middle = float((value_of(h) + (h == 0x7bff ? 65536.0 : value_of(h + 1))) / 2);
    for (float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, kInf)})
      x.push_back(v), x.push_back(-v);
  }
  std::vector<uint16_t> y(x.size());
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_store_f16)) {
    f.function(x.data(), y.data(), int(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE((y[i] & 0x7c00) == 0x7c00 && (y[i] & 1023) != 0) << f.isa;
        continue;
      }
      const double magnitude = std::fabs(x[i]);
      int expected = 0x7c00;
      if (magnitude < 65520) {
        int low = 0, high = 0x7bff;  // the greatest h with value_of(h) <= magnitude
        while (low < high) {
          const int middle = (low + high + 1) / 2;
          if (value_of(middle) <= magnitude)
            low = middle;
          else
            high = middle - 1;
        }
        const double below = magnitude - value_of(low),
                     above = (low == 0x7bff ? 65536.0 : value_of(low + 1)) - magnitude;
        expected = below < above || (below == above && low % 2 == 0) ? low : low + 1;
      }
      ASSERT_EQ(y[i] & 0x7fff, expected) << x[i] << " on " << f.isa;
      ASSERT_EQ(y[i] >> 15, std::signbit(x[i]) ? 1 : 0);
    }
  }
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_store_bf16)) {
    f.function(x.data(), y.data(), int(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE((y[i] & 0x7f80) == 0x7f80 && (y[i] & 127) != 0);
        continue;
      }
      const uint32_t w = to_word(x[i]), low = w & 0xffff;
      const uint32_t expected = (w >> 16) + (low > 0x8000 || (low == 0x8000 && ((w >> 16) & 1)));
      ASSERT_EQ(y[i], expected) << x[i] << " on " << f.isa;
    }
  }
}

TEST(RuntimeSimd, ReductionsAndWideLanes) {
  std::vector<float> x(64);
  std::vector<int64_t> offset(64), whole(64);
  for (int i = 0; i < 64; ++i) x[i] = float(i % 7) - 3.25f, offset[i] = int64_t{1} << (i % 40);
  const auto lanes = OPTC_ISA_FUNCTIONS(run_lanes);
  const auto sum = OPTC_ISA_FUNCTIONS(run_reduce_sum), most = OPTC_ISA_FUNCTIONS(run_reduce_max);
  const auto wide = OPTC_ISA_FUNCTIONS(run_wide);
  for (size_t isa = 0; isa < lanes.size(); ++isa) {
    const int n = lanes[isa].function();
    float expected = 0, greatest = -kInf;
    for (int i = 0; i < n; ++i) expected += x[i], greatest = std::fmax(greatest, x[i]);
    EXPECT_EQ(sum[isa].function(x.data()), expected);  // quarters: exact in any order
    EXPECT_EQ(most[isa].function(x.data()), greatest);
    std::vector<float> y(64);
    wide[isa].function(x.data(), offset.data(), y.data(), whole.data(), 64);
    for (int i = 0; i < 64; ++i) {
      EXPECT_EQ(y[i], float(double(x[i]) * x[i] + double(offset[i])));
      EXPECT_EQ(whole[i], x[i] < 0 ? -offset[i] : int64_t(x[i]));
    }
  }
}

}  // namespace
