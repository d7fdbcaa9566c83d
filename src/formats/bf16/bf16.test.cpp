#include <gtest/gtest.h>

#include <cmath>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatBf16, CheckValues) {  // quantization.md 2
  EXPECT_EQ(encode(DType::BF16, std::vector<float>{0.1f, 3.1415927f, -0.0f, INFINITY}),
            bytes_of_hex("cd3d 4940 0080 807f"));
  EXPECT_EQ(decode(DType::BF16, bytes_of_hex("803f 40c0 0100 80ff")),
            (std::vector<float>{1.0f, -3.0f, 0x1p-133f, -INFINITY}));
}

// All patterns: subnormals, infinities and NaN included.
TEST(FormatBf16, KernelsEqualReferenceOnEveryPattern) {
  std::vector<uint8_t> bytes;
  for (uint32_t b = 0; b < 65536; ++b) {
    bytes.push_back(static_cast<uint8_t>(b));
    bytes.push_back(static_cast<uint8_t>(b >> 8));
  }
  expect_kernels_equal_reference(DType::BF16, bytes);
}

TEST(FormatBf16, KernelsEqualReferenceAtAnyLength) {
  for (int64_t n = 1; n < 70; ++n)
    expect_kernels_equal_reference(DType::BF16, random_blocks(DType::BF16, n, {}, 2));
}

TEST(FormatBf16, RoundTripError) {
  // Uniform rounding of a mantissa of 8 bits: between 2^-9 / sqrt(3) and half of it.
  const double error = round_trip_rmse(DType::BF16, gaussian(65536, 0.02f, 3));
  EXPECT_GT(error, 0x1p-10 / std::sqrt(3.0));
  EXPECT_LT(error, 0x1p-9);
}

}  // namespace
}  // namespace tandem::test
