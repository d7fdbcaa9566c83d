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

// How the ids that a forward pass chose are handled in this graph.  Source: gradients.md 13.
enum class Keep {
  Nothing,  // inference: choose
  Save,     // first forward: choose, and write them where the recompute finds them
  Reuse,    // recompute: read them
};

// The tokens of a range and what belongs to them.
struct BuildInputs {
  int64_t n_tokens = 0;
  int32_t* positions = nullptr;  // {T}
  int32_t* first_key = nullptr;  // {T}: index in the window of the first key each token sees
  KeyWindow keys;
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

class Build {
 public:
  enum class RouterKind {
    SoftmaxRenormalized,  // softmax, top-k, weights sum to 1
    Softmax,              // softmax, top-k, weights as they are
  };

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
  // The same for routed experts: x {n_in, 1 or k, T}, ids {k, T} -> {n_out, k, T}.
  Tensor lin_id(const Weight& w, Tensor x, Tensor ids);
  // Rotary positions of this range.  x {d_head, heads, T}.
  Tensor rope(Tensor x);
  // Causal attention over the window so far.  q {d, H, T}, k {d, H_kv, T}, v {d_v, H_kv, T} -> {d_v, H, T}.
  Tensor attend(Tensor q, Tensor k, Tensor v, float scale);
  // Router, experts and weighted sum.  x {n_embd, T} -> {n_embd, T}.  Source: architectures.md 1.6, 1.7.
  Tensor moe(const LayerWeights& w, Tensor x, RouterKind kind);

  // The trained leaves of this layer, A and B in turn, with the memory of their gradients.
  struct Trained {
    Tensor leaf;
    float* gradient;
  };
  const std::vector<Trained>& trained() const { return trained_; }
  // What attend() used: the keys of this range and those of the past (empty without a past).
  struct Attended {
    Tensor k, v, k_past, v_past;
    int n_nodes = 0;  // nodes emitted when the keys of this range were complete
  };
  const Attended& attended() const { return attended_; }

 private:
  Tensor keep_ids(const std::function<Tensor()>& choose);
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
};

}  // namespace tandem
