// lanes.h: loops that run OPTC_VW elements at a time, for emitted kernels. Included inside an instruction-set namespace
// (runtime/cpu/foreach_isa.h), once; it includes the vectors and their mathematics.
//
// A body is written once, as a generic function of the first element and the number of lanes `n`: Full for whole
// vectors (a constant, so loads and stores are plain ones), Part for the rest of a row.
#include "runtime/cpu/math.h"
#include "runtime/cpu/simd.h"

#undef OPTC_TASK
#if defined(__clang__) && defined(OPTC_TARGET)
#define OPTC_TASK __attribute__((noinline, target(OPTC_TARGET)))  // clang's attribute pragma does not reach lambdas
#else
#define OPTC_TASK
#endif

template <int Slot>
struct Full {
  static constexpr int slot = Slot;
};
struct Part {
  static constexpr int slot = 0;
  int lanes;
};
// A whole vector in a loop's interior (lanes_bordered).
struct Interior : Full<0> {};

// What lies in memory and the lanes that it is in; f32 and i64, which have forms of their own, stand apart.
#define OPTC_LANE_TYPES(X) \
  X(, double, vd)          \
  X(, int32_t, vi)         \
  X(_f16, uint16_t, vf)    \
  X(_bf16, uint16_t, vf)   \
  X(_i8, int8_t, vi) X(_u8, uint8_t, vi) X(_i16, int16_t, vi) X(_u16, uint16_t, vi) X(_bool, uint8_t, vm)
#define OPTC_LANE_ACCESS(suffix, type, vector)                                                    \
  template <int S>                                                                                \
  OPTC_INLINE vector load##suffix(const type *p, Full<S>) {                                       \
    return load##suffix(p);                                                                       \
  }                                                                                               \
  OPTC_INLINE vector load##suffix(const type *p, Part n) { return load##suffix##_n(p, n.lanes); } \
  template <int S>                                                                                \
  OPTC_INLINE void store##suffix(type *p, vector v, Full<S>) {                                    \
    store##suffix(p, v);                                                                          \
  }                                                                                               \
  OPTC_INLINE void store##suffix(type *p, vector v, Part n) { store##suffix##_n(p, v, n.lanes); }
OPTC_LANE_ACCESS(, float, vf)
OPTC_LANE_ACCESS(, int64_t, vl)
OPTC_LANE_TYPES(OPTC_LANE_ACCESS)
#undef OPTC_LANE_ACCESS
#define OPTC_LANE_STRIDES(type, vector)                                                                               \
  template <int S>                                                                                                    \
  OPTC_INLINE vector load_strided(const type *p, int64_t stride, Full<S>) {                                           \
    return load_strided(p, stride);                                                                                   \
  }                                                                                                                   \
  OPTC_INLINE vector load_strided(const type *p, int64_t stride, Part n) { return load_strided(p, stride, n.lanes); } \
  template <int S>                                                                                                    \
  OPTC_INLINE void store_strided(type *p, int64_t stride, vector v, Full<S>) {                                        \
    store_strided(p, stride, v);                                                                                      \
  }                                                                                                                   \
  OPTC_INLINE void store_strided(type *p, int64_t stride, vector v, Part n) { store_strided(p, stride, v, n.lanes); }
OPTC_LANE_STRIDES(float, vf)
OPTC_LANE_STRIDES(double, vd)
#undef OPTC_LANE_STRIDES

