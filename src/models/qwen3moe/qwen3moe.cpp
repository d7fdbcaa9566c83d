// qwen3moe: the attention of qwen3; experts chosen by softmax over all logits, top-k, weights renormalized.
// Softmax, top-k, renormalize equals softmax over the chosen logits, and that is how it is computed: its
// gradient has the closed form of gradients.md 7.  Source: architectures.md 1.6, 1.7, 3.
#include "models/qwen3/qwen3.h"
#include "models/weights.h"

namespace tandem {
namespace {

constexpr LayerWeightSpec kWeights[] = {
    weights::kAttnNorm,   weights::kAttnQ,       weights::kAttnK,      weights::kAttnV,
    weights::kAttnQNorm,  weights::kAttnKNorm,   weights::kAttnOutput, weights::kFfnNorm,
    weights::kFfnGateInp, weights::kFfnGateExps, weights::kFfnUpExps,  weights::kFfnDownExps,
};

Tensor layer(Build& b, const LayerWeights& w, Tensor x) {
  x = qwen3_attention(b, w, x);
  return add(x, b.moe(w, b.norm(w.ffn_norm, x), b.hparams().routing));
}

}  // namespace

extern const ArchDef qwen3moe_arch{
    .name = "qwen3moe", .read = nullptr, .layer_weights = kWeights, .layer = layer, .experts = Experts::All};

}  // namespace tandem
