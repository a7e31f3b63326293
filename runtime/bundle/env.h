// env.h: what a kernel sees of its run: the threads, row scratch and the place to report a fault of the model.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace optc {

struct Env {
  void (*parallel_for)(void *pool, int64_t tasks, void (*task)(void *, int64_t),
                       void *argument) = nullptr;  // null: one thread
  void *pool = nullptr;
  int64_t threads = 1;
  uint8_t *scratch = nullptr;  // threads * scratch_stride bytes, 64-byte aligned
  size_t scratch_stride = 0;
  int32_t *fault = nullptr;  // becomes the number of the first place at which an index left its dimension
};

// An index that the model computes: 0 <= value < extent, else the run fails (and goes on with 0 meanwhile).
static inline __attribute__((unused)) int64_t checked(const Env &env, int64_t value, int64_t extent, int32_t place) {
  if (__builtin_expect(value >= 0 && value < extent, 1)) return value;
  __atomic_store_n(env.fault, place, __ATOMIC_RELAXED);
  return 0;
}

// Runs body(begin, end, scratch) over parts of [0, count). Parts begin at multiples of `grain` and hold at least one
// grain of work; the body's iterations are independent, so the result is the same for any number of threads.
template <class Body>
static inline __attribute__((unused)) void parallel(const Env &env, int64_t count, int64_t grain, const Body &body) {
  if (grain < 1) grain = 1;
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t tasks = grains < env.threads ? grains : env.threads;
  if (count <= 0) return;
  if (tasks <= 1 || !env.parallel_for) {
    body(int64_t{0}, count, env.scratch);
    return;
  }
  struct Shared {
    const Env &env;
    const Body &body;
    int64_t count, grain, grains, tasks;
  } shared{env, body, count, grain, grains, tasks};
  env.parallel_for(
      env.pool, tasks,
      [](void *argument, int64_t task) {
        const Shared &s = *static_cast<const Shared *>(argument);
        const int64_t begin = s.grains * task / s.tasks * s.grain, end = s.grains * (task + 1) / s.tasks * s.grain;
        s.body(begin, end < s.count ? end : s.count, s.env.scratch + s.env.scratch_stride * static_cast<size_t>(task));
      },
      &shared);
}

}  // namespace optc
