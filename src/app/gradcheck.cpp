#include "train/gradcheck.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/adapters.h"
#include "app/commands.h"
#include "app/output.h"
#include "app/training.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rng.h"
#include "io/quote.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr double kLongSeconds = 20;              // an estimate of more is told
constexpr double kEvaluationsPerDirection = 10;  // typical: five steps, two sides
// B of a random adapter: with A x about as large as x, the adapter then adds a tenth of x to each output.
constexpr double kRandomDelta = 0.05;

// "0,2,5-7" as one flag per layer; all of them for an empty text.  Throws: Usage.
std::vector<bool> parse_layers(const std::string& text, int64_t n_layer) {
  std::vector<bool> chosen(static_cast<size_t>(n_layer), text.empty());
  const auto number = [&](std::string_view digits) {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0) {
      fail(Code::Usage, "--layers takes numbers and ranges such as 0,2,5-7, not '{}'", text);
    }
    if (value >= n_layer) {
      fail(Code::Usage, "--layers names layer {}, the model's are 0 to {}", value, n_layer - 1);
    }
    return value;
  };
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    const size_t dash = part.find('-');
    const int64_t first = number(part.substr(0, dash));
    const int64_t last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (last < first) fail(Code::Usage, "--layers: the range '{}' runs backwards", part);
    for (int64_t il = first; il <= last; ++il) chosen[static_cast<size_t>(il)] = true;
    begin = end + 1;
  }
  return chosen;
}

// The adapter of --lora, or one whose A and B are both random: at the usual B = 0 no A has a gradient.
AdapterSet make_adapter(const Options& o, const Model& model) {
  const std::vector<std::string>& files = o.list(Opt::Lora);
  const bool all_of_it = !files.empty() && !o.given(Opt::LoraTargets);
  std::vector<const Weight*> targets;
  if (!all_of_it) targets = resolve_targets(model, o.text(Opt::LoraTargets));
  AdapterSet set;
  if (files.empty()) {
    const int64_t rank = o.integer(Opt::LoraRank);
    const float alpha = o.given(Opt::LoraAlpha) ? static_cast<float>(o.number(Opt::LoraAlpha))
                                                : 2.f * static_cast<float>(rank);
    const auto seed = static_cast<uint64_t>(o.integer(Opt::Seed));
    set = AdapterSet::create(targets, rank, alpha, o.on(Opt::RsLora), seed);
    for (const AdapterPair& p : set.pairs()) {
      Rng rng(random_bits({seed, key_of("gradcheck lora_b"), key_of(p.weight->name)}));
      float* b = set.b(p);
      const double deviation = kRandomDelta / std::sqrt(static_cast<double>(p.rank));
      for (int64_t i = 0; i < p.b_shape.elements(); ++i)
        b[i] = static_cast<float>(deviation * rng.next_normal());
    }
  } else {
    if (files.size() > 1)
      fail(Code::Usage, "tandem gradcheck checks one adapter, --lora is given {} times", files.size());
    for (Opt option : {Opt::LoraRank, Opt::LoraAlpha, Opt::RsLora}) {
      if (o.given(option))
        fail(Code::Usage,
             "--lora-rank, --lora-alpha and --rslora have no effect with --lora, whose own stay");
    }
    set = load_adapter(o, files[0], model);
    for (const Weight* w : targets) {
      if (!set.find(*w))
        fail(Code::Usage, "{} has no adapter for {}; name only targets it has (--lora-targets)", files[0],
             w->name);
    }
  }
  const std::vector<bool> layers = parse_layers(o.text(Opt::CheckedLayers), model.hparams().n_layer);
  std::vector<bool> found(layers.size());
  for (AdapterPair& p : set.pairs()) {
    const bool wanted = all_of_it || std::find(targets.begin(), targets.end(), p.weight) != targets.end();
    p.trainable = wanted && layers[static_cast<size_t>(p.weight->layer)];
    if (p.trainable) found[static_cast<size_t>(p.weight->layer)] = true;
  }
  for (size_t il = 0; il < layers.size(); ++il) {
    if (o.given(Opt::CheckedLayers) && layers[il] && !found[il])
      fail(Code::Usage, "--layers: nothing in layer {} is adapted", il);
  }
  if (std::find(found.begin(), found.end(), true) == found.end()) fail(Code::Usage, "nothing is adapted");
  return set;
}

