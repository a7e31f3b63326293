// runtime/cpu/{conv,depthwise,winograd,pool}.h against sums in double, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/cpu/conv_plan.h"

#define OPTC_KERNELS "tests/runtime_conv_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/runtime_isas.h"

namespace {

struct Case {
  bool nchw;
  OptcConvAlgorithm algorithm;
  OptcConvShape s;
};
// source is NCHW, also run as, {n, h, w, c, oc, kh, kw, sh, sw, dh, dw, top, left, bottom, right, groups}
const Case kCases[] = {
    {true, OPTC_CONV_DIRECT, {2, 17, 19, 3, 20, 7, 7, 2, 2, 1, 1, 3, 3, 3, 3, 1}},
    {false, OPTC_CONV_WINOGRAD4, {1, 13, 15, 5, 48, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {false, OPTC_CONV_DIRECT, {1, 11, 9, 16, 33, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1}},
    {false, OPTC_CONV_DIRECT, {3, 1, 40, 7, 64, 1, 5, 1, 2, 1, 1, 0, 2, 0, 1, 1}},
    {false, OPTC_CONV_DIRECT, {1, 10, 10, 8, 40, 3, 3, 2, 2, 1, 1, 1, 1, 0, 0, 2}},
    {false, OPTC_CONV_DIRECT, {1, 8, 9, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 8}},
    {false, OPTC_CONV_DIRECT, {2, 12, 12, 4, 64, 5, 5, 1, 1, 1, 1, 0, 0, 0, 0, 1}},
    {false, OPTC_CONV_GEMM, {2, 6, 7, 20, 70, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1}},
    {false, OPTC_CONV_GEMM, {2, 9, 8, 8, 17, 1, 1, 2, 2, 1, 1, 0, 0, 0, 0, 1}},
    {false, OPTC_CONV_DEPTHWISE, {2, 12, 14, 20, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 20}},
    {false, OPTC_CONV_DEPTHWISE, {1, 13, 31, 33, 33, 5, 5, 2, 2, 1, 1, 2, 2, 2, 2, 33}},
    {false, OPTC_CONV_DEPTHWISE, {1, 6, 9, 16, 16, 3, 9, 1, 1, 2, 1, 3, 4, 0, 4, 16}},
    {false, OPTC_CONV_WINOGRAD4, {1, 14, 13, 40, 50, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {false, OPTC_CONV_WINOGRAD2, {2, 7, 7, 32, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {false, OPTC_CONV_WINOGRAD4, {2, 14, 22, 32, 256, 3, 3, 1, 1, 1, 1, 0, 1, 1, 0, 1}},
    {true, OPTC_CONV_DIRECT, {1, 20, 9, 3, 24, 3, 3, 2, 1, 1, 1, 0, 1, 1, 1, 1}},
    {false, OPTC_CONV_GEMM, {1, 5, 5, 33, 16, 1, 1, 3, 2, 1, 1, 0, 0, 0, 0, 1}},
    {false, OPTC_CONV_DEPTHWISE, {1, 3, 3, 4, 4, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 4}},
    {false, OPTC_CONV_DEPTHWISE, {1, 7, 20, 150, 150, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 150}},
    // Dilated taps that end one short of the right border; the last tile of a row with one column of padding.
    {false, OPTC_CONV_DEPTHWISE, {1, 5, 9, 16, 16, 3, 3, 1, 1, 1, 2, 1, 2, 1, 2, 16}},
    {false, OPTC_CONV_DEPTHWISE, {1, 5, 10, 17, 17, 3, 5, 1, 2, 2, 3, 2, 6, 2, 6, 17}},
    // More padding than a run of outputs, and less, before runs begin.
    {false, OPTC_CONV_DEPTHWISE, {2, 1, 79, 48, 48, 1, 31, 1, 1, 1, 1, 0, 15, 0, 15, 48}},
    {false, OPTC_CONV_DEPTHWISE, {1, 3, 60, 20, 20, 3, 25, 1, 1, 1, 1, 1, 20, 1, 3, 20}},
    {false, OPTC_CONV_DEPTHWISE, {1, 1, 90, 65, 65, 1, 13, 1, 2, 1, 3, 0, 26, 0, 9, 65}},
    {false, OPTC_CONV_DEPTHWISE, {1, 2, 40, 16, 16, 1, 11, 1, 1, 1, 1, 0, 5, 0, 5, 16}},
    {false, OPTC_CONV_WINOGRAD4, {1, 8, 12, 32, 48, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {true, OPTC_CONV_DIRECT, {1, 5, 50, 3, 16, 3, 3, 1, 2, 1, 1, 1, 1, 1, 1, 1}},
    {true, OPTC_CONV_DIRECT, {2, 5, 37, 2, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {true, OPTC_CONV_DIRECT, {2, 5, 37, 1, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    // Panels of two widths; with taps that are left out, too.
    {false, OPTC_CONV_DIRECT, {1, 9, 11, 6, 72, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {false, OPTC_CONV_DIRECT, {1, 8, 9, 10, 230, 3, 3, 1, 1, 6, 6, 6, 6, 6, 6, 2}},
    {false, OPTC_CONV_GEMM, {1, 7, 7, 24, 112, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1}},
    {false, OPTC_CONV_WINOGRAD2, {1, 7, 9, 40, 160, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
};

std::vector<float> random_floats(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> v(n);
  for (float &x : v) x = uniform(random);
  return v;
}

std::vector<float> pack(const OptcConvShape &s, OptcConvAlgorithm algorithm, const std::vector<float> &w) {
  std::vector<float> out;
  switch (algorithm) {
    case OPTC_CONV_GEMM:
      out.resize(optc_gemm_packed_floats(s.oc, s.c));
      optc_pack_b(out.data(), w.data(), s.c, s.oc, 1, s.c);
      break;
    case OPTC_CONV_DIRECT:
      out.resize(optc_direct_packed_floats(s));
      optc_direct_pack(s, w.data(), out.data());
      break;
    case OPTC_CONV_DEPTHWISE:
      out.resize(s.c * s.kh * s.kw);
      optc_depthwise_pack(s, w.data(), out.data());
      break;
    case OPTC_CONV_WINOGRAD2:
    case OPTC_CONV_WINOGRAD4: {
      const int m = algorithm == OPTC_CONV_WINOGRAD2 ? 2 : 4;
      out.resize(optc_winograd_packed_floats(s, m));
      optc_winograd_pack(s, m, w.data(), out.data());
      break;
    }
  }
  return out;
}
size_t scratch_floats(const OptcConvShape &s, OptcConvAlgorithm algorithm) {
  switch (algorithm) {
    case OPTC_CONV_DIRECT:
      return optc_direct_plan(s).scratch_floats;
    case OPTC_CONV_WINOGRAD2:
      return optc_winograd_plan(s, 2).scratch_floats;
    case OPTC_CONV_WINOGRAD4:
      return optc_winograd_plan(s, 4).scratch_floats;
    default:
      return 0;
  }
}

void check(const Case &c, OptcConvAlgorithm algorithm, const std::string &index) {
  const OptcConvShape &s = c.s;
  const int64_t oh = optc_conv_oh(s), ow = optc_conv_ow(s), own = s.c / s.groups;
  const auto x = random_floats(s.n * s.h * s.w * s.c, 1), w = random_floats(s.oc * own * s.kh * s.kw, 2),
             bias = random_floats(s.oc, 3);
  const auto packed = pack(s, algorithm, w);
  const size_t outputs = s.n * oh * ow * s.oc, guard = 64;
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_conv)) {
    const size_t room = scratch_floats(s, algorithm);
    std::vector<float> scratch(room + guard, std::nanf("")), out(outputs + guard, std::nanf(""));
    f.function(algorithm, c.nchw, s, 1, x.data(), packed.data(), bias.data(), scratch.data(), out.data());
    for (size_t i = 0; i < guard; ++i) {
      ASSERT_TRUE(std::isnan(scratch[room + i])) << "scratch overrun, shape " << index;
      ASSERT_TRUE(std::isnan(out[outputs + i])) << "output overrun, shape " << index;
    }
    // For other numbers of threads: the same bits, in no more scratch.
    for (const int64_t threads : {2, 3, 7, 16, 61}) {
      std::vector<float> again(outputs + guard, std::nanf(""));
      f.function(algorithm, c.nchw, s, threads, x.data(), packed.data(), bias.data(), scratch.data(), again.data());
      for (size_t i = 0; i < guard; ++i)
        ASSERT_TRUE(std::isnan(scratch[room + i])) << "scratch overrun, shape " << index << ", " << threads;
      ASSERT_EQ(std::memcmp(out.data(), again.data(), (outputs + guard) * sizeof(float)), 0)
          << "shape " << index << " algorithm " << algorithm << " on " << f.isa << " for " << threads << " threads";
    }
    // Winograd's transforms lose up to two digits of float, F(4,3) more than F(2,3).
    const double tolerance = algorithm == OPTC_CONV_WINOGRAD4 ? 4e-6 : algorithm == OPTC_CONV_WINOGRAD2 ? 1e-6 : 3e-7;
    for (int64_t n = 0; n < s.n; ++n)
      for (int64_t y = 0; y < oh; ++y)
        for (int64_t px = 0; px < ow; ++px)
          for (int64_t o = 0; o < s.oc; ++o) {
            double sum = bias[o], magnitude = 1;
            for (int64_t i = 0; i < own; ++i)
              for (int64_t j = 0; j < s.kh; ++j)
                for (int64_t k = 0; k < s.kw; ++k) {
                  const int64_t iy = y * s.sh + j * s.dh - s.pad_top, ix = px * s.sw + k * s.dw - s.pad_left;
                  if (iy < 0 || ix < 0 || iy >= s.h || ix >= s.w) continue;
                  const int64_t ch = o / (s.oc / s.groups) * own + i;
                  const float v =
                      c.nchw ? x[((n * s.c + ch) * s.h + iy) * s.w + ix] : x[((n * s.h + iy) * s.w + ix) * s.c + ch];
                  const double p = double(v) * w[((o * own + i) * s.kh + j) * s.kw + k];
                  sum += p, magnitude += std::abs(p);
                }
            ASSERT_NEAR(sum, out[((n * oh + y) * ow + px) * s.oc + o], tolerance * magnitude)
                << "shape " << index << " algorithm " << algorithm << " on " << f.isa << " at image " << n << " y " << y
                << " x " << px << " channel " << o;
          }
  }
}

// What is not finite stays where the window puts it, though the transforms spread it over a tile; so do values near the
// end of f32's range, at which the transforms overflow.
TEST(RuntimeConv, WinogradKeepsWhatIsNotFiniteInItsWindow) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto algorithm : {OPTC_CONV_WINOGRAD2, OPTC_CONV_WINOGRAD4})
    for (const OptcConvShape &s : {OptcConvShape{1, 14, 13, 40, 50, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                   OptcConvShape{2, 13, 12, 32, 96, 3, 3, 1, 1, 1, 1, 0, 1, 1, 0, 1},
                                   OptcConvShape{1, 7, 9, 32, 72, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}})
      for (const float odd : {std::nanf(""), infinity, -infinity, 3e38f}) {
        auto x = random_floats(s.n * s.h * s.w * s.c, 1);
        auto w = random_floats(s.oc * s.c * 9, 2);
        for (size_t i = 0; i < w.size(); i += 7) w[i] = 0;
        const auto bias = random_floats(s.oc, 3);
        for (const int64_t at : {0, 5, 77}) x[static_cast<size_t>((at * 31 % (s.h * s.w)) * s.c + at % s.c)] = odd;
        const auto packed = pack(s, algorithm, w);
        const int64_t oh = optc_conv_oh(s), ow = optc_conv_ow(s);
        for (const auto &f : OPTC_ISA_FUNCTIONS(run_conv)) {
          std::vector<float> scratch(scratch_floats(s, algorithm)), out(s.n * oh * ow * s.oc);
          f.function(algorithm, false, s, 1, x.data(), packed.data(), bias.data(), scratch.data(), out.data());
          for (size_t at = 0; at < out.size(); ++at) {
            const int64_t o = at % s.oc, px = at / s.oc % ow, y = at / s.oc / ow % oh, n = at / s.oc / ow / oh;
            double sum = bias[o];
            for (int64_t ch = 0; ch < s.c; ++ch)
              for (int64_t j = 0; j < 3; ++j)
                for (int64_t k = 0; k < 3; ++k) {
                  const int64_t iy = y + j - s.pad_top, ix = px + k - s.pad_left;
                  if (iy < 0 || ix < 0 || iy >= s.h || ix >= s.w) continue;
                  sum += double(x[((n * s.h + iy) * s.w + ix) * s.c + ch]) * w[((o * s.c + ch) * 3 + j) * 3 + k];
                }
            if (std::isnan(sum)) {
              ASSERT_TRUE(std::isnan(out[at])) << f.isa << " at " << at << ": " << out[at];
            } else if (std::isinf(sum)) {
              ASSERT_EQ(out[at], static_cast<float>(sum)) << f.isa << " at " << at;
            } else {
              ASSERT_TRUE(std::isfinite(out[at])) << f.isa << " at " << at << " of " << sum;
            }
          }
        }
      }
}

// Groups of two channels share vectors: a NaN or infinity of one must not reach the others.
TEST(RuntimeConv, GroupsSeeTheirOwnChannelsOnly) {
  const OptcConvShape s = {1, 6, 7, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 8};
  ASSERT_GT(optc_conv_joined(s), 1);
  for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    auto x = random_floats(s.h * s.w * s.c, 1);
    const auto w = random_floats(s.oc * 2 * 9, 2), bias = random_floats(s.oc, 3);
    const auto packed = pack(s, OPTC_CONV_DIRECT, w);
    for (const auto &f : OPTC_ISA_FUNCTIONS(run_conv)) {
      std::vector<float> scratch(scratch_floats(s, OPTC_CONV_DIRECT)), clean(s.h * s.w * s.oc), got = clean;
      x[(2 * s.w + 3) * s.c + 5] = 0.5f;
      f.function(OPTC_CONV_DIRECT, false, s, 1, x.data(), packed.data(), bias.data(), scratch.data(), clean.data());
      x[(2 * s.w + 3) * s.c + 5] = odd;
      f.function(OPTC_CONV_DIRECT, false, s, 1, x.data(), packed.data(), bias.data(), scratch.data(), got.data());
      for (int64_t y = 0; y < s.h; ++y)
        for (int64_t px = 0; px < s.w; ++px)
          for (int64_t o = 0; o < s.oc; ++o) {
            const size_t at = (y * s.w + px) * s.oc + o;
            const bool reached = o / 2 == 2 && std::abs(y - 2) <= 1 && std::abs(px - 3) <= 1;
            if (reached)
              EXPECT_FALSE(std::isfinite(got[at])) << f.isa << " " << y << " " << px << " " << o;
            else
              EXPECT_NEAR(got[at], clean[at], 2e-6) << f.isa << " " << y << " " << px << " " << o;
          }
    }
  }
}

TEST(RuntimeConv, EveryAlgorithmAgreesWithItsDefinition) {
  for (int i = 0; i < int(std::size(kCases)); ++i) {
    check(kCases[i], kCases[i].algorithm, std::to_string(i));
    if (HasFatalFailure()) return;
    if (kCases[i].algorithm == OPTC_CONV_WINOGRAD2 || kCases[i].algorithm == OPTC_CONV_WINOGRAD4) {
      check(kCases[i], OPTC_CONV_DIRECT, std::to_string(i));
      check(kCases[i], kCases[i].algorithm == OPTC_CONV_WINOGRAD2 ? OPTC_CONV_WINOGRAD4 : OPTC_CONV_WINOGRAD2,
            std::to_string(i));
    }
    if (HasFatalFailure()) return;
  }
}

// Runs of outputs, blocks of each height and width, borders on one side and on both, parts of vectors.
TEST(RuntimeConv, DepthwiseOfEveryWidth) {
  for (const int64_t c : {1, 15, 16, 17, 24, 33, 40, 56, 64, 72, 100, 120})
    for (const int64_t w : {1, 2, 3, 5, 7, 9, 10, 12, 14, 19, 28})
      for (const int64_t k : {3, 5})
        for (const int64_t stride : {1, 2}) {
          const Case shape = {
              false, OPTC_CONV_DEPTHWISE, {1, 3, w, c, c, 3, k, 1, stride, 1, 1, 1, k / 2, 1, k / 2, c}};
          check(shape, OPTC_CONV_DEPTHWISE,
                "c " + std::to_string(c) + " w " + std::to_string(w) + " k " + std::to_string(k));
          if (HasFatalFailure()) return;
        }
}

TEST(RuntimeConv, SelectionFollowsTheShape) {
  const auto algorithm = [](int64_t hw, int64_t c, int64_t k, int64_t stride, int64_t groups, bool strict) {
    const int64_t p = k / 2;
    return optc_conv_algorithm({1, hw, hw, c, c, k, k, stride, stride, 1, 1, p, p, p, p, groups}, strict);
  };
  EXPECT_EQ(algorithm(56, 64, 3, 1, 1, false), OPTC_CONV_WINOGRAD4);
  EXPECT_EQ(algorithm(56, 64, 3, 1, 1, true), OPTC_CONV_WINOGRAD2);
  EXPECT_EQ(algorithm(28, 128, 3, 1, 1, false), OPTC_CONV_WINOGRAD4);
  EXPECT_EQ(algorithm(14, 256, 3, 1, 1, false), OPTC_CONV_WINOGRAD2);
  EXPECT_EQ(algorithm(7, 512, 3, 1, 1, false), OPTC_CONV_WINOGRAD2);
  EXPECT_EQ(algorithm(56, 64, 3, 2, 1, false), OPTC_CONV_DIRECT);
  EXPECT_EQ(algorithm(56, 64, 1, 1, 1, false), OPTC_CONV_GEMM);
  EXPECT_EQ(algorithm(56, 64, 3, 1, 64, false), OPTC_CONV_DEPTHWISE);
  EXPECT_EQ(algorithm(56, 64, 3, 1, 4, false), OPTC_CONV_DIRECT);
}

TEST(RuntimePool, MaximaAndAveragesWithPaddingCeilModeAndDilation) {
  struct PoolCase {
    OptcConvShape s;
    int64_t oh, ow;
  };
  const PoolCase cases[] = {
      {{2, 11, 37, 20, 20, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1}, 6, 19},
      {{1, 8, 40, 5, 5, 2, 3, 1, 1, 1, 1, 0, 1, 0, 1, 1}, 7, 40},
      {{1, 8, 8, 33, 33, 3, 3, 2, 2, 1, 1, 0, 0, 0, 0, 1}, 4, 4},  // ceil_mode: the last window leaves the image
      {{1, 9, 21, 3, 3, 2, 2, 1, 1, 2, 3, 0, 0, 0, 0, 1}, 7, 18}};
  for (const PoolCase &c : cases) {
    const OptcConvShape &s = c.s;
    const auto x = random_floats(s.n * s.h * s.w * s.c, 5);
    for (bool average : {false, true})
      for (bool nchw : {false, true})
        for (bool count_pads : {false, true})
          for (const auto &f : OPTC_ISA_FUNCTIONS(run_pool)) {
            std::vector<float> out(s.n * c.oh * c.ow * s.c + 16, std::nanf(""));
            f.function(average, nchw, count_pads, s, c.oh, c.ow, x.data(), out.data());
            for (int i = 0; i < 16; ++i) ASSERT_TRUE(std::isnan(out[out.size() - 1 - i]));
            for (int64_t n = 0; n < s.n; ++n)
              for (int64_t ch = 0; ch < s.c; ++ch)
                for (int64_t y = 0; y < c.oh; ++y)
                  for (int64_t px = 0; px < c.ow; ++px) {
                    double sum = 0, most = -INFINITY;
                    int inside = 0, padded = 0;
                    for (int64_t j = 0; j < s.kh; ++j)
                      for (int64_t k = 0; k < s.kw; ++k) {
                        const int64_t iy = y * s.sh + j * s.dh - s.pad_top, ix = px * s.sw + k * s.dw - s.pad_left;
                        padded += iy < s.h + s.pad_bottom && ix < s.w + s.pad_right;
                        if (iy < 0 || ix < 0 || iy >= s.h || ix >= s.w) continue;
                        const double v = nchw ? x[((n * s.c + ch) * s.h + iy) * s.w + ix]
                                              : x[((n * s.h + iy) * s.w + ix) * s.c + ch];
                        sum += v, most = std::max(most, v), ++inside;
                      }
                    const double expected = average ? sum / (count_pads ? padded : inside) : most;
                    const float got = nchw ? out[((n * s.c + ch) * c.oh + y) * c.ow + px]
                                           : out[((n * c.oh + y) * c.ow + px) * s.c + ch];
                    ASSERT_NEAR(got, expected, 1e-6)
                        << f.isa << " average " << average << " nchw " << nchw << " y " << y << " x " << px;
                  }
          }
  }
  const auto x = random_floats(49 * 37, 6);
  for (bool average : {false, true})
    for (const auto &f : OPTC_ISA_FUNCTIONS(run_global_pool)) {
      std::vector<float> out(37);
      f.function(average, x.data(), 49, 37, out.data());
      for (int c = 0; c < 37; ++c) {
        double sum = 0, most = -INFINITY;
        for (int i = 0; i < 49; ++i) sum += x[i * 37 + c], most = std::max<double>(most, x[i * 37 + c]);
        EXPECT_NEAR(out[c], average ? sum / 49 : most, 1e-6) << f.isa;
      }
    }
}

}  // namespace
