#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace tandem {

AdamW::AdamW(size_t n, const AdamWSettings& settings)
    : settings_(settings),
      m_(n * sizeof(float), "the first moments"),
      v_(n * sizeof(float), "the second moments") {
  const auto fraction = [](float x) { return x >= 0.f && x < 1.f; };
  if (!fraction(settings.beta1) || !fraction(settings.beta2)) {
    fail(Code::Usage, "AdamW needs betas in [0, 1), not {} and {}", settings.beta1, settings.beta2);
  }
}

void AdamW::step(std::span<float> values, std::span<const float> gradients, std::span<const FlatRange> ranges,
                 double learning_rate) {
  TANDEM_CHECK(values.size() == gradients.size() && values.size() * sizeof(float) == m_.bytes());
  ++t_;
  const double b1 = settings_.beta1, b2 = settings_.beta2;
  const double correct1 = 1.0 - std::pow(b1, static_cast<double>(t_)),
               correct2 = 1.0 - std::pow(b2, static_cast<double>(t_));
  const double keep = 1.0 - learning_rate * settings_.weight_decay;
  float *m = m_.f32(), *v = v_.f32();
  for (const FlatRange& r : ranges) {
    for (size_t i = r.begin; i < r.begin + r.n; ++i) {
      const double g = gradients[i];
      const double mi = b1 * m[i] + (1 - b1) * g, vi = b2 * v[i] + (1 - b2) * g * g;
      m[i] = static_cast<float>(mi);
      v[i] = static_cast<float>(vi);
      const double update = learning_rate * (mi / correct1) / (std::sqrt(vi / correct2) + settings_.eps);
      values[i] = static_cast<float>(values[i] * keep - update);
    }
  }
}

void AdamW::restore(int64_t n_steps, std::span<const float> first_moments,
                    std::span<const float> second_moments) {
  TANDEM_CHECK(first_moments.size_bytes() == m_.bytes() && second_moments.size_bytes() == v_.bytes());
  t_ = n_steps;
  std::copy(first_moments.begin(), first_moments.end(), m_.f32());
  std::copy(second_moments.begin(), second_moments.end(), v_.f32());
}

double global_norm(std::span<const float> gradients) {
  double sum = 0;
  for (float g : gradients) sum += static_cast<double>(g) * g;
  return std::sqrt(sum);
}

void clip_to_norm(std::span<float> gradients, double norm, double max_norm) {
  if (!(norm > max_norm)) return;
  const double factor = max_norm / (norm + 1e-6);
  for (float& g : gradients) g = static_cast<float>(g * factor);
}

ScheduleKind parse_schedule(std::string_view name) {
  if (name == "constant") return ScheduleKind::Constant;
  if (name == "linear") return ScheduleKind::Linear;
  if (name == "cosine") return ScheduleKind::Cosine;
  fail(Code::Usage, "--lr-scheduler takes constant, linear or cosine, not '{}'", name);
}

double learning_rate_at(const ScheduleSettings& s, int64_t step, int64_t total) {
  if (step < s.warmup_steps)
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  const int64_t span = total - s.warmup_steps;
  const double x =
      span > 0 ? std::clamp(static_cast<double>(step - s.warmup_steps) / static_cast<double>(span), 0.0, 1.0)
               : 1.0;
  switch (s.kind) {
    case ScheduleKind::Constant:
      return s.peak;
    case ScheduleKind::Linear:
      return s.peak + (s.floor - s.peak) * x;
    case ScheduleKind::Cosine:
      return s.floor + (s.peak - s.floor) * (1 + std::cos(std::numbers::pi * x)) / 2;
  }
  return s.peak;
}

}  // namespace tandem
