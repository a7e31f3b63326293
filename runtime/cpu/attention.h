// attention.h: softmax(scale * q k^T + mask) v without storing the scores of a whole head. Included inside an
// instruction-set namespace (foreach_isa.h).
//
// A block of up to 64 queries is kept transposed, one query a lane: scores are [key][query], so that keys and values
// are read as they lie, each element broadcast once, and the softmax runs down the rows without a horizontal reduction.
// Up to 1024 keys the softmax is exact (maximum, then exponentials); beyond, blocks of 1024 keys are joined by
// rescaling (online softmax, Milakov and Gimelshein 2018). One to four queries (decoding) go row by row. A query that
// sees no key gives NaN, as a softmax of -inf alone does, or zeros where the plan says so; without keys at all it gives
// zeros. Exponentials are summed in an order that depends on the shape alone.
#ifndef OPTC_CPU_ATTENTION_H
#define OPTC_CPU_ATTENTION_H
#include "runtime/cpu/attention_plan.h"
#include "runtime/cpu/math.h"

// Rows of d floats by strides in floats: p[b * batch + h * head + s * row + i].
struct AttentionRows {
  const float *p;
  int64_t batch, head, row;
};
// Either of them or neither: `bias` is added to the scores, where `allowed` is 0 the key is left out. Strides may be 0
// (broadcast).
struct AttentionMask {
  const float *bias;
  const uint8_t *allowed;
  int64_t batch, head, query, key;
};
struct AttentionOutput {
  float *p;
  int64_t batch, head, row;
};

// c[i][0, NV * OPTC_VW) (+)= sum_k a[i * a_row + k * a_k] * b[k][...]; b and c have rows of kAttentionQueries floats.
template <int MR, int NV>
static OPTC_KERNEL void attention_tile(const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t k, float *c,
                                       bool add) {
  vf acc[MR][NV];
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] =
      add ? load(c + i * kAttentionQueries + j * OPTC_VW) : vf{};
  for (; k > 0; --k) {
    vf v[NV];
    OPTC_UNROLL for (int j = 0; j < NV; ++j) v[j] = load(b + j * OPTC_VW);
    OPTC_UNROLL for (int i = 0; i < MR; ++i) {
      const vf s = splat(a[i * a_row]);
      OPTC_UNROLL for (int j = 0; j < NV; ++j) acc[i][j] = fma(s, v[j], acc[i][j]);
    }
    a += a_k;
    b += kAttentionQueries;
  }
  OPTC_UNROLL for (int i = 0; i < MR; ++i) OPTC_UNROLL for (int j = 0; j < NV; ++j)
      store(c + i * kAttentionQueries + j * OPTC_VW, acc[i][j]);
}

// The product of all `rows` rows of a, `columns` of b (a multiple of 16).
template <int NV>
OPTC_INLINE void attention_columns(const float *a, int64_t a_row, int64_t a_k, int64_t rows, const float *b, int64_t k,
                                   float *c, bool add) {
  constexpr int MR = OPTC_VW == 4 && !OPTC_NEON ? 3 : NV == 4 || OPTC_VW < 16 ? 6 : 8;
  int64_t i = 0;
  for (; i + MR <= rows; i += MR)
    attention_tile<MR, NV>(a + i * a_row, a_row, a_k, b, k, c + i * kAttentionQueries, add);
  if (MR > 4) {
    for (; i + 4 <= rows; i += 4)
      attention_tile<4, NV>(a + i * a_row, a_row, a_k, b, k, c + i * kAttentionQueries, add);
  }
  for (; i < rows; ++i) attention_tile<1, NV>(a + i * a_row, a_row, a_k, b, k, c + i * kAttentionQueries, add);
}
OPTC_INLINE void attention_product(const float *a, int64_t a_row, int64_t a_k, int64_t rows, const float *b, int64_t k,
                                   int64_t columns, float *c, bool add) {
#if OPTC_VW == 16
  if (columns == 64)
    attention_columns<4>(a, a_row, a_k, rows, b, k, c, add);
  else if (columns == 48)
    attention_columns<3>(a, a_row, a_k, rows, b, k, c, add);
  else
    attention_columns<2>(a, a_row, a_k, rows, b, k, c, add);
#else
  for (int64_t j = 0; j < columns; j += 16) attention_columns<16 / OPTC_VW>(a, a_row, a_k, rows, b + j, k, c + j, add);
#endif
}