template <int S>
OPTC_INLINE vf gather(const float *p, vi at, Full<S>) {
  return gather(p, at);
}
OPTC_INLINE vf gather(const float *p, vi at, Part n) { return gather(p, at, n.lanes); }
// An index that is held between `low` and `high`, which lie inside: the lanes are p[at], p[at + Step] and so on, each
// index no less than `low` and no more than `high`. In a loop's interior no lane is held back.
constexpr int64_t kUnbounded = INT64_MAX / 4;
OPTC_INLINE int64_t hold(int64_t at, int64_t low, int64_t high) { return at < low ? low : at > high ? high : at; }
#define OPTC_HELD_ACCESS(suffix, type, vector)                                                          \
  template <int Step>                                                                                   \
  OPTC_INLINE vector load_held##suffix(const type *p, int64_t at, int64_t, int64_t, Interior n) {       \
    return load##suffix(p + at, n);                                                                     \
  }                                                                                                     \
  template <int Step>                                                                                   \
  OPTC_INLINE vector load_held##suffix(const type *p, int64_t at, int64_t low, int64_t high, Part n) {  \
    if (at >= low && at + n.lanes - 1 <= high) return load##suffix(p + at, n);                          \
    type t[OPTC_VW] = {};                                                                               \
    for (int i = 0; i < n.lanes; ++i) t[i] = p[hold(at + i, low, high)];                                \
    return load##suffix(t, Full<0>{});                                                                  \
  }                                                                                                     \
  template <int Step, int S>                                                                            \
  OPTC_INLINE vector load_held##suffix(const type *p, int64_t at, int64_t low, int64_t high, Full<S>) { \
    return load_held##suffix<Step>(p, at, low, high, Part{OPTC_VW});                                    \
  }
OPTC_LANE_TYPES(OPTC_HELD_ACCESS)
#undef OPTC_HELD_ACCESS
#undef OPTC_LANE_TYPES
template <int Step>
OPTC_INLINE vf load_held(const float *p, int64_t at, int64_t, int64_t, Interior n) {
  return Step == 1 ? load(p + at, n) : load_strided(p + at, Step, n);
}
template <int Step>
OPTC_INLINE vf load_held(const float *p, int64_t at, int64_t low, int64_t high, Part n) {
  if (at >= low && at + (n.lanes - 1) * Step <= high)
    return Step == 1 ? load(p + at, n) : load_strided(p + at, Step, n);
#if OPTC_VW >= 8
  if (Step == 1) {  // no access to lanes that lie outside
    const int from = (int)hold(low - at, 0, n.lanes), to = (int)hold(high - at + 1, 0, n.lanes);
    const vf first = from > 0 ? splat(p[low]) : vf{}, last = to < n.lanes ? splat(p[high]) : vf{};
    return select(first_lanes(from), first, select(first_lanes(to), load_between(p + at, from, to), last));
  }
#endif
  vf r = {};
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) {
    if (i < n.lanes) r[i] = p[hold(at + i * Step, low, high)];
  }
  return r;
}
template <int Step, int S>
OPTC_INLINE vf load_held(const float *p, int64_t at, int64_t low, int64_t high, Full<S>) {
  return load_held<Step>(p, at, low, high, Part{OPTC_VW});
}
// The same where an index inside gives the element, if there is `any`, and each other one `fill`.
template <int Step>
OPTC_INLINE vf load_inside(const float *p, int64_t at, int64_t, int64_t, bool any, vf fill, Interior n) {
  if (!any) return fill;
  return Step == 1 ? load(p + at, n) : load_strided(p + at, Step, n);
}
template <int Step>
OPTC_INLINE vf load_inside(const float *p, int64_t at, int64_t low, int64_t high, bool any, vf fill, Part n) {
  if (!any) return fill;
  if (at >= low && at + (n.lanes - 1) * Step <= high)
    return Step == 1 ? load(p + at, n) : load_strided(p + at, Step, n);
#if OPTC_VW >= 8
  if (Step <= 2) {  // no access to elements that lie outside
    const auto part = [&](int64_t first, int elements) OPTC_LAMBDA {
      return load_between(p + first, (int)hold(low - first, 0, OPTC_VW), (int)hold(high - first + 1, 0, elements));
    };
    const int last = (n.lanes - 1) * Step + 1, half = OPTC_VW - 1;
    vf r = part(at, last < OPTC_VW ? last : OPTC_VW);
    if (Step == 2) r = even_lanes(r, part(at + half, last > half ? last - half : 0));
    const int from = (int)hold((low - at + Step - 1) / Step, 0, n.lanes),
              to = high < at ? 0 : (int)hold((high - at) / Step + 1, 0, n.lanes);
    return select(first_lanes(to) & ~first_lanes(from), r, fill);
  }
#endif
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) {
    const int64_t k = at + i * Step;
    if (i < n.lanes && k >= low && k <= high) fill[i] = p[k];
  }
  return fill;
}
template <int Step, int S>
OPTC_INLINE vf load_inside(const float *p, int64_t at, int64_t low, int64_t high, bool any, vf fill, Full<S>) {
  return load_inside<Step>(p, at, low, high, any, fill, Part{OPTC_VW});
}
// By any index near the border, a constant step in the interior.
template <int Step>
OPTC_INLINE vf gather_bordered(const float *p, vi, int64_t inside, Interior n) {
  return Step == 1 ? load(p + inside, n) : load_strided(p + inside, Step, n);
}
template <int Step>
OPTC_INLINE vf gather_bordered(const float *p, vi at, int64_t, Part n) {
  return gather(p, at, n);
}
// What lanes hold near a loop's border, and what is known of it in the interior.
OPTC_INLINE vi by_place(Interior, vi, vi inside) { return inside; }
OPTC_INLINE vi by_place(Part, vi other, vi) { return other; }

