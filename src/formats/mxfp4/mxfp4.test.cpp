#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

// Blocks of every exponent, each with every code in both nibbles.
std::vector<uint8_t> all_exponents() {
  std::vector<uint8_t> blocks;
  for (int e = 0; e < 256; ++e) {
    blocks.push_back(static_cast<uint8_t>(e));
    for (uint8_t byte : bytes_of_hex("f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"))
      blocks.push_back(byte);
  }
  return blocks;
}

TEST(FormatMXFP4, DecodesTheVector) {  // quantization.md 6
  const std::vector<float> y =
      decode(DType::MXFP4, bytes_of_hex("80 f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"));
  ASSERT_EQ(y.size(), 32u);
  expect_values(y, 0,
                {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 6.0f, 8.0f, 12.0f, 0.0f, -1.0f, -2.0f, -3.0f, -4.0f, -6.0f,
                 -8.0f, -12.0f});
  expect_values(y, 16,
                {-12.0f, -8.0f, -6.0f, -4.0f, -3.0f, -2.0f, -1.0f, 0.0f, 12.0f, 8.0f, 6.0f, 4.0f, 3.0f, 2.0f,
                 1.0f, 0.0f});
}

// Exponents 0 and 1 are subnormal scales, 253 and 254 overflow in part, and 255, a NaN by the OCP standard,
// is an exponent like any other.  Source: quantization.md 2, 6.
TEST(FormatMXFP4, DecodesEveryExponent) {
  const std::vector<float> y = decode(DType::MXFP4, all_exponents());
  const std::vector<float> codes =
      decode(DType::MXFP4, bytes_of_hex("80 f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"));
  for (size_t i = 0; i < y.size(); ++i) {
    // Products of binary64 are exact here, and the conversion rounds or overflows once.
    const double want = std::ldexp(double{codes[i % 32]}, static_cast<int>(i / 32) - 128);
    ASSERT_EQ(y[i], static_cast<float>(want)) << "exponent " << i / 32 << " element " << i % 32;
    ASSERT_EQ(std::signbit(y[i]), codes[i % 32] < 0.0f) << "exponent " << i / 32 << " element " << i % 32;
  }
  EXPECT_EQ(y[1], 2.93873588e-39f);
  EXPECT_EQ(y[7], 3.52648305e-38f);
  EXPECT_EQ(y[32 * 254 + 1], 8.50705917e+37f);
  EXPECT_EQ(y[32 * 254 + 7], std::numeric_limits<float>::infinity());
  EXPECT_EQ(y[32 * 255 + 1], 0x1p127f);
}

TEST(FormatMXFP4, EncodesTheVector) {  // quantization.md 7
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i - 16) / 4.0f;
  EXPECT_EQ(encode(DType::MXFP4, x), bytes_of_hex("7f 0e 0e 1d 1d 2d 2d 3c 3c 4c 4b 4b 5a 5a 59 59 60"));
}

// With 4 the scale is 1: codes are 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
TEST(FormatMXFP4, TiesTakeTheLowestCode) {
  std::vector<float> x(32, 0.0f);
  x[0] = 4.0f;
  x[1] = 0.25f;   // 0 or 0.5
  x[2] = 2.5f;    // 2 or 3
  x[3] = 5.0f;    // 4 or 6
  x[4] = -0.25f;  // 0 or -0.5
  x[5] = -2.5f;   // -2 or -3
  x[6] = -0.0f;
  const std::vector<uint8_t> block = encode(DType::MXFP4, x);
  EXPECT_EQ(block[0], 127);
  const uint8_t want[] = {6, 0, 4, 6, 0, 12, 0};
  for (size_t j = 0; j < std::size(want); ++j) EXPECT_EQ(block[1 + j], want[j]) << j;
}

// 6 times the scale is the largest value, and a block of maximum 7.9 has scale 1.
TEST(FormatMXFP4, ValuesAboveTheLargestCodeSaturate) {
  const std::vector<float> y = decode(DType::MXFP4, encode(DType::MXFP4, std::vector<float>(32, -7.9f)));
  for (float v : y) EXPECT_EQ(v, -6.0f);
}

TEST(FormatMXFP4, EncodesWhatItDecodes) {
  // Neither exponents that the clamp at 0 may change nor those whose values overflow.
  for (int e = 3; e < 253; ++e) {
    std::vector<uint8_t> block = {static_cast<uint8_t>(e)};
    for (uint8_t byte : bytes_of_hex("f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"))
      block.push_back(byte);
    const std::vector<float> y = decode(DType::MXFP4, block);
    const std::vector<uint8_t> again = encode(DType::MXFP4, y);
    EXPECT_EQ(again[0], e);
    EXPECT_EQ(decode(DType::MXFP4, again), y);
  }
}

TEST(FormatMXFP4, ZerosAndSubnormalsAreKept) {
  EXPECT_EQ(encode(DType::MXFP4, std::vector<float>(32, 0.0f)), std::vector<uint8_t>(17, 0));
  // 2^-128, half the smallest scale.
  const std::vector<float> tiny(32, 0x1p-128f);
  EXPECT_EQ(decode(DType::MXFP4, encode(DType::MXFP4, tiny)), tiny);
}

TEST(FormatMXFP4, LargestValuesStayFinite) {
  const std::vector<float> x(32, std::numeric_limits<float>::max());
  for (float v : decode(DType::MXFP4, encode(DType::MXFP4, x))) {
    EXPECT_TRUE(v >= x[0] * 0.5f && v <= x[0]) << v;
  }
}

TEST(FormatMXFP4, RoundTripError) {
  EXPECT_NEAR(round_trip_rmse(DType::MXFP4, gaussian(1 << 18, 0.02f, 4)), 0.114,
              0.0015);  // quantization.md 7
}

TEST(FormatMXFP4, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::MXFP4, random_blocks(DType::MXFP4, n, {}, 5));
  expect_kernels_equal_reference(DType::MXFP4, std::vector<uint8_t>(17 * 3, 0));
  expect_kernels_equal_reference(DType::MXFP4, all_exponents());
}

}  // namespace
}  // namespace tandem::test
