// run.h: what one run of a bundle holds, and what kernels may ask of it: its inputs and outputs, the arena and the row
// scratch, memory that grows as the data says, and the first error. M is the struct of a model (model.h).
#pragma once
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <initializer_list>

#include "runtime/bundle/env.h"
#include "runtime/bundle/place.h"
#include "runtime/bundle/scalar.h"
#include "runtime/bundle/threads.h"
#include "runtime/bundle/weights.h"
#include "runtime/optc.h"

namespace optc {

static inline __attribute__((unused)) size_t element_bits(int32_t type) {
  switch (type) {
    case 1:
    case 6:
    case 12:
      return 32;
    case 7:
    case 11:
    case 13:
    case 14:
      return 64;
    case 8:  // optc_string
    case 15:
      return 128;
    case 4:
    case 5:
    case 10:
    case 16:
      return 16;
    case 21:
    case 22:
    case 23:
      return 4;
    case 25:
    case 26:
      return 2;
    default:
      return 8;
  }
}
static inline __attribute__((unused)) size_t tensor_bytes(int32_t type, int64_t count) {
  return (static_cast<size_t>(count) * element_bits(type) + 7) / 8;
}
static inline __attribute__((unused)) int64_t count_of(const optc_tensor &t) {
  int64_t n = 1;
  for (int32_t k = 0; k < t.rank; ++k) n = times(n, t.dims[k]);
  return n;
}

// What an output whose size the data decides needs at most: of its dims, those in `open` are upper bounds. A bound that
// no caller should provide memory for (a Slice to INT_MAX has one) is none: those dims are -1, and the run says what it
// needs.
static inline __attribute__((unused)) void bound_output(optc_tensor &t, std::initializer_list<int> open) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  const int64_t count = count_of(t);
  t.needed_bytes = count <= kMostBytes ? tensor_bytes(t.type, count) : 0;
  if (count <= kMostBytes && t.needed_bytes <= static_cast<size_t>(kMostBytes)) return;
  t.needed_bytes = 0;
  for (const int axis : open) t.dims[axis] = -1;
}

// Slices of `bytes` each, collected one behind the other, laid along an axis of `to` before which `before` rows stand.
static inline __attribute__((unused)) void place_slices(void *to, const void *from, int64_t length, int64_t before,
                                                        int64_t bytes, bool reverse) {
  const int64_t row = before > 0 ? bytes / before : 0;
  for (int64_t s = 0; s < length; ++s)
    for (int64_t b = 0; b < before; ++b)
      memcpy(static_cast<uint8_t *>(to) + (b * length + (reverse ? length - 1 - s : s)) * row,
             static_cast<const uint8_t *>(from) + s * bytes + b * row, static_cast<size_t>(row));
}

struct NoObjects {
  void *take(size_t) { return nullptr; }
  void reset() {}
  void release() {}
};

constexpr size_t kErrorSize = 512;
static inline char *thread_error() {
  static thread_local char text[kErrorSize];
  return text;
}

// Bytes of a pattern behind the row scratch of each task and behind the arena, in bundles that are watched (probe.h):
// what a kernel writes there it writes beyond its memory. 0 in others.
template <class M, class = void>
struct GuardBytes {
  static constexpr int64_t value = 0;
};
template <class M>
struct GuardBytes<M, decltype(void(M::kProbeDims))> {
  static constexpr int64_t value = 64;
};
constexpr int kGuardPattern = 0xA5;

template <class M>
struct Run {
  using Model = M;
  static constexpr int64_t kGuard = GuardBytes<M>::value;
  Env env;
  typename M::Dims dims{};
  optc_tensor inputs[M::kInputs ? M::kInputs : 1];
  optc_value *outputs = nullptr;
  const optc_value *given = nullptr;  // the caller's inputs
  typename M::Objects objects;
  void *device = nullptr;  // cuda::Session, where kernels on a GPU take part (mixed.h)
  const uint8_t *weights_data = nullptr;
  uint8_t *arena = nullptr;
  int64_t capacities[M::kStates + 1] = {};             // of the states that grow: steps along their axis
  int64_t offsets[M::kPlaced + M::kScratch + 1] = {};  // of the placed buffers, then of the row scratch
  int64_t scratch_stride[M::kScratch + 1] = {};
  int64_t arena_bytes = 0;       // without the guard behind it
  bool guarded_scratch = false;  // the pattern stands behind env.scratch
  void *grown[M::kGrowing ? M::kGrowing : 1] = {};
  size_t grown_bytes[M::kGrowing ? M::kGrowing : 1] = {};
  int32_t fault = 0;
  int32_t cancelled = 0;
  bool profiling = false;
  int32_t current = -1;  // the kernel whose time is taken
  int32_t running = -1;  // the kernel that runs
  double started = 0;
  double nanoseconds[M::kKernels ? M::kKernels : 1] = {};
  uint64_t calls[M::kKernels ? M::kKernels : 1] = {};
  optc_status status = OPTC_OK;
  char *error = nullptr;

