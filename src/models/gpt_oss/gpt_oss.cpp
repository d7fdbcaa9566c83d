// gpt-oss: grouped-query attention with biases, and with a sink in every head; in even layers a token sees
// the last few keys only.  Experts with biases and a clamped activation, chosen by their logits and weighted
// by softmax over those chosen.  Source: architectures.md 1.4 to 1.7, 1.9, 6.
#include "io/gguf_writer.h"
#include "models/build.h"
#include "models/synth.h"
#include "models/weights.h"

namespace tandem {
namespace {

// The parameters of the experts have inputs before outputs, and the rows of gate and up in turn.  Which side
// of them a version of PEFT calls A is not known for sure, and does not show in the square one.
constexpr const char* kNotExchanged =
    "experts of gpt-oss are not exchanged with PEFT, whose parameters hold the rows of gate and up in turn; "
    "keep "
    "them in a GGUF adapter";
constexpr HfPlace kGateUp{.fused = "mlp.experts.gate_up_proj", .n_parts = 2, .refusal = kNotExchanged},
    kDown{.fused = "mlp.experts.down_proj", .refusal = kNotExchanged};

constexpr LayerWeightSpec bias(const char* name, Weight LayerWeights::*slot,
                               Shape (*shape)(const HParams& h)) {
  return {.name = name, .slot = slot, .shape = shape, .f32 = true, .filling = Filling::Bias};
}

constexpr LayerWeightSpec kWeights[] = {
    weights::kAttnNorm,
    weights::kAttnQ,
    weights::kAttnK,
    weights::kAttnV,
    bias("blk.{}.attn_q.bias", &LayerWeights::attn_q_bias,
         [](const HParams& h) { return Shape(h.n_head * h.d_head); }),
    bias("blk.{}.attn_k.bias", &LayerWeights::attn_k_bias,
         [](const HParams& h) { return Shape(h.n_head_kv * h.d_head); }),
    bias("blk.{}.attn_v.bias", &LayerWeights::attn_v_bias,
         [](const HParams& h) { return Shape(h.n_head_kv * h.d_head_v); }),
    bias("blk.{}.attn_sinks.weight", &LayerWeights::attn_sinks,
         [](const HParams& h) { return Shape(h.n_head); }),
    weights::kAttnOutput,
    bias("blk.{}.attn_output.bias", &LayerWeights::attn_output_bias,
         [](const HParams& h) { return Shape(h.n_embd); }),
    weights::kPostAttentionNorm,
    {"blk.{}.ffn_gate_inp.weight",
     &LayerWeights::ffn_gate_inp,
     [](const HParams& h) { return Shape(h.n_embd, h.n_expert); },
     "ffn_gate_inp",
     {"mlp.router"}},
    bias("blk.{}.ffn_gate_inp.bias", &LayerWeights::ffn_gate_inp_bias,
         [](const HParams& h) { return Shape(h.n_expert); }),
    {"blk.{}.ffn_gate_exps.weight", &LayerWeights::ffn_gate_exps,
     [](const HParams& h) { return Shape(h.n_embd, h.n_ff_exp, h.n_expert); }, "ffn_gate_exps", kGateUp},
    {"blk.{}.ffn_up_exps.weight", &LayerWeights::ffn_up_exps,
     [](const HParams& h) { return Shape(h.n_embd, h.n_ff_exp, h.n_expert); }, "ffn_up_exps", kGateUp},
    {"blk.{}.ffn_down_exps.weight", &LayerWeights::ffn_down_exps,
     [](const HParams& h) { return Shape(h.n_ff_exp, h.n_embd, h.n_expert); }, "ffn_down_exps", kDown},
    bias("blk.{}.ffn_gate_exps.bias", &LayerWeights::ffn_gate_exps_bias,
         [](const HParams& h) { return Shape(h.n_ff_exp, h.n_expert); }),
    bias("blk.{}.ffn_up_exps.bias", &LayerWeights::ffn_up_exps_bias,
         [](const HParams& h) { return Shape(h.n_ff_exp, h.n_expert); }),
    bias("blk.{}.ffn_down_exps.bias", &LayerWeights::ffn_down_exps_bias,
         [](const HParams& h) { return Shape(h.n_embd, h.n_expert); }),
};

Tensor attention(Build& b, const LayerWeights& w, Tensor x) {
  const HParams& h = b.hparams();
  const int64_t n_tokens = x.ne(1);
  const bool slides = w.attn_norm.layer % 2 == 0;
  const Tensor n = b.norm(w.attn_norm, x);
  const Tensor q = b.lin(w.attn_q, n, w.attn_q_bias), k = b.lin(w.attn_k, n, w.attn_k_bias);
  const Tensor v = reshape(b.lin(w.attn_v, n, w.attn_v_bias), {h.d_head_v, h.n_head_kv, n_tokens});
  const Tensor q_turned = b.rope(reshape(q, {h.d_head, h.n_head, n_tokens}));
  const Tensor k_turned = b.rope(reshape(k, {h.d_head, h.n_head_kv, n_tokens}));
  const Tensor o =
      b.attend(q_turned, k_turned, v, h.score_scale(), {.sliding = slides, .sinks = &w.attn_sinks});
  return b.lin(w.attn_output, reshape(o, {h.d_head_v * h.n_head, n_tokens}), w.attn_output_bias);
}

Tensor layer(Build& b, const LayerWeights& w, Tensor x) {
  x = add(x, attention(b, w, x));
  return add(x, b.moe(w, b.norm(w.ffn_norm, x), b.hparams().routing, Activation::ClampedSwiglu));
}

void read(const GgufFile& file, HParams& h) {
  h.sliding_window = bounded(file, "gpt-oss.attention.sliding_window", 1, 1 << 30);
  // No published file has this key; one that has it may mean other layers than the even ones.
  if (file.has("gpt-oss.attention.sliding_window_pattern")) {
    fail(Code::Unsupported,
         "{}: gpt-oss.attention.sliding_window_pattern is not read; here the even layers slide and the odd "
         "ones do not",
         file.path());
  }
  // Softmax over the chosen logits alone.
  h.routing = {.gating = Gating::Softmax, .renormalize = true};
}

// The numbers of the 20B, but a window that short texts are longer than.
void synth(const SynthSettings& settings, HParams& h, GgufWriter& out) {
  h.rms_eps = 1e-5f;
  h.rope.base = 150000.f;
  h.sliding_window = settings.sliding_window;
  out.add_u32("gpt-oss.attention.sliding_window", static_cast<uint32_t>(settings.sliding_window));
  out.add_str("gpt-oss.rope.scaling.type", "yarn");
  out.add_f32("gpt-oss.rope.scaling.factor", 32.f);
  out.add_u32("gpt-oss.rope.scaling.original_context_length", 4096);
}

}  // namespace

extern const ArchDef gpt_oss_arch{.name = "gpt-oss",
                                  .read = read,
                                  .layer_weights = kWeights,
                                  .layer = layer,
                                  .experts = Experts::All,
                                  .synth = synth};

}  // namespace tandem
