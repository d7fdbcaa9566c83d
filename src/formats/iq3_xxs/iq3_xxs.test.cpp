#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatIQ3XXS, DecodesThePatternBlock) {  // quantization.md 6
  const std::vector<uint8_t> block = pattern_block(DType::IQ3_XXS, {{0, 0x3800}});
  const std::vector<float> y = decode(DType::IQ3_XXS, block);
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {-6.5f, 4.5f, -3.5f, 1.5f});
  expect_values(y, 128, {-27.5f, 60.5f, -27.5f, 85.25f});
  EXPECT_EQ(sums_of(y).s1, -342.0);
  EXPECT_EQ(sums_of(y).s2, 1511.5);
}

// One group has the last entry in its second half, its first sign and so its last one; the scale of its 32
// elements is 9.
TEST(FormatIQ3XXS, EachGroupHasItsFields) {
  for (size_t g = 0; g < 32; ++g) {
    std::vector<uint8_t> block(98, 0);
    block[0] = 0x00, block[1] = 0x3c;
    const size_t b = g / 4, l = g % 4;
    block[2 + 2 * g + 1] = 255;
    const uint32_t signs_scale = 1u << 7 * l | 9u << 28;
    for (size_t i = 0; i < 4; ++i) block[66 + 4 * b + i] = static_cast<uint8_t>(signs_scale >> 8 * i);
    const float want[8] = {-4, 4, 4, 4, 4, 28, 52, -62};
    const std::vector<float> y = decode(DType::IQ3_XXS, block);
    for (size_t e = 0; e < 256; ++e) {
      const float step = e / 32 == b ? 4.75f : 0.25f;
      EXPECT_EQ(y[e], e / 8 == g ? step * want[e % 8] : step * 4.0f) << g << " " << e;
    }
  }
}

TEST(FormatIQ3XXS, DecodesExtremeValues) {
  std::vector<uint8_t> block(98, 0xff);  // the last entry, the largest scale, all signs
  const float last[4] = {4, 28, 52, 62};
  block[0] = 0xff, block[1] = 0x7b;
  const std::vector<float> y = decode(DType::IQ3_XXS, block);
  for (size_t e = 0; e < 256; ++e) EXPECT_EQ(y[e], -65504.0f * 7.75f * last[e % 4]) << e;
  block.assign(98, 0);
  block[0] = 0x01, block[1] = 0x80;
  for (float v : decode(DType::IQ3_XXS, block)) EXPECT_EQ(v, -0x1p-24f);
}

TEST(FormatIQ3XXS, IsNotWritten) { EXPECT_EQ(type_info(DType::IQ3_XXS).codec->encode, nullptr); }

TEST(FormatIQ3XXS, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::IQ3_XXS, random_blocks(DType::IQ3_XXS, n, {0}, 5));
  expect_kernels_equal_reference(DType::IQ3_XXS, std::vector<uint8_t>(98 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
