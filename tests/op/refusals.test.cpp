// A gradient that cannot be had is an error when the graph is built, naming op and tensor; never a skip.
// Source: gradients.md 2.1, 2.2.
#include <gtest/gtest.h>

#include "graph/autodiff.h"
#include "ops/mul_mat/mul_mat.h"
#include "ops/ops.h"

namespace tandem {
namespace {

// Leaves without bytes: nothing of this ever runs.
class Refusals : public testing::Test {
 protected:
  Tensor leaf(DType type, const Shape& ne, const char* name, bool asked = false) {
    const Tensor t =
        graph_.leaf(type, ne, type == DType::F32 ? Home::Persistent : Home::Mapped, nullptr, name);
    if (asked) graph_.want_grad(t);
    return t;
  }

  // Builds the backward of `y` for its cotangent.
  void differentiate(Tensor y, Tensor wrt) {
    const Seed seed{y, leaf(DType::F32, y.shape(), "cotangent")};
    backward(graph_, {&seed, 1}, {&wrt, 1});
  }

  Graph graph_;
};

// `body` must throw Unsupported with all these parts in its message.
template <class Body>
void expect_refused(std::initializer_list<const char*> parts, Body body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Unsupported) << e.what();
    for (const char* part : parts)
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << " in: " << e.what();
    return;
  }
  ADD_FAILURE() << "nothing was refused";
}

TEST_F(Refusals, QuantizedExperts) {
  const Tensor b = leaf(DType::F32, {256, 1, 3}, "hidden"), ids = leaf(DType::I32, {2, 3}, "expert ids");
  for (const TypeInfo& info : all_types()) {
    if (!info.codec || info.type == DType::F32) continue;
    const Tensor as = leaf(info.type, {256, 8, 4}, "blk.0.ffn_gate_exps.weight", true);
    expect_refused({"MUL_MAT_ID", "blk.0.ffn_gate_exps.weight", info.name, "LoRA"},
                   [&] { mul_mat_id(as, b, ids); });
  }
}

TEST_F(Refusals, ExpertsThatAreReadAlready) {
  const Tensor b = leaf(DType::F32, {32, 1, 3}, "hidden"), ids = leaf(DType::I32, {2, 3}, "expert ids");
  const Tensor as = leaf(DType::Q8_0, {32, 8, 4}, "blk.0.ffn_up_exps.weight");
  mul_mat_id(as, b, ids);
  expect_refused({"MUL_MAT_ID", "blk.0.ffn_up_exps.weight", "Q8_0"}, [&] { graph_.want_grad(as); });
}

TEST_F(Refusals, ExpertsBehindAView) {
  const Tensor as = leaf(DType::Q8_0, {32, 8, 4}, "blk.0.ffn_up_exps.weight", true);
  expect_refused({"VIEW", "blk.0.ffn_up_exps.weight"}, [&] { view(as, {32, 8, 2}); });
}

TEST_F(Refusals, Ids) {
  const Tensor as = leaf(DType::F32, {32, 8, 4}, "lora_a"), b = leaf(DType::F32, {32, 1, 3}, "hidden");
  const Tensor ids = leaf(DType::I32, {2, 3}, "expert ids", true), x = leaf(DType::F32, {1, 9, 3}, "scores");
  expect_refused({"MUL_MAT_ID", "expert ids", "I32"}, [&] { mul_mat_id(as, b, ids); });
  expect_refused({"GET_ROWS", "expert ids", "I32"}, [&] { get_rows(x, ids); });
  const Tensor pos = leaf(DType::I32, {3}, "positions", true), heads = leaf(DType::F32, {8, 2, 3}, "q");
  expect_refused({"ROPE", "positions"}, [&] { rope(heads, pos, {}, {.n_rot = 8}); });
  const Tensor labels = leaf(DType::I32, {3}, "labels", true), logits = leaf(DType::F32, {11, 3}, "logits");
  expect_refused({"CROSS_ENTROPY_LOSS", "labels"}, [&] { cross_entropy_loss(logits, labels); });
}

TEST_F(Refusals, Taps) {
  const Tensor m = leaf(DType::F32, {32, 6}, "m"), state = leaf(DType::F32, {32, 3}, "state"),
               pos = leaf(DType::I32, {6}, "positions"),
               w = leaf(DType::F32, {4, 32}, "blk.0.ssm_conv1d.weight", true);
  expect_refused({"SSM_CONV", "blk.0.ssm_conv1d.weight", "frozen"}, [&] { ssm_conv(m, w, state, pos); });
}

TEST_F(Refusals, QuantizedWeights) {
  const Tensor x = leaf(DType::F32, {256, 3}, "hidden");
  for (const TypeInfo& info : all_types()) {
    if (!info.codec || info.type == DType::F32) continue;
    const Tensor w = leaf(info.type, {256, 8}, "blk.0.attn_q.weight", true);
    expect_refused({"MUL_MAT", "blk.0.attn_q.weight", info.name, "LoRA"}, [&] { mul_mat(w, x); });
  }
  const Tensor table = leaf(DType::Q6_K, {256, 40}, "token_embd.weight", true),
               ids = leaf(DType::I32, {5}, "tokens");
  expect_refused({"GET_ROWS", "token_embd.weight", "Q6_K"}, [&] { get_rows(table, ids); });
}

