#include "tests/support/kill_resume.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/rng.h"
#include "exec/cpu/cpu_backend.h"
#include "tests/support/tiny_models.h"
#include "train/checkpoint.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 10;
constexpr int64_t kKeep = 2;
constexpr uint64_t kCallsAhead = 40;        // a save takes about ten calls
constexpr uint64_t kMicroseconds = 60'000;  // about a life that is not cut short

// File operations that end the process at one of them.
struct Doom {
  int calls_left = -1;  // negative: never
  bool after = false;   // the operation is done (a write: half of it)
  FileOps real{};
} doom;

bool dies_now() {
  if (doom.calls_left < 0 || doom.calls_left-- > 0) return false;
  if (!doom.after) raise(SIGKILL);
  return true;
}

template <class Result>
Result survive(bool dying, Result result) {
  if (dying) raise(SIGKILL);
  return result;
}

int doomed_open(const char* path, int flags, mode_t mode) {
  const bool dying = dies_now();
  return survive(dying, doom.real.open(path, flags, mode));
}
ssize_t doomed_write(int fd, const void* data, size_t n) {
  const bool dying = dies_now();
  return survive(dying, doom.real.write(fd, data, dying ? n / 2 : n));
}
int doomed_fsync(int fd) {
  const bool dying = dies_now();
  return survive(dying, doom.real.fsync(fd));
}
int doomed_close(int fd) {
  const bool dying = dies_now();
  return survive(dying, doom.real.close(fd));
}
int doomed_rename(const char* from, const char* to) {
  const bool dying = dies_now();
  return survive(dying, doom.real.rename(from, to));
}
int doomed_unlink(const char* path) {
  const bool dying = dies_now();
  return survive(dying, doom.real.unlink(path));
}

std::vector<Sample> echo_rows() {
  std::vector<Sample> rows;
  for (int r = 0; r < 5; ++r) {
    Sample s;
    for (int i = 0; i < 10; ++i) {
      s.tokens.push_back(i < 8 ? (31 * r + 7 * i) % 200 : 31 * r);
      s.trained.push_back(i >= 8);
    }
    rows.push_back(s);
  }
  return rows;
}

// The whole of a process that trains: goes on from the newest checkpoint, saves after every step, exports.
void live(const Model& model, const CheckpointStore& store, const std::string& adapter_path, int n_threads) {
  TrainSettings s;
  s.rank = 2;
  s.iters = kSteps;
  s.batch_rows = 2;
  s.dropout = 0.1f;
  s.steps_per_eval = 3;
  s.adamw.learning_rate = 5e-3f;
  ThreadPool pool(n_threads);
  CpuBackend cpu(pool, best_isa());
  TrainJob job(model, cpu, s, echo_rows(), echo_rows());
  job.allocate(SIZE_MAX);
  store.prepare();
  remove_abandoned_temporaries(fs::path(adapter_path).parent_path(), "adapter");
  RunState state;
  if (const std::optional<Checkpoint> c = store.newest()) {
    c->require_fit(job);
    state = c->apply(job);
  }
  JobCallbacks callbacks;
  callbacks.save_every = 1;
  callbacks.save = [&](const RunState& now) { store.save(job, now); };
  run_job(job, callbacks, state);
  export_adapter(job, model, adapter_path, "adapter");
}

// Runs one life in a process of its own and gives how it ended, as waitpid() tells it.
int process_of(const Model& model, const CheckpointStore& store, const std::string& adapter_path, Rng& rng) {
  const bool at_a_call = rng.below(3) > 0;
  const int n_calls = static_cast<int>(rng.below(kCallsAhead));
  const bool after = rng.below(2) > 0;
  const auto pause = static_cast<useconds_t>(rng.below(kMicroseconds));
  const int n_threads = 1 + static_cast<int>(rng.below(3));
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      doom = {.calls_left = at_a_call ? n_calls : -1, .after = after};
      doom.real = set_file_ops_for_test(
          {doomed_open, doomed_write, doomed_fsync, doomed_close, doomed_rename, doomed_unlink});
      live(model, store, adapter_path, n_threads);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "the process failed: %s\n", e.what());
      _exit(9);
    }
    _exit(0);
  }
  if (!at_a_call) {
    usleep(pause);
    kill(pid, SIGKILL);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

int64_t n_files(const std::string& directory) {
  std::error_code none;
  const fs::directory_iterator files(directory, none);
  return std::distance(begin(files), end(files));
}

}  // namespace

void kill_and_resume(int n_kills, uint64_t seed) {
  TempDir dir;
  SynthSettings sizes = awkward_sizes(DType::Q8_0);
  sizes.n_layer = 2;
  sizes.n_embd = 64;
  sizes.n_expert = 4;
  sizes.n_expert_used = 2;
  sizes.n_ff_exp = 32;
  const Model model = tiny_model(dir, "qwen3moe", sizes);
  const std::string adapter_path = dir.file("adapter.gguf");
  constexpr size_t kMaxBytes = size_t{1} << 24;
  live(model, CheckpointStore(dir.file("uninterrupted"), kKeep), adapter_path, 2);
  const std::string want = read_file(adapter_path, kMaxBytes);
  fs::remove(adapter_path);

  const CheckpointStore store(dir.file("run"), kKeep);
  Rng rng(seed);
  int n_killed = 0, n_finished = 0;
  int64_t newest_step = 0;
  size_t n_kept_before = 0;
  while (n_killed < n_kills || newest_step > 0) {
    ASSERT_LT(n_finished, 10 * n_kills) << "hardly a process was killed";
    const int status = process_of(model, store, adapter_path, rng);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    ASSERT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
    n_killed += killed;
    // The adapter is there as a whole or not at all, whenever the end came.
    if (fs::exists(adapter_path)) {
      ASSERT_EQ(read_file(adapter_path, kMaxBytes), want) << "after " << n_killed << " kills";
      ++n_finished;
      fs::remove(adapter_path);
      fs::remove_all(store.directory());
      newest_step = 0;
      n_kept_before = 0;
      continue;
    }
    ASSERT_TRUE(killed);
    testing::internal::CaptureStderr();
    const std::optional<Checkpoint> newest = store.newest();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "a checkpoint is damaged";
    ASSERT_GE(newest ? newest->step() : 0, newest_step) << "after " << n_killed << " kills";
    newest_step = newest ? newest->step() : 0;
    // A kill after the rename leaves one that was to be removed; the next save takes it along.
    const size_t n_kept = store.list().size();
    ASSERT_LE(n_kept, std::max<size_t>(kKeep, n_kept_before) + 1) << "old checkpoints are left behind";
    n_kept_before = n_kept;
    ASSERT_LE(n_files(store.directory()), static_cast<int64_t>(n_kept + 1)) << "temporaries are left behind";
    ASSERT_LE(n_files(dir.path()), 4) << "files are left behind";  // model, two directories, a temporary
  }
  EXPECT_GE(n_killed, n_kills);
  EXPECT_GE(n_finished, 1);
}

}  // namespace tandem
