#include "app/training.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/output.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "io/quote.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int64_t kDefaultMaxTokens = 2048;  // Source: api.md 10

void check_combinations(const Options& o) {
  if (!o.text(Opt::LoraInit).empty()) {
    for (const auto& [option, name] :
         {std::pair{Opt::LoraRank, "--lora-rank"}, {Opt::LoraAlpha, "--lora-alpha"}}) {
      if (o.given(option))
        fail(Code::Usage, "{} has no effect with --lora-init, whose rank and alpha stay", name);
    }
    if (o.on(Opt::RsLora)) fail(Code::Usage, "--rslora has no effect with --lora-init, whose alpha stays");
  }
  const bool held_out = !o.text(Opt::ValFile).empty();
  if (o.integer(Opt::StepsPerEval) > 0 && !held_out) fail(Code::Usage, "--steps-per-eval needs --val-file");
  if (o.integer(Opt::EarlyStop) > 0 && (!held_out || o.integer(Opt::StepsPerEval) == 0)) {
    fail(Code::Usage, "--early-stop needs --val-file and --steps-per-eval");
  }
  if (o.number(Opt::LrMin) > o.number(Opt::LearningRate)) {
    fail(Code::Usage, "--lr-min {} is above --learning-rate {}", o.number(Opt::LrMin),
         o.number(Opt::LearningRate));
  }
  if (o.integer(Opt::SegmentTokens) % kRangeAlign) {
    fail(Code::Usage, "--ubatch-size must be a multiple of {}, not {}", kRangeAlign,
         o.integer(Opt::SegmentTokens));
  }
}

TrainSettings read_settings(const Options& o, const Model& model, Precision precision) {
  TrainSettings s;
  s.targets = o.text(Opt::LoraTargets);
  s.rank = o.integer(Opt::LoraRank);
  if (o.given(Opt::LoraAlpha)) s.alpha = static_cast<float>(o.number(Opt::LoraAlpha));
  s.rslora = o.on(Opt::RsLora);
  s.dropout = static_cast<float>(o.number(Opt::LoraDropout));
  s.lora_init = o.text(Opt::LoraInit);
  s.strict_base = o.on(Opt::StrictBase);
  s.epochs = o.integer(Opt::Epochs);
  if (o.given(Opt::Iters)) s.iters = o.integer(Opt::Iters);
  s.batch_rows = o.integer(Opt::BatchRows);
  s.grad_accumulation = o.integer(Opt::GradAccumulation);
  s.adamw.learning_rate = static_cast<float>(o.number(Opt::LearningRate));
  s.adamw.beta1 = static_cast<float>(o.number(Opt::AdamBeta1));
  s.adamw.beta2 = static_cast<float>(o.number(Opt::AdamBeta2));
  s.adamw.eps = static_cast<float>(o.number(Opt::AdamEps));
  s.adamw.weight_decay = static_cast<float>(o.number(Opt::WeightDecay));
  s.schedule.kind = parse_schedule(o.text(Opt::LrScheduler));
  s.schedule.floor = o.number(Opt::LrMin);
  s.warmup_ratio = static_cast<float>(o.number(Opt::WarmupRatio));
  if (o.given(Opt::WarmupSteps)) s.warmup_steps = o.integer(Opt::WarmupSteps);
  s.max_grad_norm = static_cast<float>(o.number(Opt::MaxGradNorm));
  s.packing = o.on(Opt::Packing);
  s.max_tokens = max_row_tokens(o, model);
  s.window_tokens = o.integer(Opt::BatchTokens);
  s.range_tokens = o.integer(Opt::SegmentTokens);
  s.seed = static_cast<uint64_t>(o.integer(Opt::Seed));
  s.steps_per_eval = o.integer(Opt::StepsPerEval);
  s.early_stop = o.integer(Opt::EarlyStop);
  s.precision = precision;
  return s;
}

std::string data_text(const std::string& path, const SampleReport& r) {
  std::string text = fmt::format("{}: {} rows, {} tokens, {} trained; longest {} (line {})", printable(path),
                                 r.n_rows, r.n_tokens, r.n_trained_tokens, r.longest_tokens, r.longest_line);
  if (r.n_shortened) text += fmt::format("; {} shortened", r.n_shortened);
  if (!r.dropped.empty()) text += fmt::format("; {} left out", r.dropped.size());
  return text;
}

