#include <gtest/gtest.h>

#include "ops/ops.h"

namespace tandem {
namespace {

TEST(CrossEntropyLoss, RefusesShapesThatDoNotFit) {
  Graph g;
  const Tensor logits = g.leaf(DType::F32, {9, 4}, Home::Persistent, static_cast<void*>(nullptr), "logits");
  const Tensor labels = g.leaf(DType::I32, {4}, Home::Persistent, static_cast<void*>(nullptr), "labels");
  EXPECT_NO_THROW(cross_entropy_loss(logits, labels));
  EXPECT_THROW(cross_entropy_loss(logits, view(labels, {3})), Error);
  EXPECT_THROW(cross_entropy_loss(logits, logits), Error);
  EXPECT_THROW(cross_entropy_loss_back(logits, labels, view(logits, {3})), Error);
}

}  // namespace
}  // namespace tandem
