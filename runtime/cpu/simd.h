// simd.h: vectors of OPTC_VW lanes over the compiler's vector extension. Included inside an instruction-set namespace
// (foreach_isa.h).
//
// vf: float lanes; vi, vu: int32/uint32 lanes; vm: lane mask (0 or -1). wide.h adds vd (double) and vl (int64) of as
// many lanes. The operators + - * / & | ^ ~ << >> and the comparisons (which give vm) come from the compiler. Every
// function has an overload for one float, so that an expression can be written once as a template over vf and float;
// scalars give the very bits of a vector's lane. Loads and stores need no alignment; load_n / store_n touch only the
// first n lanes (0 <= n <= OPTC_VW), the others load as zero. min and max propagate NaN. Casts follow
// ir/program/scalar.h: float -> int truncates, saturates, NaN gives 0.
#ifndef OPTC_CPU_SIMD_H
#define OPTC_CPU_SIMD_H

typedef float vf __attribute__((vector_size(OPTC_VW * 4)));
typedef int32_t vi __attribute__((vector_size(OPTC_VW * 4)));
typedef uint32_t vu __attribute__((vector_size(OPTC_VW * 4)));
typedef vi vm;
typedef float vfh __attribute__((vector_size(OPTC_VW * 2)));  // half the lanes

#undef OPTC_MM
#if OPTC_VW == 16
#define OPTC_MM(name) _mm512_##name
#elif OPTC_VW == 8
#define OPTC_MM(name) _mm256_##name
#elif OPTC_X86
#define OPTC_MM(name) _mm_##name
#endif

// --- splat. `s - zero` is exact for every s and compiles to one broadcast from memory (s + zero is not: -0 + 0 = 0).
OPTC_INLINE vf splat(float s) { return s - vf{}; }
OPTC_INLINE vi splat_i(int32_t s) { return s - vi{}; }

// --- reinterpretation
OPTC_INLINE vi bits(vf a) { return (vi)a; }
OPTC_INLINE vf from_bits(vi a) { return (vf)a; }
OPTC_INLINE int32_t bits(float a) {
  int32_t r;
  memcpy(&r, &a, 4);
  return r;
}
OPTC_INLINE float from_bits(int32_t a) {
  float r;
  memcpy(&r, &a, 4);
  return r;
}

// --- load and store
OPTC_INLINE vf load(const float *p) {
  vf r;
  memcpy(&r, p, sizeof r);
  return r;
}
OPTC_INLINE vi load(const int32_t *p) {
  vi r;
  memcpy(&r, p, sizeof r);
  return r;
}
OPTC_INLINE void store(float *p, vf v) { memcpy(p, &v, sizeof v); }
OPTC_INLINE void store(int32_t *p, vi v) { memcpy(p, &v, sizeof v); }
OPTC_INLINE void store(float *p, float v) { *p = v; }

// Lanes below n.
OPTC_INLINE vm first_lanes(int n) {
  vi lane;
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) lane[i] = i;
  return lane < splat_i(n);
}

OPTC_INLINE vf load_n(const float *p, int n) {
  if (__builtin_constant_p(n) && n >= OPTC_VW) return load(p);
#if OPTC_VW == 16
  return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#elif OPTC_VW == 8
  return _mm256_maskload_ps(p, (__m256i)first_lanes(n));
#else
  if (n >= OPTC_VW) return load(p);
  vf r = {};
  OPTC_UNROLL for (int i = 0; i < OPTC_VW - 1; ++i) {
    if (i < n) r[i] = p[i];
  }
  return r;
#endif
}
OPTC_INLINE void store_n(float *p, vf v, int n) {
  if (__builtin_constant_p(n) && n >= OPTC_VW) return store(p, v);
#if OPTC_VW == 16
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
#elif OPTC_VW == 8
  _mm256_maskstore_ps(p, (__m256i)first_lanes(n), v);
#else
  if (n >= OPTC_VW) return store(p, v);
  OPTC_UNROLL for (int i = 0; i < OPTC_VW - 1; ++i) {
    if (i < n) p[i] = v[i];
  }
#endif
}
#if OPTC_VW >= 8
// Lanes from `from` up to `to`; of the others no memory is touched.
OPTC_INLINE vf load_between(const float *p, int from, int to) {
#if OPTC_VW == 16
  return _mm512_maskz_loadu_ps((__mmask16)(((1u << to) - 1) & ~((1u << from) - 1)), p);
#else
  return _mm256_maskload_ps(p, (__m256i)(first_lanes(to) & ~first_lanes(from)));
#endif
}
#endif
OPTC_INLINE vi load_n(const int32_t *p, int n) { return bits(load_n((const float *)p, n)); }
OPTC_INLINE void store_n(int32_t *p, vi v, int n) { store_n((float *)p, from_bits(v), n); }

