#include <algorithm>
#include <string>
#include <vector>

#include "io/gguf_writer.h"
#include "models/qwen35/qwen35.h"
#include "models/synth.h"

namespace tandem {
namespace {

// The part of each token's channels that begins at `first`, as heads: x {C, T} -> {d, n_heads, T}.
Tensor heads_of(Tensor x, int64_t first, int64_t d, int64_t n_heads) {
  const int64_t f = sizeof(float), row = x.ne(0) * f;
  return view_strided(x, {d, n_heads, x.ne(1)}, {f, d * f, row, row * x.ne(1)}, first * f);
}

// Gated full attention.  Source: architectures.md 2.3.
Tensor full_attention(Build& b, const LayerWeights& w, Tensor n) {
  const HParams& h = b.hparams();
  const int64_t n_tokens = n.ne(1), f = sizeof(float);
  const Tensor both = b.lin(w.attn_q, n);  // of each head: query, then gate
  const int64_t head = 2 * h.d_head * f, token = h.n_head * head;
  const Shape heads(h.d_head, h.n_head, n_tokens);
  const Tensor q = view_strided(both, heads, {f, head, token, token * n_tokens}, 0);
  const Tensor gate = view_strided(both, heads, {f, head, token, token * n_tokens}, h.d_head * f);
  const Tensor k = reshape(b.lin(w.attn_k, n), {h.d_head, h.n_head_kv, n_tokens});
  const Tensor v = reshape(b.lin(w.attn_v, n), {h.d_head_v, h.n_head_kv, n_tokens});
  const Tensor q_turned = b.rope(b.norm(w.attn_q_norm, q));
  const Tensor k_turned = b.rope(b.norm(w.attn_k_norm, k));
  const Tensor o = b.attend(q_turned, k_turned, v, h.score_scale());
  return b.lin(w.attn_output, reshape(mul(o, sigmoid(gate)), {h.d_head_v * h.n_head, n_tokens}));
}

struct BetaAlpha {
  Tensor beta, alpha;  // {H_v, T}, before their functions
};

BetaAlpha beta_alpha(Build& b, const LayerWeights& w, Tensor n) {
  if (!w.ssm_ba.present()) {
    const Tensor beta = b.lin(w.ssm_beta, n);
    return {beta, b.lin(w.ssm_alpha, n)};
  }
  const HParams& h = b.hparams();
  const int64_t n_tokens = n.ne(1), f = sizeof(float), of_key_head = h.ssm_time_step_rank / h.ssm_group_count;
  const Tensor both = b.lin(w.ssm_ba, n);
  const int64_t group = 2 * of_key_head * f, token = h.ssm_group_count * group;
  const auto part = [&](int64_t offset_bytes) {
    const Tensor x = view_strided(both, {of_key_head, h.ssm_group_count, n_tokens},
                                  {f, group, token, token * n_tokens}, offset_bytes);
    return reshape(cont(x), {h.ssm_time_step_rank, n_tokens});
  };
  const Tensor beta = part(0);
  return {beta, part(of_key_head * f)};
}

// Gated DeltaNet.  Source: architectures.md 2.5.
Tensor linear_attention(Build& b, const LayerWeights& w, Tensor n, DeltaHeads heads) {
  const HParams& h = b.hparams();
  const int64_t n_tokens = n.ne(1), d_k = h.ssm_state_size, n_k = h.ssm_group_count,
                n_v = h.ssm_time_step_rank, d_v = h.ssm_inner_size / n_v;
  const Tensor mixed = b.lin(w.attn_qkv, n);
  const Tensor z = reshape(b.lin(w.attn_gate, n), {d_v, n_v, n_tokens});
  const BetaAlpha ba = beta_alpha(b, w, n);
  const Tensor beta = sigmoid(ba.beta);
  const Tensor g = mul(softplus(add(ba.alpha, b.weight(w.ssm_dt))), b.weight(w.ssm_a));

  const Tensor c = silu(b.conv(w.ssm_conv1d, mixed));
  const Tensor q = l2_norm(heads_of(c, 0, d_k, n_k), h.rms_eps);
  const Tensor k = l2_norm(heads_of(c, n_k * d_k, d_k, n_k), h.rms_eps);
  const Tensor v = cont(heads_of(c, 2 * n_k * d_k, d_v, n_v));
  const Tensor o = b.delta(q, k, v, g, beta, heads);
  const Tensor gated = swiglu(z, b.norm(w.ssm_norm, o));
  return b.lin(w.ssm_out, reshape(gated, {h.ssm_inner_size, n_tokens}));
}

// Whether every pair of channels turns with a position that text has: (p, p, p, 0).  Source: architectures.md
// 1.3 (IMROPE).
bool turns_as_text(const std::vector<int32_t>& sections, int32_t n_rot) {
  const int32_t period = sections[0] + sections[1] + sections[2] + sections[3];
  for (int32_t i = 0; i < n_rot / 2; ++i) {
    const int32_t s = i % period;
    if (s % 3 == 1 && s < 3 * sections[1]) continue;
    if (s % 3 == 2 && s < 3 * sections[2]) continue;
    if (s % 3 == 0 && s < 3 * sections[0]) continue;
    return false;
  }
  return true;
}

}  // namespace

Tensor qwen35_mixer(Build& b, const LayerWeights& w, Tensor x, DeltaHeads heads) {
  const Tensor n = b.norm(w.attn_norm, x);
  return add(x, w.attn_qkv.present() ? linear_attention(b, w, n, heads) : full_attention(b, w, n));
}

void read_qwen35_mixers(const GgufFile& file, const std::string& a, HParams& h) {
  if (h.d_head != h.d_head_v) {
    fail(Code::BadData,
         "{}: {}attention.key_length is {}, value_length {}; the gate of a head needs them equal",
         file.path(), a, h.d_head, h.d_head_v);
  }
  h.full_attention_interval = bounded_or(file, a + "full_attention_interval", 1, h.n_layer + 1, 4);
  h.ssm_conv_kernel = bounded(file, a + "ssm.conv_kernel", 2, 16);
  h.ssm_state_size = bounded(file, a + "ssm.state_size", 1, 4096);
  h.ssm_group_count = bounded(file, a + "ssm.group_count", 1, 4096);
  h.ssm_time_step_rank = bounded(file, a + "ssm.time_step_rank", 1, 4096);
  h.ssm_inner_size = bounded(file, a + "ssm.inner_size", 1, 1 << 20);
  if (h.ssm_time_step_rank % h.ssm_group_count) {
    fail(Code::BadData,
         "{}: {} value heads cannot share {} key heads evenly ({}ssm.time_step_rank, group_count)",
         file.path(), h.ssm_time_step_rank, h.ssm_group_count, a);
  }
  if (h.ssm_inner_size % h.ssm_time_step_rank) {
    fail(Code::BadData, "{}: {}ssm.inner_size is {}, no multiple of the {} value heads", file.path(), a,
         h.ssm_inner_size, h.ssm_time_step_rank);
  }
  if (file.has(a + "attention.recurrent_layers")) {
    fail(Code::Unsupported,
         "{}: {}attention.recurrent_layers lists the kind of each layer; only the rule of "
         "{}full_attention_interval is built",
         file.path(), a, a);
  }
  if (!file.has(a + "rope.dimension_sections")) return;
  const std::vector<int32_t> sections = file.get_i32s(a + "rope.dimension_sections");
  const bool sane = sections.size() == 4 && std::all_of(sections.begin(), sections.end(),
                                                        [](int32_t s) { return s >= 0 && s <= 4096; });
  if (!sane || sections[0] + sections[1] + sections[2] + sections[3] == 0) {
    fail(Code::BadData, "{}: {}rope.dimension_sections must be four numbers, not all 0", file.path(), a);
  }
  // With those of text, three positions are equal and the fourth is 0: plain pairs, if none takes the fourth.
  if (!turns_as_text(sections, h.rope.n_rot)) {
    fail(Code::Unsupported,
         "{}: {}rope.dimension_sections [{}, {}, {}, {}] turn some channels with a position that text does "
         "not have",
         file.path(), a, sections[0], sections[1], sections[2], sections[3]);
  }
}

void synth_qwen35_mixers(const SynthSettings& s, const std::string& a, HParams& h, GgufWriter& out) {
  if (s.d_head < 8) fail(Code::Usage, "--head-dim is {}, at least 8 is needed", s.d_head);
  h.d_head_v = h.d_head;
  h.rope.n_rot = static_cast<int32_t>(s.d_head / 8 * 2);
  h.full_attention_interval = s.n_layer < 4 ? 2 : 4;
  h.ssm_conv_kernel = 4;
  h.ssm_state_size = s.d_head / 2;
  h.ssm_group_count = s.n_head;
  h.ssm_time_step_rank = s.n_value_heads > 0 ? s.n_value_heads : 2 * s.n_head;
  if (h.ssm_time_step_rank % h.ssm_group_count) {
    fail(Code::Usage, "{} value heads cannot share {} key heads evenly", h.ssm_time_step_rank,
         h.ssm_group_count);
  }
  h.ssm_inner_size = h.ssm_time_step_rank * h.ssm_state_size;
  const auto u32 = [&](const char* key, int64_t value) {
    out.add_u32(a + key, static_cast<uint32_t>(value));
  };
  u32("full_attention_interval", h.full_attention_interval);
  u32("ssm.conv_kernel", h.ssm_conv_kernel);
  u32("ssm.state_size", h.ssm_state_size);
  u32("ssm.group_count", h.ssm_group_count);
  u32("ssm.time_step_rank", h.ssm_time_step_rank);
  u32("ssm.inner_size", h.ssm_inner_size);
  const int32_t pairs = h.rope.n_rot / 2;
  const int32_t sections[] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
  out.add_i32s(a + "rope.dimension_sections", sections);
}

}  // namespace tandem
