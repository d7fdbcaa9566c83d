// Runs a model over a window of tokens, segment by segment: embedding, layers, head and loss, and back again.
// Activation checkpointing is this loop: the input of each layer is kept, and the layer is rebuilt in its
// backward.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/memory.h"
#include "exec/backend.h"
#include "models/adapter.h"
#include "models/build.h"
#include "models/model.h"

namespace tandem {

// Ranges of a window, and DeltaNet chunks and attention tiles, sit at multiples of this many tokens.
constexpr int64_t kRangeAlign = 64;

// Samples laid side by side: they do not see each other, positions restart.
struct Window {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> first_key;  // index in the window of the first token of the same sample
  std::vector<int32_t> labels;     // the token to predict after this one; negative: not trained

  int64_t n_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t n_trained() const;
  // Appends a sample.  trained[i] says whether token i is a target.
  void append(std::span<const int32_t> sample_tokens, std::span<const uint8_t> trained);
};

// Per token of a window: 0 where it is not trained.
struct WindowLoss {
  std::vector<float> nll;   // of the label, in nats
  std::vector<float> hits;  // 1 where the label has the largest logit
};

// Memory beside the mapped weights, in bytes.
struct MemoryPlan {
  size_t persistent = 0;
  size_t arena = 0;
};

struct RunnerOptions {
  int64_t window_tokens = 2048;            // the largest window
  int64_t range_tokens = 512;              // tokens of a segment, a multiple of kRangeAlign
  size_t logits_bytes = size_t{64} << 20;  // of the logits that exist at a time
  Precision precision = Precision::F32;
  Priority priority = Priority::Training;
};

class WindowRunner {
 public:
  // `trained` may be null (evaluation only); it is one of `adapters` if it is to take part in the forward
  // pass.
  WindowRunner(const Model& model, Backend& backend, std::vector<const AdapterSet*> adapters,
               AdapterSet* trained, const RunnerOptions& options);

  // The dry run: builds and plans every kind of segment at its largest, reading no weight.
  MemoryPlan plan();
  // Takes the memory.  Throws OutOfMemory.
  void allocate();

  // The loss of every trained token.  Throws NonFinite if one is not finite, Io if a model file has shrunk.
  WindowLoss evaluate(const Window& window);
  // The same, and adds the gradient of (sum of the losses) * weight to the trained adapter's gradients.
  WindowLoss forward_backward(const Window& window, float weight, const DropoutState& dropout);
  // Adds to `counts` {n_expert, n_layer} how many tokens of the window of the last forward_backward() took
  // their gradient through each expert: in the last layer those that are trained, below it all up to the last
  // trained one of their sample, and none below the lowest trained adapter.
  void count_experts(const Window& window, std::span<int64_t> counts) const;
  // evaluate() with each token kept at the experts that the last forward_backward() of this window chose: the
  // function whose gradient that was, smooth where evaluate() jumps.  Source: gradients.md 1.5.
  WindowLoss evaluate_kept(const Window& window);

 private:
  enum class Pass {
    Forward,   // x to the next boundary, ids saved if a backward follows
    Replay,    // the same with the ids that were saved
    KeysOnly,  // only as far as the keys and values of the range
    Backward,  // recompute, and the gradient
  };
  struct Range {
    int64_t begin, n;
  };

  std::vector<Range> ranges(int64_t n_tokens) const;
  bool many_ranges() const { return options_.window_tokens > options_.range_tokens; }
  float* boundary(int64_t il) const;  // input of layer il; n_layer: the output of the last
  int64_t n_ranges() const;           // of the largest window
  int64_t n_boundaries() const;
  // Builds into graph_ and returns how many nodes are to be run.
  int build_embedding(Range r);
  int build_layer(int64_t il, Range r, int64_t window_tokens, Pass pass, const DropoutState& dropout,
                  bool train);
  void build_backward(Build& b, Tensor x, Tensor y, int64_t il, Range r, bool last_range);
  int build_head(int64_t first_token, int64_t n_tokens, int64_t first_row, int64_t n_rows, bool train,
                 Tensor* loss);

  void load(const Window& window);
  void forward(const Window& window, Pass pass, const DropoutState& dropout, bool train);
  void backward_layers(const Window& window, const DropoutState& dropout);
  void head(const Window& window, float weight, bool train, WindowLoss& loss);
  int64_t head_rows() const;
  void execute(int n_nodes);

  const Model& model_;
  Backend& backend_;
  std::vector<const AdapterSet*> adapters_;
  AdapterSet* trained_;
  RunnerOptions options_;
  int64_t lowest_ = 0;  // the lowest layer with a trained adapter
  Graph graph_;
  Buffer tokens_, positions_, first_key_, rows_, labels_, cotangents_;
  Buffer boundaries_, gradient_[2], kept_ids_;
  Buffer keys_, values_, key_gradients_, value_gradients_;
  Buffer first_key_sliding_;
  // Of the recurrent layer in hand: zeros, then what each range left; and the gradient of that, in turn.
  Buffer states_, state_gradients_[2];
  Buffer arena_;
  int gradient_now_ = 0;  // which of gradient_ holds the gradient of the boundary in hand
  int64_t n_kept_ = 0;    // tokens of the window whose expert ids are kept
};

// A conversation with a model: keys and values of what has been said, one layer each.
class Session {
 public:
  // Room for `context_tokens`; tokens are taken `range_tokens` at a time.
  Session(const Model& model, Backend& backend, std::vector<const AdapterSet*> adapters,
          int64_t context_tokens, int64_t range_tokens, Precision precision);

  MemoryPlan plan();
  void allocate();

  // Appends tokens and returns the logits {n_vocab} after the last one; valid until the next call.
  // Throws Usage beyond the context, NonFinite, Io if a model file has shrunk.
  std::span<const float> append(std::span<const int32_t> tokens);
  int64_t n_tokens() const { return n_past_; }
  // Forgets all tokens; the memory stays.
  void clear();

 private:
  int build_layer(int64_t il, int64_t n);
  int build_head(Tensor* logits, int64_t n);
  void execute(int n_nodes);
  float* row(int which, int64_t token) const;

  const Model& model_;
  Backend& backend_;
  std::vector<const AdapterSet*> adapters_;
  int64_t context_tokens_, range_tokens_;
  Precision precision_;
  int64_t n_past_ = 0;
  Graph graph_;
  Buffer tokens_, positions_, first_key_, first_key_sliding_, hidden_[2], keys_, values_, arena_;
  Buffer states_[2];  // of the recurrent layers, written in turn: a range reads one and writes the other
  int state_now_ = 0;
  std::vector<float> logits_;
};

// Throws BadData unless every id is in [0, n_vocab): what enters here is never checked again.
void check_tokens(std::span<const int32_t> tokens, int64_t n_vocab);

}  // namespace tandem
