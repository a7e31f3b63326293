// runtime/cpu/conv.h over volumes and conv_transposed.h, on shapes that are drawn, against the definition in double:
// each output comes once, sums what it should, and sees no input but its own.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/cpu/conv_transposed_plan.h"

#define OPTC_KERNELS "tests/runtime_conv_shapes_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/runtime_isas.h"

namespace {

// One axis of a shape.
struct Axis {
  int64_t in, kernel, stride, dilation, begin, end, out;
};
struct Drawn {
  bool transposed = false, nchw = false;
  OptcConvShape s{};
  Axis axes[3];
};

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  Axis axis(bool transposed) {
    for (;;) {
      Axis a{
          between(1, 9), between(1, 5), between(1, transposed ? 4 : 3), between(1, 3), between(0, 3), between(0, 3), 0};
      if (transposed && between(0, 2) == 0) a.end -= between(0, 3);  // output_padding
      if (transposed && between(0, 9) == 0) a.begin = -1;            // a wider output_shape
      const int64_t reach = (a.kernel - 1) * a.dilation + 1;
      const int64_t free = a.in + a.begin + a.end - reach;
      a.out = transposed ? (a.in - 1) * a.stride + reach - a.begin - a.end : free < 0 ? 0 : free / a.stride + 1;
      if (a.out > 0 && a.out < 40) return a;
    }
  }
  template <class T>
  std::vector<T> floats(int64_t n) {
    std::uniform_real_distribution<T> uniform(-1, 1);
    std::vector<T> v(static_cast<size_t>(n));
    for (T &x : v) x = uniform(random_);
    return v;
  }

  Drawn shape(bool transposed) {
    for (;;) {
      const Drawn d = any_shape(transposed);
      double work = double(d.s.n * d.s.oc * (d.s.c / d.s.groups));
      for (const Axis &a : d.axes) work *= double(a.out * a.kernel);
      if (work < 3e6) return d;
    }
  }

 private:
  Drawn any_shape(bool transposed) {
    Drawn d;
    d.transposed = transposed;
    d.nchw = between(0, 3) == 0;
    OptcConvShape &s = d.s;
    const int64_t dims = between(1, 3);
    for (int i = 0; i < 3; ++i) d.axes[i] = i >= 3 - dims ? axis(transposed) : Axis{1, 1, 1, 1, 0, 0, 1};
    s.groups = between(0, 2) == 0 ? int64_t{1} << between(1, 3) : 1;
    s.n = between(1, 2);
    s.c = s.groups * between(1, between(0, 1) ? 3 : 20);
    s.oc = s.groups * between(1, between(0, 1) ? 3 : 70);
    const Axis &z = d.axes[0], &y = d.axes[1], &x = d.axes[2];
    s.d = z.in, s.kd = z.kernel, s.sd = z.stride, s.dd = z.dilation, s.pad_front = z.begin, s.pad_back = z.end;
    s.h = y.in, s.kh = y.kernel, s.sh = y.stride, s.dh = y.dilation, s.pad_top = y.begin, s.pad_bottom = y.end;
    s.w = x.in, s.kw = x.kernel, s.sw = x.stride, s.dw = x.dilation, s.pad_left = x.begin, s.pad_right = x.end;
    return d;
  }
  std::mt19937 random_;
};

// The input position of output o by tap k; -1: none.
int64_t position(const Axis &a, bool transposed, int64_t o, int64_t k) {
  int64_t at = o * a.stride + k * a.dilation - a.begin;
  if (transposed) {
    at = o + a.begin - k * a.dilation;
    if (at < 0 || at % a.stride != 0) return -1;
    at /= a.stride;
  }
  return at >= 0 && at < a.in ? at : -1;
}

