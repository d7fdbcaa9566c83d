#include "train/batches.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace tandem {
namespace {

int64_t length(const Sample& s) { return static_cast<int64_t>(s.tokens.size()); }

int64_t n_trained(const Sample& s) { return std::count(s.trained.begin(), s.trained.end(), uint8_t{1}); }

// Groups indices in their order, a new group wherever the tokens would exceed the limit.
std::vector<std::vector<size_t>> group(const std::vector<Sample>& samples, const std::vector<size_t>& order,
                                       int64_t limit) {
  std::vector<std::vector<size_t>> groups;
  int64_t tokens = 0;
  for (size_t i : order) {
    if (groups.empty() || tokens + length(samples[i]) > limit) {
      groups.emplace_back();
      tokens = 0;
    }
    groups.back().push_back(i);
    tokens += length(samples[i]);
  }
  return groups;
}

std::vector<size_t> shuffled(size_t n, uint64_t seed, int64_t epoch) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  Rng rng(random_bits({seed, key_of("epoch order"), static_cast<uint64_t>(epoch)}));
  for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

}  // namespace

std::vector<StepBatch> cut_epoch(const std::vector<Sample>& samples, const BatchSettings& settings,
                                 int64_t epoch) {
  TANDEM_CHECK(settings.rows_per_step > 0 && settings.window_tokens > 0 && settings.row_tokens > 0);
  const std::vector<size_t> order = shuffled(samples.size(), settings.seed, epoch);
  // Without packing a row is one sample.
  const std::vector<std::vector<size_t>> rows =
      group(samples, order, settings.packing ? settings.row_tokens : 0);
  std::vector<StepBatch> steps;
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(settings.rows_per_step)) {
    const size_t last = std::min(rows.size(), first + static_cast<size_t>(settings.rows_per_step));
    StepBatch step;
    std::vector<size_t> members;
    for (size_t r = first; r < last; ++r) members.insert(members.end(), rows[r].begin(), rows[r].end());
    for (size_t i : members) {
      step.n_tokens += length(samples[i]);
      step.n_trained += n_trained(samples[i]);
    }
    step.windows = group(samples, members, settings.window_tokens);
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<std::vector<size_t>> cut_windows(const std::vector<Sample>& samples, int64_t window_tokens) {
  std::vector<size_t> order(samples.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return group(samples, order, window_tokens);
}

int64_t largest_window(const std::vector<Sample>& samples, const std::vector<std::vector<size_t>>& windows) {
  int64_t largest = 0;
  for (const std::vector<size_t>& w : windows) {
    int64_t n = 0;
    for (size_t i : w) n += length(samples[i]);
    largest = std::max(largest, n);
  }
  return largest;
}

Window make_window(const std::vector<Sample>& samples, const std::vector<size_t>& indices) {
  Window window;
  for (size_t i : indices) window.append(samples[i].tokens, samples[i].trained);
  return window;
}

}  // namespace tandem
