#pragma once
// Timing for the kernel benches: the best of many runs, one thread.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double bench_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}
// Seconds of the fastest of the runs that fit in `budget` seconds (4 at least).
template <class F>
double bench_best(double budget, F f) {
  double best = 1e30;
  const double end = bench_now() + budget;
  for (int r = 0; r < 4 || bench_now() < end; ++r) {
    const double t = bench_now();
    f();
    const double d = bench_now() - t;
    if (d < best) best = d;
  }
  return best;
}
static inline float *bench_floats(size_t n) {
  float *p = static_cast<float *>(aligned_alloc(4096, (n * 4 + 65536 + 4095) / 4096 * 4096));
  for (size_t i = 0; i < n; ++i) p[i] = float(i % 13) * 0.1f - 0.6f;
  return p;
}
