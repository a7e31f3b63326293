// wide.h: vd (double) and vl (int64) of OPTC_VW lanes, two registers each, so that one loop may mix them with vf and
// vi. Included inside an instruction-set namespace (foreach_isa.h). Masks of 64-bit lanes are vl (0 or -1); narrow()
// and widen() convert.
#ifndef OPTC_CPU_WIDE_H
#define OPTC_CPU_WIDE_H
#include "runtime/cpu/simd.h"

typedef double vdr __attribute__((vector_size(OPTC_VW * 4)));  // one register
typedef int64_t vlr __attribute__((vector_size(OPTC_VW * 4)));
typedef uint64_t vur __attribute__((vector_size(OPTC_VW * 4)));
typedef int32_t vih __attribute__((vector_size(OPTC_VW * 2)));

struct vd {
  vdr lo, hi;
};
struct vl {
  vlr lo, hi;
};

OPTC_INLINE vd splat_d(double s) { return {s - vdr{}, s - vdr{}}; }
OPTC_INLINE vl splat_l(int64_t s) { return {s - vlr{}, s - vlr{}}; }
OPTC_INLINE vd load(const double *p) {
  vd r;
  memcpy(&r, p, sizeof r);
  return r;
}
OPTC_INLINE vl load(const int64_t *p) {
  vl r;
  memcpy(&r, p, sizeof r);
  return r;
}
OPTC_INLINE void store(double *p, vd v) { memcpy(p, &v, sizeof v); }
OPTC_INLINE void store(int64_t *p, vl v) { memcpy(p, &v, sizeof v); }
OPTC_INLINE void store(double *p, double v) { *p = v; }
#define OPTC_WIDE_TAIL(type, vector)                   \
  OPTC_INLINE vector load_n(const type *p, int n) {    \
    type t[OPTC_VW] = {};                              \
    for (int i = 0; i < n; ++i) t[i] = p[i];           \
    return load(t);                                    \
  }                                                    \
  OPTC_INLINE void store_n(type *p, vector v, int n) { \
    type t[OPTC_VW];                                   \
    store(t, v);                                       \
    for (int i = 0; i < n; ++i) p[i] = t[i];           \
  }
OPTC_WIDE_TAIL(double, vd)
OPTC_WIDE_TAIL(int64_t, vl)
#undef OPTC_WIDE_TAIL

#define OPTC_WIDE_OP(type, op) \
  OPTC_INLINE type operator op(type a, type b) { return {a.lo op b.lo, a.hi op b.hi}; }
#define OPTC_WIDE_COMPARE(type, op) \
  OPTC_INLINE vl operator op(type a, type b) { return {(vlr)(a.lo op b.lo), (vlr)(a.hi op b.hi)}; }
OPTC_WIDE_OP(vd, +)
OPTC_WIDE_OP(vd, -)
OPTC_WIDE_OP(vd, *)
OPTC_WIDE_OP(vd, /)
OPTC_WIDE_OP(vl, &)
OPTC_WIDE_OP(vl, |) OPTC_WIDE_OP(vl, ^) OPTC_WIDE_COMPARE(vd, <) OPTC_WIDE_COMPARE(vd, <=) OPTC_WIDE_COMPARE(vd, >)
    OPTC_WIDE_COMPARE(vd, >=) OPTC_WIDE_COMPARE(vd, ==) OPTC_WIDE_COMPARE(vd, !=) OPTC_WIDE_COMPARE(vl, <)
        OPTC_WIDE_COMPARE(vl, <=) OPTC_WIDE_COMPARE(vl, >) OPTC_WIDE_COMPARE(vl, >=) OPTC_WIDE_COMPARE(vl, ==)
            OPTC_WIDE_COMPARE(vl, !=)