// As checked() of env.h, of the lanes of `value` that there are. extent: below 2^31.
OPTC_INLINE vi checked_all(const optc::Env &env, vi value, int64_t extent, int32_t place, vm lanes) {
  const vm outside = ((value < vi{}) | (value >= splat_i((int32_t)extent))) & lanes;
  if (__builtin_expect(any(outside), 0)) __atomic_store_n(env.fault, place, __ATOMIC_RELAXED);
  return select(outside | ~lanes, vi{}, value);
}
template <int S>
OPTC_INLINE vi checked(const optc::Env &env, vi value, int64_t extent, int32_t place, Full<S>) {
  return checked_all(env, value, extent, place, ~vi{});
}
OPTC_INLINE vi checked(const optc::Env &env, vi value, int64_t extent, int32_t place, Part n) {
  return checked_all(env, value, extent, place, first_lanes(n.lanes));
}

OPTC_INLINE vm splat_m(bool b) { return splat_i(b ? -1 : 0); }
OPTC_INLINE vi wrap_i8(vi a) { return (a << 24) >> 24; }
OPTC_INLINE vi wrap_i16(vi a) { return (a << 16) >> 16; }
// first, first + step, ... as int32 lanes: loop counters stay below 2^31.
OPTC_INLINE vi iota(int64_t first, int32_t step = 1) {
  vi lane;
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) lane[i] = i * step;
  return lane + splat_i((int32_t)first);
}
// A 64-bit value beside int32 lanes: beyond their range it compares as their limits do.
OPTC_INLINE vi lane_int(int64_t a) {
  return splat_i(a < INT32_MIN ? INT32_MIN : a > INT32_MAX ? INT32_MAX : (int32_t)a);
}

template <class Body>
OPTC_INLINE void lanes(int64_t begin, int64_t end, const Body &body) {
  int64_t i = begin;
  for (; i + OPTC_VW <= end; i += OPTC_VW) body(i, Full<0>{});
  if (i < end) body(i, Part{(int)(end - i)});
}
// The same where the lanes in [low, high) are the loop's interior: vectors that lie in it whole take plain loads.
template <class Body>
OPTC_INLINE void lanes_bordered(int64_t low, int64_t high, int64_t begin, int64_t end, const Body &body) {
  for (int64_t i = begin; i < end; i += OPTC_VW) {
    if (i >= low && i + OPTC_VW <= high && i + OPTC_VW <= end)
      body(i, Interior{});
    else
      body(i, Part{i + OPTC_VW <= end ? OPTC_VW : (int)(end - i)});
  }
}
// The same for reductions: four accumulators take turns, in an order that depends on the extent alone.
template <class Body>
OPTC_INLINE void lanes4(int64_t begin, int64_t end, const Body &body) {
  int64_t i = begin;
  for (; i + 4 * OPTC_VW <= end; i += 4 * OPTC_VW) {
    body(i, Full<0>{});
    body(i + OPTC_VW, Full<1>{});
    body(i + 2 * OPTC_VW, Full<2>{});
    body(i + 3 * OPTC_VW, Full<3>{});
  }
  for (; i + OPTC_VW <= end; i += OPTC_VW) body(i, Full<0>{});
  if (i < end) body(i, Part{(int)(end - i)});
}

