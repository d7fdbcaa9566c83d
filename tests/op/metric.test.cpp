#include "tests/op/metric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

TEST(Metric, EqualPassesAndErrorIsRelativeToTheMaximum) {
  EXPECT_TRUE(compare(Values{1, -4, 0}, Values{1, -4, 0}, 0).pass);
  EXPECT_TRUE(compare(Values{1, -4, 0.003}, Values{1, -4, 0}, 1e-3).pass);
  EXPECT_FALSE(compare(Values{1, -4, 0.005}, Values{1, -4, 0}, 1e-3).pass);
  EXPECT_TRUE(compare(Values{1, -4, 0.005}, Values{1, -4, 0}, 1e-3, 2e-3).pass);
  EXPECT_DOUBLE_EQ(compare(Values{1, -4.5}, Values{1, -4}, 1e-3).error, 0.5);
}

TEST(Metric, NanAndInfinityFailOnEitherSide) {
  for (double bad : {kNan, -kNan, kInf, -kInf}) {
    EXPECT_FALSE(compare(Values{1, bad}, Values{1, 2}, 1e9).pass);
    EXPECT_FALSE(compare(Values{1, 2}, Values{1, bad}, 1e9).pass);
    EXPECT_FALSE(compare(Values{bad}, Values{bad}, 1e9).pass);
    EXPECT_FALSE(compare_scaled(Values{1, bad}, Values{1, 2}, 1e9, 1).pass);
    EXPECT_FALSE(compare_scaled(Values{1, 2}, Values{1, 2}, 1e9, bad).pass);
    EXPECT_FALSE(compare_sets({{"a", {bad}}}, {{"a", {1}}}, 1e9, 1e9).pass);
  }
}

TEST(Metric, NanToleranceFails) {
  EXPECT_FALSE(compare(Values{1}, Values{1}, kNan).pass);
  EXPECT_FALSE(compare(Values{1}, Values{1}, 0, kNan).pass);
}

TEST(Metric, BothZeroFails) {
  EXPECT_FALSE(compare(Values{0, 0}, Values{0, 0}, 1).pass);
  EXPECT_FALSE(compare(Values{0, -0.0}, Values{0, 0}, 1, 1).pass);
  EXPECT_FALSE(compare_scaled(Values{0, 0}, Values{0, 0}, 1, 1).pass);
  EXPECT_FALSE(compare_sets({{"a", {0}}, {"b", {1}}}, {{"a", {0}}, {"b", {1}}}, 1, 1).pass);
}

TEST(Metric, ZerosAgainstValuesFail) {
  EXPECT_FALSE(compare(Values{0, 0}, Values{1, 2}, 1e-5).pass);
  EXPECT_FALSE(compare(Values{1, 2}, Values{0, 0}, 1e-5).pass);
}

TEST(Metric, EmptyAndWrongCountFail) {
  EXPECT_FALSE(compare(Values{}, Values{}, 1).pass);
  EXPECT_FALSE(compare(Values{1}, Values{1, 2}, 1e9).pass);
  EXPECT_FALSE(compare(Values{1, 2}, Values{1}, 1e9).pass);
  EXPECT_FALSE(compare_sets({}, {}, 1).pass);
}

TEST(Metric, PermutedFails) {
  EXPECT_FALSE(compare(Values{1, 2, 3}, Values{3, 2, 1}, 1e-5).pass);
  EXPECT_FALSE(compare_sets({{"a", {1, 2}}, {"b", {3, 4}}}, {{"a", {3, 4}}, {"b", {1, 2}}}, 1e-5).pass);
}

TEST(Metric, MissingAndForeignTensorsFail) {
  EXPECT_TRUE(compare_sets({{"a", {1}}, {"b", {2}}}, {{"a", {1}}, {"b", {2}}}, 1e-5).pass);
  const Verdict missing = compare_sets({{"a", {1}}}, {{"a", {1}}, {"b", {2}}}, 1e-5);
  EXPECT_FALSE(missing.pass);
  EXPECT_NE(missing.message.find("missing: b"), std::string::npos);
  EXPECT_FALSE(compare_sets({{"a", {1}}, {"b", {2}}}, {{"a", {1}}}, 1e-5).pass);
  EXPECT_FALSE(compare_sets({{"c", {1}}}, {{"a", {1}}}, 1e-5).pass);
}

TEST(Metric, OneBadTensorOfManyFails) {
  const Verdict v =
      compare_sets({{"a", {1}}, {"b", {2.1}}, {"c", {3}}}, {{"a", {1}}, {"b", {2}}, {"c", {3}}}, 1e-5);
  EXPECT_FALSE(v.pass);
  EXPECT_EQ(v.message.substr(0, 2), "b:");
}

TEST(Metric, ASmallTensorIsNotMeasuredAgainstALargeOne) {
  EXPECT_FALSE(compare_sets({{"a", {1e6}}, {"b", {2e-6}}}, {{"a", {1e6}}, {"b", {1e-6}}}, 1e-5).pass);
}

TEST(Metric, SlicesAreMeasuredEachAgainstItself) {
  const Values want = {1e6, -2e6, 1e-3, 2e-3, 0, 0};
  EXPECT_TRUE(compare_slices(want, want, 3, 0).pass);
  EXPECT_TRUE(compare(Values{1e6, -2e6, 2e-3, 1e-3, 0, 0}, want, 1e-5).pass);  // what slices are for
  EXPECT_FALSE(compare_slices(Values{1e6, -2e6, 2e-3, 1e-3, 0, 0}, want, 3, 1e-5).pass);  // permuted
  EXPECT_FALSE(compare_slices(Values{1e6, -2e6, 0, 0, 0, 0}, want, 3, 1e-5).pass);  // an expert left out
  EXPECT_FALSE(compare_slices(Values{1e6, -2e6, 1e-3, 2e-3, 1e-30, 0}, want, 3, 1e-5).pass);
  EXPECT_FALSE(compare_slices(Values{1e6, -2e6, 1e-3, kNan, 0, 0}, want, 3, 1e9).pass);
  EXPECT_FALSE(compare_slices(Values{0, 0, 0, 0}, Values{0, 0, 0, 0}, 2, 1).pass);
  EXPECT_FALSE(compare_slices(Values{}, Values{}, 1, 1).pass);
  EXPECT_FALSE(compare_slices(want, want, 4, 1).pass);
  EXPECT_FALSE(compare_slices(want, want, 0, 1).pass);
}

TEST(Metric, Ids) {
  using Ids = std::vector<int32_t>;
  EXPECT_TRUE(compare_ids(Ids{1, 2}, Ids{1, 2}).pass);
  EXPECT_FALSE(compare_ids(Ids{2, 1}, Ids{1, 2}).pass);
  EXPECT_FALSE(compare_ids(Ids{1}, Ids{1, 2}).pass);
  EXPECT_FALSE(compare_ids(Ids{}, Ids{}).pass);
}

}  // namespace
}  // namespace tandem
