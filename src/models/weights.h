// Weights that several architectures have under one name, with one shape, role and place; an architecture's
// list is made of these and of its own.  Source: architectures.md 2.2, 3, 5, 7.
#pragma once
#include "models/model.h"

namespace tandem::weights {

// --- norms and attention
inline constexpr LayerWeightSpec kAttnNorm{"blk.{}.attn_norm.weight", &LayerWeights::attn_norm,
                                           [](const HParams& h) { return Shape(h.n_embd); }};
inline constexpr LayerWeightSpec kFfnNorm{"blk.{}.ffn_norm.weight", &LayerWeights::ffn_norm,
                                          [](const HParams& h) { return Shape(h.n_embd); }};
// The norm before the FFN, under the name it has in qwen35, qwen3next and gpt-oss.  Source:
// architectures.md 1.9.
inline constexpr LayerWeightSpec kPostAttentionNorm{"blk.{}.post_attention_norm.weight",
                                                    &LayerWeights::ffn_norm,
                                                    [](const HParams& h) { return Shape(h.n_embd); }};
inline constexpr LayerWeightSpec kAttnQ{"blk.{}.attn_q.weight",
                                        &LayerWeights::attn_q,
                                        [](const HParams& h) { return Shape(h.n_embd, h.n_head * h.d_head); },
                                        "attn_q",
                                        {"self_attn.q_proj"}};
inline constexpr LayerWeightSpec kAttnK{
    "blk.{}.attn_k.weight",
    &LayerWeights::attn_k,
    [](const HParams& h) { return Shape(h.n_embd, h.n_head_kv * h.d_head); },
    "attn_k",
    {"self_attn.k_proj"}};
inline constexpr LayerWeightSpec kAttnV{
    "blk.{}.attn_v.weight",
    &LayerWeights::attn_v,
    [](const HParams& h) { return Shape(h.n_embd, h.n_head_kv * h.d_head_v); },
    "attn_v",
    {"self_attn.v_proj"}};
inline constexpr LayerWeightSpec kAttnOutput{
    "blk.{}.attn_output.weight",
    &LayerWeights::attn_output,
    [](const HParams& h) { return Shape(h.n_head * h.d_head_v, h.n_embd); },
    "attn_output",
    {"self_attn.o_proj"}};
// Of each head by itself.
inline constexpr LayerWeightSpec kAttnQNorm{"blk.{}.attn_q_norm.weight", &LayerWeights::attn_q_norm,
                                            [](const HParams& h) { return Shape(h.d_head); }};
inline constexpr LayerWeightSpec kAttnKNorm{"blk.{}.attn_k_norm.weight", &LayerWeights::attn_k_norm,
                                            [](const HParams& h) { return Shape(h.d_head); }};

// --- dense FFN
inline constexpr LayerWeightSpec kFfnGate{"blk.{}.ffn_gate.weight",
                                          &LayerWeights::ffn_gate,
                                          [](const HParams& h) { return Shape(h.n_embd, h.n_ff); },
                                          "ffn_gate",
                                          {"mlp.gate_proj"}};
inline constexpr LayerWeightSpec kFfnUp{"blk.{}.ffn_up.weight",
                                        &LayerWeights::ffn_up,
                                        [](const HParams& h) { return Shape(h.n_embd, h.n_ff); },
                                        "ffn_up",
                                        {"mlp.up_proj"}};
inline constexpr LayerWeightSpec kFfnDown{"blk.{}.ffn_down.weight",
                                          &LayerWeights::ffn_down,
                                          [](const HParams& h) { return Shape(h.n_ff, h.n_embd); },
                                          "ffn_down",
                                          {"mlp.down_proj"}};

// --- experts
inline constexpr LayerWeightSpec kFfnGateInp{"blk.{}.ffn_gate_inp.weight",
                                             &LayerWeights::ffn_gate_inp,
                                             [](const HParams& h) { return Shape(h.n_embd, h.n_expert); },
                                             "ffn_gate_inp",
                                             {"mlp.gate"}};
inline constexpr LayerWeightSpec kFfnGateExps{
    "blk.{}.ffn_gate_exps.weight",
    &LayerWeights::ffn_gate_exps,
    [](const HParams& h) { return Shape(h.n_embd, h.n_ff_exp, h.n_expert); },
    "ffn_gate_exps",
    {"mlp.experts.{}.gate_proj", "mlp.experts.gate_up_proj", 0, 2}};
inline constexpr LayerWeightSpec kFfnUpExps{
    "blk.{}.ffn_up_exps.weight",
    &LayerWeights::ffn_up_exps,
    [](const HParams& h) { return Shape(h.n_embd, h.n_ff_exp, h.n_expert); },
    "ffn_up_exps",
    {"mlp.experts.{}.up_proj", "mlp.experts.gate_up_proj", 1, 2}};
inline constexpr LayerWeightSpec kFfnDownExps{
    "blk.{}.ffn_down_exps.weight",
    &LayerWeights::ffn_down_exps,
    [](const HParams& h) { return Shape(h.n_ff_exp, h.n_embd, h.n_expert); },
    "ffn_down_exps",
    {"mlp.experts.{}.down_proj", "mlp.experts.down_proj", 0, 1}};

// --- shared expert, with the vector whose product with a token decides its weight
inline constexpr LayerWeightSpec kFfnGateInpShexp{.name = "blk.{}.ffn_gate_inp_shexp.weight",
                                                  .slot = &LayerWeights::ffn_gate_inp_shexp,
                                                  .shape = [](const HParams& h) { return Shape(h.n_embd); },
                                                  .filling = Filling::Bias};
inline constexpr LayerWeightSpec kFfnGateShexp{"blk.{}.ffn_gate_shexp.weight",
                                               &LayerWeights::ffn_gate_shexp,
                                               [](const HParams& h) { return Shape(h.n_embd, h.n_ff_shexp); },
                                               "ffn_gate_shexp",
                                               {"mlp.shared_expert.gate_proj"}};
inline constexpr LayerWeightSpec kFfnUpShexp{"blk.{}.ffn_up_shexp.weight",
                                             &LayerWeights::ffn_up_shexp,
                                             [](const HParams& h) { return Shape(h.n_embd, h.n_ff_shexp); },
                                             "ffn_up_shexp",
                                             {"mlp.shared_expert.up_proj"}};
inline constexpr LayerWeightSpec kFfnDownShexp{"blk.{}.ffn_down_shexp.weight",
                                               &LayerWeights::ffn_down_shexp,
                                               [](const HParams& h) { return Shape(h.n_ff_shexp, h.n_embd); },
                                               "ffn_down_shexp",
                                               {"mlp.shared_expert.down_proj"}};

}  // namespace tandem::weights
