// Single ops against the golden vectors, forward and backward.
#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace tandem {
namespace {

TEST(GoldenOps, RmsNorm) {
  GoldenGraph g("rms_norm.json", "rms_norm");
  Tensor y = mul(rms_norm(g.trained("x", "dx"), g.number("eps")), g.trained("w", "dw"));
  g.expect("y", y);
  g.leave_out("rstd", "no op returns it; y and dx depend on it");
  g.seed(y, "dy");
  EXPECT_EQ(g.check(), "");
}

TEST(GoldenOps, SwiGlu) {
  GoldenGraph g("activations.json", "swiglu");
  Tensor h = swiglu(g.trained("gate", "dgate"), g.trained("up", "dup"));
  g.expect("h", h);
  g.seed(h, "dh");
  EXPECT_EQ(g.check(), "");
}

TEST(GoldenOps, SwiGluClamped) {
  GoldenGraph g("activations.json", "swiglu_oai");
  Tensor h =
      swiglu_oai(g.trained("gate", "dgate"), g.trained("up", "dup"), g.number("alpha"), g.number("limit"));
  g.expect("h", h);
  g.seed(h, "dh");
  EXPECT_EQ(g.check(), "");
}

TEST(GoldenOps, LoraLinear) {
  GoldenGraph g("training.json", "lora_linear");
  Tensor x = g.trained("x", "dx");
  Tensor low = mul_mat(g.trained("lora_a", "dlora_a"), x);
  Tensor y =
      add(mul_mat(g.fixed("w"), x), scale(mul_mat(g.trained("lora_b", "dlora_b"), low), g.number("scale")));
  g.expect("y", y);
  g.seed(y, "dy");
  EXPECT_EQ(g.check(), "");
}

class GoldenRope : public testing::TestWithParam<const char*> {};

TEST_P(GoldenRope, Passes) {
  GoldenGraph g("rope.json", GetParam());
  RopeParams p;
  p.kind = g.text("kind") == "neox" ? RopeKind::Neox : RopeKind::Normal;
  p.n_rot = g.integer("n_rot");
  p.base = g.number("base");
  if (g.has("sections")) {
    for (size_t i = 0; i < 4; ++i) p.sections[i] = static_cast<int32_t>(g.numbers("sections")[i]);
  }
  if (g.has("yarn/factor")) {
    p.yarn_factor = g.number("yarn/factor");
    p.yarn_beta_fast = g.number("yarn/beta_fast");
    p.yarn_beta_slow = g.number("yarn/beta_slow");
    p.yarn_n_ctx_orig = g.integer("yarn/n_ctx_orig");
    p.yarn_truncate = g.integer("yarn/truncate");
    p.magnitude = g.number("yarn/attn_factor");
  }
  const int64_t half = p.n_rot / 2;
  Tensor factors;
  if (g.has("freq_factors")) {
    const std::vector<double>& f = g.numbers("freq_factors");
    factors = g.constant({half}, std::vector<float>(f.begin(), f.end()));
  }
  Tensor pos = g.fixed("pos"), x = g.trained("x", "dx");
  Tensor y = rope(x, pos, factors, p);
  g.expect("y", y);
  g.seed(y, "dy");

  // Turning (1, 0) gives (cos, sin) of each pair.
  const int64_t n_tokens = pos.ne(0), d = x.ne(0);
  const bool neox = p.kind == RopeKind::Neox;
  std::vector<float> unit(static_cast<size_t>(d * n_tokens));
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t i = 0; i < half; ++i) unit[static_cast<size_t>(t * d + (neox ? i : 2 * i))] = 1;
  }
  Tensor turned = rope(g.constant({d, 1, n_tokens}, unit), pos, factors, p);
  const int64_t pair = neox ? 4 : 8;
  g.expect("cos", view_strided(turned, {1, half, n_tokens}, {4, pair, d * 4, d * 4 * n_tokens}, 0));
  g.expect("sin", view_strided(turned, {1, half, n_tokens}, {4, pair, d * 4, d * 4 * n_tokens},
                               neox ? half * 4 : 4));
  EXPECT_EQ(g.check(), "");
}

INSTANTIATE_TEST_SUITE_P(Rope, GoldenRope,
                         testing::Values("neox_full", "neox_partial", "normal_full", "normal_llama3_factors",
                                         "imrope_sections", "yarn_truncated", "yarn_untruncated"),
                         [](const auto& param) { return std::string(param.param); });

class GoldenMulMatId : public testing::TestWithParam<const char*> {};

