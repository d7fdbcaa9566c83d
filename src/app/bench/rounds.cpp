#include "app/bench/rounds.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

namespace tandem {
namespace {

constexpr int64_t kMaxRuns = 10'000;  // of a contender in a round
constexpr int kMaxThreads = 1024;

double timed(const Contender& c, Machine& machine, int64_t& time) {
  if (c.prepare) c.prepare(time++);
  const auto start = std::chrono::steady_clock::now();
  c.run(machine);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  TANDEM_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

Machines::Machines(const std::vector<int>& thread_counts, IsaLevel level) : peaks_(level) {
  for (int n : thread_counts) all_.push_back(std::make_unique<Machine>(n, level));
}

int Machines::max_threads() const {
  int most = 1;
  for (const auto& m : all_) most = std::max(most, m->pool.n_threads());
  return most;
}

MemoryNeed Machines::plan(const Graph& graph, int n_nodes) const {
  MemoryNeed most;
  for (const auto& m : all_) {
    const MemoryNeed need = m->backend.plan(graph, n_nodes);
    if (need.total() > most.total()) most = need;
  }
  return most;
}

std::vector<int> parse_thread_counts(const std::string& list) {
  if (list.empty()) return default_threads() > 1 ? std::vector{1, default_threads()} : std::vector{1};
  std::vector<int> counts;
  const char *at = list.data(), *end = at + list.size();
  while (true) {
    int n = 0;
    const auto [next, error] = std::from_chars(at, end, n);
    if (error != std::errc() || n < 1 || n > kMaxThreads || (next != end && *next != ',')) {
      fail(Code::Usage, "--threads takes numbers from 1 to {}, such as 1,2, not '{}'", kMaxThreads, list);
    }
    if (std::find(counts.begin(), counts.end(), n) != counts.end()) {
      fail(Code::Usage, "--threads names {} twice", n);
    }
    counts.push_back(n);
    if (next == end) return counts;
    at = next + 1;
  }
}

Measured measure(const Machines& machines, std::span<const Contender> contenders,
                 const RoundSettings& settings) {
  Measured m;
  m.peaks.resize(machines.size());
  m.series.assign(machines.size(), std::vector<Series>(contenders.size()));
  std::vector<int64_t> times(contenders.size(), 0);
  for (size_t i = 0; i < machines.size(); ++i) {
    for (size_t c = 0; c < contenders.size(); ++c) {
      const double seconds = timed(contenders[c], machines[i], times[c]);
      const double fill = std::ceil(settings.sample_seconds / std::max(seconds, 1e-9));
      m.series[i][c].n_runs = static_cast<int64_t>(std::clamp(fill, 1.0, static_cast<double>(kMaxRuns)));
    }
  }
  for (int64_t round = 0; round < settings.n_rounds; ++round) {
    for (size_t i = 0; i < machines.size(); ++i) {
      m.peaks[i].push_back(machines.peaks().measure(machines[i].pool));
      for (size_t c = 0; c < contenders.size(); ++c) {
        Series& s = m.series[i][c];
        double seconds = 0;
        for (int64_t run = 0; run < s.n_runs; ++run) seconds += timed(contenders[c], machines[i], times[c]);
        s.seconds.push_back(seconds / static_cast<double>(s.n_runs));
      }
    }
  }
  return m;
}

Bound bound_of(std::span<const Work> nodes, const Peaks& peaks) {
  struct Part {
    const char* name;
    double seconds;
  };
  Part f32{"f32 FMA", 0}, bf16{"bf16 dot", 0}, int8{"int8 dot", 0}, copy{"copy", 0};
  for (const Work& w : nodes) {
    const bool in_int8 = w.precision == Precision::Int8 && peaks.dot_int8 > 0;
    const bool in_bf16 = w.precision == Precision::BF16 && peaks.dot_bf16 > 0;
    const double peak = in_int8 ? peaks.dot_int8 : in_bf16 ? peaks.dot_bf16 : peaks.fma_f32;
    const double products = w.operations / peak, moved = w.bytes / peaks.copy;
    if (products < moved) {
      copy.seconds += moved;
    } else {
      (in_int8 ? int8 : in_bf16 ? bf16 : f32).seconds += products;
    }
  }
  const Part parts[] = {int8, bf16, f32, copy};
  const Part* most = std::max_element(std::begin(parts), std::end(parts),
                                      [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
  return {int8.seconds + bf16.seconds + f32.seconds + copy.seconds, most->name};
}

Peaks median_peaks(std::span<const Peaks> rounds) {
  const auto median = [&](double Peaks::*kind) {
    std::vector<double> values;
    for (const Peaks& p : rounds) values.push_back(p.*kind);
    return spread_of(std::move(values)).median;
  };
  return {.fma_f32 = median(&Peaks::fma_f32),
          .dot_bf16 = median(&Peaks::dot_bf16),
          .dot_int8 = median(&Peaks::dot_int8),
          .copy = median(&Peaks::copy)};
}

}  // namespace tandem
