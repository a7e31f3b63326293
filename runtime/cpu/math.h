// math.h: elementary functions on vf and float. Included inside an instruction-set namespace (foreach_isa.h).
//
// Right at infinities, NaN, zeros and subnormals, without flush-to-zero. A float argument gives the bits of a vector's
// lane. Greatest error against double, in ulp of float, of any instruction set (tests/runtime_math_test.cc checks these
// bounds):
//   exp 1.1 (0.85 with FMA), expm1 1.5, log 0.8, log1p 1.5, tanh 1.2, sigmoid 2, erf 1, softplus 2, sin and cos 1.1
//   (|x| < 1e5; libm beyond), pow 1, tan 3.5 (as sin), asin 1.8, acos 1.3, atan 1.5, sinh 2, cosh 1.8, asinh 2.2,
//   acosh 2, atanh 2.2.
// All functions of double go to the C library lane by lane.
#ifndef OPTC_CPU_MATH_H
#define OPTC_CPU_MATH_H
#include "runtime/cpu/simd.h"
#include "runtime/cpu/wide.h"

// The float overload of a vector function.
#define OPTC_SCALAR1(name) \
  OPTC_INLINE float name(float x) { return name(splat(x))[0]; }

// p * 2^n for an integral float n in [-300, 300], rounded once.
OPTC_INLINE vf scale_by_power(vf p, vf n) {
#if OPTC_VW == 16
  return _mm512_maskz_scalef_ps(0xffff, p, n);
#else
  const vi i = __builtin_convertvector(n, vi), half = i >> 1;
  return p * from_bits((half + 127) << 23) * from_bits((i - half + 127) << 23);
#endif
}

