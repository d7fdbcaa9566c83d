#include <gtest/gtest.h>

#include "ops/ops.h"

namespace tandem {
namespace {

TEST(TopK, RefusesMoreThanThereAre) {
  Graph g;
  const Tensor x = g.leaf(DType::F32, {6, 4}, Home::Persistent, static_cast<void*>(nullptr), "x");
  EXPECT_THROW(top_k(x, 7), Error);
  EXPECT_THROW(top_k(x, 0), Error);
  EXPECT_EQ(top_k(x, 6).type(), DType::I32);
  EXPECT_NO_THROW(top_k(x, 4, {3, 2, 2}));
  EXPECT_THROW(top_k(x, 5, {3, 2, 2}), Error);  // two groups hold four
  EXPECT_THROW(top_k(x, 1, {4, 2, 1}), Error);  // six are no four groups
  EXPECT_THROW(top_k(x, 1, {3, 4, 1}), Error);
  EXPECT_THROW(top_k(x, 1, {3, 2, 3}), Error);
  EXPECT_THROW(top_k(x, 1, {3, 0, 1}), Error);
  EXPECT_THROW(top_k(x, 1, {0, 1, 1}), Error);
}

}  // namespace
}  // namespace tandem
