#include "train/job.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/isa.h"
#include "io/content_hash.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

void check_settings(const TrainSettings& s) {
  const auto refuse = [](const char* what, auto got) { fail(Code::Usage, "{}, not {}", what, got); };
  if (s.epochs < 1) refuse("the number of epochs must be at least 1", s.epochs);
  if (s.iters && *s.iters < 1) refuse("the number of steps must be at least 1", *s.iters);
  if (s.batch_rows < 1) refuse("a batch has at least 1 row", s.batch_rows);
  if (s.grad_accumulation < 1) refuse("gradients are accumulated over at least 1 batch", s.grad_accumulation);
  if (!(s.dropout >= 0.f && s.dropout < 1.f)) refuse("LoRA dropout must be in [0, 1)", s.dropout);
  if (!std::isfinite(s.adamw.learning_rate) || s.adamw.learning_rate < 0) {
    refuse("the learning rate must be a finite number that is not negative", s.adamw.learning_rate);
  }
  if (!(s.max_grad_norm >= 0.f))
    refuse("the largest gradient norm must not be negative (0: no clipping)", s.max_grad_norm);
  if (s.range_tokens < kRangeAlign || s.range_tokens % kRangeAlign) {
    refuse("the tokens of a segment must be a multiple of 64", s.range_tokens);
  }
  if (s.window_tokens < 1) refuse("a window has at least 1 token", s.window_tokens);
}

// The adapter a job starts from.  What is in the targets is trained, the rest of a given adapter stays as it
// is.
AdapterSet start_adapter(const Model& model, const TrainSettings& s) {
  const std::vector<const Weight*> targets = resolve_targets(model, s.targets);
  if (s.lora_init.empty()) {
    return AdapterSet::create(targets, s.rank, s.alpha.value_or(2.f * static_cast<float>(s.rank)), s.rslora,
                              s.seed);
  }
  AdapterSet set = AdapterSet::load(s.lora_init, model, 1.f);
  check_base(set, model, s.lora_init, s.strict_base);
  set.set_base_hash("");  // what is trained here is for this model
  for (const Weight* w : targets) {
    if (!set.find(*w)) {
      fail(Code::Usage,
           "{} has no adapter for {}, which is to be trained; name only targets it has (--lora-targets)",
           s.lora_init, w->name);
    }
  }
  for (AdapterPair& p : set.pairs())
    p.trainable = std::find(targets.begin(), targets.end(), p.weight) != targets.end();
  return set;
}

double frobenius_difference(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return std::sqrt(sum);
}

// |B A| from the r x r products A A^T and B^T B: |B A|^2 = trace(A A^T B^T B), summed over the experts.
double delta_norm(const AdapterSet& set, const AdapterPair& p) {
  const int64_t n_in = p.a_shape[0], r = p.rank, n_out = p.b_shape[1];
  double sum = 0;
  for (int64_t e = 0; e < p.a_shape[2]; ++e) {
    const float *a = set.a(p) + e * n_in * r, *b = set.b(p) + e * r * n_out;
    for (int64_t i = 0; i < r; ++i) {
      for (int64_t j = 0; j < r; ++j) {
        double aa = 0, bb = 0;
        for (int64_t k = 0; k < n_in; ++k) aa += static_cast<double>(a[i * n_in + k]) * a[j * n_in + k];
        for (int64_t k = 0; k < n_out; ++k) bb += static_cast<double>(b[k * r + i]) * b[k * r + j];
        sum += aa * bb;
      }
    }
  }
  return std::abs(p.scale) * std::sqrt(std::max(0.0, sum));
}

}  // namespace

