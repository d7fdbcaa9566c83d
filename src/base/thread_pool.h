// The pool all kernels run on.  It takes several step contexts at once (a training segment, a decode step)
// and gives every thread to the one that goes first; work is claimed unit by unit, so a context in front
// waits for at most one unit of the others.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace tandem {

// Work that can be split: run(arg, unit, thread) for every unit in [0, units).  Units are about 0.1 ms.
struct Task {
  void (*run)(const void* arg, int64_t unit, int thread) noexcept;
  const void* arg;
  int64_t units;
};

enum class Priority { Training, Serving };

class ThreadPool {
 public:
  // n_threads >= 1, the caller of run() included.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return n_threads_; }

  // Runs the tasks one after the other, the units of each in any order on any thread, and returns when all
  // are done. The calling thread works along as thread 0; `thread` is below n_threads().  Several callers may
  // be inside at once: while a Serving context has work, no Training unit is begun; equal priorities go in
  // the order of arrival.
  void run(std::span<const Task> tasks, Priority priority);

 private:
  struct Context;
  void work(int thread);
  void help(Context& c, int thread, uint32_t epoch);
  Context* first() const;  // the context in front, under the lock
  void changed();          // the order of contexts has changed: everybody looks again

  const int n_threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Context*> contexts_;
  std::atomic<uint32_t> epoch_{0};
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// The number of threads worth starting on this machine: the processors this process may use.
int default_threads();

}  // namespace tandem