std::string text(const Drawn &d) {
  std::string t = (d.transposed ? "transposed" : "plain") + std::string(d.nchw ? ", nchw" : ", nhwc") + ", n " +
                  std::to_string(d.s.n) + " c " + std::to_string(d.s.c) + " oc " + std::to_string(d.s.oc) + " groups " +
                  std::to_string(d.s.groups);
  for (const Axis &a : d.axes)
    t += "; in " + std::to_string(a.in) + " k " + std::to_string(a.kernel) + " s " + std::to_string(a.stride) + " d " +
         std::to_string(a.dilation) + " pads " + std::to_string(a.begin) + " " + std::to_string(a.end);
  return t;
}

// T: float or double; functions: run_shape of that type.
template <class T, class Functions>
void check_in(const Drawn &d, Draw &draw, bool odd, const Functions &functions) {
  SCOPED_TRACE(text(d) + (sizeof(T) == 8 ? ", double" : ""));
  const OptcConvShape s = sizeof(T) == 8 ? optc_of_double(d.s) : d.s;
  const Axis &az = d.axes[0], &ay = d.axes[1], &ax = d.axes[2];
  ASSERT_EQ(d.transposed ? optc_transposed_od(s) : optc_conv_od(s), az.out);
  ASSERT_EQ(d.transposed ? optc_transposed_oh(s) : optc_conv_oh(s), ay.out);
  ASSERT_EQ(d.transposed ? optc_transposed_ow(s) : optc_conv_ow(s), ax.out);
  auto x = draw.floats<T>(s.n * s.c * s.d * s.h * s.w);
  if (odd) x[static_cast<size_t>(draw.between(0, int64_t(x.size()) - 1))] = std::numeric_limits<T>::infinity();
  const int64_t own_c = s.c / s.groups, own_oc = s.oc / s.groups;
  const auto w = draw.floats<T>(s.oc * own_c * s.kd * s.kh * s.kw);
  const bool pixels = !d.transposed && !d.nchw && optc_conv_algorithm(s, true) == OPTC_CONV_GEMM;
  std::vector<T> packed;
  if (d.transposed) {
    packed.resize(static_cast<size_t>(optc_transposed_packed_floats(s)));
    optc_transposed_pack(s, w.data(), packed.data());
  } else if (pixels) {
    packed.resize(static_cast<size_t>(optc_gemm_packed_floats(s.oc, s.c, s.element)));
    optc_pack_b(packed.data(), w.data(), s.c, s.oc, 1, s.c);
  } else {
    packed.resize(static_cast<size_t>(optc_direct_packed_floats(s)));
    optc_direct_pack(s, w.data(), packed.data());
  }
  const size_t guard = 64;
  const size_t room = static_cast<size_t>(d.transposed ? optc_transposed_scratch_floats(s)
                                          : pixels     ? 0
                                                       : optc_direct_plan(s).scratch_floats);
  const size_t outputs = static_cast<size_t>(s.n * az.out * ay.out * ax.out * s.oc);
  for (const auto &f : functions) {
    std::vector<T> scratch(room + guard, std::numeric_limits<T>::quiet_NaN()), out(outputs + guard, 0);
    f.function(d.transposed, pixels, d.nchw, s, x.data(), packed.data(), scratch.data(), out.data());
    for (size_t i = 0; i < guard; ++i) {
      ASSERT_TRUE(std::isnan(scratch[room + i])) << "scratch overrun on " << f.isa;
      ASSERT_EQ(out[outputs + i], 0) << "output overrun on " << f.isa;
    }
    for (size_t i = 0; i < outputs; ++i) {
      const int64_t at = static_cast<int64_t>(i), o = at % s.oc, ox = at / s.oc % ax.out,
                    oy = at / s.oc / ax.out % ay.out, oz = at / s.oc / ax.out / ay.out % az.out,
                    n = at / s.oc / ax.out / ay.out / az.out;
      double sum = 1, magnitude = 1;
      for (int64_t z = 0; z < s.kd; ++z)
        for (int64_t y = 0; y < s.kh; ++y)
          for (int64_t k = 0; k < s.kw; ++k) {
            const int64_t iz = position(az, d.transposed, oz, z), iy = position(ay, d.transposed, oy, y),
                          ix = position(ax, d.transposed, ox, k);
            if (iz < 0 || iy < 0 || ix < 0) continue;
            for (int64_t c = 0; c < own_c; ++c) {
              const int64_t channel = o / own_oc * own_c + c;
              const T v = x[static_cast<size_t>(d.nchw ? (((n * s.c + channel) * s.d + iz) * s.h + iy) * s.w + ix
                                                       : (((n * s.d + iz) * s.h + iy) * s.w + ix) * s.c + channel)];
              const int64_t first = d.transposed ? channel * own_oc + o % own_oc : o * own_c + c;
              const double p = double(v) * w[static_cast<size_t>(((first * s.kd + z) * s.kh + y) * s.kw + k)];
              sum += p, magnitude += std::abs(p);
            }
          }
      if (std::isfinite(sum))
        ASSERT_NEAR(out[i], sum, (sizeof(T) == 8 ? 1e-13 : 6e-7) * magnitude) << f.isa << " at " << i;
      else
        ASSERT_FALSE(std::isfinite(out[i])) << f.isa << " at " << i;
    }
  }
}