TrainJob::TrainJob(const Model& model, Backend& backend, TrainSettings settings, std::vector<Sample> train,
                   std::vector<Sample> validation)
    : model_(model),
      backend_(backend),
      settings_(std::move(settings)),
      train_(std::move(train)),
      validation_(std::move(validation)),
      process_bytes_(anonymous_memory_bytes()) {
  check_settings(settings_);
  if (train_.empty()) fail(Code::BadData, "there is no row to train on");
  adapter_ = start_adapter(model_, settings_);
  for (const AdapterPair& p : adapter_.pairs()) {
    if (!p.trainable) continue;
    trained_ranges_.push_back({p.a_at, static_cast<size_t>(p.a_shape.elements())});
    trained_ranges_.push_back({p.b_at, static_cast<size_t>(p.b_shape.elements())});
  }
  initial_ = last_good_ = snapshot();
  expert_tokens_.resize(static_cast<size_t>(model_.hparams().n_expert * model_.hparams().n_layer));

  batch_settings_ = {.rows_per_step = settings_.batch_rows * settings_.grad_accumulation,
                     .window_tokens = settings_.window_tokens,
                     .packing = settings_.packing,
                     .row_tokens = settings_.max_tokens,
                     .seed = settings_.seed};
  // How many steps there are, and the largest window: with packing both depend on the order of each epoch.
  int64_t n_epochs = settings_.epochs;
  ContentHash order;
  for (int64_t e = 0; settings_.iters ? total_steps_ < *settings_.iters : e < n_epochs; ++e) {
    cut(e);
    total_steps_ += static_cast<int64_t>(epoch_.size());
    for (const StepBatch& s : epoch_) {
      window_tokens_ = std::max(window_tokens_, largest_window(train_, s.windows));
      for (const std::vector<size_t>& window : s.windows) {
        order.add_u64(window.size());
        order.add(std::as_bytes(std::span(window)));
      }
    }
    if (e == 0) steps_per_epoch_ = static_cast<int64_t>(epoch_.size());
  }
  order_hash_ = order.hex();
  if (settings_.iters) total_steps_ = *settings_.iters;
  validation_windows_ = cut_windows(validation_, std::max<int64_t>(window_tokens_, 1));
  if (!validation_.empty())
    window_tokens_ = std::max(window_tokens_, largest_window(validation_, validation_windows_));

  settings_.schedule.peak = settings_.adamw.learning_rate;
  settings_.schedule.warmup_steps = settings_.warmup_steps.value_or(static_cast<int64_t>(
      std::llround(settings_.warmup_ratio.value_or(0.03f) * static_cast<double>(total_steps_))));

  RunnerOptions options;
  options.window_tokens = window_tokens_;
  options.range_tokens = settings_.range_tokens;
  options.precision = settings_.precision;
  runner_ = std::make_unique<WindowRunner>(model_, backend_, std::vector<const AdapterSet*>{&adapter_},
                                           &adapter_, options);
}

void TrainJob::cut(int64_t epoch) {
  epoch_ = cut_epoch(train_, batch_settings_, epoch);
  epoch_index_ = epoch;
}

// Epochs differ in their number of steps only with packing; walking them keeps the count right then too.
DataCursor TrainJob::cursor() {
  if (step_ < epoch_first_ || epoch_first_ == 0) {
    epoch_first_ = 0;
    if (epoch_index_ != 0) cut(0);
  }
  while (epoch_first_ + static_cast<int64_t>(epoch_.size()) <= step_) {
    epoch_first_ += static_cast<int64_t>(epoch_.size());
    cut(epoch_index_ + 1);
  }
  return {epoch_index_, step_ - epoch_first_};
}

std::vector<float> TrainJob::snapshot() const { return {adapter_.values().begin(), adapter_.values().end()}; }

ExportProof TrainJob::proof() const {
  const std::vector<int32_t>& row = train_.front().tokens;
  return {backend_, {row.begin(), row.begin() + static_cast<ptrdiff_t>(std::min(row.size(), kProofTokens))}};
}

void TrainJob::restore(std::span<const float> values) {
  TANDEM_CHECK(values.size() == adapter_.values().size());
  std::copy(values.begin(), values.end(), adapter_.values().begin());
}

// Products with frozen weights: forward, recompute and input gradient of every token; the head for trained
// tokens only.
double TrainJob::flops_per_step() const {
  const HParams& h = model_.hparams();
  double per_token = 0;
  for (const Weight* w : model_.adaptable()) {
    const double share =
        w->ne[2] > 1 ? static_cast<double>(h.n_expert_used) / static_cast<double>(h.n_expert) : 1.0;
    per_token += 2.0 * static_cast<double>(w->ne.elements()) * share;
  }
  double tokens = 0, trained = 0;
  for (const Sample& s : train_) {
    tokens += static_cast<double>(s.tokens.size());
    trained += static_cast<double>(std::count(s.trained.begin(), s.trained.end(), uint8_t{1}));
  }
  const double head = 2.0 * static_cast<double>(model_.output().ne.elements());
  return (3 * per_token * tokens + 2 * head * trained) /
         static_cast<double>(std::max<int64_t>(1, steps_per_epoch_));
}