// Soft cap, mask and causality on scores [keys][columns] of keys from key0 on, queries from query0 on; n queries are
// valid.
OPTC_INLINE void attention_mask_scores(const OptcAttention &a, const AttentionMask &mask, int64_t mask_at,
                                       float *scores, int64_t key0, int64_t keys, int64_t query0, int64_t n,
                                       int64_t columns) {
  const vf out = splat(-__builtin_inff());
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t q = 0; q < columns; q += OPTC_VW) {
      float *at = scores + j * kAttentionQueries + q;
      const int lanes = int(optc_clamp(n - q, 0, OPTC_VW));
      vf s = load(at);
      if (a.softcap != 0) s = splat(a.softcap) * tanh(s / splat(a.softcap));
      if (mask.bias) {
        const float *m = mask.bias + mask_at + (query0 + q) * mask.query + (key0 + j) * mask.key;
        s += mask.query == 0 ? splat(*m) : load_strided(m, mask.query, lanes);
      }
      if (mask.allowed) {
        const uint8_t *m = mask.allowed + mask_at + (query0 + q) * mask.query + (key0 + j) * mask.key;
        vi allowed = {};
        if (mask.query == 0)
          allowed = splat_i(*m);
        else {
          OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) allowed[i] = i < lanes ? m[i * mask.query] : 0;
        }
        s = select(allowed != vi{}, s, out);
      }
      if (a.causal) {  // visible when key0 + j - query0 - q - offset <= lane
        const vm hidden = first_lanes(int(optc_clamp(key0 + j - query0 - q - a.causal_offset, 0, OPTC_VW)));
        s = select(hidden, out, s);
      }
      store(at, s);
    }
  }
}

// The result of a query whose probabilities are all 0: values of inf and NaN still make NaN of it. Without keys it is
// 0.
static OPTC_KERNEL void attention_of_nothing(const OptcAttention &a, const float *values, int64_t row, float *out) {
  for (int64_t i = 0; i < a.dv; i += OPTC_VW) {
    const int n = int(optc_clamp(a.dv - i, 0, OPTC_VW));
    vf acc = {};
    for (int64_t j = 0; j < a.keys; ++j) acc = fma(vf{}, load_n(values + j * row + i, n), acc);
    store_n(out + i, acc, n);
  }
}

// Writes the result of a query whose weights add up to `total` where it is not their mean of the values; false
// elsewhere. 0: no key is seen; NaN: a score is NaN or infinite.
OPTC_INLINE bool attention_without_probabilities(const OptcAttention &a, float total, const float *values, int64_t row,
                                                 float *out) {
  if (a.keys == 0 || (a.masked_rows == OPTC_ROWS_ZERO_PROBABILITIES && !(total > 0))) {
    attention_of_nothing(a, values, row, out);
    return true;
  }
  if (a.masked_rows != OPTC_ROWS_ZERO_RESULT || total != 0) return false;
  for (int64_t i = 0; i < a.dv; ++i) out[i] = 0;
  return true;
}

