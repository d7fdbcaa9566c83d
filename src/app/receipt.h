// The receipt of a training run: what went in, what came out, and enough to do it again.  Source: api.md 5.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/engine.h"
#include "app/training.h"
#include "base/options.h"
#include "train/job.h"

namespace tandem {

// Parts of what a run reports, as JSON.
nlohmann::json evaluation_json(const std::optional<Evaluation>& evaluation);
nlohmann::json movements_json(const std::vector<Movement>& movements);
const char* reason_name(StopReason reason);  // "finished", "early_stop", "interrupted"
// Held-out figures after an interrupted run are those of an earlier step, so they are not told.
std::optional<Evaluation> evaluation_after(const JobResult& result);

// "DIR/NAME.receipt.json" for the adapter "DIR/NAME.gguf".
std::string receipt_path(const std::string& adapter_path);
// XXH3-128 of the adapter's numbers, 32 hexadecimal digits.
std::string adapter_hash(const TrainJob& job);

// Writes the receipt.  Atomic.  Throws: Io.
void write_receipt(const std::string& path, const Options& options, const Engine& engine,
                   const TrainingInputs& inputs, const TrainJob& job, const JobResult& result,
                   const RunState& state);

// What a receipt says that is needed to do the run again.  Paths in it are for people and are never opened.
struct Receipt {
  std::string version;                 // of the program
  std::vector<std::string> arguments;  // of `tandem train`, without files
  std::vector<JobFact> facts;
  std::string adapter_hash;
  int64_t steps = 0;
  bool interrupted = false;  // after that many steps, before the run's end
  bool held_out = false;     // with held-out rows
  bool lora_init = false;    // from an adapter
};
// Throws: Io, BadData.
Receipt read_receipt(const std::string& path);

}  // namespace tandem