JobEstimate TrainJob::estimate() {
  const MemoryPlan plan = runner_->plan();
  const size_t adapter_bytes = adapter_.values().size() * sizeof(float);
  const size_t copies =
      settings_.early_stop > 0 ? 7 : 6;  // values, gradients, two moments, initial, last good (, best)
  JobEstimate e;
  e.mapped_bytes = model_.mapped_bytes();
  e.persistent_bytes = process_bytes_ + plan.persistent + copies * adapter_bytes;
  e.arena_bytes = plan.arena;
  e.total_steps = total_steps_;
  e.window_tokens = window_tokens_;
  e.train_flops = flops_per_step() * static_cast<double>(total_steps_);
  return e;
}

void TrainJob::allocate(size_t budget_bytes) {
  const JobEstimate e = estimate();
  const size_t need = e.persistent_bytes + e.arena_bytes;
  if (need > budget_bytes) {
    fail(Code::OutOfMemory,
         "training needs {} ({} persistent, {} temporaries), the budget is {}; smaller --ubatch-size (now "
         "{}) lowers the temporaries, "
         "smaller --batch-size (now {}) or --max-seq-length the rest; --memory-budget raises the limit",
         format_bytes(need), format_bytes(e.persistent_bytes), format_bytes(e.arena_bytes),
         format_bytes(budget_bytes), settings_.range_tokens, settings_.window_tokens);
  }
  adapter_.allocate_gradients();
  optimizer_ = std::make_unique<AdamW>(adapter_.values().size(), settings_.adamw);
  runner_->allocate();
}

std::optional<Evaluation> TrainJob::evaluate() {
  if (validation_.empty()) return std::nullopt;
  Evaluation result;
  double hits = 0;
  for (const std::vector<size_t>& members : validation_windows_) {
    const WindowLoss loss = runner_->evaluate(make_window(validation_, members));
    size_t t = 0;
    for (size_t i : members) {
      bool exact = true;
      for (size_t j = 0; j < validation_[i].tokens.size(); ++j, ++t) {
        const bool target = j + 1 < validation_[i].tokens.size() && validation_[i].trained[j + 1];
        if (!target) continue;
        ++result.n_tokens;
        result.nll += loss.nll[t];
        hits += loss.hits[t];
        exact = exact && loss.hits[t] == 1.f;
      }
      result.n_exact += exact;
      ++result.n_rows;
    }
  }
  result.nll /= static_cast<double>(result.n_tokens);
  result.accuracy = hits / static_cast<double>(result.n_tokens);
  return result;
}

JobNumbers TrainJob::numbers() const {
  TANDEM_CHECK(optimizer_);
  return {.step = step_,
          .optimizer_steps = optimizer_->n_steps(),
          .values = adapter_.values(),
          .first_moments = optimizer_->first_moments(),
          .second_moments = optimizer_->second_moments(),
          .last_good = last_good_,
          .expert_tokens = expert_tokens_};
}

void TrainJob::restore(const JobNumbers& numbers) {
  TANDEM_CHECK(optimizer_ && numbers.step >= 0 && numbers.step <= total_steps_ &&
               numbers.last_good.size() == last_good_.size() &&
               numbers.expert_tokens.size() == expert_tokens_.size());
  optimizer_->restore(numbers.optimizer_steps, numbers.first_moments, numbers.second_moments);
  restore(numbers.values);
  std::copy(numbers.last_good.begin(), numbers.last_good.end(), last_good_.begin());
  std::copy(numbers.expert_tokens.begin(), numbers.expert_tokens.end(), expert_tokens_.begin());
  step_ = numbers.step;
}

namespace {

// Of tokens and masks; where the rows stood in their file does not matter.
std::string data_hash(const std::vector<Sample>& samples) {
  ContentHash hash;
  for (const Sample& s : samples) {
    hash.add_u64(s.tokens.size());
    hash.add(std::as_bytes(std::span(s.tokens)));
    hash.add(std::as_bytes(std::span(s.trained)));
  }
  return fmt::format("{} rows, {}", samples.size(), hash.hex());
}

const char* schedule_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::Constant:
      return "constant";
    case ScheduleKind::Linear:
      return "linear";
    case ScheduleKind::Cosine:
      return "cosine";
  }
  return "?";
}

}  // namespace

