// runtime/cpu/rnn.h against ONNX's equations in double, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/bundle/env.h"
#include "runtime/cpu/rnn_plan.h"
#include "runtime/cpu/thread_pool.h"

using optc::parallel;

#define OPTC_RNN_LAYERS(X)                                                                           \
  X(0, {OPTC_LSTM, 10, 20, false, false, 0, {OPTC_SIGMOID, OPTC_TANH, OPTC_TANH}, {}, {}})           \
  X(1, {OPTC_LSTM,                                                                                   \
        7,                                                                                           \
        33,                                                                                          \
        false,                                                                                       \
        true,                                                                                        \
        0.7f,                                                                                        \
        {OPTC_HARD_SIGMOID, OPTC_SOFTSIGN, OPTC_SCALED_TANH},                                        \
        {0.2f, 0, 1.5f},                                                                             \
        {0.5f, 0, 0.8f}})                                                                            \
  X(2, {OPTC_GRU, 12, 16, false, false, 0, {OPTC_SIGMOID, OPTC_TANH, OPTC_TANH}, {}, {}})            \
  X(3, {OPTC_GRU, 5, 19, true, false, 0, {OPTC_SIGMOID, OPTC_TANH, OPTC_TANH}, {}, {}})              \
  X(4, {OPTC_RNN, 6, 24, false, false, 0, {OPTC_TANH, OPTC_TANH, OPTC_TANH}, {}, {}})                \
  X(5, {OPTC_GRU, 5, 8, false, false, 0.9f, {OPTC_SOFTPLUS, OPTC_ELU, OPTC_TANH}, {0, 0.7f, 0}, {}}) \
  X(6, {OPTC_RNN, 6, 9, false, false, 0, {OPTC_LEAKY_RELU, OPTC_TANH, OPTC_TANH}, {0.1f, 0, 0}, {}}) \
  X(7, {OPTC_LSTM,                                                                                   \
        3,                                                                                           \
        5,                                                                                           \
        false,                                                                                       \
        false,                                                                                       \
        0,                                                                                           \
        {OPTC_AFFINE, OPTC_THRESHOLDED_RELU, OPTC_RELU},                                             \
        {0.3f, 0.1f, 0},                                                                             \
        {0.2f, 0, 0}})                                                                               \
  X(8, {OPTC_LSTM, 6, 100, false, false, 0, {OPTC_SIGMOID, OPTC_TANH, OPTC_TANH}, {}, {}})           \
  X(9, {OPTC_GRU, 6, 90, false, false, 0, {OPTC_SIGMOID, OPTC_TANH, OPTC_TANH}, {}, {}})             \
  X(10, {OPTC_GRU, 6, 128, true, false, 0, {OPTC_SIGMOID, OPTC_TANH, OPTC_TANH}, {}, {}})            \
  X(11, {OPTC_RNN, 6, 170, false, false, 0, {OPTC_TANH, OPTC_TANH, OPTC_TANH}, {}, {}})
#define OPTC_KERNELS "tests/runtime_rnn_kernels.inc"
#include "runtime/cpu/foreach_isa.h"
#include "tests/runtime_isas.h"

