#include "train/checkpoint.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "io/json.h"
#include "io/quote.h"

namespace tandem {
namespace {

using nlohmann::json;

// Sections hold numbers as they are in memory, and the container is little-endian.
static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(CurvePoint) == 32 && sizeof(HeldOut) == 48, "records without gaps");

constexpr std::string_view kPrefix = "checkpoint-", kSuffix = ".tandem";

template <class T>
std::vector<T> read_records(const CheckpointFile& file, std::string_view section) {
  const std::span<const std::byte> bytes = file.section(section);
  if (bytes.size() % sizeof(T)) {
    fail(Code::BadData, "{}: section {} has {} bytes, no multiple of {}", file.path(), section, bytes.size(),
         sizeof(T));
  }
  std::vector<T> records(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(records.data(), bytes.data(), bytes.size());
  return records;
}

// A section of exactly `n` numbers.
std::span<const float> numbers_of(const CheckpointFile& file, std::string_view section, size_t n) {
  const std::span<const std::byte> bytes = file.section(section);
  if (bytes.size() != n * sizeof(float)) {
    fail(Code::BadData, "{}: section {} has {} bytes, this adapter needs {}", file.path(), section,
         bytes.size(), n * sizeof(float));
  }
  return {reinterpret_cast<const float*>(bytes.data()), n};
}

std::string state_text(TrainJob& job, const JobNumbers& numbers, const RunState& run) {
  const DataCursor cursor = job.cursor();
  json facts = json::array();
  for (const JobFact& f : job.facts()) facts.push_back({f.name, f.value});
  return json{{"version", TANDEM_VERSION}, {"facts", facts},
              {"step", numbers.step},      {"optimizer_steps", numbers.optimizer_steps},
              {"epoch", cursor.epoch},     {"step_of_epoch", cursor.step},
              {"best", run.best},          {"without_gain", run.without_gain},
              {"seconds", run.seconds}}
      .dump();
}

struct Sections {
  std::string state;
  std::vector<CheckpointSection> list;
};

// The state's text is what the first section points to.
void collect(Sections& out, TrainJob& job, const RunState& run) {
  const JobNumbers n = job.numbers();
  out.state = state_text(job, n, run);
  out.list = {{"state", std::as_bytes(std::span(out.state))},
              {"adapter", std::as_bytes(n.values)},
              {"first-moments", std::as_bytes(n.first_moments)},
              {"second-moments", std::as_bytes(n.second_moments)},
              {"last-good-adapter", std::as_bytes(n.last_good)},
              {"best-adapter", std::as_bytes(std::span(run.best_values))},
              {"expert-tokens", std::as_bytes(n.expert_tokens)},
              {"curve", std::as_bytes(std::span(run.curve))},
              {"held-out", std::as_bytes(std::span(run.held_out))}};
}

// The step in a checkpoint's name; nothing for other names.
std::optional<int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(std::min(name.size(), kSuffix.size()));
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && step >= 0 && fmt::format("{}", step) == name ? std::optional(step) : std::nullopt;
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& path) {
  Checkpoint c(CheckpointFile::open(path));
  const std::span<const std::byte> text = c.file_.section("state");
  const json state =
      parse_json({reinterpret_cast<const char*>(text.data()), text.size()}, path + ": section state");
  try {
    c.version_ = state.at("version").get<std::string>();
    for (const json& f : state.at("facts"))
      c.facts_.push_back({f.at(0).get<std::string>(), f.at(1).get<std::string>()});
    c.step_ = state.at("step").get<int64_t>();
    c.optimizer_steps_ = state.at("optimizer_steps").get<int64_t>();
    c.cursor_ = {state.at("epoch").get<int64_t>(), state.at("step_of_epoch").get<int64_t>()};
    c.run_.best = state.at("best").get<size_t>();
    c.run_.without_gain = state.at("without_gain").get<int64_t>();
    c.run_.seconds = state.at("seconds").get<double>();
  } catch (const json::exception& e) {
    fail(Code::BadData, "{}: this is no checkpoint of a training run: {}", path, e.what());
  }
  return c;
}

std::string fact_differences(const std::vector<JobFact>& then, const std::string& where,
                             const std::vector<JobFact>& now) {
  const auto find = [](const std::vector<JobFact>& facts, const std::string& name) {
    return std::find_if(facts.begin(), facts.end(), [&](const JobFact& f) { return f.name == name; });
  };
  std::string text;
  for (const JobFact& n : now) {
    const auto t = find(then, n.name);
    if (t == then.end() || t->value != n.value) {
      text += fmt::format("\n  {}: {} in {}, {} now", n.name,
                          t == then.end() ? "unknown" : printable(t->value), where, n.value);
    }
  }
  for (const JobFact& t : then) {
    if (find(now, t.name) == now.end())
      text += fmt::format("\n  {}: {} in {}, unknown now", printable(t.name), printable(t.value), where);
  }
  return text;
}

void Checkpoint::require_fit(const TrainJob& job) const {
  const std::string differences = fact_differences(facts_, "the checkpoint", job.facts());
  if (!differences.empty()) {
    fail(Code::Usage,
         "{}: this run is not the one that was interrupted there, so it cannot go on from it:{}\ngive what "
         "was given then, or start a new run with another --checkpoint-dir",
         path(), differences);
  }
  if (version_ != TANDEM_VERSION) {
    log_warn(
        "{} was written by tandem {}, this is {}: the adapter may differ in its last bits from that of an "
        "uninterrupted run",
        path(), version_, TANDEM_VERSION);
  }
}

RunState Checkpoint::apply(TrainJob& job) const {
  const auto broken = [&](const std::string& what) {
    fail(Code::BadData, "{}: this checkpoint contradicts itself: {}", path(), what);
  };
  const size_t n = job.adapter().values().size();
  RunState run = run_;
  run.curve = read_records<CurvePoint>(file_, "curve");
  run.held_out = read_records<HeldOut>(file_, "held-out");
  run.best_values = read_records<float>(file_, "best-adapter");
  if (step_ < 0 || step_ > job.total_steps()) broken(fmt::format("step {} of {}", step_, job.total_steps()));
  if (optimizer_steps_ != step_)
    broken(fmt::format("{} steps, {} of the optimizer", step_, optimizer_steps_));
  if (static_cast<int64_t>(run.curve.size()) != step_)
    broken(fmt::format("{} steps, {} on the loss curve", step_, run.curve.size()));
  if (!run.best_values.empty() && run.best_values.size() != n)
    broken(fmt::format("{} numbers of the best adapter, {} of the adapter", run.best_values.size(), n));
  if (run.best >= std::max<size_t>(1, run.held_out.size()) || run.without_gain < 0)
    broken(fmt::format("the best evaluation is number {} of {}", run.best, run.held_out.size()));
  const std::vector<int64_t> expert_tokens = read_records<int64_t>(file_, "expert-tokens");
  if (expert_tokens.size() != job.expert_tokens().size())
    broken(fmt::format("{} experts, the model has {}", expert_tokens.size(), job.expert_tokens().size()));
  job.restore({.step = step_,
               .optimizer_steps = optimizer_steps_,
               .values = numbers_of(file_, "adapter", n),
               .first_moments = numbers_of(file_, "first-moments", n),
               .second_moments = numbers_of(file_, "second-moments", n),
               .last_good = numbers_of(file_, "last-good-adapter", n),
               .expert_tokens = expert_tokens});
  const DataCursor now = job.cursor();
  if (now != cursor_) {
    broken(fmt::format("step {} is step {} of epoch {}, it says step {} of epoch {}", step_, now.step,
                       now.epoch, cursor_.step, cursor_.epoch));
  }
  return run;
}

void write_checkpoint(const std::string& path, TrainJob& job, const RunState& run) {
  Sections sections;
  collect(sections, job, run);
  write_checkpoint_file(path, sections.list);
}

std::string CheckpointStore::path_of(int64_t step) const {
  return fmt::format("{}/{}{}{}", directory_, kPrefix, step, kSuffix);
}

std::vector<CheckpointStore::Entry> CheckpointStore::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  if (!std::filesystem::exists(directory_, error) && !error) return entries;
  for (std::filesystem::directory_iterator it(directory_, error), end; !error && it != end;
       it.increment(error)) {
    if (const std::optional<int64_t> step = step_of_name(it->path().filename().string()))
      entries.push_back({*step, path_of(*step)});
  }
  if (error) fail(Code::Io, "{}: the checkpoints there cannot be listed: {}", directory_, error.message());
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.step < b.step; });
  return entries;
}

