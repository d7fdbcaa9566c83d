#include "graph/autodiff.h"

#include <gtest/gtest.h>

#include "exec/ref/ref_exec.h"
#include "ops/ops.h"

namespace tandem {
namespace {

// The code of the error that `body` throws; its message must hold `text`.
template <class Body>
void expect_error(Code code, const std::string& text, Body body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    return;
  }
  ADD_FAILURE() << "nothing was thrown; wanted: " << text;
}

struct Vector {
  std::vector<float> values;
  Tensor in(Graph& g, const char* name, bool wanted = true) {
    Tensor t =
        g.leaf(DType::F32, {static_cast<int64_t>(values.size())}, Home::Persistent, values.data(), name);
    if (wanted) g.want_grad(t);
    return t;
  }
};

std::vector<Tensor> gradients(Graph& g, std::initializer_list<Seed> seeds,
                              std::initializer_list<Tensor> wrt) {
  return backward(g, {seeds.begin(), seeds.size()}, {wrt.begin(), wrt.size()});
}

std::vector<double> values_of(Graph& g, Tensor t) {
  RefExec<double> exec(g);
  exec.run();
  const std::span<const double> v = exec.get(t);
  return {v.begin(), v.end()};
}

using Values = std::vector<double>;

TEST(Autodiff, EveryOpHasARuleOrRefuses) {
  EXPECT_GT(all_ops().size(), 20u);
  for (Op op : all_ops()) {
    const OpDef& def = op_def(op);
    EXPECT_TRUE(def.backward != nullptr) << def.name;
    EXPECT_TRUE(def.infer != nullptr) << def.name;
    EXPECT_TRUE(def.ref_f32 && def.ref_f64 && def.ref_c128) << def.name;
    EXPECT_LE(def.n_src, kMaxSrc) << def.name;
    EXPECT_EQ(def.no_grad >> def.n_src, 0u) << def.name << ": no_grad names a source it does not have";
    EXPECT_EQ(def.inplace >> def.n_src, 0u) << def.name << ": inplace names a source it does not have";
  }
}

TEST(Autodiff, NamesAreThoseOfTheList) {
  const char* const names[] = {
#define OP(name, kernels) #name,
#include "ops/ops.def"
#undef OP
  };
  ASSERT_EQ(std::size(names), all_ops().size());
  for (size_t i = 0; i < std::size(names); ++i) EXPECT_STREQ(op_name(all_ops()[i]), names[i]);
}

TEST(Autodiff, ProductRule) {
  Graph g;
  Vector a{{1, 2, 3}}, b{{4, 5, -6}}, c{{1, 10, 100}};
  Tensor ta = a.in(g, "a"), tb = b.in(g, "b"), tc = c.in(g, "c", false);
  const std::vector<Tensor> grads = gradients(g, {{mul(ta, tb), tc}}, {ta, tb});
  EXPECT_EQ(values_of(g, grads[0]), (Values{4, 50, -600}));
  EXPECT_EQ(values_of(g, grads[1]), (Values{1, 20, 300}));
}

TEST(Autodiff, ContributionsAddUp) {
  Graph g;
  Vector a{{1, 2, 3}}, c{{1, 10, 100}};
  Tensor ta = a.in(g, "a"), tc = c.in(g, "c", false);
  Tensor y = add(mul(ta, ta), scale(ta, 3));
  const std::vector<Tensor> grads = gradients(g, {{y, tc}}, {ta});
  EXPECT_EQ(values_of(g, grads[0]), (Values{5, 70, 900}));
}

TEST(Autodiff, SeedsAddUp) {
  Graph g;
  Vector a{{1, 2}}, c1{{1, 10}}, c2{{7, 0.5f}};
  Tensor ta = a.in(g, "a"), t1 = c1.in(g, "c1", false), t2 = c2.in(g, "c2", false);
  Tensor y = scale(ta, 2), z = mul(y, ta);
  const std::vector<Tensor> grads = gradients(g, {{y, t1}, {z, t2}, {y, t2}, {ta, t1}}, {ta});
  // d/da of c1 2a + c2 2a^2 + c2 2a + c1 a = 3 c1 + 2 c2 + 4 a c2
  EXPECT_EQ(values_of(g, grads[0]), (Values{3 + 14 + 28, 30 + 1 + 4}));
}

TEST(Autodiff, NoGradientReachesAnUnusedLeafAndNoOpsAreSpentOnUnmarkedOnes) {
  Graph g;
  Vector a{{1, 2}}, b{{3, 4}}, u{{5, 6}}, c{{1, 1}};
  Tensor ta = a.in(g, "a"), tb = b.in(g, "b", false), tu = u.in(g, "u"), tc = c.in(g, "c", false);
  Tensor y = mul(ta, tb);
  const int n_forward = g.size();
  const std::vector<Tensor> grads = gradients(g, {{y, tc}}, {ta, tu});
  EXPECT_TRUE(grads[0]);
  EXPECT_FALSE(grads[1]);
  EXPECT_EQ(g.size(), n_forward + 1);  // dout * b, and nothing for b
}

TEST(Autodiff, SeedOnATensorWithoutGradientIsNothing) {
  Graph g;
  Vector a{{1, 2}}, b{{3, 4}}, c{{1, 1}};
  Tensor ta = a.in(g, "a"), tb = b.in(g, "b", false), tc = c.in(g, "c", false);
  const std::vector<Tensor> grads = gradients(g, {{scale(tb, 2), tc}}, {ta});
  EXPECT_FALSE(grads[0]);
}

// By the op that reads the tensor, with both names; by backward() if none does.
TEST(Autodiff, RefusesAGradientForTensorsThatCannotHaveOne) {
  std::vector<std::byte> bytes(34 * 4);
  Vector x{std::vector<float>(32, 1.f)};
  for (DType type : {DType::Q8_0, DType::BF16, DType::F16}) {
    Graph g;
    const Tensor tx = x.in(g, "x"),
                 w = g.leaf(type, {32, 1}, Home::Mapped, bytes.data(), "blk.0.attn_q.weight");
    g.want_grad(w);
    for (const char* part : {"MUL_MAT", "blk.0.attn_q.weight", name_of(type), "adapter"}) {
      expect_error(Code::Unsupported, part, [&] { mul_mat(w, tx); });
    }
  }
  {
    Graph g;
    const Tensor rows = x.in(g, "x"), ids = g.leaf(DType::I32, {1}, Home::Persistent, bytes.data(), "ids");
    get_rows(rows, ids);
    for (const char* part : {"GET_ROWS", "tensor ids", "I32"}) {
      expect_error(Code::Unsupported, part, [&] { g.want_grad(ids); });
    }
  }
  Graph g;
  Vector c{{1, 2}};
  const Tensor tx = c.in(g, "x"), unread = g.leaf(DType::BF16, {4}, Home::Mapped, bytes.data(), "half");
  g.want_grad(unread);
  const Tensor y = scale(tx, 2), tc = c.in(g, "c", false);
  expect_error(Code::Unsupported, "tensor half is BF16", [&] { gradients(g, {{y, tc}}, {tx}); });
}

TEST(Autodiff, RefusesAnOpWithoutARule) {
  Graph g;
  Vector dy{{1, 2}}, x{{3, 4}}, c{{1, 1}};
  Tensor tx = x.in(g, "x");
  Tensor y = rms_norm_back(dy.in(g, "dy", false), tx, 1e-6f);
  Tensor tc = c.in(g, "c", false);
  expect_error(Code::Unsupported, "RMS_NORM_BACK", [&] { gradients(g, {{y, tc}}, {tx}); });
  expect_error(Code::Unsupported, "tensor x", [&] { gradients(g, {{y, tc}}, {tx}); });
}

TEST(Autodiff, RefusesTheGradientOfAnUnmarkedLeaf) {
  Graph g;
  Vector a{{1, 2}}, b{{3, 4}}, c{{1, 1}};
  Tensor ta = a.in(g, "a"), tb = b.in(g, "b", false), tc = c.in(g, "c", false);
  Tensor y = mul(ta, tb);
  expect_error(Code::Internal, "b:", [&] { gradients(g, {{y, tc}}, {ta, tb}); });
}

TEST(Autodiff, RefusesACotangentOfAnotherShape) {
  Graph g;
  Vector a{{1, 2}}, c{{1, 1, 1}};
  Tensor ta = a.in(g, "a"), tc = c.in(g, "c", false);
  Tensor y = scale(ta, 2);
  expect_error(Code::Internal, "{3}", [&] { gradients(g, {{y, tc}}, {ta}); });
}

TEST(Autodiff, OnlyLeavesHaveGradientsToReturn) {
  Graph g;
  Vector a{{1, 2}}, c{{1, 1}};
  Tensor ta = a.in(g, "a"), tc = c.in(g, "c", false);
  Tensor y = scale(ta, 2);
  EXPECT_THROW(gradients(g, {{y, tc}}, {y}), Error);
  EXPECT_THROW(g.want_grad(y), Error);
}

}  // namespace
}  // namespace tandem
