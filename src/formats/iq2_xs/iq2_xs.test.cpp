#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatIQ2XS, DecodesThePatternBlock) {  // quantization.md 6
  const std::vector<uint8_t> block = pattern_block(DType::IQ2_XS, {{0, 0x3800}});
  const std::vector<float> y = decode(DType::IQ2_XS, block);
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {-5.5f, 17.1875f, -5.5f, -29.5625f});
  expect_values(y, 128, {-9.5f, 51.0625f, -9.5f, -51.0625f});
  EXPECT_EQ(sums_of(y).s1, 745.25);
  EXPECT_EQ(sums_of(y).s2, 61599.0625);
}

// One group has the last entry, its first two signs and so not its last one; the scale of its 16 elements
// is 9.
TEST(FormatIQ2XS, EachGroupHasItsFields) {
  for (size_t g = 0; g < 32; ++g) {
    std::vector<uint8_t> block(74, 0);
    block[0] = 0x00, block[1] = 0x3c;
    block[2 + 2 * g] = 0xff, block[3 + 2 * g] = 0x07;
    block[66 + g / 4] = static_cast<uint8_t>(g % 4 < 2 ? 0x09 : 0x90);
    const float want[8] = {-43, -43, 43, 43, 43, 43, 43, 43};
    const std::vector<float> y = decode(DType::IQ2_XS, block);
    for (size_t e = 0; e < 256; ++e) {
      const float step = e / 16 == g / 2 ? 2.375f : 0.125f;
      EXPECT_EQ(y[e], e / 8 == g ? step * want[e % 8] : step * 8.0f) << g << " " << e;
    }
  }
}

TEST(FormatIQ2XS, DecodesExtremeValues) {
  std::vector<uint8_t> block(74, 0xff);  // the last entry, the largest scale, all signs
  block[0] = 0xff, block[1] = 0x7b;
  const std::vector<float> y = decode(DType::IQ2_XS, block);
  for (size_t e = 0; e < 256; ++e) EXPECT_EQ(y[e], -65504.0f * 3.875f * 43.0f) << e;
  block.assign(74, 0);
  block[0] = 0x01, block[1] = 0x80;
  for (float v : decode(DType::IQ2_XS, block)) EXPECT_EQ(v, -0x1p-24f);
}

TEST(FormatIQ2XS, IsNotWritten) { EXPECT_EQ(type_info(DType::IQ2_XS).codec->encode, nullptr); }

TEST(FormatIQ2XS, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::IQ2_XS, random_blocks(DType::IQ2_XS, n, {0}, 5));
  expect_kernels_equal_reference(DType::IQ2_XS, std::vector<uint8_t>(74 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
