// Proves the engine's gradient on the model in hand: along directions through every adapter tensor, what the
// backward pass says against how much the engine's own loss changes.  Source: gradients.md 1.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/runner.h"

namespace tandem {

// Numbers a loss depends on, and what is said to be its gradient in them.
struct CheckedTensor {
  std::string name;  // "blk.0.attn_q.weight.lora_a"
  int layer = 0;
  std::span<float> values;  // moved while the tensor is checked, afterwards the same bits again
  std::span<const float> gradient;
};

struct GradCheckSettings {
  int64_t samples = 2;  // random directions through each tensor, beside the one along its gradient
  uint64_t seed = 42;
  double tolerance = 1e-3;     // of the scale, see DirectionCheck
  double resolution = 0.05;    // what is less certain than this share of the scale shows nothing
  double first_step = 1;       // of the tensor's size: where the search for a step begins
  double noise_step = 0x1p-8;  // of the tensor's size: moves at which the rounding of the loss is measured
};

enum class Verdict {
  Passed,
  Failed,
  Unresolved,  // the loss is too uncertain here to tell
};

// One direction.  Derivatives are those along a vector of length 1.  A random direction is compared on the
// scale of what the gradient makes along a typical one, |gradient| / sqrt(n): a part that is missing at right
// angles to the rest shows there only.
struct DirectionCheck {
  bool along_gradient = false;
  double engine = 0;   // <gradient, direction>
  double numeric = 0;  // from the loss
  double noise = 0;  // bound on the error of `numeric`: rounding of the loss, and what the steps disagree by
  double scale = 0;
  double step = 0;     // the largest of the three combined, as a share of the tensor's size
  bool rough = false;  // the steps disagree by more than rounding explains
  Verdict verdict = Verdict::Unresolved;

  double difference() const { return numeric > engine ? numeric - engine : engine - numeric; }
};

struct TensorCheck {
  std::string name;
  int layer = 0;
  int64_t n_values = 0;
  double gradient_norm = 0;
  double loss_noise = 0;  // standard deviation of the loss under moves that only change its rounding, in nats
  Verdict verdict = Verdict::Unresolved;
  std::string reason;  // of a failure, or why nothing could be told; empty for one that passed
  std::vector<DirectionCheck> directions;

  double error() const;  // worst difference over the resolved directions, as a share of the scale
  double noise() const;  // worst noise of them, likewise
  int64_t n_resolved() const;
};

// The loss, summed in double.  A NonFinite error of it makes a step unusable; others pass through.
using LossFunction = std::function<double()>;

// Checks one tensor.  The step is the one at which steps h, h/2, h/4 (h = first_step, half of it, ...)
// leave the least doubt, chosen without looking at the engine's answer; the two extrapolations of order h^4
// that they give bound the truncation, and a jump, by three times their difference.
TensorCheck check_tensor(const CheckedTensor& tensor, const LossFunction& loss,
                         const GradCheckSettings& settings);

struct GradCheckReport {
  double loss = 0;                // where the check was made: sum over the trained tokens, in nats
  double evaluation_seconds = 0;  // of one evaluation of the loss
  int64_t n_evaluations = 0;
  std::vector<TensorCheck> tensors;
  double seconds = 0;

  int64_t count(Verdict verdict) const;
};

// The settings that suit a precision: products in bf16 round the loss and the gradient more coarsely.
GradCheckSettings gradcheck_settings(Precision precision);

// Told before the first tensor (null) and after each.
using GradCheckProgress = std::function<void(const GradCheckReport& so_far, const TensorCheck* latest)>;

// Checks A and B of every trainable pair of `adapter` over one window.  The loss is that of evaluation, with
// each token kept at the experts of the forward pass.  Takes the memory it needs, the adapter's gradients
// included. Throws Internal if the three ways to the loss (training, evaluation, experts kept) differ by a
// bit.
GradCheckReport check_adapter(const Model& model, Backend& backend, AdapterSet& adapter, const Window& window,
                              const RunnerOptions& options, const GradCheckSettings& settings,
                              const GradCheckProgress& progress);

// Throws Internal, saying in words what is wrong and from which layer on, if a tensor failed or none was
// resolved.
void require_gradients(const GradCheckReport& report);

}  // namespace tandem
