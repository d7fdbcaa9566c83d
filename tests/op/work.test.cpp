#include "ops/work.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/ops.h"

namespace tandem {
namespace {

class WorkOf : public testing::Test {
 protected:
  Tensor f32(const Shape& ne) { return leaf(DType::F32, ne); }
  Tensor leaf(DType type, const Shape& ne, void* data = nullptr) {
    return g.leaf(type, ne, Home::Persistent, data, "x");
  }
  Graph g;
};

TEST_F(WorkOf, Products) {
  const Work forward = work_of(*mul_mat(leaf(DType::Q4_K, {256, 8}), f32({256, 3, 2}), Precision::BF16).node);
  EXPECT_EQ(forward.operations, 2 * 256 * 8 * 6);
  EXPECT_EQ(forward.bytes, 144 * 8 + 256 * 6 * 4 + 8 * 6 * 4);
  EXPECT_EQ(forward.precision, Precision::BF16);
  const Work back = work_of(*mul_mat_back(f32({5, 7}), f32({7, 3}), Precision::F32).node);
  EXPECT_EQ(back.operations, 2 * 5 * 7 * 3);
  EXPECT_EQ(back.bytes, 4 * (35 + 21 + 15));
  EXPECT_EQ(back.precision, Precision::F32);
  const auto in_int8 = [&](DType type) {
    return work_of(*mul_mat(leaf(type, {256, 8}), f32({256, 3}), Precision::Int8).node).precision;
  };
  EXPECT_EQ(in_int8(DType::Q4_K), Precision::Int8);
  EXPECT_EQ(in_int8(DType::F16), Precision::BF16) << "a type without integers";
  EXPECT_EQ(work_of(*out_prod(f32({5, 9}), f32({7, 9})).node).operations, 2 * 5 * 7 * 9);
}

TEST_F(WorkOf, OnlyTheExpertsThatAreNamed) {
  std::vector<int32_t> ids{4, 2, 2, 4};  // {2, 2}: two of six experts
  const Tensor as = f32({3, 5, 6}), named = leaf(DType::I32, {2, 2}, ids.data());
  const Work w = work_of(*mul_mat_id(as, f32({3, 1, 2}), named, Precision::F32).node);
  EXPECT_EQ(w.operations, 2 * 3 * 5 * 4);
  EXPECT_EQ(w.bytes, 4 * (2 * 15 + 6 + 4 + 5 * 4));
  const Work unknown =
      work_of(*mul_mat_id(as, f32({3, 1, 2}), leaf(DType::I32, {2, 2}), Precision::F32).node);
  EXPECT_EQ(unknown.bytes - w.bytes, 4 * 2 * 15) << "four slots could name four experts";
  const Work back = work_of(*mul_mat_id_back(as, f32({5, 2, 2}), named, Precision::F32).node);
  EXPECT_EQ(back.operations, w.operations);
  EXPECT_EQ(back.bytes, 4 * (2 * 15 + 20 + 4 + 12));
  const Work outer = work_of(*out_prod_id(f32({3, 2, 2}), f32({5, 2, 2}), named, 6).node);
  EXPECT_EQ(outer.operations, 2 * 3 * 5 * 4);
}

TEST_F(WorkOf, AttentionIsCausal) {
  const Tensor q = f32({4, 6, 3}), k = f32({4, 2, 3}), v = f32({5, 2, 3}), first = leaf(DType::I32, {3});
  const double seen = 1 + 2 + 3;
  EXPECT_EQ(work_of(*flash_attn(q, k, v, {}, {}, first, 1.f).node).operations, 6 * seen * 2 * (4 + 5));
  const Tensor k_past = f32({4, 2, 10}), v_past = f32({5, 2, 10});
  const Tensor packed = flash_attn(q, k, v, k_past, v_past, first, 1.f);
  EXPECT_EQ(work_of(*packed.node).operations, 6 * (seen + 3 * 10) * 2 * (4 + 5));
  const Tensor d = f32(packed.shape());
  EXPECT_EQ(work_of(*flash_attn_back(q, k, v, k_past, v_past, first, packed, d, 1.f).node).operations,
            6 * (seen + 3 * 10) * 2 * (3 * 4 + 2 * 5));
}

TEST_F(WorkOf, TheDeltaRuleIsLinearInTokens) {
  const Tensor q = f32({4, 2, 3}), v = f32({5, 6, 3}), gates = f32({6, 3}), state = f32({4, 5, 6}),
               positions = leaf(DType::I32, {3});
  const Tensor packed = gated_delta_net(q, q, v, gates, gates, state, positions, DeltaHeads::Tiled);
  EXPECT_EQ(work_of(*packed.node).operations, 3 * 6 * 3 * 2 * 4 * 5);
  const Tensor back =
      gated_delta_net_back(q, q, v, gates, gates, state, positions, f32(packed.shape()), DeltaHeads::Tiled);
  EXPECT_EQ(work_of(*back.node).operations, 3 * 6 * 8 * 2 * 4 * 5);
}

TEST_F(WorkOf, TheRestIsBytes) {
  const Work sum = work_of(*add(f32({8, 3}), f32({8})).node);
  EXPECT_EQ(sum.operations, 0);
  EXPECT_EQ(sum.bytes, 4 * (24 + 8 + 24));
  std::vector<int32_t> rows{1, 1, 0};
  const Work gathered =
      work_of(*get_rows(leaf(DType::Q8_0, {32, 100}), leaf(DType::I32, {3}, rows.data())).node);
  EXPECT_EQ(gathered.bytes, 2 * 34 + 3 * 4 + 3 * 32 * 4);
  const Tensor x = f32({8, 3});
  EXPECT_EQ(work_of(*x.node).bytes, 0);
  EXPECT_EQ(work_of(*view(x, {4}).node).bytes, 0);
  const Tensor unread = scale(x, 2.f);
  EXPECT_GT(work_of(*unread.node).bytes, 0);
  g.drop_unread();
  EXPECT_EQ(work_of(*unread.node).bytes, 0);
}

TEST_F(WorkOf, Adds) {
  Work w{1, 2, Precision::F32};
  w += {3, 4, Precision::BF16};
  w += {0, 0, Precision::F32};
  EXPECT_EQ(w.operations, 4);
  EXPECT_EQ(w.bytes, 6);
  EXPECT_EQ(w.precision, Precision::BF16);
}

}  // namespace
}  // namespace tandem
