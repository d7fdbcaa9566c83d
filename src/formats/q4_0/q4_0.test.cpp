#include <gtest/gtest.h>

#include <cmath>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatQ4_0, DecodesTheVector) {  // quantization.md 6
  const std::vector<float> y =
      decode(DType::Q4_0, bytes_of_hex("00 3e f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"));
  ASSERT_EQ(y.size(), 32u);
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(y[static_cast<size_t>(j)], -12.0f + 1.5f * static_cast<float>(j));
    EXPECT_EQ(y[static_cast<size_t>(16 + j)], 10.5f - 1.5f * static_cast<float>(j));
  }
}

TEST(FormatQ4_0, EncodesTheVector) {  // quantization.md 7
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i - 16) / 4.0f;
  EXPECT_EQ(encode(DType::Q4_0, x), bytes_of_hex("00 38 80 91 91 a2 a2 b3 b3 c4 c4 d5 d5 e6 e6 f7 f7 f8"));
}

TEST(FormatQ4_0, FirstOfTheExtremesDecidesTheSign) {
  std::vector<float> x(32, 0.0f);
  x[3] = 8.0f;
  x[9] = -8.0f;
  const std::vector<uint8_t> block = encode(DType::Q4_0, x);
  EXPECT_EQ(block[0] | block[1] << 8, 0xbc00);  // -1
  EXPECT_EQ(block[2 + 3] & 15, 0);
  EXPECT_EQ(block[2 + 9] & 15, 15);  // 16 would be due
}

TEST(FormatQ4_0, ZerosAndTinyValuesDecodeToZero) {
  // d = 0 / -8 is a negative zero.
  EXPECT_EQ(encode(DType::Q4_0, std::vector<float>(32, 0.0f)),
            bytes_of_hex("0080 88888888 88888888 88888888 88888888"));
  for (float v : decode(DType::Q4_0, encode(DType::Q4_0, std::vector<float>(32, 1e-42f)))) EXPECT_EQ(v, 0.0f);
}

TEST(FormatQ4_0, RoundTripError) {
  EXPECT_NEAR(round_trip_rmse(DType::Q4_0, gaussian(1 << 18, 0.02f, 4)), 0.086, 0.0015);  // quantization.md 7
}

TEST(FormatQ4_0, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::Q4_0, random_blocks(DType::Q4_0, n, {0}, 5));
  expect_kernels_equal_reference(DType::Q4_0, std::vector<uint8_t>(18 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
