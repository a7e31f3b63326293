// dot_i8.h: what products of bytes are made of. Included inside an instruction-set namespace (foreach_isa.h).
#ifndef OPTC_CPU_DOT_I8_H
#define OPTC_CPU_DOT_I8_H
#include "runtime/cpu/simd.h"

OPTC_INLINE vi quad(const uint8_t *p) {  // four bytes of A in each lane
  int32_t bytes;
  memcpy(&bytes, p, 4);
  return splat_i(bytes);
}
typedef int16_t vi16w __attribute__((vector_size(OPTC_VW * 4)));  // pairs of int16 in int32 lanes
typedef uint16_t vu16w __attribute__((vector_size(OPTC_VW * 4)));
// acc + the two products of each lane.
OPTC_INLINE vi madd_i16(vi a, vi b, vi acc) {
#if OPTC_X86
#if OPTC_VW == 4
  const vi sum = (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif OPTC_VW == 8
  const vi sum = (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  const vi sum = (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#endif
#else
  const vi sum = ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
  return (vi)((vu)acc + (vu)sum);
}
#endif  // OPTC_CPU_DOT_I8_H
