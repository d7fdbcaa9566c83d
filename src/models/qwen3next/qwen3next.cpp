// qwen3next (Qwen3-Next, Qwen3-Coder-Next): qwen35moe with value heads grouped by key head (h reads h / (H_v
// / H_k)), and beta and alpha in one matrix.  Older files that also hold q, k, v and z in one (ssm_in) are
// not read.  Source: architectures.md 2.4, 2.8.
#include "io/gguf_writer.h"
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
    weights::kSsmBa,
    weights::kSsmDt,
    weights::kSsmA,
    weights::kSsmNorm,
    weights::kSsmOut,
    weights::kPostAttentionNorm,
    weights::kFfnGateInp,
    weights::kFfnGateExps,
    weights::kFfnUpExps,
    weights::kFfnDownExps,
    weights::kFfnGateInpShexp,
    weights::kFfnGateShexp,
    weights::kFfnUpShexp,
    weights::kFfnDownShexp,
};

Tensor layer(Build& b, const LayerWeights& w, Tensor x) {
  x = qwen35_mixer(b, w, x, DeltaHeads::Grouped);
  const Tensor n = b.norm(w.ffn_norm, x);
  const Tensor routed = b.moe(w, n, b.hparams().routing);
  return add(x, add(routed, b.shared_expert(w, n)));
}

void read(const GgufFile& file, HParams& h) {
  read_qwen35_mixers(file, "qwen3next.", h);
  h.n_ff_shexp = bounded(file, "qwen3next.expert_shared_feed_forward_length", 1, 1 << 20);
}

void synth(const SynthSettings& settings, HParams& h, GgufWriter& out) {
  synth_qwen35_mixers(settings, "qwen3next.", h, out);
  h.n_ff_shexp = h.n_ff_exp;
  out.add_u32("qwen3next.expert_shared_feed_forward_length", static_cast<uint32_t>(h.n_ff_shexp));
}

}  // namespace

extern const ArchDef qwen3next_arch{.name = "qwen3next",
                                    .read = read,
                                    .layer_weights = kWeights,
                                    .layer = layer,
                                    .experts = Experts::All,
                                    .synth = synth};

}  // namespace tandem
