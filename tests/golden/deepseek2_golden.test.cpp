// Multi-head latent attention and the router of DeepSeek-V3, built from ops as the models build them, against
// the golden vectors.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/golden/golden.h"

namespace tandem {
namespace {

TEST(GoldenDeepseek2, LatentAttention) {
  GoldenGraph g("attention_variants.json", "deepseek2_mla");
  const int64_t n_head = g.integer("H"), d_nope = g.integer("nope"), n_rot = g.integer("rope_dim"),
                d_v = g.integer("dv"), rank = g.integer("r");
  RopeParams p;
  p.kind = RopeKind::Normal;
  p.n_rot = static_cast<int32_t>(n_rot);
  p.last = true;
  p.base = g.number("rope_args/base");
  p.yarn_factor = g.number("rope_args/yarn/factor");
  p.yarn_n_ctx_orig = g.integer("rope_args/yarn/n_ctx_orig");
  p.magnitude = g.number("rope_args/yarn/attn_factor");

  const Tensor x = g.trained("x", "dx");
  const int64_t n_tokens = x.ne(1);
  std::vector<int32_t> positions(static_cast<size_t>(n_tokens)), heads;
  std::iota(positions.begin(), positions.end(), 0);
  for (int64_t t = 0; t < n_tokens; ++t)
    for (int64_t i = 0; i < n_head; ++i) heads.push_back(static_cast<int32_t>(i));
  const Tensor pos = g.ids({n_tokens}, positions), ids = g.ids({n_head, n_tokens}, heads);

  const Tensor q = g.probe(mul_mat(g.fixed("q"), x), "dq_proj");
  const Tensor q_turned = rope(reshape(q, {d_nope + n_rot, n_head, n_tokens}), pos, {}, p);
  const Tensor latent = g.probe(mul_mat(g.fixed("kv_a"), x), "dkv_a_proj");
  const int64_t token = 4 * (rank + n_rot), all = token * n_tokens;
  const Tensor c =
      mul(rms_norm(view_strided(latent, {rank, n_tokens}, {4, token, all, all}, 0), g.number("eps")),
          g.trained("kv_a_norm", "dkv_a_norm"));
  const Tensor turned =
      rope(view_strided(latent, {n_rot, 1, n_tokens}, {4, token, token, all}, 4 * rank), pos, {}, p);
  const Tensor shared = reshape(c, {rank, 1, n_tokens});
  const Tensor k_nope = mul_mat_id_back(g.trained("k_b", "dk_b"), shared, ids, Precision::F32);
  const Tensor v = mul_mat_id(g.trained("v_b", "dv_b"), shared, ids);
  const Tensor k = concat(k_nope, repeat(turned, {n_rot, n_head, n_tokens}));
  const Tensor first_key = g.ids({n_tokens}, std::vector<int32_t>(static_cast<size_t>(n_tokens), 0));
  const Tensor packed = flash_attn(q_turned, k, v, {}, {}, first_key, g.number("scale"));
  const Tensor y = mul_mat(g.fixed("o"), reshape(attn_out(packed, q_turned, v), {d_v * n_head, n_tokens}));
  g.expect("y", y);
  g.seed(y, "dy");
  EXPECT_EQ(g.check(), "");
}

TEST(GoldenDeepseek2, SigmoidRouterInGroups) {
  GoldenGraph g("moe.json", "sigmoid_bias_groups_scaled");
  ASSERT_EQ(g.text("gating"), "sigmoid");
  ASSERT_EQ(g.text("group_score"), "top2");
  const int k = g.integer("k");
  const Tensor x = g.trained("x", "dx");
  const int64_t n = x.ne(0), n_tokens = x.ne(1);

  const Tensor logits = g.probe(mul_mat(g.fixed("router"), x), "drouter_logits");
  const Tensor probs = sigmoid(logits);
  const Tensor ids =
      top_k(add(probs, g.fixed("sel_bias")), k, {g.integer("n_group"), g.integer("topk_group"), 2});
  const Tensor picked = reshape(get_rows(reshape(logits, {1, logits.ne(0), n_tokens}), ids), {k, n_tokens});
  const Tensor shares = soft_max(scale(softplus(scale(picked, -1.f)), -1.f));
  const Tensor w = g.probe(scale(shares, g.number("scale")), "dweights");
  g.expect("router_logits", logits);
  g.expect("probs", probs);
  g.expect("ids", ids);
  g.expect("weights", w);

  const Tensor b = reshape(x, {n, 1, n_tokens}), down = g.fixed("down");
  const Tensor gate = g.probe(mul_mat_id(g.fixed("gate"), b, ids), "dgate");
  const Tensor up = g.probe(mul_mat_id(g.fixed("up"), b, ids), "dup");
  const Tensor h = g.probe(swiglu(gate, up), "dh");
  g.expect("expert_out", mul_mat_id(down, h, ids));
  const Tensor weighted = mul(h, reshape(w, {1, k, n_tokens}));
  const Tensor y = reshape(repeat_back(mul_mat_id(down, weighted, ids), {n, 1, n_tokens}), {n, n_tokens});
  g.expect("y", y);
  g.seed(y, "dy");
  EXPECT_EQ(g.check(), "");
}

}  // namespace
}  // namespace tandem
