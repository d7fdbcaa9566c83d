// AdamW, clipping and learning-rate schedules.  Source: gradients.md 12.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "base/memory.h"

namespace tandem {

struct AdamWSettings {
  float learning_rate = 2e-4f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float eps = 1e-8f;         // outside the root
  float weight_decay = 0.f;  // decoupled: times the rate, never in the moments
};

// A stretch of a flat vector.
struct FlatRange {
  size_t begin, n;
};

// The moments of one flat vector of parameters.
class AdamW {
 public:
  AdamW(size_t n, const AdamWSettings& settings);
  // w <- w (1 - lr wd) - lr m / (sqrt(v) + eps) within the ranges, moments corrected for their start; t
  // counts calls from 1.
  void step(std::span<float> values, std::span<const float> gradients, std::span<const FlatRange> ranges,
            double learning_rate);

  // What a later process needs to go on: the calls of step() so far, and both moments, element by element.
  int64_t n_steps() const { return t_; }
  std::span<const float> first_moments() const { return {m_.f32(), m_.bytes() / sizeof(float)}; }
  std::span<const float> second_moments() const { return {v_.f32(), v_.bytes() / sizeof(float)}; }
  void restore(int64_t n_steps, std::span<const float> first_moments, std::span<const float> second_moments);

 private:
  AdamWSettings settings_;
  int64_t t_ = 0;  // calls of step()
  Buffer m_, v_;
};

// The Euclidean norm of all gradients, summed in f64 in a fixed order.
double global_norm(std::span<const float> gradients);
// Scales the gradients by max_norm / (norm + 1e-6) if norm exceeds max_norm.
void clip_to_norm(std::span<float> gradients, double norm, double max_norm);

enum class ScheduleKind { Constant, Linear, Cosine };
// "constant", "linear" or "cosine"; throws Usage.
ScheduleKind parse_schedule(std::string_view name);

struct ScheduleSettings {
  ScheduleKind kind = ScheduleKind::Cosine;
  double peak = 2e-4;
  double floor = 0;
  int64_t warmup_steps = 0;
};
// The rate of step s (from 0) of total.  Source: gradients.md 12.4.
double learning_rate_at(const ScheduleSettings& schedule, int64_t s, int64_t total);

}  // namespace tandem