// One block of queries [q0, q1) of a head.
static OPTC_KERNEL void attention_block(const OptcAttention &a, int64_t b, int64_t h, int64_t q0, int64_t q1,
                                        const AttentionRows &query, const AttentionRows &key,
                                        const AttentionRows &value, const AttentionMask &mask, float *scratch,
                                        const AttentionOutput &out) {
  constexpr int64_t kLd = kAttentionQueries;
  const int64_t n = q1 - q0, columns = OPTC_VW == 16 && n <= 32 ? 32 : optc_round_up(n, 16);
  const int64_t kv = h / (a.heads / a.kv_heads);
  float *qt = (float *)(((uintptr_t)scratch + 63) / 64 * 64), *ot = qt + a.d * kLd, *scores = ot + a.dv * kLd;
  const float *qp = query.p + b * query.batch + h * query.head + q0 * query.row;
  for (int64_t i = 0; i < a.d; ++i) {
    for (int64_t q = 0; q < n; ++q) qt[i * kLd + q] = qp[q * query.row + i] * a.scale;
    for (int64_t q = n; q < columns; ++q) qt[i * kLd + q] = 0;
  }
  const float *kp = key.p + b * key.batch + kv * key.head, *vp = value.p + b * value.batch + kv * value.head;
  // No query of the block sees a key from `seen` on.
  const int64_t seen = a.causal ? optc_clamp(q1 + a.causal_offset, 0, a.keys) : a.keys;
  const int64_t mask_at = b * mask.batch + h * mask.head;
  float most[kLd], total[kLd];
  for (int64_t q = 0; q < kLd; ++q) most[q] = -__builtin_inff(), total[q] = 0;
  memset(ot, 0, sizeof(float) * a.dv * kLd);

  for (int64_t j0 = 0; j0 < seen; j0 += kAttentionKeys) {
    const int64_t keys = optc_clamp(seen - j0, 0, kAttentionKeys);
    attention_product(kp + j0 * key.row, key.row, 1, keys, qt, a.d, columns, scores, false);
    const bool masked =
        mask.bias || mask.allowed || a.softcap != 0 || (a.causal && j0 + keys > q0 + a.causal_offset + 1);
    if (masked) attention_mask_scores(a, mask, mask_at, scores, j0, keys, q0, n, columns);
    for (int64_t q = 0; q < columns; q += OPTC_VW) {
      vf m[4];
      OPTC_UNROLL for (int u = 0; u < 4; ++u) m[u] = load(most + q);
      int64_t j = 0;
      for (; j + 4 <= keys; j += 4) {
        OPTC_UNROLL for (int u = 0; u < 4; ++u) m[u] = max_num(load(scores + (j + u) * kLd + q), m[u]);
      }
      for (; j < keys; ++j) m[0] = max_num(load(scores + j * kLd + q), m[0]);
      const vf greatest = max_num(max_num(m[0], m[1]), max_num(m[2], m[3]));
      // Nothing seen yet: any finite number does, exp(-inf - 0) = 0.
      const vf base = select(greatest == splat(-__builtin_inff()), vf{}, greatest);
      vf sum[4] = {};
      for (j = 0; j + 4 <= keys; j += 4) {
        OPTC_UNROLL for (int u = 0; u < 4; ++u) {
          float *at = scores + (j + u) * kLd + q;
          const vf e = exp(load(at) - base);
          store(at, e);
          sum[u] += e;
        }
      }
      for (; j < keys; ++j) {
        float *at = scores + j * kLd + q;
        const vf e = exp(load(at) - base);
        store(at, e);
        sum[0] += e;
      }
      const vf block = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      if (j0 == 0) {
        store(total + q, block);
      } else {  // what the earlier blocks gave, relative to the new maximum
        const vf factor = exp(load(most + q) - base);
        store(total + q, fma(load(total + q), factor, block));
        for (int64_t i = 0; i < a.dv; ++i) store(ot + i * kLd + q, load(ot + i * kLd + q) * factor);
      }
      store(most + q, greatest);
    }
    // By 64 keys, so that their values and probabilities stay in L1 while the rows of the result take turns.
    for (int64_t j = 0; j < keys; j += 64)
      attention_product(vp + (j0 + j) * value.row, 1, value.row, a.dv, scores + j * kLd, optc_clamp(keys - j, 0, 64),
                        columns, ot, j0 + j > 0);
  }
  float *op = out.p + b * out.batch + h * out.head + q0 * out.row;
  for (int64_t q = 0; q < n; ++q) {
    if (attention_without_probabilities(a, total[q], vp, value.row, op + q * out.row)) continue;
    const float inverse = 1 / total[q];  // 0 * inf is the NaN of a row without keys
    for (int64_t i = 0; i < a.dv; ++i) op[q * out.row + i] = ot[i * kLd + q] * inverse;
  }
}

