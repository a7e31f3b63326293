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

// The activations of direction d, `per` of them: by name, or as they stand in f. alpha and beta are listed for those
// activations that take them, all directions in a row: `taken` counts what earlier directions took. 0: one is not
// known.
typedef struct OptcLibTaken {
  size_t alpha, beta;
} OptcLibTaken;
static inline int optc_lib_activations(const OptcLibCall *call, int64_t d, int per, OptcLibActivation *f,
                                       OptcLibTaken *taken) {
  const OptcLibAttribute *names = optc_lib_attribute(call, "activations"),
                         *alphas = optc_lib_attribute(call, "activation_alpha"),
                         *betas = optc_lib_attribute(call, "activation_beta");
  if (!names || !names->count) return 1;
  for (int k = 0; k < per; ++k) {
    const size_t at = (size_t)(d * per + k);
    if (at >= names->count || !optc_lib_activation_named(names->strings[at], &f[k])) return 0;
    if (f[k].kind >= 3 && f[k].kind <= 8 && alphas && taken->alpha < alphas->count)
      f[k].alpha = alphas->floats[taken->alpha++];
    if ((f[k].kind == 3 || f[k].kind == 6 || f[k].kind == 7) && betas && taken->beta < betas->count)
      f[k].beta = betas->floats[taken->beta++];
  }
  return 1;
}

