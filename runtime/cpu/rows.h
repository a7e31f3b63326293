// rows.h: reductions along a contiguous row, for LayerNorm, Softmax and their like. Included inside an instruction-set
// namespace (foreach_isa.h).
//
// `f(i, n)` gives the vector of elements i .. i + n - 1 of the row (n = OPTC_VW, a constant, but at the end; lanes
// beyond n may hold anything). Four accumulators take vectors in turn, the tail goes to the first, then (0 + 1) + (2 +
// 3) and reduce_sum: the order depends on n alone.
#ifndef OPTC_CPU_ROWS_H
#define OPTC_CPU_ROWS_H
#include "runtime/cpu/math.h"

template <class F>
OPTC_INLINE float row_sum(int64_t n, const F &f) {
  vf s[4] = {};
  int64_t i = 0;
  for (; i + 4 * OPTC_VW <= n; i += 4 * OPTC_VW) {
    OPTC_UNROLL for (int u = 0; u < 4; ++u) s[u] += f(i + u * OPTC_VW, OPTC_VW);
  }
  for (; i + OPTC_VW <= n; i += OPTC_VW) s[0] += f(i, OPTC_VW);
  if (i < n) s[0] += select(first_lanes(int(n - i)), f(i, int(n - i)), vf{});
  return reduce_sum((s[0] + s[1]) + (s[2] + s[3]));
}

// -inf for an empty row; NaN propagates.
template <class F>
OPTC_INLINE float row_max(int64_t n, const F &f) {
  const vf least = splat(-__builtin_inff());
  vf m[4] = {least, least, least, least};
  int64_t i = 0;
  for (; i + 4 * OPTC_VW <= n; i += 4 * OPTC_VW) {
    OPTC_UNROLL for (int u = 0; u < 4; ++u) m[u] = max(m[u], f(i + u * OPTC_VW, OPTC_VW));
  }
  for (; i + OPTC_VW <= n; i += OPTC_VW) m[0] = max(m[0], f(i, OPTC_VW));
  if (i < n) m[0] = max(m[0], select(first_lanes(int(n - i)), f(i, int(n - i)), least));
  return reduce_max(max(max(m[0], m[1]), max(m[2], m[3])));
}

// f(i, n) for every vector of the row, for its effect (a store).
template <class F>
OPTC_INLINE void row_each(int64_t n, const F &f) {
  int64_t i = 0;
  for (; i + OPTC_VW <= n; i += OPTC_VW) f(i, OPTC_VW);
  if (i < n) f(i, int(n - i));
}

// Mean and biased variance about it (two passes over f: the row should lie in L1).
struct RowMoments {
  float mean, variance;
};
template <class F>
OPTC_INLINE RowMoments row_moments(int64_t n, const F &f) {
  const float mean = row_sum(n, f) / float(n);
  const vf m = splat(mean);
  const float squares = row_sum(n, [&](int64_t i, int lanes) OPTC_LAMBDA {
    const vf d = f(i, lanes) - m;
    return d * d;
  });
  return {mean, squares / float(n)};
}

// out = softmax of the row that f gives; out may be the row itself. An all -inf row gives NaN, as exp(x - max) / sum
// does.
template <class F>
OPTC_INLINE void row_softmax(int64_t n, const F &f, float *out) {
  const vf most = splat(row_max(n, f));
  const float sum = row_sum(n, [&](int64_t i, int lanes) OPTC_LAMBDA {
    const vf e = exp(f(i, lanes) - most);
    store_n(out + i, e, lanes);
    return e;
  });
  const vf inverse = splat(1.0f / sum);
  row_each(n, [&](int64_t i, int lanes) OPTC_LAMBDA { store_n(out + i, load_n(out + i, lanes) * inverse, lanes); });
}
#endif  // OPTC_CPU_ROWS_H
