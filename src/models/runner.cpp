#include "models/runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/autodiff.h"

namespace tandem {
namespace {

// `p + n`, null staying null: while planning there is no memory yet.
float* at(float* p, int64_t n) { return p ? p + n : nullptr; }
int32_t* at(int32_t* p, int64_t n) { return p ? p + n : nullptr; }

// Places a result in persistent memory; a view or leaf, which has no place of its own, is copied there.
void deliver(Graph& graph, Tensor t, float* to) {
  if (t.node->op == Op::LEAF || t.node->root != t.node || t.node->home != Home::Arena) t = cont(t);
  graph.bind(t, to);
}

// Adds a gradient to what persistent memory holds.
void accumulate(Graph& graph, Tensor gradient, float* into, const char* name) {
  const Tensor sum = graph.leaf(DType::F32, gradient.shape(), Home::Persistent, into, name);
  graph.bind(add(sum, gradient), into);
}

void require_finite(const float* values, int64_t n, const char* what) {
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i])) {
      fail(Code::NonFinite,
           "{} is {} at position {}; the model or an adapter holds values beyond f32, or the learning rate "
           "is too high",
           what, values[i], i);
    }
  }
}

}  // namespace

void check_tokens(std::span<const int32_t> tokens, int64_t n_vocab) {
  for (int32_t id : tokens) {
    if (id < 0 || id >= n_vocab)
      fail(Code::BadData, "token id {} is not in the vocabulary of {}", id, n_vocab);
  }
}

int64_t Window::n_trained() const {
  return std::count_if(labels.begin(), labels.end(), [](int32_t l) { return l >= 0; });
}

void Window::append(std::span<const int32_t> sample_tokens, std::span<const uint8_t> trained) {
  TANDEM_CHECK(sample_tokens.size() == trained.size());
  const int32_t first = static_cast<int32_t>(tokens.size());
  for (size_t i = 0; i < sample_tokens.size(); ++i) {
    const bool next_is_target = i + 1 < sample_tokens.size() && trained[i + 1];
    tokens.push_back(sample_tokens[i]);
    positions.push_back(static_cast<int32_t>(i));
    first_key.push_back(first);
    labels.push_back(next_is_target ? sample_tokens[i + 1] : -1);
  }
}

WindowRunner::WindowRunner(const Model& model, Backend& backend, std::vector<const AdapterSet*> adapters,
                           AdapterSet* trained, const RunnerOptions& options)
    : model_(model), backend_(backend), adapters_(std::move(adapters)), trained_(trained), options_(options) {
  TANDEM_CHECK(options.window_tokens > 0 && options.range_tokens > 0 &&
               options.range_tokens % kRangeAlign == 0);
  lowest_ = model.hparams().n_layer;
  if (trained_) {
    for (const AdapterPair& p : trained_->pairs()) {
      if (p.trainable) lowest_ = std::min<int64_t>(lowest_, p.weight->layer);
    }
    TANDEM_CHECK(lowest_ < model.hparams().n_layer);
  }
}

std::vector<WindowRunner::Range> WindowRunner::ranges(int64_t n_tokens) const {
  std::vector<Range> result;
  for (int64_t t = 0; t < n_tokens; t += options_.range_tokens) {
    result.push_back({t, std::min(options_.range_tokens, n_tokens - t)});
  }
  return result;
}

// Boundaries below the lowest trained layer are needed only until the next layer has read them: two slots in
// turn.
int64_t WindowRunner::n_boundaries() const {
  const int64_t kept = model_.hparams().n_layer + 1 - lowest_;
  return (lowest_ > 0 ? 2 : 0) + kept;
}

float* WindowRunner::boundary(int64_t il) const {
  if (!boundaries_.data()) return nullptr;
  const int64_t slot = il < lowest_ ? il % 2 : (lowest_ > 0 ? 2 : 0) + il - lowest_;
  return boundaries_.f32() + slot * options_.window_tokens * model_.hparams().n_embd;
}

int64_t WindowRunner::n_ranges() const {
  return (options_.window_tokens + options_.range_tokens - 1) / options_.range_tokens;
}

int WindowRunner::build_embedding(Range r) {
  graph_.clear();
  graph_.segment = "embedding";
  Build b(graph_, model_, adapters_, {});
  const Tensor ids = graph_.leaf(DType::I32, {r.n}, Home::Persistent, at(tokens_.i32(), r.begin), "tokens");
  const Tensor x = get_rows(b.weight(model_.global().token_embd), ids);
  graph_.bind(x, at(boundary(0), r.begin * model_.hparams().n_embd));
  return graph_.size();
}

