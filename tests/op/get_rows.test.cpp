#include <gtest/gtest.h>

#include "ops/ops.h"

namespace tandem {
namespace {

TEST(GetRows, RefusesShapesThatDoNotFit) {
  Graph g;
  const Tensor x = g.leaf(DType::F32, {6, 4, 2}, Home::Persistent, static_cast<void*>(nullptr), "x");
  const Tensor ids = g.leaf(DType::I32, {3, 2}, Home::Persistent, static_cast<void*>(nullptr), "ids");
  EXPECT_NO_THROW(get_rows(x, ids));
  EXPECT_THROW(get_rows(x, view(ids, {3})), Error);
  EXPECT_THROW(get_rows(x, x), Error);
  EXPECT_THROW(get_rows_back(x, ids, 4), Error);
}

}  // namespace
}  // namespace tandem
