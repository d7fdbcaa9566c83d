#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/elementwise/dropout_mask.h"
#include "ops/ops.h"

namespace tandem {
namespace {

DropoutMask mask_of(uint64_t seed, int64_t step, int32_t layer, int32_t stream, double p) {
  return {dropout_key(seed, step, layer, stream), 0, static_cast<uint32_t>(p * 0x1p32), 1.f};
}

constexpr int kTokens = 256, kChannels = 512, kElements = kTokens * kChannels;

std::vector<bool> drawn(const DropoutMask& mask, int64_t first_token = 0) {
  std::vector<bool> keep;
  for (int64_t t = 0; t < kTokens; ++t) {
    const uint64_t row_key = dropout_row_key(mask.key, first_token + t);
    for (int64_t i = 0; i < kChannels; ++i) keep.push_back(dropout_keeps(mask, row_key, i));
  }
  return keep;
}

// The share of places where a[i] and b[i + shift] are both dropped, in standard deviations from its
// expectation for independent masks.
double sigmas(const std::vector<bool>& a, const std::vector<bool>& b, int shift, double p) {
  const int n = static_cast<int>(a.size()) - shift;
  int both = 0;
  for (int i = 0; i < n; ++i) both += !a[static_cast<size_t>(i)] && !b[static_cast<size_t>(i + shift)];
  return std::abs(both - n * p * p) / std::sqrt(n * p * p * (1 - p * p));
}

constexpr double kBound =
    5;  // sigmas: one false alarm in two million draws, and the draws are always the same

TEST(DropoutMask, DropsTheShareAskedFor) {
  for (const double p : {0.05, 0.1, 0.5, 0.9}) {
    const std::vector<bool> keep = drawn(mask_of(42, 7, 3, 1, p));
    double dropped = 0;
    for (const bool k : keep) dropped += !k;
    EXPECT_LT(std::abs(dropped - kElements * p), kBound * std::sqrt(kElements * p * (1 - p))) << p;
  }
}

TEST(DropoutMask, EveryChannelAndTokenDropsItsShare) {
  const double p = 0.3;
  const std::vector<bool> keep = drawn(mask_of(1, 1, 1, 1, p));
  double chi_channels = 0, chi_tokens = 0;
  for (int i = 0; i < kChannels; ++i) {
    double dropped = 0;
    for (int t = 0; t < kTokens; ++t) dropped += !keep[static_cast<size_t>(t * kChannels + i)];
    chi_channels += std::pow(dropped - kTokens * p, 2) / (kTokens * p * (1 - p));
  }
  for (int t = 0; t < kTokens; ++t) {
    double dropped = 0;
    for (int i = 0; i < kChannels; ++i) dropped += !keep[static_cast<size_t>(t * kChannels + i)];
    chi_tokens += std::pow(dropped - kChannels * p, 2) / (kChannels * p * (1 - p));
  }
  // A chi-square of n degrees of freedom has mean n and variance 2 n.
  EXPECT_LT(std::abs(chi_channels - kChannels), kBound * std::sqrt(2.0 * kChannels));
  EXPECT_LT(std::abs(chi_tokens - kTokens), kBound * std::sqrt(2.0 * kTokens));
}

TEST(DropoutMask, NeighboursAreIndependent) {
  const double p = 0.5;
  const std::vector<bool> keep = drawn(mask_of(5, 0, 0, 0, p));
  for (const int shift : {1, 2, 3, 4, 8, 16, kChannels - 1, kChannels, kChannels + 1, 2 * kChannels}) {
    EXPECT_LT(sigmas(keep, keep, shift, p), kBound) << shift;
  }
}

TEST(DropoutMask, EveryPartOfTheKeyMatters) {
  const double p = 0.5;
  const std::vector<bool> keep = drawn(mask_of(0, 0, 0, 0, p));
  EXPECT_LT(sigmas(keep, drawn(mask_of(1, 0, 0, 0, p)), 0, p), kBound);
  EXPECT_LT(sigmas(keep, drawn(mask_of(0, 1, 0, 0, p)), 0, p), kBound);
  EXPECT_LT(sigmas(keep, drawn(mask_of(0, 0, 1, 0, p)), 0, p), kBound);
  EXPECT_LT(sigmas(keep, drawn(mask_of(0, 0, 0, 1, p)), 0, p), kBound);
  EXPECT_LT(sigmas(drawn(mask_of(0, 0, 1, 0, p)), drawn(mask_of(0, 0, 0, 1, p)), 0, p), kBound);
  EXPECT_LT(sigmas(keep, drawn(mask_of(0, 0, 0, 0, p), kTokens), 0, p), kBound);
}

TEST(DropoutMask, ATokenHasItsMaskWhereverItsRangeBegins) {
  const std::vector<bool> whole = drawn(mask_of(3, 1, 4, 1, 0.5)),
                          later = drawn(mask_of(3, 1, 4, 1, 0.5), 100);
  for (size_t i = 0; i < static_cast<size_t>((kTokens - 100) * kChannels); ++i) {
    ASSERT_EQ(whole[i + 100 * kChannels], later[i]) << i;
  }
}

TEST(Dropout, RefusesWhatIsNoProbability) {
  Graph g;
  const Tensor x = g.leaf(DType::F32, {4}, Home::Persistent, static_cast<void*>(nullptr), "x");
  EXPECT_THROW(dropout(x, {1, 1, 0, 0, 0, 1.f}), Error);
  EXPECT_THROW(dropout(x, {1, 1, 0, 0, 0, -0.1f}), Error);
  EXPECT_THROW(dropout(x, {1, 1, 0, 0, 0, std::nanf("")}), Error);
}

}  // namespace
}  // namespace tandem