// Tokens drawn at random, as two samples side by side (more where the context is short): their borders are
// checked too.
Window random_tokens(const Options& o, const HParams& h) {
  const int64_t n = o.integer(Opt::SampleTokens);
  const int64_t longest = std::min<int64_t>((5 * n + 7) / 8, h.n_ctx_train);
  Rng rng(random_bits({static_cast<uint64_t>(o.integer(Opt::Seed)), key_of("gradcheck tokens")}));
  Window window;
  while (window.n_tokens() < n) {
    std::vector<int32_t> tokens(static_cast<size_t>(std::min(longest, n - window.n_tokens())));
    for (int32_t& t : tokens) t = static_cast<int32_t>(rng.below(static_cast<uint64_t>(h.n_vocab)));
    window.append(tokens, std::vector<uint8_t>(tokens.size(), 1));
  }
  return window;
}

// The first rows of the file that fit --tokens, at least one.
Window first_rows(const Options& o, const Model& model, size_t* n_rows) {
  const Tokenizer tokenizer(read_vocab(model.file()));
  const SampleSet set = read_samples(o, o.text(Opt::TrainFile), tokenizer, max_row_tokens(o, model));
  Window window;
  *n_rows = 0;
  for (const Sample& s : set.samples) {
    if (*n_rows && window.tokens.size() + s.tokens.size() > static_cast<size_t>(o.integer(Opt::SampleTokens)))
      break;
    window.append(s.tokens, s.trained);
    ++*n_rows;
  }
  return window;
}

const char* verdict_name(Verdict v) {
  switch (v) {
    case Verdict::Passed:
      return "passed";
    case Verdict::Failed:
      return "failed";
    case Verdict::Unresolved:
      return "unresolved";
  }
  return "";
}

// JSON has no infinity: null.
json number(double x) { return std::isfinite(x) ? json(x) : json(nullptr); }

json tensor_json(const TensorCheck& t) {
  json directions = json::array();
  for (const DirectionCheck& c : t.directions) {
    directions.push_back({{"direction", c.along_gradient ? "gradient" : "random"},
                          {"verdict", verdict_name(c.verdict)},
                          {"engine", c.engine},
                          {"numeric", number(c.numeric)},
                          {"noise", number(c.noise)},
                          {"scale", number(c.scale)},
                          {"step", c.step}});
  }
  return {{"name", t.name},
          {"layer", t.layer},
          {"values", t.n_values},
          {"gradient_norm", number(t.gradient_norm)},
          {"loss_noise", t.loss_noise},
          {"verdict", verdict_name(t.verdict)},
          {"reason", t.reason},
          {"error", number(t.error())},
          {"noise", number(t.noise())},
          {"directions", directions}};
}

// What is checked and how, in words and as JSON.
struct Setup {
  std::string tokens, adapter;
  int64_t n_tokens = 0, n_trained = 0;
  size_t n_tensors = 0, name_width = 6;
};

void print_setup(const Options& o, const Model& model, const Setup& s, const GradCheckSettings& settings,
                 Precision precision, const GradCheckReport& r) {
  const HParams& h = model.hparams();
  print("{:<10} {}: {}, {} layers, width {}\n", "model", printable(o.text(Opt::Model)), model.arch().name,
        h.n_layer, h.n_embd);
  print("{:<10} {}\n{:<10} {}\n", "adapter", s.adapter, "tokens", s.tokens);
  print(
      "{:<10} {:.6g} nats over {} trained tokens, {} products, each token at the experts of the forward "
      "pass\n",
      "loss", r.loss, s.n_trained, precision_name(precision));
  print(
      "{:<10} {} random direction{} through each tensor and one along its gradient; central differences at "
      "the\n"
      "           steps h, h/2, h/4 (of the tensor's size) that leave the least doubt, extrapolated; passes "
      "within\n"
      "           {:g} of the scale plus noise, unresolved where noise exceeds {:g} of it; seed {}\n",
      "method", settings.samples, settings.samples == 1 ? "" : "s", settings.tolerance, settings.resolution,
      settings.seed);
  const double seconds = r.evaluation_seconds * static_cast<double>(s.n_tensors) *
                         (13 + kEvaluationsPerDirection * static_cast<double>(settings.samples + 1));
  if (seconds > kLongSeconds) {
    print("{:<10} about {} for {} tensors; --layers and --samples make it fewer\n", "time",
          format_duration(seconds), s.n_tensors);
  }
  print("\n  {:<{}}  {:>10}  {:>8}  {:>8}  {:>9}  {:>4}\n", "tensor", s.name_width, "|gradient|", "error",
        "noise", "step", "dirs");
}

std::string share_text(double x) { return std::isfinite(x) ? fmt::format("{:.1e}", x) : "-"; }

