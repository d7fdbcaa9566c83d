// Attention and MoE blocks, built from ops as the models build them, against the golden vectors.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/golden/golden.h"

namespace tandem {
namespace {

// w x, plus the case's bias and adapter of this name.
Tensor lin(GoldenGraph& g, const std::string& name, Tensor x) {
  Tensor y = mul_mat(g.fixed(name), x);
  if (g.has_input(name + "_b")) y = add(y, g.fixed(name + "_b"));
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
  if (g.has("rope_args/yarn/factor")) {
    p.yarn_factor = g.number("rope_args/yarn/factor");
    p.yarn_beta_fast = g.number("rope_args/yarn/beta_fast");
    p.yarn_beta_slow = g.number("rope_args/yarn/beta_slow");
    p.yarn_n_ctx_orig = g.integer("rope_args/yarn/n_ctx_orig");
    p.yarn_truncate = g.integer("rope_args/yarn/truncate");
    p.magnitude = g.number("rope_args/yarn/attn_factor");
  }
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
  std::vector<int32_t> first(static_cast<size_t>(n_tokens), 0);
  if (g.has("window")) {
    for (int t = 0; t < n_tokens; ++t)
      first[static_cast<size_t>(t)] = std::max(0, t - g.integer("window") + 1);
  }
  Tensor first_key = g.ids({n_tokens}, first);
  Tensor packed = flash_attn(q, k, v, {}, {}, first_key, g.number("scale"));
  Tensor out = attn_out(packed, q, v), lse = attn_lse(packed, q, v);
  if (g.has("sinks")) {
    // The sink's share of the softmax, which has no value; the sum over all is lse + ln(1 + exp(sink - lse)).
    Tensor sinks = repeat(g.trained("sinks", "dsinks"), {n_head, n_tokens});
    Tensor share = sigmoid(add(scale(sinks, -1.f), lse));
    out = mul(out, reshape(share, {1, n_head, n_tokens}));
    lse = add(lse, softplus(add(sinks, scale(lse, -1.f))));
  }
  g.expect("attn_out", out);
  g.expect("lse", lse);
  Tensor y = lin(g, "o", reshape(out, {d * n_head, n_tokens}));
  g.expect("y", y);
  g.seed(y, "dy");
  EXPECT_EQ(g.check(), "");
}

INSTANTIATE_TEST_SUITE_P(Attention, GoldenAttention,
                         testing::Values(std::pair("attention.json", "qwen3_gqa_qknorm_rope_lora"),
                                         std::pair("attention_variants.json", "llama3_normal_rope_factors"),
                                         std::pair("attention_variants.json",
                                                   "gpt_oss_sinks_window_yarn_bias"),
                                         std::pair("attention_variants.json", "olmoe_full_width_qknorm")),
                         [](const auto& param) { return std::string(param.param.second); });

class GoldenMoe : public testing::TestWithParam<const char*> {};

TEST_P(GoldenMoe, Passes) {
  GoldenGraph g("moe.json", GetParam());
  const bool of_chosen = g.text("gating") == "softmax_weight";
  ASSERT_TRUE(of_chosen || g.text("gating") == "softmax");
  ASSERT_TRUE(!g.has("scale") || g.number("scale") == 1);
  const int k = g.integer("k");
  Tensor x = g.trained("x", "dx");
  const int64_t n = x.ne(0), n_tokens = x.ne(1);

  Tensor logits = mul_mat(g.fixed("router"), x);
  if (g.has_input("router_b")) logits = add(logits, g.fixed("router_b"));
  logits = g.probe(logits, "drouter_logits");
  const int64_t n_expert = logits.ne(0);
  Tensor ids = top_k(logits, k);
  Tensor probs = soft_max(logits);
  const bool among_chosen = of_chosen || g.integer("norm");
  Tensor of_all = reshape(among_chosen ? logits : probs, {1, n_expert, n_tokens});
  Tensor picked = reshape(get_rows(of_all, ids), {k, n_tokens});
  Tensor w = g.probe(among_chosen ? soft_max(picked) : picked, "dweights");
  g.expect("router_logits", logits);
  g.expect("probs", of_chosen ? logits : probs);  // what the choice is made by
  g.expect("ids", ids);
  g.expect("weights", w);

  const auto biased = [&](Tensor t, const std::string& name) {
    if (!g.has_input(name)) return t;
    return add(t, reshape(get_rows(g.fixed(name), reshape(ids, {k * n_tokens})), t.shape()));
  };
  Tensor b = reshape(x, {n, 1, n_tokens}), down = g.fixed("down");
  Tensor gate = g.probe(biased(mul_mat_id(g.fixed("gate"), b, ids), "gate_b"), "dgate");
  Tensor up = g.probe(biased(mul_mat_id(g.fixed("up"), b, ids), "up_b"), "dup");
  const bool clamped = g.has("act") && g.text("act") == "swiglu_oai";
  Tensor h = g.probe(clamped ? swiglu_oai(gate, up) : swiglu(gate, up), "dh");
  g.expect("expert_out", biased(mul_mat_id(down, h, ids), "down_b"));
  Tensor weights = reshape(w, {1, k, n_tokens});
  Tensor slots = mul_mat_id(down, mul(h, weights), ids);
  if (g.has_input("down_b")) {
    Tensor bias = reshape(get_rows(g.fixed("down_b"), reshape(ids, {k * n_tokens})), slots.shape());
    slots = add(slots, mul(bias, weights));
  }
  Tensor y = reshape(repeat_back(slots, {n, 1, n_tokens}), {n, n_tokens});
  if (g.has_input("sh_up")) {
    Tensor shared =
        mul_mat(g.fixed("sh_down"), swiglu(mul_mat(g.fixed("sh_gate"), x), mul_mat(g.fixed("sh_up"), x)));
    if (g.has_input("sh_inp"))
      shared = mul(shared, sigmoid(g.probe(mul_mat(g.fixed("sh_inp"), x), "dshared_gate_logit")));
    y = add(y, shared);
  }
  g.expect("y", y);
  g.seed(y, "dy");
  EXPECT_EQ(g.check(), "");
}

INSTANTIATE_TEST_SUITE_P(Moe, GoldenMoe,
                         testing::Values("qwen3moe_renorm", "olmoe_no_renorm", "qwen35moe_renorm_shared_gate",
                                         "deepseek2lite_no_renorm_shared", "gpt_oss_softmax_after_topk"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace tandem
