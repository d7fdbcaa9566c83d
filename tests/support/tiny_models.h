// Tiny random models and whole-model graphs for tests.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/build.h"
#include "models/runner.h"
#include "models/synth.h"

namespace tandem {

// A folder of its own, removed at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Sizes at which a mistake shows: the heads together are wider than the hidden state, 7 experts of which 3
// are used, windows slide within the shortest texts; rows are multiples of 32, so that Q8_0 is Q8_0.
SynthSettings awkward_sizes(DType type);
// Writes such a model into `dir` and opens it.  `name` is an architecture or a kind of model within one:
// deepseek2_v3, deepseek2_joint_kv_b.
Model tiny_model(const TempDir& dir, const char* name, SynthSettings settings);

// An adapter on every weight of the targets whose B is random too (at the usual B = 0, no A has a gradient).
AdapterSet random_adapter(const Model& model, const std::string& targets, int64_t rank, uint64_t seed);

// Samples of random tokens, every token after the first `n_prompt` trained.
Window random_window(const Model& model, const std::vector<int64_t>& lengths, int64_t n_prompt,
                     uint64_t seed);

// The whole model over a window as one graph, for the reference executors: embedding, layers, head, losses
// {T, 2} and the trained leaves.
struct WholeModel {
  explicit WholeModel(const Model& model, const AdapterSet& adapter, Window window);
  Graph graph{16384};
  Window window;
  Tensor loss;
  std::vector<Build::Trained> trained;  // A and B of each pair, layer by layer
  std::vector<std::string> names;       // of the trained leaves, "blk.0.attn_q.weight.lora_a"
  std::vector<Tensor> gradients;        // of (sum of the losses) * weight, once differentiate() has run
  void differentiate(float weight);

 private:
  std::vector<float> cotangent_, no_state_;
  std::vector<int32_t> first_key_sliding_;
};

// The gradients a runner left in an adapter, in the order of WholeModel::trained.
std::vector<std::vector<float>> runner_gradients(const AdapterSet& adapter);

}  // namespace tandem
