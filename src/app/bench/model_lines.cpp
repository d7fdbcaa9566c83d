// tandem bench train, prefill and decode.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "app/bench/meter.h"
#include "app/bench/modes.h"
#include "app/bench/shapes.h"
#include "app/engine.h"
#include "app/output.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "graph/op_def.h"
#include "train/job.h"

namespace tandem {
namespace {

constexpr int64_t kSpareSteps = 8;  // of a training job, beyond those that are timed

// A model and what its lines call it.
struct NamedModel {
  Model model;
  std::string name;
};

// A file that is removed at the end.
struct RemovedFile {
  std::string path;
  ~RemovedFile() {
    std::error_code none;
    std::filesystem::remove(path, none);
  }
};

NamedModel synthetic_model(const Options& o, const Machines& machines, int64_t n_ctx) {
  const NamedShape& shape = find_shape(o.text(Opt::BenchSynth));
  const int64_t n_layer = o.integer(Opt::Layers), n_vocab = o.integer(Opt::Vocab);
  const DType type = bench_type(o, shape);
  const SynthSettings settings = model_of(shape, n_layer, n_vocab, type, n_ctx);
  if (*shape.difference)
    log_warn("{}: layers of {} are measured; {}", shape.name, shape.arch, shape.difference);
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) fail(Code::Io, "there is no folder for temporary files: {}", error.message());
  const RemovedFile file{(folder / fmt::format("tandem-bench-{}.gguf", getpid())).string()};
  write_synthetic(find_arch(shape.arch), settings, machines[machines.size() - 1].pool, file.path);
  return {Model::open(file.path),
          fmt::format("{}, {} layers, vocabulary {}, {}", shape.name, n_layer, n_vocab, name_of(type))};
}

NamedModel open_model(const Options& o, const Machines& machines, int64_t n_ctx) {
  if (o.given(Opt::BenchSynth)) return synthetic_model(o, machines, n_ctx);
  const std::string& path = o.text(Opt::Model);
  NamedModel m{Model::open(path), std::filesystem::path(path).filename().string()};
  if (n_ctx > m.model.hparams().n_ctx_train) {
    fail(Code::Usage, "{} tokens are beyond the model's context of {}", n_ctx, m.model.hparams().n_ctx_train);
  }
  return m;
}

std::vector<int32_t> random_tokens(const Model& model, int64_t n) {
  Rng rng(1);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(model.hparams().n_vocab))));
  return tokens;
}

// A way to run a model that is timed.
struct ModelTask {
  std::string what;       // of a line: "step of 512 tokens"
  int64_t n_repeats = 1;  // times that this happens in one run
  int64_t n_tokens = 0;   // of a run
  Contender contender;
};

// What a kind of segment, or an op, came to in some runs.
struct Part {
  std::vector<Work> work;
  double seconds = 0;
};

// The nodes of one or more runs.
struct Profile {
  std::vector<NodeRun> nodes;
  double seconds = 0;  // with what is done between the nodes
  int64_t n_runs = 0;
};

Profile profile(const ModelTask& task, MeterBackend& meter, Machine& machine, int64_t n_runs) {
  Profile p;
  p.n_runs = n_runs;
  for (int64_t i = 0; i < n_runs; ++i) {
    if (task.contender.prepare) task.contender.prepare(i);
    meter.record(&p.nodes);
    const auto start = std::chrono::steady_clock::now();
    task.contender.run(machine);
    p.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    meter.record(nullptr);
  }
  return p;
}

