#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/adapters.h"
#include "app/commands.h"
#include "app/output.h"
#include "app/progress.h"
#include "app/receipt.h"
#include "app/training.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "io/quote.h"
#include "train/checkpoint.h"

namespace tandem {
namespace {

using nlohmann::json;

// A signal handler reaches nothing but globals.
volatile sig_atomic_t n_interrupts = 0;
volatile sig_atomic_t saving = 0;  // the adapter: takes well under a second, and is not cut short

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

// What is written at the end, as --export says.
struct Exports {
  bool gguf = false;
  std::string peft;  // the directory beside the file; empty: none
};

Exports exports(const Options& o) {
  Exports e;
  std::filesystem::path beside = o.text(Opt::AdapterPath);
  if (beside.extension() == ".gguf") beside.replace_extension();
  const std::string& text = o.text(Opt::Exports);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    if (name != "gguf" && name != "peft")
      fail(Code::Usage, "--export takes gguf, peft or gguf,peft, not '{}'", text);
    if (name == "gguf") e.gguf = true;
    if (name == "peft") e.peft = beside.string() + ".peft";
    begin = end + 1;
  }
  return e;
}

// Before anything long begins: the adapter can be written there, and overwrites nothing that is read.
void check_output(const Options& o) {
  const std::string& path = o.text(Opt::AdapterPath);
  if (path.empty())
    fail(Code::Usage, "tandem train needs --adapter-path FILE, where the adapter is written (or --dry-run)");
  const std::vector<std::string> inputs{o.text(Opt::Model), o.text(Opt::TrainFile), o.text(Opt::ValFile)};
  for (const std::string& output : {path, receipt_path(path)}) {
    refuse_overwriting("--adapter-path", output, inputs);
    check_writable(output);
  }
  const Exports e = exports(o);
  if (!e.peft.empty()) check_peft_writable(e.peft);
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  remove_abandoned_temporaries(parent.empty() ? "." : parent.string(),
                               std::filesystem::path(path).filename().string());
}

CheckpointStore checkpoint_store(const Options& o) {
  const std::string& given = o.text(Opt::CheckpointDir);
  return {given.empty() ? o.text(Opt::AdapterPath) + ".checkpoints" : given, o.integer(Opt::KeepCheckpoints)};
}

bool same_place(const std::string& a, const std::string& b) {
  std::error_code none;
  return std::filesystem::equivalent(a, b, none) && !none;
}

// What the run goes on from, or nothing for one that starts.  A directory that holds the checkpoints of
// another run is left alone: their steps would be taken for this run's.
std::optional<Checkpoint> find_checkpoint(const Options& o, const CheckpointStore& store) {
  const std::string& from = o.text(Opt::ResumeFrom);
  std::optional<Checkpoint> found;
  std::string directory = store.directory();
  std::error_code none;
  if (!from.empty() && std::filesystem::is_directory(from, none)) {
    directory = from;
    found = CheckpointStore(from, 1).newest();
    if (!found) fail(Code::Usage, "--resume-from {}: there is no checkpoint in this directory", from);
  } else if (!from.empty()) {
    found = Checkpoint::open(from);
    directory = std::filesystem::absolute(from).parent_path();
  } else if (o.on(Opt::AutoResume)) {
    found = store.newest();
  }
  const std::vector<CheckpointStore::Entry> there = store.list();
  if (!there.empty() && !(found && same_place(directory, store.directory()))) {
    fail(Code::Usage,
         "{} holds the checkpoints of a run, up to {}; go on from it with --auto-resume, or remove the "
         "directory or choose another --checkpoint-dir",
         store.directory(), there.back().path);
  }
  return found;
}

void save(const TrainJob& job, const Model& model, const std::string& path) {
  saving = 1;
  export_adapter(job, model, path, std::filesystem::path(path).stem().string());
  saving = 0;
}

void save_exports(const TrainJob& job, const Model& model, const Options& o) {
  const Exports e = exports(o);
  if (e.gguf) save(job, model, o.text(Opt::AdapterPath));
  if (e.peft.empty()) return;
  saving = 1;
  export_peft(job.adapter(), model, job.proof(), e.peft,
              o.text(Opt::PeftExpertsAs) == "fused" ? PeftExperts::Fused : PeftExperts::Modules);
  saving = 0;
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

// `checkpoint`: the newest one, empty if there is none.
json done_json(const JobResult& r, const Options& o, const std::string& checkpoint) {
  const Exports written = exports(o);
  return {{"type", "done"},
          {"reason", reason_name(r.reason)},
          {"steps", r.steps},
          {"seconds", r.seconds},
          {"adapter", written.gguf ? json(o.text(Opt::AdapterPath)) : json()},
          {"peft", written.peft.empty() ? json() : json(written.peft)},
          {"receipt", receipt_path(o.text(Opt::AdapterPath))},
          {"checkpoint", checkpoint.empty() ? json() : json(checkpoint)},
          {"before", evaluation_json(r.before)},
          {"after", evaluation_json(evaluation_after(r))},
          {"movements", movements_json(r.movements)}};
}

std::string evaluation_text(const Evaluation& e) {
  return fmt::format("nll {:.4f}, {} of {} rows exact, {:.1f} % of {} tokens", e.nll, e.n_exact, e.n_rows,
                     100 * e.accuracy, e.n_tokens);
}

void print_resumed(const Checkpoint& checkpoint, const TrainJob& job, bool as_json) {
  if (as_json) {
    print_json({{"type", "resume"}, {"step", checkpoint.step()}, {"checkpoint", checkpoint.path()}});
  } else {
    print("{:<10} after step {} of {}, from {}\n", "goes on", checkpoint.step(), job.total_steps(),
          printable(checkpoint.path()));
  }
}

void print_result(const JobResult& r, const Options& o, const std::string& checkpoint) {
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
  const Exports written = exports(o);
  std::error_code none;
  const std::string& path = o.text(Opt::AdapterPath);
  if (written.gguf) {
    print("{:<10} {} ({}), read back and compared\n", "adapter", printable(path),
          format_bytes(std::filesystem::file_size(path, none)));
  }
  if (!written.peft.empty()) print("{:<10} {}, read back and compared\n", "PEFT", printable(written.peft));
  print("{:<10} {}; tandem reproduce trains again and compares\n", "receipt", printable(receipt_path(path)));
  if (r.reason == StopReason::Cancelled)
    print("{:<10} {}; the same call with --auto-resume goes on from it\n", "checkpoint",
          printable(checkpoint));
}

// The job runner of the command line: steps the job, reports, keeps the last good state of one that failed.
JobResult run_and_save(TrainJob& job, const Model& model, const Options& o, const CheckpointStore& store,
                       RunState& state) {
  const std::string& path = o.text(Opt::AdapterPath);
  const bool as_json = o.on(Opt::Json);
  Progress progress(as_json || o.on(Opt::Quiet) ? Progress::Mode::Silent : Progress::mode_of_stderr(),
                    o.integer(Opt::StepsPerReport));
  Pace pace;
  const InterruptGuard guard;
  const JobCallbacks callbacks{.on_step =
                                   [&](const StepReport& r) {
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
                               .cancelled = InterruptGuard::interrupted,
                               .save =
                                   [&](const RunState& now) {
                                     store.save(job, now);
                                     if (as_json)
                                       print_json({{"type", "checkpoint"}, {"step", job.steps_done()}});
                                   },
                               .save_every = o.integer(Opt::SaveEvery)};
  JobResult result;
  try {
    result = run_job(job, callbacks, state);
  } catch (const Error& e) {
    // Numbers that overflowed, or a checkpoint that could not be written.
    if ((e.code() != Code::NonFinite && e.code() != Code::Io) || job.steps_done() == 0) throw;
    const std::string kept = path + ".last-good.gguf";
    try {
      save(job, model, kept);
    } catch (const Error& other) {
      fail(e.code(), "{}; nor could the adapter be kept: {}", e.what(), other.what());
    }
    fail(e.code(), "{}; the adapter after its last good step is in {}", e.what(), kept);
  }
  save_exports(job, model, o);
  return result;
}

}  // namespace

int train_command(const Options& options) {
  const bool dry = options.on(Opt::DryRun);
  if (!dry) check_output(options);
  const CheckpointStore store = checkpoint_store(options);
  Engine engine(options);
  TrainingInputs inputs = load_training(options, engine);
  if (!dry) {
    for (const GgufShard& s : inputs.model.file().shards())
      refuse_overwriting("--adapter-path", options.text(Opt::AdapterPath), {s.path});
  }
  TrainJob job = make_job(inputs, engine);
  if (!exports(options).peft.empty()) check_peft_places(job.adapter(), inputs.model);
  std::optional<Checkpoint> checkpoint = find_checkpoint(options, store);
  if (checkpoint) checkpoint->require_fit(job);
  if (!dry) store.prepare();
  const TrainPlan plan = make_plan(options, job);
  if (options.on(Opt::Json)) {
    json out = plan_json(options, inputs, job, plan);
    out["type"] = "plan";
    print_json(out);
  } else {
    print_text(plan_text(options, inputs, job, plan));
  }
  if (checkpoint) print_resumed(*checkpoint, job, options.on(Opt::Json));
  check_budget(plan, inputs.settings);
  if (dry) return 0;
  job.allocate(plan.budget_bytes);
  RunState state;
  if (checkpoint) state = checkpoint->apply(job);
  checkpoint.reset();  // while it is mapped, removing its file frees nothing
  const JobResult result = run_and_save(job, inputs.model, options, store, state);
  write_receipt(receipt_path(options.text(Opt::AdapterPath)), options, engine, inputs, job, result, state);
  const std::vector<CheckpointStore::Entry> checkpoints = store.list();
  const std::string newest = checkpoints.empty() ? "" : checkpoints.back().path;
  if (options.on(Opt::Json)) {
    print_json(done_json(result, options, newest));
  } else {
    print_result(result, options, newest);
  }
  require_movement(result.movements);
  return result.reason == StopReason::Cancelled ? exit_status(Code::Cancelled) : 0;
}

}  // namespace tandem
