// qwen3moe: the attention of qwen3; experts chosen by softmax over all logits, top-k, weights renormalized.
// Softmax, top-k, renormalize equals softmax over the chosen logits, and that is how it is computed: its
// gradient has the closed form of gradients.md 7.  Source: architectures.md 1.6, 1.7, 3.
#include "models/qwen3/qwen3.h"

namespace tandem {
namespace {

constexpr LayerWeightSpec kWeights[] = {
    TANDEM_QWEN3_ATTENTION_WEIGHTS,
    {"blk.{}.ffn_gate_inp.weight",
     &LayerWeights::ffn_gate_inp,
     [](const HParams& h) { return Shape(h.n_embd, h.n_expert); },
     "ffn_gate_inp",
     {"mlp.gate"}},
    {"blk.{}.ffn_gate_exps.weight",
     &LayerWeights::ffn_gate_exps,
     [](const HParams& h) { return Shape(h.n_embd, h.n_ff_exp, h.n_expert); },
     "ffn_gate_exps",
     {"mlp.experts.{}.gate_proj", "mlp.experts.gate_up_proj", 0, 2}},
    {"blk.{}.ffn_up_exps.weight",
     &LayerWeights::ffn_up_exps,
     [](const HParams& h) { return Shape(h.n_embd, h.n_ff_exp, h.n_expert); },
     "ffn_up_exps",
     {"mlp.experts.{}.up_proj", "mlp.experts.gate_up_proj", 1, 2}},
    {"blk.{}.ffn_down_exps.weight",
     &LayerWeights::ffn_down_exps,
     [](const HParams& h) { return Shape(h.n_ff_exp, h.n_embd, h.n_expert); },
     "ffn_down_exps",
     {"mlp.experts.{}.down_proj", "mlp.experts.down_proj", 0, 1}},
};

Tensor layer(Build& b, const LayerWeights& w, Tensor x) {
  x = qwen3_attention(b, w, x);
  return add(x, b.moe(w, b.norm(w.ffn_norm, x), b.hparams().routing));
}

}  // namespace

extern const ArchDef qwen3moe_arch{
    .name = "qwen3moe", .read = nullptr, .layer_weights = kWeights, .layer = layer, .experts = Experts::All};

}  // namespace tandem