namespace {

#define OPTC_LAYER(index, ...) OptcRnn __VA_ARGS__,
const OptcRnn kLayers[] = {OPTC_RNN_LAYERS(OPTC_LAYER)};

std::vector<float> random_floats(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  std::vector<float> v(n);
  for (float &x : v) x = uniform(random);
  return v;
}

double activate(const OptcRnn &r, int which, double x) {
  if (r.clip > 0) x = std::fmin(std::fmax(x, -double(r.clip)), double(r.clip));
  const double a = r.alpha[which], b = r.beta[which];
  switch (r.activation[which]) {
    case OPTC_SIGMOID:
      return 1 / (1 + std::exp(-x));
    case OPTC_TANH:
      return std::tanh(x);
    case OPTC_RELU:
      return x > 0 ? x : 0;
    case OPTC_AFFINE:
      return a * x + b;
    case OPTC_LEAKY_RELU:
      return x < 0 ? a * x : x;
    case OPTC_THRESHOLDED_RELU:
      return x > a ? x : 0;
    case OPTC_SCALED_TANH:
      return a * std::tanh(b * x);
    case OPTC_HARD_SIGMOID:
      return std::fmin(std::fmax(a * x + b, 0), 1);
    case OPTC_ELU:
      return x < 0 ? a * std::expm1(x) : x;
    case OPTC_SOFTSIGN:
      return x / (1 + std::fabs(x));
    case OPTC_SOFTPLUS:
      return std::log1p(std::exp(x));
  }
  return x;
}

// A direction's weights as rnn_plan.h packs them.
struct PackedWeights {
  PackedWeights(const OptcRnn &rnn, const std::vector<float> &weights, const std::vector<float> &recurrent,
                const std::vector<float> &biases)
      : w(optc_gemm_packed_floats(optc_rnn_gates(rnn) * rnn.hidden, rnn.input) + 64),
        r(optc_rnn_packed_r_floats(rnn) + 64),
        bias(optc_rnn_packed_bias_floats(rnn)) {
    optc_rnn_pack_w(rnn, weights.data(), w.data());
    optc_rnn_pack_r(rnn, recurrent.data(), r.data());
    optc_rnn_pack_bias(rnn, biases.data(), bias.data());
  }
  std::vector<float> w, r, bias;
};

void check(int index, int layout, int64_t seq, int64_t batch, bool reverse, bool lengths, bool initial,
           bool peepholes) {
  const OptcRnn &r = kLayers[index];
  const int64_t H = r.hidden, gates = optc_rnn_gates(r), all = gates * H;
  const auto x = random_floats(seq * batch * r.input, 1), w = random_floats(all * r.input, 2);
  auto rec = random_floats(all * H, 3);
  if (H > 64)  // else a rounding grows from step to step
    for (float &v : rec) v *= 0.2f;
  const auto b = random_floats(2 * all, 4), h0 = random_floats(batch * H, 5), c0 = random_floats(batch * H, 6),
             p = random_floats(3 * H, 7);
  std::vector<int32_t> length(batch, int32_t(seq));
  if (lengths)
    for (int64_t i = 0; i < batch; ++i) length[i] = int32_t((i * 3 + 1) % (seq + 1));
  const auto at = [&](int64_t t, int64_t i) { return layout ? i * seq + t : t * batch + i; };

  std::vector<double> y(seq * batch * H, 0), h(h0.begin(), h0.end()), c(c0.begin(), c0.end());
  if (!initial) h.assign(batch * H, 0), c.assign(batch * H, 0);
  for (int64_t i = 0; i < batch; ++i)
    for (int64_t s = 0; s < length[i]; ++s) {
      const int64_t t = reverse ? length[i] - 1 - s : s;
      double *hi = &h[i * H], *ci = &c[i * H];
      const auto input = [&](int64_t g, int64_t u) {
        double v = b[g * H + u];
        for (int64_t k = 0; k < r.input; ++k) v += double(x[at(t, i) * r.input + k]) * w[(g * H + u) * r.input + k];
        return v;
      };
      const auto recurrent = [&](int64_t g, int64_t u, const double *from) {
        double v = b[all + g * H + u];
        for (int64_t k = 0; k < H; ++k) v += from[k] * rec[(g * H + u) * H + k];
        return v;
      };
      std::vector<double> next(hi, hi + H), reset(H);
      if (r.kind == OPTC_GRU)
        for (int64_t u = 0; u < H; ++u) reset[u] = activate(r, 0, input(1, u) + recurrent(1, u, hi));
      for (int64_t u = 0; u < H; ++u) {
        if (r.kind == OPTC_RNN) {
          next[u] = activate(r, 0, input(0, u) + recurrent(0, u, hi));
        } else if (r.kind == OPTC_GRU) {
          const double z = activate(r, 0, input(0, u) + recurrent(0, u, hi));
          double fresh;
          if (r.linear_before_reset) {
            fresh = input(2, u) + reset[u] * recurrent(2, u, hi);
          } else {
            std::vector<double> rh(H);
            for (int64_t k = 0; k < H; ++k) rh[k] = reset[k] * hi[k];
            fresh = input(2, u) + recurrent(2, u, rh.data());
          }
          fresh = activate(r, 1, fresh);
          next[u] = (1 - z) * fresh + z * hi[u];
        } else {
          const double gi = activate(r, 0, input(0, u) + recurrent(0, u, hi) + (peepholes ? p[u] * ci[u] : 0));
          const double gf =
              r.input_forget
                  ? 1 - gi
                  : activate(r, 0, input(2, u) + recurrent(2, u, hi) + (peepholes ? p[2 * H + u] * ci[u] : 0));
          const double gc = activate(r, 1, input(3, u) + recurrent(3, u, hi));
          ci[u] = gf * ci[u] + gi * gc;
          const double go = activate(r, 0, input(1, u) + recurrent(1, u, hi) + (peepholes ? p[H + u] * ci[u] : 0));
          next[u] = go * activate(r, 2, ci[u]);
        }
      }
      for (int64_t u = 0; u < H; ++u) hi[u] = y[at(t, i) * H + u] = next[u];
    }

  const PackedWeights packed(r, w, rec, b);
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_rnn)) {
    const size_t room = optc_rnn_scratch(r, kOptcRnnRows) / 4, guard = 32;
    std::vector<float> sums(seq * batch * all), scratch(room + guard, std::nanf("")),
        out(seq * batch * H, std::nanf("")), yh(batch * H), yc(batch * H);
    optc::Env env;
    env.scratch = reinterpret_cast<uint8_t *>(scratch.data());
    f.function(env, 0, index, layout, seq, batch, reverse, lengths ? length.data() : nullptr, x.data(), packed.w.data(),
               packed.r.data(), packed.bias.data(), initial ? h0.data() : nullptr, initial ? c0.data() : nullptr,
               peepholes ? p.data() : nullptr, sums.data(), H, out.data(), yh.data(), yc.data());
    for (size_t i = 0; i < guard; ++i) ASSERT_TRUE(std::isnan(scratch[room + i])) << "scratch overrun";
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(out[i], y[i], 3e-6) << "layer " << index << " y at " << i << " on " << f.isa;
    for (size_t i = 0; i < yh.size(); ++i) {
      ASSERT_NEAR(yh[i], h[i], 3e-6) << "layer " << index << " h at " << i << " on " << f.isa;
      if (r.kind == OPTC_LSTM) {
        ASSERT_NEAR(yc[i], c[i], 3e-6) << "layer " << index << " c at " << i << " on " << f.isa;
      }
    }
  }
}

