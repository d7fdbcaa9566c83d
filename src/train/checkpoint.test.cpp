#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "exec/cpu/cpu_backend.h"
#include "tests/support/tiny_models.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::vector<Sample> rows(int n, int shift = 0) {
  std::vector<Sample> all;
  for (int r = 0; r < n; ++r) {
    Sample s;
    const int length = 8 + r % 5;
    for (int i = 0; i < length; ++i) {
      s.tokens.push_back(i + 2 < length ? (31 * r + 7 * i + shift) % 200 : (31 * r) % 200);
      s.trained.push_back(i + 2 >= length);
    }
    all.push_back(s);
  }
  return all;
}

SynthSettings small_sizes() {
  SynthSettings s = awkward_sizes(DType::Q8_0);
  s.n_layer = 2;
  s.n_embd = 64;
  s.n_expert = 4;
  s.n_expert_used = 2;
  s.n_ff_exp = 32;
  return s;
}

// A process that trains: its own threads and job over the shared model.
struct Process {
  Process(const Model& model, const TrainSettings& settings, int n_threads = 2,
          std::vector<Sample> train = rows(11), IsaLevel isa = best_isa())
      : pool(n_threads), cpu(pool, isa), job(model, cpu, settings, std::move(train), rows(3, 5)) {
    job.allocate(SIZE_MAX);
  }
  // Runs to the end, or until `n_steps` have been done in this process.
  JobResult run(int64_t n_steps = INT64_MAX, const std::function<void(const RunState&)>& save = {}) {
    JobCallbacks callbacks;
    callbacks.cancelled = [&] { return --n_steps == 0; };
    callbacks.save = save;
    return run_job(job, callbacks, state);
  }

  ThreadPool pool;
  CpuBackend cpu;
  TrainJob job;
  RunState state;
};

class Checkpoints : public testing::Test {
 protected:
  static TrainSettings settings() {
    TrainSettings s;
    s.rank = 2;
    s.epochs = 2;
    s.batch_rows = 2;
    s.adamw.learning_rate = 5e-3f;
    return s;
  }
  std::string file_of(const Process& p) const {
    const std::string path = dir_.file("adapter.gguf");
    export_adapter(p.job, model_, path, "adapter");
    return read_file(path, size_t{1} << 24);
  }
  // The whole run, and for every step one that is stopped there and taken up by another process with another
  // number of threads; the adapter's file and everything that is told must be the same.
  void expect_resumable(const TrainSettings& s, StopReason reason = StopReason::Finished) {
    Process whole(model_, s);
    const JobResult want = whole.run();
    ASSERT_EQ(want.reason, reason);
    const std::string want_file = file_of(whole);
    const std::string path = dir_.file("c");
    for (int64_t stop = 1; stop <= want.steps; ++stop) {
      {
        Process first(model_, s, 1);
        const JobResult stopped =
            first.run(stop, [&](const RunState& state) { write_checkpoint(path, first.job, state); });
        ASSERT_EQ(stopped.reason, StopReason::Cancelled);
        ASSERT_EQ(stopped.steps, stop);
      }
      Process second(model_, s, 3);
      const Checkpoint checkpoint = Checkpoint::open(path);
      EXPECT_EQ(checkpoint.step(), stop);
      checkpoint.require_fit(second.job);
      second.state = checkpoint.apply(second.job);
      const JobResult got = second.run();
      EXPECT_EQ(got.reason, reason) << stop;
      EXPECT_EQ(got.steps, want.steps) << stop;
      EXPECT_EQ(file_of(second), want_file) << "stopped after step " << stop;
      expect_equal(second.state, whole.state);
      ASSERT_TRUE(got.before && got.after);
      EXPECT_EQ(got.before->nll, want.before->nll);
      EXPECT_EQ(got.after->nll, want.after->nll);
      for (size_t i = 0; i < want.movements.size(); ++i)
        EXPECT_EQ(got.movements[i].b_change, want.movements[i].b_change);
      const JobNumbers a = whole.job.numbers(), b = second.job.numbers();
      EXPECT_TRUE(std::equal(a.first_moments.begin(), a.first_moments.end(), b.first_moments.begin()));
      EXPECT_TRUE(std::equal(a.second_moments.begin(), a.second_moments.end(), b.second_moments.begin()));
      EXPECT_TRUE(std::equal(a.last_good.begin(), a.last_good.end(), b.last_good.begin()));
      EXPECT_TRUE(std::equal(a.expert_tokens.begin(), a.expert_tokens.end(), b.expert_tokens.begin()));
    }
  }
  static void expect_equal(const RunState& a, const RunState& b) {
    ASSERT_EQ(a.curve.size(), b.curve.size());
    ASSERT_EQ(a.held_out.size(), b.held_out.size());
    EXPECT_EQ(std::memcmp(a.curve.data(), b.curve.data(), a.curve.size() * sizeof(CurvePoint)), 0);
    EXPECT_EQ(std::memcmp(a.held_out.data(), b.held_out.data(), a.held_out.size() * sizeof(HeldOut)), 0);
    EXPECT_EQ(a.best, b.best);
    EXPECT_EQ(a.best_values, b.best_values);
    EXPECT_EQ(a.without_gain, b.without_gain);
  }
  template <class F>
  static void refused(Code code, const std::vector<std::string>& parts, F&& f) {
    try {
      f();
      ADD_FAILURE() << "accepted, wanted: " << parts.at(0);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      for (const std::string& part : parts)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\n  wanted: " << part;
    }
  }
  // A checkpoint after `n_steps`.
  std::string checkpoint(const TrainSettings& s, int64_t n_steps) {
    const std::string path = dir_.file("c");
    Process p(model_, s);
    p.run(n_steps, [&](const RunState& state) { write_checkpoint(path, p.job, state); });
    return path;
  }

