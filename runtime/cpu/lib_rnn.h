// lib_rnn.h: LSTM, GRU and RNN of ONNX (and com.microsoft's DynamicQuantizeLSTM): all attributes, both directions,
// sequence_lens, layout. One function for the three: operands and attributes are those of the operators.
#pragma once
#include <math.h>

#include "lib_util.h"

// f(x; alpha, beta) of ONNX's activations, by name; names compare without case.
static inline int optc_lib_same_name(const char *a, const char *b) {
  for (; *a && *b; ++a, ++b)
    if ((*a | 32) != (*b | 32)) return 0;
  return *a == *b;
}
typedef struct OptcLibActivation {
  int kind;
  float alpha, beta;
} OptcLibActivation;
static inline float optc_lib_activate(const OptcLibActivation *f, float x) {
  switch (f->kind) {
    case 0:
      return x >= 0 ? 1 / (1 + expf(-x)) : expf(x) / (1 + expf(x));  // Sigmoid
    case 1:
      return tanhf(x);  // Tanh
    case 2:
      return x > 0 ? x : 0;  // Relu
    case 3:
      return f->alpha * x + f->beta;  // Affine
    case 4:
      return x >= 0 ? x : f->alpha * x;  // LeakyRelu
    case 5:
      return x > f->alpha ? x : 0;  // ThresholdedRelu
    case 6:
      return f->alpha * tanhf(f->beta * x);  // ScaledTanh
    case 7: {
      const float y = f->alpha * x + f->beta;
      return y < 0 ? 0 : y > 1 ? 1 : y;
    }  // HardSigmoid
    case 8:
      return x >= 0 ? x : f->alpha * (expf(x) - 1);  // Elu
    case 9:
      return x / (1 + fabsf(x));  // Softsign
    case 10:
      return (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));  // Softplus
    default:
      return x;
  }
}
static inline int optc_lib_activation_named(const char *name, OptcLibActivation *f) {
  static const char *const names[] = {"Sigmoid",    "Tanh",        "Relu", "Affine",   "LeakyRelu", "ThresholdedRelu",
                                      "ScaledTanh", "HardSigmoid", "Elu",  "Softsign", "Softplus"};
  static const float alpha[] = {0, 0, 0, 1, 0.01f, 1, 1, 0.2f, 1, 0, 0}, beta[] = {0, 0, 0, 0, 0, 0, 1, 0.5f, 0, 0, 0};
  for (int k = 0; k < 11; ++k)
    if (optc_lib_same_name(name, names[k])) {
      f->kind = k, f->alpha = alpha[k], f->beta = beta[k];
      return 1;
    }
  return 0;
}

// An operand as f32 (shared when it is f32 already); `owned` tells what to free.
static inline const float *optc_lib_floats(const OptcLibTensor *t, float **owned) {
  *owned = nullptr;
  if (!t) return nullptr;
  if (t->type == 1) return (const float *)t->data;
  const int64_t n = optc_lib_count(t);
  *owned = (float *)malloc((size_t)(n + 1) * sizeof(float));
  for (int64_t i = 0; *owned && i < n; ++i) (*owned)[i] = (float)optc_lib_double(t, i);
  return *owned;
}

typedef struct OptcLibCell {
  int gates;  // 4: LSTM (i o f c), 3: GRU (z r h), 1: RNN
  int64_t hidden, input;
  const float *w, *r, *bias_w, *bias_r, *peephole;  // of one direction; biases and peepholes may be null
  OptcLibActivation f, g, h;
  float clip;  // 0: none
  int input_forget, linear_before_reset;
} OptcLibCell;