int WindowRunner::build_layer(int64_t il, Range r, int64_t window_tokens, Pass pass,
                              const DropoutState& dropout, bool train) {
  const HParams& h = model_.hparams();
  graph_.clear();
  graph_.precision = options_.precision;
  graph_.segment = pass == Pass::Backward   ? "layer, backward"
                   : pass == Pass::KeysOnly ? "layer, keys again"
                                            : "layer, forward";
  BuildInputs in;
  in.n_tokens = r.n;
  in.positions = at(positions_.i32(), r.begin);
  in.first_key = at(first_key_.i32(), r.begin);
  in.first_key_sliding = at(first_key_sliding_.i32(), r.begin);
  in.keys = {keys_.f32(), values_.f32(), r.begin, window_tokens > options_.range_tokens};
  const int64_t i_range = r.begin / options_.range_tokens, state = h.state_elements();
  in.state.before = at(states_.f32(), i_range * state);
  in.state.after = at(states_.f32(), (i_range + 1) * state);
  in.state.keep = r.begin + r.n < window_tokens;
  in.state.wants_grad = pass == Pass::Backward && r.begin > 0;
  in.keep = pass == Pass::Forward ? (train ? Keep::Save : Keep::Nothing) : Keep::Reuse;
  in.kept_ids = at(kept_ids_.i32(), (il * options_.window_tokens + r.begin) * h.n_expert_used);

  const bool differentiate = pass == Pass::Backward;
  Build b(graph_, model_, adapters_, in);
  b.begin_layer(static_cast<int>(il), train);
  DropoutState here = dropout;
  here.first_token += r.begin;
  b.set_dropout(here);
  const Tensor x =
      graph_.leaf(DType::F32, {h.n_embd, r.n}, Home::Persistent, at(boundary(il), r.begin * h.n_embd), "x");
  if (differentiate && il > lowest_) graph_.want_grad(x);
  const Tensor y = model_.arch().layer(b, model_.layer(il), x);
  if (pass == Pass::KeysOnly) return b.n_nodes_for_later();
  if (pass == Pass::Forward || pass == Pass::Replay) {
    deliver(graph_, y, at(boundary(il + 1), r.begin * h.n_embd));
    return graph_.size();
  }
  build_backward(b, x, y, il, r, r.begin + r.n == window_tokens);
  return graph_.size();
}

// The gradient of a range: of its input into the other gradient buffer, of the trained adapters into theirs,
// and of the keys it looked back at into those of the window, where earlier ranges (which come later) pick
// them up.
void WindowRunner::build_backward(Build& b, Tensor x, Tensor y, int64_t il, Range r, bool last_range) {
  const HParams& h = model_.hparams();
  const int64_t offset = r.begin * h.n_embd;
  const Build::Attended& keys = b.attended();
  const int64_t k_row = h.d_head * h.n_head_kv, v_row = h.d_head_v * h.n_head_kv;
  const Tensor dy =
      graph_.leaf(DType::F32, y.shape(), Home::Persistent, at(gradient_[gradient_now_].f32(), offset), "dy");
  std::vector<Seed> seeds{{y, dy}};
  const int64_t i_range = r.begin / options_.range_tokens;
  for (const Build::Carried& c : b.carried()) {
    if (last_range || !c.after.node->wants_grad) continue;
    seeds.push_back(
        {c.after, graph_.leaf(DType::F32, c.after.shape(), Home::Persistent,
                              at(state_gradients_[(i_range + 1) % 2].f32(), c.offset), "dstate")});
  }
  if (!last_range && keys.k) {
    seeds.push_back({keys.k, graph_.leaf(DType::F32, keys.k.shape(), Home::Persistent,
                                         at(key_gradients_.f32(), r.begin * k_row), "dk")});
    seeds.push_back({keys.v, graph_.leaf(DType::F32, keys.v.shape(), Home::Persistent,
                                         at(value_gradients_.f32(), r.begin * v_row), "dv")});
  }
  std::vector<Tensor> wrt;
  for (const Build::Trained& t : b.trained()) wrt.push_back(t.leaf);
  if (x.node->wants_grad) wrt.push_back(x);
  const bool past_k = keys.k_past && keys.k_past.node->wants_grad,
             past_v = keys.v_past && keys.v_past.node->wants_grad;
  if (past_k) wrt.push_back(keys.k_past);
  if (past_v) wrt.push_back(keys.v_past);
  for (const Build::Carried& c : b.carried()) {
    if (c.before.node->wants_grad) wrt.push_back(c.before);
  }

  const std::vector<Tensor> grads = backward(graph_, seeds, wrt);
  size_t i = 0;
  for (const Build::Trained& t : b.trained()) {
    if (!grads[i]) fail(Code::Internal, "layer {}: no gradient reaches {}", il, t.leaf.node->name);
    accumulate(graph_, grads[i++], t.gradient, "adapter gradient");
  }
  if (x.node->wants_grad) deliver(graph_, grads[i++], at(gradient_[1 - gradient_now_].f32(), offset));
  if (past_k) accumulate(graph_, grads[i++], key_gradients_.f32(), "past key gradients");
  if (past_v) accumulate(graph_, grads[i++], value_gradients_.f32(), "past value gradients");
  for (const Build::Carried& c : b.carried()) {
    if (!c.before.node->wants_grad) continue;
    if (!grads[i]) fail(Code::Internal, "layer {}: no gradient reaches its state", il);
    deliver(graph_, grads[i++], at(state_gradients_[i_range % 2].f32(), c.offset));
  }
  graph_.drop_unread();
}

