// A training job: a LoRA adapter learned from rows of text over the frozen, quantized weights of a model.
// The command line steps it in a loop; the server will do the same.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/backend.h"
#include "models/runner.h"
#include "text/samples.h"
#include "train/batches.h"
#include "train/export.h"
#include "train/optimizer.h"

namespace tandem {

// Settings of a job, with the defaults of api.md 10.
struct TrainSettings {
  std::string targets = "attention";
  int64_t rank = 8;
  std::optional<float> alpha;  // 2 * rank
  bool rslora = false;
  float dropout = 0.f;
  std::string lora_init;     // adapter to start from, GGUF or PEFT; empty: a new one
  bool strict_base = false;  // refuse it if it was made for other weights
  int64_t epochs = 3;
  std::optional<int64_t> iters;   // optimizer steps, instead of epochs
  int64_t batch_rows = 8;         // rows of a micro-batch
  int64_t grad_accumulation = 1;  // micro-batches of an optimizer step
  AdamWSettings adamw;
  ScheduleSettings schedule;
  std::optional<float> warmup_ratio;  // 0.03, unless warmup_steps is given
  std::optional<int64_t> warmup_steps;
  float max_grad_norm = 1.f;     // 0: no clipping
  bool packing = false;          // several samples share a row of max_tokens
  int64_t max_tokens = 2048;     // of a row
  int64_t window_tokens = 2048;  // tokens that go through the model together
  int64_t range_tokens = 512;    // tokens of a segment
  uint64_t seed = 42;
  int64_t steps_per_eval = 0;  // 0: before and after only
  int64_t early_stop = 0;      // evaluations without improvement, 0: off
  Precision precision = Precision::F32;
};

// What a held-out set says of the adapter.
struct Evaluation {
  int64_t n_rows = 0;
  int64_t n_tokens = 0;  // trained ones
  double nll = 0;        // mean per trained token, nats
  int64_t n_exact = 0;   // rows whose every trained token has the largest logit
  double accuracy = 0;   // share of trained tokens that do
};

// One optimizer step, as reported.
struct StepReport {
  int64_t step = 0, total_steps = 0;
  double epoch = 0;  // passes over the data so far
  double loss = 0;   // mean per trained token of the whole optimizer batch
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  int64_t n_tokens = 0;  // of the step
  int64_t n_trained_tokens = 0;
  double seconds = 0;
};

// How far an adapted tensor moved from where the job began.
struct Movement {
  std::string name;
  int64_t rank = 0;
  double a_change = 0, b_change = 0;  // Frobenius norms of the differences
  double delta_norm = 0;              // of scale B A now
};

// Throws Internal, naming the tensor, if one has not moved at all: a target that learns nothing is a failure.
void require_movement(const std::vector<Movement>& movements);

enum class StopReason { Finished, EarlyStop, Cancelled };

// What a job will need, known before a weight is read.
struct JobEstimate {
  size_t mapped_bytes = 0;      // weights, in the mapped file
  size_t persistent_bytes = 0;  // adapter, gradients, moments, layer inputs, and what the process held before
  size_t arena_bytes = 0;       // temporaries of the largest segment
  int64_t total_steps = 0;
  int64_t window_tokens = 0;  // of the largest window
  double train_flops = 0;     // of the whole job, multiply-adds counted twice
};

// One thing the result of a job depends on: "rank", "8".
struct JobFact {
  std::string name, value;
};

// The numbers of a job between two steps, in the job's memory or in a checkpoint.
struct JobNumbers {
  int64_t step = 0;             // optimizer steps done
  int64_t optimizer_steps = 0;  // those the moments have seen
  std::span<const float> values, first_moments, second_moments;
  std::span<const float> last_good;  // the last adapter whose loss was known to be finite
  std::span<const int64_t> expert_tokens;
};

// Where in the data a job stands: the next step is this one of this epoch, both from 0.
struct DataCursor {
  int64_t epoch = 0, step = 0;
  bool operator==(const DataCursor&) const = default;
};

class TrainJob {
 public:
  // Resolves the targets, makes or loads the adapter, cuts the batches of the first epoch.  Reads no weight.
  // Throws Usage, BadData, Unsupported.
  TrainJob(const Model& model, Backend& backend, TrainSettings settings, std::vector<Sample> train,
           std::vector<Sample> validation);

  // The dry run.
  JobEstimate estimate();
  // Takes the memory; `budget_bytes` bounds persistent + arena.  Throws OutOfMemory, saying what would fit.
  void allocate(size_t budget_bytes);