  TempDir dir_;
  Model model_ = tiny_model(dir_, "qwen3moe", small_sizes());
};

TEST_F(Checkpoints, EveryStepCanBeTheLastOfAProcess) {
  for (Precision precision : {Precision::F32, Precision::BF16}) {
    TrainSettings s = settings();
    s.precision = precision;
    s.dropout = 0.2f;
    s.warmup_steps = 3;
    s.steps_per_eval = 4;
    expect_resumable(s);
  }
}

TEST_F(Checkpoints, WithPackingAndAccumulation) {
  TrainSettings s = settings();
  s.packing = true;  // epochs of different numbers of steps
  s.max_tokens = 21;
  s.batch_rows = 1;
  s.grad_accumulation = 2;
  s.window_tokens = 24;
  s.epochs = 3;
  s.adamw.weight_decay = 0.1f;
  s.schedule.kind = ScheduleKind::Linear;
  expect_resumable(s);
}

TEST_F(Checkpoints, WithEarlyStopThatTakesTheBestBack) {
  TrainSettings s = settings();
  s.epochs = 20;
  s.adamw.learning_rate = 2e-2f;
  s.schedule.kind = ScheduleKind::Constant;
  s.steps_per_eval = 2;
  s.early_stop = 3;
  expect_resumable(s, StopReason::EarlyStop);
  Process whole(model_, s);
  whole.run();
  EXPECT_FALSE(whole.state.best_values.empty());
  EXPECT_EQ(whole.job.snapshot(), whole.state.best_values);
}

TEST_F(Checkpoints, OneStepAProcess) {
  const TrainSettings s = settings();
  Process whole(model_, s);
  const int64_t n_steps = whole.run().steps;
  const std::string want = file_of(whole), path = dir_.file("c");
  for (int64_t step = 1;; ++step) {
    Process p(model_, s);
    if (step > 1) p.state = Checkpoint::open(path).apply(p.job);
    if (step > n_steps) {
      EXPECT_EQ(p.run().reason, StopReason::Finished);
      EXPECT_EQ(file_of(p), want);
      return;
    }
    p.run(1, [&](const RunState& state) { write_checkpoint(path, p.job, state); });
  }
}

TEST_F(Checkpoints, SavedEveryNthStepBeforeItsEvaluation) {
  TrainSettings s = settings();
  s.steps_per_eval = 2;
  Process p(model_, s);
  std::vector<int64_t> saved;
  JobCallbacks callbacks;
  callbacks.save_every = 2;
  callbacks.save = [&](const RunState& state) {
    saved.push_back(p.job.steps_done());
    EXPECT_EQ(state.held_out.back().step, p.job.steps_done() - 2);
  };
  EXPECT_EQ(run_job(p.job, callbacks, p.state).steps, 12);
  EXPECT_EQ(saved, (std::vector<int64_t>{2, 4, 6, 8, 10, 12}));
}

TEST_F(Checkpoints, ANonFiniteLossAfterResumingKeepsTheLastGoodAdapter) {
  TrainSettings s = settings();
  s.adamw.learning_rate = 1e30f;
  s.warmup_steps = 0;
  s.max_grad_norm = 0;
  s.schedule.kind = ScheduleKind::Constant;
  Process whole(model_, s), first(model_, s), second(model_, s);
  EXPECT_THROW(whole.run(), Error);
  const int64_t n_steps = whole.job.steps_done();
  ASSERT_GE(n_steps, 1);
  const std::string path = dir_.file("c");
  first.run(n_steps, [&](const RunState& state) { write_checkpoint(path, first.job, state); });
  second.state = Checkpoint::open(path).apply(second.job);
  refused(Code::NonFinite, {"the loss is"}, [&] { second.run(); });
  EXPECT_EQ(second.job.snapshot(), whole.job.snapshot());
}

