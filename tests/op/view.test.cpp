#include <gtest/gtest.h>

#include "graph/autodiff.h"
#include "ops/ops.h"

namespace tandem {
namespace {

Tensor leaf(Graph& g, const Shape& ne) {
  return g.leaf(DType::F32, ne, Home::Persistent, static_cast<void*>(nullptr), "x");
}

TEST(View, ReshapePassesItsGradientOnWithoutZeros) {
  Graph g;
  Tensor x = leaf(g, {6, 4});
  g.want_grad(x);
  const Seed seed{reshape(x, {3, 8}), leaf(g, {3, 8})};
  const Tensor dx = backward(g, {&seed, 1}, {&x, 1})[0];
  EXPECT_EQ(dx.node->op, Op::VIEW);
  EXPECT_EQ(dx.node->src[0], seed.cotangent.node);
  EXPECT_EQ(dx.shape(), x.shape());
}

TEST(View, ReshapeSpreadsAStridedGradient) {
  Graph g;
  Tensor x = leaf(g, {6, 4});
  g.want_grad(x);
  const Seed seed{reshape(x, {3, 8}), view_strided(leaf(g, {5, 8}), {3, 8}, {4, 20, 160, 160}, 0)};
  const Tensor dx = backward(g, {&seed, 1}, {&x, 1})[0];
  EXPECT_EQ(dx.node->op, Op::VIEW_BACK);
  EXPECT_EQ(dx.shape(), x.shape());
}

TEST(View, LooksIntoTheRoot) {
  Graph g;
  const Tensor x = leaf(g, {8, 6});
  const Tensor inner = view(view_strided(x, {4, 5}, {4, 32, 192, 192}, 32 + 8), {4, 2}, 64);
  EXPECT_EQ(inner.node->src[0], x.node);
  EXPECT_EQ(inner.node->root, x.node);
  EXPECT_EQ(inner.node->root_offset_bytes, 104);
  EXPECT_EQ(inner.node->nb[1], 16);
}

TEST(View, RefusesWhatLiesOutside) {
  Graph g;
  const Tensor x = leaf(g, {8, 6});
  EXPECT_THROW(view(x, {8, 6}, 4), Error);
  EXPECT_THROW(view(x, {8, 7}), Error);
  EXPECT_THROW(view(x, {8, 2}, -4), Error);
  EXPECT_THROW(view(x, {8, 2}, 2), Error);
  EXPECT_THROW(view_strided(x, {8, 6}, {4, 40, 0, 0}, 0), Error);
  EXPECT_THROW(reshape(x, {8, 5}), Error);
  EXPECT_THROW(view(view_strided(x, {4, 6}, {4, 32, 192, 192}, 0), {8, 6}), Error);  // of the window
  EXPECT_THROW(reshape(view_strided(x, {4, 6}, {4, 32, 192, 192}, 0), {24}), Error);
  const Tensor w = g.leaf(DType::Q8_0, {64, 4}, Home::Mapped, static_cast<void*>(nullptr), "w");
  EXPECT_NO_THROW(view(w, {64, 2}, 2 * 68));
  EXPECT_THROW(view(w, {64, 2}, 68 - 4), Error);
}

}  // namespace
}  // namespace tandem
