#include "models/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace tandem {
namespace {

constexpr int kDraws = 20000;

// How often each token is drawn.
template <size_t N>
std::array<int, N> count(const std::array<float, N>& logits, const SamplerSettings& settings) {
  Sampler sampler(settings);
  std::array<int, N> n{};
  for (int i = 0; i < kDraws; ++i) ++n[static_cast<size_t>(sampler.sample(logits))];
  return n;
}

// The sum over tokens of (drawn - expected)^2 / expected; a token of probability 0 must never be drawn.
template <size_t N>
double chi_square(const std::array<int, N>& drawn, const std::array<double, N>& p) {
  double sum = 0;
  for (size_t i = 0; i < N; ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(drawn[i], 0) << "token " << i;
      continue;
    }
    const double expected = p[i] * kDraws;
    sum += (drawn[i] - expected) * (drawn[i] - expected) / expected;
  }
  return sum;
}

// A chi-square variable of at most 4 degrees of freedom exceeds this once in a million.
constexpr double kLimit = 33.4;

// log of 1:2:3:4, in another order than their ids.
const std::array<float, 4> kLogits{std::log(3.f), std::log(1.f), std::log(4.f), std::log(2.f)};
constexpr SamplerSettings kPlain{.temp = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 7};

TEST(Sampler, GreedyTakesTheLargestAndTheSmallerIdOnTies) {
  Sampler sampler(SamplerSettings{});
  EXPECT_EQ(sampler.sample(kLogits), 2);
  EXPECT_EQ(sampler.sample(std::array{1.f, 5.f, 5.f, 2.f}), 1);
  const auto top = top_logits(std::array{1.f, 5.f, 5.f, 2.f}, 3);
  EXPECT_EQ(top, (std::vector<std::pair<int32_t, float>>{{1, 5.f}, {2, 5.f}, {3, 2.f}}));
  EXPECT_EQ(top_logits(std::array{1.f, 2.f}, 9).size(), 2u);
}

TEST(Sampler, DrawsTheSoftmax) {
  EXPECT_LT(chi_square<4>(count(kLogits, kPlain), {0.3, 0.1, 0.4, 0.2}), kLimit);
}

TEST(Sampler, TemperatureComesAfterTheFilters) {
  SamplerSettings s = kPlain;
  s.temp = 0.5f;  // 9:1:16:4
  EXPECT_LT(chi_square<4>(count(kLogits, s), {9. / 30, 1. / 30, 16. / 30, 4. / 30}), kLimit);
  s.top_p = 0.85f;  // 4, 3 and 2 hold 0.9 of the plain softmax; of the sharpened one, 4 and 3 would do
  EXPECT_LT(chi_square<4>(count(kLogits, s), {9. / 29, 0, 16. / 29, 4. / 29}), kLimit);
}

TEST(Sampler, FiltersKeepTheLikeliest) {
  SamplerSettings s = kPlain;
  s.top_k = 2;
  EXPECT_LT(chi_square<4>(count(kLogits, s), {3. / 7, 0, 4. / 7, 0}), kLimit);
  s = kPlain;
  s.top_p = 0.65f;
  EXPECT_LT(chi_square<4>(count(kLogits, s), {3. / 7, 0, 4. / 7, 0}), kLimit);
  s.top_p = 0;
  EXPECT_LT(chi_square<4>(count(kLogits, s), {0, 0, 1, 0}), kLimit);
  s = kPlain;
  s.min_p = 0.49f;  // 2 is half of 4
  EXPECT_LT(chi_square<4>(count(kLogits, s), {3. / 9, 0, 4. / 9, 2. / 9}), kLimit);
  s.min_p = 1;
  EXPECT_LT(chi_square<4>(count(kLogits, s), {0, 0, 1, 0}), kLimit);
}

TEST(Sampler, TopPWorksOnWhatTopKLeft) {
  SamplerSettings s = kPlain;
  s.top_k = 2;
  s.top_p = 0.57f;  // 4 / 7 = 0.571 of what is left, 0.4 of all
  EXPECT_LT(chi_square<4>(count(kLogits, s), {0, 0, 1, 0}), kLimit);
}

TEST(Sampler, ASeedRepeatsAndAnotherDiffers) {
  SamplerSettings other = kPlain;
  other.seed = 8;
  Sampler a(kPlain), b(kPlain), c(other);
  int n_differ = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t token = a.sample(kLogits);
    EXPECT_EQ(token, b.sample(kLogits));
    n_differ += token != c.sample(kLogits);
  }
  EXPECT_GT(n_differ, 30);
}

}  // namespace
}  // namespace tandem
