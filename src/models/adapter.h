// LoRA adapters: y = W x + scale B (A x) beside frozen weights.  Source: architectures.md 1.8,
// gradients.md 12.1.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
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

// Whether a weight can be a target of training: it has a role, and is not the router.
bool trainable(const Weight& weight);
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
  // Pairs whose shapes are set, with room for their numbers, all zero.  A and B act with scale, which is not
  // derived from alpha here.
  static AdapterSet allocate(std::vector<AdapterPair> pairs, float alpha);
  // Reads a LoRA adapter for this model: a GGUF file, or a PEFT directory (models/peft.h).  Everything is
  // checked before anything is taken, and all offences are told at once.  Throws Io, BadData, Unsupported.
  // Source: lora-adapter.md 2.
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
  // The base_hash of the model that the adapter's file was made for; empty where it does not say.
  const std::string& base_hash() const { return base_hash_; }
  void set_base_hash(std::string hash) { base_hash_ = std::move(hash); }

 private:
  void lay_out();
  std::vector<AdapterPair> pairs_;
  Buffer values_, gradients_;
  size_t n_values_ = 0;
  float alpha_ = 0;
  std::string base_hash_;
};

constexpr int64_t kMaxRank = 256;  // Source: api.md 5
// Of a GGUF adapter, and of the metadata of a PEFT adapter's safetensors file.
constexpr const char* kBaseHashKey = "tandem.base_hash";

// Tells that an adapter's file says it was made for other weights: a warning, or if `strict` BadData.
void check_base(const AdapterSet& set, const Model& model, const std::string& path, bool strict);

// Writes a GGUF LoRA file that llama.cpp loads: the pairs as F32 and adapter.lora.alpha, such that alpha /
// rank is the scale of every pair (at user scale 1), and the base_hash of the set, by default of the model.
// Atomic; `verify` as of write_file_atomic.  Throws Io; whatever verify throws.  Source: lora-adapter.md 2.4,
// api.md 9.
void write_adapter(const std::string& path, const AdapterSet& set, const Model& model,
                   const std::string& name,
                   const std::function<void(const std::string& temporary)>& verify = {});

}  // namespace tandem
