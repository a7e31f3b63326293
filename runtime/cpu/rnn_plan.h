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
// A GRU without linear_before_reset multiplies R_h with another matrix than R_z, R_r, once r is known.
constexpr bool optc_rnn_split(const OptcRnn &r) { return r.kind == OPTC_GRU && !r.linear_before_reset; }

// W [gates * hidden, input] packed: optc_gemm_packed_floats(gates * hidden, input) floats.
static inline void optc_rnn_pack_w(const OptcRnn &r, const float *w, float *out) {
  optc_pack_b(out, w, r.input, optc_rnn_gates(r) * r.hidden, 1, r.input);
}
// R [gates * hidden, hidden] is multiplied and packed by blocks of 16 units, with the columns of all their gates beside
// one another, so that a thread has all it needs for some units; zeros beyond the last unit. A GRU without
// linear_before_reset has the blocks of z and r first, then those of h.
constexpr int64_t kOptcRnnUnits = 16;
constexpr int64_t optc_rnn_blocks(const OptcRnn &r) { return optc_ceil_div(r.hidden, kOptcRnnUnits); }
// Gates, and columns of a block, of the first product of a step.
constexpr int64_t optc_rnn_first_gates(const OptcRnn &r) { return optc_rnn_split(r) ? 2 : optc_rnn_gates(r); }
constexpr int64_t optc_rnn_first_columns(const OptcRnn &r) { return optc_rnn_first_gates(r) * kOptcRnnUnits; }
constexpr int64_t optc_rnn_packed_r_floats(const OptcRnn &r) {
  return optc_rnn_blocks(r) * optc_rnn_gates(r) * kOptcRnnUnits * r.hidden;
}
// The row of R (and of a bias) that column j of a block is, of gates that begin at `gate`; -1: beyond the last unit.
constexpr int64_t optc_rnn_row(const OptcRnn &r, int64_t block, int64_t gate, int64_t j) {
  const int64_t unit = block * kOptcRnnUnits + j % kOptcRnnUnits;
  return unit < r.hidden ? (gate + j / kOptcRnnUnits) * r.hidden + unit : -1;
}
static inline void optc_rnn_pack_r(const OptcRnn &r, const float *weights, float *out) {
  for (int64_t gate = 0, gates = optc_rnn_first_gates(r); gate < optc_rnn_gates(r); gate += gates, gates = 1)
    for (int64_t block = 0; block < optc_rnn_blocks(r); ++block)
      for (int64_t k = 0; k < r.hidden; ++k)
        for (int64_t j = 0; j < gates * kOptcRnnUnits; ++j) {
          const int64_t row = optc_rnn_row(r, block, gate, j);
          *out++ = row < 0 ? 0 : weights[row * r.hidden + k];
        }
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

// The steps: groups of batch rows, of each direction, go through them apart from one another; the units of a group are
// divided into parts, which meet after each step (team.h). All 16 rows of a group share the weights that they read; an
// LSTM of 8-bit weights has one group.
constexpr int64_t kOptcRnnRows = 16;
constexpr int64_t kOptcRnnParts = 32;
constexpr int64_t kOptcTeamPartBytes = 128;
constexpr int64_t optc_rnn_phases(const OptcRnn &r) { return optc_rnn_split(r) ? 2 : 1; }  // of a step

struct OptcRnnSteps {
  int64_t groups, rows;  // of a direction; batch rows of a group
  int64_t parts;         // of a group
};
// The parts of one group that `threads` threads are best given when there are `teams` groups: each has a thread of its
// own and work for a microsecond or two.
constexpr int64_t optc_rnn_parts(const OptcRnn &r, int64_t rows, int64_t teams, int64_t threads) {
  constexpr int64_t kPart = 20000;  // multiply-adds
  const int64_t blocks = optc_rnn_blocks(r), work = rows * optc_rnn_first_columns(r) * r.hidden * blocks;
  int64_t parts = teams > 0 ? threads / teams : 1;
  if (parts > work / kPart) parts = work / kPart;
  if (parts > kOptcRnnParts) parts = kOptcRnnParts;
  if (parts > blocks) parts = blocks;
  return parts <= 1 ? 1 : optc_ceil_div(blocks, optc_ceil_div(blocks, parts));
}
constexpr OptcRnnSteps optc_rnn_steps(const OptcRnn &r, int64_t directions, int64_t batch, bool one_group,
                                      int64_t threads) {
  const int64_t rows = one_group || batch < kOptcRnnRows ? batch : kOptcRnnRows;
  const int64_t groups = rows > 0 ? optc_ceil_div(batch, rows) : 0;
  return {groups, rows, optc_rnn_parts(r, rows, groups * directions, threads)};
}

// Scratch of a thread: the parts of its team, the states of a group (h before and after a step, c, or of a GRU what its
// second product needs), the products of up to 16 rows.
constexpr int64_t optc_rnn_state_floats(const OptcRnn &r, int64_t rows) {
  return optc_round_up(4 * rows * r.hidden, 16);
}
constexpr int64_t optc_rnn_product_floats(const OptcRnn &r) {
  return kOptcRnnRows * optc_rnn_blocks(r) * optc_rnn_first_columns(r);
}
constexpr int64_t optc_rnn_scratch(const OptcRnn &r, int64_t rows) {
  return kOptcRnnParts * kOptcTeamPartBytes + 4 * (optc_rnn_state_floats(r, rows) + optc_rnn_product_floats(r));
}

// An LSTM of 8-bit weights (com.microsoft.DynamicQuantizeLSTM): x of all steps and h of each step are quantized to
// uint8, each by one scale and zero point over all batch rows, which are therefore one group. W [input, 4 * hidden] is
// packed by gemm_i8_plan.h, and so is R [hidden, 4 * hidden], with its columns in the order of optc_rnn_row: a block is
// a panel. Scratch: behind that of optc_rnn_scratch, h as bytes and what gemm_i8 needs.
constexpr int64_t optc_rnn_quantized_scratch(const OptcRnn &r, int64_t batch) {
  return optc_rnn_scratch(r, batch) + optc_round_up(batch * r.hidden, 64) + optc_gemm_i8_scratch(batch, r.hidden, true);
}
