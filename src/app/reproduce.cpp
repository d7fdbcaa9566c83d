#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/output.h"
#include "app/progress.h"
#include "app/receipt.h"
#include "app/training.h"
#include "base/error.h"
#include "base/log.h"
#include "io/quote.h"
#include "train/checkpoint.h"

namespace tandem {
namespace {

// The receipt's settings and our files, as the options of a training run.
Options training_options(const Options& o, const Receipt& receipt, const std::string& path) {
  const auto need = [&](Opt option, bool wanted, const char* what) {
    if (wanted == o.given(option)) return;
    fail(Code::Usage, "{}: that run {} {}; {} --{}", printable(path), wanted ? "had" : "had no", what,
         wanted ? "give" : "leave out", option_key(option));
  };
  need(Opt::ValFile, receipt.held_out, "held-out rows");
  need(Opt::LoraInit, receipt.lora_init, "adapter to start from");
  std::vector<std::string> arguments = receipt.arguments;
  for (const Opt option :
       {Opt::Model, Opt::TrainFile, Opt::ValFile, Opt::LoraInit, Opt::MemoryBudget, Opt::Threads}) {
    if (o.given(option)) arguments.push_back(fmt::format("--{}={}", option_key(option), o.as_text(option)));
  }
  try {
    return parse_options(Command::Train, arguments, {});
  } catch (const Error& e) {
    fail(Code::BadData, "{}: a setting is not one of a training run: {}", printable(path), e.what());
  }
}

}  // namespace

int reproduce_command(const Options& given) {
  const std::string& path = given.operand();
  const Receipt receipt = read_receipt(path);
  const Options options = training_options(given, receipt, path);
  Engine engine(options);
  TrainingInputs inputs = load_training(options, engine);
  TrainJob job = make_job(inputs, engine);
  const std::string differences = fact_differences(receipt.facts, "the receipt", job.facts());
  if (!differences.empty())
    fail(Code::Usage, "{}: this would be another run than that of the receipt:{}", printable(path),
         differences);
  if (receipt.version != TANDEM_VERSION) {
    log_warn("{} is of tandem {}, this is {}: the last bits may differ", printable(path),
             printable(receipt.version), TANDEM_VERSION);
  }
  const TrainPlan plan = make_plan(options, job);
  check_budget(plan, inputs.settings);
  job.allocate(plan.budget_bytes);
  const bool as_json = given.on(Opt::Json);
  Progress progress(as_json || given.on(Opt::Quiet) ? Progress::Mode::Silent : Progress::mode_of_stderr(),
                    options.integer(Opt::StepsPerReport));
  Pace pace;
  run_job(job, {.on_step =
                    [&](const StepReport& r) {
                      pace.add(r);
                      progress.step(r, pace);
                    },
                .on_evaluation = [&](const Evaluation& e, int64_t step) { progress.evaluation(e, step); },
                .cancelled = [&] { return receipt.interrupted && job.steps_done() >= receipt.steps; },
                .save = {}});
  const std::string hash = adapter_hash(job);
  const bool same = hash == receipt.adapter_hash && job.steps_done() == receipt.steps;
  if (as_json) {
    print_json({{"type", "reproduce"},
                {"identical", same},
                {"steps", job.steps_done()},
                {"hash", hash},
                {"wanted_hash", receipt.adapter_hash}});
  } else if (same) {
    print("{:<10} {} steps, and every bit of the adapter is the same ({})\n", "reproduced", job.steps_done(),
          hash);
  } else {
    print("{:<10} {} steps gave the adapter {}; the receipt has {} steps and {}\n", "different",
          job.steps_done(), hash, receipt.steps, printable(receipt.adapter_hash));
  }
  return same ? 0 : 1;
}

}  // namespace tandem
