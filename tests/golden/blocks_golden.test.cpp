// Attention and MoE blocks, built from ops as the models build them, against the golden vectors.
#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace tandem {
namespace {

// w x, plus the case's adapter of this name.
Tensor lin(GoldenGraph& g, const std::string& name, Tensor x) {
  Tensor y = mul_mat(g.fixed(name), x);
  if (!g.has_input(name + ".lora_a")) return y;
  Tensor low = mul_mat(g.trained(name + ".lora_a", name + ".dlora_a"), x);
  Tensor delta = mul_mat(g.trained(name + ".lora_b", name + ".dlora_b"), low);
  return add(y, scale(delta, g.number("lora_alpha") / g.number("lora_rank")));
}

// The norm of q or k: over each head, over all heads, or none.
Tensor qk_norm(GoldenGraph& g, const std::string& name, Tensor x, const Shape& heads) {
  if (!g.has("qk_norm")) return reshape(x, heads);
  const bool full = g.text("qk_norm") == "full";
  Tensor t = full ? x : reshape(x, heads);
  return reshape(mul(rms_norm(t, g.number("eps")), g.trained(name, "d" + name)), heads);
}

class GoldenAttention : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(GoldenAttention, Passes) {
  GoldenGraph g(GetParam().first, GetParam().second);
  RopeParams p;
  p.kind = g.text("rope") == "neox" ? RopeKind::Neox : RopeKind::Normal;
  p.n_rot = g.integer("n_rot");
  p.base = g.number("rope_args/base");
  Tensor factors;
  if (g.has("rope_args/freq_factors")) {
    const std::vector<double>& f = g.numbers("rope_args/freq_factors");
    factors = g.constant({p.n_rot / 2}, std::vector<float>(f.begin(), f.end()));
  }
  Tensor x = g.trained("x", "dx"), pos = g.fixed("pos");
  const int64_t n_tokens = x.ne(1), d = g.integer("D"), n_head = g.integer("H"), n_head_kv = g.integer("Hkv");
  Tensor q = g.probe(lin(g, "q", x), "dq_proj");
  Tensor k = g.probe(lin(g, "k", x), "dk_proj");
  Tensor v = reshape(g.probe(lin(g, "v", x), "dv_proj"), {d, n_head_kv, n_tokens});
  q = rope(qk_norm(g, "q_norm", q, {d, n_head, n_tokens}), pos, factors, p);
  k = rope(qk_norm(g, "k_norm", k, {d, n_head_kv, n_tokens}), pos, factors, p);
  g.expect("q_roped", q);
  g.expect("k_roped", k);
  Tensor first_key = g.ids({n_tokens}, std::vector<int32_t>(static_cast<size_t>(n_tokens), 0));
  Tensor packed = flash_attn(q, k, v, {}, {}, first_key, g.number("scale"));
  Tensor out = attn_out(packed, q, v);
  g.expect("attn_out", out);
  g.expect("lse", attn_lse(packed, q, v));
  Tensor y = lin(g, "o", reshape(out, {d * n_head, n_tokens}));
  g.expect("y", y);
  g.seed(y, "dy");
  EXPECT_EQ(g.check(), "");
}

INSTANTIATE_TEST_SUITE_P(Attention, GoldenAttention,
                         testing::Values(std::pair("attention.json", "qwen3_gqa_qknorm_rope_lora"),
                                         std::pair("attention_variants.json", "llama3_normal_rope_factors"),
                                         std::pair("attention_variants.json", "olmoe_full_width_qknorm")),
                         [](const auto& param) { return std::string(param.param.second); });

class GoldenMoe : public testing::TestWithParam<const char*> {};

TEST_P(GoldenMoe, Passes) {
  GoldenGraph g("moe.json", GetParam());
  ASSERT_EQ(g.text("gating"), "softmax");
  ASSERT_TRUE(!g.has("scale") || g.number("scale") == 1);
  const int k = g.integer("k");
  Tensor x = g.trained("x", "dx");
  const int64_t n = x.ne(0), n_tokens = x.ne(1);

  Tensor logits = g.probe(mul_mat(g.fixed("router"), x), "drouter_logits");
  const int64_t n_expert = logits.ne(0);
  Tensor ids = top_k(logits, k);
  Tensor probs = soft_max(logits);
  Tensor of_all = reshape(g.integer("norm") ? logits : probs, {1, n_expert, n_tokens});
  Tensor picked = reshape(get_rows(of_all, ids), {k, n_tokens});
  Tensor w = g.probe(g.integer("norm") ? soft_max(picked) : picked, "dweights");
  g.expect("router_logits", logits);
  g.expect("probs", probs);
  g.expect("ids", ids);
  g.expect("weights", w);

  Tensor b = reshape(x, {n, 1, n_tokens}), down = g.fixed("down");
  Tensor gate = g.probe(mul_mat_id(g.fixed("gate"), b, ids), "dgate");
  Tensor up = g.probe(mul_mat_id(g.fixed("up"), b, ids), "dup");
  Tensor h = g.probe(swiglu(gate, up), "dh");
  g.expect("expert_out", mul_mat_id(down, h, ids));
  Tensor weighted = mul(h, reshape(w, {1, k, n_tokens}));
  Tensor y = reshape(repeat_back(mul_mat_id(down, weighted, ids), {n, 1, n_tokens}), {n, n_tokens});
  if (g.has_input("sh_up")) {
    Tensor of_all =
        mul_mat(g.fixed("sh_down"), swiglu(mul_mat(g.fixed("sh_gate"), x), mul_mat(g.fixed("sh_up"), x)));
    if (g.has_input("sh_inp"))
      of_all = mul(of_all, sigmoid(g.probe(mul_mat(g.fixed("sh_inp"), x), "dshared_gate_logit")));
    y = add(y, of_all);
  }
  g.expect("y", y);
  g.seed(y, "dy");
  EXPECT_EQ(g.check(), "");
}

INSTANTIATE_TEST_SUITE_P(Moe, GoldenMoe,
                         testing::Values("qwen3moe_renorm", "olmoe_no_renorm", "qwen35moe_renorm_shared_gate",
                                         "deepseek2lite_no_renorm_shared"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace tandem