// One after the other, the last first.
void backwards(void *, int64_t tasks, void (*task)(void *, int64_t), void *argument) {
  while (tasks-- > 0) task(argument, tasks);
}

// Both directions of a layer give the same bits whoever computes them and in whatever order.
void check_threads(int index, int64_t seq, int64_t batch) {
  const OptcRnn &r = kLayers[index];
  const int64_t H = r.hidden, all = optc_rnn_gates(r) * H, y = seq * batch * H, stride = y + 2 * batch * H;
  const auto x = random_floats(seq * batch * r.input, 1), w = random_floats(all * r.input, 2),
             rec = random_floats(all * H, 3), b = random_floats(2 * all, 4), h0 = random_floats(batch * H, 5),
             c0 = random_floats(batch * H, 6);
  const PackedWeights packed(r, w, rec, b);
  for (const auto &f : OPTC_ISA_FUNCTIONS(run_rnn)) {
    std::vector<float> first;
    for (const int threads : {1, 2, 3, 5, 16})
      for (const bool pooled : {true, false}) {
        optc_runtime::ThreadPool pool(pooled ? threads : 1);
        const size_t room = static_cast<size_t>(optc_rnn_scratch(r, kOptcRnnRows) / 4), guard = 32;
        std::vector<float> scratch(static_cast<size_t>(threads) * (room + guard), -9.0f), sums(seq * batch * all),
            out(2 * stride, -1.0f);
        optc::Env env;
        env.parallel_for = pooled ? optc_runtime::ThreadPool::run : backwards;
        env.pool = &pool, env.threads = threads;
        env.scratch = reinterpret_cast<uint8_t *>(scratch.data()), env.scratch_stride = 4 * (room + guard);
        f.function(env, stride, index, 0, seq, batch, false, nullptr, x.data(), packed.w.data(), packed.r.data(),
                   packed.bias.data(), h0.data(), c0.data(), nullptr, sums.data(), H, out.data(), out.data() + y,
                   out.data() + y + batch * H);
        for (int t = 0; t < threads; ++t)
          for (size_t i = 0; i < guard; ++i) ASSERT_EQ(scratch[t * (room + guard) + room + i], -9.0f);
        if (first.empty()) first = out;
        ASSERT_EQ(std::memcmp(first.data(), out.data(), 4 * out.size()), 0)
            << "layer " << index << ", " << threads << " threads, " << seq << " steps of " << batch << " on " << f.isa;
      }
  }
}
TEST(RuntimeRnn, SameBitsForAnyThreads) {
  for (int index = 0; index < int(std::size(kLayers)); ++index)
    for (const auto &[seq, batch] : {std::pair<int64_t, int64_t>{40, 1}, {0, 1}, {7, 4}, {3, 35}}) {
      check_threads(index, seq, batch);
      if (HasFatalFailure()) return;
    }
  // That there was something to divide.
  EXPECT_EQ(optc_rnn_steps(kLayers[8], 2, 4, false, 16).parts, 7);
  EXPECT_EQ(optc_rnn_steps(kLayers[9], 2, 4, false, 16).parts, 3);
  EXPECT_EQ(optc_rnn_steps(kLayers[8], 2, 1, false, 16).parts, 2);
  EXPECT_EQ(optc_rnn_steps(kLayers[8], 2, 35, false, 16).parts, 2);
  EXPECT_EQ(optc_rnn_steps(kLayers[8], 2, 35, false, 4).parts, 1);
}

TEST(RuntimeRnn, AgreesWithTheEquations) {
  for (int index = 0; index < int(std::size(kLayers)); ++index)
    for (int layout : {0, 1})
      for (bool reverse : {false, true})
        for (bool lengths : {false, true}) {
          check(index, layout, 6, 3, reverse, lengths, reverse, index == 0 || index == 7);
          check(index, layout, 3, 35, reverse, lengths, !reverse, false);
          check(index, layout, 5, 1, reverse, lengths, true, index == 1);
          if (HasFatalFailure()) return;
        }
}

}  // namespace
