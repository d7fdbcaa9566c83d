#include <gtest/gtest.h>

#include <string>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatQ5_0, DecodesTheVector) {  // quantization.md 6
  const std::vector<float> y =
      decode(DType::Q5_0, bytes_of_hex("00 38 0f 81 3c a5 f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"));
  ASSERT_EQ(y.size(), 32u);
  expect_values(y, 0,
                {0.0f, 0.5f, 1.0f, 1.5f, -6.0f, -5.5f, -5.0f, -4.5f, 4.0f, -3.5f, -3.0f, -2.5f, -2.0f, -1.5f,
                 -1.0f, 7.5f});
  expect_values(y, 16,
                {-0.5f, -1.0f, 6.5f, 6.0f, 5.5f, 5.0f, -3.5f, -4.0f, 3.5f, -5.0f, 2.5f, -6.0f, -6.5f, 1.0f,
                 -7.5f, 0.0f});
}

// Codes 0 and 31 at the largest and the smallest scale.
TEST(FormatQ5_0, DecodesExtremeScales) {
  const std::string ends =
      "01000080 0f000000 00000000 00000000 000000f0";  // elements 0 and 31 are 31, all others 0
  std::vector<float> y = decode(DType::Q5_0, bytes_of_hex("ff7b" + ends));
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(y[i], 65504.0f * (i % 31 == 0 ? 15.0f : -16.0f)) << i;
  y = decode(DType::Q5_0, bytes_of_hex("0180" + ends));
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(y[i], -0x1p-24f * (i % 31 == 0 ? 15.0f : -16.0f)) << i;
}

TEST(FormatQ5_0, IsNotWritten) { EXPECT_EQ(type_info(DType::Q5_0).codec->encode, nullptr); }

TEST(FormatQ5_0, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::Q5_0, random_blocks(DType::Q5_0, n, {0}, 5));
  expect_kernels_equal_reference(DType::Q5_0, std::vector<uint8_t>(22 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
