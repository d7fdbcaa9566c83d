#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

void expect_run(const std::vector<float>& y, size_t first, std::initializer_list<float> want) {
  for (float v : want) {
    EXPECT_EQ(y[first], v) << first;
    ++first;
  }
}

TEST(FormatQ5K, DecodesTheVector) {  // quantization.md 6
  std::vector<uint8_t> block = bytes_of_hex("00 38 00 34 01 52 a3 ff ff 07 a1 50 25 26 9f dc");
  for (int k = 0; k < 32; ++k) block.push_back(static_cast<uint8_t>(29 * k + 5));
  for (int k = 0; k < 128; ++k) block.push_back(static_cast<uint8_t>(7 * k + 3));
  const std::vector<float> y = decode(DType::Q5_K, block);
  ASSERT_EQ(y.size(), 256u);
  expect_run(y, 0, {-6.25f, -10.75f, -7.25f, -11.75f});
  expect_run(y, 32, {-1.75f, 142.25f, 151.25f, 7.25f});
  expect_run(y, 64, {324.25f, 166.75f, 289.25f, 411.75f});
  expect_run(y, 96, {437.0f, 437.0f, 972.5f, 972.5f});
  expect_run(y, 128, {-5.0f, 12.5f, 30.0f, 47.5f});
  expect_run(y, 192, {60.25f, 224.75f, 13.25f, 553.75f});
  EXPECT_EQ(sums_of(y).s1, 58192.0);
  EXPECT_EQ(sums_of(y).s2, 9220878.0);
}

// Sub-blocks 0, 1, ..., 31 (and again) need scale 1/63 * 63 and no minimum.
TEST(FormatQ5K, EncodesARamp) {
  std::vector<float> x(256);
  for (int i = 0; i < 256; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i % 32);
  const std::vector<uint8_t> block = encode(DType::Q5_K, x);
  // d = 1/63 in binary16, dmin = 0; sc = 63 and mn = 0 throughout.
  EXPECT_EQ(std::vector<uint8_t>(block.begin(), block.begin() + 16),
            bytes_of_hex("1024 0000 ffffffff 00000000 0f0f0f0f"));
  {
    for (int k = 0; k < 128; ++k) {
      // Elements 64c + l and 64c + 32 + l have the same code.
      ASSERT_EQ(block[static_cast<size_t>(48 + k)], 17 * (k % 16)) << k;
    }
    for (int l = 0; l < 32; ++l) ASSERT_EQ(block[static_cast<size_t>(16 + l)], l < 16 ? 0x00 : 0xff) << l;
  }
}

// Eight sub-blocks of different range and minimum: each scale is found again, and no value is off by more
// than half a step of the codes and the rounding of the 6-bit scale and minimum.
TEST(FormatQ5K, EncodesSubBlocksOfDifferentRange) {
  std::vector<float> x = gaussian(256, 1.0f, 6);
  for (int i = 0; i < 256; ++i) {
    const int j = i / 32;
    x[static_cast<size_t>(i)] =
        x[static_cast<size_t>(i)] * static_cast<float>(1 + j) + static_cast<float>(3 * (j % 3)) - 4.0f;
  }
  const std::vector<float> y = decode(DType::Q5_K, encode(DType::Q5_K, x));
  float largest_range = 0.0f, largest_minimum = 0.0f;
  const auto range_of = [&](int j) {
    const auto [low, high] = std::minmax_element(x.begin() + 32 * j, x.begin() + 32 * j + 32);
    return std::pair{std::min(0.0f, *low), *high};
  };
  for (int j = 0; j < 8; ++j) {
    const auto [low, high] = range_of(j);
    largest_range = std::max(largest_range, high - low);
    largest_minimum = std::max(largest_minimum, -low);
  }
  for (int i = 0; i < 256; ++i) {
    const auto [low, high] = range_of(i / 32);
    // A scale is off by half of 1/63 of the largest, which the largest code multiplies; 1 % for binary16.
    const float bound = 1.01f * (0.5f * (high - low + largest_range / 63) / 31 + 0.5f * largest_range / 63 +
                                 0.5f * largest_minimum / 63);
    EXPECT_LE(std::fabs(x[static_cast<size_t>(i)] - y[static_cast<size_t>(i)]), bound) << i;
  }
}

TEST(FormatQ5K, ZerosEncodeToZeros) {
  EXPECT_EQ(encode(DType::Q5_K, std::vector<float>(512, 0.0f)), std::vector<uint8_t>(2 * 176, 0));
}

TEST(FormatQ5K, ConstantBlocksKeepTheirSign) {
  for (float value : {-1.0f, 1.0f}) {
    for (float v : decode(DType::Q5_K, encode(DType::Q5_K, std::vector<float>(256, value)))) {
      EXPECT_NEAR(v, value, 1e-3f);
    }
  }
}

TEST(FormatQ5K, RoundTripError) {
  EXPECT_NEAR(round_trip_rmse(DType::Q5_K, gaussian(1 << 18, 0.02f, 4)), 0.038, 0.0008);  // quantization.md 7
}

TEST(FormatQ5K, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::Q5_K, random_blocks(DType::Q5_K, n, {0, 2}, 5));
  expect_kernels_equal_reference(DType::Q5_K, std::vector<uint8_t>(176 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
