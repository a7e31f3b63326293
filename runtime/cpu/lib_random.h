// lib_random.h: random numbers. The generator is splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", 2014): number i of a call is a function of the call's seed and i alone. With attribute seed every call
// gives the same numbers; without it each call of the process gives others.
#pragma once
#include <math.h>

#include "lib_util.h"

static inline uint64_t optc_lib_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
static inline uint64_t optc_lib_seed(const OptcLibCall *call) {
  static uint64_t calls = 0;
  const OptcLibAttribute *a = optc_lib_attribute(call, "seed");
  if (a) {
    uint32_t bits;
    memcpy(&bits, &a->f, 4);
    return optc_lib_mix(bits + 0x9e3779b97f4a7c15ull);
  }
  return optc_lib_mix(~(__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) * 0x9e3779b97f4a7c15ull));
}
// In [0, 1), multiples of 2^-24.
static inline float optc_lib_uniform(uint64_t seed, uint64_t i) {
  return (float)(optc_lib_mix(seed + (i + 1) * 0x9e3779b97f4a7c15ull) >> 40) * 0x1p-24f;
}

// No inputs; attribute seed (float, optional). Output 0: f32, any shape, uniform in [0, 1).
static inline int optc_lib_random_uniform(OptcLibCall *call) {
  const uint64_t seed = optc_lib_seed(call);
  const int64_t n = optc_lib_count(&call->outputs[0]);
  float *y = (float *)call->outputs[0].data;
  for (int64_t i = 0; i < n; ++i) y[i] = optc_lib_uniform(seed, (uint64_t)i);
  return 0;
}

// The same with the standard normal distribution (Box and Muller, 1958).
static inline int optc_lib_random_normal(OptcLibCall *call) {
  const uint64_t seed = optc_lib_seed(call);
  const int64_t n = optc_lib_count(&call->outputs[0]);
  float *y = (float *)call->outputs[0].data;
  for (int64_t i = 0; i < n; ++i) {
    const double u = 1.0 - optc_lib_uniform(seed, 2 * (uint64_t)i), v = optc_lib_uniform(seed, 2 * (uint64_t)i + 1);
    y[i] = (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
  }
  return 0;
}

// inputs: data, ratio (a float scalar, absent: 0.5), training (bool scalar, absent: false); attribute seed. Outputs:
// data with elements set to 0 with probability ratio and the others scaled by 1 / (1 - ratio); optionally the mask
// (bool) of those kept. Not training: the data.
static inline int optc_lib_dropout(OptcLibCall *call) {
  const OptcLibTensor *x = &call->inputs[0], *ratio_in = optc_lib_input(call, 1), *training = optc_lib_input(call, 2);
  OptcLibTensor *y = optc_lib_output(call, 0), *mask = optc_lib_output(call, 1);
  double ratio = ratio_in ? optc_lib_double(ratio_in, 0) : 0.5;
  if (!training || optc_lib_double(training, 0) == 0) ratio = 0;
  const uint64_t seed = optc_lib_seed(call);
  const int64_t n = optc_lib_count(x);
  for (int64_t i = 0; i < n; ++i) {
    const int keep = ratio == 0 || optc_lib_uniform(seed, (uint64_t)i) >= ratio;
    if (y) optc_lib_set(y, i, keep ? (ratio == 0 ? optc_lib_double(x, i) : optc_lib_double(x, i) / (1 - ratio)) : 0);
    if (mask) ((uint8_t *)mask->data)[i] = (uint8_t)keep;
  }
  return 0;
}
