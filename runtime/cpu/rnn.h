// rnn.h: one direction of an LSTM, GRU or RNN layer of float. Included inside an instruction-set namespace
// (foreach_isa.h).
//
// Two phases: rnn_inputs computes x W^T + bias for all steps as one product (tasks of optc_gemm_plan(seq * batch, gates
// * hidden, input)), then rnn_steps runs the recurrence (tasks of optc_rnn_step_tasks(batch)). `Layer` is a type with
// `static constexpr OptcRnn kRnn`. Gates are in ONNX's order: LSTM i o f c, GRU z r h.
#ifndef OPTC_CPU_RNN_H
#define OPTC_CPU_RNN_H
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/math.h"
#include "runtime/cpu/rnn_plan.h"

// Everything of a run but the weights. Strides in rows of `gates * hidden` (gate sums) and floats (y): layout 0 has
// step stride batch and batch stride 1 rows, layout 1 the other way round.
struct RnnRun {
  int64_t seq, batch;
  bool reverse;
  const int32_t *lengths;     // of each batch row, or null
  const float *sums;          // what rnn_inputs wrote
  int64_t sum_step, sum_row;  // in rows
  float *y;                   // or null
  int64_t y_step, y_row;
  const float *initial_h, *initial_c;  // [batch][hidden] or null: zeros
  int64_t initial_row;                 // floats from one batch row to the next
  float *y_h, *y_c;                    // or null
  int64_t final_row;
  const float *peepholes;  // LSTM: [i, o, f] x hidden, or null
};

OPTC_INLINE vf rnn_activation(OptcRnnActivation kind, float alpha, float beta, vf x) {
  switch (kind) {
    case OPTC_SIGMOID:
      return sigmoid(x);
    case OPTC_TANH:
      return tanh(x);
    case OPTC_RELU:
      return relu(x);
    case OPTC_AFFINE:
      return fma(splat(alpha), x, splat(beta));
    case OPTC_LEAKY_RELU:
      return select(x < vf{}, x * splat(alpha), x);
    case OPTC_THRESHOLDED_RELU:
      return select(x > splat(alpha), x, vf{});
    case OPTC_SCALED_TANH:
      return splat(alpha) * tanh(splat(beta) * x);
    case OPTC_HARD_SIGMOID:
      return min_num(max_num(fma(splat(alpha), x, splat(beta)), 0.0f), 1.0f);
    case OPTC_ELU:
      return select(x < vf{}, splat(alpha) * expm1(x), x);
    case OPTC_SOFTSIGN:
      return x / (1.0f + abs(x));
    case OPTC_SOFTPLUS:
      return softplus(x);
  }
  return x;
}
template <class Layer, int Which>
OPTC_INLINE vf rnn_apply(vf x) {
  constexpr OptcRnn r = Layer::kRnn;
  if (r.clip > 0) x = min_num(max_num(x, -r.clip), r.clip);
  return rnn_activation(r.activation[Which], r.alpha[Which], r.beta[Which], x);
}

// Where the gate sums of the inputs go, with their bias.
struct RnnSums {
  float *out;
  int64_t ld;
  const float *bias;
};
static OPTC_KERNEL void rnn_finish_sums(const void *body, const float *sums, int64_t ld, int64_t row, int64_t column,
                                        int64_t rows, int64_t columns) {
  const RnnSums &s = *static_cast<const RnnSums *>(body);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += OPTC_VW) {
      const int n = int(optc_clamp(columns - j, 0, OPTC_VW));
      store_n(s.out + (row + i) * s.ld + column + j, load(sums + i * ld + j) + load_n(s.bias + column + j, n), n);
    }
}

// Task t of the product: sums[rows][gates * hidden] of x [rows][input].
template <class Layer>
OPTC_INLINE void rnn_inputs(int64_t rows, int64_t t, const float *x, const float *packed_w, const float *bias,
                            float *sums) {
  constexpr OptcRnn r = Layer::kRnn;
  constexpr int64_t kColumns = optc_rnn_gates(r) * r.hidden;
  const RnnSums to = {sums, kColumns, bias};
  gemm(optc_gemm_plan(rows, kColumns, r.input), t, GemmRows{x, r.input}, packed_w, sums, kColumns,
       TileSink{rnn_finish_sums, &to});
}

// One cell row, OPTC_VW units (n valid): sum: x part, product: h R^T (rows of gates * hidden).
template <class Layer>
OPTC_INLINE void rnn_cell(const float *sum, const float *product, const float *candidate, const float *bias_h,
                          const float *peepholes, int64_t u, int n, float *h, float *c) {
  constexpr OptcRnn r = Layer::kRnn;
  constexpr int64_t H = r.hidden;
  const auto gate = [&](int64_t g) OPTC_LAMBDA { return load_n(sum + g * H + u, n) + load_n(product + g * H + u, n); };
  if constexpr (r.kind == OPTC_RNN) {
    store_n(h + u, rnn_apply<Layer, 0>(gate(0)), n);
  } else if constexpr (r.kind == OPTC_GRU) {
    const vf old = load_n(h + u, n), z = rnn_apply<Layer, 0>(gate(0));
    vf fresh;
    if constexpr (r.linear_before_reset) {
      const vf reset = rnn_apply<Layer, 0>(gate(1));
      fresh = fma(reset, load_n(product + 2 * H + u, n) + load_n(bias_h + u, n), load_n(sum + 2 * H + u, n));
    } else {
      fresh = load_n(sum + 2 * H + u, n) + load_n(candidate + u, n);
    }
    fresh = rnn_apply<Layer, 1>(fresh);
    store_n(h + u, fma(z, old - fresh, fresh), n);
  } else {
    const vf old = load_n(c + u, n);
    vf i = gate(0), f = gate(2), o = gate(1);
    if (peepholes) i = fma(load_n(peepholes + u, n), old, i), f = fma(load_n(peepholes + 2 * H + u, n), old, f);
    i = rnn_apply<Layer, 0>(i);
    f = r.input_forget ? splat(1.0f) - i : rnn_apply<Layer, 0>(f);
    const vf cell = fma(f, old, i * rnn_apply<Layer, 1>(gate(3)));
    if (peepholes) o = fma(load_n(peepholes + H + u, n), cell, o);
    o = rnn_apply<Layer, 0>(o);
    store_n(c + u, cell, n);
    store_n(h + u, o * rnn_apply<Layer, 2>(cell), n);
  }
}

