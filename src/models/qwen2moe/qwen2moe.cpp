// qwen2moe: attention with biases on q, k and v; experts by softmax over all, top-k, weights as they are; a
// shared expert weighted by the sigmoid of its own product with the token.  Source:
// architectures.md 1.6, 1.7, 1.9.
#include "io/gguf_writer.h"
#include "models/build.h"
#include "models/weights.h"

namespace tandem {
namespace {

constexpr LayerWeightSpec kWeights[] = {
    weights::kAttnNorm,
    weights::kAttnQ,
    {.name = "blk.{}.attn_q.bias",
     .slot = &LayerWeights::attn_q_bias,
     .shape = [](const HParams& h) { return Shape(h.n_head * h.d_head); },
     .filling = Filling::Bias},
    weights::kAttnK,
    {.name = "blk.{}.attn_k.bias",
     .slot = &LayerWeights::attn_k_bias,
     .shape = [](const HParams& h) { return Shape(h.n_head_kv * h.d_head); },
     .filling = Filling::Bias},
    weights::kAttnV,
    {.name = "blk.{}.attn_v.bias",
     .slot = &LayerWeights::attn_v_bias,
     .shape = [](const HParams& h) { return Shape(h.n_head_kv * h.d_head_v); },
     .filling = Filling::Bias},
    weights::kAttnOutput,
    weights::kFfnNorm,
    weights::kFfnGateInp,
    weights::kFfnGateExps,
    weights::kFfnUpExps,
    weights::kFfnDownExps,
    weights::kFfnGateInpShexp,
    weights::kFfnGateShexp,
    weights::kFfnUpShexp,
    weights::kFfnDownShexp,
};

Tensor attention(Build& b, const LayerWeights& w, Tensor x) {
  const HParams& h = b.hparams();
  const int64_t n_tokens = x.ne(1);
  const Tensor n = b.norm(w.attn_norm, x);
  const Tensor q = reshape(b.lin(w.attn_q, n, w.attn_q_bias), {h.d_head, h.n_head, n_tokens});
  const Tensor k = reshape(b.lin(w.attn_k, n, w.attn_k_bias), {h.d_head, h.n_head_kv, n_tokens});
  const Tensor v = reshape(b.lin(w.attn_v, n, w.attn_v_bias), {h.d_head_v, h.n_head_kv, n_tokens});
  const Tensor q_turned = b.rope(q);
  const Tensor k_turned = b.rope(k);
  const Tensor o = b.attend(q_turned, k_turned, v, h.score_scale());
  return b.lin(w.attn_output, reshape(o, {h.d_head_v * h.n_head, n_tokens}));
}

Tensor layer(Build& b, const LayerWeights& w, Tensor x) {
  x = add(x, attention(b, w, x));
  const Tensor n = b.norm(w.ffn_norm, x);
  const Tensor routed = b.moe(w, n, b.hparams().routing);
  return add(x, add(routed, b.shared_expert(w, n)));
}

void read(const GgufFile& file, HParams& h) {
  h.n_ff_shexp = bounded(file, "qwen2moe.expert_shared_feed_forward_length", 1, 1 << 20);
  h.routing.renormalize = false;
}

// The shared expert is wider than a routed one, as in the published models.
void synth(const SynthSettings&, HParams& h, GgufWriter& out) {
  h.n_ff_shexp = 2 * h.n_ff_exp;
  out.add_u32("qwen2moe.expert_shared_feed_forward_length", static_cast<uint32_t>(h.n_ff_shexp));
}

}  // namespace

extern const ArchDef qwen2moe_arch{.name = "qwen2moe",
                                   .read = read,
                                   .layer_weights = kWeights,
                                   .layer = layer,
                                   .experts = Experts::All,
                                   .synth = synth};

}  // namespace tandem