  template <class T>
  const T *input(size_t i) const {
    return static_cast<const T *>(inputs[i].data);
  }
  template <class T>
  T *output(size_t i) const {
    return static_cast<T *>(outputs[i].tensor.data);
  }
  template <class T>
  const T *weight(int64_t offset) const {
    return reinterpret_cast<const T *>(weights_data + offset);
  }
  template <class T>
  T *at(int64_t offset) const {
    return reinterpret_cast<T *>(arena + offset);
  }
  // Lays out the arena for the dims (M::laid_out) and that many threads; returns its bytes.
  size_t lay_out(int64_t threads) {
    int64_t scratch[M::kScratch + 1];
    const typename M::Dims &most_dims = M::laid_out(dims);
    M::scratch(most_dims, scratch_stride);
    for (size_t i = 0; i < M::kScratch; ++i) {
      scratch_stride[i] = (scratch_stride[i] + 63) / 64 * 64 + kGuard;
      scratch[i] = scratch_stride[i] * threads;
    }
    arena_bytes = M::plan(most_dims, threads, scratch, offsets);
    if constexpr (M::kRanged) {
      // Where the largest sizes lie, smaller ones have their places too: no dims take more memory than that.
      int64_t others[M::kPlaced + M::kScratch + 1];
      const int64_t most = lay_out_largest(threads, others);
      if (most < arena_bytes) {
        arena_bytes = most;
        memcpy(offsets, others, sizeof offsets);
      }
    }
    return static_cast<size_t>(arena_bytes + kGuard);
  }
  // The bytes of the arena with the most that each size takes over the ranges of the dims, and where things lie in it.
  static int64_t lay_out_largest(int64_t threads, int64_t *places) {
    int64_t scratch[M::kScratch + 1];
    M::largest_scratch(scratch);
    for (size_t i = 0; i < M::kScratch; ++i) scratch[i] = ((scratch[i] + 63) / 64 * 64 + kGuard) * threads;
    return M::plan_largest(scratch, places);
  }
  // The most that any dims take, or -1 where there is no such number.
  int64_t largest_arena(int64_t threads) {
    if constexpr (M::kRanged) {
      int64_t places[M::kPlaced + M::kScratch + 1];
      return lay_out_largest(threads, places) + kGuard;
    }
    return M::open_dims ? -1 : static_cast<int64_t>(lay_out(threads));
  }
  // Where a kernel that has just run wrote beyond its memory, else null. Forgets it.
  const char *overrun() {
    const bool scratch = guarded_scratch && !guards(false), arena_end = !guard(arena + arena_bytes, false);
    guarded_scratch = false;
    guard(arena + arena_bytes, true);
    return scratch ? "writes beyond the row scratch of a task" : arena_end ? "writes beyond the arena" : nullptr;
  }
  // Writes the pattern, or says whether it is there.
  static bool guard(uint8_t *at, bool write) {
    bool whole = true;
    for (int64_t i = 0; i < kGuard; ++i) {
      if (write) at[i] = kGuardPattern;
      whole = whole && at[i] == kGuardPattern;
    }
    return whole;
  }
  bool guards(bool write) {
    bool whole = true;
    for (int64_t t = 1; t <= env.threads && kGuard > 0; ++t)
      whole = guard(env.scratch + t * static_cast<int64_t>(env.scratch_stride) - kGuard, write) && whole;
    guarded_scratch = kGuard > 0;
    return whole;
  }
  // The row scratch of the next kernel.
  void use_scratch(size_t i) {
    env.scratch = arena + offsets[M::kPlaced + i];
    env.scratch_stride = static_cast<size_t>(scratch_stride[i]);
    guards(true);
  }
  // The same with a size that was found while the model runs.
  bool grow_scratch(size_t slot, int64_t bytes) {
    env.scratch_stride = (static_cast<size_t>(bytes) + 63) / 64 * 64 + static_cast<size_t>(kGuard);
    env.scratch = grow<uint8_t>(slot, static_cast<int64_t>(env.scratch_stride) * env.threads);
    if (env.scratch) guards(true);
    return env.scratch != nullptr;
  }
  // A buffer of the growing region: keeps its memory between runs.
  template <class T>
  T *grow(size_t slot, int64_t bytes) {
    if (static_cast<size_t>(bytes) > grown_bytes[slot] || !grown[slot]) {
      const size_t wanted = (static_cast<size_t>(bytes) + 127) / 64 * 64;
      free(grown[slot]);
      grown[slot] = aligned_alloc(64, wanted);
      grown_bytes[slot] = grown[slot] ? wanted : 0;
      if (!grown[slot]) no_memory(wanted);
    }
    return static_cast<T *>(grown[slot]);
  }

