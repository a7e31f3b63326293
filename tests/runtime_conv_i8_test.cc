// runtime/cpu/{conv_i8,conv_i8_depthwise,rnn_i8}.h on every instruction set of this machine: sums are equal to the last
// bit.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "runtime/cpu/conv_i8_plan.h"
#include "runtime/cpu/rnn_plan.h"

namespace {
struct TestEnv {
  uint8_t *scratch;
  int64_t threads;  // that the work is divided for
};
template <class Body>
void parallel(const TestEnv &env, int64_t count, int64_t grain, const Body &body) {
  for (int64_t i = 0; i < count; i += grain) body(i, i + grain < count ? i + grain : count, env.scratch);
}
struct ConvI8Case {
  OptcConvShape s;
  bool is_signed, weights_signed, nchw, depthwise;
  int32_t zero;
  int64_t threads = 1;
};
}  // namespace

#define OPTC_KERNELS "tests/runtime_conv_i8_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/runtime_isas.h"

namespace {

// {n, h, w, c, oc, kh, kw, sh, sw, dh, dw, top, left, bottom, right, groups, d, kd, sd, dd, front, back}
const OptcConvShape kShapes[] = {
    {1, 5, 7, 8, 16, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1},
    {2, 5, 7, 70, 33, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1},
    {1, 9, 8, 16, 17, 1, 1, 2, 2, 1, 1, 0, 0, 0, 0, 1},
    {2, 17, 19, 3, 20, 7, 7, 2, 2, 1, 1, 3, 3, 3, 3, 1},
    {1, 8, 6, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    {1, 11, 9, 5, 33, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1},
    {1, 10, 10, 8, 40, 3, 3, 2, 2, 1, 1, 1, 1, 0, 0, 2},
    {1, 8, 9, 12, 12, 3, 5, 1, 1, 1, 1, 1, 4, 1, 0, 6},
    {1, 1, 40, 7, 64, 1, 5, 1, 2, 1, 1, 0, 2, 0, 1, 1},
    {1, 3, 3, 4, 5, 5, 5, 1, 1, 1, 1, 4, 4, 4, 4, 1},
    {1, 5, 6, 3, 6, 2, 2, 1, 2, 1, 1, 0, 1, 1, 0, 1, 4, 3, 2, 1, 1, 1},
    {2, 12, 14, 20, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 20},
    {1, 13, 31, 33, 33, 5, 5, 2, 2, 1, 1, 2, 2, 2, 2, 33},
    {1, 6, 29, 150, 150, 3, 9, 1, 1, 2, 1, 3, 4, 0, 4, 150},
    {1, 4, 40, 16, 16, 3, 3, 1, 1, 1, 2, 1, 2, 1, 2, 16},
    {1, 2, 2, 9, 9, 3, 3, 1, 1, 1, 1, 2, 2, 2, 2, 9},
};

int value(uint8_t byte, bool is_signed) { return is_signed ? int(int8_t(byte)) : int(byte); }

// Sums by the definition, [pixel][filter].
std::vector<int32_t> expected(const ConvI8Case &t, const std::vector<uint8_t> &x, const std::vector<uint8_t> &w,
                              const std::vector<uint8_t> &zeros) {
  const OptcConvShape &s = t.s;
  const int64_t od = optc_conv_od(s), oh = optc_conv_oh(s), ow = optc_conv_ow(s), c = s.c / s.groups,
                per = s.oc / s.groups;
  std::vector<int32_t> out;
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t p = 0; p < od * oh * ow; ++p)
      for (int64_t o = 0; o < s.oc; ++o) {
        const int64_t oz = p / ow / oh, oy = p / ow % oh, ox = p % ow;
        int32_t sum = 0;
        for (int64_t i = 0; i < c; ++i)
          for (int64_t tap = 0; tap < s.kd * s.kh * s.kw; ++tap) {
            const int64_t iz = oz * s.sd - s.pad_front + tap / s.kw / s.kh * s.dd,
                          iy = oy * s.sh - s.pad_top + tap / s.kw % s.kh * s.dh,
                          ix = ox * s.sw - s.pad_left + tap % s.kw * s.dw;
            if (iz < 0 || iz >= s.d || iy < 0 || iy >= s.h || ix < 0 || ix >= s.w) continue;
            const int64_t channel = o / per * c + i, pixel = (iz * s.h + iy) * s.w + ix, pixels = s.d * s.h * s.w;
            const uint8_t byte =
                x[t.nchw ? (n * s.c + channel) * pixels + pixel : (n * pixels + pixel) * s.c + channel];
            sum += (value(byte, t.is_signed) - t.zero) *
                   (value(w[(o * c + i) * s.kd * s.kh * s.kw + tap], t.weights_signed) -
                    value(zeros[o], t.weights_signed));
          }
        out.push_back(sum);
      }
  return out;
}

void check(ConvI8Case t, uint32_t seed) {
  const OptcConvShape &s = t.s;
  std::mt19937 random(seed);
  // Extremes are common.
  const auto bytes = [&](int64_t n) {
    std::vector<uint8_t> v(static_cast<size_t>(n));
    for (uint8_t &b : v) b = random() % 4 ? uint8_t(random()) : random() % 2 ? 0x80 : random() % 2 ? 0x7f : 0xff;
    return v;
  };
  const int64_t taps = s.kd * s.kh * s.kw, pixels = s.n * optc_conv_od(s) * optc_conv_oh(s) * optc_conv_ow(s);
  const auto x = bytes(s.n * s.d * s.h * s.w * s.c), w = bytes(s.oc * s.c / s.groups * taps), zeros = bytes(s.oc);
  t.zero = value(bytes(1)[0], t.is_signed);
  t.threads = seed % 3 == 1 ? 16 : 1;
  std::vector<uint8_t> packed(t.depthwise ? optc_conv_i8_depthwise_bytes(s) : optc_conv_i8_packed_bytes(s));
  const auto pack = [&](const auto *from) {
    using T = std::decay_t<decltype(*from)>;
    std::vector<T> rows(static_cast<size_t>(optc_conv_i8_inner(s) * (s.oc / s.groups)));
    if (t.depthwise)
      optc_conv_i8_depthwise_pack(s, from, reinterpret_cast<float *>(packed.data()));
    else
      optc_conv_i8_pack(s, from, packed.data(), rows.data());
  };
  if (t.weights_signed)
    pack(reinterpret_cast<const int8_t *>(w.data()));
  else
    pack(w.data());
  const std::vector<int32_t> meant = expected(t, x, w, zeros);
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_conv_i8)) {
    const size_t room = size_t(t.depthwise ? 0 : optc_gemm_i8_scratch(pixels, optc_conv_i8_inner(s), true));
    std::vector<uint8_t> scratch(room + 64, 0xa5);
    std::vector<int32_t> out(static_cast<size_t>(pixels * s.oc), -1);
    f.function(t, x.data(), zeros.data(), packed.data(), scratch.data(), out.data());
    ASSERT_EQ(out, meant) << f.isa << " c " << s.c << " to " << s.oc << ", signed " << t.is_signed << t.weights_signed
                          << ", nchw " << t.nchw << ", depthwise " << t.depthwise;
    for (size_t i = room; i < scratch.size(); ++i) ASSERT_EQ(scratch[i], 0xa5) << f.isa << ": scratch overrun";
  }
}

