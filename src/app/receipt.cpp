#include "app/receipt.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "io/content_hash.h"
#include "io/json.h"
#include "io/quote.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr size_t kMaxReceiptBytes = size_t{1} << 30;  // mostly the loss curve

// The options that decide the result.  Precision and instruction set are written as they were resolved.
constexpr Opt kSettings[] = {Opt::PromptStyle,  Opt::ParseSpecial,   Opt::TrainOn,      Opt::MaxSeqLength,
                             Opt::Truncate,     Opt::AllowEmptyRows, Opt::Packing,      Opt::LoraRank,
                             Opt::LoraAlpha,    Opt::LoraTargets,    Opt::RsLora,       Opt::LoraDropout,
                             Opt::Epochs,       Opt::Iters,          Opt::BatchRows,    Opt::GradAccumulation,
                             Opt::LearningRate, Opt::LrScheduler,    Opt::LrMin,        Opt::WarmupRatio,
                             Opt::WarmupSteps,  Opt::WeightDecay,    Opt::MaxGradNorm,  Opt::AdamBeta1,
                             Opt::AdamBeta2,    Opt::AdamEps,        Opt::StepsPerEval, Opt::EarlyStop,
                             Opt::BatchTokens,  Opt::SegmentTokens,  Opt::Seed,         Opt::Precision,
                             Opt::Isa,          Opt::RopeYarnRound};

json settings_json(const Options& o, const Engine& engine, const TrainSettings& settings) {
  json out = json::object();
  for (const Opt option : kSettings) {
    // Without effect, and refused beside the one that has it.
    if (option == Opt::Epochs && o.given(Opt::Iters)) continue;
    if (option == Opt::WarmupRatio && o.given(Opt::WarmupSteps)) continue;
    const bool of_a_new_adapter =
        option == Opt::LoraRank || option == Opt::LoraAlpha || option == Opt::RsLora;
    if (of_a_new_adapter && !o.text(Opt::LoraInit).empty()) continue;
    std::string value = o.as_text(option);
    if (option == Opt::Precision) value = precision_name(settings.precision);
    if (option == Opt::Isa) value = isa_name(engine.backend.level());
    if (!value.empty()) out[option_key(option)] = value;
  }
  return out;
}

json rows_json(const std::string& path, const SampleReport& report) {
  json dropped = json::array();
  for (const DroppedRow& d : report.dropped) dropped.push_back({{"line", d.line}, {"reason", d.reason}});
  return {{"file", path},
          {"rows", report.n_rows},
          {"tokens", report.n_tokens},
          {"trained_tokens", report.n_trained_tokens},
          {"shortened", report.n_shortened},
          {"dropped", dropped}};
}

// A setting as an argument.
std::string argument_of(const std::string& path, const std::string& key, const std::string& value) {
  const bool known =
      std::any_of(std::begin(kSettings), std::end(kSettings), [&](Opt o) { return option_key(o) == key; });
  if (!known) fail(Code::BadData, "{}: {} is no setting of a training run", path, quote(key));
  for (const Opt o : {Opt::ParseSpecial, Opt::AllowEmptyRows, Opt::Packing, Opt::RsLora}) {
    if (option_key(o) == key) return (value == "on" ? "--" : "--no-") + key;
  }
  return fmt::format("--{}={}", key, value);
}

// Of each layer that the gradient went through: how many experts it reached, and which it did not.
json experts_json(const HParams& h, std::span<const int64_t> tokens) {
  json layers = json::array();
  for (int64_t il = 0; il < (tokens.empty() ? 0 : h.n_layer); ++il) {
    const std::span<const int64_t> of_layer =
        tokens.subspan(static_cast<size_t>(il * h.n_expert), static_cast<size_t>(h.n_expert));
    json missed = json::array();
    int64_t most = 0;
    for (size_t e = 0; e < of_layer.size(); ++e) {
      most = std::max(most, of_layer[e]);
      if (of_layer[e] == 0) missed.push_back(e);
    }
    if (most == 0) continue;
    layers.push_back({{"layer", il},
                      {"reached", of_layer.size() - missed.size()},
                      {"not_reached", missed},
                      {"most_tokens", most}});
  }
  return layers;
}

}  // namespace

