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
}

}  // namespace
}  // namespace tandem
