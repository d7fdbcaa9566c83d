#include <gtest/gtest.h>

#include <string>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatQ5_1, DecodesTheVector) {  // quantization.md 6
  const std::vector<float> y = decode(
      DType::Q5_1, bytes_of_hex("00 38 00 c0 0f 81 3c a5 f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"));
  ASSERT_EQ(y.size(), 32u);
  expect_values(
      y, 0,
      {6.0f, 6.5f, 7.0f, 7.5f, 0.0f, 0.5f, 1.0f, 1.5f, 10.0f, 2.5f, 3.0f, 3.5f, 4.0f, 4.5f, 5.0f, 13.5f});
  expect_values(
      y, 16,
      {5.5f, 5.0f, 12.5f, 12.0f, 11.5f, 11.0f, 2.5f, 2.0f, 9.5f, 1.0f, 8.5f, 0.0f, -0.5f, 7.0f, -1.5f, 6.0f});
}

// The largest code at the largest scale, with the smallest minimum; and the reverse.
TEST(FormatQ5_1, DecodesExtremeScales) {
  const std::string all31 = "ffffffff ffffffff ffffffff ffffffff ffffffff";
  for (float v : decode(DType::Q5_1, bytes_of_hex("ff7b 0100" + all31))) EXPECT_EQ(v, 31 * 65504.0f);
  for (float v : decode(DType::Q5_1, bytes_of_hex("0100 fffb" + all31))) EXPECT_EQ(v, -65504.0f);
  for (float v : decode(DType::Q5_1, bytes_of_hex("0100 0180" + all31))) EXPECT_EQ(v, 30 * 0x1p-24f);
}

TEST(FormatQ5_1, IsNotWritten) { EXPECT_EQ(type_info(DType::Q5_1).codec->encode, nullptr); }

TEST(FormatQ5_1, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::Q5_1, random_blocks(DType::Q5_1, n, {0, 2}, 5));
  expect_kernels_equal_reference(DType::Q5_1, std::vector<uint8_t>(24 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