TEST_P(GoldenMulMatId, Passes) {
  GoldenGraph g("index_ops.json", GetParam());
  Tensor as = g.fixed("as"), ids = g.fixed("ids"), grad = g.fixed("grad");
  Tensor b = g.trained("b", "db");
  EXPECT_EQ(b.ne(1), g.integer("n_b"));
  Tensor y = mul_mat_id(as, b, ids);
  g.expect("y", y);
  g.expect("dst", mul_mat_id_back(as, grad, ids, Precision::F32));
  g.seed(y, grad);
  EXPECT_EQ(g.check(), "");
}

INSTANTIATE_TEST_SUITE_P(MulMatId, GoldenMulMatId,
                         testing::Values("mul_mat_id_nb1", "mul_mat_id_nb2", "mul_mat_id_nb4"),
                         [](const auto& param) { return std::string(param.param); });

TEST(GoldenOps, GetRowsBackBatched) {
  GoldenGraph g("index_ops.json", "get_rows_back_batched");
  Tensor ids = g.fixed("ids"), grad = g.fixed("grad");
  const int64_t rows = g.integer("n_rows");
  // As the gradient of a gather from anything: add a zero and ask for its gradient.
  const Shape source{grad.ne(0), rows, grad.ne(2)};
  Tensor any = g.constant(source, std::vector<float>(static_cast<size_t>(source.elements()), 1.5f));
  Tensor y = get_rows(g.probe(any, "dsrc"), ids);
  g.seed(y, grad);
  EXPECT_EQ(g.check(), "");
}

TEST(GoldenOps, CrossEntropyMaskedSum) {
  GoldenGraph g("cross_entropy.json", "masked_sum");
  Tensor labels = g.fixed("labels");
  Tensor logits = g.probe(mul_mat(g.fixed("w"), g.trained("h", "dh")), "dlogits");
  Tensor loss = cross_entropy_loss(logits, labels);
  const int64_t n_tokens = labels.ne(0);
  Tensor nll = view(loss, {n_tokens});
  g.expect("logits", logits);
  g.expect("nll", nll);
  // The sum over tokens as a product with ones.
  Tensor ones = g.constant({n_tokens}, std::vector<float>(static_cast<size_t>(n_tokens), 1));
  g.expect("loss_sum", mul_mat(ones, nll));
  g.leave_out("lse", "no op returns it; nll = lse - logit of the label");
  g.leave_out("n_counted", "a property of the labels");
  g.seed(nll, ones);
  EXPECT_EQ(g.check(), "");
}

class GoldenDelta : public testing::TestWithParam<const char*> {};

TEST_P(GoldenDelta, Passes) {
  GoldenGraph g("gated_delta_net.json", GetParam());
  const Tensor q = g.trained("q", "dq"), k = g.trained("k", "dk"), v = g.trained("v", "dv");
  const Tensor decay = g.trained("g", "dg"), beta = g.trained("beta", "dbeta"),
               state = g.trained("S0", "dS0");
  // All of one sample that goes on.
  std::vector<int32_t> at(static_cast<size_t>(v.ne(2)));
  for (size_t t = 0; t < at.size(); ++t) at[t] = static_cast<int32_t>(t) + 1;
  const Tensor packed = gated_delta_net(q, k, v, decay, beta, state, g.ids({v.ne(2)}, at),
                                        g.text("order") == "tiled" ? DeltaHeads::Tiled : DeltaHeads::Grouped);
  const Tensor out = delta_out(packed, v), after = delta_state(packed, v, state);
  g.expect("o", out);
  g.expect("S_end", after);
  g.seed(out, "do");
  g.seed(after, "dS_end");
  EXPECT_EQ(g.check(), "");
}

INSTANTIATE_TEST_SUITE_P(Delta, GoldenDelta,
                         testing::Values("tiled_small", "grouped_small", "two_chunks_of_64", "strong_decay"),
                         [](const auto& param) { return std::string(param.param); });

TEST(GoldenOps, ACaseThatComputesTooLittleFails) {
  GoldenGraph g("activations.json", "swiglu");
  Tensor h = swiglu(g.trained("gate", "dgate"), g.fixed("up"));
  g.expect("h", h);
  g.seed(h, "dh");
  EXPECT_NE(g.check().find("missing: dup"), std::string::npos);
}

TEST(GoldenOps, AWrongParameterFails) {
  GoldenGraph g("rms_norm.json", "rms_norm");
  Tensor y = mul(rms_norm(g.trained("x", "dx"), 1.01f * g.number("eps")), g.trained("w", "dw"));
  g.expect("y", y);
  g.leave_out("rstd", "no op returns it");
  g.seed(y, "dy");
  EXPECT_NE(g.check(), "");
}

}  // namespace
}  // namespace tandem