// Every lane p[2 * i]: of two vectors, the second of which, from p[OPTC_VW - 1] on, ends at the last lane.
OPTC_INLINE vf even_lanes(vf a, vf b) {
#if defined(__clang__)  // which makes a shuffle of it itself
  vf r;
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) r[i] = i < OPTC_VW / 2 ? a[2 * i] : b[2 * i + 1 - OPTC_VW];
  return r;
#else
  vi from = {};
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) from[i] = i < OPTC_VW / 2 ? 2 * i : 2 * i + 1;
  return __builtin_shuffle(a, b, from);
#endif
}
OPTC_INLINE vf load_even(const float *p) { return even_lanes(load(p), load(p + OPTC_VW - 1)); }
// Every lane p[i * stride]; a gather for loops whose inner stride is not one.
OPTC_INLINE vf load_strided(const float *p, int64_t stride, int n = OPTC_VW) {
  if (__builtin_constant_p(stride) && stride == 2) {
    if (__builtin_constant_p(n) && n >= OPTC_VW) return load_even(p);
#if OPTC_VW >= 8
    const int last = n > 0 ? 2 * n - 1 : 0, half = OPTC_VW - 1;
    return even_lanes(load_n(p, last < OPTC_VW ? last : OPTC_VW), load_n(p + half, last > half ? last - half : 0));
#endif
  }
  vf r = {};
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) {
    if (i < n) r[i] = p[i * stride];
  }
  return r;
}
// Every lane p[at[i]], of the first n.
OPTC_INLINE vf gather(const float *p, vi at, int n = OPTC_VW) {
#if OPTC_VW == 16
  return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), (__mmask16)((1u << n) - 1), (__m512i)at, p, 4);
#elif OPTC_VW == 8
  if (n >= OPTC_VW) return _mm256_i32gather_ps(p, (__m256i)at, 4);
  return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), p, (__m256i)at, (__m256)first_lanes(n), 4);
#else
  vf r = {};
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) {
    if (i < n) r[i] = p[at[i]];
  }
  return r;
#endif
}
OPTC_INLINE void store_strided(float *p, int64_t stride, vf v, int n = OPTC_VW) {
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) {
    if (i < n) p[i * stride] = v[i];
  }
}

// --- narrow integers, bool: as int32 lanes
#include "runtime/cpu/narrow.h"
// Bool: bytes 0 and 1 against masks.
OPTC_INLINE vm load_bool(const uint8_t *p) { return load_u8(p) != vi{}; }
OPTC_INLINE vm load_bool_n(const uint8_t *p, int n) { return load_u8_n(p, n) != vi{}; }
OPTC_INLINE void store_bool(uint8_t *p, vm m) { store_u8(p, m & 1); }
OPTC_INLINE void store_bool_n(uint8_t *p, vm m, int n) { store_u8_n(p, m & 1, n); }

// --- select, min, max, abs, sign
OPTC_INLINE vf select(vm m, vf a, vf b) { return m ? a : b; }
OPTC_INLINE vi select(vm m, vi a, vi b) { return m ? a : b; }
// One condition for all lanes. By bits: of `c ? a : b` g++ 12 makes a mask of the first lane alone (AVX-512).
OPTC_INLINE vi select(bool c, vi a, vi b) {
  const vi m = splat_i(-(int32_t)c);
  return (a & m) | (b & ~m);
}
OPTC_INLINE vf select(bool c, vf a, vf b) { return from_bits(select(c, bits(a), bits(b))); }
OPTC_INLINE float select(bool m, float a, float b) { return m ? a : b; }
OPTC_INLINE int32_t select(bool m, int32_t a, int32_t b) { return m ? a : b; }
OPTC_INLINE bool any(vm m) {
#if OPTC_VW == 16
  return _mm512_movepi32_mask((__m512i)m) != 0;
#elif OPTC_VW == 8
  return _mm256_movemask_ps((__m256)m) != 0;
#elif OPTC_X86
  return _mm_movemask_ps((__m128)m) != 0;
#else
  int r = 0;
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) r |= m[i];
  return r != 0;
