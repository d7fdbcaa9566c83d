#include <gtest/gtest.h>

#include <algorithm>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatQ3K, DecodesThePatternBlock) {  // quantization.md 6
  const std::vector<float> y = decode(DType::Q3_K, pattern_block(DType::Q3_K, {{108, 0x3800}}));
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {40.5f, -54.0f, 13.5f, -27.0f});
  expect_values(y, 128, {1.0f, 0.0f, -1.0f, -2.0f});
  EXPECT_EQ(sums_of(y).s1, 479.0);
  EXPECT_EQ(sums_of(y).s2, 88572.5);
}

// Scale j = 2j - 15, from -15 to 15, and every code -4: the bytes by hand from the packing rule.
TEST(FormatQ3K, EachSubBlockHasItsScale) {
  std::vector<uint8_t> block(110, 0);
  for (int j = 0; j < 16; ++j) {
    const int six_bits = 2 * j - 15 + 32;
    uint8_t& low = block[static_cast<size_t>(96 + j % 8)];
    uint8_t& high = block[static_cast<size_t>(104 + j % 4)];
    low = static_cast<uint8_t>(low | (six_bits & 15) << (j < 8 ? 0 : 4));
    high = static_cast<uint8_t>(high | (six_bits >> 4) << 2 * (j / 4));
  }
  block[109] = 0x3c;  // 1
  const std::vector<float> y = decode(DType::Q3_K, block);
  for (int i = 0; i < 256; ++i)
    EXPECT_EQ(y[static_cast<size_t>(i)], -4.0f * static_cast<float>(2 * (i / 16) - 15)) << i;
}

// Each bit of the high mask lifts one element from -4 to 0.
TEST(FormatQ3K, EachHighBitIsOfOneElement) {
  std::vector<uint8_t> block(110, 0);
  std::fill(block.begin() + 104, block.begin() + 108, 0xaa);
  std::fill(block.begin() + 96, block.begin() + 104, 0x11);  // scales 33 - 32
  block[109] = 0x3c;
  for (size_t e = 0; e < 256; ++e) {
    std::fill(block.begin(), block.begin() + 32, 0);
    block[e % 32] = static_cast<uint8_t>(1 << e / 32);
    const std::vector<float> y = decode(DType::Q3_K, block);
    for (size_t i = 0; i < 256; ++i) ASSERT_EQ(y[i], i == e ? 0.0f : -4.0f) << e << " " << i;
  }
}

TEST(FormatQ3K, DecodesExtremeScales) {
  std::vector<uint8_t> block(110, 0);  // scale -32, code -4
  block[108] = 0xff, block[109] = 0x7b;
  for (float v : decode(DType::Q3_K, block)) EXPECT_EQ(v, 128 * 65504.0f);
  block[108] = 0x01, block[109] = 0x80;
  for (float v : decode(DType::Q3_K, block)) EXPECT_EQ(v, -128 * 0x1p-24f);
}

TEST(FormatQ3K, IsNotWritten) { EXPECT_EQ(type_info(DType::Q3_K).codec->encode, nullptr); }

TEST(FormatQ3K, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::Q3_K, random_blocks(DType::Q3_K, n, {108}, 5));
  expect_kernels_equal_reference(DType::Q3_K, std::vector<uint8_t>(110 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
