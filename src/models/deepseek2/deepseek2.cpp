// deepseek2 (DeepSeek-V2-Lite, V2, V3): multi-head latent attention, where the keys and values of all heads
// are products of one short vector per token, and the rotated part of a key is shared by the heads; a few
// dense layers, then layers of routed experts beside plain shared ones.  Keys and values are expanded in
// every pass: in decoding too, where the absorbed form (queries taken to the latents, which are then keys and
// values at once) gives the same numbers from a smaller cache, and is not built.  Source:
// architectures.md 1.6, 1.7, 1.9, 7.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "io/gguf_writer.h"
#include "models/build.h"
#include "models/synth.h"
#include "models/weights.h"

namespace tandem {
namespace {

int64_t d_nope(const HParams& h) { return h.d_head - h.rope.n_rot; }  // of a key, the part that does not turn

bool plain_q(const HParams& h, int64_t) { return h.q_lora_rank == 0; }
bool compressed_q(const HParams& h, int64_t) { return h.q_lora_rank > 0; }
bool joint_kv_b(const HParams& h, int64_t) { return !h.kv_b_by_head; }
bool split_kv_b(const HParams& h, int64_t) { return h.kv_b_by_head; }
bool dense(const HParams& h, int64_t il) { return il < h.n_layer_dense_lead; }
bool routed(const HParams& h, int64_t il) { return !dense(h, il); }
bool shares(const HParams& h, int64_t il) { return routed(h, il) && h.n_ff_shexp > 0; }
bool biased(const HParams& h, int64_t il) { return routed(h, il) && h.routing.gating == Gating::Sigmoid; }

constexpr LayerWeightSpec in(bool (*in_layer)(const HParams& h, int64_t il), LayerWeightSpec spec) {
  spec.in_layer = in_layer;
  return spec;
}
constexpr LayerWeightSpec at(const char* module, LayerWeightSpec spec) {
  spec.hf.module = module;
  return spec;
}

// k_b and v_b are slices of the Hugging Face model's kv_b_proj, k_b transposed: they take no adapter.
constexpr LayerWeightSpec kWeights[] = {
    weights::kAttnNorm,
    in(plain_q, weights::kAttnQ),
    {.name = "blk.{}.attn_q_a.weight",
     .slot = &LayerWeights::attn_q_a,
     .shape = [](const HParams& h) { return Shape(h.n_embd, h.q_lora_rank); },
     .role = "attn_q_a",
     .hf = {"self_attn.q_a_proj"},
     .in_layer = compressed_q},
    {.name = "blk.{}.attn_q_a_norm.weight",
     .slot = &LayerWeights::attn_q_a_norm,
     .shape = [](const HParams& h) { return Shape(h.q_lora_rank); },
     .in_layer = compressed_q},
    {.name = "blk.{}.attn_q_b.weight",
     .slot = &LayerWeights::attn_q_b,
     .shape = [](const HParams& h) { return Shape(h.q_lora_rank, h.n_head * h.d_head); },
     .role = "attn_q_b",
     .hf = {"self_attn.q_b_proj"},
     .in_layer = compressed_q},
    {.name = "blk.{}.attn_kv_a_mqa.weight",
     .slot = &LayerWeights::attn_kv_a_mqa,
     .shape = [](const HParams& h) { return Shape(h.n_embd, h.kv_lora_rank + h.rope.n_rot); },
     .role = "attn_kv_a_mqa",
     .hf = {"self_attn.kv_a_proj_with_mqa"}},
    {.name = "blk.{}.attn_kv_a_norm.weight",
     .slot = &LayerWeights::attn_kv_a_norm,
     .shape = [](const HParams& h) { return Shape(h.kv_lora_rank); }},
    {.name = "blk.{}.attn_kv_b.weight",
     .slot = &LayerWeights::attn_kv_b,
     .shape = [](const HParams& h) { return Shape(h.kv_lora_rank, h.n_head * (d_nope(h) + h.d_head_v)); },
     .role = "attn_kv_b",
     .hf = {"self_attn.kv_b_proj"},
     .in_layer = joint_kv_b},
    {.name = "blk.{}.attn_k_b.weight",
     .slot = &LayerWeights::attn_k_b,
     .shape = [](const HParams& h) { return Shape(d_nope(h), h.kv_lora_rank, h.n_head); },
     .in_layer = split_kv_b},
    {.name = "blk.{}.attn_v_b.weight",
     .slot = &LayerWeights::attn_v_b,
     .shape = [](const HParams& h) { return Shape(h.kv_lora_rank, h.d_head_v, h.n_head); },
     .in_layer = split_kv_b},
    weights::kAttnOutput,
    weights::kFfnNorm,
    in(dense, weights::kFfnGate),
    in(dense, weights::kFfnUp),
    in(dense, weights::kFfnDown),
    in(routed, weights::kFfnGateInp),
    {.name = "blk.{}.exp_probs_b.bias",
     .slot = &LayerWeights::exp_probs_b,
     .shape = [](const HParams& h) { return Shape(h.n_expert); },
     .in_layer = biased,
     .optional = true,
     .f32 = true,
     .filling = Filling::Bias},
    in(routed, weights::kFfnGateExps),
    in(routed, weights::kFfnUpExps),
    in(routed, weights::kFfnDownExps),
    in(shares, at("mlp.shared_experts.gate_proj", weights::kFfnGateShexp)),
    in(shares, at("mlp.shared_experts.up_proj", weights::kFfnUpShexp)),
    in(shares, at("mlp.shared_experts.down_proj", weights::kFfnDownShexp)),
};

constexpr size_t kMaxHeads = 4096;  // of any model: read_hparams
constexpr std::array<int32_t, kMaxHeads> kHeads = [] {
  std::array<int32_t, kMaxHeads> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  return all;
}();

// 0, 1, ... for every token, {H, T}: each head's matrix is an expert to which every token goes.
Tensor head_ids(Build& b, int64_t n_tokens) {
  const int64_t n_head = b.hparams().n_head;
  const Tensor heads = b.graph().leaf(DType::I32, {n_head}, Home::Mapped, kHeads.data(), "heads");
  return view_strided(heads, {n_head, n_tokens}, {row_bytes(DType::I32, 1), 0, 0, 0}, 0);
}

struct KeysAndValues {
  Tensor k;  // {d_nope, H, T}
  Tensor v;  // {d_head_v, H, T}
};

// The heads' keys, without the part that turns, and values of latents c {kv_lora_rank, T}.
KeysAndValues expand(Build& b, const LayerWeights& w, Tensor c) {
  const HParams& h = b.hparams();
  const int64_t n_tokens = c.ne(1);
  if (h.kv_b_by_head) {
    const Tensor shared = reshape(c, {h.kv_lora_rank, 1, n_tokens}), heads = head_ids(b, n_tokens);
    // A row of k_b holds what one number of c adds to a key, so this is the transposed product, which int8
    // does not have.
    const Precision set = b.graph().precision, precision = set == Precision::Int8 ? Precision::F32 : set;
    const Tensor k = mul_mat_id_back(b.weight(w.attn_k_b), shared, heads, precision);
    const Tensor v = mul_mat_id(b.weight(w.attn_v_b), shared, heads);
    return {k, v};
  }
  const Tensor kv = b.lin(w.attn_kv_b, c);  // of each head, the key's rows and then the value's
  const int64_t head = row_bytes(DType::F32, d_nope(h) + h.d_head_v), token = head * h.n_head;
  const std::array<int64_t, kMaxDims> nb{row_bytes(DType::F32, 1), head, token, token * n_tokens};
  const Tensor k = view_strided(kv, {d_nope(h), h.n_head, n_tokens}, nb, 0);
  const Tensor v = view_strided(kv, {h.d_head_v, h.n_head, n_tokens}, nb, row_bytes(DType::F32, d_nope(h)));
  return {k, v};
}

// Queries {d_head, H, T} before the rotation, of n {n_embd, T}.
Tensor queries(Build& b, const LayerWeights& w, Tensor n) {
  const HParams& h = b.hparams();
  const Tensor q = h.q_lora_rank > 0 ? b.lin(w.attn_q_b, b.norm(w.attn_q_a_norm, b.lin(w.attn_q_a, n)))
                                     : b.lin(w.attn_q, n);
  return reshape(q, {h.d_head, h.n_head, n.ne(1)});
}

Tensor attention(Build& b, const LayerWeights& w, Tensor x) {
  const HParams& h = b.hparams();
  const int64_t n_tokens = x.ne(1), n_rot = h.rope.n_rot;
  const Tensor n = b.norm(w.attn_norm, x);
  const Tensor q = b.rope(queries(b, w, n));
  const Tensor latent = b.lin(w.attn_kv_a_mqa, n);  // {kv_lora_rank + n_rot, T}
  const int64_t one = row_bytes(DType::F32, 1), token = row_bytes(DType::F32, latent.ne(0));
  const Tensor c = b.norm(
      w.attn_kv_a_norm,
      view_strided(latent, {h.kv_lora_rank, n_tokens}, {one, token, token * n_tokens, token * n_tokens}, 0));
  const Tensor turning = view_strided(latent, {n_rot, 1, n_tokens}, {one, token, token, token * n_tokens},
                                      row_bytes(DType::F32, h.kv_lora_rank));
  const Tensor turned = repeat(b.rope(turning), {n_rot, h.n_head, n_tokens});
  const KeysAndValues kv = expand(b, w, c);
  const Tensor o = b.attend(q, concat(kv.k, turned), kv.v, h.score_scale());
  return b.lin(w.attn_output, reshape(o, {h.d_head_v * h.n_head, n_tokens}));
}

Tensor layer(Build& b, const LayerWeights& w, Tensor x) {
  x = add(x, attention(b, w, x));
  const Tensor n = b.norm(w.ffn_norm, x);
  if (!w.ffn_gate_inp.present()) return add(x, b.ffn(w.ffn_gate, w.ffn_up, w.ffn_down, n));
  const Tensor of_experts = b.moe(w, n, b.hparams().routing);
  if (!w.ffn_gate_shexp.present()) return add(x, of_experts);
  return add(x, add(of_experts, b.shared_expert(w, n)));
}

// Newer files call the latent and the rotated part a key, of which there is one per token; the heads' sizes
// have keys of their own.  In older files the usual keys are the heads' sizes.
void read_heads(const GgufFile& file, HParams& h) {
  const std::string a = "deepseek2.";
  h.kv_lora_rank = bounded(file, a + "attention.kv_lora_rank", 1, 1 << 16);
  h.q_lora_rank = bounded_or(file, a + "attention.q_lora_rank", 0, 1 << 16, 0);
  if (file.has(a + "attention.key_length_mla")) {
    h.d_head = bounded(file, a + "attention.key_length_mla", 1, 4096);
    h.d_head_v = bounded(file, a + "attention.value_length_mla", 1, 4096);
  }
  h.n_head_kv = h.n_head;
  const int64_t n_rot = bounded(file, a + "rope.dimension_count", 2, 4096);
  if (n_rot >= h.d_head) {
    fail(Code::BadData,
         "{}: {}rope.dimension_count is {}, a head's key has {} channels of which some do not turn",
         file.path(), a, n_rot, h.d_head);
  }
  // Which of the two forms the file has; a layer that lacks it is told with the other misfits.
  h.kv_b_by_head = file.find("blk.0.attn_kv_b.weight") == nullptr;
}

void read_rotation(const GgufFile& file, HParams& h) {
  const std::string a = "deepseek2.";
  h.rope.kind = RopeKind::Normal;
  h.rope.last = true;
  if (h.rope.yarn_factor == 0.f) return;
  const std::string key = a + "rope.scaling.yarn_log_multiplier";
  if (!file.has(key)) {
    fail(Code::Unsupported,
         "{}: {} is missing; what a deepseek2 model with YaRN scales its scores by follows from it",
         file.path(), key);
  }
  // 1 + 0.1 mu ln f on queries and keys: as mu is the mscale of the rotation in every published model, the
  // rotation itself has magnitude 1, and the square goes to the scores.
  const float m = 1.f + positive_f32(file, key, 0.f) * std::log(std::max(1.f, h.rope.yarn_factor));
  h.attention_scale = m * m / std::sqrt(static_cast<float>(h.d_head));
  h.rope.magnitude = positive_f32(file, a + "rope.scaling.attn_factor", 1.f);
}

void read_groups(const GgufFile& file, HParams& h) {
  const std::string a = "deepseek2.";
  const int64_t n_group = bounded_or(file, a + "expert_group_count", 0, h.n_expert, 0);
  if (n_group <= 1) return;
  const int64_t n_used = bounded(file, a + "expert_group_used_count", 1, n_group);
  if (n_used == n_group) return;
  const int64_t size = h.n_expert / n_group, least = h.routing.gating == Gating::Sigmoid ? 2 : 1;
  if (h.n_expert % n_group || size < least || h.n_expert_used > size * n_used) {
    fail(
        Code::BadData,
        "{}: {} experts in {} groups of which {} are used: groups must be equal and have {} at least, and {} "
        "experts are chosen",
        file.path(), h.n_expert, n_group, n_used, least, h.n_expert_used);
  }
  h.routing.n_group = static_cast<int>(n_group);
  h.routing.n_group_used = static_cast<int>(n_used);
}

void read_routing(const GgufFile& file, HParams& h) {
  const std::string a = "deepseek2.";
  const int64_t gating = bounded_or(file, a + "expert_gating_func", 0, 4, 0);
  if (gating > 2) {
    fail(Code::Unsupported, "{}: {}expert_gating_func is {}; 1 (softmax) and 2 (sigmoid) are built",
         file.path(), a, gating);
  }
  h.routing.gating = gating == 2 ? Gating::Sigmoid : Gating::Softmax;  // absent in files of V2
  h.routing.renormalize = file.get_bool_or(a + "expert_weights_norm", false);
  const float scale = finite_f32(file, a + "expert_weights_scale", 0.f);
  if (scale < 0.f) {
    fail(Code::BadData, "{}: {}expert_weights_scale is {}, it must not be negative", file.path(), a, scale);
  }
  h.routing.scale = scale == 0.f ? 1.f : scale;
  read_groups(file, h);
}

void read(const GgufFile& file, HParams& h) {
  const std::string a = "deepseek2.";
  read_heads(file, h);
  read_rotation(file, h);
  h.n_layer_dense_lead = bounded(file, a + "leading_dense_block_count", 0, h.n_layer);
  if (h.n_layer_dense_lead > 0) h.n_ff = bounded(file, a + "feed_forward_length", 1, 1 << 20);
  h.n_ff_exp = bounded(file, a + "expert_feed_forward_length", 1, 1 << 20);
  h.n_ff_shexp = h.n_ff_exp * bounded_or(file, a + "expert_shared_count", 0, 64, 0);
  read_routing(file, h);
}

// A third of each head turns, as in the published models; the latent is a quarter as wide as the model.
void synth_heads(const SynthSettings& s, HParams& h, GgufWriter& out) {
  const auto u32 = [&](const char* key, int64_t value) {
    out.add_u32(std::string("deepseek2.") + key, static_cast<uint32_t>(value));
  };
  h.rope.n_rot = static_cast<int32_t>(s.d_head / 6 * 2);
  if (h.rope.n_rot < 2) fail(Code::Usage, "--head-dim is {}, deepseek2 needs 6 at least", s.d_head);
  if (s.d_head_v == 0) h.d_head_v = d_nope(h);
  h.n_head_kv = h.n_head;
  h.kv_lora_rank = std::max<int64_t>(1, h.n_embd / 4);
  h.q_lora_rank = s.q_lora_rank;
  h.kv_b_by_head = !s.joint_kv_b;
  u32("attention.kv_lora_rank", h.kv_lora_rank);
  if (h.q_lora_rank > 0) u32("attention.q_lora_rank", h.q_lora_rank);
  if (s.joint_kv_b) return;  // the common keys are the heads' sizes
  u32("attention.head_count_kv", 1);
  u32("attention.key_length", h.kv_lora_rank + h.rope.n_rot);
  u32("attention.value_length", h.kv_lora_rank);
  u32("attention.key_length_mla", h.d_head);
  u32("attention.value_length_mla", h.d_head_v);
}

void synth(const SynthSettings& s, HParams& h, GgufWriter& out) {
  synth_heads(s, h, out);
  out.add_str("deepseek2.rope.scaling.type", "yarn");
  out.add_f32("deepseek2.rope.scaling.factor", 40.f);
  out.add_u32("deepseek2.rope.scaling.original_context_length", 4096);
  out.add_f32("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f);
  h.n_layer_dense_lead = h.n_layer > 1 ? 1 : 0;
  if (h.n_layer_dense_lead > 0) h.n_ff = s.n_ff;
  h.n_ff_shexp = 2 * h.n_ff_exp;
  out.add_u32("deepseek2.leading_dense_block_count", static_cast<uint32_t>(h.n_layer_dense_lead));
  out.add_u32("deepseek2.expert_shared_count", 2);
  if (!s.sigmoid_router) return;
  h.routing.gating = Gating::Sigmoid;
  out.add_u32("deepseek2.expert_gating_func", 2);
  out.add_bool("deepseek2.expert_weights_norm", true);
  out.add_f32("deepseek2.expert_weights_scale", 2.5f);
  if (h.n_expert % 4 || h.n_expert < 8 || h.n_expert_used > h.n_expert / 2) return;
  out.add_u32("deepseek2.expert_group_count", 4);
  out.add_u32("deepseek2.expert_group_used_count", 2);
}

}  // namespace

extern const ArchDef deepseek2_arch{.name = "deepseek2",
                                    .read = read,
                                    .layer_weights = kWeights,
                                    .layer = layer,
                                    .experts = Experts::All,
                                    .synth = synth};

}  // namespace tandem
