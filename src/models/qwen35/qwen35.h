// What the hybrid architectures qwen35, qwen35moe and qwen3next share: layers of Gated DeltaNet linear
// attention, and every so many layers one of gated full attention.  Source: architectures.md 2.
#pragma once
#include "models/build.h"
#include "models/weights.h"

namespace tandem {

// The mixing half of layer `il`, residual included: x {n_embd, T} -> {n_embd, T}.  Source:
// architectures.md 2.3, 2.5.
Tensor qwen35_mixer(Build& b, const LayerWeights& w, Tensor x, DeltaHeads heads);

// Reads the keys of the mixers.  Throws BadData, Unsupported for positions that are not those of text.
void read_qwen35_mixers(const GgufFile& file, const std::string& prefix, HParams& h);

// The inverse, for a synthetic model: as many key heads as query heads, twice as many value heads, a quarter
// of the channels of a head turned.  Throws Usage for settings that do not fit.
void synth_qwen35_mixers(const SynthSettings& settings, const std::string& prefix, HParams& h,
                         GgufWriter& out);

namespace weights {

inline bool in_linear_layer(const HParams& h, int64_t il) { return h.is_recurrent(il); }
inline bool in_full_layer(const HParams& h, int64_t il) { return !h.is_recurrent(il); }

// Why adapters of linear attention are not exchanged with PEFT.  Source: architectures.md 2.4.
inline constexpr HfPlace kOtherHeads{
    .refusal =
        "Hugging Face models keep the value heads of linear attention in another order or in another matrix; "
        "this exchange is not built, use the GGUF adapter"};

// `spec` in the layers of full attention only.
constexpr LayerWeightSpec full(LayerWeightSpec spec) {
  spec.in_layer = in_full_layer;
  return spec;
}

// Query and gate of each head in turn.  Source: architectures.md 2.3.
inline constexpr LayerWeightSpec kGatedAttnQ{
    "blk.{}.attn_q.weight",
    &LayerWeights::attn_q,
    [](const HParams& h) { return Shape(h.n_embd, 2 * h.n_head * h.d_head); },
    "attn_q",
    {"self_attn.q_proj"},
    in_full_layer};
inline constexpr LayerWeightSpec kAttnQkv{"blk.{}.attn_qkv.weight",
                                          &LayerWeights::attn_qkv,
                                          [](const HParams& h) { return Shape(h.n_embd, h.conv_channels()); },
                                          "attn_qkv",
                                          kOtherHeads,
                                          in_linear_layer};
inline constexpr LayerWeightSpec kAttnGate{"blk.{}.attn_gate.weight",
                                           &LayerWeights::attn_gate,
                                           [](const HParams& h) { return Shape(h.n_embd, h.ssm_inner_size); },
                                           "attn_gate",
                                           kOtherHeads,
                                           in_linear_layer};
inline constexpr LayerWeightSpec kSsmConv1d{
    .name = "blk.{}.ssm_conv1d.weight",
    .slot = &LayerWeights::ssm_conv1d,
    .shape = [](const HParams& h) { return Shape(h.ssm_conv_kernel, h.conv_channels()); },
    .in_layer = in_linear_layer,
    .f32 = true};
inline constexpr LayerWeightSpec kSsmDt{.name = "blk.{}.ssm_dt.bias",
                                        .slot = &LayerWeights::ssm_dt,
                                        .shape = [](const HParams& h) { return Shape(h.ssm_time_step_rank); },
                                        .in_layer = in_linear_layer,
                                        .filling = Filling::Bias};
// Minus the rate of decay already.  Source: architectures.md 2.2.
inline constexpr LayerWeightSpec kSsmA{.name = "blk.{}.ssm_a",
                                       .slot = &LayerWeights::ssm_a,
                                       .shape = [](const HParams& h) { return Shape(h.ssm_time_step_rank); },
                                       .in_layer = in_linear_layer,
                                       .filling = Filling::Rate};
inline constexpr LayerWeightSpec kSsmNorm{
    .name = "blk.{}.ssm_norm.weight",
    .slot = &LayerWeights::ssm_norm,
    .shape = [](const HParams& h) { return Shape(h.ssm_inner_size / h.ssm_time_step_rank); },
    .in_layer = in_linear_layer};
inline constexpr LayerWeightSpec kSsmOut{"blk.{}.ssm_out.weight",
                                         &LayerWeights::ssm_out,
                                         [](const HParams& h) { return Shape(h.ssm_inner_size, h.n_embd); },
                                         "ssm_out",
                                         kOtherHeads,
                                         in_linear_layer};
inline constexpr LayerWeightSpec kSsmBeta{
    .name = "blk.{}.ssm_beta.weight",
    .slot = &LayerWeights::ssm_beta,
    .shape = [](const HParams& h) { return Shape(h.n_embd, h.ssm_time_step_rank); },
    .in_layer = in_linear_layer};
inline constexpr LayerWeightSpec kSsmAlpha{
    .name = "blk.{}.ssm_alpha.weight",
    .slot = &LayerWeights::ssm_alpha,
    .shape = [](const HParams& h) { return Shape(h.n_embd, h.ssm_time_step_rank); },
    .in_layer = in_linear_layer};
// Both at once, of each key head in turn: beta of its value heads, then alpha of them.
inline constexpr LayerWeightSpec kSsmBa{
    .name = "blk.{}.ssm_ba.weight",
    .slot = &LayerWeights::ssm_ba,
    .shape = [](const HParams& h) { return Shape(h.n_embd, 2 * h.ssm_time_step_rank); },
    .in_layer = in_linear_layer};

}  // namespace weights
}  // namespace tandem
