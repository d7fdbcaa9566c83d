// Every buffer of a training job fails once: the job is refused with the reason, and the next one works.
#include <gtest/gtest.h>

#include "exec/cpu/cpu_backend.h"
#include "tests/support/tiny_models.h"
#include "train/job.h"

namespace tandem {
namespace {

std::vector<Sample> samples() {
  std::vector<Sample> result;
  for (int s = 0; s < 4; ++s) {
    Sample sample;
    for (int i = 0; i < 40; ++i) {
      sample.tokens.push_back((7 * i + s) % 250);
      sample.trained.push_back(i > 5);
    }
    result.push_back(sample);
  }
  return result;
}

TEST(JobMemory, EachAllocationMayFail) {
  TempDir dir;
  const Model model = tiny_model(dir, "qwen3moe", awkward_sizes(DType::Q8_0));
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  TrainSettings settings;
  settings.rank = 2;
  settings.iters = 2;
  settings.range_tokens = 64;  // several ranges, so that the keys have buffers too
  int n_failures = 0;
  for (int n = 0; n < 100; ++n) {
    fail_buffer_allocation_for_test(n);
    try {
      TrainJob job(model, cpu, settings, samples(), samples());
      job.allocate(SIZE_MAX);
      fail_buffer_allocation_for_test(-1);
      const JobResult result = run_job(job, {});
      EXPECT_EQ(result.steps, 2);
      require_movement(result.movements);
      EXPECT_GT(n_failures, 10);
      return;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::OutOfMemory) << e.what();
      ++n_failures;
    }
  }
  FAIL() << "the job never got its memory";
}

TEST(JobMemory, ABudgetTooSmallSaysWhatWouldHelp) {
  TempDir dir;
  const Model model = tiny_model(dir, "qwen3moe", awkward_sizes(DType::Q8_0));
  ThreadPool pool(1);
  CpuBackend cpu(pool, best_isa());
  TrainJob job(model, cpu, {}, samples(), {});
  try {
    job.allocate(1 << 20);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::OutOfMemory);
    EXPECT_NE(std::string(e.what()).find("--memory-budget"), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