std::vector<JobFact> TrainJob::facts() const {
  const TrainSettings& s = settings_;
  std::string roles, ranks;
  ContentHash adapter;
  for (const AdapterPair& p : adapter_.pairs()) {
    adapter.add_text(p.weight->name);
    adapter.add_u64(static_cast<uint64_t>(p.rank));
    adapter.add_u64(p.trainable);
    const auto note = [](std::string& list, const std::string& name) {
      if (("," + list + ",").find("," + name + ",") == std::string::npos)
        list += (list.empty() ? "" : ",") + name;
    };
    note(ranks, fmt::format("{}", p.rank));
    if (p.trainable) note(roles, p.weight->role);
  }
  adapter.add(std::as_bytes(std::span(initial_)));
  std::vector<JobFact> facts;
  const auto add = [&](const char* name, const auto& value) {
    facts.push_back({name, fmt::format("{}", value)});
  };
  add("base model", model_.base_hash());
  add("training rows", data_hash(train_));
  add("held-out rows", validation_.empty() ? "none" : data_hash(validation_));
  add("targets", roles);
  add("rank", ranks);
  add("alpha", adapter_.alpha());  // rsLoRA's factor is in it
  add("dropout", s.dropout);
  add("adapter at the start", adapter.hex());
  add("seed", s.seed);
  add("steps in all", total_steps_);
  add("learning rate", s.adamw.learning_rate);
  add("schedule", schedule_name(s.schedule.kind));
  add("lowest rate", s.schedule.floor);
  add("warm-up steps", s.schedule.warmup_steps);
  add("beta1", s.adamw.beta1);
  add("beta2", s.adamw.beta2);
  add("eps", s.adamw.eps);
  add("weight decay", s.adamw.weight_decay);
  add("largest gradient norm", s.max_grad_norm);
  add("rows of a batch", s.batch_rows);
  add("batches of a step", s.grad_accumulation);
  add("packing", s.packing ? "on" : "off");
  add("longest row", s.max_tokens);
  add("batch tokens", s.window_tokens);
  add("segment tokens", s.range_tokens);
  add("order of the rows", order_hash_);
  add("steps between evaluations", s.steps_per_eval);
  add("early stop", s.early_stop);
  add("precision", precision_name(s.precision));
  add("instruction set", backend_.numerics());
  if (const RopeParams& rope = model_.hparams().rope; rope.yarn_factor > 0)
    add("ends of YaRN's ramp", rope.yarn_truncate ? "rounded" : "as they are");
  return facts;
}

StepReport TrainJob::step() {
  TANDEM_CHECK(!finished() && optimizer_);
  const Clock::time_point start = Clock::now();
  const DataCursor at = cursor();
  const StepBatch& batch = epoch_[static_cast<size_t>(at.step)];

  const std::span<float> gradients = adapter_.gradients();
  std::fill(gradients.begin(), gradients.end(), 0.f);
  StepReport report;
  report.n_tokens = batch.n_tokens;
  report.n_trained_tokens = batch.n_trained;
  DropoutState dropout{.p = settings_.dropout, .seed = settings_.seed, .step = step_, .first_token = 0};
  double nll = 0;
  try {
    for (const std::vector<size_t>& members : batch.windows) {
      const Window window = make_window(train_, members);
      const WindowLoss loss =
          runner_->forward_backward(window, 1.f / static_cast<float>(batch.n_trained), dropout);
      for (float l : loss.nll) nll += l;
      if (!expert_tokens_.empty()) runner_->count_experts(window, expert_tokens_);
      dropout.first_token += window.n_tokens();
    }
  } catch (const Error& error) {
    if (error.code() == Code::NonFinite) restore(last_good_);
    throw;
  }
  last_good_ = snapshot();
  report.loss = nll / static_cast<double>(batch.n_trained);
  report.grad_norm = global_norm(gradients);
  if (!std::isfinite(report.grad_norm)) {
    fail(Code::NonFinite, "step {}: the norm of the gradient is {}; lower the learning rate", step_ + 1,
         report.grad_norm);
  }
  if (settings_.max_grad_norm > 0) clip_to_norm(gradients, report.grad_norm, settings_.max_grad_norm);
  report.learning_rate = learning_rate_at(settings_.schedule, step_, total_steps_);
  optimizer_->step(adapter_.values(), gradients, trained_ranges_, report.learning_rate);
  ++step_;
  report.step = step_;
  report.total_steps = total_steps_;
  report.epoch =
      static_cast<double>(at.epoch) + static_cast<double>(at.step + 1) / static_cast<double>(epoch_.size());
  report.seconds = seconds_since(start);
  return report;
}