TEST_F(Checkpoints, AnotherRunIsRefusedWithEveryDifference) {
  const Checkpoint c = Checkpoint::open(checkpoint(settings(), 2));
  const auto differs = [&](const std::vector<std::string>& parts, auto change) {
    TrainSettings s = settings();
    change(s);
    Process p(model_, s);
    refused(Code::Usage, parts, [&] { c.require_fit(p.job); });
  };
  differs({"rank: 2 in the checkpoint, 3 now", "alpha: 4 in the checkpoint, 6 now"},
          [](TrainSettings& s) { s.rank = 3; });
  differs({"alpha: 4 in the checkpoint, 5 now"}, [](TrainSettings& s) { s.alpha = 5.f; });
  differs({"alpha: 4 in the checkpoint, 5.656"}, [](TrainSettings& s) { s.rslora = true; });
  differs({"targets: attn_q,attn_k,attn_v,attn_output in the checkpoint, attn_q now"},
          [](TrainSettings& s) { s.targets = "attn_q"; });
  differs({"seed: 42 in the checkpoint, 43 now", "order of the rows", "adapter at the start"},
          [](TrainSettings& s) { s.seed = 43; });
  differs({"steps in all: 12 in the checkpoint, 18 now"}, [](TrainSettings& s) { s.epochs = 3; });
  differs({"steps in all: 12 in the checkpoint, 13 now"}, [](TrainSettings& s) { s.iters = 13; });
  differs({"dropout: 0 in the checkpoint, 0.5 now"}, [](TrainSettings& s) { s.dropout = 0.5f; });
  differs({"learning rate: 0.005"}, [](TrainSettings& s) { s.adamw.learning_rate = 6e-3f; });
  differs({"beta1: 0.9"}, [](TrainSettings& s) { s.adamw.beta1 = 0.8f; });
  differs({"beta2: 0.999"}, [](TrainSettings& s) { s.adamw.beta2 = 0.99f; });
  differs({"eps: 1e-08"}, [](TrainSettings& s) { s.adamw.eps = 1e-6f; });
  differs({"weight decay: 0 "}, [](TrainSettings& s) { s.adamw.weight_decay = 0.1f; });
  differs({"schedule: cosine in the checkpoint, constant now"},
          [](TrainSettings& s) { s.schedule.kind = ScheduleKind::Constant; });
  differs({"lowest rate: 0 "}, [](TrainSettings& s) { s.schedule.floor = 1e-4; });
  differs({"warm-up steps: 0 in the checkpoint, 5 now"}, [](TrainSettings& s) { s.warmup_steps = 5; });
  differs({"largest gradient norm: 1 "}, [](TrainSettings& s) { s.max_grad_norm = 2.f; });
  differs({"rows of a batch: 2 in the checkpoint, 1 now", "batches of a step: 1 in the checkpoint, 2 now"},
          [](TrainSettings& s) {
            s.batch_rows = 1;
            s.grad_accumulation = 2;
          });
  differs({"packing: off in the checkpoint, on now"}, [](TrainSettings& s) { s.packing = true; });
  differs({"longest row: 2048"}, [](TrainSettings& s) { s.max_tokens = 100; });
  differs({"batch tokens: 2048"}, [](TrainSettings& s) { s.window_tokens = 16; });
  differs({"segment tokens: 512"}, [](TrainSettings& s) { s.range_tokens = 64; });
  differs({"steps between evaluations: 0 "}, [](TrainSettings& s) { s.steps_per_eval = 2; });
  differs({"early stop: 0 "}, [](TrainSettings& s) { s.early_stop = 2; });
  differs({"precision: f32 in the checkpoint, bf16 now"},
          [](TrainSettings& s) { s.precision = Precision::BF16; });

  Process other_rows(model_, settings(), 2, rows(11, 1));
  refused(Code::Usage, {"training rows: 11 rows, "}, [&] { c.require_fit(other_rows.job); });
  std::vector<Sample> other_mask = rows(11);
  other_mask[3].trained[4] = 1;
  Process masked(model_, settings(), 2, other_mask);
  refused(Code::Usage, {"training rows: 11 rows, "}, [&] { c.require_fit(masked.job); });
  if (best_isa() != IsaLevel::base) {
    Process slow(model_, settings(), 2, rows(11), IsaLevel::base);
    refused(Code::Usage, {"instruction set: ", ", base now"}, [&] { c.require_fit(slow.job); });
  }
  TempDir elsewhere;
  SynthSettings sizes = small_sizes();
  sizes.seed = 1;
  const Model other = tiny_model(elsewhere, "qwen3moe", sizes);
  Process other_base(other, settings());
  refused(Code::Usage, {"base model: " + model_.base_hash()}, [&] { c.require_fit(other_base.job); });
  Process same(model_, settings());
  c.require_fit(same.job);
}

