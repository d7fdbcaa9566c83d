// olmoe: attention whose queries and keys are normed over their full width, before they are split into heads;
// experts by softmax over all, top-k, weights as they are (they sum to less than 1, and experts that were not
// chosen get a gradient through the router).  Source: architectures.md 1.9, 5.
#include "io/gguf_writer.h"
#include "models/build.h"
#include "models/weights.h"

namespace tandem {
namespace {

constexpr LayerWeightSpec kWeights[] = {
    weights::kAttnNorm,
    weights::kAttnQ,
    weights::kAttnK,
    weights::kAttnV,
    {"blk.{}.attn_q_norm.weight", &LayerWeights::attn_q_norm,
     [](const HParams& h) { return Shape(h.n_head * h.d_head); }},
    {"blk.{}.attn_k_norm.weight", &LayerWeights::attn_k_norm,
     [](const HParams& h) { return Shape(h.n_head_kv * h.d_head); }},
    weights::kAttnOutput,
    weights::kFfnNorm,
    weights::kFfnGateInp,
    weights::kFfnGateExps,
    weights::kFfnUpExps,
    weights::kFfnDownExps,
};

Tensor attention(Build& b, const LayerWeights& w, Tensor x) {
  const HParams& h = b.hparams();
  const int64_t n_tokens = x.ne(1);
  const Tensor n = b.norm(w.attn_norm, x);
  const Tensor q = b.norm(w.attn_q_norm, b.lin(w.attn_q, n));
  const Tensor k = b.norm(w.attn_k_norm, b.lin(w.attn_k, n));
  const Tensor v = reshape(b.lin(w.attn_v, n), {h.d_head_v, h.n_head_kv, n_tokens});
  const Tensor q_turned = b.rope(reshape(q, {h.d_head, h.n_head, n_tokens}));
  const Tensor k_turned = b.rope(reshape(k, {h.d_head, h.n_head_kv, n_tokens}));
  const Tensor o = b.attend(q_turned, k_turned, v, h.score_scale());
  return b.lin(w.attn_output, reshape(o, {h.d_head_v * h.n_head, n_tokens}));
}

Tensor layer(Build& b, const LayerWeights& w, Tensor x) {
  x = add(x, attention(b, w, x));
  return add(x, b.moe(w, b.norm(w.ffn_norm, x), b.hparams().routing));
}

void read(const GgufFile& file, HParams& h) {
  if (!file.has("olmoe.expert_feed_forward_length"))  // the common key is then the width of one expert
    h.n_ff_exp = bounded(file, "olmoe.feed_forward_length", 1, 1 << 20);
  h.routing.renormalize = false;
}

void synth(const SynthSettings&, HParams& h, GgufWriter&) { h.n_ff = h.n_ff_exp; }

}  // namespace

extern const ArchDef olmoe_arch{.name = "olmoe",
                                .read = read,
                                .layer_weights = kWeights,
                                .layer = layer,
                                .experts = Experts::All,
                                .synth = synth};

}  // namespace tandem
