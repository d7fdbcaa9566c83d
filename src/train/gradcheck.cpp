#include "train/gradcheck.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace tandem {
namespace {

constexpr int kMaxSteps = 14;   // h from first_step down to a 2^13th of it
constexpr int kNoiseReach = 6;  // the rounding of the loss is seen at this many points on either side
constexpr double kNoiseFactor =
    4;  // standard deviations; one in 16000 exceeds it, and the deviation is itself estimated
constexpr double kTruncationFactor =
    3;  // a jump of J leaves an error of 2.3 J / h, and extrapolations that differ by 1.2 J / h
constexpr double kZeroTensorSize = 0.02;  // of a tensor of zeros: about what B becomes in a first epoch
constexpr size_t kToldFailures = 4;

double norm(std::span<const float> x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

// The loss along a line through a tensor; puts the tensor back at the end.
class Line {
 public:
  Line(const CheckedTensor& tensor, const LossFunction& loss)
      : tensor_(tensor), loss_(loss), start_(tensor.values.begin(), tensor.values.end()) {
    const double size = norm(tensor.values) / std::sqrt(static_cast<double>(start_.size()));
    size_ = size > 0 ? size : kZeroTensorSize;
  }
  ~Line() { restore(); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // Root mean square of the tensor.
  double size() const { return size_; }

  // The direction, whose length then is size() * sqrt(n).
  void aim(std::vector<double> direction) {
    direction_ = std::move(direction);
    double sum = 0;
    for (double d : direction_) sum += d * d;
    const double factor = size_ * std::sqrt(static_cast<double>(direction_.size()) / sum);
    for (double& d : direction_) d *= factor;
  }

  // <gradient, direction>.
  double slope() const {
    double sum = 0;
    for (size_t i = 0; i < direction_.size(); ++i) sum += direction_[i] * tensor_.gradient[i];
    return sum;
  }

  // The loss at start + h * direction; NaN where it is not finite.
  double at(double h) {
    for (size_t i = 0; i < start_.size(); ++i) tensor_.values[i] = moved(i, h);
    double value = std::numeric_limits<double>::quiet_NaN();
    try {
      value = loss_();
    } catch (const Error& e) {
      if (e.code() != Code::NonFinite) throw;
    }
    restore();
    return value;
  }

  // The central difference over the step that f32 actually stores: what the rounding of the moved numbers
  // adds to the slope, as the engine's gradient has it, is taken off.
  double central(double h) {
    const double above = at(h), below = at(-h);
    double rounding = 0;
    for (size_t i = 0; i < start_.size(); ++i) {
      const double stored = static_cast<double>(moved(i, h)) - moved(i, -h);
      rounding += (stored - 2 * h * direction_[i]) * tensor_.gradient[i];
    }
    touched_ = touched_ || above != below;
    return (above - below - rounding) / (2 * h);
  }

  // Whether any step changed the loss.
  bool touched() const { return touched_; }

 private:
  float moved(size_t i, double h) const { return static_cast<float>(start_[i] + h * direction_[i]); }
  void restore() { std::copy(start_.begin(), start_.end(), tensor_.values.begin()); }

  const CheckedTensor& tensor_;
  const LossFunction& loss_;
  std::vector<float> start_;
  std::vector<double> direction_;
  double size_ = 0;
  bool touched_ = false;
};

// The standard deviation of the loss under moves that change its rounding and, smoothly, little else: from
// third differences, in which whatever is quadratic cancels and independent errors add up to a variance of 1
// + 9 + 9 + 1.
double measure_noise(Line& line, double step, double loss) {
  std::array<double, 2 * kNoiseReach + 1> y{};
  double largest = 0;
  for (int j = -kNoiseReach; j <= kNoiseReach; ++j) {
    y[static_cast<size_t>(j + kNoiseReach)] = j == 0 ? loss : line.at(j * step);
    largest = std::max(largest, std::abs(y[static_cast<size_t>(j + kNoiseReach)]));
  }
  double sum = 0;
  for (size_t j = 0; j + 3 < y.size(); ++j) {
    const double third = y[j + 3] - 3 * y[j + 2] + 3 * y[j + 1] - y[j];
    sum += third * third;
  }
  // A loss is no more exact than the doubles it is summed in.
  return std::max(std::sqrt(sum / static_cast<double>(y.size() - 3) / 20), largest * 0x1p-52);
}

// The slope of the loss along the line's direction, and how far it can be trusted.
struct Slope {
  double value = 0, noise = std::numeric_limits<double>::infinity(), step = 0;
  bool rough = false;
};

Slope measure_slope(Line& line, double loss_noise, double first_step, double enough) {
  Slope best;
  std::array<double, 3> d{};  // central differences at h, h/2, h/4
  for (int k = 0; k < kMaxSteps; ++k) {
    d = {d[1], d[2], line.central(std::ldexp(first_step, -k))};
    if (k < 2) continue;
    const double h = std::ldexp(first_step, 2 - k);
    const double coarse = (4 * d[1] - d[0]) / 3, fine = (4 * d[2] - d[1]) / 3;
    // fine = (4 d(h/4) - d(h/2)) / 3, and the deviation of d(h) is that of the loss times sqrt(2) / 2h.
    const double rounding = kNoiseFactor * loss_noise / (std::sqrt(2.0) * h) * std::sqrt(16.0 * 16 + 4) / 3;
    const double disagreement = kTruncationFactor * std::abs(fine - coarse);
    const double noise = rounding + disagreement;
    if (noise < best.noise) best = {fine, noise, h, disagreement > 3 * rounding};
    if (best.noise <= enough || 2 * rounding > best.noise) break;  // the next step cannot be better
  }
  return best;
}

DirectionCheck check_direction(Line& line, bool along_gradient, double loss_noise, double gradient_norm,
                               const GradCheckSettings& settings) {
  const double length = line.size(), slope = line.slope();  // of a direction with root mean square 1
  DirectionCheck c;
  c.along_gradient = along_gradient;
  const double typical =
      length * gradient_norm;  // |gradient| / sqrt(n) along a vector of length size * sqrt(n)
  const double expected = along_gradient ? std::abs(slope) : std::max(typical, std::abs(slope));
  const double enough = 0.1 * settings.tolerance * expected;
  c.engine = slope;
  const auto take = [&](const Slope& s) {
    c.numeric = s.value;
    c.noise = s.noise;
    c.scale = std::max(expected, std::isfinite(s.noise) ? std::abs(s.value) : 0);
    c.step = s.step;
    c.rough = c.rough || s.rough;
    const bool failed = !(c.difference() <= settings.tolerance * c.scale + c.noise);
    c.verdict = failed                                     ? Verdict::Failed
                : c.noise <= settings.resolution * c.scale ? Verdict::Passed
                                                           : Verdict::Unresolved;
  };
  take(measure_slope(line, loss_noise, settings.first_step, enough));
  // No gradient is blamed for a jump that happens to look alike at three steps: smaller ones must not
  // contradict them.
  while (c.verdict == Verdict::Failed) {
    if (c.step < std::ldexp(settings.first_step, -kMaxSteps)) {
      c.verdict = Verdict::Unresolved;
      break;
    }
    const Slope closer = measure_slope(line, loss_noise, c.step / 8, enough);
    if (!(std::abs(closer.value - c.numeric) > closer.noise + c.noise)) break;
    c.rough = true;
    take(closer);
  }
  return c;
}

std::string percent(double share) {
  return share < 0.1 ? fmt::format("{:.2g} %", 100 * share) : fmt::format("{:.0f} %", 100 * share);
}

std::string describe(const DirectionCheck& c) {
  return fmt::format(
      "along {} the engine's gradient says {:.4g} per unit, the loss changes by {:.4g} ({} off, noise {})",
      c.along_gradient ? "the gradient" : "a random direction", c.engine, c.numeric,
      percent(c.difference() / c.scale), percent(c.noise / c.scale));
}

// What the directions have in common: all wrong by one factor, or not.
std::string diagnose(const TensorCheck& t) {
  double ne = 0, ee = 0;
  for (const DirectionCheck& c : t.directions) {
    ne += c.numeric * c.engine;
    ee += c.engine * c.engine;
  }
  const double factor = ne / ee;
  const bool same = std::all_of(t.directions.begin(), t.directions.end(), [&](const DirectionCheck& c) {
    return std::abs(c.numeric - factor * c.engine) <= c.noise + 2e-3 * c.scale;
  });
  if (!same) return "a part of the gradient is missing or wrong between this layer and the loss";
  if (factor < 0) return "it has the wrong sign";
  return fmt::format("it is {:.4g} times what it should be", 1 / factor);
}

void judge(TensorCheck& t, bool touched) {
  const DirectionCheck* worst = nullptr;
  for (const DirectionCheck& c : t.directions) {
    if (c.verdict != Verdict::Failed) continue;
    if (!worst || c.difference() / c.scale > worst->difference() / worst->scale) worst = &c;
  }
  if (worst) {
    t.verdict = Verdict::Failed;
    t.reason = t.gradient_norm == 0 ? fmt::format(
                                          "the engine's gradient is 0, the loss changes by {:.4g} per unit: "
                                          "the gradient is cut between "
                                          "this layer and the loss",
                                          std::abs(worst->numeric))
                                    : fmt::format("{}: {}", describe(*worst), diagnose(t));
    return;
  }
  if (t.gradient_norm == 0) {
    t.reason =
        touched
            ? fmt::format(
                  "the engine's gradient is 0 and the loss does not change beyond its noise of {:.2g} nats",
                  t.loss_noise)
            : "the engine's gradient is 0 and the loss does not depend on it here (as on lora_a where lora_b "
              "is 0)";
    return;
  }
  // Both kinds are needed: a random direction is blind to a wrong length where it meets the gradient at a
  // right angle, the gradient's own to a part that it lacks.
  const auto resolved = [&](bool along) {
    return std::any_of(t.directions.begin(), t.directions.end(), [&](const DirectionCheck& c) {
      return c.along_gradient == along && c.verdict == Verdict::Passed;
    });
  };
  const bool random = resolved(false), own = resolved(true);
  if (random && own) {
    t.verdict = Verdict::Passed;
    return;
  }
  const DirectionCheck& shown = *std::find_if(
      t.directions.begin(), t.directions.end(),
      [&](const DirectionCheck& c) { return c.verdict == Verdict::Unresolved && c.along_gradient != own; });
  const std::string limit = random == own ? "" : own ? "along random directions " : "along its own gradient ";
  const std::string share = percent(shown.noise / shown.scale);
  if (!std::isfinite(shown.noise)) {
    t.reason = limit + "the loss is not finite around here";
  } else if (shown.rough) {
    t.reason = fmt::format(
        "{}the loss is not smooth enough: estimates from neighbouring steps differ by {} of the derivative "
        "(a "
        "kink, a jump as where a token changes expert, or coarse rounding)",
        limit, share);
  } else {
    t.reason = fmt::format(
        "{}the loss is too noisy: its rounding of {:.2g} nats hides {} of the derivative at the best step",
        limit, t.loss_noise, share);
  }
}

}  // namespace

double TensorCheck::error() const {
  double worst = 0;
  for (const DirectionCheck& c : directions) {
    if (c.verdict != Verdict::Unresolved) worst = std::max(worst, c.difference() / c.scale);
  }
  return worst;
}

double TensorCheck::noise() const {
  double worst = 0;
  for (const DirectionCheck& c : directions) {
    if (c.verdict != Verdict::Unresolved || verdict == Verdict::Unresolved)
      worst = std::max(worst, c.noise / c.scale);
  }
  return worst;
}

int64_t TensorCheck::n_resolved() const {
  return std::count_if(directions.begin(), directions.end(),
                       [](const DirectionCheck& c) { return c.verdict != Verdict::Unresolved; });
}

TensorCheck check_tensor(const CheckedTensor& tensor, const LossFunction& loss,
                         const GradCheckSettings& settings) {
  const size_t n = tensor.values.size();
  TANDEM_CHECK(n > 0 && tensor.gradient.size() == n && settings.samples >= 1);
  TensorCheck t;
  t.name = tensor.name;
  t.layer = tensor.layer;
  t.n_values = static_cast<int64_t>(n);
  t.gradient_norm = norm(tensor.gradient);
  if (!std::isfinite(t.gradient_norm)) {
    t.verdict = Verdict::Failed;
    t.reason = "the engine's gradient holds a number that is not finite";
    return t;
  }
  const double start = loss();
  Line line(tensor, loss);
  bool touched = false;
  const auto add = [&](bool along_gradient) {
    t.directions.push_back(check_direction(line, along_gradient, t.loss_noise, t.gradient_norm, settings));
    touched = touched || line.touched();
  };
  for (int64_t s = 0; s < settings.samples; ++s) {
    Rng rng(random_bits(
        {settings.seed, key_of("gradcheck direction"), key_of(tensor.name), static_cast<uint64_t>(s)}));
    std::vector<double> direction(n);
    for (double& d : direction) d = rng.next_normal();
    line.aim(std::move(direction));
    if (s == 0) t.loss_noise = measure_noise(line, settings.noise_step, start);
    add(false);
  }
  if (t.gradient_norm > 0) {
    line.aim({tensor.gradient.begin(), tensor.gradient.end()});
    add(true);
  }
  // Told along vectors of length 1.
  const double length = line.size() * std::sqrt(static_cast<double>(n));
  for (DirectionCheck& c : t.directions) {
    for (double* d : {&c.engine, &c.numeric, &c.noise, &c.scale}) *d /= length;
  }
  judge(t, touched);
  return t;
}

int64_t GradCheckReport::count(Verdict verdict) const {
  return std::count_if(tensors.begin(), tensors.end(),
                       [&](const TensorCheck& t) { return t.verdict == verdict; });
}

GradCheckSettings gradcheck_settings(Precision precision) {
  GradCheckSettings s;
  if (precision == Precision::BF16) {
    // Operands keep 8 bits.  The engine's gradient then is off by up to a tenth of its length (the cosine
    // that the tests ask for is 0.995), along a random direction by twice that in one of twenty; and moves
    // must cross several roundings.
    s.tolerance = 0.2;
    s.resolution = 0.2;
    s.first_step = 8;
    s.noise_step = 0.5;
  }
  return s;
}

GradCheckReport check_adapter(const Model& model, Backend& backend, AdapterSet& adapter, const Window& window,
                              const RunnerOptions& options, const GradCheckSettings& settings,
                              const GradCheckProgress& progress) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  adapter.allocate_gradients();
  WindowRunner runner(model, backend, {&adapter}, &adapter, options);
  runner.allocate();
  GradCheckReport report;
  const auto sum = [](const WindowLoss& loss) {
    double total = 0;
    for (float l : loss.nll) total += l;
    return total;
  };
  const WindowLoss trained = runner.forward_backward(window, 1.f, {});
  report.loss = sum(trained);
  const auto seconds = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  const Clock::time_point before = Clock::now();
  if (runner.evaluate(window).nll != trained.nll || runner.evaluate_kept(window).nll != trained.nll) {
    fail(Code::Internal, "the loss of the training pass and that of evaluation differ for the same numbers");
  }
  report.evaluation_seconds = seconds(before) / 2;
  if (progress) progress(report, nullptr);
  const LossFunction loss = [&] {
    ++report.n_evaluations;
    return sum(runner.evaluate_kept(window));
  };
  for (const AdapterPair& p : adapter.pairs()) {
    if (!p.trainable) continue;
    const auto a = static_cast<size_t>(p.a_shape.elements()), b = static_cast<size_t>(p.b_shape.elements());
    for (const CheckedTensor& half :
         {CheckedTensor{
              p.weight->name + ".lora_a", p.weight->layer, {adapter.a(p), a}, {adapter.a_gradient(p), a}},
          CheckedTensor{
              p.weight->name + ".lora_b", p.weight->layer, {adapter.b(p), b}, {adapter.b_gradient(p), b}}}) {
      report.tensors.push_back(check_tensor(half, loss, settings));
      report.seconds = seconds(begin);
      if (progress) progress(report, &report.tensors.back());
    }
  }
  return report;
}

void require_gradients(const GradCheckReport& report) {
  const int64_t n_failed = report.count(Verdict::Failed), n = static_cast<int64_t>(report.tensors.size());
  if (n_failed == 0) {
    if (report.count(Verdict::Passed) > 0) return;
    fail(Code::Internal,
         "nothing is shown: none of {} tensors could be checked above the noise of the loss; more tokens, or "
         "f32 "
         "products (--precision f32), help",
         n);
  }
  int highest_wrong = -1, lowest_right = std::numeric_limits<int>::max();
  for (const TensorCheck& t : report.tensors) {
    if (t.verdict == Verdict::Failed) highest_wrong = std::max(highest_wrong, t.layer);
  }
  // Those nearest to the loss, since below them a fault only spreads, and first those that have no gradient
  // at all.
  std::vector<const TensorCheck*> nearest;
  for (const TensorCheck& t : report.tensors) {
    if (t.layer > highest_wrong && t.verdict == Verdict::Passed)
      lowest_right = std::min(lowest_right, t.layer);
    if (t.layer == highest_wrong && t.verdict == Verdict::Failed) nearest.push_back(&t);
  }
  std::stable_partition(nearest.begin(), nearest.end(),
                        [](const TensorCheck* t) { return t->gradient_norm == 0; });
  nearest.resize(std::min(nearest.size(), kToldFailures));
  std::string told;
  for (const TensorCheck* t : nearest) told += fmt::format("\n  {}: {}", t->name, t->reason);
  const std::string where =
      lowest_right == std::numeric_limits<int>::max()
          ? fmt::format(
                "layer {} is wrong, and no checked layer above it is right: the fault is there, above it, or "
                "in the head",
                highest_wrong)
          : fmt::format(
                "layer {0} is wrong, layer {1} above it is right: the fault is in layer {0} or between the "
                "two",
                highest_wrong, lowest_right);
  fail(Code::Internal,
       "the gradient of {} of {} tensors does not agree with the loss; an adapter trained with it would not "
       "learn what it "
       "should.\n{}; nearest to the loss:{}{}",
       n_failed, n, where, told,
       static_cast<size_t>(n_failed) > nearest.size()
           ? fmt::format("\n  and {} more", static_cast<size_t>(n_failed) - nearest.size())
           : "");
}

}  // namespace tandem
