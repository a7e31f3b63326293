// rnn_plan.h: LSTM, GRU and RNN layers of ONNX: their description and the layout of packed weights, for one direction.
// The same for every instruction set and for the compiler (C++17).
#pragma once
#include <stdint.h>

#include "runtime/cpu/gemm_i8_plan.h"

enum OptcRnnKind { OPTC_RNN, OPTC_GRU, OPTC_LSTM };
enum OptcRnnActivation {
  OPTC_SIGMOID,
  OPTC_TANH,
  OPTC_RELU,
  OPTC_AFFINE,
  OPTC_LEAKY_RELU,
  OPTC_THRESHOLDED_RELU,
  OPTC_SCALED_TANH,
  OPTC_HARD_SIGMOID,
  OPTC_ELU,
  OPTC_SOFTSIGN,
  OPTC_SOFTPLUS
};

struct OptcRnn {
  OptcRnnKind kind;
  int64_t input, hidden;
  bool linear_before_reset, input_forget;  // GRU; LSTM
  float clip;                              // 0: none
  OptcRnnActivation activation[3];         // f, g, h
  float alpha[3], beta[3];
};
constexpr int64_t optc_rnn_gates(const OptcRnn &r) { return r.kind == OPTC_LSTM ? 4 : r.kind == OPTC_GRU ? 3 : 1; }
// A GRU without linear_before_reset multiplies R_h with another matrix than R_z, R_r: they are packed apart.
constexpr bool optc_rnn_split(const OptcRnn &r) { return r.kind == OPTC_GRU && !r.linear_before_reset; }

// W [gates * hidden, input] packed: optc_gemm_packed_floats(gates * hidden, input) floats.
static inline void optc_rnn_pack_w(const OptcRnn &r, const float *w, float *out) {
  optc_pack_b(out, w, r.input, optc_rnn_gates(r) * r.hidden, 1, r.input);
}
// R [gates * hidden, hidden] packed.
constexpr int64_t optc_rnn_packed_r_floats(const OptcRnn &r) {
  return optc_rnn_split(r)
             ? optc_gemm_packed_floats(2 * r.hidden, r.hidden) + optc_gemm_packed_floats(r.hidden, r.hidden)
             : optc_gemm_packed_floats(optc_rnn_gates(r) * r.hidden, r.hidden);
}
static inline void optc_rnn_pack_r(const OptcRnn &r, const float *weights, float *out) {
  if (!optc_rnn_split(r)) return optc_pack_b(out, weights, r.hidden, optc_rnn_gates(r) * r.hidden, 1, r.hidden);
  optc_pack_b(out, weights, r.hidden, 2 * r.hidden, 1, r.hidden);
  optc_pack_b(out + optc_gemm_packed_floats(2 * r.hidden, r.hidden), weights + 2 * r.hidden * r.hidden, r.hidden,
              r.hidden, 1, r.hidden);
}
// b: [Wb, Rb] of ONNX (null: zeros). out: gates * hidden sums, then hidden floats: R_bh of a GRU with
// linear_before_reset, else zeros.
constexpr int64_t optc_rnn_packed_bias_floats(const OptcRnn &r) { return (optc_rnn_gates(r) + 1) * r.hidden; }
static inline void optc_rnn_pack_bias(const OptcRnn &r, const float *b, float *out) {
  const int64_t all = optc_rnn_gates(r) * r.hidden;
  for (int64_t i = 0; i < all + r.hidden; ++i) out[i] = 0;
  if (!b) return;
  for (int64_t i = 0; i < all; ++i) {
    const bool apart = r.kind == OPTC_GRU && r.linear_before_reset && i >= 2 * r.hidden;
    out[i] = apart ? b[i] : b[i] + b[all + i];
    if (apart) out[all + i - 2 * r.hidden] = b[all + i];
  }
}

// Tasks of the steps: runs of up to 16 batch rows, which share the weights that they read.
constexpr int64_t kRnnRows = 16;
constexpr int64_t optc_rnn_step_tasks(int64_t batch) { return optc_ceil_div(batch, kRnnRows); }
constexpr int64_t optc_rnn_scratch_floats(const OptcRnn &r) { return kRnnRows * r.hidden * (optc_rnn_gates(r) + 3); }

// An LSTM of 8-bit weights (com.microsoft.DynamicQuantizeLSTM): x of all steps and h of each step are quantized to
// uint8, each by one scale and zero point over all batch rows, which therefore go through the steps in one task. W
// [input, 4 * hidden] and R [hidden, 4 * hidden] are packed by gemm_i8_plan.h.
constexpr int64_t optc_rnn_quantized_state_floats(const OptcRnn &r, int64_t batch) {
  return batch * r.hidden * (optc_rnn_gates(r) + 3);
}
// Scratch of the steps, beside which that of the product of the inputs is smaller or the same: the states and sums, h
// as bytes, what gemm_i8 needs.
constexpr int64_t optc_rnn_quantized_scratch(const OptcRnn &r, int64_t batch) {
  return 4 * optc_rnn_quantized_state_floats(r, batch) + optc_round_up(batch * r.hidden, 64) +
         optc_gemm_i8_scratch(batch, r.hidden, true);
}
