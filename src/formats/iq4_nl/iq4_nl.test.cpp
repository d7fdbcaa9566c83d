#include <gtest/gtest.h>

#include <utility>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatIQ4NL, DecodesTheVector) {  // quantization.md 6
  const std::vector<float> y =
      decode(DType::IQ4_NL, bytes_of_hex("00 3c f0 e1 d2 c3 b4 a5 96 87 78 69 5a 4b 3c 2d 1e 0f"));
  ASSERT_EQ(y.size(), 32u);
  expect_values(y, 0,
                {-127.0f, -104.0f, -83.0f, -65.0f, -49.0f, -35.0f, -22.0f, -10.0f, 1.0f, 13.0f, 25.0f, 38.0f,
                 53.0f, 69.0f, 89.0f, 113.0f});
  expect_values(y, 16,
                {113.0f, 89.0f, 69.0f, 53.0f, 38.0f, 25.0f, 13.0f, 1.0f, -10.0f, -22.0f, -35.0f, -49.0f,
                 -65.0f, -83.0f, -104.0f, -127.0f});
  EXPECT_EQ(sums_of(y).s1, -188.0);
  EXPECT_EQ(sums_of(y).s2, -3102.0);
}

TEST(FormatIQ4NL, DecodesExtremeScales) {
  std::vector<uint8_t> block(18, 0xf0);  // -127 and 113
  for (const auto& [bits, d] : {std::pair{0x7bff, 65504.0f}, {0x8001, -0x1p-24f}, {0x0000, 0.0f}}) {
    block[0] = static_cast<uint8_t>(bits), block[1] = static_cast<uint8_t>(bits >> 8);
    const std::vector<float> y = decode(DType::IQ4_NL, block);
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(y[i], d * (i < 16 ? -127.0f : 113.0f)) << i;
  }
}

TEST(FormatIQ4NL, IsNotWritten) { EXPECT_EQ(type_info(DType::IQ4_NL).codec->encode, nullptr); }

TEST(FormatIQ4NL, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::IQ4_NL, random_blocks(DType::IQ4_NL, n, {0}, 5));
  expect_kernels_equal_reference(DType::IQ4_NL, std::vector<uint8_t>(18 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