std::optional<Checkpoint> CheckpointStore::newest() const {
  const std::vector<Entry> entries = list();
  std::string damage;
  for (auto e = entries.rbegin(); e != entries.rend(); ++e) {
    try {
      Checkpoint found = Checkpoint::open(e->path);
      if (!damage.empty()) log_warn("{}\nthe one before it is used: {}", damage, e->path);
      return found;
    } catch (const Error& error) {
      if (error.code() != Code::BadData) throw;
      damage += (damage.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  if (!damage.empty()) {
    fail(Code::BadData, "{}\nno checkpoint in {} is whole; to start over, remove it or use another one",
         damage, directory_);
  }
  return std::nullopt;
}

void CheckpointStore::prepare() const {
  const bool made = make_directory(directory_);
  remove_abandoned_temporaries(directory_, kPrefix);
  std::error_code ignored;
  try {
    check_writable(path_of(0));
  } catch (...) {
    if (made) std::filesystem::remove(directory_, ignored);
    throw;
  }
  if (made) std::filesystem::remove(directory_, ignored);
}

void CheckpointStore::save(TrainJob& job, const RunState& run) const {
  make_directory(directory_);
  Sections sections;
  collect(sections, job, run);
  try {
    write_checkpoint_file(path_of(job.steps_done()), sections.list);
  } catch (const Error& e) {
    if (e.code() != Code::Io) throw;
    std::error_code none;
    const std::filesystem::space_info space = std::filesystem::space(directory_, none);
    std::string last = "there is no earlier one";
    try {
      if (const std::optional<Checkpoint> whole = newest())
        last = fmt::format("the last whole one is {} (--resume-from)", whole->path());
    } catch (const Error& other) {
      last = other.what();
    }
    fail(Code::Io, "{}; the checkpoint takes {}, {} has {} free; {}", e.what(),
         format_bytes(checkpoint_file_bytes(sections.list)), directory_,
         none ? "?" : format_bytes(space.available), last);
  }
  std::vector<Entry> older = list();
  std::erase_if(older, [&](const Entry& e) { return e.step >= job.steps_done(); });
  for (size_t i = 0; static_cast<int64_t>(older.size() - i) >= n_keep_ && i < older.size(); ++i) {
    try {
      remove_file(older[i].path);
    } catch (const Error& e) {  // the new one is in place; one too many does no harm
      log_warn("{}", e.what());
    }
  }
}

}  // namespace tandem