static inline float optc_lib_clip(float x, float clip) {
  return clip > 0 ? (x < -clip ? -clip : x > clip ? clip : x) : x;
}
static inline float optc_lib_dot(const float *a, const float *b, int64_t n) {
  float s[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) s[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) s[i & 7] += a[i] * b[i];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// One step of one batch entry: x[input], h[hidden] and c[hidden] (LSTM) are read and replaced; gate[gates * hidden] is
// scratch.
static inline void optc_lib_cell_step(const OptcLibCell *cell, const float *x, float *h, float *c, float *gate) {
  const int64_t n = cell->hidden, m = cell->input;
  const int64_t direct = cell->gates == 3 ? 2 : cell->gates;  // the gates that see the old h as it is
  for (int64_t j = 0; j < cell->gates * n; ++j) {
    gate[j] = optc_lib_dot(cell->w + j * m, x, m) + (cell->bias_w ? cell->bias_w[j] : 0);
    if (j < direct * n) gate[j] += optc_lib_dot(cell->r + j * n, h, n) + (cell->bias_r ? cell->bias_r[j] : 0);
  }
  if (cell->gates == 4) {
    const float *p = cell->peephole;  // i, o, f
    for (int64_t j = 0; j < n; ++j) {
      float i = gate[j], o = gate[n + j], f = gate[2 * n + j];
      if (p) i += p[j] * c[j], f += p[2 * n + j] * c[j];
      i = optc_lib_activate(&cell->f, optc_lib_clip(i, cell->clip));
      f = cell->input_forget ? 1 - i : optc_lib_activate(&cell->f, optc_lib_clip(f, cell->clip));
      c[j] = f * c[j] + i * optc_lib_activate(&cell->g, optc_lib_clip(gate[3 * n + j], cell->clip));
      if (p) o += p[n + j] * c[j];
      o = optc_lib_activate(&cell->f, optc_lib_clip(o, cell->clip));
      h[j] = o * optc_lib_activate(&cell->h, c[j]);
    }
  } else if (cell->gates == 3) {
    for (int64_t j = 0; j < 2 * n; ++j) gate[j] = optc_lib_activate(&cell->f, optc_lib_clip(gate[j], cell->clip));
    float *reset = gate + n, *hidden_gate = gate + 2 * n;
    if (cell->linear_before_reset) {
      for (int64_t j = 0; j < n; ++j)
        hidden_gate[j] +=
            reset[j] * (optc_lib_dot(cell->r + (2 * n + j) * n, h, n) + (cell->bias_r ? cell->bias_r[2 * n + j] : 0));
    } else {
      for (int64_t j = 0; j < n; ++j) reset[j] *= h[j];
      for (int64_t j = 0; j < n; ++j)
        hidden_gate[j] +=
            optc_lib_dot(cell->r + (2 * n + j) * n, reset, n) + (cell->bias_r ? cell->bias_r[2 * n + j] : 0);
    }
    for (int64_t j = 0; j < n; ++j) {
      const float candidate = optc_lib_activate(&cell->g, optc_lib_clip(hidden_gate[j], cell->clip));
      h[j] = (1 - gate[j]) * candidate + gate[j] * h[j];
    }
  } else {
    for (int64_t j = 0; j < n; ++j) h[j] = optc_lib_activate(&cell->f, optc_lib_clip(gate[j], cell->clip));
  }
}

// inputs: X, W, R, B, sequence_lens, initial_h, initial_c, P (the last two for LSTM). Outputs: Y, Y_h, Y_c. Attributes:
// those of the operators, and `gates` (4 LSTM, 3 GRU, 1 RNN). Gates: i o f c; z r h.
static inline int optc_lib_rnn(OptcLibCall *call) {
  const OptcLibTensor *tx = &call->inputs[0], *tr = &call->inputs[2];
  const int64_t gates = optc_lib_int_attribute(call, "gates", 1), layout = optc_lib_int_attribute(call, "layout", 0);
  const int64_t steps = tx->dims[layout ? 1 : 0], batch = tx->dims[layout ? 0 : 1], input = tx->dims[2];
  const int64_t hidden = tr->dims[2], directions = tr->dims[0];
  const char *direction = optc_lib_string_attribute(call, "direction", "forward");
  const OptcLibTensor *lengths = optc_lib_input(call, 4);
  float *owned[7];
  const float *x = optc_lib_floats(tx, &owned[0]), *w = optc_lib_floats(&call->inputs[1], &owned[1]),
              *r = optc_lib_floats(tr, &owned[2]);
  const float *b = optc_lib_floats(optc_lib_input(call, 3), &owned[3]),
              *h0 = optc_lib_floats(optc_lib_input(call, 5), &owned[4]);
  const float *c0 = gates == 4 ? optc_lib_floats(optc_lib_input(call, 6), &owned[5]) : (owned[5] = nullptr);
  const float *p = gates == 4 ? optc_lib_floats(optc_lib_input(call, 7), &owned[6]) : (owned[6] = nullptr);
  float *scratch = (float *)malloc((size_t)((gates + 2) * hidden + 1) * sizeof(float));
  OptcLibTensor *y = optc_lib_output(call, 0), *yh = optc_lib_output(call, 1),
                *yc = gates == 4 ? optc_lib_output(call, 2) : nullptr;
  int status = scratch ? 0 : optc_lib_out_of_memory(call);

  const int per = gates == 4 ? 3 : gates == 3 ? 2 : 1;  // activations of a direction
  const OptcLibAttribute *names = optc_lib_attribute(call, "activations"),
                         *alphas = optc_lib_attribute(call, "activation_alpha"),
                         *betas = optc_lib_attribute(call, "activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  for (int64_t d = 0; d < directions && !status; ++d) {
    OptcLibCell cell;
    cell.gates = (int)gates, cell.hidden = hidden, cell.input = input;
    cell.w = w + d * gates * hidden * input, cell.r = r + d * gates * hidden * hidden;
    cell.bias_w = b ? b + d * 2 * gates * hidden : nullptr, cell.bias_r = b ? cell.bias_w + gates * hidden : nullptr;
    cell.peephole = p ? p + d * 3 * hidden : nullptr;
    cell.clip = optc_lib_float_attribute(call, "clip", 0);
    cell.input_forget = optc_lib_int_attribute(call, "input_forget", 0) != 0;
    cell.linear_before_reset = optc_lib_int_attribute(call, "linear_before_reset", 0) != 0;
    OptcLibActivation act[3] = {{gates == 1 ? 1 : 0, 0, 0}, {1, 0, 0}, {1, 0, 0}};
    for (int k = 0; k < per && names && names->count; ++k) {
      const size_t at = (size_t)(d * per + k);
      if (at >= names->count || !optc_lib_activation_named(names->strings[at], &act[k])) {
        status = optc_lib_fault(call, "an activation is missing or not known");
        break;
      }
      // alpha and beta are listed for those activations that take them
      if (act[k].kind >= 3 && act[k].kind <= 8 && alphas && next_alpha < alphas->count)
        act[k].alpha = alphas->floats[next_alpha++];
      if ((act[k].kind == 3 || act[k].kind == 6 || act[k].kind == 7) && betas && next_beta < betas->count)
        act[k].beta = betas->floats[next_beta++];
    }
    cell.f = act[0], cell.g = act[1], cell.h = act[2];
    const int reverse = directions == 2 ? d == 1 : optc_lib_same(direction, "reverse");
    for (int64_t n = 0; n < batch && !status; ++n) {
      float *h = scratch, *c = scratch + hidden, *gate = scratch + 2 * hidden;
      const int64_t state = layout ? (n * directions + d) * hidden : (d * batch + n) * hidden;
      for (int64_t j = 0; j < hidden; ++j) h[j] = h0 ? h0[state + j] : 0, c[j] = c0 ? c0[state + j] : 0;
      int64_t length = lengths ? optc_lib_int_at(lengths, n) : steps;
      if (length < 0 || length > steps) status = optc_lib_fault(call, "a sequence length is out of range"), length = 0;
      for (int64_t t = 0; t < steps; ++t) {
        const int live = t < length;
        const int64_t at = reverse && live ? length - 1 - t : t;
        if (live) optc_lib_cell_step(&cell, x + (layout ? n * steps + at : at * batch + n) * input, h, c, gate);
        if (y) {
          const int64_t to =
              layout ? ((n * steps + at) * directions + d) * hidden : ((at * directions + d) * batch + n) * hidden;
          for (int64_t j = 0; j < hidden; ++j) optc_lib_set(y, to + j, live ? h[j] : 0);
        }
      }
      for (int64_t j = 0; j < hidden; ++j) {
        if (yh) optc_lib_set(yh, state + j, h[j]);
        if (yc) optc_lib_set(yc, state + j, c[j]);
      }
    }
  }
  free(scratch);
  for (int k = 0; k < 7; ++k) free(owned[k]);
  return status;
}

// com.microsoft.DynamicQuantizeLSTM. inputs: X, W (int8 or uint8 [directions, input, 4 * hidden]), R ([directions,
// hidden, 4 * hidden]), B, sequence_lens, initial_h, initial_c, P, W_scale, W_zero_point, R_scale, R_zero_point
// ([directions] or [directions, 4 * hidden]). X of all steps, and h of each step (all batch entries), are quantized to
// uint8 as DynamicQuantizeLinear does before they are multiplied.
static inline void optc_lib_dynamic_quantize(const float *x, int64_t n, float *out) {  // out: (q - zero) * scale
  float low = 0, high = 0;
  for (int64_t i = 0; i < n; ++i) low = x[i] < low ? x[i] : low, high = x[i] > high ? x[i] : high;
  const float scale = high > low ? (high - low) / 255 : 1;
  float zero = nearbyintf(-low / scale);
  zero = zero < 0 ? 0 : zero > 255 ? 255 : zero;
  for (int64_t i = 0; i < n; ++i) {
    float q = nearbyintf(x[i] / scale) + zero;
    q = q < 0 ? 0 : q > 255 ? 255 : q;
    out[i] = (q - zero) * scale;
  }
}
static inline float *optc_lib_dequantized_transposed(const OptcLibTensor *w, const OptcLibTensor *scale,
                                                     const OptcLibTensor *zero) {
  const int64_t directions = w->dims[0], rows = w->dims[1], columns = w->dims[2];
  float *out = (float *)malloc((size_t)(directions * rows * columns + 1) * sizeof(float));
  if (!out) return nullptr;
  const int64_t per = optc_lib_count(scale) / directions, zeros = zero ? optc_lib_count(zero) / directions : 0;
  for (int64_t d = 0; d < directions; ++d)
    for (int64_t j = 0; j < columns; ++j) {
      const double s = optc_lib_double(scale, d * per + (per > 1 ? j : 0)),
                   z = zero ? optc_lib_double(zero, d * zeros + (zeros > 1 ? j : 0)) : 0;
      for (int64_t i = 0; i < rows; ++i)
        out[(d * columns + j) * rows + i] = (float)((optc_lib_double(w, (d * rows + i) * columns + j) - z) * s);
    }
  return out;
}
static inline int optc_lib_dynamic_quantize_lstm(OptcLibCall *call) {
  const OptcLibTensor *tx = &call->inputs[0], *tr = &call->inputs[2], *lengths = optc_lib_input(call, 4);
  const int64_t steps = tx->dims[0], batch = tx->dims[1], input = tx->dims[2], directions = tr->dims[0],
                hidden = tr->dims[1];
  const char *direction = optc_lib_string_attribute(call, "direction", "forward");
  const OptcLibAttribute *names = optc_lib_attribute(call, "activations");
  float *owned[5];
  const float *x = optc_lib_floats(tx, &owned[0]), *b = optc_lib_floats(optc_lib_input(call, 3), &owned[1]);
  const float *h0 = optc_lib_floats(optc_lib_input(call, 5), &owned[2]),
              *c0 = optc_lib_floats(optc_lib_input(call, 6), &owned[3]),
              *p = optc_lib_floats(optc_lib_input(call, 7), &owned[4]);
  float *w = optc_lib_dequantized_transposed(&call->inputs[1], &call->inputs[8], optc_lib_input(call, 9));
  float *r = optc_lib_dequantized_transposed(tr, &call->inputs[10], optc_lib_input(call, 11));
  const int64_t state = batch * hidden;
  float *memory = (float *)malloc((size_t)(steps * batch * input + 3 * state + 4 * hidden + 1) * sizeof(float));
  OptcLibTensor *y = optc_lib_output(call, 0), *yh = optc_lib_output(call, 1), *yc = optc_lib_output(call, 2);
  int status = memory && w && r ? 0 : optc_lib_out_of_memory(call);
  if (!status) optc_lib_dynamic_quantize(x, steps * batch * input, memory);
  for (int64_t d = 0; d < directions && !status; ++d) {
    float *h = memory + steps * batch * input, *q = h + state, *c = q + state, *gate = c + state;
    OptcLibCell cell;
    cell.gates = 4, cell.hidden = hidden, cell.input = input;
    cell.w = w + d * 4 * hidden * input, cell.r = r + d * 4 * hidden * hidden;
    cell.bias_w = b ? b + d * 8 * hidden : nullptr, cell.bias_r = b ? cell.bias_w + 4 * hidden : nullptr;
    cell.peephole = p ? p + d * 3 * hidden : nullptr;
    cell.clip = optc_lib_float_attribute(call, "clip", 0);
    cell.input_forget = optc_lib_int_attribute(call, "input_forget", 0) != 0;
    cell.linear_before_reset = 0;
    OptcLibActivation act[3] = {{0, 0, 0}, {1, 0, 0}, {1, 0, 0}};
    for (int k = 0; k < 3 && names && names->count; ++k)
      if ((size_t)(d * 3 + k) >= names->count || !optc_lib_activation_named(names->strings[d * 3 + k], &act[k]))
        status = optc_lib_fault(call, "an activation is missing or not known");
    cell.f = act[0], cell.g = act[1], cell.h = act[2];
    const int reverse = directions == 2 ? d == 1 : optc_lib_same(direction, "reverse");
    for (int64_t j = 0; j < state; ++j) h[j] = h0 ? h0[d * state + j] : 0, c[j] = c0 ? c0[d * state + j] : 0;
    for (int64_t t = 0; t < steps && !status; ++t) {
      optc_lib_dynamic_quantize(h, state, q);
      for (int64_t n = 0; n < batch; ++n) {
        int64_t length = lengths ? optc_lib_int_at(lengths, n) : steps;
        length = length < 0 ? 0 : length > steps ? steps : length;
        const int live = t < length;
        const int64_t at = reverse && live ? length - 1 - t : t;
        if (live) {
          optc_lib_cell_step(&cell, memory + (at * batch + n) * input, q + n * hidden, c + n * hidden, gate);
          memcpy(h + n * hidden, q + n * hidden, (size_t)hidden * sizeof(float));
        }
        if (y)
          for (int64_t j = 0; j < hidden; ++j)
            optc_lib_set(y, ((at * directions + d) * batch + n) * hidden + j, live ? h[n * hidden + j] : 0);
      }
    }
    for (int64_t j = 0; j < state && !status; ++j) {
      if (yh) optc_lib_set(yh, d * state + j, h[j]);
      if (yc) optc_lib_set(yc, d * state + j, c[j]);
    }
  }
  free(memory);
  free(w);
  free(r);
  for (int k = 0; k < 5; ++k) free(owned[k]);
  return status;
}
