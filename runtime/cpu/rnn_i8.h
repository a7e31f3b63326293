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

// Task t of the product: sums[rows][4 * hidden] of the bytes x [rows][input].
template <class Layer>
OPTC_INLINE void rnn_i8_inputs(const OptcGemmI8 &plan, int64_t t, const uint8_t *x, RnnI8Scale means,
                               const RnnI8Weights &w, const float *bias, float *sums, uint8_t *scratch) {
  constexpr OptcRnn r = Layer::kRnn;
  constexpr int64_t kColumns = optc_rnn_gates(r) * r.hidden;
  const RnnI8Sums to = {sums, kColumns, means.scale, w.scale, w.scale_step, bias};
  gemm_i8(plan, t, gemm_i8_rows(x, r.input, 1, gemm_zero(means.zero)), gemm_i8_packed(w.packed, w.is_signed, w.zero),
          scratch, TileSinkOf<int32_t>{rnn_i8_finish_sums, &to}, optc_isa_dot());
}

// One direction, for rnn_walk. R, its scales and its zero points have their columns in the order of rnn_plan.h. Scratch
// of a thread: optc_rnn_quantized_scratch bytes.
template <class LayerOf>
struct RnnI8Direction {
  using Layer = LayerOf;
  static constexpr OptcRnn kRnn = Layer::kRnn;
  static constexpr bool kOneGroup = true;
  RnnRun run;
  RnnI8Weights weights;
  const float *bias_h;  // is not read: zeros

  struct Multiply {
    const RnnI8Weights &w;
    uint8_t *bytes, *scratch;
    // Every part quantizes all of h, which is little beside its product.
    OPTC_MEMBER RnnI8Scale prepare(int64_t rows, const float *operand) const {
      return rnn_i8_quantize(operand, rows * kRnn.hidden, bytes);
    }
    OPTC_MEMBER void operator()(const RnnI8Scale &means, int64_t row, int64_t rows, bool, int64_t first, int64_t blocks,
                                float *out) const {
      constexpr int64_t H = kRnn.hidden, kColumns = optc_rnn_first_columns(kRnn);
      static_assert(kColumns == kOptcGemmI8Panel, "a block is a panel");
      const int64_t column = first * kColumns, columns = blocks * kColumns;
      const RnnI8Sums to = {out, columns, means.scale, w.scale + column * w.scale_step, w.scale_step, nullptr};
      GemmZero zero = w.zero;
      if (zero.p) zero.p += column * zero.step;
      const OptcGemmI8 plan = optc_gemm_i8_plan(rows, columns, H);
      for (int64_t t = 0; t < optc_gemm_i8_tasks(plan); ++t)
        gemm_i8(plan, t, gemm_i8_rows(bytes + row * H, H, 1, gemm_zero(means.zero)),
                gemm_i8_packed(w.packed + column * optc_gemm_i8_column(H), w.is_signed, zero), scratch,
                TileSinkOf<int32_t>{rnn_i8_finish_sums, &to}, optc_isa_dot());
    }
  };
  OPTC_MEMBER Multiply multiply(int64_t rows, uint8_t *rest) const {
    return {weights, rest, rest + optc_round_up(rows * kRnn.hidden, 64)};
  }
};
#endif  // OPTC_CPU_RNN_I8_H
