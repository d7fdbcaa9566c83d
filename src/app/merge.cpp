// tandem merge: a model whose weights have adapters added in, and what that cost.
#include "models/merge.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/adapters.h"
#include "app/commands.h"
#include "app/engine.h"
#include "app/output.h"
#include "app/training.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "io/quote.h"
#include "models/runner.h"
#include "models/sampler.h"
#include "text/tokenizer.h"
#include "text/vocab.h"
#include "train/batches.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int64_t kLossTokens = 2048;  // rows are taken up to this many
constexpr int64_t kDrawnTokens = 64;   // of the text that is drawn where no rows are given
constexpr double kFewBits = 5;         // per weight: a re-encoded small change may vanish in the steps

struct LossText {
  std::vector<Window> windows;
  std::string what;
};

// The mean loss of a trained token.
double mean_loss(const Model& model, const std::vector<const AdapterSet*>& adapters, const LossText& text,
                 Engine& engine, const Options& o) {
  RunnerOptions options;
  options.window_tokens = 1;
  for (const Window& w : text.windows) options.window_tokens = std::max(options.window_tokens, w.n_tokens());
  options.range_tokens = o.integer(Opt::SegmentTokens);
  options.precision = chosen_precision(o, engine);
  WindowRunner runner(model, engine.backend, adapters, nullptr, options);
  runner.allocate();
  double sum = 0;
  int64_t n = 0;
  for (const Window& w : text.windows) {
    for (float nll : runner.evaluate(w).nll) sum += nll;
    n += w.n_trained();
  }
  return sum / static_cast<double>(n);
}

// The first rows of --train-file.
LossText rows_text(const Options& o, const Model& model) {
  const Tokenizer tokenizer(read_vocab(model.file()));
  SampleSet set = read_samples(o, o.text(Opt::TrainFile), tokenizer, max_row_tokens(o, model));
  int64_t n_tokens = 0;
  size_t n_rows = 0;
  for (; n_rows < set.samples.size(); ++n_rows) {
    const auto n = static_cast<int64_t>(set.samples[n_rows].tokens.size());
    if (n_rows > 0 && n_tokens + n > kLossTokens) break;
    n_tokens += n;
  }
  set.samples.resize(n_rows);
  LossText text;
  for (const std::vector<size_t>& members : cut_windows(set.samples, o.integer(Opt::SegmentTokens)))
    text.windows.push_back(make_window(set.samples, members));
  text.what =
      fmt::format("{} tokens, the first {} rows of {}", n_tokens, n_rows, printable(o.text(Opt::TrainFile)));
  return text;
}

// Text that the model with its adapters draws itself, from a first token of the seed.
LossText drawn_text(const Options& o, const Model& model, const std::vector<const AdapterSet*>& adapters,
                    Engine& engine) {
  const auto seed = static_cast<uint64_t>(o.integer(Opt::Seed));
  const int64_t n = std::min(kDrawnTokens, model.hparams().n_ctx_train);
  Session session(model, engine.backend, adapters, n, n, chosen_precision(o, engine));
  session.allocate();
  Sampler sampler({.temp = 1.f, .top_k = 0, .top_p = 1.f, .min_p = 0.f, .seed = seed});
  std::vector<int32_t> tokens{static_cast<int32_t>(
      Rng(random_bits({seed, key_of("merge text")})).below(static_cast<uint64_t>(model.hparams().n_vocab)))};
  while (static_cast<int64_t>(tokens.size()) < n)
    tokens.push_back(sampler.sample(session.append({&tokens.back(), 1})));
  std::vector<uint8_t> trained(tokens.size(), 1);
  trained[0] = 0;
  LossText text;
  text.windows.emplace_back();
  text.windows[0].append(tokens, trained);
  text.what = fmt::format("{} tokens that the adapted model draws itself (--train-file takes rows)", n);
  return text;
}

double bits_per_weight(DType type) {
  const TypeInfo& info = type_info(type);
  return 8.0 * info.block_bytes / info.block_elements;
}

}  // namespace

int merge_command(const Options& o) {
  const std::string& out = o.text(Opt::Out);
  std::vector<std::string> inputs = adapter_paths(o);
  if (inputs.empty()) fail(Code::Usage, "tandem merge needs --lora PATH or --lora-scaled PATH:SCALE");
  inputs.insert(inputs.end(), {o.text(Opt::Model), o.text(Opt::TrainFile)});
  refuse_overwriting("--out", out, inputs);
  std::optional<DType> type;
  if (o.given(Opt::OutType)) {
    type = dtype_of_name(o.text(Opt::OutType));
    if (!type)
      fail(Code::Usage, "--outtype '{}' is no tensor type; use one such as f16, f32 or q8_0",
           o.text(Opt::OutType));
  }
  if (o.integer(Opt::SegmentTokens) % kRangeAlign) {
    fail(Code::Usage, "--ubatch-size must be a multiple of {}, not {}", kRangeAlign,
         o.integer(Opt::SegmentTokens));
  }
  check_writable(out);
  Engine engine(o);
  const Model model = Model::open(o.text(Opt::Model), model_options(o));
  const std::vector<AdapterSet> adapters = load_adapters(o, model);
  std::vector<const AdapterSet*> applied;
  for (const AdapterSet& a : adapters) applied.push_back(&a);
  const std::vector<MergedWeight> plan = plan_merge(model, applied, type);
  const LossText text =
      o.text(Opt::TrainFile).empty() ? drawn_text(o, model, applied, engine) : rows_text(o, model);
  const double before = mean_loss(model, applied, text, engine, o);
  write_merged(out, model, applied, plan, engine.pool);

  const Model merged = Model::open(out, model_options(o));
  const double after = mean_loss(merged, {}, text, engine, o);
  const double bits =
      bits_per_weight(std::min_element(plan.begin(), plan.end(), [](const auto& x, const auto& y) {
                        return bits_per_weight(x.type) < bits_per_weight(y.type);
                      })->type);
  if (bits < kFewBits) {
    log_warn(
        "the merged weights have {:.1f} bits each, in which part of what was learned is lost: loss {:.4f} "
        "with "
        "the adapter beside the base, {:.4f} merged ({:+.4f}), on {}; --outtype q8_0 or f16 keeps it",
        bits, before, after, after - before, text.what);
  }
  if (o.on(Opt::Json)) {
    json tensors = json::array();
    for (const MergedWeight& m : plan)
      tensors.push_back(
          {{"name", m.weight->name}, {"was", name_of(m.weight->type)}, {"type", name_of(m.type)}});
    print_json({{"type", "merge"},
                {"model", o.text(Opt::Model)},
                {"out", out},
                {"merged", tensors},
                {"loss_text", text.what},
                {"loss_unmerged", before},
                {"loss_merged", after},
                {"base_hash", merged.base_hash()}});
    return 0;
  }
  print("{}: {} tensors merged, {}; everything else as in {}\n", printable(out), plan.size(),
        type ? fmt::format("as {}", name_of(*type)) : "each in its own type", printable(o.text(Opt::Model)));
  print("loss       {:.4f} with the adapter beside the base, {:.4f} merged ({:+.4f}), on {}\n", before, after,
        after - before, text.what);
  return 0;
}

}  // namespace tandem
