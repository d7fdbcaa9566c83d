// What qwen3 and qwen3moe share.
#pragma once
#include "models/build.h"

namespace tandem {

// The attention half of a layer, residual included: x {n_embd, T} -> {n_embd, T}.  Source:
// architectures.md 3.
Tensor qwen3_attention(Build& b, const LayerWeights& w, Tensor x);

// The weights of that half.
#define TANDEM_QWEN3_ATTENTION_WEIGHTS                                                                     \
  {"blk.{}.attn_norm.weight", &LayerWeights::attn_norm, [](const HParams& h) { return Shape(h.n_embd); }}, \
      {"blk.{}.attn_q.weight",                                                                             \
       &LayerWeights::attn_q,                                                                              \
       [](const HParams& h) { return Shape(h.n_embd, h.n_head * h.d_head); },                              \
       "attn_q",                                                                                           \
       {"self_attn.q_proj"}},                                                                              \
      {"blk.{}.attn_k.weight",                                                                             \
       &LayerWeights::attn_k,                                                                              \
       [](const HParams& h) { return Shape(h.n_embd, h.n_head_kv * h.d_head); },                           \
       "attn_k",                                                                                           \
       {"self_attn.k_proj"}},                                                                              \
      {"blk.{}.attn_v.weight",                                                                             \
       &LayerWeights::attn_v,                                                                              \
       [](const HParams& h) { return Shape(h.n_embd, h.n_head_kv * h.d_head_v); },                         \
       "attn_v",                                                                                           \
       {"self_attn.v_proj"}},                                                                              \
      {"blk.{}.attn_q_norm.weight", &LayerWeights::attn_q_norm,                                            \
       [](const HParams& h) { return Shape(h.d_head); }},                                                  \
      {"blk.{}.attn_k_norm.weight", &LayerWeights::attn_k_norm,                                            \
       [](const HParams& h) { return Shape(h.d_head); }},                                                  \
      {"blk.{}.attn_output.weight",                                                                        \
       &LayerWeights::attn_output,                                                                         \
       [](const HParams& h) { return Shape(h.n_head * h.d_head_v, h.n_embd); },                            \
       "attn_output",                                                                                      \
       {"self_attn.o_proj"}},                                                                              \
  {                                                                                                        \
    "blk.{}.ffn_norm.weight", &LayerWeights::ffn_norm, [](const HParams& h) { return Shape(h.n_embd); }    \
  }

}  // namespace tandem
