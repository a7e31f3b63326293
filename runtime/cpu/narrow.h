// narrow.h: 8- and 16-bit integers in memory as int32 lanes. Included by simd.h, inside an instruction-set namespace
// (foreach_isa.h). Stores wrap. load_n and store_n touch only the first n lanes, the others load as zero.
//
// The compiler's conversions of vectors say the same in one line, but g++ 12 takes bytes apart by scalars for them.
// (Of the masks that take all lanes: g++ 12 warns of what the forms without a mask leave undefined.)
#ifndef OPTC_CPU_NARROW_H
#define OPTC_CPU_NARROW_H

#if OPTC_X86 && OPTC_VW == 16
OPTC_INLINE vi load_i8(const int8_t *p) {
  return (vi)_mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128((const __m128i *)p));
}
OPTC_INLINE vi load_u8(const uint8_t *p) {
  return (vi)_mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128((const __m128i *)p));
}
OPTC_INLINE vi load_i16(const int16_t *p) {
  return (vi)_mm512_maskz_cvtepi16_epi32(0xffff, _mm256_loadu_si256((const __m256i *)p));
}
OPTC_INLINE vi load_u16(const uint16_t *p) {
  return (vi)_mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256((const __m256i *)p));
}
OPTC_INLINE void store_u8(uint8_t *p, vi v) {
  _mm_storeu_si128((__m128i *)p, _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)v));
}
OPTC_INLINE void store_u16(uint16_t *p, vi v) {
  _mm256_storeu_si256((__m256i *)p, _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)v));
}

OPTC_INLINE __mmask16 narrow_mask(int n) { return (__mmask16)((1u << n) - 1); }
OPTC_INLINE vi load_i8_n(const int8_t *p, int n) {
  return (vi)_mm512_maskz_cvtepi8_epi32(0xffff, _mm_maskz_loadu_epi8(narrow_mask(n), p));
}
OPTC_INLINE vi load_u8_n(const uint8_t *p, int n) {
  return (vi)_mm512_maskz_cvtepu8_epi32(0xffff, _mm_maskz_loadu_epi8(narrow_mask(n), p));
}
OPTC_INLINE vi load_i16_n(const int16_t *p, int n) {
  return (vi)_mm512_maskz_cvtepi16_epi32(0xffff, _mm256_maskz_loadu_epi16(narrow_mask(n), p));
}
OPTC_INLINE vi load_u16_n(const uint16_t *p, int n) {
  return (vi)_mm512_maskz_cvtepu16_epi32(0xffff, _mm256_maskz_loadu_epi16(narrow_mask(n), p));
}
OPTC_INLINE void store_u8_n(uint8_t *p, vi v, int n) {
  _mm_mask_storeu_epi8(p, narrow_mask(n), _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)v));
}
OPTC_INLINE void store_u16_n(uint16_t *p, vi v, int n) {
  _mm256_mask_storeu_epi16(p, narrow_mask(n), _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)v));
}

