// thread_pool.h: a persistent pool that runs the tasks of one kernel at a time.
//
// Tasks are divided statically: of n threads (the caller is the first), thread i runs tasks [tasks * i / n, tasks * (i
// + 1) / n), so a thread meets the same weights in every run. Only the threads that get tasks are woken. A worker spins
// for about 40 microseconds after its last task, then sleeps (futex on Linux, a condition variable elsewhere). There is
// no queue, no stealing and no allocation in a run. A call from inside a task, or while another thread is in
// parallel_for, runs its tasks in the calling thread.
#pragma once
#include <stdint.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#if defined(__linux__)
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace optc_runtime {

static inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// A counter that one thread advances and one other waits for. Alone on its cache lines (two: the prefetcher fetches
// pairs).
struct alignas(128) Signal {
  std::atomic<uint32_t> word{0};
  std::atomic<uint32_t> asleep{0};
#if !defined(__linux__)
  std::mutex mutex;
  std::condition_variable condition;
#endif

  void set(uint32_t value) {
#if defined(__linux__)
    word.store(value, std::memory_order_seq_cst);
    if (asleep.load(std::memory_order_seq_cst)) syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
#else
    {
      std::lock_guard<std::mutex> lock(mutex);
      word.store(value, std::memory_order_seq_cst);
    }
    condition.notify_one();
#endif
  }
  // Returns once the word differs from `seen`.
  void wait_while(uint32_t seen) {
    if (word.load(std::memory_order_acquire) != seen) return;
    const auto start = std::chrono::steady_clock::now();
    do {
      for (int i = 0; i < 64; ++i) {
        if (word.load(std::memory_order_acquire) != seen) return;
        cpu_relax();
      }
    } while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(40));
#if defined(__linux__)
    asleep.store(1, std::memory_order_seq_cst);
    while (word.load(std::memory_order_seq_cst) == seen)
      syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    asleep.store(0, std::memory_order_relaxed);
#else
    std::unique_lock<std::mutex> lock(mutex);
    condition.wait(lock, [&] { return word.load(std::memory_order_seq_cst) != seen; });
#endif
  }
};

class ThreadPool {
 public:
  using Task = void (*)(void *argument, int64_t task);

  // `threads` counts the caller. Fewer run when the system gives no more.
  explicit ThreadPool(int threads) {
    if (threads <= 1) return;
    workers_ = new (std::nothrow) Worker[static_cast<size_t>(threads - 1)];
    if (!workers_) return;
    for (int i = 0; i < threads - 1; ++i) {
      try {
        workers_[i].thread = std::thread([this, i] { work(i); });
      } catch (...) {
        break;
      }
      ++worker_count_;
    }
  }
  ~ThreadPool() {
    stop_ = true;
    for (int i = 0; i < worker_count_; ++i) workers_[i].go.set(workers_[i].epoch + 1);
    for (int i = 0; i < worker_count_; ++i) workers_[i].thread.join();
    delete[] workers_;
  }
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  int threads() const { return worker_count_ + 1; }

  // Runs task(argument, i) for every i in [0, tasks); returns when all are done.
  void parallel_for(int64_t tasks, Task task, void *argument) {
    const int64_t parts = tasks < threads() ? tasks : threads();
    if (parts <= 1 || busy_.exchange(true, std::memory_order_acquire)) {
      for (int64_t t = 0; t < tasks; ++t) task(argument, t);
      return;
    }
    task_ = task, argument_ = argument, tasks_ = tasks, parts_ = parts;
    for (int64_t i = 0; i < parts - 1; ++i) workers_[i].go.set(++workers_[i].epoch);
    for (int64_t t = 0; t < tasks / parts; ++t) task(argument, t);
    for (int64_t i = 0; i < parts - 1; ++i) workers_[i].done.wait_while(workers_[i].epoch - 1);
    busy_.store(false, std::memory_order_release);
  }

  // The same, with the signature of optc_options::parallel_for (runtime/optc.h).
  static void run(void *pool, int64_t tasks, Task task, void *argument) {
    static_cast<ThreadPool *>(pool)->parallel_for(tasks, task, argument);
  }

 private:
  struct Worker {
    Signal go, done;
    uint32_t epoch = 0;  // written by the caller only
    std::thread thread;
  };

  void work(int index) {
    Worker &self = workers_[index];
    for (uint32_t seen = 0;;) {
      self.go.wait_while(seen);
      ++seen;
      if (stop_) return;
      const int64_t part = index + 1, begin = tasks_ * part / parts_, end = tasks_ * (part + 1) / parts_;
      for (int64_t t = begin; t < end; ++t) task_(argument_, t);
      self.done.set(seen);
    }
  }

  Worker *workers_ = nullptr;
  int worker_count_ = 0;
  std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
  Task task_ = nullptr;
  void *argument_ = nullptr;
  int64_t tasks_ = 0, parts_ = 1;
};

// Physical cores that this process may use: its affinity mask, siblings counted once, and no more than a container's
// CPU quota.
static inline int default_threads() {
#if defined(__linux__)
  cpu_set_t set;
  int cores = 0;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &set)) continue;
      char path[96];
      snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
      int first = cpu;  // counted when no sibling of a lower number is ours
      if (FILE *file = fopen(path, "r")) {
        if (fscanf(file, "%d", &first) != 1) first = cpu;
        fclose(file);
      }
      if (first == cpu || first < 0 || first >= CPU_SETSIZE || !CPU_ISSET(first, &set)) ++cores;
    }
  }
  if (cores < 1) cores = 1;
  if (FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r")) {
    double quota, period;
    if (fscanf(file, "%lf %lf", &quota, &period) == 2 && period > 0 && quota / period < cores)
      cores = quota / period < 1 ? 1 : static_cast<int>(quota / period);
    fclose(file);
  }
  return cores;
#else
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
#endif
}

}  // namespace optc_runtime
