// Saving a checkpoint goes wrong in every way it can: the run ends with one clear error or goes on, and the
// old checkpoint or the new one loads, always.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "exec/cpu/cpu_backend.h"
#include "tests/support/faulty_files.h"
#include "tests/support/tiny_models.h"
#include "train/checkpoint.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class CheckpointFaults : public testing::Test {
 protected:
  static constexpr int64_t kSteps = 4;

  void SetUp() override {
    want_ = train(CheckpointStore(dir_.file("want"), 2), kSteps);
    train(CheckpointStore(dir_.file("first"), 2), 1);
  }

  static SynthSettings sizes() {
    SynthSettings s = awkward_sizes(DType::Q8_0);
    s.n_layer = 1;
    s.n_embd = 64;
    s.n_expert = 3;
    s.n_expert_used = 2;
    s.n_ff_exp = 32;
    return s;
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> all;
    for (int s = 0; s < 4; ++s) {
      Sample sample;
      for (int i = 0; i < 8; ++i) {
        sample.tokens.push_back((7 * i + s) % 250);
        sample.trained.push_back(i > 5);
      }
      all.push_back(sample);
    }
    return all;
  }
  // Goes on from the newest checkpoint, saves after each step, and stops when `n_steps` are done; gives the
  // adapter's numbers.
  std::vector<float> train(const CheckpointStore& store, int64_t n_steps) {
    TrainSettings s;
    s.rank = 2;
    s.iters = kSteps;
    s.batch_rows = 2;
    ThreadPool pool(1);
    CpuBackend cpu(pool, best_isa());
    TrainJob job(model_, cpu, s, samples(), {});
    job.allocate(SIZE_MAX);
    RunState state;
    if (const std::optional<Checkpoint> c = store.newest()) state = c->apply(job);
    JobCallbacks callbacks;
    callbacks.cancelled = [&] { return job.steps_done() >= n_steps; };
    callbacks.save_every = 1;
    callbacks.save = [&](const RunState& now) { store.save(job, now); };
    run_job(job, callbacks, state);
    return job.snapshot();
  }
  // A store that holds the checkpoint after step 1.
  CheckpointStore fresh_store() {
    const std::string path = dir_.file("run");
    fs::remove_all(path);
    fs::copy(dir_.file("first"), path);
    return {path, 2};
  }
  // Whatever happened, what is there is whole, and the run can be brought to its end.
  void expect_sound(const CheckpointStore& store, const std::string& what) {
    testing::internal::CaptureStderr();
    const std::optional<Checkpoint> newest = store.newest();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << what;
    ASSERT_TRUE(newest) << what;
    EXPECT_GE(newest->step(), 1) << what;
    for (const auto& entry : fs::directory_iterator(store.directory()))
      EXPECT_EQ(entry.path().extension(), ".tandem") << what << ": left behind";
    EXPECT_EQ(train(store, kSteps), want_) << what;
  }

  TempDir dir_;
  FaultyFiles files_;
  Model model_ = tiny_model(dir_, "qwen3moe", sizes());
  std::vector<float> want_;
};

TEST_F(CheckpointFaults, EveryFileOperationFailsOnce) {
  const CheckpointStore counted = fresh_store();
  faults.n_calls = 0;
  EXPECT_EQ(train(counted, kSteps), want_);
  const int n_calls = faults.n_calls;
  ASSERT_GE(n_calls, 3 * 8);
  std::vector<std::string> kinds;
  for (int error : {EIO, ENOSPC}) {
    for (int i = 0; i < n_calls; ++i) {
      const CheckpointStore store = fresh_store();
      faults.n_calls = 0;
      faults.fail_at = i;
      faults.error = error;
      testing::internal::CaptureStderr();
      bool thrown = false;
      std::string message;
      try {
        EXPECT_EQ(train(store, kSteps), want_);
      } catch (const Error& e) {
        thrown = true;
        message = e.what();
        EXPECT_EQ(e.code(), Code::Io) << message;
      }
      const std::string said = testing::internal::GetCapturedStderr();
      faults.fail_at = -1;
      const std::string what = fmt::format("{} at call {}", faults.failed, i);
      kinds.push_back(faults.failed);
      if (thrown) {
        for (const char* part : {"/checkpoint-", static_cast<const char*>(std::strerror(error)),
                                 "the checkpoint takes ", " free; ", "the last whole one is "})
          EXPECT_NE(message.find(part), std::string::npos) << what << ": " << message;
        EXPECT_EQ(said, "") << what;
      } else {
        // An old checkpoint that cannot be removed is told; closing a directory tells nothing.
        EXPECT_TRUE(faults.failed == "unlink" || faults.failed == "close") << what;
        EXPECT_EQ(said.find("cannot be removed") != std::string::npos, faults.failed == "unlink") << said;
      }
      expect_sound(store, what);
    }
  }
  for (const char* kind : {"open", "write", "fsync", "close", "rename", "unlink"})
    EXPECT_NE(std::find(kinds.begin(), kinds.end(), kind), kinds.end()) << kind;
}

TEST_F(CheckpointFaults, ShortWritesAreContinued) {
  const CheckpointStore store = fresh_store();
  faults.max_write_bytes = 100;
  EXPECT_EQ(train(store, kSteps), want_);
  faults.max_write_bytes = SIZE_MAX;
  expect_sound(store, "short writes");
}

TEST_F(CheckpointFaults, EveryAllocationOfAResumedRunFailsOnce) {
  for (int n = 0;; ++n) {
    ASSERT_LT(n, 100) << "the job never got its memory";
    const CheckpointStore store = fresh_store();
    fail_buffer_allocation_for_test(n);
    try {
      const std::vector<float> got = train(store, kSteps);
      fail_buffer_allocation_for_test(-1);
      EXPECT_EQ(got, want_);
      EXPECT_GT(n, 10);
      return;
    } catch (const Error& e) {
      fail_buffer_allocation_for_test(-1);
      EXPECT_EQ(e.code(), Code::OutOfMemory) << e.what();
    }
    expect_sound(store, fmt::format("allocation {}", n));
  }
}

// A real file system that is really full.
TEST_F(CheckpointFaults, AFullDiskIsToldAndTheOldCheckpointStays) {
  const std::string disk = dir_.file("disk");
  fs::create_directory(disk);
  const auto file_bytes = fs::file_size(CheckpointStore(dir_.file("first"), 1).list().at(0).path);
  // Room for two checkpoints and a half.
  const std::string options = fmt::format("size={}", (5 * file_bytes / 2 + 4095) / 4096 * 4096);
  if (mount("tandem-test", disk.c_str(), "tmpfs", 0, options.c_str()) != 0)
    GTEST_SKIP() << "no tmpfs of our own can be mounted here: " << std::strerror(errno);
  struct Unmount {
    const std::string& disk;
    ~Unmount() { umount2(disk.c_str(), MNT_DETACH); }
  } const unmount{disk};
  const CheckpointStore store(disk + "/run", 3);
  try {
    train(store, kSteps);
    FAIL() << "three checkpoints had room";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Io);
    for (const char* part : {"checkpoint-3.tandem", "No space left on device", "the checkpoint takes ",
                             "/run has ", "the last whole one is ", "checkpoint-2.tandem (--resume-from)"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
  EXPECT_EQ(store.list().size(), 2u);
  EXPECT_EQ(store.newest()->step(), 2);
  // One that keeps fewer has room for a while, since the old one goes once the new one is there.
  fs::remove(store.list().front().path);
  EXPECT_EQ(train(CheckpointStore(store.directory(), 1), kSteps), want_);
}

}  // namespace
}  // namespace tandem
