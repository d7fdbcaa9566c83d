// qwen35 (dense Qwen3.5 and 3.6): three layers of Gated DeltaNet to one of gated full attention, SwiGLU
// feed-forward.  Value head h reads key head h % H_k.  Source: architectures.md 2.3 to 2.5, 2.8.
#include "models/qwen35/qwen35.h"

namespace tandem {
namespace {

constexpr LayerWeightSpec kWeights[] = {
    weights::kAttnNorm,
    weights::kGatedAttnQ,
    weights::full(weights::kAttnK),
    weights::full(weights::kAttnV),
    weights::full(weights::kAttnQNorm),
    weights::full(weights::kAttnKNorm),
    weights::full(weights::kAttnOutput),
    weights::kAttnQkv,
    weights::kAttnGate,
    weights::kSsmConv1d,
    weights::kSsmBeta,
    weights::kSsmAlpha,
    weights::kSsmDt,
    weights::kSsmA,
    weights::kSsmNorm,
    weights::kSsmOut,
    weights::kPostAttentionNorm,
    weights::kFfnGate,
    weights::kFfnUp,
    weights::kFfnDown,
};

Tensor layer(Build& b, const LayerWeights& w, Tensor x) {
  x = qwen35_mixer(b, w, x, DeltaHeads::Tiled);
  return add(x, b.ffn(w.ffn_gate, w.ffn_up, w.ffn_down, b.norm(w.ffn_norm, x)));
}

void read(const GgufFile& file, HParams& h) { read_qwen35_mixers(file, "qwen35.", h); }

void synth(const SynthSettings& settings, HParams& h, GgufWriter& out) {
  synth_qwen35_mixers(settings, "qwen35.", h, out);
}

}  // namespace

extern const ArchDef qwen35_arch{
    .name = "qwen35", .read = read, .layer_weights = kWeights, .layer = layer, .synth = synth};

}  // namespace tandem