#undef OPTC_WIDE_OP
#undef OPTC_WIDE_COMPARE
    // Integer arithmetic wraps.
    OPTC_INLINE vl
    operator+(vl a, vl b) {
  return {(vlr)((vur)a.lo + (vur)b.lo), (vlr)((vur)a.hi + (vur)b.hi)};
}
OPTC_INLINE vl operator-(vl a, vl b) { return {(vlr)((vur)a.lo - (vur)b.lo), (vlr)((vur)a.hi - (vur)b.hi)}; }
OPTC_INLINE vl operator*(vl a, vl b) { return {(vlr)((vur)a.lo * (vur)b.lo), (vlr)((vur)a.hi * (vur)b.hi)}; }
OPTC_INLINE vd operator-(vd a) { return {-a.lo, -a.hi}; }
OPTC_INLINE vl operator-(vl a) { return vl{} - a; }
OPTC_INLINE vl operator~(vl a) { return {~a.lo, ~a.hi}; }
OPTC_INLINE vd select(vl m, vd a, vd b) { return {m.lo ? a.lo : b.lo, m.hi ? a.hi : b.hi}; }
OPTC_INLINE vl select(vl m, vl a, vl b) { return {m.lo ? a.lo : b.lo, m.hi ? a.hi : b.hi}; }
OPTC_INLINE vl select(bool c, vl a, vl b) {  // simd.h
  const vlr m = vlr{} - (int64_t)c;
  return {(a.lo & m) | (b.lo & ~m), (a.hi & m) | (b.hi & ~m)};
}
OPTC_INLINE vd select(bool c, vd a, vd b) {
  const vl r = select(c, vl{(vlr)a.lo, (vlr)a.hi}, vl{(vlr)b.lo, (vlr)b.hi});
  return {(vdr)r.lo, (vdr)r.hi};
}
OPTC_INLINE double select(bool m, double a, double b) { return m ? a : b; }
OPTC_INLINE int64_t select(bool m, int64_t a, int64_t b) { return m ? a : b; }
OPTC_INLINE vd min(vd a, vd b) { return select(a != a, a, select(a < b, a, b)); }
OPTC_INLINE vd max(vd a, vd b) { return select(a != a, a, select(a > b, a, b)); }
OPTC_INLINE double min(double a, double b) { return a != a ? a : a < b ? a : b; }
OPTC_INLINE double max(double a, double b) { return a != a ? a : a > b ? a : b; }
OPTC_INLINE vl min(vl a, vl b) { return select(a < b, a, b); }
OPTC_INLINE vl max(vl a, vl b) { return select(a > b, a, b); }
OPTC_INLINE vd abs(vd a) {
  const vlr m = INT64_MAX - vlr{};
  return {(vdr)((vlr)a.lo & m), (vdr)((vlr)a.hi & m)};
}
OPTC_INLINE double abs(double a) { return __builtin_fabs(a); }
OPTC_INLINE vd sqrt(vd a) {
  OPTC_UNROLL for (int i = 0; i < OPTC_VW / 2; ++i) a.lo[i] = __builtin_sqrt(a.lo[i]),
                                                    a.hi[i] = __builtin_sqrt(a.hi[i]);
  return a;
}
OPTC_INLINE vd fma(vd a, vd b, vd c) {
#if OPTC_VW >= 8
  return {OPTC_MM(fmadd_pd)(a.lo, b.lo, c.lo), OPTC_MM(fmadd_pd)(a.hi, b.hi, c.hi)};
#elif OPTC_NEON
  return {(vdr)vfmaq_f64((float64x2_t)c.lo, (float64x2_t)a.lo, (float64x2_t)b.lo),
          (vdr)vfmaq_f64((float64x2_t)c.hi, (float64x2_t)a.hi, (float64x2_t)b.hi)};
#else
  return a * b + c;
#endif
}

// --- conversions
OPTC_INLINE vd to_f64(vf a) {
  vfh lo, hi;
  memcpy(&lo, &a, sizeof lo);
  memcpy(&hi, (const char *)&a + sizeof lo, sizeof hi);
  return {__builtin_convertvector(lo, vdr), __builtin_convertvector(hi, vdr)};
}
OPTC_INLINE vf to_f32(vd a) {
  const vfh lo = __builtin_convertvector(a.lo, vfh), hi = __builtin_convertvector(a.hi, vfh);
  vf r;
  memcpy(&r, &lo, sizeof lo);
  memcpy((char *)&r + sizeof lo, &hi, sizeof hi);
  return r;
}
OPTC_INLINE vl widen(vi a) {
  vih lo, hi;
  memcpy(&lo, &a, sizeof lo);
  memcpy(&hi, (const char *)&a + sizeof lo, sizeof hi);
  return {__builtin_convertvector(lo, vlr), __builtin_convertvector(hi, vlr)};
}
OPTC_INLINE vi narrow(vl a) {  // wraps; of a mask: the mask
  const vih lo = __builtin_convertvector(a.lo, vih), hi = __builtin_convertvector(a.hi, vih);
  vi r;
  memcpy(&r, &lo, sizeof lo);
  memcpy((char *)&r + sizeof lo, &hi, sizeof hi);
  return r;
}
OPTC_INLINE vd to_f64(vl a) { return {__builtin_convertvector(a.lo, vdr), __builtin_convertvector(a.hi, vdr)}; }
OPTC_INLINE vd to_f64(vi a) { return to_f64(widen(a)); }
OPTC_INLINE vf to_f32(vl a) {  // rounded once
  vf r;
  OPTC_UNROLL for (int i = 0; i < OPTC_VW / 2; ++i) r[i] = (float)a.lo[i], r[i + OPTC_VW / 2] = (float)a.hi[i];
  return r;
}
OPTC_INLINE int64_t to_i64(double a) {
  return a != a ? 0 : a >= 0x1p63 ? INT64_MAX : a < -0x1p63 ? INT64_MIN : (int64_t)a;
}
OPTC_INLINE vl to_i64(vd a) {
  vl r;
  OPTC_UNROLL for (int i = 0; i < OPTC_VW / 2; ++i) r.lo[i] = to_i64(a.lo[i]), r.hi[i] = to_i64(a.hi[i]);
  return r;
}
OPTC_INLINE vl to_i64(vf a) {
  if (__builtin_expect(any(~(vm)(abs(a) < splat(2147483648.0f))), 0)) return to_i64(to_f64(a));  // NaN, too
  return widen(__builtin_convertvector(a, vi));
}
OPTC_INLINE double reduce_sum(vd a) {  // halves folded until one lane is left
  double t[OPTC_VW];
  store(t, a);
  OPTC_UNROLL for (int half = OPTC_VW / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) t[i] += t[i + half];
  }
  return t[0];
}
// A function of the C library on every lane.
template <double (*F)(double)>
OPTC_INLINE vd map(vd a) {
  double t[OPTC_VW];
  store(t, a);
  for (int i = 0; i < OPTC_VW; ++i) t[i] = F(t[i]);
  return load(t);
}
#endif  // OPTC_CPU_WIDE_H
