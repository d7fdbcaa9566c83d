#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/output.h"
#include "app/training.h"
#include "base/file.h"
#include "base/memory.h"
#include "io/quote.h"
#include "ops/ops.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr double kMeasureSeconds = 0.2;
constexpr size_t kShownDropped = 10;

// Operations per second (multiply-adds counted twice) of products with a matrix like the model's largest: its
// type and row length, as many tokens as a segment brings it.  The matrix is zeros: no weight is read.
double measure_rate(Engine& engine, const Model& model, const TrainSettings& s) {
  const std::vector<const Weight*> all = model.adaptable();
  const Weight& w = **std::max_element(all.begin(), all.end(), [](const Weight* a, const Weight* b) {
    return a->ne.elements() < b->ne.elements();
  });
  const HParams& h = model.hparams();
  const int64_t n_in = w.ne[0], n_out = std::min<int64_t>(w.ne[1], 1024);
  const int64_t n_tokens =
      w.ne[2] > 1 ? std::max<int64_t>(1, s.range_tokens * h.n_expert_used / h.n_expert) : s.range_tokens;
  const Buffer matrix(static_cast<size_t>(row_bytes(w.type, n_in) * n_out), "a measurement");
  const Buffer x(static_cast<size_t>(n_in * n_tokens) * sizeof(float), "a measurement");
  const Buffer y(static_cast<size_t>(n_out * n_tokens) * sizeof(float), "a measurement");
  Graph graph(16);
  graph.precision = s.precision;
  const Tensor product =
      mul_mat(graph.leaf(w.type, {n_in, n_out}, Home::Mapped, static_cast<const void*>(matrix.data()), "w"),
              graph.leaf(DType::F32, {n_in, n_tokens}, Home::Persistent, static_cast<void*>(x.data()), "x"));
  graph.bind(product, y.data());
  const Buffer arena(std::max<size_t>(1, engine.backend.plan(graph, graph.size()).total()), "a measurement");
  const auto run = [&] { engine.backend.run(graph, graph.size(), arena.span(), Priority::Training); };
  run();
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double seconds = 0;
  int n_runs = 0;
  for (; seconds < kMeasureSeconds; ++n_runs) {
    run();
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return 2.0 * static_cast<double>(n_in) * static_cast<double>(n_out * n_tokens) * n_runs / seconds;
}

// Each stretch on a line: '>' what is trained, '.' what is not.
std::string preview_text(const SampleReport& report) {
  std::string out = "preview    '>' is trained, '.' is not\n";
  for (size_t i = 0; i < report.preview.size(); ++i) {
    if (i > 0) out += '\n';
    for (const PreviewPart& part : report.preview[i]) {
      out += fmt::format("           {} {}\n", part.trained ? '>' : '.', printable(part.text));
    }
  }
  return out;
}

std::string dropped_text(const SampleReport& report) {
  std::string out;
  for (size_t i = 0; i < report.dropped.size() && i < kShownDropped; ++i) {
    out += fmt::format("{:<10} line {}: {}\n", i == 0 ? "left out" : "", report.dropped[i].line,
                       report.dropped[i].reason);
  }
  if (report.dropped.size() > kShownDropped) {
    out += fmt::format("{:<10} and {} more (--json lists all)\n", "", report.dropped.size() - kShownDropped);
  }
  return out;
}

std::string targets_text(const TrainJob& job) {
  Table table("           ", {1, 2});
  for (const AdapterPair& p : job.adapter().pairs()) {
    if (p.trainable)
      table.add(
          {p.weight->name, to_string(p.weight->ne), name_of(p.weight->type), fmt::format("rank {}", p.rank)});
  }
  return "targets\n" + table.text();
}

}  // namespace

int check_command(const Options& options) {
  Engine engine(options);
  TrainingInputs inputs = load_training(options, engine);
  if (options.given(Opt::AdapterPath)) check_writable(options.text(Opt::AdapterPath));
  TrainJob job = make_job(inputs, engine);
  const TrainPlan plan = make_plan(options, job);
  const double rate = measure_rate(engine, inputs.model, inputs.settings);
  const double seconds = plan.estimate.train_flops / rate;
  const SampleReport& report = inputs.train.report;
  if (options.on(Opt::Json)) {
    json out = plan_json(options, inputs, job, plan);
    out["type"] = "check";
    out["preview"] = json::array();
    for (const std::vector<PreviewPart>& row : report.preview) {
      json parts = json::array();
      for (const PreviewPart& part : row) parts.push_back({{"text", part.text}, {"trained", part.trained}});
      out["preview"].push_back(parts);
    }
    out["estimated_seconds"] = seconds;
    out["measured_flops_per_second"] = rate;
    print_json(out);
  } else {
    print_text(plan_text(options, inputs, job, plan));
    print(
        "{:<10} at least {}: {} operations at {:.1f} G a second, measured just now on one product of this\n"
        "           kind; attention, loss and optimizer come on top, so expect up to twice as much\n",
        "time", format_duration(seconds), format_count(plan.estimate.train_flops), rate / 1e9);
    print_text(dropped_text(report) + targets_text(job) + preview_text(report));
  }
  check_budget(plan, inputs.settings);
  return 0;
}

}  // namespace tandem