#endif
}

// max_num, min_num: for a second operand that is known not to be NaN (a constant); one instruction. NaN in the first is
// kept.
OPTC_INLINE vf max_num(vf x, vf c) { return c > x ? c : x; }
OPTC_INLINE vf min_num(vf x, vf c) { return c < x ? c : x; }
OPTC_INLINE float max_num(float x, float c) { return c > x ? c : x; }
OPTC_INLINE float min_num(float x, float c) { return c < x ? c : x; }
OPTC_INLINE vf max_num(vf x, float c) { return max_num(x, splat(c)); }
OPTC_INLINE vf min_num(vf x, float c) { return min_num(x, splat(c)); }
OPTC_INLINE vf min(vf a, vf b) { return a != a ? a : min_num(b, a); }
OPTC_INLINE vf max(vf a, vf b) { return a != a ? a : max_num(b, a); }
OPTC_INLINE float min(float a, float b) { return a != a ? a : min_num(b, a); }
OPTC_INLINE float max(float a, float b) { return a != a ? a : max_num(b, a); }
OPTC_INLINE vi min(vi a, vi b) { return a < b ? a : b; }
OPTC_INLINE vi max(vi a, vi b) { return a > b ? a : b; }
OPTC_INLINE int32_t min(int32_t a, int32_t b) { return a < b ? a : b; }
OPTC_INLINE int32_t max(int32_t a, int32_t b) { return a > b ? a : b; }
OPTC_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
OPTC_INLINE int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
OPTC_INLINE vf relu(vf x) { return max_num(x, vf{}); }
OPTC_INLINE float relu(float x) { return max_num(x, 0.0f); }

OPTC_INLINE vf abs(vf a) { return from_bits(bits(a) & 0x7fffffff); }
OPTC_INLINE float abs(float a) { return __builtin_fabsf(a); }
OPTC_INLINE vi abs(vi a) { return a < vi{} ? (vi)(vu{} - (vu)a) : a; }
OPTC_INLINE vf copy_sign(vf magnitude, vf sign) {
  return from_bits((bits(magnitude) & 0x7fffffff) | (bits(sign) & splat_i(INT32_MIN)));
}
OPTC_INLINE float copy_sign(float magnitude, float sign) { return __builtin_copysignf(magnitude, sign); }
OPTC_INLINE vf sign(vf a) { return a > vf{} ? splat(1.0f) : a < vf{} ? splat(-1.0f) : a; }
OPTC_INLINE float sign(float a) { return a > 0 ? 1.0f : a < 0 ? -1.0f : a; }
OPTC_INLINE vm is_nan(vf a) { return a != a; }
OPTC_INLINE bool is_nan(float a) { return a != a; }

// --- integers wrap: on the lanes' bits as unsigned numbers, since overflow of signed lanes is undefined as of scalars
OPTC_INLINE vi add_i(vi a, vi b) { return (vi)((vu)a + (vu)b); }
OPTC_INLINE vi sub_i(vi a, vi b) { return (vi)((vu)a - (vu)b); }
OPTC_INLINE vi mul_i(vi a, vi b) { return (vi)((vu)a * (vu)b); }
OPTC_INLINE vi neg_i(vi a) { return (vi)(vu{} - (vu)a); }

