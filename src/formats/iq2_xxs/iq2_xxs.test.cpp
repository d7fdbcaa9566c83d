#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatIQ2XXS, DecodesThePatternBlock) {  // quantization.md 6
  const std::vector<uint8_t> block = pattern_block(DType::IQ2_XXS, {{0, 0x3800}});
  const std::vector<float> y = decode(DType::IQ2_XXS, block);
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {-29.5625f, 29.5625f, 17.1875f, -17.1875f});
  expect_values(y, 128, {-48.4375f, 15.5f, 48.4375f, -48.4375f});
  EXPECT_EQ(sums_of(y).s1, 381.875);
  EXPECT_EQ(sums_of(y).s2, 18396.5);
}

// One group has the last entry, its first sign and so its last one; the scale of its 32 elements is 9.
TEST(FormatIQ2XXS, EachGroupHasItsFields) {
  for (size_t g = 0; g < 32; ++g) {
    std::vector<uint8_t> block(66, 0);
    block[0] = 0x00, block[1] = 0x3c;
    const size_t b = g / 4, l = g % 4;
    block[2 + 8 * b + l] = 255;
    const uint32_t signs_scale = 1u << 7 * l | 9u << 28;
    for (size_t i = 0; i < 4; ++i) block[6 + 8 * b + i] = static_cast<uint8_t>(signs_scale >> 8 * i);
    const float want[8] = {-8, 25, 8, 8, 25, 43, 43, -43};
    const std::vector<float> y = decode(DType::IQ2_XXS, block);
    for (size_t e = 0; e < 256; ++e) {
      const float step = e / 32 == b ? 2.375f : 0.125f;
      EXPECT_EQ(y[e], e / 8 == g ? step * want[e % 8] : step * 8.0f) << g << " " << e;
    }
  }
}

TEST(FormatIQ2XXS, DecodesExtremeValues) {
  std::vector<uint8_t> block(66, 0xff);  // the last entry, the largest scale, all signs
  const float last[8] = {8, 25, 8, 8, 25, 43, 43, 43};
  block[0] = 0xff, block[1] = 0x7b;
  const std::vector<float> y = decode(DType::IQ2_XXS, block);
  for (size_t e = 0; e < 256; ++e) EXPECT_EQ(y[e], -65504.0f * 3.875f * last[e % 8]) << e;
  block.assign(66, 0);
  block[0] = 0x01, block[1] = 0x80;
  for (float v : decode(DType::IQ2_XXS, block)) EXPECT_EQ(v, -0x1p-24f);
}

TEST(FormatIQ2XXS, IsNotWritten) { EXPECT_EQ(type_info(DType::IQ2_XXS).codec->encode, nullptr); }

TEST(FormatIQ2XXS, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::IQ2_XXS, random_blocks(DType::IQ2_XXS, n, {0}, 5));
  expect_kernels_equal_reference(DType::IQ2_XXS, std::vector<uint8_t>(66 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
