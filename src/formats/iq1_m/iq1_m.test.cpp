#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

// Puts d, four bits a word, into the scales of the block that begins at `first`.
void set_d(std::vector<uint8_t>& blocks, size_t first, uint16_t d) {
  for (size_t w = 0; w < 4; ++w) {
    uint8_t& top = blocks[first + 49 + 2 * w];
    top = static_cast<uint8_t>((top & 15) | ((d >> 4 * w) & 15) << 4);
  }
}

TEST(FormatIQ1M, DecodesThePatternBlock) {  // quantization.md 6
  std::vector<uint8_t> block = pattern_block(DType::IQ1_M, {});
  set_d(block, 0, 0x3800);
  const std::vector<uint8_t> scales(block.begin() + 48, block.end());
  EXPECT_EQ(scales, bytes_of_hex("fb 00 45 0a 8f 84 d9 3e"));
  const std::vector<float> y = decode(DType::IQ1_M, block);
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {-0.4375f, 3.0625f, -0.4375f, -0.4375f});
  expect_values(y, 128, {0.9375f, 0.9375f, -6.5625f, -6.5625f});
  EXPECT_EQ(sums_of(y).s1, 20.5);
  EXPECT_EQ(sums_of(y).s2, -1118.0);
}

// One group has the last entry and is lowered, not raised; its 16 elements have scale 5.
TEST(FormatIQ1M, EachGroupHasItsFields) {
  for (size_t g = 0; g < 32; ++g) {
    std::vector<uint8_t> block(56, 0);
    set_d(block, 0, 0x3c00);
    const size_t h = g / 2;
    block[g] = 255;
    block[32 + h] = static_cast<uint8_t>(g % 2 ? 0xf0 : 0x0f);
    const uint32_t scales = 5u << 3 * (h % 4);
    block[48 + h / 4 * 2] = static_cast<uint8_t>(block[48 + h / 4 * 2] | (scales & 0xff));
    block[49 + h / 4 * 2] = static_cast<uint8_t>(block[49 + h / 4 * 2] | scales >> 8);
    const std::vector<float> y = decode(DType::IQ1_M, block);
    for (size_t e = 0; e < 256; ++e) {
      const float want = (e / 16 == h ? 11.0f : 1.0f) * (e / 8 == g ? 0.875f : -0.875f);
      EXPECT_EQ(y[e], want) << g << " " << e;
    }
  }
}

TEST(FormatIQ1M, DecodesExtremeValues) {
  std::vector<uint8_t> block(56, 0xff);  // the last entry, the largest scale, lowered
  set_d(block, 0, 0x7bff);
  const std::vector<float> y = decode(DType::IQ1_M, block);
  for (size_t e = 0; e < 256; ++e) EXPECT_EQ(y[e], 65504.0f * 15.0f * 0.875f) << e;
  block.assign(56, 0);
  set_d(block, 0, 0x8001);
  for (float v : decode(DType::IQ1_M, block)) EXPECT_EQ(v, 0.875f * 0x1p-24f);
}

TEST(FormatIQ1M, IsNotWritten) { EXPECT_EQ(type_info(DType::IQ1_M).codec->encode, nullptr); }

TEST(FormatIQ1M, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301}) {
    std::vector<uint8_t> blocks = random_blocks(DType::IQ1_M, n, {}, 5);
    for (int64_t i = 0; i < n; ++i)  // all signs, and exponents from subnormal to the largest
      set_d(blocks, static_cast<size_t>(56 * i), static_cast<uint16_t>(i % 2 << 15 | i % 31 << 10 | i));
    expect_kernels_equal_reference(DType::IQ1_M, blocks);
  }
  expect_kernels_equal_reference(DType::IQ1_M, std::vector<uint8_t>(56 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