// --- a * b + c, rounded once where the instruction set has it (not on x86 below AVX2: there it is two roundings)
OPTC_INLINE vf fma(vf a, vf b, vf c) {
#if OPTC_VW >= 8
  return OPTC_MM(fmadd_ps)(a, b, c);
#elif OPTC_NEON
  return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
OPTC_INLINE float fma(float a, float b, float c) {
#if OPTC_VW >= 8 || OPTC_NEON
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

OPTC_INLINE vf sqrt(vf a) {
#if OPTC_VW == 16
  return _mm512_maskz_sqrt_ps(0xffff, a);  // the unmasked form makes g++ warn of its undefined source
#elif OPTC_X86
  return OPTC_MM(sqrt_ps)(a);
#elif OPTC_NEON
  return (vf)vsqrtq_f32((float32x4_t)a);
#else
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) a[i] = __builtin_sqrtf(a[i]);
  return a;
#endif
}
OPTC_INLINE float sqrt(float a) { return __builtin_sqrtf(a); }
OPTC_INLINE vf rsqrt(vf a) { return 1.0f / sqrt(a); }
OPTC_INLINE float rsqrt(float a) { return 1.0f / sqrt(a); }

// --- rounding to integral values; the sign of zero is kept
#if OPTC_VW == 16
OPTC_INLINE vf floor(vf a) { return _mm512_maskz_roundscale_ps(0xffff, a, 9); }
OPTC_INLINE vf ceil(vf a) { return _mm512_maskz_roundscale_ps(0xffff, a, 10); }
OPTC_INLINE vf trunc(vf a) { return _mm512_maskz_roundscale_ps(0xffff, a, 11); }
OPTC_INLINE vf round_even(vf a) { return _mm512_maskz_roundscale_ps(0xffff, a, 8); }
#elif OPTC_VW == 8
OPTC_INLINE vf floor(vf a) { return _mm256_round_ps(a, 9); }
OPTC_INLINE vf ceil(vf a) { return _mm256_round_ps(a, 10); }
OPTC_INLINE vf trunc(vf a) { return _mm256_round_ps(a, 11); }
OPTC_INLINE vf round_even(vf a) { return _mm256_round_ps(a, 8); }
#elif OPTC_NEON
OPTC_INLINE vf floor(vf a) { return (vf)vrndmq_f32((float32x4_t)a); }
OPTC_INLINE vf ceil(vf a) { return (vf)vrndpq_f32((float32x4_t)a); }
OPTC_INLINE vf trunc(vf a) { return (vf)vrndq_f32((float32x4_t)a); }
OPTC_INLINE vf round_even(vf a) { return (vf)vrndnq_f32((float32x4_t)a); }
#else
// Through int32 where |a| < 2^23; larger values (and NaN) are integral already.
OPTC_INLINE vm has_fraction(vf a) { return abs(a) < splat(8388608.0f); }
OPTC_INLINE vf trunc(vf a) {
  const vf inside = select(has_fraction(a), a, vf{});
  const vf r = __builtin_convertvector(__builtin_convertvector(inside, vi), vf);
  return select(has_fraction(a), copy_sign(r, a), a);
}
OPTC_INLINE vf floor(vf a) {
  const vf t = trunc(a);
  return t > a ? t - 1.0f : t;
}
OPTC_INLINE vf ceil(vf a) {
  const vf t = trunc(a);
  return copy_sign(t < a ? t + 1.0f : t, a);
}
OPTC_INLINE vf round_even(vf a) {
  const vf magic = copy_sign(splat(8388608.0f), a);
  vf shifted = a + magic;
  __asm__("" : "+m"(shifted));  // the sum must be rounded
  return select(has_fraction(a), copy_sign(shifted - magic, a), a);
}
#endif
OPTC_INLINE float floor(float a) { return floor(splat(a))[0]; }
OPTC_INLINE float ceil(float a) { return ceil(splat(a))[0]; }
OPTC_INLINE float trunc(float a) { return trunc(splat(a))[0]; }
OPTC_INLINE float round_even(float a) { return round_even(splat(a))[0]; }

// --- conversions
OPTC_INLINE vf to_f32(vi a) { return __builtin_convertvector(a, vf); }
OPTC_INLINE float to_f32(int32_t a) { return (float)a; }
OPTC_INLINE vi to_i32(vf a) {
#if OPTC_NEON
  return (vi)vcvtq_s32_f32((float32x4_t)a);  // saturates, NaN gives 0
#elif OPTC_X86
#if OPTC_VW == 16
  const vi r = (vi)_mm512_maskz_cvttps_epi32(0xffff, a);
#elif OPTC_VW == 8
  const vi r = (vi)_mm256_cvttps_epi32(a);
#else
  const vi r = (vi)_mm_cvttps_epi32(a);
#endif
  // Out of range and NaN gave INT32_MIN.
  return a >= splat(2147483648.0f) ? splat_i(INT32_MAX) : a != a ? vi{} : r;
#else
  vi r;
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) r[i] = a[i] != a[i] ? 0
                                                       : a[i] >= 2147483648.0f ? INT32_MAX
                                                       : a[i] < -2147483648.0f ? INT32_MIN
                                                                               : (int32_t)a[i];
  return r;
#endif
}
OPTC_INLINE int32_t to_i32(float a) {
  return a != a ? 0 : a >= 2147483648.0f ? INT32_MAX : a < -2147483648.0f ? INT32_MIN : (int32_t)a;
}
// float -> int8 / uint8 with saturation, as int32 lanes ready for store_i8 / store_u8.
OPTC_INLINE vi to_i8(vf a) { return to_i32(min_num(max_num(a, -128.0f), 127.0f)); }
OPTC_INLINE vi to_u8(vf a) { return to_i32(min_num(max_num(a, 0.0f), 255.0f)); }
// A mask as numbers 0 and 1.
OPTC_INLINE vf mask_f32(vm m) { return from_bits(m & bits(splat(1.0f))); }

