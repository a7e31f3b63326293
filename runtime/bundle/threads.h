// threads.h: the thread pool of a context.
#pragma once
#include "runtime/cpu/thread_pool.h"

namespace optc {

using ThreadPool = optc_runtime::ThreadPool;

static inline int processor_count() {
  static const int count = optc_runtime::default_threads();
  return count;
}
static inline ThreadPool *thread_pool_create(int threads) { return new (std::nothrow) ThreadPool(threads); }
static inline void thread_pool_destroy(ThreadPool *pool) { delete pool; }
static inline void thread_pool_run(void *pool, int64_t tasks, void (*task)(void *, int64_t), void *argument) {
  ThreadPool::run(pool, tasks, task, argument);
}

}  // namespace optc
