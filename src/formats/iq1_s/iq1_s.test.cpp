#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatIQ1S, DecodesThePatternBlock) {  // quantization.md 6
  const std::vector<uint8_t> block = pattern_block(DType::IQ1_S, {{0, 0x3800}});
  const std::vector<float> y = decode(DType::IQ1_S, block);
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {-1.3125f, 0.1875f, 1.6875f, 1.6875f});
  expect_values(y, 128, {-3.9375f, 5.0625f, -3.9375f, 5.0625f});
  EXPECT_EQ(sums_of(y).s1, 10.0);
  EXPECT_EQ(sums_of(y).s2, -5914.5);
}

// One group has the last entry; its 32 elements have scale 5 and are lowered, not raised.
TEST(FormatIQ1S, EachGroupHasItsFields) {
  for (size_t g = 0; g < 32; ++g) {
    std::vector<uint8_t> block(50, 0);
    block[0] = 0x00, block[1] = 0x3c;
    const size_t b = g / 4, l = g % 4;
    block[2 + g] = 255;
    const uint32_t high = 7u << 3 * l | 5u << 12 | 1u << 15;
    block[34 + 2 * b] = static_cast<uint8_t>(high), block[35 + 2 * b] = static_cast<uint8_t>(high >> 8);
    const std::vector<float> y = decode(DType::IQ1_S, block);
    for (size_t e = 0; e < 256; ++e) {
      const float want = e / 8 == g ? 11 * 0.875f : e / 32 == b ? 11 * -1.125f : -0.875f;
      EXPECT_EQ(y[e], want) << g << " " << e;
    }
  }
}

TEST(FormatIQ1S, DecodesExtremeValues) {
  std::vector<uint8_t> block(50, 0xff);  // the last entry, the largest scale, lowered
  block[0] = 0xff, block[1] = 0x7b;
  const std::vector<float> y = decode(DType::IQ1_S, block);
  for (size_t e = 0; e < 256; ++e) EXPECT_EQ(y[e], 65504.0f * 15.0f * 0.875f) << e;
  block.assign(50, 0);
  block[0] = 0x01, block[1] = 0x80;
  for (float v : decode(DType::IQ1_S, block)) EXPECT_EQ(v, 0.875f * 0x1p-24f);
}

TEST(FormatIQ1S, IsNotWritten) { EXPECT_EQ(type_info(DType::IQ1_S).codec->encode, nullptr); }

TEST(FormatIQ1S, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::IQ1_S, random_blocks(DType::IQ1_S, n, {0}, 5));
  expect_kernels_equal_reference(DType::IQ1_S, std::vector<uint8_t>(50 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