json data_json(const std::string& path, const SampleReport& r) {
  json dropped = json::array();
  for (const DroppedRow& d : r.dropped) dropped.push_back({{"line", d.line}, {"reason", d.reason}});
  return {{"file", path},
          {"rows", r.n_rows},
          {"tokens", r.n_tokens},
          {"trained_tokens", r.n_trained_tokens},
          {"longest_tokens", r.longest_tokens},
          {"longest_line", r.longest_line},
          {"shortened", r.n_shortened},
          {"dropped", dropped},
          {"warnings", r.warnings}};
}

int64_t n_trained_tensors(const TrainJob& job) {
  const auto& pairs = job.adapter().pairs();
  return std::count_if(pairs.begin(), pairs.end(), [](const AdapterPair& p) { return p.trainable; });
}

// "rank 8, alpha 16"; an adapter that was given may have several ranks.
std::string rank_text(const TrainJob& job) {
  const auto& pairs = job.adapter().pairs();
  const auto [lo, hi] = std::minmax_element(
      pairs.begin(), pairs.end(), [](const AdapterPair& a, const AdapterPair& b) { return a.rank < b.rank; });
  const std::string ranks =
      lo->rank == hi->rank ? fmt::format("{}", lo->rank) : fmt::format("{} to {}", lo->rank, hi->rank);
  return fmt::format("rank {}, alpha {:g}", ranks, job.adapter().alpha());
}

}  // namespace

int64_t max_row_tokens(const Options& o, const Model& model) {
  const int64_t context = model.hparams().n_ctx_train;
  if (!o.given(Opt::MaxSeqLength)) return std::min(kDefaultMaxTokens, context);
  const int64_t wanted = o.integer(Opt::MaxSeqLength);
  if (wanted > context) {
    fail(Code::Usage, "--max-seq-length {} is beyond the model's context of {} tokens", wanted, context);
  }
  return wanted;
}

SampleSet read_samples(const Options& o, const std::string& path, const Tokenizer& tokenizer,
                       int64_t n_max_tokens) {
  SampleOptions options;
  options.train_on = parse_train_on(o.text(Opt::TrainOn));
  options.truncate = parse_truncate(o.text(Opt::Truncate));
  options.max_tokens = n_max_tokens;
  options.prompt_style = parse_prompt_style(o.text(Opt::PromptStyle));
  options.parse_special = o.on(Opt::ParseSpecial);
  options.allow_empty_rows = o.on(Opt::AllowEmptyRows);
  SampleSet set = make_samples(read_rows(path), tokenizer, options);
  for (const std::string& warning : set.report.warnings) log_warn("{}", warning);
  return set;
}

TrainingInputs load_training(const Options& options, const Engine& engine) {
  check_combinations(options);
  Model model = Model::open(options.text(Opt::Model), model_options(options));
  const TrainSettings settings = read_settings(options, model, chosen_precision(options, engine));
  const Tokenizer tokenizer(read_vocab(model.file()));
  SampleSet train = read_samples(options, options.text(Opt::TrainFile), tokenizer, settings.max_tokens);
  std::optional<SampleSet> validation;
  const std::string& val_file = options.text(Opt::ValFile);
  if (!val_file.empty()) validation = read_samples(options, val_file, tokenizer, settings.max_tokens);
  return {std::move(model), settings, std::move(train), std::move(validation)};
}

TrainJob make_job(TrainingInputs& inputs, Engine& engine) {
  std::vector<Sample> validation;
  if (inputs.validation) validation = std::move(inputs.validation->samples);
  return TrainJob(inputs.model, engine.backend, inputs.settings, std::move(inputs.train.samples),
                  std::move(validation));
}

TrainPlan make_plan(const Options& options, TrainJob& job) {
  TrainPlan plan;
  const size_t available = available_memory_bytes(), held = anonymous_memory_bytes();
  plan.estimate = job.estimate();
  plan.budget_bytes = options.given(Opt::MemoryBudget) ? options.bytes(Opt::MemoryBudget)
                                                       : available + std::min(held, SIZE_MAX - available);
  if (plan.estimate.mapped_bytes > available) {
    log_warn(
        "the weights in the file ({}) exceed the available memory ({}); their pages will be read again and "
        "again",
        format_bytes(plan.estimate.mapped_bytes), format_bytes(available));
  }
  return plan;
}

