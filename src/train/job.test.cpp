#include "train/job.h"

#include <gtest/gtest.h>

#include <cmath>

#include "exec/cpu/cpu_backend.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

// Rows a model can learn: the answer repeats the first token.
std::vector<Sample> echo_rows(int n, int length) {
  std::vector<Sample> rows;
  for (int r = 0; r < n; ++r) {
    Sample s;
    for (int i = 0; i < length; ++i) {
      s.tokens.push_back(i + 2 < length ? (31 * r + 7 * i) % 200 : (31 * r) % 200);
      s.trained.push_back(i + 2 >= length);
    }
    rows.push_back(s);
  }
  return rows;
}

class Job : public testing::Test {
 protected:
  TrainSettings settings() const {
    TrainSettings s;
    s.rank = 4;
    s.epochs = 2;
    s.batch_rows = 4;
    s.adamw.learning_rate = 5e-3f;
    return s;
  }
  JobResult run(const TrainSettings& s, std::vector<float>* adapter = nullptr,
                std::vector<StepReport>* steps = nullptr, int n_threads = 2) {
    ThreadPool pool(n_threads);
    CpuBackend cpu(pool, best_isa());
    TrainJob job(model_, cpu, s, echo_rows(18, 12), echo_rows(5, 12));
    job.allocate(SIZE_MAX);
    JobCallbacks callbacks;
    callbacks.on_step = [&](const StepReport& r) {
      if (steps) steps->push_back(r);
    };
    const JobResult result = run_job(job, callbacks);
    if (adapter) *adapter = job.snapshot();
    return result;
  }

  TempDir dir_;
  Model model_ = tiny_model(dir_, "qwen3moe", awkward_sizes(DType::Q8_0));
};

TEST_F(Job, LearnsAndEveryTargetMoves) {
  TrainSettings s = settings();
  s.epochs = 12;
  std::vector<StepReport> steps;
  const JobResult r = run(s, nullptr, &steps);
  ASSERT_EQ(steps.size(), 12u * 5);
  EXPECT_EQ(r.steps, 60);
  EXPECT_EQ(steps.back().step, 60);
  EXPECT_DOUBLE_EQ(steps.back().epoch, 12.0);
  ASSERT_TRUE(r.before && r.after);
  EXPECT_LT(r.after->nll, r.before->nll - 0.5);
  EXPECT_EQ(r.movements.size(), 3u * 4);
  require_movement(r.movements);
}

TEST_F(Job, IsAFunctionOfTheSeedAndNotOfTheThreads) {
  for (Precision precision : {Precision::F32, Precision::BF16}) {
    TrainSettings s = settings();
    s.precision = precision;
    s.dropout = 0.1f;
    std::vector<float> one, two, three, other;
    run(s, &one, nullptr, 1);
    run(s, &two, nullptr, 2);
    run(s, &three, nullptr, 3);
    s.seed = 43;
    run(s, &other, nullptr, 2);
    EXPECT_EQ(one, two);
    EXPECT_EQ(one, three);
    EXPECT_NE(one, other);
  }
}

// The objective is the mean over all trained tokens of the step: however it is cut, the gradient is the same.
TEST_F(Job, CuttingAStepDoesNotChangeIt) {
  TrainSettings whole = settings(), cut = settings();
  whole.batch_rows = 8;
  cut.batch_rows = 4;
  cut.grad_accumulation = 2;
  cut.window_tokens = 30;
  std::vector<StepReport> a, b;
  run(whole, nullptr, &a);
  run(cut, nullptr, &b);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a.size(), 2u * 3);  // 18 rows by 8: the last step of an epoch is short
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].n_trained_tokens, b[i].n_trained_tokens);
    EXPECT_NEAR(a[i].loss, b[i].loss, 1e-4 * a[i].loss);
    EXPECT_NEAR(a[i].grad_norm, b[i].grad_norm, 1e-3 * a[i].grad_norm);
  }
}

TEST_F(Job, PackingKeepsLossAndGradientOfASample) {
  TrainSettings plain = settings(), packed = settings();
  plain.batch_rows = 18;
  plain.epochs = packed.epochs = 1;
  packed.packing = true;
  packed.max_tokens = 40;  // rows of three samples
  packed.batch_rows = 6;
  std::vector<StepReport> a, b;
  run(plain, nullptr, &a);
  run(packed, nullptr, &b);
  ASSERT_EQ(a.size(), 1u);
  ASSERT_EQ(b.size(), 1u);
  EXPECT_EQ(a[0].n_trained_tokens, b[0].n_trained_tokens);
  EXPECT_NEAR(a[0].loss, b[0].loss, 1e-5 * a[0].loss);
  EXPECT_NEAR(a[0].grad_norm, b[0].grad_norm, 1e-4 * a[0].grad_norm);
}

