// lib_util.h: what the library operators share: reading attributes, elements of any type, errors, a stable sort.
#pragma once
#include <stdlib.h>
#include <string.h>

#include "lib.h"

static inline int64_t optc_lib_count(const OptcLibTensor *t) {
  int64_t n = 1;
  for (int32_t k = 0; k < t->rank; ++k) n *= t->dims[k];
  return n;
}
static inline int optc_lib_fault(OptcLibCall *call, const char *text) {
  size_t k = 0;
  for (; text[k] && k + 1 < sizeof call->error; ++k) call->error[k] = text[k];
  call->error[k] = 0;
  return 3;  // OPTC_MODEL_FAULT
}
static inline int optc_lib_out_of_memory(OptcLibCall *call) { return optc_lib_fault(call, "out of memory"), 4; }
static inline int64_t optc_lib_int_attribute(const OptcLibCall *call, const char *name, int64_t fallback) {
  const OptcLibAttribute *a = optc_lib_attribute(call, name);
  return a ? a->i : fallback;
}
static inline float optc_lib_float_attribute(const OptcLibCall *call, const char *name, float fallback) {
  const OptcLibAttribute *a = optc_lib_attribute(call, name);
  return a ? a->f : fallback;
}
static inline const char *optc_lib_string_attribute(const OptcLibCall *call, const char *name, const char *fallback) {
  const OptcLibAttribute *a = optc_lib_attribute(call, name);
  return a && a->s ? a->s : fallback;
}
static inline int64_t optc_lib_lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int optc_lib_same(const char *a, const char *b) { return strcmp(a, b) == 0; }
// Input i, or null when it is absent.
static inline const OptcLibTensor *optc_lib_input(const OptcLibCall *call, size_t i) {
  return i < call->input_count && call->inputs[i].type != 0 ? &call->inputs[i] : nullptr;
}
static inline OptcLibTensor *optc_lib_output(const OptcLibCall *call, size_t i) {
  return i < call->output_count && call->outputs[i].type != 0 ? &call->outputs[i] : nullptr;
}

// Bytes of one element; 0 for packed and unknown types.
static inline size_t optc_lib_element_size(int32_t type) {
  switch (type) {
    case 1:
    case 6:
    case 12:
      return 4;
    case 7:
    case 11:
    case 13:
    case 14:
      return 8;
    case 4:
    case 5:
    case 10:
    case 16:
      return 2;
    case 2:
    case 3:
    case 9:
    case 17:
    case 18:
    case 19:
    case 20:
    case 24:
      return 1;
    case 8:
      return sizeof(OptcLibString);
    case 15:
      return 16;
    default:
      return 0;
  }
}

