// rnn_i8.h: one direction of an LSTM layer of 8-bit weights (rnn_plan.h), whose inputs and states are quantized when it
// runs. Included inside an instruction-set namespace (foreach_isa.h). Sums of products are exact integers.
#ifndef OPTC_CPU_RNN_I8_H
#define OPTC_CPU_RNN_I8_H
#include "runtime/cpu/gemm_i8.h"
#include "runtime/cpu/rnn.h"

// A weight matrix: packed, its zero point, and its scale for all columns (step 0) or one for each (step 1).
struct RnnI8Weights {
  const uint8_t *packed;
  bool is_signed;
  GemmZero zero;
  const float *scale;
  int64_t scale_step;
};
// What bytes mean: (byte - zero) * scale.
struct RnnI8Scale {
  float scale;
  int32_t zero;
};

// As DynamicQuantizeLinear: the range of x and 0 in 255 steps. NaN becomes 0 and leaves the range as it is.
static OPTC_KERNEL RnnI8Scale rnn_i8_quantize(const float *x, int64_t n, uint8_t *out) {
  vf low = {}, high = {};
  for (int64_t i = 0; i < n; i += OPTC_VW) {
    const vf v = n - i >= OPTC_VW ? load(x + i) : load_n(x + i, int(n - i));
    low = v < low ? v : low, high = v > high ? v : high;
  }
  const float least = reduce_min(low), most = reduce_max(high), scale = most > least ? (most - least) / 255 : 1;
  const float zero = min_num(max_num(round_even(-least / scale), 0.0f), 255.0f);
  for (int64_t i = 0; i < n; i += OPTC_VW) {
    const int lanes = int(optc_clamp(n - i, 0, OPTC_VW));
    const vi q = to_u8(round_even(load_n(x + i, lanes) / splat(scale)) + splat(zero));
    if (lanes == OPTC_VW)
      store_u8(out + i, q);
    else
      store_u8_n(out + i, q, lanes);
  }
  return {scale, to_i32(zero)};
}

// Where integer sums go: times the scale of the bytes and that of their column, plus a bias (null: none).
struct RnnI8Sums {
  float *out;
  int64_t ld;
  float scale;
  const float *column_scale;
  int64_t scale_step;
  const float *bias;
};
static OPTC_KERNEL void rnn_i8_finish_sums(const void *body, const int32_t *sums, int64_t ld, int64_t row,
                                           int64_t column, int64_t rows, int64_t columns) {
  const RnnI8Sums &s = *static_cast<const RnnI8Sums *>(body);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += OPTC_VW) {
      const int n = int(optc_clamp(columns - j, 0, OPTC_VW));
      const vf by = s.scale_step ? load_n(s.column_scale + column + j, n) : splat(*s.column_scale);
      vf v = to_f32(load(sums + i * ld + j)) * (splat(s.scale) * by);
      if (s.bias) v = v + load_n(s.bias + column + j, n);
      store_n(s.out + (row + i) * s.ld + column + j, v, n);
    }
}

// Task t of optc_gemm_i8_plan(rows, 4 * hidden, input): sums[rows][4 * hidden] of the bytes x [rows][input].
template <class Layer>
OPTC_INLINE void rnn_i8_inputs(int64_t rows, int64_t t, const uint8_t *x, RnnI8Scale means, const RnnI8Weights &w,
                               const float *bias, float *sums, uint8_t *scratch) {
  constexpr OptcRnn r = Layer::kRnn;
  constexpr int64_t kColumns = optc_rnn_gates(r) * r.hidden;
  const RnnI8Sums to = {sums, kColumns, means.scale, w.scale, w.scale_step, bias};
  gemm_i8(optc_gemm_i8_plan(rows, kColumns, r.input), t, gemm_i8_rows(x, r.input, 1, gemm_zero(means.zero)),
          gemm_i8_packed(w.packed, w.is_signed, w.zero), scratch, TileSinkOf<int32_t>{rnn_i8_finish_sums, &to},
          optc_isa_dot());
}

// All batch rows through all steps. scratch: optc_rnn_quantized_scratch bytes.
template <class Layer>
static OPTC_KERNEL void rnn_i8_steps(const RnnRun &run, const RnnI8Weights &weights, const float *bias,
                                     uint8_t *scratch) {
  constexpr OptcRnn r = Layer::kRnn;
  constexpr int64_t H = r.hidden, kColumns = optc_rnn_gates(r) * H;
  uint8_t *bytes = scratch + 4 * optc_rnn_quantized_state_floats(r, run.batch);
  uint8_t *rest = bytes + optc_round_up(run.batch * H, 64);
  const auto multiply = [&](int64_t rows, const float *h, int, float *out) OPTC_LAMBDA {
    const RnnI8Scale means = rnn_i8_quantize(h, rows * H, bytes);
    const RnnI8Sums to = {out, kColumns, means.scale, weights.scale, weights.scale_step, nullptr};
    const OptcGemmI8 plan = optc_gemm_i8_plan(rows, kColumns, H);
    for (int64_t t = 0; t < optc_gemm_i8_tasks(plan); ++t)
      gemm_i8(plan, t, gemm_i8_rows(bytes, H, 1, gemm_zero(means.zero)),
              gemm_i8_packed(weights.packed, weights.is_signed, weights.zero), rest,
              TileSinkOf<int32_t>{rnn_i8_finish_sums, &to}, optc_isa_dot());
  };
  rnn_walk<Layer>(run, 0, run.batch, bias + kColumns, reinterpret_cast<float *>(scratch), multiply);
}
#endif  // OPTC_CPU_RNN_I8_H
