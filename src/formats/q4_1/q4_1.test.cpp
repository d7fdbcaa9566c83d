#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatQ4_1, DecodesTheVector) {  // quantization.md 6
  const std::vector<float> y =
      decode(DType::Q4_1, bytes_of_hex("00 38 00 c0 f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"));
  ASSERT_EQ(y.size(), 32u);
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(y[static_cast<size_t>(j)], -2.0f + 0.5f * static_cast<float>(j));
    EXPECT_EQ(y[static_cast<size_t>(16 + j)], 5.5f - 0.5f * static_cast<float>(j));
  }
  EXPECT_EQ(sums_of(y).s1, 56.0);
  EXPECT_EQ(sums_of(y).s2, 924.0);
}

// 15 * 2^-24 + 65504 is 65504 and 15 * 65504 - 2^-24 is 982560: the sum is rounded to binary32, once.
TEST(FormatQ4_1, DecodesExtremeScales) {
  expect_values(decode(DType::Q4_1, bytes_of_hex("0100 ff7b ffffffff ffffffff ffffffff ffffffff")), 0,
                {65504.0f});
  expect_values(decode(DType::Q4_1, bytes_of_hex("ff7b 0180 ffffffff ffffffff ffffffff ffffffff")), 0,
                {982560.0f});
  expect_values(decode(DType::Q4_1, bytes_of_hex("0100 0180 f1f1f1f1 f1f1f1f1 f1f1f1f1 f1f1f1f1")), 15,
                {0.0f, 14 * 0x1p-24f});
}

TEST(FormatQ4_1, IsNotWritten) { EXPECT_EQ(type_info(DType::Q4_1).codec->encode, nullptr); }

TEST(FormatQ4_1, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::Q4_1, random_blocks(DType::Q4_1, n, {0, 2}, 5));
  expect_kernels_equal_reference(DType::Q4_1, std::vector<uint8_t>(20 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