// A file whose hash is right can still contradict itself.
TEST_F(Checkpoints, ContradictionsAreRefused) {
  const std::string good = checkpoint(settings(), 3), bad = dir_.file("bad");
  const auto broken = [&](const std::string& part, const std::string& section,
                          const std::function<std::string(std::string)>& change) {
    const CheckpointFile file = CheckpointFile::open(good);
    std::vector<CheckpointSection> sections(file.sections().begin(), file.sections().end());
    std::string changed;
    for (CheckpointSection& s : sections) {
      if (s.name != section) continue;
      changed = change({reinterpret_cast<const char*>(s.bytes.data()), s.bytes.size()});
      s.bytes = std::as_bytes(std::span(changed));
    }
    write_checkpoint_file(bad, sections);
    Process p(model_, settings());
    const std::vector<float> before = p.job.snapshot();
    refused(Code::BadData, {part}, [&] { Checkpoint::open(bad).apply(p.job); });
  };
  const auto set = [](const char* key, nlohmann::json value) {
    return [key, value](const std::string& text) {
      nlohmann::json state = nlohmann::json::parse(text);
      state[key] = value;
      return state.dump();
    };
  };
  const auto shorten = [](const std::string& text) { return text.substr(4); };
  broken("step 13 of 12", "state", set("step", 13));
  broken("step -1 of 12", "state", set("step", -1));
  broken("3 steps, 2 of the optimizer", "state", set("optimizer_steps", 2));
  broken("it says step 3 of epoch 1", "state", set("epoch", 1));
  broken("number 7 of 1", "state", set("best", 7));
  broken("no checkpoint of a training run", "state", set("step", "three"));
  broken("no checkpoint of a training run", "state", set("facts", 5));
  broken("not valid JSON", "state", [](const std::string&) { return "{"; });
  broken("section adapter has", "adapter", shorten);
  broken("section first-moments has", "first-moments", shorten);
  broken("section second-moments has", "second-moments", shorten);
  broken("section last-good-adapter has", "last-good-adapter", shorten);
  broken("section curve has", "curve", shorten);
  broken("3 steps, 2 on the loss curve", "curve", [](const std::string& t) { return t.substr(32); });
  broken("section held-out has", "held-out", shorten);
  broken("2 numbers of the best adapter", "best-adapter", [](const std::string&) { return "12345678"; });
  broken("section best-adapter has", "best-adapter", [](const std::string&) { return "123"; });
}

TEST_F(Checkpoints, TheStoreKeepsTheNewestAndPassesOverDamage) {
  const CheckpointStore store(dir_.file("run"), 2);
  EXPECT_TRUE(store.list().empty());
  EXPECT_FALSE(store.newest());
  store.prepare();
  EXPECT_FALSE(fs::exists(store.directory()));
  TrainSettings s = settings();
  s.iters = 11;
  Process p(model_, s);
  JobCallbacks callbacks;
  callbacks.save_every = 1;
  callbacks.save = [&](const RunState& state) { store.save(p.job, state); };
  run_job(p.job, callbacks, p.state);
  const auto steps = [&] {
    std::vector<int64_t> all;
    for (const CheckpointStore::Entry& e : store.list()) all.push_back(e.step);
    return all;
  };
  EXPECT_EQ(steps(), (std::vector<int64_t>{10, 11}));
  EXPECT_EQ(store.newest()->step(), 11);
  for (const char* foreign : {"checkpoint-012.tandem", "checkpoint-.tandem", "checkpoint-13",
                              "checkpoint--1.tandem", "checkpoint-14.tandem.tmp-1-1", "other"})
    write_file_atomic(store.directory() + "/" + foreign, std::string_view("x"));
  EXPECT_EQ(steps(), (std::vector<int64_t>{10, 11}));

  const std::string newest = store.list().back().path;
  fs::resize_file(newest, fs::file_size(newest) - 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(store.newest()->step(), 10);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("checkpoint-11.tandem: this checkpoint is damaged"), std::string::npos) << said;
  EXPECT_NE(said.find("the one before it is used"), std::string::npos) << said;
  fs::resize_file(store.list().front().path, 0);
  refused(Code::BadData, {"checkpoint-11.tandem", "checkpoint-10.tandem", "is whole"},
          [&] { store.newest(); });

  refused(Code::Io, {"none"}, [&] { CheckpointStore(dir_.file("none/run"), 1).prepare(); });
  write_file_atomic(dir_.file("file"), std::string_view("x"));
  refused(Code::Io, {"file"}, [&] { CheckpointStore(dir_.file("file"), 1).prepare(); });
  refused(Code::Io, {"file"}, [&] { CheckpointStore(dir_.file("file"), 1).list(); });
}

}  // namespace
}  // namespace tandem