TEST_F(Job, EarlyStopKeepsTheBestAdapter) {
  TrainSettings s = settings();
  s.epochs = 50;
  s.adamw.learning_rate = 0.5f;  // far too high: the first evaluations are the best
  s.steps_per_eval = 1;
  s.early_stop = 2;
  const JobResult r = run(s);
  EXPECT_EQ(r.reason, StopReason::EarlyStop);
  ASSERT_TRUE(r.after);
  EXPECT_LE(r.after->nll, r.before->nll);
}

TEST_F(Job, ANonFiniteLossStopsAtTheLastGoodState) {
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  TrainSettings s = settings();
  s.adamw.learning_rate = 1e30f;
  s.warmup_steps = 0;
  s.max_grad_norm = 0;
  s.schedule.kind = ScheduleKind::Constant;
  TrainJob job(model_, cpu, s, echo_rows(18, 12), {});
  job.allocate(SIZE_MAX);
  const std::vector<float> start = job.snapshot();
  std::vector<std::vector<float>> before_step;
  try {
    while (!job.finished()) {
      before_step.push_back(job.snapshot());
      job.step();
    }
    FAIL() << "a rate of 1e30 stayed finite";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::NonFinite);
  }
  // What remains is the last adapter whose loss was finite.
  ASSERT_GE(before_step.size(), 2u);
  EXPECT_EQ(job.snapshot(), before_step[before_step.size() - 2]);
  EXPECT_EQ(before_step[0], start);
}

TEST_F(Job, CancelledAfterAStep) {
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  TrainJob job(model_, cpu, settings(), echo_rows(18, 12), {});
  job.allocate(SIZE_MAX);
  int asked = 0;
  JobCallbacks callbacks;
  callbacks.cancelled = [&] { return ++asked == 3; };
  const JobResult r = run_job(job, callbacks);
  EXPECT_EQ(r.reason, StopReason::Cancelled);
  EXPECT_EQ(r.steps, 3);
}

TEST_F(Job, ExportReadsBack) {
  ThreadPool pool(2);
  CpuBackend cpu(pool, best_isa());
  for (bool rslora : {false, true}) {
    TrainSettings s = settings();
    s.rslora = rslora;
    s.iters = 2;
    TrainJob job(model_, cpu, s, echo_rows(18, 12), {});
    job.allocate(SIZE_MAX);
    run_job(job, {});
    const std::string path = dir_.file("adapter.gguf");
    export_adapter(job, model_, path, "test");
    const AdapterSet back = AdapterSet::load(path, model_, 1.f);
    EXPECT_EQ(std::vector<float>(back.values().begin(), back.values().end()), job.snapshot());
    // rsLoRA's alpha / sqrt(r) is what other loaders apply as alpha / r.
    EXPECT_FLOAT_EQ(back.pairs()[0].scale, rslora ? 8.f / 2.f : 8.f / 4.f);

    TrainSettings resumed = settings();
    resumed.lora_init = path;
    TrainJob again(model_, cpu, resumed, echo_rows(18, 12), {});
    EXPECT_EQ(again.snapshot(), job.snapshot());
  }
}

TEST_F(Job, SettingsOutOfRangeAreRefused) {
  ThreadPool pool(1);
  CpuBackend cpu(pool, best_isa());
  const auto refused = [&](const char* what, auto change) {
    TrainSettings s = settings();
    change(s);
    try {
      TrainJob job(model_, cpu, s, echo_rows(4, 12), {});
      ADD_FAILURE() << what;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::Usage) << what << ": " << e.what();
    }
  };
  refused("rank 0", [](TrainSettings& s) { s.rank = 0; });
  refused("nan rate", [](TrainSettings& s) { s.adamw.learning_rate = NAN; });
  refused("dropout 1", [](TrainSettings& s) { s.dropout = 1.f; });
  refused("ubatch 100", [](TrainSettings& s) { s.range_tokens = 100; });
  refused("no epochs", [](TrainSettings& s) { s.epochs = 0; });
  refused("alpha -1", [](TrainSettings& s) { s.alpha = -1.f; });
  refused("unknown target", [](TrainSettings& s) { s.targets = "attn"; });
  refused("target of another architecture", [](TrainSettings& s) { s.targets = "ssm_out"; });
}

}  // namespace
}  // namespace tandem
