// The mixers of qwen35, built from ops as src/models/qwen35/mixers.cpp builds them, against the golden
// vectors.
#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace tandem {
namespace {

// w x, plus the case's adapter of `lora`, if it has one.
Tensor lin(GoldenGraph& g, const std::string& weight, const std::string& lora, Tensor x) {
  const Tensor y = mul_mat(g.fixed(weight), x);
  if (!g.has_input(lora + ".lora_a")) return y;
  const Tensor low = mul_mat(g.trained(lora + ".lora_a", lora + ".dlora_a"), x);
  const Tensor delta = mul_mat(g.trained(lora + ".lora_b", lora + ".dlora_b"), low);
  return add(y, scale(delta, g.number("lora_alpha") / g.number("lora_rank")));
}

// x {m, n} -> {n, m}: the vectors have a state's taps fastest, the ops its channels.
Tensor transposed(GoldenGraph& g, Tensor x) {
  const int64_t m = x.ne(0), n = x.ne(1);
  std::vector<int32_t> ids;
  for (int64_t j = 0; j < m; ++j) {
    for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(i * m + j));
  }
  return reshape(get_rows(reshape(x, {1, m * n}), g.ids({m * n}, ids)), {n, m});
}

Tensor heads_of(Tensor x, int64_t first, int64_t d, int64_t n_heads) {
  const int64_t row = x.ne(0) * 4;
  return view_strided(x, {d, n_heads, x.ne(1)}, {4, 4 * d, row, row * x.ne(1)}, first * 4);
}

TEST(GoldenQwen35, LinearAttentionLayer) {
  GoldenGraph g("gated_delta_net_layer.json", "qwen35_linear_attention_layer");
  ASSERT_EQ(g.text("order"), "tiled");
  ASSERT_EQ(g.text("l2"), "max");
  const int64_t d_k = g.integer("dk"), d_v = g.integer("dv"), n_k = g.integer("Hk"), n_v = g.integer("Hv");
  const Tensor x = g.trained("x", "dx");
  const int64_t n_tokens = x.ne(1);
  const Tensor mixed = g.probe(lin(g, "attn_qkv.weight", "qkv", x), "d_attn_qkv");
  const Tensor z = g.probe(lin(g, "attn_gate.weight", "gate", x), "d_attn_gate");
  const Tensor beta = sigmoid(g.probe(mul_mat(g.fixed("ssm_beta.weight"), x), "d_ssm_beta"));
  const Tensor alpha = g.probe(mul_mat(g.fixed("ssm_alpha.weight"), x), "d_ssm_alpha");
  const Tensor log_decay =
      mul(softplus(add(alpha, g.trained("ssm_dt.bias", "d_ssm_dt"))), g.trained("ssm_a", "d_ssm_a"));
  g.expect("beta", beta);
  g.expect("g", log_decay);

  // Enough earlier tokens for every tap, so that the states take part.
  std::vector<int32_t> at(static_cast<size_t>(n_tokens));
  for (size_t t = 0; t < at.size(); ++t) at[t] = static_cast<int32_t>(t) + 100;
  const Tensor positions = g.ids({n_tokens}, at);
  const Tensor before = transposed(g, g.trained("conv_state_in", "dconv_state_in"));
  const Tensor c = silu(ssm_conv(mixed, g.fixed("ssm_conv1d.weight"), before, positions));
  g.expect("conv_state_out", transposed(g, conv_state(mixed, before)));
  g.leave_out("d_conv_weight", "the taps are frozen, the op has no gradient for them");
  const Tensor q = l2_norm(heads_of(c, 0, d_k, n_k), g.number("eps"));
  const Tensor k = l2_norm(heads_of(c, n_k * d_k, d_k, n_k), g.number("eps"));
  g.expect("q_normed", q);
  g.expect("k_normed", k);
  const Tensor v = cont(heads_of(c, 2 * n_k * d_k, d_v, n_v));
  const Tensor state = g.trained("S0", "dS0");
  const Tensor packed = gated_delta_net(q, k, v, log_decay, beta, state, positions, DeltaHeads::Tiled);
  const Tensor o = delta_out(packed, v);
  g.expect("core_out", o);
  g.expect("S_end", delta_state(packed, v, state));
  const Tensor normed = mul(rms_norm(o, g.number("eps")), g.trained("ssm_norm.weight", "d_ssm_norm"));
  const Tensor gated = swiglu(reshape(z, {d_v, n_v, n_tokens}), normed);
  const Tensor y =
      lin(g, "ssm_out.weight", "out", g.probe(reshape(gated, {d_v * n_v, n_tokens}), "d_ssm_out_input"));
  g.expect("y", y);
  g.seed(y, "dy");
  EXPECT_EQ(g.check(), "");
}

class GoldenGatedAttention : public testing::TestWithParam<const char*> {};

TEST_P(GoldenGatedAttention, Passes) {
  GoldenGraph g("gated_attention.json", GetParam());
  RopeParams p;
  p.n_rot = g.integer("n_rot");
  p.base = g.number("rope_args/base");
  const std::vector<double>& sections = g.numbers("rope_args/sections");
  for (size_t i = 0; i < 4; ++i) p.sections[i] = static_cast<int32_t>(sections.at(i));
  const Tensor x = g.trained("x", "dx"), pos = g.fixed("pos");
  const int64_t n_tokens = x.ne(1), d = g.integer("D"), n_head = g.integer("H"), n_head_kv = g.integer("Hkv");
  const Tensor both = g.probe(lin(g, "q", "q", x), "dq_proj");
  const Shape heads(d, n_head, n_tokens);
  const std::array<int64_t, kMaxDims> nb{4, 8 * d, 8 * d * n_head, 8 * d * n_head * n_tokens};
  const Tensor q = view_strided(both, heads, nb, 0), gate = view_strided(both, heads, nb, 4 * d);
  const Tensor k = reshape(g.probe(lin(g, "k", "k", x), "dk_proj"), {d, n_head_kv, n_tokens});
  const Tensor v = reshape(g.probe(lin(g, "v", "v", x), "dv_proj"), {d, n_head_kv, n_tokens});
  const auto turned = [&](Tensor t, const std::string& norm) {
    return rope(mul(rms_norm(t, g.number("eps")), g.trained(norm, "d" + norm)), pos, {}, p);
  };
  const Tensor q_turned = turned(q, "q_norm"), k_turned = turned(k, "k_norm");
  g.expect("q_roped", q_turned);
  g.expect("k_roped", k_turned);
  const Tensor first_key = g.ids({n_tokens}, std::vector<int32_t>(static_cast<size_t>(n_tokens), 0));
  const Tensor packed = flash_attn(q_turned, k_turned, v, {}, {}, first_key, g.number("scale"));
  const Tensor out = attn_out(packed, q_turned, v);
  g.expect("attn_out", out);
  g.expect("lse", attn_lse(packed, q_turned, v));
  const Tensor y = lin(g, "o", "o", reshape(mul(out, sigmoid(gate)), {d * n_head, n_tokens}));
  g.expect("y", y);
  g.seed(y, "dy");
  EXPECT_EQ(g.check(), "");
}

INSTANTIATE_TEST_SUITE_P(Qwen35, GoldenGatedAttention,
                         testing::Values("qwen35_gated_partial_imrope_text",
                                         "qwen35_gated_partial_imrope_2d"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace tandem
