#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatQ2K, DecodesThePatternBlock) {  // quantization.md 6
  const std::vector<float> y = decode(DType::Q2_K, pattern_block(DType::Q2_K, {{80, 0x3800}, {82, 0x3400}}));
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {16.5f, 0.0f, 5.5f, 11.0f});
  expect_values(y, 128, {3.75f, -0.75f, 0.75f, 2.25f});
  EXPECT_EQ(sums_of(y).s1, 1029.5);
  EXPECT_EQ(sums_of(y).s2, 121565.0);
}

// One sub-block after the other has a scale of its own, and all others none.
TEST(FormatQ2K, EachSubBlockHasItsScaleAndMinimum) {
  for (size_t s = 0; s < 16; ++s) {
    std::vector<uint8_t> block(84, 0xff);  // all codes 3
    for (size_t b = 0; b < 16; ++b) block[b] = b == s ? 0xf2 : 0;
    block[80] = 0x00, block[81] = 0x3c, block[82] = 0x00, block[83] = 0x38;  // 1 and 0.5
    const std::vector<float> y = decode(DType::Q2_K, block);
    for (size_t i = 0; i < 256; ++i) EXPECT_EQ(y[i], i / 16 == s ? 3 * 2 - 15 * 0.5f : 0.0f) << s << " " << i;
  }
}

TEST(FormatQ2K, DecodesExtremeScales) {
  std::vector<uint8_t> block(84, 0xff);  // code 3, scale and minimum 15
  block[80] = 0xff, block[81] = 0x7b, block[82] = 0x01, block[83] = 0x00;
  for (float v : decode(DType::Q2_K, block)) EXPECT_EQ(v, 45 * 65504.0f);
  block[80] = 0x01, block[81] = 0x80;
  for (float v : decode(DType::Q2_K, block)) EXPECT_EQ(v, -60 * 0x1p-24f);
}

TEST(FormatQ2K, IsNotWritten) { EXPECT_EQ(type_info(DType::Q2_K).codec->encode, nullptr); }

TEST(FormatQ2K, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::Q2_K, random_blocks(DType::Q2_K, n, {80, 82}, 5));
  expect_kernels_equal_reference(DType::Q2_K, std::vector<uint8_t>(84 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
