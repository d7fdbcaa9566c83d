#include <gtest/gtest.h>

#include "ops/ops.h"

namespace tandem {
namespace {

TEST(Repeat, RefusesWhatDoesNotTile) {
  Graph g;
  const Tensor x = g.leaf(DType::F32, {6, 4}, Home::Persistent, static_cast<void*>(nullptr), "x");
  EXPECT_THROW(repeat(x, {9, 4}), Error);
  EXPECT_THROW(repeat(x, {3, 4}), Error);
  EXPECT_THROW(repeat_back(x, {4, 4}), Error);
  EXPECT_THROW(repeat_back(x, {12, 4}), Error);
}

}  // namespace
}  // namespace tandem
