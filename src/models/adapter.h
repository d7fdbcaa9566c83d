// LoRA adapters: y = W x + scale B (A x) beside frozen weights.  Source: architectures.md 1.8,
// gradients.md 12.1.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "models/model.h"

namespace tandem {

// One adapted weight.  A {n_in, r} or {n_in, r, E}, B {r, n_out} or {r, n_out, E}, both F32.
struct AdapterPair {
  const Weight* weight = nullptr;
  int64_t rank = 0;
  float scale = 1.f;
  bool trainable = false;
  Shape a_shape, b_shape;
  size_t a_at = 0, b_at = 0;  // of the first element, in the set's flat vectors
};

// Which weights are adapted, resolved from target names: exact roles or the sets of api.md 10, comma
// separated. Throws Usage for an unknown name or one that matches nothing in this model, Unsupported for
// roles that are never trained.
std::vector<const Weight*> resolve_targets(const Model& model, const std::string& targets);

// The numbers of one adapter: all A and B back to back, and (when it is trained) their gradients alike.
class AdapterSet {
 public:
  AdapterSet() = default;

  // A new adapter: A normal with deviation 1 / sqrt(n_in), drawn from (seed, tensor, element); B zero.
  // Source: lora-adapter.md 2.4.
  static AdapterSet create(const std::vector<const Weight*>& weights, int64_t rank, float alpha, bool rslora,
                           uint64_t seed);
  // Reads a GGUF LoRA file for this model.  Everything is checked before anything is taken, and all offences
  // are told at once.  Throws Io, BadData, Unsupported.  Source: lora-adapter.md 2.
  static AdapterSet load(const std::string& path, const Model& model, float user_scale);
  // The same from a file that is open already, or in memory.
  static AdapterSet load(const GgufFile& file, const Model& model, float user_scale);

  const std::vector<AdapterPair>& pairs() const { return pairs_; }
  std::vector<AdapterPair>& pairs() { return pairs_; }
  // The pair of a weight, or null.
  const AdapterPair* find(const Weight& weight) const;

  std::span<float> values() const { return {values_.f32(), n_values_}; }
  std::span<float> gradients() const { return {gradients_.f32(), gradients_.bytes() / sizeof(float)}; }
  float* a(const AdapterPair& p) const { return values_.f32() + p.a_at; }
  float* b(const AdapterPair& p) const { return values_.f32() + p.b_at; }
  float* a_gradient(const AdapterPair& p) const {
    return gradients_.f32() ? gradients_.f32() + p.a_at : nullptr;
  }
  float* b_gradient(const AdapterPair& p) const {
    return gradients_.f32() ? gradients_.f32() + p.b_at : nullptr;
  }
  // Room for the gradients, zeroed.
  void allocate_gradients();

  float alpha() const { return alpha_; }  // as written to a file: the scale of a pair is alpha / rank

 private:
  void lay_out();
  std::vector<AdapterPair> pairs_;
  Buffer values_, gradients_;
  size_t n_values_ = 0;
  float alpha_ = 0;
};

// Writes a GGUF LoRA file that llama.cpp loads: the pairs as F32 and adapter.lora.alpha, such that alpha /
// rank is the scale of every pair.  Atomic.  Throws Io.  Source: lora-adapter.md 2.4, api.md 9.
void write_adapter(const std::string& path, const AdapterSet& set, const Model& model,
                   const std::string& name);

}  // namespace tandem