static inline float optc_lib_half(uint16_t h) {
  const uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = (h >> 10) & 31, mantissa = h & 1023;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent) {
    bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = (float)mantissa * 5.9604644775390625e-8f;
    return sign ? -magnitude : magnitude;
  }
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
static inline float optc_lib_bfloat(uint16_t h) {
  const uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
// Round to nearest even, as ONNX's Cast.
static inline uint16_t optc_lib_to_half(float f) {
  uint32_t x;
  memcpy(&x, &f, 4);
  const uint16_t sign = (uint16_t)((x >> 16) & 0x8000u);
  x &= 0x7fffffffu;
  if (x > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (x >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
  if (x < 0x38800000u) {  // below the smallest normal half: a multiple of 2^-24
    float magnitude;
    memcpy(&magnitude, &x, 4);
    magnitude += 0.5f;  // the unit in the last place of [0.5, 1) is 2^-24
    memcpy(&x, &magnitude, 4);
    return (uint16_t)(sign | (x - 0x3f000000u));
  }
  const uint32_t odd = (x >> 13) & 1;
  x += 0xfffu + odd;
  return (uint16_t)(sign | ((x - 0x38000000u) >> 13));
}
static inline uint16_t optc_lib_to_bfloat(float f) {
  uint32_t x;
  memcpy(&x, &f, 4);
  if ((x & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((x >> 16) | 0x40u);
  x += 0x7fffu + ((x >> 16) & 1);
  return (uint16_t)(x >> 16);
}

// Element i as double (exact for all but the large 64-bit integers) or as int64 (floats truncate).
static inline double optc_lib_double(const OptcLibTensor *t, int64_t i) {
  switch (t->type) {
    case 1:
      return ((const float *)t->data)[i];
    case 2:
    case 9:
      return ((const uint8_t *)t->data)[i];
    case 3:
      return ((const int8_t *)t->data)[i];
    case 4:
      return ((const uint16_t *)t->data)[i];
    case 5:
      return ((const int16_t *)t->data)[i];
    case 6:
      return ((const int32_t *)t->data)[i];
    case 7:
      return (double)((const int64_t *)t->data)[i];
    case 10:
      return optc_lib_half(((const uint16_t *)t->data)[i]);
    case 11:
      return ((const double *)t->data)[i];
    case 12:
      return ((const uint32_t *)t->data)[i];
    case 13:
      return (double)((const uint64_t *)t->data)[i];
    case 16:
      return optc_lib_bfloat(((const uint16_t *)t->data)[i]);
    default:
      return 0;
  }
}
static inline int64_t optc_lib_int_at(const OptcLibTensor *t, int64_t i) {
  if (t->type == 7) return ((const int64_t *)t->data)[i];
  if (t->type == 13) return (int64_t)((const uint64_t *)t->data)[i];
  return (int64_t)optc_lib_double(t, i);
}
// Stores a value as the tensor's type: floats round, integers truncate (the caller keeps them in range).
static inline void optc_lib_set(const OptcLibTensor *t, int64_t i, double v) {
  switch (t->type) {
    case 1:
      ((float *)t->data)[i] = (float)v;
      break;
    case 2:
      ((uint8_t *)t->data)[i] = (uint8_t)v;
      break;
    case 9:
      ((uint8_t *)t->data)[i] = v != 0;
      break;
    case 3:
      ((int8_t *)t->data)[i] = (int8_t)v;
      break;
    case 4:
      ((uint16_t *)t->data)[i] = (uint16_t)v;
      break;
    case 5:
      ((int16_t *)t->data)[i] = (int16_t)v;
      break;
    case 6:
      ((int32_t *)t->data)[i] = (int32_t)v;
      break;
    case 7:
      ((int64_t *)t->data)[i] = (int64_t)v;
      break;
    case 10:
      ((uint16_t *)t->data)[i] = optc_lib_to_half((float)v);
      break;
    case 11:
      ((double *)t->data)[i] = v;
      break;
    case 12:
      ((uint32_t *)t->data)[i] = (uint32_t)v;
      break;
    case 13:
      ((uint64_t *)t->data)[i] = (uint64_t)v;
      break;
    case 16:
      ((uint16_t *)t->data)[i] = optc_lib_to_bfloat((float)v);
      break;
    default:
      break;
  }
}
static inline int optc_lib_is_int(int32_t type) { return (type >= 2 && type <= 7) || type == 12 || type == 13; }
// Stores an integer modulo the range of the tensor's type, which is one of integers.
static inline void optc_lib_set_wrapped(const OptcLibTensor *t, int64_t i, uint64_t v) {
  const size_t size = optc_lib_element_size(t->type);
  memcpy((char *)t->data + (size_t)i * size, &v, size);  // little-endian, as all that optc compiles for
}
// Element j of `from`, of the same type; j < 0: 0, or the empty string.
static inline void optc_lib_copy_element(const OptcLibTensor *to, int64_t i, const OptcLibTensor *from, int64_t j) {
  const size_t size = optc_lib_element_size(to->type);
  char *target = (char *)to->data + (size_t)i * size;
  if (j >= 0)
    memcpy(target, (const char *)from->data + (size_t)j * size, size);
  else if (to->type == 8)
    ((OptcLibString *)to->data)[i] = OptcLibString{"", 0};
  else
    memset(target, 0, size);
}

static inline int optc_lib_compare_strings(const OptcLibString *a, const OptcLibString *b) {
  const size_t n = a->size < b->size ? a->size : b->size;
  const int c = n ? memcmp(a->data, b->data, n) : 0;
  return c ? c : a->size < b->size ? -1 : a->size > b->size;
}
// For tables of a power of two: its low bits depend on all of h.
static inline uint64_t optc_lib_spread(uint64_t h) {
  h *= 0x9e3779b97f4a7c15u;
  return h ^ h >> 32;
}
static inline uint64_t optc_lib_hash_text(const OptcLibString *s) {  // FNV-1a
  uint64_t h = 0;
  for (size_t k = 0; k < s->size; ++k) h = (h ^ (unsigned char)s->data[k]) * 0x100000001b3u;
  return h;
}
// -1, 0, 1; NaN is larger than everything and equal to itself.
static inline int optc_lib_compare(const OptcLibTensor *t, int64_t i, int64_t j) {
  if (t->type == 8) {
    const int c = optc_lib_compare_strings((const OptcLibString *)t->data + i, (const OptcLibString *)t->data + j);
    return c < 0 ? -1 : c > 0;
  }
  if (t->type == 7) {
    const int64_t a = ((const int64_t *)t->data)[i], b = ((const int64_t *)t->data)[j];
    return a < b ? -1 : a > b;
  }
  if (t->type == 13) {
    const uint64_t a = ((const uint64_t *)t->data)[i], b = ((const uint64_t *)t->data)[j];
    return a < b ? -1 : a > b;
  }
  const double a = optc_lib_double(t, i), b = optc_lib_double(t, j);
  if (a != a || b != b) return (a != a) - (b != b);
  return a < b ? -1 : a > b;
}

// Stable merge sort of n indices; `scratch` holds n more. less(user, i, j): whether i comes before j.
static inline void optc_lib_sort(int64_t *index, int64_t *scratch, int64_t n,
                                 int (*before)(const void *, int64_t, int64_t), const void *user) {
  for (int64_t width = 1; width < n; width *= 2) {
    for (int64_t low = 0; low < n; low += 2 * width) {
      const int64_t middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n;
      int64_t a = low, b = middle, to = low;
      while (a < middle && b < high) scratch[to++] = before(user, index[b], index[a]) ? index[b++] : index[a++];
      while (a < middle) scratch[to++] = index[a++];
      while (b < high) scratch[to++] = index[b++];
    }
    memcpy(index, scratch, (size_t)n * sizeof *index);
  }
}
// Sets the dims of an output and gives it memory; false: none.
static inline int optc_lib_allocate(OptcLibCall *call, size_t output, int32_t rank, const int64_t *dims) {
  OptcLibTensor *t = &call->outputs[output];
  t->rank = rank;
  size_t count = 1;
  for (int32_t k = 0; k < rank; ++k) t->dims[k] = dims[k], count *= (size_t)dims[k];
  if (!t->data) t->data = call->allocate(call->user, output, count * optc_lib_element_size(t->type) + 1);
  return t->data != nullptr;
}
