// Interleaved timing: every round runs the machine's loops and then each contender once, with each number of
// threads, so that what is compared was measured within the same second.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/cpu/cpu_backend.h"
#include "exec/cpu/machine_peaks.h"
#include "ops/work.h"

namespace tandem {

// Median and extremes; of an even number the mean of the middle two.
struct Spread {
  double median = 0, lo = 0, hi = 0;
};
Spread spread_of(std::vector<double> values);

// A number of threads to measure with.
struct Machine {
  Machine(int n_threads, IsaLevel level) : pool(n_threads), backend(pool, level) {}
  ThreadPool pool;
  CpuBackend backend;
};

class Machines {
 public:
  // Throws: Unsupported for a level this machine lacks, OutOfMemory.
  Machines(const std::vector<int>& thread_counts, IsaLevel level);

  size_t size() const { return all_.size(); }
  Machine& operator[](size_t i) const { return *all_[i]; }
  IsaLevel level() const { return peaks_.level(); }
  const MachinePeaks& peaks() const { return peaks_; }
  int max_threads() const;
  // The largest need of a graph over all thread counts.
  MemoryNeed plan(const Graph& graph, int n_nodes) const;

 private:
  std::vector<std::unique_ptr<Machine>> all_;
  MachinePeaks peaks_;
};

// "1,2" as numbers; without a text: 1, and one per processor.  Throws: Usage.
std::vector<int> parse_thread_counts(const std::string& list);

// What is timed.
struct Contender {
  std::function<void(Machine& machine)> run;
  std::function<void(int64_t time)> prepare = {};  // before each run, not timed; `time` counts the runs
};

// What a contender took with one machine, by round.
struct Series {
  std::vector<double> seconds;  // of one run
  int64_t n_runs = 0;           // of a round
};

struct RoundSettings {
  int64_t n_rounds = 5;
  double sample_seconds = 2e-3;  // a round repeats shorter runs until this time is filled
};

struct Measured {
  std::vector<std::vector<Peaks>> peaks;    // [machine][round]
  std::vector<std::vector<Series>> series;  // [machine][contender]
};

// Runs each contender once with each machine to warm up, then the rounds.
Measured measure(const Machines& machines, std::span<const Contender> contenders,
                 const RoundSettings& settings);

// The least time that work takes at these peaks: of every node the longer of its products and its bytes.
struct Bound {
  double seconds = 0;
  const char* by = "";  // what most of it is: "int8 dot", "bf16 dot", "f32 FMA" or "copy"
};
Bound bound_of(std::span<const Work> nodes, const Peaks& peaks);

// The median of every peak over the rounds.
Peaks median_peaks(std::span<const Peaks> rounds);

}  // namespace tandem