void check(const Drawn &d, Draw &draw, bool odd) {
  check_in<float>(d, draw, odd, OPTC_ISA_FUNCTIONS(run_shape));
  check_in<double>(d, draw, odd, OPTC_ISA_FUNCTIONS(run_shape_double));
}

TEST(RuntimeConvShapes, TransposedOnesAgreeWithTheirDefinition) {
  Draw draw(5);
  for (int i = 0; i < 400 && !testing::Test::HasFatalFailure(); ++i) check(draw.shape(true), draw, i % 4 == 0);
}

TEST(RuntimeConvShapes, VolumesAgreeWithTheirDefinition) {
  Draw draw(6);
  for (int i = 0; i < 400 && !testing::Test::HasFatalFailure(); ++i) check(draw.shape(false), draw, i % 4 == 0);
}

TEST(RuntimeConvShapes, OnesThatSkipTapsAgreeWithTheirDefinition) {
  Draw draw(7);
  int skipping = 0;
  for (int i = 0; skipping < 150 && !testing::Test::HasFatalFailure(); ++i) {
    const Drawn d = draw.shape(false);
    if (d.nchw || !optc_direct_skips(d.s)) continue;
    ++skipping;
    check(d, draw, i % 4 == 0);
  }
  // deeplabv3's: nine taps of which one lies inside.
  const OptcConvShape s = {1, 16, 16, 32, 40, 3, 3, 1, 1, 36, 36, 36, 36, 36, 36, 1};
  EXPECT_TRUE(optc_direct_skips(s));
  EXPECT_FALSE(optc_direct_skips({1, 56, 56, 32, 40, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
}

// Of one product where kernel and stride are alike: no part of it is alone, no zero is multiplied.
TEST(RuntimeConvShapes, RestsThatReadTheSameInputsAreOnePart) {
  OptcConvShape s{};
  s.n = 1, s.h = s.w = 8, s.c = 16, s.oc = 8, s.groups = 1, s.dh = s.dw = 1;
  s.kh = s.kw = s.sh = s.sw = 2;
  OptcTransposedPart p = optc_transposed_part(s, 0, 0, 0);
  EXPECT_EQ(p.direct.oc, 32);
  EXPECT_EQ(p.direct.kh * p.direct.kw, 1);
  EXPECT_FALSE(optc_transposed_next(s, p));
  s.kh = s.kw = 4, s.pad_top = s.pad_left = s.pad_bottom = s.pad_right = 1;
  int parts = 1;
  for (p = optc_transposed_part(s, 0, 0, 0); optc_transposed_next(s, p); ++parts)
    EXPECT_EQ(p.direct.kh * p.direct.kw, 4);
  EXPECT_EQ(parts, 4);
  EXPECT_EQ(optc_transposed_packed_floats(s), 4 * 4 * 16 * 16);  // eight filters lie in panels of 16
}

}  // namespace
