#include "app/bench/rounds.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tandem {
namespace {

Code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.code();
  }
  ADD_FAILURE() << "accepted";
  return Code::Internal;
}

TEST(Spread, IsMedianAndExtremes) {
  const Spread odd = spread_of({5, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.lo, 1);
  EXPECT_EQ(odd.hi, 5);
  EXPECT_EQ(spread_of({4, 1, 2, 8}).median, 3);
  EXPECT_EQ(spread_of({7}).median, 7);
}

TEST(ThreadCounts, AreAListOrOneAndAll) {
  EXPECT_EQ(parse_thread_counts("3"), std::vector{3});
  EXPECT_EQ(parse_thread_counts("4,1,2"), (std::vector{4, 1, 2}));
  const std::vector<int> usual = parse_thread_counts("");
  EXPECT_EQ(usual.front(), 1);
  EXPECT_EQ(usual.back(), default_threads());
  for (const char* bad : {"0", "-1", "x", "1,", ",1", "1,,2", "1 2", "1,1", "9999"})
    EXPECT_EQ(code_of([&] { parse_thread_counts(bad); }), Code::Usage) << bad;
}

TEST(Bound, IsTheLongerOfProductsAndBytesOfEachNode) {
  const Peaks peaks{.fma_f32 = 100, .dot_bf16 = 200, .dot_int8 = 400, .copy = 10};
  const Work products{.operations = 400, .bytes = 1, .precision = Precision::F32},
      in_bf16{.operations = 400, .bytes = 1, .precision = Precision::BF16},
      in_int8{.operations = 400, .bytes = 1, .precision = Precision::Int8},
      moves{.operations = 1, .bytes = 70, .precision = Precision::BF16};
  EXPECT_DOUBLE_EQ(bound_of({&in_int8, 1}, peaks).seconds, 1);
  EXPECT_STREQ(bound_of({&in_int8, 1}, peaks).by, "int8 dot");
  EXPECT_DOUBLE_EQ(bound_of({&products, 1}, peaks).seconds, 4);
  EXPECT_DOUBLE_EQ(bound_of({&in_bf16, 1}, peaks).seconds, 2);
  EXPECT_DOUBLE_EQ(bound_of({&moves, 1}, peaks).seconds, 7);
  const Work all[] = {products, in_bf16, moves};
  EXPECT_DOUBLE_EQ(bound_of(all, peaks).seconds, 13);
  EXPECT_STREQ(bound_of(all, peaks).by, "copy");
  EXPECT_STREQ(bound_of({all, 2}, peaks).by, "f32 FMA");
  EXPECT_STREQ(bound_of({all + 1, 1}, peaks).by, "bf16 dot");
  const Peaks no_bf16{.fma_f32 = 100, .copy = 10};
  EXPECT_DOUBLE_EQ(bound_of({&in_bf16, 1}, no_bf16).seconds, 4);
  EXPECT_STREQ(bound_of({&in_bf16, 1}, no_bf16).by, "f32 FMA");
  EXPECT_DOUBLE_EQ(bound_of({&in_int8, 1}, no_bf16).seconds, 4);
  EXPECT_STREQ(bound_of({&in_int8, 1}, no_bf16).by, "f32 FMA");
}

TEST(Rounds, EveryMachineRunsEveryContenderInEveryRound) {
  const Machines machines({1, 2}, IsaLevel::base);
  EXPECT_EQ(machines.max_threads(), 2);
  std::vector<int> threads;
  std::vector<int64_t> prepared;
  int64_t n_short = 0;
  const Contender contenders[] = {
      {.run = [&](Machine& m) { threads.push_back(m.pool.n_threads()); },
       .prepare = [&](int64_t time) { prepared.push_back(time); }},
      {.run = [&](Machine&) { ++n_short; }},
  };
  const Measured m = measure(machines, contenders, {.n_rounds = 3, .sample_seconds = 0});
  // Each once to warm up, then three rounds in turn.
  EXPECT_EQ(threads, (std::vector{1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(prepared, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(n_short, 8);
  ASSERT_EQ(m.peaks.size(), 2u);
  ASSERT_EQ(m.series.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(m.peaks[i].size(), 3u);
    ASSERT_EQ(m.series[i].size(), 2u);
    EXPECT_EQ(m.series[i][0].seconds.size(), 3u);
    EXPECT_EQ(m.series[i][0].n_runs, 1);
  }
  // Runs that are too short to be timed are repeated.
  const Measured repeated = measure(machines, {contenders + 1, 1}, {.n_rounds = 1, .sample_seconds = 1e-3});
  EXPECT_GT(repeated.series[0][0].n_runs, 1);
}

}  // namespace
}  // namespace tandem
