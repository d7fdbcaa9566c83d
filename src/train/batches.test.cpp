#include "train/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tandem {
namespace {

std::vector<Sample> samples_of(const std::vector<int>& lengths) {
  std::vector<Sample> samples;
  for (int n : lengths) {
    Sample s;
    for (int i = 0; i < n; ++i) {
      s.tokens.push_back(i);
      s.trained.push_back(i >= 2);
    }
    samples.push_back(s);
  }
  return samples;
}

TEST(Batches, EverySampleOnceAnEpochAndTheLastStepIsShort) {
  const std::vector<Sample> samples = samples_of(std::vector<int>(10, 5));
  const std::vector<StepBatch> steps = cut_epoch(samples, {.rows_per_step = 4, .window_tokens = 11}, 0);
  ASSERT_EQ(steps.size(), 3u);
  std::multiset<size_t> seen;
  for (const StepBatch& s : steps) {
    for (const auto& w : s.windows) {
      EXPECT_LE(w.size(), 2u);  // 11 tokens hold two samples of 5
      seen.insert(w.begin(), w.end());
    }
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), 10u);
  EXPECT_EQ(steps[0].n_tokens, 20);
  EXPECT_EQ(steps[0].n_trained, 12);
  EXPECT_EQ(steps[2].n_tokens, 10);
}

TEST(Batches, OrderIsDrawnFromSeedAndEpoch) {
  const std::vector<Sample> samples = samples_of(std::vector<int>(50, 3));
  const auto order = [&](uint64_t seed, int64_t epoch) {
    std::vector<size_t> all;
    for (const StepBatch& s :
         cut_epoch(samples, {.rows_per_step = 7, .window_tokens = 9, .seed = seed}, epoch)) {
      for (const auto& w : s.windows) all.insert(all.end(), w.begin(), w.end());
    }
    return all;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_FALSE(std::is_sorted(order(1, 0).begin(), order(1, 0).end()));
}

TEST(Batches, PackingFillsRows) {
  const std::vector<Sample> samples = samples_of(std::vector<int>(12, 5));
  const std::vector<StepBatch> steps =
      cut_epoch(samples, {.rows_per_step = 2, .window_tokens = 100, .packing = true, .row_tokens = 16}, 0);
  ASSERT_EQ(steps.size(), 2u);  // rows of 3 samples, 2 rows a step
  EXPECT_EQ(steps[0].windows.at(0).size(), 6u);
}

TEST(Batches, ALongSampleHasItsOwnWindow) {
  const std::vector<Sample> samples = samples_of({4, 40, 4});
  const auto windows = cut_windows(samples, 10);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(largest_window(samples, windows), 40);
}

TEST(Batches, WindowsRestartPositionsAndKeepSamplesApart) {
  const std::vector<Sample> samples = samples_of({3, 4});
  const Window w = make_window(samples, {0, 1});
  EXPECT_EQ(w.tokens, (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 3}));
  EXPECT_EQ(w.positions, (std::vector<int32_t>{0, 1, 2, 0, 1, 2, 3}));
  EXPECT_EQ(w.first_key, (std::vector<int32_t>{0, 0, 0, 3, 3, 3, 3}));
  EXPECT_EQ(w.labels, (std::vector<int32_t>{-1, 2, -1, -1, 2, 3, -1}));
  EXPECT_EQ(w.n_trained(), 3);
}

}  // namespace
}  // namespace tandem
