// rnn.h: one direction of an LSTM, GRU or RNN layer of float. Included inside an instruction-set namespace
// (foreach_isa.h).
//
// Two steps: rnn_inputs computes x W^T + bias for all steps as one product (tasks of optc_gemm_plan(seq * batch, gates
// * hidden, input)), then rnn_walk runs the recurrence of all directions. `Layer` is a type with `static constexpr
// OptcRnn kRnn`. Gates are in ONNX's order: LSTM i o f c, GRU z r h.
#ifndef OPTC_CPU_RNN_H
#define OPTC_CPU_RNN_H
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/math.h"
#include "runtime/cpu/rnn_plan.h"
#include "runtime/cpu/team.h"

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
OPTC_INLINE void rnn_inputs(const OptcGemm &plan, int64_t t, const float *x, const float *packed_w, const float *bias,
                            float *sums) {
  constexpr OptcRnn r = Layer::kRnn;
  constexpr int64_t kColumns = optc_rnn_gates(r) * r.hidden;
  const RnnSums to = {sums, kColumns, bias};
  gemm(plan, t, GemmRows{x, r.input}, packed_w, sums, kColumns, TileSink{rnn_finish_sums, &to});
}

// What a group of batch rows has between steps: [rows][hidden] each.
struct RnnState {
  float *h[2];    // before a step and after it, in turn
  float *c;       // LSTM
  float *update;  // a split GRU: z, of its first product
  float *reset;   // r * h
};
OPTC_INLINE RnnState rnn_state(float *memory, int64_t floats) {
  return {{memory, memory + floats}, memory + 2 * floats, memory + 2 * floats, memory + 3 * floats};
}