#else
#if OPTC_X86 && OPTC_VW == 8
OPTC_INLINE vi load_i8(const int8_t *p) { return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
OPTC_INLINE vi load_u8(const uint8_t *p) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
OPTC_INLINE vi load_i16(const int16_t *p) { return (vi)_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p)); }
OPTC_INLINE vi load_u16(const uint16_t *p) { return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)); }
// The low bytes (halves) of either half's lanes move to its front.
OPTC_INLINE void store_u8(uint8_t *p, vi v) {
  const __m256i front = _mm256_shuffle_epi8((__m256i)v, _mm256_set1_epi32(0x0c080400));
  _mm_storel_epi64((__m128i *)p, _mm_unpacklo_epi32(_mm256_castsi256_si128(front), _mm256_extracti128_si256(front, 1)));
}
OPTC_INLINE void store_u16(uint16_t *p, vi v) {
  const __m256i front = _mm256_shuffle_epi8((__m256i)v, _mm256_set1_epi64x(0x0d0c090805040100));
  _mm_storeu_si128((__m128i *)p, _mm_unpacklo_epi64(_mm256_castsi256_si128(front), _mm256_extracti128_si256(front, 1)));
}
#elif OPTC_X86
OPTC_INLINE __m128i load_four(const void *p) {
  int32_t bytes;
  memcpy(&bytes, p, 4);
  return _mm_cvtsi32_si128(bytes);
}
OPTC_INLINE vi load_u16(const uint16_t *p) {
  return (vi)_mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)p), _mm_setzero_si128());
}
OPTC_INLINE vi load_i16(const int16_t *p) { return (vi)load_u16((const uint16_t *)p) << 16 >> 16; }
OPTC_INLINE vi load_u8(const uint8_t *p) {
  const __m128i zero = _mm_setzero_si128();
  return (vi)_mm_unpacklo_epi16(_mm_unpacklo_epi8(load_four(p), zero), zero);
}
OPTC_INLINE vi load_i8(const int8_t *p) { return load_u8((const uint8_t *)p) << 24 >> 24; }
OPTC_INLINE void store_u16(uint16_t *p, vi v) {  // sign-extended, so that packing changes none
  _mm_storel_epi64((__m128i *)p, _mm_packs_epi32((__m128i)(v << 16 >> 16), _mm_setzero_si128()));
}
OPTC_INLINE void store_u8(uint8_t *p, vi v) {
  const __m128i halves = _mm_packs_epi32((__m128i)(v & 0xff), _mm_setzero_si128());
  const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(halves, halves));
  memcpy(p, &bytes, 4);
}
#else
#define OPTC_NARROW(suffix, type)                                             \
  OPTC_INLINE vi load_##suffix(const type *p) {                               \
    typedef type vector __attribute__((vector_size(OPTC_VW * sizeof(type)))); \
    vector r;                                                                 \
    memcpy(&r, p, sizeof r);                                                  \
    return __builtin_convertvector(r, vi);                                    \
  }                                                                           \
  OPTC_INLINE void store_##suffix(type *p, vi v) {                            \
    typedef type vector __attribute__((vector_size(OPTC_VW * sizeof(type)))); \
    const vector r = __builtin_convertvector(v, vector);                      \
    memcpy(p, &r, sizeof r);                                                  \
  }
OPTC_NARROW(i8, int8_t)
OPTC_NARROW(u8, uint8_t)
OPTC_NARROW(i16, int16_t)
OPTC_NARROW(u16, uint16_t)
#undef OPTC_NARROW
#endif

#define OPTC_NARROW(suffix, type)                          \
  OPTC_INLINE vi load_##suffix##_n(const type *p, int n) { \
    if (n >= OPTC_VW) return load_##suffix(p);             \
    type t[OPTC_VW] = {};                                  \
    for (int i = 0; i < n; ++i) t[i] = p[i];               \
    return load_##suffix(t);                               \
  }
OPTC_NARROW(i8, int8_t)
OPTC_NARROW(u8, uint8_t)
OPTC_NARROW(i16, int16_t)
OPTC_NARROW(u16, uint16_t)
#undef OPTC_NARROW
#define OPTC_NARROW(suffix, type)                             \
  OPTC_INLINE void store_##suffix##_n(type *p, vi v, int n) { \
    if (n >= OPTC_VW) return store_##suffix(p, v);            \
    type t[OPTC_VW];                                          \
    store_##suffix(t, v);                                     \
    for (int i = 0; i < n; ++i) p[i] = t[i];                  \
  }
OPTC_NARROW(u8, uint8_t)
OPTC_NARROW(u16, uint16_t)
#undef OPTC_NARROW
#endif

#if OPTC_X86  // the same bits
OPTC_INLINE void store_i8(int8_t *p, vi v) { store_u8((uint8_t *)p, v); }
OPTC_INLINE void store_i16(int16_t *p, vi v) { store_u16((uint16_t *)p, v); }
#endif
OPTC_INLINE void store_i8_n(int8_t *p, vi v, int n) { store_u8_n((uint8_t *)p, v, n); }
OPTC_INLINE void store_i16_n(int16_t *p, vi v, int n) { store_u16_n((uint16_t *)p, v, n); }
#endif  // OPTC_CPU_NARROW_H