std::vector<Movement> TrainJob::movements() const {
  std::vector<Movement> result;
  for (const AdapterPair& p : adapter_.pairs()) {
    if (!p.trainable) continue;
    Movement m;
    m.name = p.weight->name;
    m.rank = p.rank;
    m.a_change = frobenius_difference(adapter_.a(p), initial_.data() + p.a_at, p.a_shape.elements());
    m.b_change = frobenius_difference(adapter_.b(p), initial_.data() + p.b_at, p.b_shape.elements());
    m.delta_norm = delta_norm(adapter_, p);
    result.push_back(m);
  }
  return result;
}

void require_movement(const std::vector<Movement>& movements) {
  for (const Movement& m : movements) {
    if (m.a_change == 0 && m.b_change == 0) {
      fail(Code::Internal,
           "the adapter of {} did not move: no gradient reached it, or the learning rate is zero", m.name);
    }
  }
}

JobResult run_job(TrainJob& job, const JobCallbacks& callbacks, RunState& state) {
  const Clock::time_point start = Clock::now();
  const double seconds_before = state.seconds;
  const TrainSettings& s = job.settings();
  JobResult result;
  const auto evaluate = [&] {
    const std::optional<Evaluation> e = job.evaluate();
    if (!e) return;
    state.held_out.push_back({job.steps_done(), *e});
    if (callbacks.on_evaluation) callbacks.on_evaluation(*e, job.steps_done());
  };
  // Of a run that goes on after an interruption, the evaluation that was due then is still to come.
  const auto evaluation_due = [&] {
    const int64_t step = job.steps_done();
    return s.steps_per_eval > 0 && step > 0 && step % s.steps_per_eval == 0 && !state.held_out.empty() &&
           state.held_out.back().step != step;
  };
  // Whether patience is at its end.
  const auto compare_with_best = [&] {
    if (state.held_out.back().evaluation.nll < state.held_out[state.best].evaluation.nll) {
      state.best = state.held_out.size() - 1;
      state.best_values = job.snapshot();
      state.without_gain = 0;
      return false;
    }
    return ++state.without_gain >= s.early_stop;
  };
  if (job.steps_done() == 0 && state.held_out.empty()) evaluate();
  for (;;) {
    if (evaluation_due()) {
      evaluate();
      if (s.early_stop > 0 && compare_with_best()) {
        result.reason = StopReason::EarlyStop;
        break;
      }
    }
    if (job.finished()) break;
    const StepReport report = job.step();
    state.curve.push_back({report.step, report.loss, report.learning_rate, report.grad_norm});
    if (callbacks.on_step) callbacks.on_step(report);
    const bool cancelled = callbacks.cancelled && callbacks.cancelled();
    if (callbacks.save &&
        (cancelled || (callbacks.save_every > 0 && report.step % callbacks.save_every == 0))) {
      state.seconds = seconds_before + seconds_since(start);
      callbacks.save(state);
    }
    if (cancelled) {
      result.reason = StopReason::Cancelled;
      break;
    }
  }
  result.steps = job.steps_done();
  result.movements = job.movements();
  if (result.reason != StopReason::Cancelled && !state.held_out.empty()) {
    if (state.held_out.back().step != result.steps) evaluate();
    const Evaluation &last = state.held_out.back().evaluation, &best = state.held_out[state.best].evaluation;
    result.after = last;
    if (!state.best_values.empty() && best.nll < last.nll) {
      job.restore(state.best_values);
      result.after = best;
    }
  } else if (!state.held_out.empty()) {
    result.after = state.held_out.back().evaluation;
  }
  if (!state.held_out.empty()) result.before = state.held_out.front().evaluation;
  state.seconds = seconds_before + seconds_since(start);
  result.seconds = state.seconds;
  return result;
}

JobResult run_job(TrainJob& job, const JobCallbacks& callbacks) {
  RunState state;
  return run_job(job, callbacks, state);
}

void export_adapter(const TrainJob& job, const Model& model, const std::string& path,
                    const std::string& name) {
  export_gguf(job.adapter(), model, job.proof(), path, name);
}

}  // namespace tandem
