#include <gtest/gtest.h>

#include <cmath>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatF16, CheckValues) {  // quantization.md 2
  const std::vector<uint8_t> bytes = bytes_of_hex("0100 ff03 0004 5535 ff7b 0080 00fc");
  const std::vector<float> y = decode(DType::F16, bytes);
  EXPECT_EQ(y, (std::vector<float>{5.960464478e-08f, 6.097555161e-05f, 6.103515625e-05f, 0.3332519531f,
                                   65504.0f, -0.0f, -INFINITY}));
  EXPECT_TRUE(std::signbit(y[5]));
  EXPECT_EQ(encode(DType::F16, y), bytes);
  EXPECT_EQ(encode(DType::F16, std::vector<float>{0.1f, 65519.0f, 65520.0f, 3.1415927f}),
            bytes_of_hex("662e ff7b 007c 4842"));
}

// All patterns: subnormals, infinities and NaN included.
TEST(FormatF16, KernelsEqualReferenceOnEveryPattern) {
  std::vector<uint8_t> bytes;
  for (uint32_t h = 0; h < 65536; ++h) {
    bytes.push_back(static_cast<uint8_t>(h));
    bytes.push_back(static_cast<uint8_t>(h >> 8));
  }
  expect_kernels_equal_reference(DType::F16, bytes);
}

TEST(FormatF16, KernelsEqualReferenceAtAnyLength) {
  for (int64_t n = 1; n < 70; ++n)
    expect_kernels_equal_reference(DType::F16, random_blocks(DType::F16, n, {}, 2));
}

TEST(FormatF16, RoundTripError) {
  // Uniform rounding of a mantissa of 11 bits: between 2^-12 / sqrt(3) and half of it.
  const double error = round_trip_rmse(DType::F16, gaussian(65536, 0.02f, 3));
  EXPECT_GT(error, 0x1p-13 / std::sqrt(3.0));
  EXPECT_LT(error, 0x1p-12);
}

}  // namespace
}  // namespace tandem::test
