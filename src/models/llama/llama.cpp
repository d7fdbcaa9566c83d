// llama: Llama-3 and Mixtral.  Grouped-query attention whose neighbouring channels turn together, by angles
// that a file may divide (rope_freqs.weight); SwiGLU feed-forward, or experts by softmax, top-k,
// renormalized. Files with one tensor per expert (blk.N.ffn_gate.E.weight) are not read.  Source:
// architectures.md 1.3, 1.9, 4.
#include "io/gguf_writer.h"
#include "models/build.h"
#include "models/weights.h"

namespace tandem {
namespace {

bool is_dense(const HParams& h, int64_t) { return h.n_expert == 0; }
bool has_experts(const HParams& h, int64_t) { return h.n_expert > 0; }

constexpr LayerWeightSpec only(LayerWeightSpec spec, bool (*in_layer)(const HParams&, int64_t)) {
  spec.in_layer = in_layer;
  return spec;
}

// Source: architectures.md 4.
constexpr LayerWeightSpec turned(LayerWeightSpec spec) {
  spec.hf = {
      .refusal =
          "GGUF files hold the rows of q and k of llama in another order than Hugging Face models; this "
          "exchange is not built, use the GGUF adapter"};
  return spec;
}

constexpr LayerWeightSpec kWeights[] = {
    weights::kAttnNorm,
    turned(weights::kAttnQ),
    turned(weights::kAttnK),
    weights::kAttnV,
    weights::kAttnOutput,
    weights::kFfnNorm,
    only(weights::kFfnGate, is_dense),
    only(weights::kFfnUp, is_dense),
    only(weights::kFfnDown, is_dense),
    only(weights::kFfnGateInp, has_experts),
    only(weights::kFfnGateExps, has_experts),
    only(weights::kFfnUpExps, has_experts),
    only(weights::kFfnDownExps, has_experts),
};

Tensor attention(Build& b, const LayerWeights& w, Tensor x) {
  const HParams& h = b.hparams();
  const int64_t n_tokens = x.ne(1);
  const Tensor n = b.norm(w.attn_norm, x);
  const Tensor q = b.rope(reshape(b.lin(w.attn_q, n), {h.d_head, h.n_head, n_tokens}));
  const Tensor k = b.rope(reshape(b.lin(w.attn_k, n), {h.d_head, h.n_head_kv, n_tokens}));
  const Tensor v = reshape(b.lin(w.attn_v, n), {h.d_head_v, h.n_head_kv, n_tokens});
  const Tensor o = b.attend(q, k, v, h.score_scale());
  return b.lin(w.attn_output, reshape(o, {h.d_head_v * h.n_head, n_tokens}));
}

Tensor layer(Build& b, const LayerWeights& w, Tensor x) {
  x = add(x, attention(b, w, x));
  const Tensor n = b.norm(w.ffn_norm, x);
  if (w.ffn_gate_inp.present()) return add(x, b.moe(w, n, b.hparams().routing));
  return add(x, b.ffn(w.ffn_gate, w.ffn_up, w.ffn_down, n));
}

void read(const GgufFile& file, HParams& h) {
  h.rope.kind = RopeKind::Normal;
  if (h.n_expert > 0 && !file.has("llama.expert_feed_forward_length"))
    h.n_ff_exp = bounded(file, "llama.feed_forward_length", 1, 1 << 20);  // of one expert
}

void synth(const SynthSettings&, HParams& h, GgufWriter&) {
  if (h.n_expert > 0) h.n_ff = h.n_ff_exp;
}

}  // namespace

extern const ArchDef llama_arch{.name = "llama",
                                .read = read,
                                .layer_weights = kWeights,
                                .layer = layer,
                                .experts = Experts::ByKey,
                                .rope_freqs = true,
                                .synth = synth};

}  // namespace tandem
