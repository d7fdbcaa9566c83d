#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/output.h"
#include "app/progress.h"
#include "app/training.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "io/quote.h"

namespace tandem {
namespace {

using nlohmann::json;

// A signal handler reaches nothing but globals.
volatile sig_atomic_t n_interrupts = 0;
volatile sig_atomic_t saving = 0;  // takes well under a second, and is not cut short

extern "C" void on_interrupt(int) {
  if (n_interrupts > 0 && !saving) _exit(exit_status(Code::Cancelled));
  n_interrupts = n_interrupts + 1;
  if (saving) return;
  constexpr char kText[] = "\ntandem: finishing this step, then saving; interrupt again to leave at once\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
}

// While it lives, the first SIGINT or SIGTERM asks for an orderly end and the second ends the process.
class InterruptGuard {
 public:
  InterruptGuard() {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
    // A reader of stdout that left is no reason to lose the run; finish_output() tells it at the end.
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, &old_pipe_);
  }
  ~InterruptGuard() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
    sigaction(SIGPIPE, &old_pipe_, nullptr);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted() { return n_interrupts > 0; }

 private:
  struct sigaction old_int_, old_term_, old_pipe_;
};

void refuse_overwriting(const std::string& path, const std::string& input) {
  std::error_code none;
  if (!input.empty() && std::filesystem::equivalent(path, input, none))
    fail(Code::Usage, "--adapter-path {} would overwrite an input of this run", path);
}

// Before anything long begins: the adapter can be written there, and overwrites nothing that is read.
void check_output(const Options& o) {
  const std::string& path = o.text(Opt::AdapterPath);
  if (path.empty())
    fail(Code::Usage, "tandem train needs --adapter-path FILE, where the adapter is written (or --dry-run)");
  for (Opt input : {Opt::Model, Opt::TrainFile, Opt::ValFile}) refuse_overwriting(path, o.text(input));
  check_writable(path);
}

void save(const TrainJob& job, const Model& model, const std::string& path) {
  saving = 1;
  export_adapter(job, model, path, std::filesystem::path(path).stem().string());
  saving = 0;
}

json evaluation_json(const std::optional<Evaluation>& e) {
  if (!e) return nullptr;
  return {{"rows", e->n_rows},
          {"tokens", e->n_tokens},
          {"nll", e->nll},
          {"exact", e->n_exact},
          {"accuracy", e->accuracy}};
}

json step_json(const StepReport& r, const Pace& pace) {
  json out{{"type", "step"},
           {"step", r.step},
           {"total_steps", r.total_steps},
           {"epoch", r.epoch},
           {"loss", r.loss},
           {"learning_rate", r.learning_rate},
           {"grad_norm", r.grad_norm},
           {"tokens", r.n_tokens},
           {"trained_tokens", r.n_trained_tokens},
           {"seconds", r.seconds},
           {"tokens_per_second", pace.tokens_per_second()},
           {"memory_bytes", anonymous_memory_bytes()},
           {"seconds_left", nullptr}};
  if (const std::optional<double> left = pace.seconds_left()) out["seconds_left"] = *left;
  return out;
}

const char* reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::Finished:
      return "finished";
    case StopReason::EarlyStop:
      return "early_stop";
    case StopReason::Cancelled:
      return "interrupted";
  }
  return "";
}

// Held-out figures after an interrupted run are those of an earlier step, so they are not told.
std::optional<Evaluation> evaluation_after(const JobResult& r) {
  return r.reason == StopReason::Cancelled ? std::nullopt : r.after;
}

json done_json(const JobResult& r, const std::string& path) {
  json movements = json::array();
  for (const Movement& m : r.movements) {
    movements.push_back({{"name", m.name},
                         {"rank", m.rank},
                         {"a_change", m.a_change},
                         {"b_change", m.b_change},
                         {"delta_norm", m.delta_norm}});
  }
  return {{"type", "done"},
          {"reason", reason_name(r.reason)},
          {"steps", r.steps},
          {"seconds", r.seconds},
          {"adapter", path},
          {"before", evaluation_json(r.before)},
          {"after", evaluation_json(evaluation_after(r))},
          {"movements", movements}};
}