TEST(RuntimeConvI8, AgreesWithTheDefinition) {
  uint32_t seed = 0;
  for (const OptcConvShape &s : kShapes)
    for (int form = 0; form < 8; ++form) {
      const bool depthwise = s.groups == s.c && s.oc == s.c;
      check({s, form % 2 != 0, form / 2 % 2 != 0, form / 4 != 0, false, 0}, ++seed);
      if (depthwise && form < 4) check({s, form % 2 != 0, form / 2 % 2 != 0, false, true, 0}, ++seed);
      if (HasFatalFailure()) return;
    }
}

TEST(RuntimeConvI8, QuantizesAsDynamicQuantizeLinear) {
  for (int64_t n : {1, 3, 16, 37, 200}) {
    std::mt19937 random(static_cast<uint32_t>(n));
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(n));
    for (int form = 0; form < 4; ++form) {
      for (float &v : x) v = form == 3 ? 0 : form == 2 ? -std::fabs(normal(random)) : normal(random) + float(form);
      if (n > 4 && form == 1) x[2] = NAN;
      float low = 0, high = 0;
      for (float v : x) low = v < low ? v : low, high = v > high ? v : high;
      const float scale = high > low ? (high - low) / 255 : 1;
      const float zero = std::fmin(std::fmax(std::nearbyint(-low / scale), 0.0f), 255.0f);
      for (const auto &f : OPTC_ISA_FUNCTIONS(run_quantize)) {
        std::vector<uint8_t> out(static_cast<size_t>(n) + 8, 0xa5);
        float got_scale;
        int32_t got_zero;
        f.function(x.data(), n, out.data(), &got_scale, &got_zero);
        ASSERT_EQ(got_scale, scale) << f.isa;
        ASSERT_EQ(got_zero, int32_t(zero)) << f.isa;
        for (int64_t i = 0; i < n; ++i) {
          const float q =
              std::isnan(x[i]) ? 0 : std::fmin(std::fmax(std::nearbyint(x[i] / scale) + zero, 0.0f), 255.0f);
          ASSERT_EQ(out[i], uint8_t(q)) << f.isa << " at " << i;
        }
        for (size_t i = static_cast<size_t>(n); i < out.size(); ++i) ASSERT_EQ(out[i], 0xa5) << f.isa;
      }
    }
  }
}

}  // namespace