typedef struct OptcLibCell {
  int gates;  // 4: LSTM (i o f c), 3: GRU (z r h), 1: RNN
  int64_t hidden, input;
  // Of one direction; biases and peepholes may be null. w is null where the inputs come summed, their bias and that of
  // the direct gates with them. bias_h: of R_h * h of a GRU.
  const float *w, *r, *bias_w, *bias_r, *bias_h, *peephole;
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

// The rest of a step of an LSTM, once gate[4 * hidden] has the sums of the gates.
static inline void optc_lib_lstm_step(const OptcLibCell *cell, float *h, float *c, const float *gate) {
  const int64_t n = cell->hidden;
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
}

// One step of one batch entry: x[input] (or the sums of its gates), h[hidden] and c[hidden] (LSTM) are read and
// replaced; gate[gates * hidden] is scratch.
static inline void optc_lib_cell_step(const OptcLibCell *cell, const float *x, float *h, float *c, float *gate) {
  const int64_t n = cell->hidden, m = cell->input;
  const int64_t direct = cell->gates == 3 ? 2 : cell->gates;  // the gates that see the old h as it is
  for (int64_t j = 0; j < cell->gates * n; ++j) {
    gate[j] = cell->w ? optc_lib_dot(cell->w + j * m, x, m) + (cell->bias_w ? cell->bias_w[j] : 0) : x[j];
    if (j < direct * n) gate[j] += optc_lib_dot(cell->r + j * n, h, n) + (cell->bias_r ? cell->bias_r[j] : 0);
  }
  if (cell->gates == 4) {
    optc_lib_lstm_step(cell, h, c, gate);
  } else if (cell->gates == 3) {
    for (int64_t j = 0; j < 2 * n; ++j) gate[j] = optc_lib_activate(&cell->f, optc_lib_clip(gate[j], cell->clip));
    float *reset = gate + n, *hidden_gate = gate + 2 * n;
    if (cell->linear_before_reset) {
      for (int64_t j = 0; j < n; ++j)
        hidden_gate[j] +=
            reset[j] * (optc_lib_dot(cell->r + (2 * n + j) * n, h, n) + (cell->bias_h ? cell->bias_h[j] : 0));
    } else {
      for (int64_t j = 0; j < n; ++j) reset[j] *= h[j];
      for (int64_t j = 0; j < n; ++j)
        hidden_gate[j] += optc_lib_dot(cell->r + (2 * n + j) * n, reset, n) + (cell->bias_h ? cell->bias_h[j] : 0);
    }
    for (int64_t j = 0; j < n; ++j) {
      const float candidate = optc_lib_activate(&cell->g, optc_lib_clip(hidden_gate[j], cell->clip));
      h[j] = (1 - gate[j]) * candidate + gate[j] * h[j];
    }
  } else {
    for (int64_t j = 0; j < n; ++j) h[j] = optc_lib_activate(&cell->f, optc_lib_clip(gate[j], cell->clip));
  }
}

// Where a layer's operands stand among the inputs of its call; -1: it has none.
typedef struct OptcLibRnnOperands {
  int x, w, r, b, lengths, h, c, p;
} OptcLibRnnOperands;
static inline int optc_lib_rnn_layer(OptcLibCall *call, OptcLibRnnOperands at) {
  const OptcLibTensor *tx = &call->inputs[at.x], *tr = &call->inputs[at.r];
  const int64_t gates = optc_lib_int_attribute(call, "gates", 1), layout = optc_lib_int_attribute(call, "layout", 0);
  const int64_t steps = tx->dims[layout ? 1 : 0], batch = tx->dims[layout ? 0 : 1], input = tx->dims[2];
  const int64_t hidden = tr->dims[2], directions = tr->dims[0];
  const char *direction = optc_lib_string_attribute(call, "direction", "forward");
  const OptcLibTensor *lengths = at.lengths < 0 ? nullptr : optc_lib_input(call, (size_t)at.lengths);
  float *owned[7];
  const float *x = optc_lib_floats(tx, &owned[0]),
              *w = at.w < 0 ? (owned[1] = nullptr) : optc_lib_floats(&call->inputs[at.w], &owned[1]),
              *r = optc_lib_floats(tr, &owned[2]);
  const float *b = optc_lib_floats(optc_lib_input(call, (size_t)at.b), &owned[3]),
              *h0 = optc_lib_floats(optc_lib_input(call, (size_t)at.h), &owned[4]);
  const float *c0 = gates == 4 ? optc_lib_floats(optc_lib_input(call, (size_t)at.c), &owned[5]) : (owned[5] = nullptr);
  const float *p = gates == 4 ? optc_lib_floats(optc_lib_input(call, (size_t)at.p), &owned[6]) : (owned[6] = nullptr);
  float *scratch = (float *)malloc((size_t)((gates + 2) * hidden + 1) * sizeof(float));
  OptcLibTensor *y = optc_lib_output(call, 0), *yh = optc_lib_output(call, 1),
                *yc = gates == 4 ? optc_lib_output(call, 2) : nullptr;
  int status = scratch ? 0 : optc_lib_out_of_memory(call);

  const int per = gates == 4 ? 3 : gates == 3 ? 2 : 1;  // activations of a direction
  OptcLibTaken taken = {0, 0};
  for (int64_t d = 0; d < directions && !status; ++d) {
    OptcLibCell cell;
    cell.gates = (int)gates, cell.hidden = hidden, cell.input = input;
    cell.w = w ? w + d * gates * hidden * input : nullptr, cell.r = r + d * gates * hidden * hidden;
    cell.bias_w = b && w ? b + d * 2 * gates * hidden : nullptr;
    cell.bias_r = cell.bias_w ? cell.bias_w + gates * hidden : nullptr;
    cell.bias_h = cell.bias_r && gates == 3 ? cell.bias_r + 2 * hidden : b && !w ? b + d * hidden : nullptr;
    cell.peephole = p ? p + d * 3 * hidden : nullptr;
    cell.clip = optc_lib_float_attribute(call, "clip", 0);
    cell.input_forget = optc_lib_int_attribute(call, "input_forget", 0) != 0;
    cell.linear_before_reset = optc_lib_int_attribute(call, "linear_before_reset", 0) != 0;
    OptcLibActivation act[3] = {{gates == 1 ? 1 : 0, 0, 0}, {1, 0, 0}, {1, 0, 0}};
    if (!optc_lib_activations(call, d, per, act, &taken))
      status = optc_lib_fault(call, "an activation is missing or not known");
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
        const int64_t time = reverse && live ? length - 1 - t : t;
        const float *row = x + (layout ? n * steps + time : time * batch + n) * input + (w ? 0 : d * gates * hidden);
        if (live) optc_lib_cell_step(&cell, row, h, c, gate);
        if (y) {
          const int64_t to =
              layout ? ((n * steps + time) * directions + d) * hidden : ((time * directions + d) * batch + n) * hidden;
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

// inputs: X, W, R, B, sequence_lens, initial_h, initial_c, P (the last two for LSTM). Outputs: Y, Y_h, Y_c. Attributes:
// those of the operators, and `gates` (4 LSTM, 3 GRU, 1 RNN). Gates: i o f c; z r h.
static inline int optc_lib_rnn(OptcLibCall *call) {
  const OptcLibRnnOperands at = {0, 1, 2, 3, 4, 5, 6, 7};
  return optc_lib_rnn_layer(call, at);
}
// The same of a layer whose inputs are summed: X * W^T of all directions, with the biases that are added to it (a GRU
// with linear_before_reset has that of R_h * h [directions][hidden] for itself), R, that bias, initial_h, initial_c, P.
static inline int optc_lib_rnn_steps(OptcLibCall *call) {
  const OptcLibRnnOperands at = {0, -1, 1, 2, -1, 3, 4, 5};
  return optc_lib_rnn_layer(call, at);
}

// com.microsoft.DynamicQuantizeLSTM. inputs: X, W (int8 or uint8 [directions, input, 4 * hidden]), R ([directions,
// hidden, 4 * hidden]), B, sequence_lens, initial_h, initial_c, P, W_scale, W_zero_point, R_scale, R_zero_point
// ([directions] or [directions, 4 * hidden]). X (up to the longest sequence), and h of each step (all batch entries;
// one that has ended is the zeros that Y, where it is wanted, has of it), are quantized to uint8 as
// DynamicQuantizeLinear does before they are multiplied; sums of products are exact integers.
static inline float optc_lib_dynamic_quantize(const float *x, int64_t n, int32_t *out) {  // out: q - zero; the scale
  float low = 0, high = 0;
  for (int64_t i = 0; i < n; ++i) low = x[i] < low ? x[i] : low, high = x[i] > high ? x[i] : high;
  const float scale = high > low ? (high - low) / 255 : 1;
  float zero = nearbyintf(-low / scale);
  zero = zero > 0 ? zero > 255 ? 255 : zero : 0;
  for (int64_t i = 0; i < n; ++i) {
    float q = nearbyintf(x[i] / scale) + zero;
    q = q > 0 ? q > 255 ? 255 : q : 0;
    out[i] = (int32_t)q - (int32_t)zero;
  }
  return scale;
}
// A matrix [directions][rows][4 * hidden] of bytes less their zero points, transposed, and the scale of each column.
typedef struct OptcLibBytes {
  int32_t *values;
  float *scale;
} OptcLibBytes;
static inline OptcLibBytes optc_lib_bytes_transposed(const OptcLibTensor *w, const OptcLibTensor *scale,
                                                     const OptcLibTensor *zero) {
  const int64_t directions = w->dims[0], rows = w->dims[1], columns = w->dims[2];
  const int64_t per = optc_lib_count(scale) / directions, zeros = zero ? optc_lib_count(zero) / directions : 0;
  OptcLibBytes out;
  out.values = (int32_t *)malloc((size_t)(directions * rows * columns + 1) * sizeof(int32_t));
  out.scale = (float *)malloc((size_t)(directions * columns + 1) * sizeof(float));
  if (!out.values || !out.scale) return out;
  for (int64_t d = 0; d < directions; ++d)
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t z = zero ? optc_lib_int_at(zero, d * zeros + (zeros > 1 ? j : 0)) : 0;
      out.scale[d * columns + j] = (float)optc_lib_double(scale, d * per + (per > 1 ? j : 0));
      for (int64_t i = 0; i < rows; ++i)
        out.values[(d * columns + j) * rows + i] = (int32_t)(optc_lib_int_at(w, (d * rows + i) * columns + j) - z);
    }
  return out;
}
static inline float optc_lib_dot_scaled(const int32_t *a, float a_scale, const int32_t *b, float b_scale, int64_t n) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (uint32_t)(a[i] * b[i]);
  return (float)(int32_t)sum * (a_scale * b_scale);
}
static inline int optc_lib_dynamic_quantize_lstm(OptcLibCall *call) {
  const OptcLibTensor *tx = &call->inputs[0], *tr = &call->inputs[2], *lengths = optc_lib_input(call, 4);
  const int64_t steps = tx->dims[0], batch = tx->dims[1], input = tx->dims[2], directions = tr->dims[0],
                hidden = tr->dims[1];
  const char *direction = optc_lib_string_attribute(call, "direction", "forward");
  float *owned[5];
  const float *x = optc_lib_floats(tx, &owned[0]), *b = optc_lib_floats(optc_lib_input(call, 3), &owned[1]);
  const float *h0 = optc_lib_floats(optc_lib_input(call, 5), &owned[2]),
              *c0 = optc_lib_floats(optc_lib_input(call, 6), &owned[3]),
              *p = optc_lib_floats(optc_lib_input(call, 7), &owned[4]);
  const OptcLibBytes w = optc_lib_bytes_transposed(&call->inputs[1], &call->inputs[8], optc_lib_input(call, 9));
  const OptcLibBytes r = optc_lib_bytes_transposed(tr, &call->inputs[10], optc_lib_input(call, 11));
  const int64_t state = batch * hidden, columns = 4 * hidden;
  int32_t *bytes = (int32_t *)malloc((size_t)(steps * batch * input + state + 1) * sizeof(int32_t));
  float *memory = (float *)malloc((size_t)(3 * state + columns + 1) * sizeof(float));
  OptcLibTensor *y = optc_lib_output(call, 0), *yh = optc_lib_output(call, 1), *yc = optc_lib_output(call, 2);
  int status = memory && bytes && w.values && w.scale && r.values && r.scale ? 0 : optc_lib_out_of_memory(call);
  int64_t longest = lengths ? 0 : steps;
  for (int64_t n = 0; n < batch && lengths && !status; ++n) {
    const int64_t length = optc_lib_int_at(lengths, n);
    if (length < 0 || length > steps) status = optc_lib_fault(call, "a sequence length is out of range");
    longest = length > longest ? length : longest;
  }
  const float x_scale = status ? 1 : optc_lib_dynamic_quantize(x, longest * batch * input, bytes);
  int32_t *q = bytes ? bytes + steps * batch * input : nullptr;
  OptcLibTaken taken = {0, 0};
  for (int64_t d = 0; d < directions && !status; ++d) {
    float *h = memory, *c = h + state, *live_h = c + state, *gate = live_h + state;
    const float *bias = b ? b + d * 2 * columns : nullptr, *w_scale = w.scale + d * columns,
                *r_scale = r.scale + d * columns;
    OptcLibCell cell;
    memset(&cell, 0, sizeof cell);
    cell.gates = 4, cell.hidden = hidden, cell.input = input;
    cell.peephole = p ? p + d * 3 * hidden : nullptr;
    cell.clip = optc_lib_float_attribute(call, "clip", 0);
    cell.input_forget = optc_lib_int_attribute(call, "input_forget", 0) != 0;
    OptcLibActivation act[3] = {{0, 0, 0}, {1, 0, 0}, {1, 0, 0}};
    if (!optc_lib_activations(call, d, 3, act, &taken))
      status = optc_lib_fault(call, "an activation is missing or not known");
    cell.f = act[0], cell.g = act[1], cell.h = act[2];
    const int reverse = directions == 2 ? d == 1 : optc_lib_same(direction, "reverse");
    for (int64_t j = 0; j < state; ++j) h[j] = h0 ? h0[d * state + j] : 0, c[j] = c0 ? c0[d * state + j] : 0;
    for (int64_t t = 0; t < steps && !status; ++t) {
      for (int64_t n = 0; n < batch; ++n)
        for (int64_t j = 0; j < hidden; ++j)
          live_h[n * hidden + j] = !y || !lengths || t <= optc_lib_int_at(lengths, n) ? h[n * hidden + j] : 0;
      const float h_scale = optc_lib_dynamic_quantize(live_h, state, q);
      for (int64_t n = 0; n < batch; ++n) {
        const int64_t length = lengths ? optc_lib_int_at(lengths, n) : steps;
        const int live = t < length;
        const int64_t at = reverse && live ? length - 1 - t : t;
        for (int64_t j = 0; j < columns && live; ++j)
          gate[j] =
              optc_lib_dot_scaled(w.values + (d * columns + j) * input, w_scale[j], bytes + (at * batch + n) * input,
                                  x_scale, input) +
              (bias ? bias[j] + bias[columns + j] : 0) +
              optc_lib_dot_scaled(r.values + (d * columns + j) * hidden, r_scale[j], q + n * hidden, h_scale, hidden);
        if (live) optc_lib_lstm_step(&cell, h + n * hidden, c + n * hidden, gate);
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
  free(bytes);
  free(w.values);
  free(w.scale);
  free(r.values);
  free(r.scale);
  for (int k = 0; k < 5; ++k) free(owned[k]);
  return status;
}