void print_tensor(const TensorCheck& t, size_t name_width) {
  double step = 0;
  for (const DirectionCheck& c : t.directions) step = std::max(step, c.step);
  print("  {:<{}}  {:>10.4g}  {:>8}  {:>8}  {:>9.3g}  {}/{}  {}\n", t.name, name_width, t.gradient_norm,
        t.n_resolved() ? share_text(t.error()) : "-", share_text(t.noise()), step, t.n_resolved(),
        t.directions.size(),
        t.verdict == Verdict::Passed   ? "ok"
        : t.verdict == Verdict::Failed ? "FAILED"
                                       : "unresolved");
  if (!t.reason.empty()) print("      {}\n", t.reason);
}

}  // namespace

int gradcheck_command(const Options& o) {
  if (o.integer(Opt::SegmentTokens) % kRangeAlign) {
    fail(Code::Usage, "--ubatch-size must be a multiple of {}, not {}", kRangeAlign,
         o.integer(Opt::SegmentTokens));
  }
  Engine engine(o);
  const Model model = Model::open(o.text(Opt::Model), model_options(o));
  AdapterSet adapter = make_adapter(o, model);
  Setup setup;
  Window window;
  if (o.text(Opt::TrainFile).empty()) {
    window = random_tokens(o, model.hparams());
    setup.tokens = fmt::format("{} drawn at random from the vocabulary", window.n_tokens());
  } else {
    size_t n_rows = 0;
    window = first_rows(o, model, &n_rows);
    setup.tokens =
        fmt::format("{}, the first {} of {}", window.n_tokens(),
                    n_rows == 1 ? "row" : fmt::format("{} rows", n_rows), printable(o.text(Opt::TrainFile)));
  }
  setup.n_tokens = window.n_tokens();
  setup.n_trained = window.n_trained();
  for (const AdapterPair& p : adapter.pairs()) {
    if (!p.trainable) continue;
    setup.n_tensors += 2;
    setup.name_width = std::max(setup.name_width, p.weight->name.size() + 7);
  }
  const std::vector<std::string>& files = o.list(Opt::Lora);
  setup.adapter = fmt::format(
      "{} tensors in A and B of {} weights, {}", setup.n_tensors, setup.n_tensors / 2,
      files.empty() ? fmt::format("random, rank {}", o.integer(Opt::LoraRank)) : printable(files[0]));

  RunnerOptions options;
  options.window_tokens = window.n_tokens();
  options.range_tokens = o.integer(Opt::SegmentTokens);
  options.precision = chosen_precision(o, engine);
  GradCheckSettings settings = gradcheck_settings(options.precision);
  settings.samples = o.integer(Opt::Samples);
  settings.seed = static_cast<uint64_t>(o.integer(Opt::Seed));
  const bool as_json = o.on(Opt::Json);
  const GradCheckReport report =
      check_adapter(model, engine.backend, adapter, window, options, settings,
                    [&](const GradCheckReport& r, const TensorCheck* latest) {
                      if (as_json) return;
                      if (latest) {
                        print_tensor(*latest, setup.name_width);
                      } else {
                        print_setup(o, model, setup, settings, options.precision, r);
                      }
                    });
  const int64_t n_passed = report.count(Verdict::Passed), n_failed = report.count(Verdict::Failed),
                n_unresolved = report.count(Verdict::Unresolved);
  if (as_json) {
    json out{{"type", "gradcheck"},
             {"model", o.text(Opt::Model)},
             {"adapter", files.empty() ? json(nullptr) : json(files[0])},
             {"tokens", setup.n_tokens},
             {"trained_tokens", setup.n_trained},
             {"loss", report.loss},
             {"precision", precision_name(options.precision)},
             {"isa", isa_name(engine.backend.level())},
             {"seed", settings.seed},
             {"samples", settings.samples},
             {"tolerance", settings.tolerance},
             {"resolution", settings.resolution},
             {"passed", n_passed},
             {"failed", n_failed},
             {"unresolved", n_unresolved},
             {"evaluations", report.n_evaluations},
             {"seconds", report.seconds},
             {"tensors", json::array()}};
    for (const TensorCheck& t : report.tensors) out["tensors"].push_back(tensor_json(t));
    print_json(out);
  } else {
    print("\n{} tensors: {} passed, {} failed, {} unresolved; {} evaluations in {:.1f} s\n",
          report.tensors.size(), n_passed, n_failed, n_unresolved, report.n_evaluations, report.seconds);
  }
  require_gradients(report);
  return 0;
}

}  // namespace tandem
