#include <gtest/gtest.h>

#include "tests/op/case_builder.h"

namespace tandem {
namespace {

TEST(SsmConv, RefusesShapesThatDoNotFit) {
  HarnessBuilder harness("misfits");
  CaseBuilder& c = harness;
  const Tensor m = c.input("m", {8, 5}), w = c.constant("w", {4, 8}), state = c.input("state", {8, 3});
  const Tensor ids = c.ids_of("positions", {5}, {0, 1, 2, 3, 4});
  EXPECT_EQ(ssm_conv(m, w, state, ids).shape(), m.shape());
  EXPECT_THROW(ssm_conv(m, c.constant("turned", {8, 4}), state, ids), Error);
  EXPECT_THROW(ssm_conv(m, c.constant("one tap", {1, 8}), c.input("empty", {8, 0}), ids), Error);
  EXPECT_THROW(ssm_conv(m, w, c.input("wide", {8, 4}), ids), Error);
  EXPECT_THROW(ssm_conv(m, w, c.input("taps first", {3, 8}), ids), Error);
  EXPECT_THROW(ssm_conv(m, w, state, c.ids_of("four", {4}, {0, 1, 2, 3})), Error);
  EXPECT_THROW(ssm_conv(m, w, state, c.input("not ids", {5})), Error);
  EXPECT_THROW(conv_state(c.input("short", {7, 2}), state), Error);
}

}  // namespace
}  // namespace tandem
