// qwen3: grouped-query attention with per-head RMS norm of q and k and NEOX rotary positions, SwiGLU
// feed-forward. Source: architectures.md 1.9, 3.
#include "models/qwen3/qwen3.h"

#include "models/weights.h"

namespace tandem {

Tensor qwen3_attention(Build& b, const LayerWeights& w, Tensor x) {
  const HParams& h = b.hparams();
  const int64_t n_tokens = x.ne(1);
  const Tensor n = b.norm(w.attn_norm, x);
  Tensor q = reshape(b.lin(w.attn_q, n), {h.d_head, h.n_head, n_tokens});
  Tensor k = reshape(b.lin(w.attn_k, n), {h.d_head, h.n_head_kv, n_tokens});
  const Tensor v = reshape(b.lin(w.attn_v, n), {h.d_head_v, h.n_head_kv, n_tokens});
  q = b.rope(b.norm(w.attn_q_norm, q));
  k = b.rope(b.norm(w.attn_k_norm, k));
  const Tensor o = b.attend(q, k, v, h.score_scale());
  return add(x, b.lin(w.attn_output, reshape(o, {h.d_head_v * h.n_head, n_tokens})));
}

namespace {

constexpr LayerWeightSpec kWeights[] = {
    weights::kAttnNorm,  weights::kAttnQ,     weights::kAttnK,      weights::kAttnV,
    weights::kAttnQNorm, weights::kAttnKNorm, weights::kAttnOutput, weights::kFfnNorm,
    weights::kFfnGate,   weights::kFfnUp,     weights::kFfnDown,
};

Tensor layer(Build& b, const LayerWeights& w, Tensor x) {
  x = qwen3_attention(b, w, x);
  return add(x, b.ffn(w.ffn_gate, w.ffn_up, w.ffn_down, b.norm(w.ffn_norm, x)));
}

}  // namespace

extern const ArchDef qwen3_arch{.name = "qwen3", .read = nullptr, .layer_weights = kWeights, .layer = layer};

}  // namespace tandem
