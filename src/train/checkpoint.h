// Checkpoints of a training run: all of it between two steps, such that a run that goes on from one ends with
// the adapter it would have had anyway, bit for bit.  Source: api.md 9, codebase.md 10.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "train/job.h"

namespace tandem {

// Every fact in which two jobs differ, a line each: "\n  rank: 2 in the checkpoint, 3 now" where `where` is
// "the checkpoint"; empty if they are one.
std::string fact_differences(const std::vector<JobFact>& then, const std::string& where,
                             const std::vector<JobFact>& now);

// A checkpoint that has been read and verified, but not yet taken over.
class Checkpoint {
 public:
  // Throws: Io; BadData if the file is damaged or holds something else; Unsupported.
  static Checkpoint open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t step() const { return step_; }
  // Throws: Usage if the job is another one than that which was interrupted, with every difference.  Warns if
  // another version of this program wrote it.
  void require_fit(const TrainJob& job) const;
  // Puts the job, which fits and has its memory, where the checkpoint was written.
  // Throws: BadData.
  RunState apply(TrainJob& job) const;

 private:
  explicit Checkpoint(CheckpointFile file) : file_(std::move(file)) {}

  CheckpointFile file_;
  std::string version_;  // of the program that wrote it
  std::vector<JobFact> facts_;
  int64_t step_ = 0, optimizer_steps_ = 0;
  DataCursor cursor_;
  RunState run_;  // without what has sections of its own
};

// Writes a checkpoint of a run between two steps.  Atomic.  Throws: Io.
void write_checkpoint(const std::string& path, TrainJob& job, const RunState& run);

// The checkpoints of one run, "checkpoint-STEP.tandem" in a directory of its own.
class CheckpointStore {
 public:
  struct Entry {
    int64_t step;
    std::string path;
  };

  // `n_keep`: so many are kept, at least 1.
  CheckpointStore(std::string directory, int64_t n_keep)
      : directory_(std::move(directory)), n_keep_(n_keep) {}

  const std::string& directory() const { return directory_; }
  // Oldest first; empty when there is no directory.  Throws: Io.
  std::vector<Entry> list() const;
  // The newest one that is whole; those that are damaged are reported and passed over.  Nothing if there is
  // none at all.  Throws: BadData if all are damaged; Io.
  std::optional<Checkpoint> newest() const;

  // Before hours of work depend on it: makes sure that save() can work, and removes what killed saves left.
  // Leaves nothing behind.  Throws: Io.
  void prepare() const;
  // Writes one, and then removes those that are older than the newest `n_keep`.  Throws: Io, saying how much
  // was needed, how much there is, and which checkpoint is the last whole one.
  void save(TrainJob& job, const RunState& run) const;

 private:
  std::string path_of(int64_t step) const;

  std::string directory_;
  int64_t n_keep_;
};

}  // namespace tandem