  // The held-out loss with the adapter as it is (nothing without a validation set).
  std::optional<Evaluation> evaluate();
  // One optimizer step.  Throws NonFinite; the adapter is then the last one whose loss was finite.
  StepReport step();
  bool finished() const { return step_ >= total_steps_; }

  // Everything that decides the numbers of this job: weights, rows, where it starts, settings, kernels.  Two
  // jobs whose facts are equal give the same adapter, bit for bit.  Reads two pages of each weight.
  std::vector<JobFact> facts() const;
  // The numbers now, and back again in a job with the same facts, after allocate().
  JobNumbers numbers() const;
  void restore(const JobNumbers& numbers);
  // Where the next step's rows are; of a finished job where they would be.
  DataCursor cursor();

  int64_t steps_done() const { return step_; }
  int64_t total_steps() const { return total_steps_; }
  const AdapterSet& adapter() const { return adapter_; }
  // {n_expert, n_layer}: through each expert, the gradient of how many tokens went so far
  // (WindowRunner::count_experts); empty without experts.
  std::span<const int64_t> expert_tokens() const { return expert_tokens_; }
  const TrainSettings& settings() const { return settings_; }
  // What an export of the adapter is proved with: the start of the first row.
  ExportProof proof() const;
  // The adapter's numbers now, and back again (best so far, last good).
  std::vector<float> snapshot() const;
  void restore(std::span<const float> values);
  std::vector<Movement> movements() const;  // of every trained tensor, against where the job began

 private:
  void cut(int64_t epoch);
  double flops_per_step() const;

  const Model& model_;
  Backend& backend_;
  TrainSettings settings_;
  std::vector<Sample> train_, validation_;
  size_t process_bytes_;  // anonymous memory before the job took any
  AdapterSet adapter_;
  std::vector<FlatRange> trained_ranges_;
  std::vector<float> initial_, last_good_;
  std::vector<int64_t> expert_tokens_;
  BatchSettings batch_settings_;
  std::vector<StepBatch> epoch_;  // the steps of epoch_index_
  int64_t epoch_index_ = -1;
  int64_t epoch_first_ = 0;  // steps before that epoch
  std::string order_hash_;   // of the rows of all steps
  std::vector<std::vector<size_t>> validation_windows_;
  std::unique_ptr<WindowRunner> runner_;
  std::unique_ptr<AdamW> optimizer_;
  int64_t steps_per_epoch_ = 0, step_ = 0, total_steps_ = 0;
  int64_t window_tokens_ = 0;
};

// A step, for the loss curve.
struct CurvePoint {
  int64_t step = 0;  // from 1
  double loss = 0, learning_rate = 0, grad_norm = 0;
};

// An evaluation and the steps done before it.
struct HeldOut {
  int64_t step = 0;
  Evaluation evaluation;
};

// What a run carries from step to step beside the job's numbers.
struct RunState {
  std::vector<CurvePoint> curve;   // every step so far
  std::vector<HeldOut> held_out;   // every evaluation so far, the one before training first
  size_t best = 0;                 // with early stop: the best of held_out
  std::vector<float> best_values;  // the adapter then; empty while that is the one training began with
  int64_t without_gain = 0;        // evaluations since
  double seconds = 0;              // spent
};

struct JobCallbacks {
  std::function<void(const StepReport&)> on_step;
  std::function<void(const Evaluation&, int64_t step)> on_evaluation;
  std::function<bool()> cancelled;  // asked after each step
  // Called after each `save_every`-th step (0: none) and when cancelled, before the evaluation that may be
  // due there; what it throws ends the run.
  std::function<void(const RunState&)> save;
  int64_t save_every = 0;
};
struct JobResult {
  StopReason reason = StopReason::Finished;
  int64_t steps = 0;
  std::optional<Evaluation> before, after;
  std::vector<Movement> movements;
  double seconds = 0;
};
// Runs a job to its end: evaluation before, steps, evaluations between, early stop, evaluation after.  A job
// that was restored goes on where it stood, with the state of then.  With early stop the adapter is the best
// held-out one, otherwise the last.  Throws NonFinite with the last good state kept in the job.
JobResult run_job(TrainJob& job, const JobCallbacks& callbacks, RunState& state);
JobResult run_job(TrainJob& job, const JobCallbacks& callbacks);

// Writes the adapter as a GGUF LoRA, read back and compared before it counts (train/export.h).  Throws Io,
// Internal.
void export_adapter(const TrainJob& job, const Model& model, const std::string& path,
                    const std::string& name);

}  // namespace tandem