// Batch rows [b0, b0 + rows) through all steps. scratch: rows * hidden * (gates + 3) floats. multiply(rows, operand,
// which, out): operand [rows][hidden] times the part `which` of R^T: all gates (0), or of a GRU without
// linear_before_reset z and r (0), then h (1).
template <class Layer, class Multiply>
static OPTC_KERNEL void rnn_walk(const RnnRun &run, int64_t b0, int64_t rows, const float *bias_h, float *scratch,
                                 const Multiply &multiply) {
  constexpr OptcRnn r = Layer::kRnn;
  constexpr int64_t H = r.hidden, kGates = optc_rnn_gates(r), kColumns = kGates * H;
  constexpr int64_t kFirst = optc_rnn_split(r) ? 2 * H : kColumns;  // columns of the first recurrent product
  float *h = scratch, *c = h + rows * H, *reset = c + rows * H, *product = reset + rows * H,
        *candidate = product + rows * kFirst;
  for (int64_t b = 0; b < rows; ++b)
    for (int64_t u = 0; u < H; ++u) {
      h[b * H + u] = run.initial_h ? run.initial_h[(b0 + b) * run.initial_row + u] : 0;
      c[b * H + u] = run.initial_c ? run.initial_c[(b0 + b) * run.initial_row + u] : 0;
    }
  for (int64_t step = 0; step < run.seq; ++step) {
    multiply(rows, h, 0, product);
    if constexpr (optc_rnn_split(r)) {
      for (int64_t b = 0; b < rows; ++b) {
        const int64_t length = run.lengths ? run.lengths[b0 + b] : run.seq,
                      time = run.reverse ? length - 1 - step : step;
        const float *sum =
            run.sums + (optc_clamp(time, 0, run.seq - 1) * run.sum_step + (b0 + b) * run.sum_row) * kColumns;
        for (int64_t u = 0; u < H; u += OPTC_VW) {
          const int n = int(optc_clamp(H - u, 0, OPTC_VW));
          const vf gate = rnn_apply<Layer, 0>(load_n(sum + H + u, n) + load_n(product + b * kFirst + H + u, n));
          store_n(reset + b * H + u, gate * load_n(h + b * H + u, n), n);
        }
      }
      multiply(rows, reset, 1, candidate);
    }
    for (int64_t b = 0; b < rows; ++b) {
      const int64_t length = run.lengths ? run.lengths[b0 + b] : run.seq;
      if (step >= length) {  // past the end of this row: the state stays, y is zero
        if (run.y) memset(run.y + step * run.y_step + (b0 + b) * run.y_row, 0, sizeof(float) * H);
        continue;
      }
      const int64_t time = run.reverse ? length - 1 - step : step;
      const float *sum = run.sums + (time * run.sum_step + (b0 + b) * run.sum_row) * kColumns;
      for (int64_t u = 0; u + OPTC_VW <= H; u += OPTC_VW)
        rnn_cell<Layer>(sum, product + b * kFirst, candidate + b * H, bias_h, run.peepholes, u, OPTC_VW, h + b * H,
                        c + b * H);
      if constexpr (H % OPTC_VW != 0)
        rnn_cell<Layer>(sum, product + b * kFirst, candidate + b * H, bias_h, run.peepholes, H / OPTC_VW * OPTC_VW,
                        int(H % OPTC_VW), h + b * H, c + b * H);
      if (run.y) memcpy(run.y + time * run.y_step + (b0 + b) * run.y_row, h + b * H, sizeof(float) * H);
    }
  }
  for (int64_t b = 0; b < rows; ++b) {
    if (run.y_h) memcpy(run.y_h + (b0 + b) * run.final_row, h + b * H, sizeof(float) * H);
    if (run.y_c) memcpy(run.y_c + (b0 + b) * run.final_row, c + b * H, sizeof(float) * H);
  }
}

// Task t: up to kRnnRows batch rows through all steps. scratch: optc_rnn_scratch_floats(r) floats of the running
// thread.
template <class Layer>
static OPTC_KERNEL void rnn_steps(const RnnRun &run, int64_t t, const float *packed_r, const float *bias,
                                  float *scratch) {
  constexpr OptcRnn r = Layer::kRnn;
  constexpr int64_t H = r.hidden, kFirst = (optc_rnn_split(r) ? 2 : optc_rnn_gates(r)) * H;
  const auto multiply = [&](int64_t rows, const float *operand, int which, float *out) OPTC_LAMBDA {
    gemm_store(optc_gemm_plan(rows, which ? H : kFirst, H), GemmRows{operand, H},
               which ? packed_r + optc_gemm_packed_floats(2 * H, H) : packed_r, out, which ? H : kFirst);
  };
  const int64_t b0 = t * kRnnRows;
  rnn_walk<Layer>(run, b0, optc_clamp(run.batch - b0, 0, kRnnRows), bias + optc_rnn_gates(r) * H, scratch, multiply);
}
#endif  // OPTC_CPU_RNN_H
