#include "runtime/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

using optc_runtime::ThreadPool;

namespace {

struct Counts {
  std::vector<std::atomic<int>> runs;
  explicit Counts(int64_t n) : runs(n) {}
  static void task(void *argument, int64_t t) { ++static_cast<Counts *>(argument)->runs[t]; }
};

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t tasks : {0, 1, 2, 3, 7, 64, 1001}) {
      for (int repeat = 0; repeat < 50; ++repeat) {
        Counts counts(tasks);
        pool.parallel_for(tasks, Counts::task, &counts);
        for (int64_t t = 0; t < tasks; ++t) ASSERT_EQ(counts.runs[t], 1) << t << " of " << tasks << " on " << threads;
      }
    }
  }
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(4);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far longer than a worker spins
    Counts counts(16);
    pool.parallel_for(16, Counts::task, &counts);
    for (auto &c : counts.runs) ASSERT_EQ(c, 1);
  }
}

TEST(ThreadPool, NestedAndConcurrentCallsRunInTheirThread) {
  ThreadPool pool(3);
  struct Nested {
    ThreadPool *pool;
    Counts counts{100};
    static void outer(void *argument, int64_t t) {
      auto *self = static_cast<Nested *>(argument);
      struct Inner {
        Nested *nested;
        int64_t base;
      } inner{self, t * 10};
      self->pool->parallel_for(
          10,
          [](void *a, int64_t i) { ++static_cast<Inner *>(a)->nested->counts.runs[static_cast<Inner *>(a)->base + i]; },
          &inner);
    }
  } nested{&pool};
  pool.parallel_for(10, Nested::outer, &nested);
  for (auto &c : nested.counts.runs) EXPECT_EQ(c, 1);

  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 200; ++repeat) {
        Counts counts(9);
        ThreadPool::run(&pool, 9, Counts::task, &counts);
        for (auto &c : counts.runs) wrong += c != 1;
      }
    });
  for (auto &c : callers) c.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, DefaultIsWithinTheMachine) {
  EXPECT_GE(optc_runtime::default_threads(), 1);
  EXPECT_LE(optc_runtime::default_threads(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