// --- bfloat16 and float16, stored as uint16_t; rounded to nearest even. NaN stays NaN (quiet).
OPTC_INLINE vf bf16_bits_to_f32(vi h) { return from_bits(h << 16); }
OPTC_INLINE vi f32_to_bf16_bits(vf a) {
  const vu u = (vu)a;
  const vi rounded = (vi)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  return a != a ? (vi)((u >> 16) | 0x40) : rounded;
}
OPTC_INLINE vf load_bf16(const uint16_t *p) { return bf16_bits_to_f32(load_u16(p)); }
OPTC_INLINE vf load_bf16_n(const uint16_t *p, int n) { return bf16_bits_to_f32(load_u16_n(p, n)); }
OPTC_INLINE void store_bf16(uint16_t *p, vf a) { store_u16(p, f32_to_bf16_bits(a)); }
OPTC_INLINE void store_bf16_n(uint16_t *p, vf a, int n) { store_u16_n(p, f32_to_bf16_bits(a), n); }

// Bit arithmetic for float16: a product by 2^112 (or 2^-112) moves the exponent, subnormals included, and rounds
// nowhere.
OPTC_INLINE vf f16_bits_to_f32(vi h) {
  const vi magnitude = (h & 0x7fff) << 13;
  const vf scaled = from_bits(magnitude) * splat(0x1p112f);
  const vi special = (vi)(magnitude >= splat_i(0x0f800000)) & splat_i(0x7f800000);  // infinity, NaN
  return from_bits(bits(scaled) | special | ((h & 0x8000) << 16));
}
OPTC_INLINE vi f32_to_f16_bits(vf a) {
  const vf magnitude = abs(a);
  const vi sign_bit = (vi)((vu)bits(a) >> 16) & 0x8000;
  // Normal results: round the low 13 bits to even, then move the exponent. Carries reach infinity by themselves.
  const vu u = (vu)magnitude;
  const vi normal = (vi)((u + 0xfff + ((u >> 13) & 1) - (vu)splat_i(0x38000000)) >> 13);
  // Subnormal results: an addition whose last place is 2^-24 does the rounding.
  const vi subnormal = bits(magnitude + splat(0.5f)) - bits(splat(0.5f));
  vi r = magnitude < splat(0x1p-14f) ? subnormal : normal;
  r = magnitude >= splat(65520.0f) ? splat_i(0x7c00) : r;
  r = a != a ? splat_i(0x7e00) : r;
  return r | sign_bit;
}
#if OPTC_VW == 16
OPTC_INLINE vf load_f16(const uint16_t *p) {
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256((const __m256i *)p));
}
OPTC_INLINE void store_f16(uint16_t *p, vf a) {
  _mm256_storeu_si256((__m256i *)p, _mm512_maskz_cvtps_ph(0xffff, a, 8));
}
OPTC_INLINE vf round_to_f16(vf a) { return _mm512_maskz_cvtph_ps(0xffff, _mm512_maskz_cvtps_ph(0xffff, a, 8)); }
#elif OPTC_VW == 8
OPTC_INLINE vf load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
OPTC_INLINE void store_f16(uint16_t *p, vf a) { _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, 8)); }
OPTC_INLINE vf round_to_f16(vf a) { return _mm256_cvtph_ps(_mm256_cvtps_ph(a, 8)); }
#else
OPTC_INLINE vf load_f16(const uint16_t *p) { return f16_bits_to_f32(load_u16(p)); }
OPTC_INLINE void store_f16(uint16_t *p, vf a) { store_u16(p, f32_to_f16_bits(a)); }
OPTC_INLINE vf round_to_f16(vf a) { return f16_bits_to_f32(f32_to_f16_bits(a)); }
#endif
OPTC_INLINE vf load_f16_n(const uint16_t *p, int n) {
  uint16_t t[OPTC_VW] = {};
  for (int i = 0; i < n; ++i) t[i] = p[i];
  return load_f16(t);
}
OPTC_INLINE void store_f16_n(uint16_t *p, vf a, int n) {
  uint16_t t[OPTC_VW];
  store_f16(t, a);
  for (int i = 0; i < n; ++i) p[i] = t[i];
}
// As if stored in the type and loaded again.
OPTC_INLINE vf round_to_bf16(vf a) { return bf16_bits_to_f32(f32_to_bf16_bits(a)); }
OPTC_INLINE float round_to_bf16(float a) { return round_to_bf16(splat(a))[0]; }
OPTC_INLINE float round_to_f16(float a) { return round_to_f16(splat(a))[0]; }
OPTC_INLINE float load_f16_1(const uint16_t *p) { return load_f16_n(p, 1)[0]; }
OPTC_INLINE float load_bf16_1(const uint16_t *p) { return from_bits((int32_t)((uint32_t)*p << 16)); }
OPTC_INLINE void store_f16_1(uint16_t *p, float a) { store_f16_n(p, splat(a), 1); }
OPTC_INLINE void store_bf16_1(uint16_t *p, float a) { *p = (uint16_t)f32_to_bf16_bits(splat(a))[0]; }

