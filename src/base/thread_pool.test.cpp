#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"

namespace tandem {
namespace {

struct Count {
  std::vector<std::atomic<int>> per_unit;
  std::atomic<int> threads_seen{0};
  explicit Count(size_t n) : per_unit(n) {}
  static void run(const void* arg, int64_t unit, int thread) noexcept {
    Count& c = *const_cast<Count*>(static_cast<const Count*>(arg));
    c.per_unit[static_cast<size_t>(unit)].fetch_add(1);
    c.threads_seen.fetch_or(1 << thread);
  }
  Task task() { return {run, this, static_cast<int64_t>(per_unit.size())}; }
};

TEST(ThreadPool, EveryUnitRunsOnce) {
  for (int n : {1, 2, 3, 8}) {
    ThreadPool pool(n);
    for (size_t units : {size_t{1}, size_t{7}, size_t{1000}}) {
      Count c(units);
      const Task task = c.task();
      pool.run({&task, 1}, Priority::Training);
      for (const auto& u : c.per_unit) EXPECT_EQ(u.load(), 1);
      EXPECT_LT(c.threads_seen.load(), 1 << n);
    }
  }
}

// A task begins when the one before it has ended on every thread.
TEST(ThreadPool, TasksFollowEachOther) {
  struct Stage {
    std::atomic<int>* done;
    int before;
    std::atomic<bool>* broken;
    static void run(const void* arg, int64_t, int) noexcept {
      const Stage& s = *static_cast<const Stage*>(arg);
      if (s.done->load() < s.before) s.broken->store(true);
      s.done->fetch_add(1);
    }
  };
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> done{0};
    std::atomic<bool> broken{false};
    constexpr int kTasks = 40, kUnits = 5;
    std::vector<Stage> stages(kTasks);
    std::vector<Task> tasks;
    for (int i = 0; i < kTasks; ++i) {
      stages[static_cast<size_t>(i)] = {&done, i * kUnits, &broken};
      tasks.push_back({Stage::run, &stages[static_cast<size_t>(i)], kUnits});
    }
    pool.run(tasks, Priority::Training);
    EXPECT_EQ(done.load(), kTasks * kUnits);
    EXPECT_FALSE(broken.load());
  }
}

TEST(ThreadPool, EmptyTasksAreSkipped) {
  ThreadPool pool(2);
  Count c(3);
  const std::vector<Task> tasks{{Count::run, nullptr, 0}, c.task(), {Count::run, nullptr, 0}};
  pool.run(tasks, Priority::Training);
  for (const auto& u : c.per_unit) EXPECT_EQ(u.load(), 1);
  pool.run({}, Priority::Serving);
}

TEST(ThreadPool, SeveralCallersAtOnce) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&pool, &wrong, i] {
      for (int round = 0; round < 100; ++round) {
        Count c(16);
        const Task task = c.task();
        pool.run({&task, 1}, i % 2 ? Priority::Serving : Priority::Training);
        for (const auto& u : c.per_unit) wrong += u.load() != 1;
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

// While a serving step is in flight no training unit is begun: at most the units that were running go on.
TEST(ThreadPool, ServingGoesFirst) {
  constexpr int kThreads = 2;
  ThreadPool pool(kThreads);
  static std::atomic<bool> serving, stop;
  static std::atomic<int> begun_while_serving, training_units;
  serving = stop = false;
  begun_while_serving = training_units = 0;
  const auto train = [](const void*, int64_t, int) noexcept {
    if (stop) return;
    training_units.fetch_add(1);
    if (serving) begun_while_serving.fetch_add(1);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  const auto serve = [](const void*, int64_t, int) noexcept {
    serving = true;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  // The step's last unit lowers the flag itself: its caller may be descheduled after the step has ended.
  const auto serve_last = [](const void*, int64_t, int) noexcept { serving = false; };
  std::thread trainer([&] {
    const Task task{train, nullptr, 1'000'000};
    pool.run({&task, 1}, Priority::Training);
  });
  while (training_units < 10) std::this_thread::yield();
  for (int step = 0; step < 20; ++step) {
    // Several tasks, so that threads run dry between them and would take training units if they might.
    std::vector<Task> tasks(8, Task{serve, nullptr, 1});
    tasks.push_back({serve_last, nullptr, 1});
    pool.run(tasks, Priority::Serving);
  }
  const int before = training_units;
  while (training_units < before + 10) std::this_thread::yield();  // training goes on afterwards
  stop = true;
  trainer.join();
  // A unit that each thread had claimed just before a step may still see the flag that its first unit sets.
  EXPECT_LE(begun_while_serving.load(), 20 * kThreads);
}

TEST(ThreadPool, AtLeastOneThread) { EXPECT_THROW(ThreadPool(0), Error); }

}  // namespace
}  // namespace tandem
