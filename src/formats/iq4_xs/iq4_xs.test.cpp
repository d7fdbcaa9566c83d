#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatIQ4XS, DecodesThePatternBlock) {  // quantization.md 6
  const std::vector<float> y = decode(DType::IQ4_XS, pattern_block(DType::IQ4_XS, {{0, 0x3800}}));
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {32.5f, -0.5f, -34.5f, 41.5f});
  expect_values(y, 128, {-292.5f, 4.5f, 310.5f, -373.5f});
  EXPECT_EQ(sums_of(y).s1, -5502.5);
  EXPECT_EQ(sums_of(y).s2, -1045567.0);
}

// Scales -32, -23, ..., 31 in the eight sub-blocks, and the grid of IQ4_NL in each.
TEST(FormatIQ4XS, EachSubBlockHasItsScale) {
  std::vector<uint8_t> block = bytes_of_hex("003c 0000 00000000");
  for (int b = 0; b < 8; ++b) {
    const int six_bits = 9 * b;
    uint8_t& high = block[static_cast<size_t>(2 + b / 4)];
    uint8_t& low = block[static_cast<size_t>(4 + b / 2)];
    high = static_cast<uint8_t>(high | (six_bits >> 4) << 2 * (b % 4));
    low = static_cast<uint8_t>(low | (six_bits & 15) << 4 * (b % 2));
    for (uint8_t byte : bytes_of_hex("f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"))
      block.push_back(byte);
  }
  const std::vector<float> y = decode(DType::IQ4_XS, block);
  const std::vector<float> grid =
      decode(DType::IQ4_NL, bytes_of_hex("003c f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"));
  for (size_t i = 0; i < 256; ++i) {
    EXPECT_EQ(y[i], (9.0f * static_cast<float>(i / 32) - 32.0f) * grid[i % 32]) << i;
  }
}

TEST(FormatIQ4XS, DecodesExtremeScales) {
  std::vector<uint8_t> block(136, 0);  // scale -32, code 0
  block[0] = 0xff, block[1] = 0x7b;
  for (float v : decode(DType::IQ4_XS, block)) EXPECT_EQ(v, 32 * 127 * 65504.0f);
  block[0] = 0x01, block[1] = 0x80;
  for (float v : decode(DType::IQ4_XS, block)) EXPECT_EQ(v, -32 * 127 * 0x1p-24f);
}

TEST(FormatIQ4XS, IsNotWritten) { EXPECT_EQ(type_info(DType::IQ4_XS).codec->encode, nullptr); }

TEST(FormatIQ4XS, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::IQ4_XS, random_blocks(DType::IQ4_XS, n, {0}, 5));
  expect_kernels_equal_reference(DType::IQ4_XS, std::vector<uint8_t>(136 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