// T: float or double.
template <class T>
struct SumLanesOf {
  Lanes<T> s[4];
  OPTC_MEMBER SumLanesOf() { OPTC_UNROLL for (int i = 0; i < 4; ++i) s[i] = broadcast(T(0)); }
  template <int S>
  OPTC_MEMBER void add(Lanes<T> v, Full<S>) {
    s[S] = s[S] + v;
  }
  OPTC_MEMBER void add(Lanes<T> v, Part n) { s[0] = s[0] + select(first_lanes(n.lanes), v, broadcast(T(0))); }
  OPTC_MEMBER T total(T initial = 0) const { return initial + reduce_sum((s[0] + s[1]) + (s[2] + s[3])); }
};
template <class T>
struct ProductLanesOf {
  Lanes<T> s[4];
  OPTC_MEMBER ProductLanesOf() { OPTC_UNROLL for (int i = 0; i < 4; ++i) s[i] = broadcast(T(1)); }
  template <int S>
  OPTC_MEMBER void add(Lanes<T> v, Full<S>) {
    s[S] = s[S] * v;
  }
  OPTC_MEMBER void add(Lanes<T> v, Part n) { s[0] = s[0] * select(first_lanes(n.lanes), v, broadcast(T(1))); }
  OPTC_MEMBER T total(T initial = 1) const { return initial * reduce_mul((s[0] * s[1]) * (s[2] * s[3])); }
};
template <class T>
struct MaxLanesOf {
  Lanes<T> s[4];
  OPTC_MEMBER MaxLanesOf() { OPTC_UNROLL for (int i = 0; i < 4; ++i) s[i] = broadcast(T(-INFINITY)); }
  template <int S>
  OPTC_MEMBER void add(Lanes<T> v, Full<S>) {
    s[S] = max(s[S], v);
  }
  OPTC_MEMBER void add(Lanes<T> v, Part n) { s[0] = select(first_lanes(n.lanes), max(s[0], v), s[0]); }
  OPTC_MEMBER T total(T initial = -INFINITY) const {
    return max(initial, reduce_max(max(max(s[0], s[1]), max(s[2], s[3]))));
  }
};
// Of integers, which have no NaN: the greatest, or the least.
template <bool Greatest>
struct ExtremeIntLanes {
  static constexpr int32_t kNone = Greatest ? INT32_MIN : INT32_MAX;
  vi s[4];
  OPTC_MEMBER ExtremeIntLanes() { OPTC_UNROLL for (int i = 0; i < 4; ++i) s[i] = splat_i(kNone); }
  static OPTC_MEMBER vi of(vi a, vi b) { return Greatest ? max(a, b) : min(a, b); }
  template <int S>
  OPTC_MEMBER void add(vi v, Full<S>) {
    s[S] = of(s[S], v);
  }
  OPTC_MEMBER void add(vi v, Part n) { s[0] = select(first_lanes(n.lanes), of(s[0], v), s[0]); }
  OPTC_MEMBER int32_t total(int32_t initial = kNone) const {
    const vi all = of(of(s[0], s[1]), of(of(s[2], s[3]), splat_i(initial)));
    return reduce_extreme<Greatest>(all)[0];
  }
};
typedef ExtremeIntLanes<true> MaxIntLanes;
typedef ExtremeIntLanes<false> MinIntLanes;
template <class T>
struct MinLanesOf {
  Lanes<T> s[4];
  OPTC_MEMBER MinLanesOf() { OPTC_UNROLL for (int i = 0; i < 4; ++i) s[i] = broadcast(T(INFINITY)); }
  template <int S>
  OPTC_MEMBER void add(Lanes<T> v, Full<S>) {
    s[S] = min(s[S], v);
  }
  OPTC_MEMBER void add(Lanes<T> v, Part n) { s[0] = select(first_lanes(n.lanes), min(s[0], v), s[0]); }
  OPTC_MEMBER T total(T initial = INFINITY) const {
    return min(initial, reduce_min(min(min(s[0], s[1]), min(s[2], s[3]))));
  }
};
typedef SumLanesOf<float> SumLanes;
typedef ProductLanesOf<float> ProductLanes;
typedef MaxLanesOf<float> MaxLanes;
typedef MinLanesOf<float> MinLanes;
