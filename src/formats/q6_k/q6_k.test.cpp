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

TEST(FormatQ6K, DecodesTheVector) {  // quantization.md 6
  std::vector<uint8_t> block;
  for (int k = 0; k < 128; ++k) block.push_back(static_cast<uint8_t>(5 * k + 1));
  for (int k = 0; k < 64; ++k) block.push_back(static_cast<uint8_t>(11 * k + 7));
  for (int sc : {1, -2, 3, -4, 5, -6, 7, -8, 127, -128, 11, -12, 13, -14, 15, -16}) {
    block.push_back(static_cast<uint8_t>(sc));
  }
  block.push_back(0x00);
  block.push_back(0x30);
  const std::vector<float> y = decode(DType::Q6_K, block);
  ASSERT_EQ(y.size(), 256u);
  expect_run(y, 0, {2.125f, 0.75f, -0.625f, -4.0f});
  expect_run(y, 16, {-4.25f, -1.5f, 1.25f, 8.0f});
  expect_run(y, 32, {-5.625f, -9.75f, 10.125f, 0.0f});
  expect_run(y, 64, {-20.0f, -10.0f, -10.0f, 0.625f});
  expect_run(y, 128, {269.875f, 95.25f, -79.375f, -508.0f});
  expect_run(y, 144, {-272.0f, -96.0f, 80.0f, 512.0f});
  expect_run(y, 240, {58.0f, 58.0f, 58.0f, 56.0f});
  EXPECT_EQ(sums_of(y).s1, 268.5);
  EXPECT_EQ(sums_of(y).s2, 77332.0);
}

// x[i] = c(i) - 32 with every code c in turn: the extreme of sub-block 0 is -32, of scale 1, so d = -1/128
// and its sc = -128; the other sub-blocks reach -16, 15 and 31.
TEST(FormatQ6K, EncodesARamp) {
  std::vector<float> x(256);
  for (int i = 0; i < 256; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i % 64 - 32);
  const std::vector<uint8_t> block = encode(DType::Q6_K, x);
  EXPECT_EQ(block[208] | block[209] << 8, 0xa000);
  for (int s = 0; s < 16; ++s) {
    const int want[] = {-128, -64, 60, 124};  // round(-128 * scale), scale = M / -32 of M = -32, -16, 15, 31
    EXPECT_EQ(static_cast<int8_t>(block[static_cast<size_t>(192 + s)]), want[s % 4]) << s;
  }
  // Steps are 1, 0.5, -15/32, -31/32.
  const std::vector<float> y = decode(DType::Q6_K, block);
  for (size_t i = 0; i < 256; ++i) {
    const float step[] = {1.0f, 0.5f, 15.0f / 32, 31.0f / 32};
    EXPECT_LE(std::fabs(y[i] - x[i]), i / 16 % 4 == 0 ? 0.0f : 0.5f * step[i / 16 % 4]) << i;
  }
}

// Not off by more than half a step, the error of the 8-bit scale, and the missing 33rd step on one side.
TEST(FormatQ6K, EncodesSubBlocksOfDifferentRange) {
  std::vector<float> x = gaussian(256, 1.0f, 6);
  float largest = 0.0f;
  for (size_t i = 0; i < 256; ++i) {
    x[i] *= static_cast<float>(1 + i / 16);
    largest = std::max(largest, std::fabs(x[i]));
  }
  const std::vector<float> y = decode(DType::Q6_K, encode(DType::Q6_K, x));
  for (size_t i = 0; i < 256; ++i) {
    float extreme = 0.0f;
    for (size_t l = i / 16 * 16; l < i / 16 * 16 + 16; ++l) extreme = std::max(extreme, std::fabs(x[l]));
    EXPECT_LE(std::fabs(x[i] - y[i]), 1.01f * (extreme / 32 + largest / 128)) << i;
  }
}

TEST(FormatQ6K, ZerosEncodeToZeros) {
  EXPECT_EQ(encode(DType::Q6_K, std::vector<float>(512, 0.0f)), std::vector<uint8_t>(420, 0));
}

TEST(FormatQ6K, ASubBlockOfZerosDecodesToZeros) {
  std::vector<float> x = gaussian(256, 1.0f, 7);
  std::fill(x.begin() + 48, x.begin() + 64, 0.0f);
  const std::vector<uint8_t> block = encode(DType::Q6_K, x);
  EXPECT_EQ(block[192 + 3], 0);
  const std::vector<float> y = decode(DType::Q6_K, block);
  for (size_t i = 48; i < 64; ++i) EXPECT_EQ(y[i], 0.0f);
}

TEST(FormatQ6K, RoundTripError) {
  EXPECT_NEAR(round_trip_rmse(DType::Q6_K, gaussian(1 << 18, 0.02f, 4)), 0.0188,
              0.0003);  // quantization.md 7
}

TEST(FormatQ6K, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::Q6_K, random_blocks(DType::Q6_K, n, {208}, 5));
  expect_kernels_equal_reference(DType::Q6_K, std::vector<uint8_t>(210 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
