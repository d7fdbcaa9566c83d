#include <gtest/gtest.h>

#include <cmath>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatQ8_0, DecodesTheVector) {  // quantization.md 6
  const std::vector<float> y =
      decode(DType::Q8_0, bytes_of_hex("00 34 80 88 90 98 a0 a8 b0 b8 c0 c8 d0 d8 e0 e8 f0 f8 "
                                       "00 08 10 18 20 28 30 38 40 48 50 58 60 68 70 78"));
  ASSERT_EQ(y.size(), 32u);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], -32.0f + 2.0f * static_cast<float>(i));
}

TEST(FormatQ8_0, EncodesTheVector) {  // quantization.md 7
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i - 16) / 4.0f;
  EXPECT_EQ(encode(DType::Q8_0, x), bytes_of_hex("08 28 81 89 91 99 a1 a9 b1 b9 c0 c8 d0 d8 e0 e8 f0 f8 "
                                                 "00 08 10 18 20 28 30 38 40 47 4f 57 5f 67 6f 77"));
}

TEST(FormatQ8_0, TiesRoundAwayFromZero) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;
  x[1] = 0.5f;
  x[2] = -0.5f;
  x[3] = 2.5f;
  const std::vector<uint8_t> block = encode(DType::Q8_0, x);
  EXPECT_EQ((std::vector<uint8_t>(block.begin(), block.begin() + 6)), bytes_of_hex("003c 7f 01 ff 03"));
}

TEST(FormatQ8_0, ZerosAndTinyValuesDecodeToZero) {
  EXPECT_EQ(encode(DType::Q8_0, std::vector<float>(32, 0.0f)), std::vector<uint8_t>(34, 0));
  for (float v : decode(DType::Q8_0, encode(DType::Q8_0, std::vector<float>(32, 1e-42f)))) EXPECT_EQ(v, 0.0f);
}

TEST(FormatQ8_0, RoundTripError) {
  EXPECT_NEAR(round_trip_rmse(DType::Q8_0, gaussian(1 << 18, 0.02f, 4)), 0.0054,
              0.0001);  // quantization.md 7
}

TEST(FormatQ8_0, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::Q8_0, random_blocks(DType::Q8_0, n, {0}, 5));
  expect_kernels_equal_reference(DType::Q8_0, std::vector<uint8_t>(34 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
