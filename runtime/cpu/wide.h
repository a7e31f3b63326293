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
// One register at a time: a copy of both goes through memory.
#define OPTC_WIDE_ACCESS(type, vector)           \
  OPTC_INLINE vector load(const type *p) {       \
    vector r;                                    \
    memcpy(&r.lo, p, sizeof r.lo);               \
    memcpy(&r.hi, p + OPTC_VW / 2, sizeof r.hi); \
    return r;                                    \
  }                                              \
  OPTC_INLINE void store(type *p, vector v) {    \
    memcpy(p, &v.lo, sizeof v.lo);               \
    memcpy(p + OPTC_VW / 2, &v.hi, sizeof v.hi); \
  }
OPTC_WIDE_ACCESS(double, vd)
OPTC_WIDE_ACCESS(int64_t, vl)
#undef OPTC_WIDE_ACCESS
OPTC_INLINE void store(double *p, double v) { *p = v; }
// Of 2 to 8 lanes, those below n.
OPTC_INLINE vlr first_wide(int n) {
  vlr lane;
  OPTC_UNROLL for (int i = 0; i < OPTC_VW / 2; ++i) lane[i] = i;
  return lane < (int64_t)n - vlr{};
}
OPTC_INLINE vdr load_register_n(const double *p, int n) {
#if OPTC_VW == 16
  return (vdr)_mm512_maskz_loadu_pd((__mmask8)(n >= 8 ? 255 : (1u << n) - 1), p);
#elif OPTC_VW == 8
  return (vdr)_mm256_maskload_pd(p, (__m256i)first_wide(n));
#else
  vdr r = {};
  OPTC_UNROLL for (int i = 0; i < OPTC_VW / 2; ++i) {
    if (i < n) r[i] = p[i];
  }
  return r;
#endif
}
OPTC_INLINE void store_register_n(double *p, vdr v, int n) {
#if OPTC_VW == 16
  _mm512_mask_storeu_pd(p, (__mmask8)(n >= 8 ? 255 : (1u << n) - 1), (__m512d)v);
#elif OPTC_VW == 8
  _mm256_maskstore_pd(p, (__m256i)first_wide(n), (__m256d)v);
#else
  OPTC_UNROLL for (int i = 0; i < OPTC_VW / 2; ++i) {
    if (i < n) p[i] = v[i];
  }
#endif
}
OPTC_INLINE vd load_n(const double *p, int n) {
  const int half = OPTC_VW / 2;
  return {load_register_n(p, n), n > half ? load_register_n(p + half, n - half) : vdr{}};
}
OPTC_INLINE void store_n(double *p, vd v, int n) {
  const int half = OPTC_VW / 2;
  store_register_n(p, v.lo, n);
  if (n > half) store_register_n(p + half, v.hi, n - half);
}
OPTC_INLINE vl load_n(const int64_t *p, int n) {
  const vd r = load_n((const double *)p, n);
  return {(vlr)r.lo, (vlr)r.hi};
}
OPTC_INLINE void store_n(int64_t *p, vl v, int n) { store_n((double *)p, {(vdr)v.lo, (vdr)v.hi}, n); }
OPTC_INLINE vd load_strided(const double *p, int64_t stride, int n = OPTC_VW) {
  vd r = {};
  OPTC_UNROLL for (int i = 0; i < OPTC_VW / 2; ++i) {
    if (i < n) r.lo[i] = p[i * stride];
    if (i + OPTC_VW / 2 < n) r.hi[i] = p[(i + OPTC_VW / 2) * stride];
  }
  return r;
}
OPTC_INLINE void store_strided(double *p, int64_t stride, vd v, int n = OPTC_VW) {
  OPTC_UNROLL for (int i = 0; i < OPTC_VW / 2; ++i) {
    if (i < n) p[i * stride] = v.lo[i];
    if (i + OPTC_VW / 2 < n) p[(i + OPTC_VW / 2) * stride] = v.hi[i];
  }
}
// The lanes of a type, and one value in all of them.
template <class T>
struct LanesOf;
template <>
struct LanesOf<float> {
  typedef vf type;
};
template <>
struct LanesOf<double> {
  typedef vd type;
};
template <class T>
using Lanes = typename LanesOf<T>::type;
OPTC_INLINE vf broadcast(float s) { return splat(s); }
OPTC_INLINE vd broadcast(double s) { return splat_d(s); }

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
#if OPTC_X86
  return {(vdr)OPTC_MM(sqrt_pd)(a.lo), (vdr)OPTC_MM(sqrt_pd)(a.hi)};
#else
  OPTC_UNROLL for (int i = 0; i < OPTC_VW / 2; ++i) a.lo[i] = __builtin_sqrt(a.lo[i]),
                                                    a.hi[i] = __builtin_sqrt(a.hi[i]);
  return a;
#endif
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
OPTC_INLINE vd select(vm m, vd a, vd b) { return select(widen(m), a, b); }
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
OPTC_INLINE double reduce_mul(vd a) {
  double t[OPTC_VW];
  store(t, a);
  OPTC_UNROLL for (int half = OPTC_VW / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) t[i] *= t[i + half];
  }
  return t[0];
}
OPTC_INLINE double reduce_max(vd a) {
  double t[OPTC_VW];
  store(t, a);
  for (int i = 1; i < OPTC_VW; ++i) t[0] = max(t[0], t[i]);
  return t[0];
}
OPTC_INLINE double reduce_min(vd a) {
  double t[OPTC_VW];
  store(t, a);
  for (int i = 1; i < OPTC_VW; ++i) t[0] = min(t[0], t[i]);
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
template <double (*F)(double, double)>
OPTC_INLINE vd map(vd a, vd b) {
  double t[OPTC_VW], u[OPTC_VW];
  store(t, a);
  store(u, b);
  for (int i = 0; i < OPTC_VW; ++i) t[i] = F(t[i], u[i]);
  return load(t);
}
#endif  // OPTC_CPU_WIDE_H
