// What `check` and `train` share: from options to a job that could start, and the plan they state.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "app/engine.h"
#include "base/options.h"
#include "models/model.h"
#include "text/samples.h"
#include "train/job.h"

namespace tandem {

// The longest row: --max-seq-length, by default the model's context but at most 2048 tokens.  Throws: Usage.
int64_t max_row_tokens(const Options& options, const Model& model);

// Reads rows and cuts them into samples as the options say, and says the warnings about them.
// Throws: BadData, Unsupported, Usage.
SampleSet read_samples(const Options& options, const std::string& path, const Tokenizer& tokenizer,
                       int64_t n_max_tokens);

// A model, and rows cut into samples.
struct TrainingInputs {
  Model model;
  TrainSettings settings;
  SampleSet train;
  std::optional<SampleSet> validation;
};

// Reads model and rows, and says the warnings about them.  Throws: whatever is wrong with options or files.
TrainingInputs load_training(const Options& options, const Engine& engine);

// A job over the inputs; takes their samples, the reports stay.
TrainJob make_job(TrainingInputs& inputs, Engine& engine);

// What a job needs and what it may take.
struct TrainPlan {
  JobEstimate estimate;
  size_t budget_bytes = 0;  // of persistent and arena together

  size_t need_bytes() const { return estimate.persistent_bytes + estimate.arena_bytes; }
};

// The dry run; warns when the mapped weights exceed the memory there is.
TrainPlan make_plan(const Options& options, TrainJob& job);
// Throws: OutOfMemory if the job does not fit the budget.
void check_budget(const TrainPlan& plan, const TrainSettings& settings);

// The plan in words and as JSON: data, adapter, steps, memory by its three homes.
std::string plan_text(const Options& options, const TrainingInputs& inputs, const TrainJob& job,
                      const TrainPlan& plan);
nlohmann::json plan_json(const Options& options, const TrainingInputs& inputs, const TrainJob& job,
                         const TrainPlan& plan);

}  // namespace tandem
