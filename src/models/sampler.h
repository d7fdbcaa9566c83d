// Choosing the next token from logits.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tandem {

// The filters work in this order, each on what the one before left: top_k, top_p, min_p, temperature.
struct SamplerSettings {
  float temp = 0.f;    // 0: the largest logit
  int64_t top_k = 40;  // 0: all
  float top_p = 0.95f;
  float min_p = 0.05f;
  uint64_t seed = 42;
};

// The n largest logits with their ids, larger first, the smaller id on ties.
std::vector<std::pair<int32_t, float>> top_logits(std::span<const float> logits, size_t n);

// Draws one token after another; the i-th draw is a function of (logits, settings, i).
class Sampler {
 public:
  explicit Sampler(const SamplerSettings& settings) : settings_(settings) {}
  // logits {n_vocab}, finite, not empty.
  int32_t sample(std::span<const float> logits);

 private:
  SamplerSettings settings_;
  uint64_t n_drawn_ = 0;
};

}  // namespace tandem
