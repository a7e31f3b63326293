// lib_text.h: strings in operators that otherwise take numbers: Cast from and to strings, Equal and Where of strings,
// MurmurHash3.
#pragma once
#include <stdio.h>

#include "lib_util.h"

// The element of `t` that broadcasts to element i (row-major) of a tensor of the given dims.
static inline int64_t optc_lib_broadcast_at(const OptcLibTensor *t, const OptcLibTensor *out, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int32_t k = out->rank - 1; k >= 0; --k) {
    const int64_t index = i % out->dims[k];
    i /= out->dims[k];
    const int32_t own = k - (out->rank - t->rank);
    if (own < 0) continue;
    if (t->dims[own] != 1) at += index * stride;
    stride *= t->dims[own];
  }
  return at;
}

// inputs: A, B (strings that broadcast). Output 0: bool.
static inline int optc_lib_string_equal(OptcLibCall *call) {
  const OptcLibTensor *a = &call->inputs[0], *b = &call->inputs[1], *y = &call->outputs[0];
  const int64_t n = optc_lib_count(y);
  for (int64_t i = 0; i < n; ++i) {
    const OptcLibString *s = (const OptcLibString *)a->data + optc_lib_broadcast_at(a, y, i);
    const OptcLibString *t = (const OptcLibString *)b->data + optc_lib_broadcast_at(b, y, i);
    ((uint8_t *)y->data)[i] = optc_lib_compare_strings(s, t) == 0;
  }
  return 0;
}

// inputs: condition (bool), X, Y (strings). Output 0: strings.
static inline int optc_lib_string_where(OptcLibCall *call) {
  const OptcLibTensor *c = &call->inputs[0];
  OptcLibTensor *y = &call->outputs[0];
  int64_t dims[OPTC_LIB_MAX_RANK];
  memcpy(dims, y->dims, sizeof dims);
  if (!optc_lib_allocate(call, 0, y->rank, dims)) return optc_lib_out_of_memory(call);
  const int64_t n = optc_lib_count(y);
  for (int64_t i = 0; i < n; ++i) {
    const OptcLibTensor *from = &call->inputs[((const uint8_t *)c->data)[optc_lib_broadcast_at(c, y, i)] ? 1 : 2];
    ((OptcLibString *)y->data)[i] = ((const OptcLibString *)from->data)[optc_lib_broadcast_at(from, y, i)];
  }
  return 0;
}

