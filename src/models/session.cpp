#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/runner.h"

namespace tandem {

Session::Session(const Model& model, Backend& backend, std::vector<const AdapterSet*> adapters,
                 int64_t context_tokens, int64_t range_tokens, Precision precision)
    : model_(model),
      backend_(backend),
      adapters_(std::move(adapters)),
      context_tokens_(context_tokens),
      range_tokens_(std::min(range_tokens, context_tokens)),
      precision_(precision) {
  TANDEM_CHECK(context_tokens > 0 && range_tokens > 0);
}

float* Session::row(int which, int64_t token) const {
  float* p = hidden_[which].f32();
  return p ? p + token * model_.hparams().n_embd : nullptr;
}

// Layer il over the n tokens in hand, which follow n_past_ others.  Layer 0 begins with the embedding.
int Session::build_layer(int64_t il, int64_t n) {
  const HParams& h = model_.hparams();
  graph_.clear();
  graph_.precision = precision_;
  graph_.segment = "layer";
  BuildInputs in;
  in.n_tokens = n;
  in.positions = positions_.i32();
  in.first_key = first_key_.i32();
  in.first_key_sliding = first_key_sliding_.i32();
  in.state.keep = true;
  if (states_[0].data() && h.is_recurrent(il)) {
    in.state.before = states_[state_now_].f32() + il * h.state_elements();
    in.state.after = states_[1 - state_now_].f32() + il * h.state_elements();
  }
  in.keys.persistent = true;
  in.keys.n_past = n_past_;
  if (keys_.data()) {
    in.keys.k = keys_.f32() + il * context_tokens_ * h.d_head * h.n_head_kv;
    in.keys.v = values_.f32() + il * context_tokens_ * h.d_head_v * h.n_head_kv;
  }
  Build b(graph_, model_, adapters_, in);
  b.begin_layer(static_cast<int>(il), false);
  Tensor x;
  if (il == 0) {
    x = get_rows(b.weight(model_.global().token_embd),
                 graph_.leaf(DType::I32, {n}, Home::Persistent, tokens_.i32(), "tokens"));
  } else {
    x = graph_.leaf(DType::F32, {h.n_embd, n}, Home::Persistent, row(static_cast<int>(il % 2), 0), "x");
  }
  graph_.bind(model_.arch().layer(b, model_.layer(il), x), row(static_cast<int>((il + 1) % 2), 0));
  return graph_.size();
}

int Session::build_head(Tensor* logits, int64_t n) {
  const HParams& h = model_.hparams();
  graph_.clear();
  graph_.precision = precision_;
  graph_.segment = "head";
  Build b(graph_, model_, adapters_, {});
  const Tensor x = graph_.leaf(DType::F32, {h.n_embd, 1}, Home::Persistent,
                               row(static_cast<int>(h.n_layer % 2), n - 1), "x");
  *logits = b.lin(model_.output(), b.norm(model_.global().output_norm, x));
  return graph_.size();
}

MemoryPlan Session::plan() {
  const HParams& h = model_.hparams();
  MemoryPlan plan;
  const auto consider = [&](int n_nodes) {
    plan.arena = std::max(plan.arena, backend_.plan(graph_, n_nodes).total());
  };
  const int64_t was = n_past_;
  n_past_ = context_tokens_ - range_tokens_;
  for (int64_t il = 0; il < h.n_layer; ++il) consider(build_layer(il, range_tokens_));
  n_past_ = was;
  Tensor logits;
  consider(build_head(&logits, 1));
  const int64_t key_row = (h.d_head + h.d_head_v) * h.n_head_kv;
  plan.persistent = static_cast<size_t>(h.n_layer * context_tokens_ * key_row + 2 * range_tokens_ * h.n_embd +
                                        4 * range_tokens_ + 2 * h.n_layer * h.state_elements() + h.n_vocab) *
                    sizeof(float);
  return plan;
}

void Session::allocate() {
  const HParams& h = model_.hparams();
  const size_t f = sizeof(float), n = static_cast<size_t>(range_tokens_),
               cells = static_cast<size_t>(h.n_layer * context_tokens_);
  const size_t arena_bytes = plan().arena;
  tokens_ = Buffer(n * f, "tokens");
  positions_ = Buffer(n * f, "positions");
  first_key_ = Buffer(n * f, "sample borders");
  for (Buffer& b : hidden_) b = Buffer(n * static_cast<size_t>(h.n_embd) * f, "hidden states");
  keys_ = Buffer(cells * static_cast<size_t>(h.d_head * h.n_head_kv) * f, "the key cache");
  values_ = Buffer(cells * static_cast<size_t>(h.d_head_v * h.n_head_kv) * f, "the value cache");
  first_key_sliding_ = Buffer(n * f, "sliding windows");
  if (h.state_elements()) {
    for (Buffer& s : states_)
      s = Buffer(static_cast<size_t>(h.n_layer * h.state_elements()) * f, "the recurrent state");
  }
  clear();
  arena_ = Buffer(arena_bytes, "the temporaries of a segment");
  logits_.resize(static_cast<size_t>(h.n_vocab));
}

void Session::clear() {
  n_past_ = 0;
  if (states_[state_now_].data()) std::memset(states_[state_now_].data(), 0, states_[state_now_].bytes());
}

void Session::execute(int n_nodes) {
  const size_t need = backend_.plan(graph_, n_nodes).total();
  if (need > arena_.bytes()) arena_ = Buffer(need, "the temporaries of a segment");
  backend_.run(graph_, n_nodes, arena_.span(), Priority::Serving);
}

std::span<const float> Session::append(std::span<const int32_t> tokens) {
  const HParams& h = model_.hparams();
  TANDEM_CHECK(arena_.data() && !tokens.empty());
  check_tokens(tokens, h.n_vocab);
  model_.file().check_size();
  const int64_t total = n_past_ + static_cast<int64_t>(tokens.size());
  if (total > context_tokens_) {
    fail(Code::Usage, "{} tokens do not fit the context of {}; raise --ctx-size or shorten the prompt", total,
         context_tokens_);
  }
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(range_tokens_)) {
    const int64_t n = std::min<int64_t>(range_tokens_, static_cast<int64_t>(tokens.size() - begin));
    for (int64_t i = 0; i < n; ++i) {
      tokens_.i32()[i] = tokens[begin + static_cast<size_t>(i)];
      positions_.i32()[i] = static_cast<int32_t>(n_past_ + i);
      first_key_.i32()[i] = 0;
      first_key_sliding_.i32()[i] =
          h.sliding_window ? static_cast<int32_t>(std::max<int64_t>(0, n_past_ + i - h.sliding_window + 1))
                           : 0;
    }
    for (int64_t il = 0; il < h.n_layer; ++il) execute(build_layer(il, n));
    n_past_ += n;
    state_now_ = 1 - state_now_;
    if (begin + static_cast<size_t>(n) < tokens.size()) continue;
    Tensor logits;
    execute(build_head(&logits, n));
    std::copy_n(static_cast<const float*>(logits.node->data), logits_.size(), logits_.begin());
  }
  for (float l : logits_) {
    if (!std::isfinite(l))
      fail(Code::NonFinite,
           "the logits after token {} are not finite; the model or an adapter holds values beyond f32",
           total);
  }
  return logits_;
}

}  // namespace tandem