json evaluation_json(const std::optional<Evaluation>& e) {
  if (!e) return nullptr;
  return {{"rows", e->n_rows},
          {"tokens", e->n_tokens},
          {"nll", e->nll},
          {"exact", e->n_exact},
          {"accuracy", e->accuracy}};
}

json movements_json(const std::vector<Movement>& movements) {
  json out = json::array();
  for (const Movement& m : movements) {
    out.push_back({{"name", m.name},
                   {"rank", m.rank},
                   {"a_change", m.a_change},
                   {"b_change", m.b_change},
                   {"delta_norm", m.delta_norm}});
  }
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

std::optional<Evaluation> evaluation_after(const JobResult& r) {
  return r.reason == StopReason::Cancelled ? std::nullopt : r.after;
}

std::string receipt_path(const std::string& adapter_path) {
  constexpr std::string_view kGguf = ".gguf";
  const size_t n = adapter_path.size() - (adapter_path.ends_with(kGguf) ? kGguf.size() : 0);
  return adapter_path.substr(0, n) + ".receipt.json";
}

std::string adapter_hash(const TrainJob& job) {
  ContentHash hash;
  hash.add(std::as_bytes(job.adapter().values()));
  return hash.hex();
}

void write_receipt(const std::string& path, const Options& options, const Engine& engine,
                   const TrainingInputs& inputs, const TrainJob& job, const JobResult& result,
                   const RunState& state) {
  json facts = json::array(), curve = json::array(), held_out = json::array();
  for (const JobFact& f : job.facts()) facts.push_back({f.name, f.value});
  for (const CurvePoint& p : state.curve) {
    curve.push_back(
        {{"step", p.step}, {"loss", p.loss}, {"learning_rate", p.learning_rate}, {"grad_norm", p.grad_norm}});
  }
  for (const HeldOut& h : state.held_out) {
    held_out.push_back(evaluation_json(h.evaluation));
    held_out.back()["step"] = h.step;
  }
  json out{{"type", "receipt"},
           {"format", kFormat},
           {"version", TANDEM_VERSION},
           {"model", {{"file", options.text(Opt::Model)}, {"base_hash", inputs.model.base_hash()}}},
           {"data", rows_json(options.text(Opt::TrainFile), inputs.train.report)},
           {"held_out_data", nullptr},
           {"lora_init", nullptr},
           {"settings", settings_json(options, engine, inputs.settings)},
           {"facts", facts},
           {"reason", reason_name(result.reason)},
           {"steps", result.steps},
           {"total_steps", job.total_steps()},
           {"seconds", result.seconds},
           {"before", evaluation_json(result.before)},
           {"after", evaluation_json(evaluation_after(result))},
           {"loss_curve", curve},
           {"held_out", held_out},
           {"movements", movements_json(result.movements)},
           {"experts", experts_json(inputs.model.hparams(), job.expert_tokens())}};
  if (inputs.validation)
    out["held_out_data"] = rows_json(options.text(Opt::ValFile), inputs.validation->report);
  if (!options.text(Opt::LoraInit).empty()) out["lora_init"] = options.text(Opt::LoraInit);
  out["adapter"] = {{"file", options.text(Opt::AdapterPath)},
                    {"numbers", job.adapter().values().size()},
                    {"hash", adapter_hash(job)}};
  write_file_atomic(path, out.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

Receipt read_receipt(const std::string& path) {
  const json document = parse_json(read_file(path, kMaxReceiptBytes), path);
  Receipt r;
  try {
    if (document.at("type") != "receipt" || document.at("format") != kFormat)
      fail(Code::BadData, "{}: this is no receipt of a training run, or of another format", path);
    r.version = document.at("version").get<std::string>();
    for (const auto& [key, value] : document.at("settings").items())
      r.arguments.push_back(argument_of(path, key, value.get<std::string>()));
    for (const json& f : document.at("facts"))
      r.facts.push_back({f.at(0).get<std::string>(), f.at(1).get<std::string>()});
    r.adapter_hash = document.at("adapter").at("hash").get<std::string>();
    r.steps = document.at("steps").get<int64_t>();
    r.interrupted = document.at("reason") == reason_name(StopReason::Cancelled);
    r.held_out = !document.at("held_out_data").is_null();
    r.lora_init = !document.at("lora_init").is_null();
  } catch (const json::exception& e) {
    fail(Code::BadData, "{}: this is no receipt of a training run: {}", path, printable(e.what()));
  }
  return r;
}

}  // namespace tandem