// --- horizontal reductions. The order is fixed: halves are folded until four lanes are left, then (0+2)+(1+3).
OPTC_INLINE float reduce_sum(vf a) {
#if OPTC_VW >= 8
  vfh lo, hi;
  memcpy(&lo, &a, sizeof lo);
  memcpy(&hi, (const char *)&a + sizeof lo, sizeof hi);
  const vfh s = lo + hi;
#if OPTC_VW == 16
  typedef float v4 __attribute__((vector_size(16)));
  v4 l, h;
  memcpy(&l, &s, 16);
  memcpy(&h, (const char *)&s + 16, 16);
  const v4 q = l + h;
#else
  const vfh q = s;
#endif
#else
  const vf q = a;
#endif
  return (q[0] + q[2]) + (q[1] + q[3]);
}
// Each lane i gets lane i ^ D.
template <int D, class V>
OPTC_INLINE V exchanged(V a) {
#if defined(__clang__)  // which makes a shuffle of it itself
  V r;
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) r[i] = a[i ^ D];
  return r;
#else
  vi from = {};
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) from[i] = i ^ D;
  return __builtin_shuffle(a, from);
#endif
}
// The greatest or the least lane, which all lanes get; V: vf or vi.
template <bool Greatest, class V>
OPTC_INLINE V reduce_extreme(V a) {
  const auto of = [](V x, V y) OPTC_LAMBDA { return Greatest ? max(x, y) : min(x, y); };
#if OPTC_VW >= 16
  a = of(a, exchanged<8>(a));
#endif
#if OPTC_VW >= 8
  a = of(a, exchanged<4>(a));
#endif
  a = of(a, exchanged<2>(a));
  return of(a, exchanged<1>(a));
}
OPTC_INLINE float reduce_max(vf a) { return reduce_extreme<true>(a)[0]; }
OPTC_INLINE float reduce_min(vf a) { return reduce_extreme<false>(a)[0]; }
OPTC_INLINE float reduce_mul(vf a) {
  float t[OPTC_VW];
  memcpy(t, &a, sizeof a);
  OPTC_UNROLL for (int half = OPTC_VW / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) t[i] *= t[i + half];
  }
  return t[0];
}
OPTC_INLINE int32_t reduce_sum(vi a) {
  uint32_t r = 0;
  OPTC_UNROLL for (int i = 0; i < OPTC_VW; ++i) r += (uint32_t)a[i];
  return (int32_t)r;
}
OPTC_INLINE float reduce_sum(float a) { return a; }
OPTC_INLINE float reduce_max(float a) { return a; }
OPTC_INLINE float reduce_min(float a) { return a; }

#endif  // OPTC_CPU_SIMD_H
