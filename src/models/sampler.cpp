#include "models/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace tandem {
namespace {

using Candidate = std::pair<int32_t, float>;

// exp(scale * (logit - the first logit)): probabilities without their common factor.  The first is the
// largest.
std::vector<double> weights(const std::vector<Candidate>& candidates, double scale) {
  std::vector<double> w;
  w.reserve(candidates.size());
  for (const Candidate& c : candidates) {
    w.push_back(std::exp(scale * (static_cast<double>(c.second) - candidates.front().second)));
  }
  return w;
}

// The fewest leading candidates that hold the probability p; at least one.
void keep_top_p(std::vector<Candidate>& candidates, double p) {
  const std::vector<double> w = weights(candidates, 1);
  const double wanted = p * std::accumulate(w.begin(), w.end(), 0.0);
  double held = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    held += w[i];
    if (held >= wanted) return candidates.resize(i + 1);
  }
}

// Those with at least the share p of the first one's probability.
void keep_min_p(std::vector<Candidate>& candidates, double p) {
  const std::vector<double> w = weights(candidates, 1);
  size_t n = 1;
  while (n < w.size() && w[n] >= p) ++n;
  candidates.resize(n);
}

}  // namespace

std::vector<std::pair<int32_t, float>> top_logits(std::span<const float> logits, size_t n) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  n = std::min(n, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(), before);
  std::vector<Candidate> result;
  for (size_t i = 0; i < n; ++i) result.emplace_back(ids[i], logits[static_cast<size_t>(ids[i])]);
  return result;
}

int32_t Sampler::sample(std::span<const float> logits) {
  TANDEM_CHECK(!logits.empty());
  const double u = uniform(random_bits({settings_.seed, key_of("sample"), n_drawn_++}));
  if (settings_.temp <= 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  const bool all = settings_.top_k <= 0;
  std::vector<Candidate> candidates =
      top_logits(logits, all ? logits.size() : static_cast<size_t>(settings_.top_k));
  if (settings_.top_p < 1) keep_top_p(candidates, settings_.top_p);
  if (settings_.min_p > 0) keep_min_p(candidates, settings_.min_p);
  const std::vector<double> w = weights(candidates, 1.0 / static_cast<double>(settings_.temp));
  double left = u * std::accumulate(w.begin(), w.end(), 0.0);
  for (size_t i = 0; i < w.size(); ++i) {
    left -= w[i];
    if (left < 0) return candidates[i].first;
  }
  return candidates.back().first;  // rounding of the sum
}

}  // namespace tandem
