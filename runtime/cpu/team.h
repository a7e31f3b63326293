// team.h: threads that go through the phases of one computation together. Included inside an instruction-set namespace
// (foreach_isa.h).
//
// A phase has as many parts as there are threads, and begins when all parts of the one before are done. Each thread has
// a part of its own, so it meets the same data in every phase. Nobody waits for a thread that has not come: those that
// are there take its parts over, so that any order of the threads, one after the other included, ends with all phases
// done.
#ifndef OPTC_CPU_TEAM_H
#define OPTC_CPU_TEAM_H

// Zeros at first. Alone on its cache lines (two: the prefetcher fetches pairs).
struct TeamPart {
  int64_t begun;     // phases of this part that a thread has taken
  int64_t finished;  // phases of it that are done
  int64_t present;   // its own thread has come
  int64_t unused[13];
};
static_assert(sizeof(TeamPart) == kOptcTeamPartBytes, "the compiler reserves memory by this size");

// The work of the thread whose part is `self`, of `count`: body(part, phase) for what it takes. Returns when all phases
// are done.
template <class Body>
static inline void team_run(TeamPart *parts, int64_t count, int64_t phases, int64_t self, const Body &body) {
  constexpr int64_t kPatience = 2000, kYield = 20000;  // pauses before a part that is late is taken; before sleeping
  const auto take = [&](int64_t i, int64_t phase) {
    int64_t expected = phase;
    if (!__atomic_compare_exchange_n(&parts[i].begun, &expected, phase + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return false;
    body(i, phase);
    __atomic_store_n(&parts[i].finished, phase + 1, __ATOMIC_RELEASE);
    return true;
  };
  __atomic_store_n(&parts[self].present, 1, __ATOMIC_RELAXED);
  for (int64_t phase = 0; phase < phases; ++phase) {
    take(self, phase);
    for (int64_t i = (self + 1) % count; i != self; i = (i + 1) % count)
      if (!__atomic_load_n(&parts[i].present, __ATOMIC_RELAXED)) take(i, phase);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t pauses = 1; __atomic_load_n(&parts[i].finished, __ATOMIC_ACQUIRE) <= phase; ++pauses) {
        if (pauses >= kPatience && take(i, phase)) break;
        if (pauses % kYield == 0)
          optc_yield();
        else
          optc_pause();
      }
  }
}
#endif  // OPTC_CPU_TEAM_H