static inline int optc_lib_fits(const char *text, int single, double v) {
  return single ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v;
}
// The shortest text that reads back as the number, as NumPy writes it: at least one digit behind the point, an exponent
// of two digits outside 1e-4 .. 1e16. Gives the length.
static inline size_t optc_lib_write_float(char *text, size_t size, double v, int single) {
  if (v != v) return (size_t)snprintf(text, size, "nan");
  if (v - v != 0) return (size_t)snprintf(text, size, v > 0 ? "inf" : "-inf");
  int digits = 1;
  do snprintf(text, size, "%.*e", digits - 1, v);
  while (!optc_lib_fits(text, single, v) && ++digits <= 17);
  const char *e = strchr(text, 'e');
  const int exponent = (int)strtol(e + 1, NULL, 10);
  if (v != 0 && (exponent < -4 || exponent >= 16)) return strlen(text);
  return (size_t)snprintf(text, size, "%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, v);
}

// input: a tensor; output 0: the same elements as strings, or numbers read from strings. Attribute to: the element
// type.
static inline int optc_lib_string_cast(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0];
  OptcLibTensor *y = &call->outputs[0];
  const int64_t n = optc_lib_count(x);
  char text[64];
  if (y->type != 8) {
    for (int64_t i = 0; i < n; ++i) {
      const OptcLibString *s = (const OptcLibString *)x->data + i;
      const size_t size = s->size < sizeof text - 1 ? s->size : sizeof text - 1;
      memcpy(text, s->data, size);
      text[size] = 0;
      char *end = text;
      if (y->type == 7) {
        ((int64_t *)y->data)[i] = strtoll(text, &end, 10);
      } else if (y->type == 13) {
        ((uint64_t *)y->data)[i] = strtoull(text, &end, 10);
      }
      if (end == text || *end) {
        const double v = y->type == 1 ? (double)strtof(text, &end) : strtod(text, &end);
        if (end == text || *end) return optc_lib_fault(call, "Cast: a string is no number");
        optc_lib_set(y, i, v);
      }
    }
    return 0;
  }
  if (!optc_lib_allocate(call, 0, x->rank, x->dims)) return optc_lib_out_of_memory(call);
  for (int64_t i = 0; i < n; ++i) {
    size_t size;
    if (x->type == 9) {
      size = (size_t)snprintf(text, sizeof text, "%s", ((const uint8_t *)x->data)[i] ? "True" : "False");
    } else if (x->type == 13) {
      size = (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)((const uint64_t *)x->data)[i]);
    } else if (x->type == 1 || x->type == 10 || x->type == 16 || x->type == 11) {
      size = optc_lib_write_float(text, sizeof text, optc_lib_double(x, i), x->type != 11);
    } else {
      size = (size_t)snprintf(text, sizeof text, "%lld", (long long)optc_lib_int_at(x, i));
    }
    char *copy = (char *)call->allocate(call->user, OPTC_LIB_EXTRA, size + 1);
    if (!copy) return optc_lib_out_of_memory(call);
    memcpy(copy, text, size);
    ((OptcLibString *)y->data)[i].data = copy;
    ((OptcLibString *)y->data)[i].size = size;
  }
  return 0;
}

// MurmurHash3_x86_32, an algorithm by Austin Appleby: 32 bits that depend on all of the bytes and on the seed. Words
// are little-endian, as all that optc compiles for.
static inline uint32_t optc_lib_rotate_left(uint32_t v, int bits) { return v << bits | v >> (32 - bits); }
static inline uint32_t optc_lib_murmur_word(uint32_t word) {
  return optc_lib_rotate_left(word * 0xcc9e2d51u, 15) * 0x1b873593u;
}
static inline uint32_t optc_lib_murmur(const void *data, size_t size, uint32_t seed) {
  const unsigned char *bytes = (const unsigned char *)data;
  uint32_t h = seed, word;
  size_t at = 0;
  for (; size - at >= sizeof word; at += sizeof word) {
    memcpy(&word, bytes + at, sizeof word);
    h = optc_lib_rotate_left(h ^ optc_lib_murmur_word(word), 13) * 5 + 0xe6546b64u;
  }
  word = 0;
  for (int shift = 0; at < size; ++at, shift += 8) word |= (uint32_t)bytes[at] << shift;
  h ^= optc_lib_murmur_word(word) ^ (uint32_t)size;  // of no bytes the word is 0
  h = (h ^ h >> 16) * 0x85ebca6bu;
  h = (h ^ h >> 13) * 0xc2b2ae35u;
  return h ^ h >> 16;
}
// input: X, of numbers or strings; attribute seed, of which the low 32 bits count. Output: 32 bits for each element.
static inline int optc_lib_murmur_hash(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *y = &call->outputs[0];
  const uint32_t seed = (uint32_t)optc_lib_int_attribute(call, "seed", 0);
  const int64_t n = optc_lib_count(x);
  const size_t size = optc_lib_element_size(x->type);
  for (int64_t i = 0; i < n; ++i) {
    const OptcLibString *s = x->type == 8 ? (const OptcLibString *)x->data + i : nullptr;
    ((uint32_t *)y->data)[i] = s ? optc_lib_murmur(s->data, s->size, seed)
                                 : optc_lib_murmur((const char *)x->data + (size_t)i * size, size, seed);
  }
  return 0;
}