// One query: scores by dot products along d, then the weighted sum of the values along dv.
static OPTC_KERNEL void attention_row(const OptcAttention &a, int64_t b, int64_t h, int64_t q,
                                      const AttentionRows &query, const AttentionRows &key, const AttentionRows &value,
                                      const AttentionMask &mask, float *scores, const AttentionOutput &out) {
  const int64_t kv = h / (a.heads / a.kv_heads),
                keys = a.causal ? optc_clamp(q + a.causal_offset + 1, 0, a.keys) : a.keys;
  const float *qp = query.p + b * query.batch + h * query.head + q * query.row,
              *kp = key.p + b * key.batch + kv * key.head;
  const float *vp = value.p + b * value.batch + kv * value.head;
  for (int64_t j = 0; j < keys; j += 4) {
    const int64_t rows = keys - j < 4 ? keys - j : 4;
    const float *k[4];
    OPTC_UNROLL for (int u = 0; u < 4; ++u) k[u] = kp + (j + (u < rows ? u : 0)) * key.row;
    vf acc[4] = {};
    int64_t i = 0;
    for (; i + OPTC_VW <= a.d; i += OPTC_VW) {
      const vf v = load(qp + i);
      OPTC_UNROLL for (int u = 0; u < 4; ++u) acc[u] = fma(v, load(k[u] + i), acc[u]);
    }
    if (i < a.d) {
      const vf v = load_n(qp + i, int(a.d - i));
      OPTC_UNROLL for (int u = 0; u < 4; ++u) acc[u] = fma(v, load_n(k[u] + i, int(a.d - i)), acc[u]);
    }
    for (int64_t u = 0; u < rows; ++u) scores[j + u] = reduce_sum(acc[u]) * a.scale;
  }
  float most = -__builtin_inff();
  const int64_t mask_at = b * mask.batch + h * mask.head + q * mask.query;
  for (int64_t j = 0; j < keys; ++j) {
    float s = scores[j];
    if (a.softcap != 0) s = a.softcap * tanh(s / a.softcap);
    if (mask.bias) s += mask.bias[mask_at + j * mask.key];
    if (mask.allowed && mask.allowed[mask_at + j * mask.key] == 0) s = -__builtin_inff();
    scores[j] = s;
    most = max_num(s, most);
  }
  const vf base = splat(most == -__builtin_inff() ? 0 : most);
  vf sums = {};
  int64_t j = 0;
  for (; j + OPTC_VW <= keys; j += OPTC_VW) {
    const vf e = exp(load(scores + j) - base);
    store(scores + j, e);
    sums += e;
  }
  float total = reduce_sum(sums);
  for (; j < keys; ++j) total += scores[j] = exp(scores[j] - base[0]);
  float *op = out.p + b * out.batch + h * out.head + q * out.row;
  if (attention_without_probabilities(a, total, vp, value.row, op)) return;
  const vf inverse = splat(1 / total);
  constexpr int NV = OPTC_VW == 16 ? 4 : 8;
  int64_t i = 0;
  for (; i + NV * OPTC_VW <= a.dv; i += NV * OPTC_VW) {
    vf acc[2][NV] = {};
    for (j = 0; j + 2 <= keys; j += 2) {
      OPTC_UNROLL for (int u = 0; u < 2; ++u) {
        const vf p = splat(scores[j + u]);
        OPTC_UNROLL for (int x = 0; x < NV; ++x) acc[u][x] =
            fma(p, load(vp + (j + u) * value.row + i + x * OPTC_VW), acc[u][x]);
      }
    }
    if (j < keys) {
      OPTC_UNROLL for (int x = 0; x < NV; ++x) acc[0][x] =
          fma(splat(scores[j]), load(vp + j * value.row + i + x * OPTC_VW), acc[0][x]);
    }
    OPTC_UNROLL for (int x = 0; x < NV; ++x) store(op + i + x * OPTC_VW, (acc[0][x] + acc[1][x]) * inverse);
  }
  for (; i < a.dv; i += OPTC_VW) {
    const int n = int(optc_clamp(a.dv - i, 0, OPTC_VW));
    vf acc = {};
    for (j = 0; j < keys; ++j) acc = fma(splat(scores[j]), load_n(vp + j * value.row + i, n), acc);
    store_n(op + i, acc * inverse, n);
  }
}

// Task t of optc_attention_tasks(a). scratch: optc_attention_scratch_floats(a) floats of the running thread.
OPTC_INLINE void attention(const OptcAttention &a, int64_t t, const AttentionRows &query, const AttentionRows &key,
                           const AttentionRows &value, const AttentionMask &mask, float *scratch,
                           const AttentionOutput &out) {
  const int64_t blocks = optc_attention_blocks(a), block = t % blocks, h = t / blocks % a.heads,
                b = t / blocks / a.heads;
  if (a.queries <= kAttentionFewQueries) {
    for (int64_t q = 0; q < a.queries; ++q) attention_row(a, b, h, q, query, key, value, mask, scratch, out);
    return;
  }
  const int64_t vectors = optc_ceil_div(a.queries, 16), end = vectors * (block + 1) / blocks * 16;
  attention_block(a, b, h, vectors * block / blocks * 16, end < a.queries ? end : a.queries, query, key, value, mask,
                  scratch, out);
}
#endif  // OPTC_CPU_ATTENTION_H
