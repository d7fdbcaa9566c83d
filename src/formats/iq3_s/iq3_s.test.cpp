#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatIQ3S, DecodesThePatternBlock) {  // quantization.md 6
  const std::vector<uint8_t> block = pattern_block(DType::IQ3_S, {{0, 0x3800}});
  const std::vector<float> y = decode(DType::IQ3_S, block);
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {-40.5f, 121.5f, -175.5f, -94.5f});
  expect_values(y, 128, {-52.5f, 82.5f, -52.5f, -112.5f});
  EXPECT_EQ(sums_of(y).s1, 728.0);
  EXPECT_EQ(sums_of(y).s2, 101395.0);
}

// One group has the last entry in its second half and its first sign alone; the scale of its 32 elements
// is 9.
TEST(FormatIQ3S, EachGroupHasItsFields) {
  for (size_t g = 0; g < 32; ++g) {
    std::vector<uint8_t> block(110, 0);
    block[0] = 0x00, block[1] = 0x3c;
    const size_t b = g / 4;
    block[2 + 2 * g + 1] = 255;
    block[66 + b] = static_cast<uint8_t>(2 << 2 * (g % 4));
    block[74 + g] = 1;
    block[106 + b / 2] = static_cast<uint8_t>(b % 2 ? 0x90 : 0x09);
    const float want[8] = {-1, 1, 1, 1, 1, 1, 15, 15};
    const std::vector<float> y = decode(DType::IQ3_S, block);
    for (size_t e = 0; e < 256; ++e) {
      const float step = e / 32 == b ? 19.0f : 1.0f;
      EXPECT_EQ(y[e], e / 8 == g ? step * want[e % 8] : step * 1.0f) << g << " " << e;
    }
  }
}

TEST(FormatIQ3S, DecodesExtremeValues) {
  std::vector<uint8_t> block(110, 0xff);  // the last entry, the largest scale, all signs
  const float last[4] = {1, 1, 15, 15};
  block[0] = 0xff, block[1] = 0x7b;
  const std::vector<float> y = decode(DType::IQ3_S, block);
  for (size_t e = 0; e < 256; ++e) EXPECT_EQ(y[e], -65504.0f * 31.0f * last[e % 4]) << e;
  block.assign(110, 0);
  block[0] = 0x01, block[1] = 0x80;
  for (float v : decode(DType::IQ3_S, block)) EXPECT_EQ(v, -0x1p-24f);
}

TEST(FormatIQ3S, IsNotWritten) { EXPECT_EQ(type_info(DType::IQ3_S).codec->encode, nullptr); }

TEST(FormatIQ3S, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::IQ3_S, random_blocks(DType::IQ3_S, n, {0}, 5));
  expect_kernels_equal_reference(DType::IQ3_S, std::vector<uint8_t>(110 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
