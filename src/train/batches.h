// Which samples go through the model together: epochs shuffled by seed, rows of an optimizer step, windows of
// tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "models/runner.h"
#include "text/samples.h"

namespace tandem {

struct BatchSettings {
  int64_t rows_per_step = 8;  // of an optimizer step, its micro-batches together
  int64_t window_tokens =
      2048;              // samples are laid side by side up to this many; a longer one has its own window
  bool packing = false;  // a row is as many samples as fit row_tokens, instead of one
  int64_t row_tokens = 2048;
  uint64_t seed = 42;
};

// The windows of one optimizer step, as indices of samples.
struct StepBatch {
  std::vector<std::vector<size_t>> windows;
  int64_t n_tokens = 0;
  int64_t n_trained = 0;
};

// The steps of an epoch: the samples in an order drawn from (seed, epoch); the last step may be short.
std::vector<StepBatch> cut_epoch(const std::vector<Sample>& samples, const BatchSettings& settings,
                                 int64_t epoch);
// All samples in their own order, cut into windows (for evaluation).
std::vector<std::vector<size_t>> cut_windows(const std::vector<Sample>& samples, int64_t window_tokens);
// Tokens of the largest of these windows.
int64_t largest_window(const std::vector<Sample>& samples, const std::vector<std::vector<size_t>>& windows);

// The tokens of a window.
Window make_window(const std::vector<Sample>& samples, const std::vector<size_t>& indices);

}  // namespace tandem
