#include <gtest/gtest.h>

#include "ops/ops.h"

namespace tandem {
namespace {

RopeParams neox(int n_rot) { return {.kind = RopeKind::Neox, .n_rot = n_rot}; }

TEST(Rope, RefusesWhatDoesNotFit) {
  Graph g;
  const Tensor x = g.leaf(DType::F32, {16, 2, 5}, Home::Persistent, static_cast<void*>(nullptr), "x");
  const Tensor pos = g.leaf(DType::I32, {5}, Home::Persistent, static_cast<void*>(nullptr), "pos");
  RopeParams imrope = neox(16);
  imrope.sections[0] = imrope.sections[1] = 3;
  imrope.sections[2] = 2;
  EXPECT_NO_THROW(rope(x, pos, {}, neox(16)));
  EXPECT_THROW(rope(x, pos, {}, neox(18)), Error);
  EXPECT_THROW(rope(x, pos, {}, neox(7)), Error);
  EXPECT_THROW(rope(x, view(pos, {4}), {}, neox(16)), Error);
  EXPECT_THROW(rope(x, pos, {}, imrope), Error);
  EXPECT_THROW(rope(x, pos, view(x, {4}), neox(16)), Error);
  RopeParams no_context = neox(16);
  no_context.yarn_factor = 32.f;
  EXPECT_THROW(rope(x, pos, {}, no_context), Error);
}

}  // namespace
}  // namespace tandem