  // The same, keeping the first `kept` bytes.
  template <class T>
  T *extend(size_t slot, int64_t kept, int64_t bytes) {
    if (static_cast<size_t>(bytes) <= grown_bytes[slot] && grown[slot]) return static_cast<T *>(grown[slot]);
    const size_t wanted = (static_cast<size_t>(bytes) * 2 + 127) / 64 * 64;
    void *larger = aligned_alloc(64, wanted);
    if (!larger) {
      no_memory(wanted);
      return nullptr;
    }
    if (grown[slot] && kept) memcpy(larger, grown[slot], static_cast<size_t>(kept));
    free(grown[slot]);
    grown[slot] = larger;
    grown_bytes[slot] = wanted;
    return static_cast<T *>(larger);
  }

  void no_memory(size_t bytes) {
    fail(OPTC_OUT_OF_MEMORY, "kernel '%s': out of memory: %s%zu bytes", running >= 0 ? M::kernel_names[running] : "",
         bytes >= static_cast<size_t>(kTooLarge) ? "more than " : "", bytes);
  }
  optc_status fail(optc_status code, const char *format, ...) __attribute__((format(printf, 3, 4))) {
    va_list list;
    va_start(list, format);
    vsnprintf(error, kErrorSize, format, list);
    va_end(list);
    return status = code;
  }
  // An output's dims, once they are known. False: the caller's memory is too small (needed_bytes says how much).
  bool set_output(size_t i, std::initializer_list<int64_t> dims_list) {
    optc_tensor &t = outputs[i].tensor;
    t.type = M::outputs[i].type;
    t.rank = static_cast<int32_t>(dims_list.size());
    int32_t k = 0;
    for (int64_t d : dims_list) t.dims[k++] = d;
    t.needed_bytes = tensor_bytes(t.type, count_of(t));
    if (t.capacity_bytes >= t.needed_bytes && (t.data || t.needed_bytes == 0)) return true;
    fail(OPTC_BUFFER_TOO_SMALL, "output '%s' needs %zu bytes, its buffer has %zu", M::outputs[i].name, t.needed_bytes,
         t.data ? t.capacity_bytes : static_cast<size_t>(0));
    return false;
  }
  // Before each kernel. True: stop and return `status`.
  bool step(int32_t kernel) {
    running = kernel;
    if (profiling) {
      timespec now;
      clock_gettime(CLOCK_MONOTONIC, &now);
      const double t = 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
      if (current >= 0) nanoseconds[current] += t - started, ++calls[current];
      current = kernel;
      started = t;
    }
    if (status != OPTC_OK) return true;
    if (__atomic_load_n(&fault, __ATOMIC_RELAXED)) {
      fail(OPTC_MODEL_FAULT, "%s", M::faults[fault]);
      return true;
    }
    if (__atomic_load_n(&cancelled, __ATOMIC_RELAXED)) {
      fail(OPTC_CANCELLED, "cancelled");
      return true;
    }
    return false;
  }
};

}  // namespace optc