// Head and loss over tokens [first_token, first_token + n_tokens) of the window, of which the rows listed
// from first_row on are trained.
int WindowRunner::build_head(int64_t first_token, int64_t n_tokens, int64_t first_row, int64_t n_rows,
                             bool train, Tensor* loss) {
  const HParams& h = model_.hparams();
  graph_.clear();
  graph_.precision = options_.precision;
  graph_.segment = "head";
  Build b(graph_, model_, adapters_, {});
  const Tensor x = graph_.leaf(DType::F32, {h.n_embd, n_tokens}, Home::Persistent,
                               at(boundary(h.n_layer), first_token * h.n_embd), "x");
  if (train) graph_.want_grad(x);
  const Tensor rows =
      graph_.leaf(DType::I32, {n_rows}, Home::Persistent, at(rows_.i32(), first_row), "trained rows");
  const Tensor labels =
      graph_.leaf(DType::I32, {n_rows}, Home::Persistent, at(labels_.i32(), first_row), "labels");
  const Tensor logits = b.lin(model_.output(), b.norm(model_.global().output_norm, get_rows(x, rows)));
  *loss = cross_entropy_loss(logits, labels);
  if (train) {
    const Tensor d =
        graph_.leaf(DType::F32, {n_rows, 2}, Home::Persistent, cotangents_.f32(), "cotangent of the losses");
    const Seed seed{*loss, d};
    const std::vector<Tensor> grads = backward(graph_, {&seed, 1}, {&x, 1});
    TANDEM_CHECK(grads[0]);
    deliver(graph_, grads[0], at(gradient_[gradient_now_].f32(), first_token * h.n_embd));
  }
  return graph_.size();
}

int64_t WindowRunner::head_rows() const {
  const int64_t rows = static_cast<int64_t>(options_.logits_bytes / sizeof(float)) / model_.hparams().n_vocab;
  return std::clamp<int64_t>(rows, 16, options_.window_tokens);
}

MemoryPlan WindowRunner::plan() {
  const HParams& h = model_.hparams();
  const int64_t n = options_.window_tokens;
  const Range largest{n > options_.range_tokens ? (n - 1) / options_.range_tokens * options_.range_tokens : 0,
                      std::min(n, options_.range_tokens)};
  const int64_t window = largest.begin + largest.n;
  MemoryPlan plan;
  const auto consider = [&](int n_nodes) {
    plan.arena = std::max(plan.arena, backend_.plan(graph_, n_nodes).total());
  };
  consider(build_embedding(largest));
  for (int64_t il = 0; il < h.n_layer; ++il) {
    consider(build_layer(il, largest, window, Pass::Forward, {}, trained_ != nullptr));
    if (trained_ && il >= lowest_) consider(build_layer(il, largest, window, Pass::Backward, {}, true));
  }
  Tensor loss;
  consider(
      build_head(0, std::min(n, 2 * head_rows()), 0, std::min(n, head_rows()), trained_ != nullptr, &loss));

  const size_t f = sizeof(float), t = static_cast<size_t>(n), embd = static_cast<size_t>(h.n_embd);
  plan.persistent = 6 * t * f + static_cast<size_t>(n_boundaries()) * t * embd * f;
  const size_t key_row = static_cast<size_t>((h.d_head + h.d_head_v) * h.n_head_kv);
  if (many_ranges()) plan.persistent += t * key_row * f * (trained_ ? 2 : 1);
  const size_t state = static_cast<size_t>(h.state_elements());
  plan.persistent += static_cast<size_t>(n_ranges()) * state * f;
  if (h.sliding_window) plan.persistent += t * f;
  if (trained_ && many_ranges()) plan.persistent += 2 * state * f;
  if (trained_)
    plan.persistent += 2 * t * embd * f + t * static_cast<size_t>(h.n_layer * h.n_expert_used) * f;
  return plan;
}

