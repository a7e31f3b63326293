// thread_pool.h: a persistent pool that runs the tasks of one kernel at a time.
//
// Tasks are divided statically: of n threads (the caller is the first), thread i runs tasks [tasks * i / n, tasks * (i
// + 1) / n), so a thread meets the same weights in every run. Only the threads that get tasks are woken. The caller,
// when it has done its own part, takes over those that no worker has begun: it never waits for a thread that the system
// does not run. A worker spins
// for about 40 microseconds after its last task, or for 2 milliseconds between begin_run() and end_run(), where the
// next kernel is near and waking takes longer than most kernels; not so where others want the processor (Patience).
// Then it sleeps (futex on Linux, a condition variable elsewhere). There is no queue and no allocation in a run. A call
// from inside a task, or while another thread is in parallel_for, runs its tasks in the calling thread.
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

// How long threads spin. A thread that lost its processor while it spun has others beside it that want to run: for a
// while all threads then spin briefly, since who sleeps is let run when it wakes, and who spins spends its share on
// nothing.
struct alignas(128) Patience {
  std::atomic<bool> near{false};          // in a run
  std::atomic<int64_t> crowded_until{0};  // nanoseconds

  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  // Whether a thread that has spun since `start`, and before this time looked at `last`, is to go on. Nanoseconds.
  bool lasts(int64_t start, int64_t last, int64_t time) {
    constexpr int64_t kLost = 300000, kCrowded = 100000000, kBrief = 40000, kLong = 2000000;
    if (time - last > kLost) crowded_until.store(time + kCrowded, std::memory_order_relaxed);
    const bool patient = near.load(std::memory_order_relaxed) && time > crowded_until.load(std::memory_order_relaxed);
    return time - start < (patient ? kLong : kBrief);
  }
};

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
  uint32_t value() const { return word.load(std::memory_order_acquire); }
  // Returns once the word differs from `seen`.
  void wait_while(uint32_t seen, Patience &patience) {
    if (value() != seen) return;
    const int64_t start = Patience::now();
    for (int64_t last = start, time = start; patience.lasts(start, last, time); last = time, time = Patience::now())
      for (int i = 0; i < 64; ++i) {
        if (value() != seen) return;
        cpu_relax();
      }
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

  // Between these two, calls of parallel_for follow one another closely.
  void begin_run() { patience_.near.store(true, std::memory_order_relaxed); }
  void end_run() { patience_.near.store(false, std::memory_order_relaxed); }

  // Runs task(argument, i) for every i in [0, tasks); returns when all are done.
  void parallel_for(int64_t tasks, Task task, void *argument) {
    const int64_t parts = tasks < threads() ? tasks : threads();
    if (parts <= 1 || busy_.exchange(true, std::memory_order_acquire)) {
      for (int64_t t = 0; t < tasks; ++t) task(argument, t);
      return;
    }
    task_ = task, argument_ = argument, tasks_ = tasks, parts_ = parts;
    for (int64_t i = 0; i < parts - 1; ++i) workers_[i].go.set(++workers_[i].epoch);
    run_part(0);
    for (int64_t i = 0; i < parts - 1; ++i)
      if (workers_[i].take(workers_[i].epoch)) {
        run_part(i + 1);
        workers_[i].done.word.store(workers_[i].epoch, std::memory_order_relaxed);
      }
    for (int64_t i = 0; i < parts - 1; ++i)
      for (uint32_t at; (at = workers_[i].done.value()) != workers_[i].epoch;)
        workers_[i].done.wait_while(at, patience_);
    busy_.store(false, std::memory_order_release);
  }

  // The same, with the signature of optc_options::parallel_for (runtime/optc.h).
  static void run(void *pool, int64_t tasks, Task task, void *argument) {
    static_cast<ThreadPool *>(pool)->parallel_for(tasks, task, argument);
  }

 private:
  struct Worker {
    Signal go, done;                 // to the number of the call that its part belongs to, and back
    std::atomic<uint32_t> taken{0};  // the last call whose part was taken, by the worker or by the caller
    uint32_t epoch = 0;              // the calls so far; written by the caller only
    std::thread thread;

    // True for the one who is to run this worker's part of call `number`.
    bool take(uint32_t number) {
      uint32_t before = number - 1;
      return taken.compare_exchange_strong(before, number, std::memory_order_acq_rel);
    }
  };

  void run_part(int64_t part) {
    const int64_t begin = tasks_ * part / parts_, end = tasks_ * (part + 1) / parts_;
    for (int64_t t = begin; t < end; ++t) task_(argument_, t);
  }

  void work(int index) {
    Worker &self = workers_[index];
    for (uint32_t seen = 0;;) {
      self.go.wait_while(seen, patience_);
      seen = self.go.value();
      if (stop_) return;
      if (!self.take(seen)) continue;  // the caller did not wait
      run_part(index + 1);
      self.done.set(seen);
    }
  }

  Worker *workers_ = nullptr;
  int worker_count_ = 0;
  std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
  Patience patience_;
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