// Units [u, u + n) of one cell row, n <= OPTC_VW: sum: the x part; product: the h part, whose gates are kOptcRnnUnits
// apart. Of a split GRU the second part of a step, whose product is that of h alone.
template <class Layer>
OPTC_INLINE void rnn_cell(const float *sum, const float *product, const float *bias_h, const float *peepholes,
                          int64_t u, int n, const float *before, float *h, float *c, const float *update) {
  constexpr OptcRnn r = Layer::kRnn;
  constexpr int64_t H = r.hidden;
  const auto gate = [&](int64_t g)
                        OPTC_LAMBDA { return load_n(sum + g * H + u, n) + load(product + g * kOptcRnnUnits); };
  if constexpr (r.kind == OPTC_RNN) {
    store_n(h + u, rnn_apply<Layer, 0>(gate(0)), n);
  } else if constexpr (r.kind == OPTC_GRU) {
    const vf old = load_n(before + u, n);
    vf z, fresh;
    if constexpr (optc_rnn_split(r)) {
      z = load_n(update + u, n);
      fresh = load_n(sum + 2 * H + u, n) + load(product);
    } else {
      z = rnn_apply<Layer, 0>(gate(0));
      const vf reset = rnn_apply<Layer, 0>(gate(1));
      fresh = fma(reset, load(product + 2 * kOptcRnnUnits) + load_n(bias_h + u, n), load_n(sum + 2 * H + u, n));
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
// Of a split GRU the first part of a step.
template <class Layer>
OPTC_INLINE void rnn_split_cell(const float *sum, const float *product, int64_t u, int n, const float *before,
                                float *update, float *reset) {
  constexpr int64_t H = Layer::kRnn.hidden;
  store_n(update + u, rnn_apply<Layer, 0>(load_n(sum + u, n) + load(product)), n);
  const vf gate = rnn_apply<Layer, 0>(load_n(sum + H + u, n) + load(product + kOptcRnnUnits));
  store_n(reset + u, gate * load_n(before + u, n), n);
}

// Batch rows [b0, b0 + rows) of one direction and the blocks of units [first, last) in one phase (of two a step of a
// split GRU, else of one). product: what a thread has for optc_rnn_product_floats(r). multiply(row, rows, first,
// blocks, out): those rows of the operand of multiply.prepare times so many blocks of R.
template <class Direction, class Multiply>
static OPTC_KERNEL void rnn_phase(const Direction &d, const RnnState &s, int64_t b0, int64_t rows, int64_t phase,
                                  int64_t first, int64_t last, float *product, const Multiply &multiply) {
  using Layer = typename Direction::Layer;
  const RnnRun &run = d.run;
  constexpr OptcRnn r = Layer::kRnn;
  constexpr int64_t H = r.hidden, kColumns = optc_rnn_gates(r) * H;
  constexpr bool kSplit = optc_rnn_split(r);
  const int64_t step = phase / optc_rnn_phases(r);
  const bool second = kSplit && phase % 2 == 1;
  const float *before = s.h[step % 2];
  float *after = s.h[(step + 1) % 2];
  const int64_t columns = second ? kOptcRnnUnits : optc_rnn_first_columns(r), ld = (last - first) * columns;
  const int64_t u0 = first * kOptcRnnUnits, u1 = optc_clamp(last * kOptcRnnUnits, 0, H);
  const auto operand = multiply.prepare(rows, second ? s.reset : before);
  for (int64_t r0 = 0; r0 < rows; r0 += kOptcRnnRows) {
    const int64_t count = optc_clamp(rows - r0, 0, kOptcRnnRows);
    multiply(operand, r0, count, second, first, last - first, product);
    for (int64_t b = r0; b < r0 + count; ++b) {
      const int64_t length = run.lengths ? run.lengths[b0 + b] : run.seq;
      const float *old = before + b * H;
      float *h = after + b * H;
      if (step >= length) {  // past the end of this row: the state stays, y is zero
        if (kSplit && !second) continue;
        memcpy(h + u0, old + u0, sizeof(float) * (size_t)(u1 - u0));
        if (run.y) memset(run.y + step * run.y_step + (b0 + b) * run.y_row + u0, 0, sizeof(float) * (size_t)(u1 - u0));
        continue;
      }
      const int64_t time = run.reverse ? length - 1 - step : step;
      const float *sum = run.sums + (time * run.sum_step + (b0 + b) * run.sum_row) * kColumns;
      const float *of_row = product + (b - r0) * ld;
      for (int64_t u = u0; u < u1; u += OPTC_VW) {
        const int n = H % OPTC_VW == 0 ? OPTC_VW : int(optc_clamp(H - u, 0, OPTC_VW));
        const float *of_units = of_row + (u - u0) / kOptcRnnUnits * columns + u % kOptcRnnUnits;
        if (kSplit && !second)
          rnn_split_cell<Layer>(sum, of_units, u, n, old, s.update + b * H, s.reset + b * H);
        else
          rnn_cell<Layer>(sum, of_units, d.bias_h, run.peepholes, u, n, old, h, s.c + b * H, s.update + b * H);
      }
      if (run.y && !(kSplit && !second))
        memcpy(run.y + time * run.y_step + (b0 + b) * run.y_row + u0, h + u0, sizeof(float) * (size_t)(u1 - u0));
    }
  }
}

// One direction: R as rnn_plan.h packs it.
template <class LayerOf>
struct RnnDirection {
  using Layer = LayerOf;
  static constexpr OptcRnn kRnn = Layer::kRnn;
  static constexpr bool kOneGroup = false;
  RnnRun run;
  const float *packed;
  const float *bias_h;  // what optc_rnn_pack_bias puts behind the sums' bias

  struct Multiply {
    const float *packed;
    OPTC_MEMBER const float *prepare(int64_t, const float *operand) const { return operand; }
    OPTC_MEMBER void operator()(const float *operand, int64_t row, int64_t rows, bool second, int64_t first,
                                int64_t blocks, float *out) const {
      constexpr int64_t H = kRnn.hidden, kFirst = optc_rnn_first_columns(kRnn);
      const int64_t columns = second ? kOptcRnnUnits : kFirst;
      const float *b = packed + (second ? optc_rnn_blocks(kRnn) * kFirst * H : 0) + first * columns * H;
      OptcGemm plan = optc_gemm_plan(rows, columns, H);
      plan.prefetch = true;  // the next block lies behind
      for (int64_t block = 0; block < blocks; ++block)
        gemm_store(plan, GemmRows{operand + row * H, H}, b + block * columns * H, out + block * columns,
                   blocks * columns);
    }
  };
  // rest: what of a thread's scratch lies behind optc_rnn_scratch.
  OPTC_MEMBER Multiply multiply(int64_t, uint8_t *) const { return {packed}; }
};

// The states of batch rows [b0, b0 + rows) before the first step, and where they go after the last.
OPTC_INLINE void rnn_begin(const RnnRun &run, const RnnState &s, int64_t b0, int64_t rows, int64_t H) {
  for (int64_t b = 0; b < rows; ++b)
    for (int64_t u = 0; u < H; ++u) {
      s.h[0][b * H + u] = run.initial_h ? run.initial_h[(b0 + b) * run.initial_row + u] : 0;
      s.c[b * H + u] = run.initial_c ? run.initial_c[(b0 + b) * run.initial_row + u] : 0;
    }
}
OPTC_INLINE void rnn_end(const RnnRun &run, const RnnState &s, int64_t b0, int64_t rows, int64_t H) {
  for (int64_t b = 0; b < rows; ++b) {
    const size_t bytes = sizeof(float) * (size_t)H;
    if (run.y_h) memcpy(run.y_h + (b0 + b) * run.final_row, s.h[run.seq % 2] + b * H, bytes);
    if (run.y_c) memcpy(run.y_c + (b0 + b) * run.final_row, s.c + b * H, bytes);
  }
}

// All steps of all directions (RnnDirection, or types with its members; of one shape). Scratch of a thread:
// optc_rnn_scratch(r, 16) bytes, or what a direction says. The result does not depend on the threads: a unit's sums are
// those of its column, whoever computes it.
template <class Env, class First, class... Others>
static OPTC_KERNEL void rnn_walk(const Env &env, const First &direction, const Others &...others) {
  constexpr OptcRnn r = First::kRnn;
  constexpr int64_t H = r.hidden, kDirections = 1 + int64_t(sizeof...(Others));
  const int64_t batch = direction.run.batch, blocks = optc_rnn_blocks(r);
  const OptcRnnSteps steps = optc_rnn_steps(r, kDirections, batch, First::kOneGroup, env.threads);
  const int64_t teams = kDirections * steps.groups, parts = steps.parts;
  const int64_t state_floats = optc_rnn_state_floats(r, steps.rows);
  const auto with = [&](int64_t team, const auto &f) {
    int64_t at = team / steps.groups;
    const auto when = [&](const auto &d) {
      if (at-- == 0) f(d, team % steps.groups * steps.rows);
    };
    when(direction);
    (when(others), ...);
  };
  const auto rows_from = [&](int64_t b0) { return optc_clamp(batch - b0, 0, steps.rows); };
  const auto state_of = [&](uint8_t *memory) {
    return rnn_state((float *)(memory + kOptcRnnParts * kOptcTeamPartBytes), steps.rows * H);
  };
  // The memory of a team is that of its first thread.
  const auto memory_of = [&](int64_t team) { return env.scratch + (size_t)(team * parts) * env.scratch_stride; };
  for (int64_t team = 0; team < teams && parts > 1; ++team)
    with(team, [&](const auto &d, int64_t b0) {
      memset(memory_of(team), 0, (size_t)(parts * kOptcTeamPartBytes));
      rnn_begin(d.run, state_of(memory_of(team)), b0, rows_from(b0), H);
    });
  parallel(env, teams * parts, 1, [&](int64_t begin, int64_t end, uint8_t *scratch) {
    for (int64_t t = begin; t < end; ++t)
      with(t / parts, [&](const auto &d, int64_t b0) {
        uint8_t *memory = parts > 1 ? memory_of(t / parts) : scratch;
        const RnnState s = state_of(memory);
        const int64_t rows = rows_from(b0), phases = d.run.seq * optc_rnn_phases(r);
        float *product = (float *)(scratch + kOptcRnnParts * kOptcTeamPartBytes) + state_floats;
        const auto multiply = d.multiply(rows, (uint8_t *)(product + optc_rnn_product_floats(r)));
        if (parts == 1) {
          rnn_begin(d.run, s, b0, rows, H);
          for (int64_t phase = 0; phase < phases; ++phase)
            rnn_phase(d, s, b0, rows, phase, 0, blocks, product, multiply);
          rnn_end(d.run, s, b0, rows, H);
          return;
        }
        team_run((TeamPart *)memory, parts, phases, t % parts, [&](int64_t part, int64_t phase) {
          rnn_phase(d, s, b0, rows, phase, blocks * part / parts, blocks * (part + 1) / parts, product, multiply);
        });
      });
  });
  for (int64_t team = 0; team < teams && parts > 1; ++team)
    with(team, [&](const auto &d, int64_t b0) { rnn_end(d.run, state_of(memory_of(team)), b0, rows_from(b0), H); });
}
#endif  // OPTC_CPU_RNN_H