void WindowRunner::allocate() {
  const HParams& h = model_.hparams();
  const size_t arena_bytes = plan().arena;
  const size_t f = sizeof(float), t = static_cast<size_t>(options_.window_tokens),
               embd = static_cast<size_t>(h.n_embd);
  tokens_ = Buffer(t * f, "tokens");
  positions_ = Buffer(t * f, "positions");
  first_key_ = Buffer(t * f, "sample borders");
  rows_ = Buffer(t * f, "trained rows");
  labels_ = Buffer(t * f, "labels");
  cotangents_ = Buffer(2 * t * f, "cotangents of the losses");
  boundaries_ = Buffer(static_cast<size_t>(n_boundaries()) * t * embd * f, "the layer inputs of a window");
  if (h.sliding_window) first_key_sliding_ = Buffer(t * f, "sliding windows");
  const size_t state_bytes = static_cast<size_t>(h.state_elements()) * f;
  if (state_bytes) {
    states_ = Buffer(static_cast<size_t>(n_ranges()) * state_bytes, "the states of a window's ranges");
    std::memset(states_.data(), 0, state_bytes);
    for (Buffer& g : state_gradients_) {
      if (trained_ && many_ranges()) g = Buffer(state_bytes, "the gradient of a state");
    }
  }
  if (many_ranges()) {
    keys_ = Buffer(t * static_cast<size_t>(h.d_head * h.n_head_kv) * f, "the keys of a window");
    values_ = Buffer(t * static_cast<size_t>(h.d_head_v * h.n_head_kv) * f, "the values of a window");
  }
  if (trained_) {
    for (Buffer& g : gradient_) g = Buffer(t * embd * f, "the gradient of a window");
    if (h.n_expert_used)
      kept_ids_ =
          Buffer(t * static_cast<size_t>(h.n_layer * h.n_expert_used) * f, "the expert ids of a window");
    if (many_ranges()) {
      key_gradients_ = Buffer(keys_.bytes(), "the gradient of a window's keys");
      value_gradients_ = Buffer(values_.bytes(), "the gradient of a window's values");
    }
  }
  arena_ = Buffer(arena_bytes, "the temporaries of a segment");
}

void WindowRunner::execute(int n_nodes) {
  // A range with a shorter past can need a little more than the longest one (its plan packs differently).
  const size_t need = backend_.plan(graph_, n_nodes).total();
  if (need > arena_.bytes()) arena_ = Buffer(need, "the temporaries of a segment");
  backend_.run(graph_, n_nodes, arena_.span(), options_.priority);
}

void WindowRunner::load(const Window& w) {
  const size_t n = w.tokens.size();
  TANDEM_CHECK(arena_.data() && n > 0 && n <= static_cast<size_t>(options_.window_tokens));
  TANDEM_CHECK(w.positions.size() == n && w.first_key.size() == n && w.labels.size() == n);
  check_tokens(w.tokens, model_.hparams().n_vocab);
  model_.file().check_size();
  std::copy(w.tokens.begin(), w.tokens.end(), tokens_.i32());
  std::copy(w.positions.begin(), w.positions.end(), positions_.i32());
  for (size_t i = 0; i < n; ++i) {
    TANDEM_CHECK(w.first_key[i] >= 0 && static_cast<size_t>(w.first_key[i]) <= i &&
                 w.labels[i] < model_.hparams().n_vocab);
    first_key_.i32()[i] = w.first_key[i];
    const int64_t window = model_.hparams().sliding_window;
    if (window) {
      first_key_sliding_.i32()[i] =
          std::max(w.first_key[i], static_cast<int32_t>(static_cast<int64_t>(i) - window + 1));
    }
  }
}

void WindowRunner::forward(const Window& w, Pass pass, const DropoutState& dropout, bool train) {
  const std::vector<Range> all = ranges(w.n_tokens());
  for (const Range& r : all) execute(build_embedding(r));
  for (int64_t il = 0; il < model_.hparams().n_layer; ++il) {
    for (const Range& r : all) execute(build_layer(il, r, w.n_tokens(), pass, dropout, train));
  }
}