TEST_F(Refusals, ATensorThatNobodyReads) {
  leaf(DType::Q8_0, {32, 8}, "blk.0.attn_k.weight", true);
  const Tensor x = leaf(DType::F32, {32, 3}, "hidden", true);
  const Tensor y = scale(x, 2.f);
  expect_refused({"blk.0.attn_k.weight", "Q8_0"}, [&] { differentiate(y, x); });
}

// Every op that says it has no rule refuses, if a source of it can ask at all.
TEST_F(Refusals, OpsWithoutARule) {
  const Tensor x = leaf(DType::F32, {32, 4}, "asked x", true), ids = leaf(DType::I32, {4}, "ids"),
               pos = leaf(DType::I32, {4}, "pos"), dnll = leaf(DType::F32, {4}, "dnll");
  const Tensor x3 = reshape(x, {32, 1, 4}), ids2 = leaf(DType::I32, {1, 4}, "ids2");
  const Tensor w = leaf(DType::F32, {16, 32}, "w");
  const std::vector<Tensor> results = {
      get_rows_back(x, ids, 7),
      soft_max_back(x, x),
      rms_norm_back(x, x, 1e-6f),
      l2_norm_back(x, x, 1e-6f),
      rope_back(x3, pos, {}, {.n_rot = 8}),
      swiglu_back(x, x, x),
      mul_mat_back(w, x, Precision::F32),
      out_prod(x, x),
      out_prod_id(x3, x3, ids2, 3),
      ssm_conv_back(x, leaf(DType::F32, {4, 32}, "taps"), pos),
      cross_entropy_loss_back(x, pos, dnll),
  };
  for (const Tensor& y : results) {
    expect_refused({op_name(y.node->op), "asked x"}, [&] { differentiate(y, x); });
  }
}

// Serving's numbers: neither a gradient through such a product nor a backward one.
TEST_F(Refusals, GradientsInInt8) {
  const Tensor w = leaf(DType::Q8_0, {32, 16}, "blk.0.attn_q.weight"),
               as = leaf(DType::Q4_0, {32, 8, 4}, "blk.0.ffn_up_exps.weight"),
               plain = leaf(DType::F32, {32, 16}, "blk.1.attn_q.weight");
  const Tensor x = leaf(DType::F32, {32, 3}, "hidden", true), x3 = reshape(x, {32, 1, 3}),
               ids = leaf(DType::I32, {2, 3}, "expert ids");
  const char* remedy = "--precision f32 or bf16";
  for (const Tensor& weight : {w, plain}) {
    const Tensor y = mul_mat(weight, x, Precision::Int8);
    expect_refused({"MUL_MAT", weight.node->name, "int8", remedy}, [&] { differentiate(y, x); });
    const Tensor same = mul_mat(weight, x, Precision::BF16);
    EXPECT_NO_THROW(differentiate(same, x));
  }
  const Tensor routed = mul_mat_id(as, x3, ids, Precision::Int8);
  expect_refused({"MUL_MAT_ID", as.node->name, "int8", remedy}, [&] { differentiate(routed, x); });
  const Tensor dy = leaf(DType::F32, {16, 3}, "dy"), d3 = leaf(DType::F32, {8, 2, 3}, "d3");
  expect_refused({"MUL_MAT_BACK", w.node->name, "int8", remedy},
                 [&] { mul_mat_back(w, dy, Precision::Int8); });
  expect_refused({"MUL_MAT_ID_BACK", as.node->name, "int8", remedy},
                 [&] { mul_mat_id_back(as, d3, ids, Precision::Int8); });
}

TEST_F(Refusals, ExpertsInGatherForm) {
  const Tensor as = leaf(DType::Q8_0, {32, 8, 4}, "blk.3.ffn_down.0.weight");
  const Tensor b = leaf(DType::F32, {32, 1, 3}, "hidden"), grad = leaf(DType::F32, {8, 2, 3}, "grad");
  const Tensor ids = leaf(DType::I32, {2, 3}, "expert ids");
  const MulMatIdParams gather{Precision::F32, ExpertLayout::Gather};
  expect_refused({"MUL_MAT_ID", "blk.3.ffn_down.0.weight", "gather"}, [&] {
    graph_.emit(Op::MUL_MAT_ID, {as, b, ids}, gather);
  });
  expect_refused({"MUL_MAT_ID_BACK", "blk.3.ffn_down.0.weight", "gather"}, [&] {
    graph_.emit(Op::MUL_MAT_ID_BACK, {as, grad, ids}, gather);
  });
}

}  // namespace
}  // namespace tandem