// exp: x = n ln 2 + r with ln 2 in two pieces (Cody and Waite), a polynomial of degree 6 for exp(r) (coefficients as in
// MLAS compute.cpp).
// `shift` -1 gives half of it, which overflows later.
OPTC_INLINE vf exp_shifted(vf x, float shift) {
  x = min_num(max_num(x, -104.0f), 90.0f);
  const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const vf n = fma(x, splat(1.44269504088896341f), magic) - magic;
  vf r = fma(n, splat(-6.93145752e-1f), x);
  r = fma(n, splat(-1.42860677e-6f), r);
  vf p = splat(0x1.694000p-10f);
  p = fma(p, r, splat(0x1.125edcp-7f));
  p = fma(p, r, splat(0x1.555b5ap-5f));
  p = fma(p, r, splat(0x1.555450p-3f));
  p = fma(p, r, splat(0x1.fffff6p-2f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  return scale_by_power(p, shift == 0 ? n : n + shift);
}
OPTC_INLINE vf exp(vf x) { return exp_shifted(x, 0.0f); }

OPTC_INLINE vf expm1(vf x) {
  const vf clamped = min_num(max_num(x, -30.0f), 60.0f);
  const vf magic = splat(12582912.0f);
  const vf n = fma(clamped, splat(1.44269504088896341f), magic) - magic;
  vf r = fma(n, splat(-6.93145752e-1f), clamped);
  r = fma(n, splat(-1.42860677e-6f), r);
  vf p = splat(0x1.a17eaap-13f);
  p = fma(p, r, splat(0x1.6d43b2p-10f));
  p = fma(p, r, splat(0x1.1110acp-7f));
  p = fma(p, r, splat(0x1.5554e8p-5f));
  p = fma(p, r, splat(0x1.555556p-3f));
  p = fma(p, r, splat(0.5f));
  p = fma(p * r, r, r);  // exp(r) - 1
  const vf s = scale_by_power(splat(1.0f), n);
  const vf small = fma(p, s, s - 1.0f);
  return select(x > splat(30.0f), exp(x), select(abs(x) < splat(1e-20f), x, small));
}

// log: x = 2^e m, m in [sqrt 1/2, sqrt 2); s = f / (2 + f), log m = f - (f^2/2 - s (f^2/2 + R(s^2))) (the method of
// fdlibm).
OPTC_INLINE vf log(vf x) {
  const vm tiny = x < splat(0x1p-126f);
  const vf scaled = select(tiny, x * splat(0x1p25f), x);
  const vi offset = (vi)((vu)bits(scaled) - (vu)splat_i(0x3f3504f3));
  const vi e = offset >> 23;
  const vf m = from_bits((vi)((vu)bits(scaled) - ((vu)e << 23)));
  const vf k = __builtin_convertvector(e - (tiny & 25), vf);
  const vf f = m - 1.0f, s = f / (f + 2.0f), z = s * s, w = z * z;
  const vf t1 = w * fma(w, splat(0.24279078841f), splat(0.40000972152f));
  const vf t2 = z * fma(w, splat(0.28498786688f), splat(0.66666662693f));
  const vf half_square = f * f * 0.5f;
  vf r = fma(s, half_square + (t1 + t2), k * splat(9.0580006145e-06f)) - half_square + f;
  r = fma(k, splat(6.9313812256e-01f), r);
  r = select(x == splat(__builtin_inff()), x, r);
  r = select(x == vf{}, splat(-__builtin_inff()), r);
  return select(x < vf{}, splat(__builtin_nanf("")), select(x != x, x, r));
}

// log1p: log(u), u = 1 + x rounded, corrected by what the rounding lost.
OPTC_INLINE vf log1p(vf x) {
  const vf u = x + 1.0f, lost = select(x > splat(1.0f), splat(1.0f) - (u - x), x - (u - 1.0f));
  const vf r = log(u) + lost / u;
  return select(u == splat(1.0f), x, select((x == splat(__builtin_inff())) | (x <= splat(-1.0f)), log(u), r));
}

// tanh: an odd polynomial up to 0.6, above it 1 - 2 / (exp(2|x|) + 1).
OPTC_INLINE vf tanh(vf x) {
  const vf a = abs(x), z = x * x;
  vf p = splat(0x1.2a4ee6p-9f);
  p = fma(p, z, splat(-0x1.10f1d2p-7f));
  p = fma(p, z, splat(0x1.6498p-6f));
  p = fma(p, z, splat(-0x1.ba07c6p-5f));
  p = fma(p, z, splat(0x1.1110e6p-3f));
  p = fma(p, z, splat(-0x1.555556p-2f));
  const vf small = fma(x * z, p, x);
  const vf large = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  return select(a < splat(0.6f), small, copy_sign(large, x));
}

OPTC_INLINE vf sigmoid(vf x) {
  const vf e = exp(-abs(x));
  return select(x < vf{}, e, splat(1.0f)) / (1.0f + e);
}

// erf: two polynomials joined at 0.921875; the upper one is 1 - exp(-g(|x|)) (coefficients as in MLAS erf.cpp).
OPTC_INLINE vf erf(vf x) {
  const vf a = abs(x), c = min_num(a, 3.925f), z = c * c;
  vf p = splat(-5.99104969e-4f);
  p = fma(p, z, splat(4.99339588e-3f));
  p = fma(p, z, splat(-2.67667342e-2f));
  p = fma(p, z, splat(1.12818025e-1f));
  p = fma(p, z, splat(-3.76124859e-1f));
  p = fma(p, z, splat(1.28379151e-1f));
  p = fma(p, c, c);
  vf g = splat(1.72948930e-5f);
  g = fma(g, c, splat(-3.83208680e-4f));
  g = fma(g, c, splat(3.88393435e-3f));
  g = fma(g, c, splat(-2.42545605e-2f));
  g = fma(g, c, splat(1.06777847e-1f));
  g = fma(g, c, splat(6.34846687e-1f));
  g = fma(g, c, splat(1.28717512e-1f));
  g = fma(g, c, c);
  return select(x != x, x, copy_sign(select(a > splat(0.921875f), 1.0f - exp(-g), p), x));
}

OPTC_INLINE vf softplus(vf x) { return log1p(exp(-abs(x))) + relu(x); }
OPTC_INLINE vf silu(vf x) { return x * sigmoid(x); }
// GELU with erf, and its approximation with tanh (x sigmoid(2u), which is the same function).
OPTC_INLINE vf gelu(vf x) { return x * 0.5f * (1.0f + erf(x * 0.70710678118654752f)); }
OPTC_INLINE vf gelu_tanh(vf x) {
  const vf u = 0.79788456080286536f * fma(x * x * 0.044715f, x, x);
  return x * sigmoid(u + u);
}

// r = x - n pi/2 in double, the sine and the cosine of it by two polynomials on |r| <= pi/4, and n.
struct SinCos {
  vf sin, cos;
  vi quarter;
};
OPTC_INLINE SinCos sin_cos(vf x) {
  const vd d = to_f64(x), magic = splat_d(6755399441055744.0);  // 1.5 * 2^52
  const vd shifted = fma(d, splat_d(0.63661977236758134), magic), n = shifted - magic;
  vd reduced = fma(n, splat_d(-1.5707963267341256), d);  // the first 33 bits of pi/2: exact products
  reduced = fma(n, splat_d(-6.0771005065061922e-11), reduced);
  const vf r = to_f32(reduced), z = r * r;
  vf s = splat(0x1.6dbd3ep-19f);
  s = fma(s, z, splat(-0x1.a013a6p-13f));
  s = fma(s, z, splat(0x1.11110ep-7f));
  s = fma(s, z, splat(-0x1.555556p-3f));
  s = fma(r * z, s, r);
  vf c = splat(0x1.9bd7f2p-16f);
  c = fma(c, z, splat(-0x1.6c12d2p-10f));
  c = fma(c, z, splat(0x1.555554p-5f));
  c = fma(z * z, c, fma(z, splat(-0.5f), splat(1.0f)));
  return {s, c, narrow(vl{(vlr)shifted.lo, (vlr)shifted.hi})};
}
// `quarter` 0 gives sin, 1 cos.
OPTC_INLINE vf sin_quarter(vf x, int quarter) {
  const SinCos r = sin_cos(x);
  const vi q = r.quarter + quarter;
  const vf v = select((q & 1) != vi{}, r.cos, r.sin);
  const vf result = select((q & 2) != vi{}, -v, v);
  return quarter == 0 ? select(x == vf{}, x, result) : result;
}
// Lanes of 1e5 and beyond (infinity and NaN too) go to the C library, alone.
template <float (*F)(float)>
OPTC_INLINE vf replace_large(vf x, vf r) {
  const vm large = (vm)(abs(x) < splat(1e5f)) == vi{};
  if (__builtin_expect(any(large), 0)) {
    OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) {
      if (large[i]) r[i] = F(x[i]);
    }
  }
  return r;
}
OPTC_INLINE vf sin(vf x) { return replace_large<::sinf>(x, sin_quarter(x, 0)); }
OPTC_INLINE vf cos(vf x) { return replace_large<::cosf>(x, sin_quarter(x, 1)); }
OPTC_INLINE vf tan(vf x) {
  const SinCos r = sin_cos(x);
  const vm odd = (r.quarter & 1) != vi{};
  const vf t = select(odd, -r.cos, r.sin) / select(odd, r.sin, r.cos);
  return replace_large<::tanf>(x, select(x == vf{}, x, t));
}

// pi/2 in two pieces, the first rounded up. What is near it is taken from the first alone.
constexpr float kHalfPi = 1.57079637f, kHalfPiBeyond = -4.37113883e-8f;

// atan: an odd polynomial up to 1, above it pi/2 less that of the reciprocal.
OPTC_INLINE vf atan(vf x) {
  const vf a = abs(x);
  const vm above = a > splat(1.0f);
  const vf r = select(above, 1.0f / a, a), z = r * r;
  vf p = splat(-0x1.d58efap-10f);
  p = fma(p, z, splat(0x1.65487p-7f));
  p = fma(p, z, splat(-0x1.fe756ap-6f));
  p = fma(p, z, splat(0x1.da98ecp-5f));
  p = fma(p, z, splat(-0x1.582534p-4f));
  p = fma(p, z, splat(0x1.c0944p-4f));
  p = fma(p, z, splat(-0x1.242118p-3f));
  p = fma(p, z, splat(0x1.9991ecp-3f));
  p = fma(p, z, splat(-0x1.55553ep-2f));
  p = p * (r * z);
  return copy_sign(select(above, (kHalfPi - r) - (p - kHalfPiBeyond), p + r), x);
}

// asin r = r + r z P(z) for z = r^2 up to 1/4: what follows r.
OPTC_INLINE vf asin_beyond(vf r, vf z) {
  vf p = splat(0x1.5959d6p-5f);
  p = fma(p, z, splat(0x1.8c4134p-6f));
  p = fma(p, z, splat(0x1.747b74p-5f));
  p = fma(p, z, splat(0x1.330206p-4f));
  p = fma(p, z, splat(0x1.5555c8p-3f));
  return r * z * p;
}
// Above 1/2: pi/2 - 2 asin(sqrt((1 - |x|) / 2)).
OPTC_INLINE vf asin(vf x) {
  const vf a = abs(x);
  const vm above = a > splat(0.5f);
  const vf half = (1.0f - a) * 0.5f, z = select(above, half, a * a), r = select(above, sqrt(half), a);
  const vf p = asin_beyond(r, z);
  return copy_sign(select(above, (kHalfPi - 2.0f * r) - (2.0f * p - kHalfPiBeyond), p + r), x);
}
OPTC_INLINE vf acos(vf x) {
  const vf a = abs(x);
  const vm above = a > splat(0.5f);
  const vf half = (1.0f - a) * 0.5f, z = select(above, half, a * a), r = select(above, sqrt(half), a);
  const vf beyond = asin_beyond(r, z), twice = 2.0f * (r + beyond);
  const vf middle = kHalfPi - (copy_sign(r + beyond, x) - kHalfPiBeyond);
  return select(above, select(x < vf{}, 2.0f * kHalfPi - (twice - 2.0f * kHalfPiBeyond), twice), middle);
}

// Up to 1 a polynomial, above it e^x / 2 and its reciprocal.
OPTC_INLINE vf sinh(vf x) {
  const vf a = abs(x), z = a * a, e = exp_shifted(a, -1.0f);
  vf p = splat(0x1.7677a8p-19f);
  p = fma(p, z, splat(0x1.a01c2p-13f));
  p = fma(p, z, splat(0x1.1110eap-7f));
  p = fma(p, z, splat(0x1.555556p-3f));
  return copy_sign(select(a < splat(1.0f), fma(a * z, p, a), e - 0.25f / e), x);
}
OPTC_INLINE vf cosh(vf x) {
  const vf e = exp_shifted(abs(x), -1.0f);
  return e + 0.25f / e;
}

// By logarithms of 1 + u; where the square would overflow, ln x + ln 2.
OPTC_INLINE vf asinh(vf x) {
  const vf a = abs(x), z = a * a;
  const vf r = log1p(fma(z, 1.0f / (1.0f + sqrt(z + 1.0f)), a));
  return copy_sign(select(a < splat(1e9f), r, log(a) + 0.693147180559945309f), x);
}
OPTC_INLINE vf acosh(vf x) {
  const vf t = x - 1.0f, r = log1p(t + sqrt(fma(t, t, t + t)));
  return select(x < splat(1e9f), select(x < splat(1.0f), splat(__builtin_nanf("")), r), log(x) + 0.693147180559945309f);
}
OPTC_INLINE vf atanh(vf x) {
  const vf a = abs(x), twice = a + a, r = 0.5f * log1p(fma(twice, a / (1.0f - a), twice));
  return copy_sign(select(a > splat(1.0f), splat(__builtin_nanf("")), r), x);
}

// pow: 2^(y log2 |x|) in double; log2 m = 2/ln2 atanh s, s = (m - 1) / (m + 1). IEEE 754's special values (pown rules
// for signs).
OPTC_INLINE vf pow(vf x, vf y) {
  const vf inf = splat(__builtin_inff()), one = splat(1.0f);
  const vf a = abs(x);
  const vm tiny = a < splat(0x1p-126f);
  const vf scaled = select(tiny, a * splat(0x1p25f), a);
  const vi offset = (vi)((vu)bits(scaled) - (vu)splat_i(0x3f3504f3));
  const vi e = offset >> 23;
  const vf m = from_bits((vi)((vu)bits(scaled) - ((vu)e << 23)));
  const vd md = to_f64(m), s = (md - splat_d(1.0)) / (md + splat_d(1.0)), z = s * s;
  vd p = splat_d(1.0 / 15);
  p = fma(p, z, splat_d(1.0 / 13));
  p = fma(p, z, splat_d(1.0 / 11));
  p = fma(p, z, splat_d(1.0 / 9));
  p = fma(p, z, splat_d(1.0 / 7));
  p = fma(p, z, splat_d(1.0 / 5));
  p = fma(p, z, splat_d(1.0 / 3));
  p = fma(p, z, splat_d(1.0));
  const vd log2_x = fma(s * splat_d(2.8853900817779268), p, to_f64(__builtin_convertvector(e - (tiny & 25), vf)));
  vd t = log2_x * to_f64(y);
  t = select(t < splat_d(-200.0), splat_d(-200.0), select(t > splat_d(200.0), splat_d(200.0), t));
  const vd magic = splat_d(6755399441055744.0), shifted = t + magic, n = shifted - magic, f = t - n;
  vd q = splat_d(0x1.640eb96f479ffp-20);
  q = fma(q, f, splat_d(0x1.00dc4c7400000p-16));
  q = fma(q, f, splat_d(0x1.43086f04c186cp-13));
  q = fma(q, f, splat_d(0x1.5d8745a3a5908p-10));
  q = fma(q, f, splat_d(0x1.3b2ab73e95b38p-7));
  q = fma(q, f, splat_d(0x1.c6b08dd7006abp-5));
  q = fma(q, f, splat_d(0x1.ebfbdff8050e0p-3));
  q = fma(q, f, splat_d(0x1.62e42fef84cd1p-1));
  q = fma(q, f, splat_d(1.0));
  // 2^n by its bits: |n| <= 200, so the double is normal and one rounding to float remains.
  const vlr bias = 1023 - vlr{}, nlo = (vlr)shifted.lo - (vlr)magic.lo, nhi = (vlr)shifted.hi - (vlr)magic.hi;
  const vd power = {(vdr)((vlr)((vur)(nlo + bias) << 52)), (vdr)((vlr)((vur)(nhi + bias) << 52))};
  vf r = to_f32(q * power);
  const vm y_negative = y < vf{};
  r = select(a == vf{}, select(y_negative, inf, vf{}), r);
  r = select(a == inf, select(y_negative, vf{}, inf), r);
  const vm y_infinite = abs(y) == inf;
  r = select(y_infinite, select(a == one, one, select((a > one) ^ y_negative, inf, vf{})), r);
  // The sign: negative for an odd integer y and a negative x; NaN for a finite negative x and a y that is no integer.
  const vf whole = trunc(y), half = y * 0.5f;
  const vm integral = whole == y, odd = integral & (vm)(trunc(half) != half);
  const vm negative = bits(x) < vi{};
  r = select(negative & odd, -r, r);
  r = select((vm)(x < vf{}) & (vm)(a != inf) & (vm)~integral, splat(__builtin_nanf("")), r);
  r = select((vm)(x != x) | (vm)(y != y), x + y, r);
  return select((vm)(x == one) | (vm)(y == vf{}), one, r);
}
OPTC_INLINE float pow(float x, float y) { return pow(splat(x), splat(y))[0]; }

OPTC_SCALAR1(exp)
OPTC_SCALAR1(expm1)
OPTC_SCALAR1(log)
OPTC_SCALAR1(log1p)
OPTC_SCALAR1(tanh)
OPTC_SCALAR1(sigmoid)
OPTC_SCALAR1(erf)
OPTC_SCALAR1(softplus)
OPTC_SCALAR1(silu)
OPTC_SCALAR1(gelu)
OPTC_SCALAR1(gelu_tanh)
OPTC_SCALAR1(sin)
OPTC_SCALAR1(cos)
OPTC_SCALAR1(tan)
OPTC_SCALAR1(asin)
OPTC_SCALAR1(acos)
OPTC_SCALAR1(atan)
OPTC_SCALAR1(sinh)
OPTC_SCALAR1(cosh)
OPTC_SCALAR1(asinh)
OPTC_SCALAR1(acosh)
OPTC_SCALAR1(atanh)
#undef OPTC_SCALAR1

#define OPTC_LIBM_DOUBLE(name)                         \
  OPTC_INLINE vd name(vd x) { return map<::name>(x); } \
  OPTC_INLINE double name(double x) { return ::name(x); }
OPTC_LIBM_DOUBLE(exp)
OPTC_LIBM_DOUBLE(expm1)
OPTC_LIBM_DOUBLE(log)
OPTC_LIBM_DOUBLE(log1p)
OPTC_LIBM_DOUBLE(tanh)
OPTC_LIBM_DOUBLE(erf)
OPTC_LIBM_DOUBLE(sin)
OPTC_LIBM_DOUBLE(cos)
OPTC_LIBM_DOUBLE(tan)
OPTC_LIBM_DOUBLE(asin)
OPTC_LIBM_DOUBLE(acos)
OPTC_LIBM_DOUBLE(atan)
OPTC_LIBM_DOUBLE(sinh)
OPTC_LIBM_DOUBLE(cosh)
OPTC_LIBM_DOUBLE(asinh)
OPTC_LIBM_DOUBLE(acosh)
OPTC_LIBM_DOUBLE(atanh)
OPTC_LIBM_DOUBLE(floor)
OPTC_LIBM_DOUBLE(ceil)
OPTC_LIBM_DOUBLE(trunc)
#undef OPTC_LIBM_DOUBLE
OPTC_INLINE double round_even(double x) { return ::nearbyint(x); }
OPTC_INLINE vd round_even(vd x) { return map<::nearbyint>(x); }
OPTC_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
OPTC_INLINE double sigmoid(double x) { return x < 0 ? ::exp(x) / (1 + ::exp(x)) : 1 / (1 + ::exp(-x)); }
OPTC_INLINE vd sigmoid(vd x) {
  double t[OPTC_VW];
  store(t, x);
  for (int i = 0; i < OPTC_VW; ++i) t[i] = sigmoid(t[i]);
  return load(t);
}
OPTC_INLINE double pow(double x, double y) { return ::pow(x, y); }
OPTC_INLINE vd pow(vd x, vd y) {
  double a[OPTC_VW], b[OPTC_VW];
  store(a, x);
  store(b, y);
  for (int i = 0; i < OPTC_VW; ++i) a[i] = ::pow(a[i], b[i]);
  return load(a);
}
#endif  // OPTC_CPU_MATH_H