// Prints where the time of a run goes, the longest first.
void print_parts(const Profile& p, const std::string& by, const Peaks& peaks, const BenchLine& line,
                 bool as_lines_of_json, double n_repeats) {
  std::map<std::string, Part> parts;
  double inside = 0;
  for (const NodeRun& n : p.nodes) {
    Part& part = parts[by == "op" ? op_name(n.op) : n.segment];
    part.work.push_back(n.work);
    part.seconds += n.seconds;
    inside += n.seconds;
  }
  parts["(between nodes)"].seconds = std::max(0.0, p.seconds - inside);
  std::vector<std::pair<std::string, Part>> sorted(parts.begin(), parts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  Table table("  ", {0, 4});
  table.add({by, "ms", "of the time", "share", "of"});
  for (const auto& [name, part] : sorted) {
    const double ms = 1e3 * part.seconds / (static_cast<double>(p.n_runs) * n_repeats);
    const Bound bound = bound_of(part.work, peaks);
    const bool bounded = !part.work.empty() && part.seconds > 0;
    if (as_lines_of_json) {
      nlohmann::json out{
          {"type", "part"}, {"mode", line.mode}, {"name", line.name}, {"threads", line.n_threads},
          {"by", by},       {"part", name},      {"ms", ms},          {"of_time", part.seconds / p.seconds}};
      if (bounded) {
        out["share"] = bound.seconds / part.seconds;
        out["bound"] = bound.by;
      }
      print_json(out);
    } else {
      table.add({name, fmt::format("{:.3f}", ms), fmt::format("{:.1f} %", 100 * part.seconds / p.seconds),
                 bounded ? fmt::format("{:.0f} %", 100 * bound.seconds / part.seconds) : "",
                 bounded ? bound.by : ""});
    }
  }
  if (!as_lines_of_json) print("by {}, {} threads\n{}\n", by, line.n_threads, table.text());
}

// The lines of a task.
void measure_task(const Options& o, const Machines& machines, const ModelTask& task, MeterBackend& meter,
                  const std::string& model_name, Reporter& reporter) {
  const RoundSettings settings{.n_rounds = o.integer(Opt::BenchRounds), .sample_seconds = 0};
  const Measured measured = measure(machines, {&task.contender, 1}, settings);
  reporter.add_peaks(machines, measured);
  const size_t memory = anonymous_memory_bytes(), ours = machines.peaks().held_bytes();
  const bool by = o.given(Opt::BenchBy);
  std::vector<Profile> profiles;
  for (size_t i = by ? 0 : machines.size() - 1; i < machines.size(); ++i)
    profiles.push_back(profile(task, meter, machines[i], by ? settings.n_rounds : 1));
  std::vector<Work> work;
  const size_t n_nodes = profiles.back().nodes.size() / static_cast<size_t>(profiles.back().n_runs);
  for (size_t n = 0; n < n_nodes; ++n) work.push_back(profiles.back().nodes[n].work);

  std::vector<BenchLine> lines;
  for (size_t i = 0; i < machines.size(); ++i) {
    BenchLine line = make_line(measured.series[i][0], measured.peaks[i], work);
    line.mode = o.operand();
    line.name = fmt::format("{}, {}", task.what, model_name);
    line.label = task.what;
    line.precision = precision_name(bench_precision(o, machines.level()));
    line.n_threads = machines[i].pool.n_threads();
    line.tokens_per_second = static_cast<double>(task.n_tokens) / (line.ms.median * 1e-3);
    for (double* ms : {&line.ms.median, &line.ms.lo, &line.ms.hi}) *ms /= static_cast<double>(task.n_repeats);
    line.memory_bytes = memory > ours ? memory - ours : 0;
    reporter.add(line);
    lines.push_back(std::move(line));
  }
  reporter.flush(fmt::format("{} {}", o.operand(), model_name));
  if (!by) return;
  for (size_t i = 0; i < machines.size(); ++i) {
    print_parts(profiles[i], o.text(Opt::BenchBy), median_peaks(measured.peaks[i]), lines[i],
                reporter.lines_of_json(), static_cast<double>(task.n_repeats));
  }
}

// One row of random tokens, every one but the first trained; a step is a window of it.
void bench_train(const Options& o, const Machines& machines, Refusals* why, Reporter& reporter) {
  const int64_t n = o.integer(Opt::BenchPrompt), rounds = o.integer(Opt::BenchRounds);
  if (n < 2) fail(Code::Usage, "--n-prompt is {}, a row to train on has at least 2 tokens", n);
  if (o.integer(Opt::SegmentTokens) % kRangeAlign) {
    fail(Code::Usage, "--ubatch-size must be a multiple of {}, not {}", kRangeAlign,
         o.integer(Opt::SegmentTokens));
  }
  const NamedModel named = open_model(o, machines, n);
  Sample sample{random_tokens(named.model, n), std::vector<uint8_t>(static_cast<size_t>(n), 1), 1};
  sample.trained[0] = 0;
  TrainSettings s;
  s.targets = o.text(Opt::LoraTargets);
  s.rank = o.integer(Opt::LoraRank);
  s.iters = static_cast<int64_t>(machines.size()) * (1 + 2 * rounds) + kSpareSteps;
  s.batch_rows = 1;
  s.adamw.learning_rate = 1e-5f;  // random weights learn nothing; the numbers must only stay finite
  s.max_tokens = s.window_tokens = n;
  s.range_tokens = o.integer(Opt::SegmentTokens);
  s.precision = bench_precision(o, machines.level());
  MeterBackend meter(machines, why);
  TrainJob job(named.model, meter, s, {sample}, {});
  if (why) {
    job.estimate();
    return;
  }
  const size_t available = available_memory_bytes(), held = anonymous_memory_bytes();
  job.allocate(available + std::min(held, SIZE_MAX - available));
  const ModelTask task{.what = fmt::format("step of {} tokens, rank {}, {}", n, s.rank, s.targets),
                       .n_tokens = n,
                       .contender = {[&](Machine& m) {
                         meter.use(m);
                         job.step();
                       }}};
  measure_task(o, machines, task, meter, named.name, reporter);
}

void bench_session(const Options& o, const Machines& machines, Refusals* why, Reporter& reporter) {
  const bool decode = o.operand() == "decode";
  const int64_t n = o.integer(decode ? Opt::BenchGen : Opt::BenchPrompt), depth = o.integer(Opt::BenchDepth);
  const NamedModel named = open_model(o, machines, depth + n);
  const std::vector<int32_t> tokens = random_tokens(named.model, depth + n);
  MeterBackend meter(machines, why);
  const int64_t range = why && decode ? 1 : o.integer(Opt::SegmentTokens);
  Session session(named.model, meter, {}, depth + n, range, bench_precision(o, machines.level()));
  if (why) {
    session.plan();
    return;
  }
  session.allocate();
  const std::span<const int32_t> past = std::span(tokens).first(static_cast<size_t>(depth)),
                                 timed = std::span(tokens).subspan(static_cast<size_t>(depth));
  meter.use(machines[machines.size() - 1]);
  ModelTask task;
  task.n_repeats = decode ? n : 1;
  task.n_tokens = n;
  task.what = decode ? fmt::format("token, mean of {} after {}", n, depth)
                     : fmt::format("prompt of {} tokens after {}", n, depth);
  task.contender.prepare = [&](int64_t) {
    session.clear();
    if (!past.empty()) session.append(past);
  };
  task.contender.run = [&](Machine& m) {
    meter.use(m);
    const size_t step = decode ? 1 : timed.size();
    for (size_t i = 0; i < timed.size(); i += step) session.append(timed.subspan(i, step));
  };
  measure_task(o, machines, task, meter, named.name, reporter);
}

}  // namespace

void bench_model(const Options& o, const Machines& machines, Reporter& reporter) {
  Refusals refusals(machines[0].backend);
  Refusals* why = o.on(Opt::Why) ? &refusals : nullptr;
  if (o.operand() == "train") {
    bench_train(o, machines, why, reporter);
  } else {
    bench_session(o, machines, why, reporter);
  }
  if (why) refusals.print(reporter.lines_of_json());
}

}  // namespace tandem