void check_budget(const TrainPlan& plan, const TrainSettings& settings) {
  if (plan.need_bytes() <= plan.budget_bytes) return;
  fail(Code::OutOfMemory,
       "training needs {} ({} persistent, {} temporaries), the budget is {}; a smaller --ubatch-size (now "
       "{}) lowers the temporaries, "
       "a smaller --batch-size (now {}) the rest; --memory-budget raises the limit",
       format_bytes(plan.need_bytes()), format_bytes(plan.estimate.persistent_bytes),
       format_bytes(plan.estimate.arena_bytes), format_bytes(plan.budget_bytes), settings.range_tokens,
       settings.window_tokens);
}

std::string plan_text(const Options& options, const TrainingInputs& inputs, const TrainJob& job,
                      const TrainPlan& plan) {
  const HParams& h = inputs.model.hparams();
  const TrainSettings& s = job.settings();
  const JobEstimate& e = plan.estimate;
  std::string out;
  const auto line = [&](const char* label, const std::string& text) {
    out += fmt::format("{:<10} {}\n", label, text);
  };
  line("model", fmt::format("{}: {}, {} layers, width {}, context {}", printable(options.text(Opt::Model)),
                            inputs.model.arch().name, h.n_layer, h.n_embd, h.n_ctx_train));
  line("data", data_text(options.text(Opt::TrainFile), inputs.train.report));
  if (inputs.validation) line("held out", data_text(options.text(Opt::ValFile), inputs.validation->report));
  line("adapter", fmt::format("{} tensors, {}, {} numbers", n_trained_tensors(job), rank_text(job),
                              format_count(static_cast<double>(job.adapter().values().size()))));
  const std::string extent = s.iters ? "" : fmt::format(", {} epochs", s.epochs);
  line("steps", fmt::format("{}{}, {} rows a step; rate {:g}, {}, warm-up {} steps", job.total_steps(),
                            extent, s.batch_rows * s.grad_accumulation, s.adamw.learning_rate,
                            options.text(Opt::LrScheduler), s.schedule.warmup_steps));
  line("numbers", fmt::format("{} products, seed {}", precision_name(s.precision), s.seed));
  line("memory", fmt::format("mapped      {:>10}  weights, in the file", format_bytes(e.mapped_bytes)));
  line("", fmt::format("persistent  {:>10}  adapter, moments, layer inputs, what the process holds",
                       format_bytes(e.persistent_bytes)));
  line("",
       fmt::format("arena       {:>10}  temporaries of the largest segment", format_bytes(e.arena_bytes)));
  line("", fmt::format("budget      {:>10}  for persistent and arena ({})", format_bytes(plan.budget_bytes),
                       format_bytes(plan.need_bytes())));
  return out;
}

json plan_json(const Options& options, const TrainingInputs& inputs, const TrainJob& job,
               const TrainPlan& plan) {
  const TrainSettings& s = job.settings();
  const JobEstimate& e = plan.estimate;
  json targets = json::array();
  for (const AdapterPair& p : job.adapter().pairs()) {
    if (!p.trainable) continue;
    targets.push_back({{"name", p.weight->name},
                       {"role", p.weight->role},
                       {"ne", p.weight->ne.ne},
                       {"type", name_of(p.weight->type)},
                       {"rank", p.rank}});
  }
  json out{{"model", options.text(Opt::Model)},
           {"data", data_json(options.text(Opt::TrainFile), inputs.train.report)},
           {"held_out", nullptr},
           {"targets", targets},
           {"alpha", job.adapter().alpha()},
           {"adapter_numbers", job.adapter().values().size()},
           {"total_steps", job.total_steps()},
           {"rows_per_step", s.batch_rows * s.grad_accumulation},
           {"learning_rate", s.adamw.learning_rate},
           {"schedule", options.text(Opt::LrScheduler)},
           {"warmup_steps", s.schedule.warmup_steps},
           {"seed", s.seed},
           {"precision", precision_name(s.precision)},
           {"window_tokens", e.window_tokens},
           {"train_flops", e.train_flops}};
  if (inputs.validation) out["held_out"] = data_json(options.text(Opt::ValFile), inputs.validation->report);
  out["memory"] = {{"mapped_bytes", e.mapped_bytes},
                   {"persistent_bytes", e.persistent_bytes},
                   {"arena_bytes", e.arena_bytes},
                   {"budget_bytes", plan.budget_bytes},
                   {"fits", plan.need_bytes() <= plan.budget_bytes}};
  return out;
}

}  // namespace tandem
