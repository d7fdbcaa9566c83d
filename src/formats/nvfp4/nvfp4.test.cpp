#include <gtest/gtest.h>

#include <cmath>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

// Blocks of four scales each, of every scale byte, with every code in each sub-block.
std::vector<uint8_t> all_scales() {
  std::vector<uint8_t> blocks;
  for (int u = 0; u < 256; u += 4) {
    for (int g = 0; g < 4; ++g) blocks.push_back(static_cast<uint8_t>(u + g));
    for (int b = 0; b < 32; ++b) blocks.push_back(static_cast<uint8_t>(17 * (b % 8) + 0x80));
  }
  return blocks;
}

TEST(FormatNVFP4, DecodesTheVector) {  // quantization.md 6
  const std::vector<float> y =
      decode(DType::NVFP4, bytes_of_hex("38 01 7e 41 f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f "
                                        "f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"));
  ASSERT_EQ(y.size(), 64u);
  expect_values(y, 0, {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f});
  expect_values(y, 8, {-6.0f, -4.0f, -3.0f, -2.0f, -1.5f, -1.0f, -0.5f, 0.0f});
  EXPECT_EQ(y[17], -0x1p-10f);
  EXPECT_EQ(y[33], 224.0f);
  EXPECT_EQ(y[49], -1.125f);
  EXPECT_EQ(sums_of(y).s1, 0.0);
  EXPECT_EQ(sums_of(y).s2, -34846.34765625);
}

// Bit 7 of a scale is ignored, 0x7f is 0, and 0 to 7 are multiples of 2^-9.  Source: quantization.md 2.
TEST(FormatNVFP4, DecodesEveryScale) {
  const std::vector<float> y = decode(DType::NVFP4, all_scales());
  constexpr float kCodes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (int u = 0; u < 256; ++u) {
    const int magnitude = u % 128;
    const double scale = magnitude == 127 ? 0.0
                         : magnitude < 8  ? magnitude / 512.0
                                          : std::ldexp(8.0 + magnitude % 8, magnitude / 8 - 10);
    for (int j = 0; j < 8; ++j) {
      // Low nibbles are codes 0 to 7, high ones 8 to 15.
      const auto at = static_cast<size_t>(16 * u + j);
      EXPECT_EQ(y[at], static_cast<float>(scale * kCodes[j])) << u << " " << j;
      EXPECT_EQ(y[at + 8], static_cast<float>(-scale * kCodes[j])) << u << " " << j;
    }
  }
  EXPECT_EQ(y[16 * 0x7e + 7], 448.0f * 6.0f);
}

TEST(FormatNVFP4, IsNotWritten) { EXPECT_EQ(type_info(DType::NVFP4).codec->encode, nullptr); }

TEST(FormatNVFP4, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::NVFP4, random_blocks(DType::NVFP4, n, {}, 5));
  expect_kernels_equal_reference(DType::NVFP4, std::vector<uint8_t>(36 * 3, 0));
  expect_kernels_equal_reference(DType::NVFP4, all_scales());
}

}  // namespace
}  // namespace tandem::test
