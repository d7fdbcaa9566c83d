// All that a layer's description sees: the graph it is written into, and helpers that hide what differs
// between training, recompute, prefill, decode and dry run.
#pragma once
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "models/adapter.h"
#include "models/model.h"

namespace tandem {

// The keys and values of one layer over a window of tokens, where several token ranges (or decode steps)
// share them. Null pointers: the range is the whole window, and nothing outlives its graph.
struct KeyWindow {
  float* k = nullptr;       // {d_head, n_head_kv, capacity}
  float* v = nullptr;       // {d_head_v, n_head_kv, capacity}
  int64_t n_past = 0;       // tokens of the window before this range
  bool persistent = false;  // keys of this range are written to k and v
};

// What the recurrent layers of a window take over from range to range: one layer's numbers, of
// HParams::state_elements().
struct LayerState {
  const float* before = nullptr;  // what the tokens before this range left, zeros if there are none
  float* after = nullptr;         // where this range leaves its own
  bool keep = false;              // this range leaves something at `after`
  bool wants_grad = false;        // of `before`: ranges before this one get a gradient through it
};

// How the ids that a forward pass chose are handled in this graph.  Source: gradients.md 13.
enum class Keep {
  Nothing,  // inference: choose
  Save,     // first forward: choose, and write them where the recompute finds them
  Reuse,    // recompute: read them
};

// The tokens of a range and what belongs to them.
struct BuildInputs {
  int64_t n_tokens = 0;
  int32_t* positions = nullptr;          // {T}
  int32_t* first_key = nullptr;          // {T}: index in the window of the first key each token sees
  int32_t* first_key_sliding = nullptr;  // {T}: the same in a sliding layer
  KeyWindow keys;
  LayerState state;
  Keep keep = Keep::Nothing;
  int32_t* kept_ids = nullptr;  // {n_expert_used, T} of this layer
};

// Dropout on the inputs of A, while training.
struct DropoutState {
  float p = 0;
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_token = 0;  // of this range, counted over the whole run's step
};

// What an FFN does between its two products.  Source: architectures.md 1.5.
enum class Activation {
  Swiglu,
  ClampedSwiglu,  // of gpt-oss
};

class Build {
 public:
  Build(Graph& graph, const Model& model, std::span<const AdapterSet* const> adapters,
        const BuildInputs& inputs)
      : graph_(graph), model_(model), adapters_(adapters), in_(inputs) {}

  Graph& graph() { return graph_; }
  const HParams& hparams() const { return model_.hparams(); }

  // The layer being built, and whether its trainable adapters want gradients.
  void begin_layer(int il, bool train);
  void set_dropout(const DropoutState& dropout) { dropout_ = dropout; }

  // A weight as a leaf of this graph.
  Tensor weight(const Weight& w);
  // RMS norm over ne0 with a gain.
  Tensor norm(const Weight& w, Tensor x);
  // w x plus the adapters of w.  x {n_in, T} -> {n_out, T}.
  Tensor lin(const Weight& w, Tensor x);
  // The same plus a bias, if the model has it.
  Tensor lin(const Weight& w, Tensor x, const Weight& bias);
  // The same for routed experts: x {n_in, 1 or k, T}, ids {k, T} -> {n_out, k, T}.
  Tensor lin_id(const Weight& w, Tensor x, Tensor ids);
  // Rotary positions of this range.  x {d_head, heads, T}.
  Tensor rope(Tensor x);
  // Causal attention over the window so far.  q {d, H, T}, k {d, H_kv, T}, v {d_v, H_kv, T} -> {d_v, H, T}.
  // Options: keys further back than the model's sliding window are not seen; a sink takes part in each head's
  // softmax, sinks {H}.  Source: architectures.md 1.4.
  struct AttendOptions {
    bool sliding = false;
    const Weight* sinks = nullptr;
  };
  Tensor attend(Tensor q, Tensor k, Tensor v, float scale, const AttendOptions& options);
  Tensor attend(Tensor q, Tensor k, Tensor v, float scale) { return attend(q, k, v, scale, {}); }
  // W_down act(W_gate x, W_up x).  x {n_embd, T} -> {n_embd, T}.
  Tensor ffn(const Weight& gate, const Weight& up, const Weight& down, Tensor x);
  // Router, experts and weighted sum, with the biases the model has.  x {n_embd, T} -> {n_embd, T}.  Source:
  // architectures.md 1.6, 1.7.
  Tensor moe(const LayerWeights& w, Tensor x, const Routing& routing,
             Activation activation = Activation::Swiglu);
  // The shared expert: an FFN of all tokens, weighted by sigmoid(v x) where the model has v.  x {n_embd, T}
  // -> {n_embd, T}.
  Tensor shared_expert(const LayerWeights& w, Tensor x);

  // What the tokens before this range left of a recurrent layer's state; zeros at the start of a window.
  // Calls of one layer divide its state in the order they come.  Source: architectures.md 2.5.
  Tensor state_before(const Shape& ne);
  // What this range leaves of the `i`th of them, same shape.
  void leave_state(int i, Tensor after);
  // Causal depthwise convolution that goes on where the tokens before this range left it: taps {K, C}, x {C,
  // T}
  // -> {C, T}.  Source: architectures.md 2.5.
  Tensor conv(const Weight& taps, Tensor x);
  // The gated delta rule, likewise: q, k {d_k, H_k, T}, v {d_v, H_v, T}, log-decay g and beta {H_v, T} ->
  // {d_v, H_v, T}.  Source: architectures.md 2.5.
  Tensor delta(Tensor q, Tensor k, Tensor v, Tensor g, Tensor beta, DeltaHeads heads);

  // The trained leaves of this layer, A and B in turn, with the memory of their gradients.
  struct Trained {
    Tensor leaf;
    float* gradient;
  };
  const std::vector<Trained>& trained() const { return trained_; }
  // What attend() used: the keys of this range and those of the past (empty without a past).
  struct Attended {
    Tensor k, v, k_past, v_past;
  };
  const Attended& attended() const { return attended_; }
  // Each state_before() and leave_state(), and where in the layer's state.
  struct Carried {
    Tensor before, after;
    int64_t offset;  // elements
  };
  const std::vector<Carried>& carried() const { return carried_; }
  // Nodes emitted when all that later ranges need of this one (keys, state) was complete.
  int n_nodes_for_later() const { return n_nodes_for_later_; }

 private:
  Tensor keep_ids(const std::function<Tensor()>& choose);
  Tensor choose_experts(const LayerWeights& w, Tensor logits, const Routing& routing);
  Tensor router_weights(const LayerWeights& w, Tensor x, const Routing& routing, Tensor* ids);
  Tensor expert_bias(const Weight& bias, Tensor ids);
  Tensor positions();
  Tensor adapter_leaf(const AdapterSet& set, const AdapterPair& pair, bool b_half);

  Graph& graph_;
  const Model& model_;
  std::span<const AdapterSet* const> adapters_;
  BuildInputs in_;
  DropoutState dropout_;
  int layer_ = 0;
  bool train_ = false;
  int n_dropouts_ = 0;
  std::vector<std::pair<const Weight*, Tensor>> leaves_;
  std::vector<Trained> trained_;
  Attended attended_;
  std::vector<Carried> carried_;
  int n_nodes_for_later_ = 0;
};

}  // namespace tandem
