#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace tandem {

// The state of one run().  `ticket` holds the task in its upper half and the next unit of it in the lower
// one, so one atomic addition claims a unit of a definite task.
struct ThreadPool::Context {
  std::span<const Task> tasks;
  Priority priority;
  std::atomic<uint64_t> ticket{0};
  std::atomic<int64_t> done{0};  // units of the current task that have ended
  int helpers = 0;               // pool threads inside, under the lock

  static constexpr uint64_t kUnitMask = 0xffffffffu;
  size_t task_of(uint64_t t) const { return static_cast<size_t>(t >> 32); }
  bool finished() const { return task_of(ticket.load(std::memory_order_acquire)) == tasks.size(); }
  void start(size_t task) {
    while (task < tasks.size() && tasks[task].units == 0) ++task;
    done.store(0, std::memory_order_relaxed);
    ticket.store(static_cast<uint64_t>(task) << 32, std::memory_order_release);
  }
};

namespace {

// How long an idle thread looks for the next context before it sleeps: longer than it takes to build a
// segment's graph, shorter than anybody would notice.
constexpr auto kIdleSpin = std::chrono::microseconds(100);
constexpr int kSpinsBeforeYield = 2000;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) : n_threads_(n_threads) {
  TANDEM_CHECK(n_threads >= 1);
  for (int i = 1; i < n_threads; ++i) threads_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed();
  }
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::changed() {
  epoch_.fetch_add(1, std::memory_order_release);
  wake_.notify_all();
}

ThreadPool::Context* ThreadPool::first() const {
  Context* best = nullptr;
  for (Context* c : contexts_) {
    if (!c->finished() && (!best || c->priority > best->priority)) best = c;
  }
  return best;
}

void ThreadPool::help(Context& c, int thread, uint32_t epoch) {
  int idle = 0;
  while (epoch_.load(std::memory_order_acquire) == epoch) {
    uint64_t ticket = c.ticket.load(std::memory_order_acquire);
    if (c.task_of(ticket) == c.tasks.size()) return;
    const auto units_left = [&](uint64_t t) {
      return static_cast<int64_t>(t & Context::kUnitMask) < c.tasks[c.task_of(t)].units;
    };
    if (!units_left(ticket)) {  // others are in the last units of this task
      if (++idle < kSpinsBeforeYield) {
        pause_cpu();
      } else {
        sched_yield();
      }
      continue;
    }
    ticket = c.ticket.fetch_add(1, std::memory_order_acq_rel);
    if (c.task_of(ticket) == c.tasks.size()) return;
    if (!units_left(ticket)) continue;
    idle = 0;
    const Task& task = c.tasks[c.task_of(ticket)];
    task.run(task.arg, static_cast<int64_t>(ticket & Context::kUnitMask), thread);
    if (c.done.fetch_add(1, std::memory_order_acq_rel) + 1 == task.units) c.start(c.task_of(ticket) + 1);
  }
}

void ThreadPool::run(std::span<const Task> tasks, Priority priority) {
  for (const Task& t : tasks) TANDEM_CHECK(t.units >= 0 && t.units < INT32_MAX);
  Context c{.tasks = tasks, .priority = priority};
  c.start(0);
  std::unique_lock lock(mutex_);
  contexts_.push_back(&c);
  changed();
  while (!c.finished()) {
    if (first() != &c) {
      wake_.wait(lock);
      continue;
    }
    const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
    lock.unlock();
    help(c, 0, epoch);
    lock.lock();
  }
  contexts_.erase(std::find(contexts_.begin(), contexts_.end(), &c));
  changed();
  while (c.helpers > 0) wake_.wait(lock);
}

void ThreadPool::work(int thread) {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    Context* c = first();
    const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
    if (!c) {
      lock.unlock();
      const auto until = std::chrono::steady_clock::now() + kIdleSpin;
      while (epoch_.load(std::memory_order_acquire) == epoch && std::chrono::steady_clock::now() < until)
        pause_cpu();
      lock.lock();
      while (epoch_.load(std::memory_order_relaxed) == epoch && !stop_) wake_.wait(lock);
      continue;
    }
    ++c->helpers;
    lock.unlock();
    help(*c, thread, epoch);
    lock.lock();
    if (--c->helpers == 0) wake_.notify_all();
  }
}

int default_threads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace tandem