// Token chunks that hold at most head_rows() trained tokens each: never more logits than that at a time.
void WindowRunner::head(const Window& w, float weight, bool train, WindowLoss& loss) {
  const int64_t n_embd = model_.hparams().n_embd, n = w.n_tokens();
  loss.nll.assign(static_cast<size_t>(n), 0.f);
  loss.hits.assign(static_cast<size_t>(n), 0.f);
  for (int64_t begin = 0, end = 0; begin < n; begin = end) {
    int64_t n_rows = 0;
    for (end = begin; end < n && n_rows < head_rows(); ++end) {
      if (w.labels[static_cast<size_t>(end)] < 0) continue;
      rows_.i32()[n_rows] = static_cast<int32_t>(end - begin);
      labels_.i32()[n_rows] = w.labels[static_cast<size_t>(end)];
      ++n_rows;
    }
    if (n_rows == 0) {
      if (train)
        std::memset(gradient_[gradient_now_].f32() + begin * n_embd, 0,
                    static_cast<size_t>((end - begin) * n_embd) * sizeof(float));
      continue;
    }
    std::fill_n(cotangents_.f32(), n_rows, weight);
    std::fill_n(cotangents_.f32() + n_rows, n_rows, 0.f);
    Tensor result;
    execute(build_head(begin, end - begin, 0, n_rows, train, &result));
    const float* values = static_cast<const float*>(result.node->data);
    require_finite(values, n_rows, "the loss");
    for (int64_t i = 0; i < n_rows; ++i) {
      const size_t t = static_cast<size_t>(begin + rows_.i32()[i]);
      loss.nll[t] = values[i];
      loss.hits[t] = values[n_rows + i];
    }
  }
}

void WindowRunner::backward_layers(const Window& w, const DropoutState& dropout) {
  const std::vector<Range> all = ranges(w.n_tokens());
  for (int64_t il = model_.hparams().n_layer - 1; il >= lowest_; --il) {
    if (all.size() > 1) {
      for (size_t i = 0; i + 1 < all.size(); ++i)
        execute(build_layer(il, all[i], w.n_tokens(), Pass::KeysOnly, dropout, true));
      std::memset(key_gradients_.data(), 0, key_gradients_.bytes());
      std::memset(value_gradients_.data(), 0, value_gradients_.bytes());
    }
    for (size_t i = all.size(); i-- > 0;)
      execute(build_layer(il, all[i], w.n_tokens(), Pass::Backward, dropout, true));
    gradient_now_ = 1 - gradient_now_;
  }
}

WindowLoss WindowRunner::evaluate(const Window& window) {
  load(window);
  WindowLoss loss;
  forward(window, Pass::Forward, {}, false);
  head(window, 0.f, false, loss);
  return loss;
}

void WindowRunner::count_experts(const Window& window, std::span<int64_t> counts) const {
  TANDEM_CHECK(trained_ && n_kept_ == window.n_tokens());
  const HParams& h = model_.hparams();
  TANDEM_CHECK(counts.size() == static_cast<size_t>(h.n_expert * h.n_layer));
  bool before_a_trained_one = false;
  for (int64_t t = window.n_tokens(); t-- > 0;) {
    const auto i = static_cast<size_t>(t);
    const bool trained = window.labels[i] >= 0,
               ends_sample = i + 1 == window.positions.size() || window.positions[i + 1] == 0;
    before_a_trained_one = trained || (before_a_trained_one && !ends_sample);
    for (int64_t il = std::max(lowest_, h.n_layer_dense_lead); il < h.n_layer; ++il) {
      if (il == h.n_layer - 1 ? !trained : !before_a_trained_one) continue;
      const int32_t* ids = kept_ids_.i32() + (il * options_.window_tokens + t) * h.n_expert_used;
      for (int64_t k = 0; k < h.n_expert_used; ++k) ++counts[static_cast<size_t>(il * h.n_expert + ids[k])];
    }
  }
}

WindowLoss WindowRunner::evaluate_kept(const Window& window) {
  TANDEM_CHECK(trained_ && n_kept_ == window.n_tokens());
  load(window);
  WindowLoss loss;
  forward(window, Pass::Replay, {}, false);
  head(window, 0.f, false, loss);
  return loss;
}

WindowLoss WindowRunner::forward_backward(const Window& window, float weight, const DropoutState& dropout) {
  TANDEM_CHECK(trained_ && !trained_->gradients().empty());
  load(window);
  WindowLoss loss;
  forward(window, Pass::Forward, dropout, true);
  n_kept_ = window.n_tokens();
  gradient_now_ = 0;
  head(window, weight, true, loss);
  backward_layers(window, dropout);
  return loss;
}

}  // namespace tandem