std::string evaluation_text(const Evaluation& e) {
  return fmt::format("nll {:.4f}, {} of {} rows exact, {:.1f} % of {} tokens", e.nll, e.n_exact, e.n_rows,
                     100 * e.accuracy, e.n_tokens);
}

void print_result(const JobResult& r, const std::string& path) {
  Table table("  ");
  table.add({"moved", "rank", "|change of A|", "|change of B|", "|scale B A|"});
  for (const Movement& m : r.movements) {
    table.add({m.name, fmt::format("{}", m.rank), fmt::format("{:.4g}", m.a_change),
               fmt::format("{:.4g}", m.b_change), fmt::format("{:.4g}", m.delta_norm)});
  }
  print_text("\n" + table.text() + "\n");
  if (r.before) print("{:<10} before: {}\n", "held out", evaluation_text(*r.before));
  if (const std::optional<Evaluation> after = evaluation_after(r))
    print("{:<10} after:  {}\n", "", evaluation_text(*after));
  print("{:<10} {} steps in {}{}\n", "trained", r.steps, format_duration(r.seconds),
        r.reason == StopReason::Finished    ? ""
        : r.reason == StopReason::EarlyStop ? "; stopped early, the best held-out adapter was kept"
                                            : "; interrupted");
  std::error_code none;
  print("{:<10} {} ({}), read back and compared\n", "adapter", printable(path),
        format_bytes(std::filesystem::file_size(path, none)));
}

// The job runner of the command line: steps the job, reports, keeps the last good state of one that failed.
JobResult run_and_save(TrainJob& job, const Model& model, const Options& o) {
  const std::string& path = o.text(Opt::AdapterPath);
  const bool as_json = o.on(Opt::Json);
  Progress progress(as_json || o.on(Opt::Quiet) ? Progress::Mode::Silent : Progress::mode_of_stderr(),
                    o.integer(Opt::StepsPerReport));
  Pace pace;
  int64_t n_steps = 0;
  const InterruptGuard guard;
  const JobCallbacks callbacks{.on_step =
                                   [&](const StepReport& r) {
                                     ++n_steps;
                                     pace.add(r);
                                     progress.step(r, pace);
                                     if (as_json) print_json(step_json(r, pace));
                                   },
                               .on_evaluation =
                                   [&](const Evaluation& e, int64_t step) {
                                     progress.evaluation(e, step);
                                     if (!as_json) return;
                                     json out = evaluation_json(e);
                                     out["type"] = "eval";
                                     out["step"] = step;
                                     print_json(out);
                                   },
                               .cancelled = InterruptGuard::interrupted};
  try {
    JobResult result = run_job(job, callbacks);
    save(job, model, path);
    return result;
  } catch (const Error& e) {
    if (e.code() != Code::NonFinite || n_steps == 0) throw;
    const std::string kept = path + ".last-good.gguf";
    save(job, model, kept);
    fail(Code::NonFinite, "{}; the adapter after its last good step is in {}", e.what(), kept);
  }
}

}  // namespace

int train_command(const Options& options) {
  const bool dry = options.on(Opt::DryRun);
  if (!dry) check_output(options);
  Engine engine(options);
  TrainingInputs inputs = load_training(options, engine);
  if (!dry) {
    for (const GgufShard& s : inputs.model.file().shards())
      refuse_overwriting(options.text(Opt::AdapterPath), s.path);
  }
  TrainJob job = make_job(inputs, engine);
  const TrainPlan plan = make_plan(options, job);
  if (options.on(Opt::Json)) {
    json out = plan_json(options, inputs, job, plan);
    out["type"] = "plan";
    print_json(out);
  } else {
    print_text(plan_text(options, inputs, job, plan));
  }
  check_budget(plan, inputs.settings);
  if (dry) return 0;
  job.allocate(plan.budget_bytes);
  const JobResult result = run_and_save(job, inputs.model, options);
  if (options.on(Opt::Json)) {
    print_json(done_json(result, options.text(Opt::AdapterPath)));
  } else {
    print_result(result, options.text(Opt::AdapterPath));
  }
  require_movement(result.movements);
  return result.reason == StopReason::Cancelled ? exit_status(Code::Cancelled) : 0;
}

}  // namespace tandem
