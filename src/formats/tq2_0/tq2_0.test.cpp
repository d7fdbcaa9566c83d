#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatTQ2_0, DecodesThePatternBlock) {  // quantization.md 6
  const std::vector<float> y = decode(DType::TQ2_0, pattern_block(DType::TQ2_0, {{64, 0x3800}}));
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {1.0f, -0.5f, 0.0f, 0.5f});
  expect_values(y, 128, {1.0f, -0.5f, 0.0f, 0.5f});
  EXPECT_EQ(sums_of(y).s1, 64.5);
  EXPECT_EQ(sums_of(y).s2, 8622.5);
}

// Every element in turn gets the codes 0 to 3, the others 1.
TEST(FormatTQ2_0, EachElementHasItsCode) {
  for (int e = 0; e < 256; ++e) {
    for (int code = 0; code < 4; ++code) {
      std::vector<uint8_t> block(66, 0x55);
      uint8_t& byte = block[static_cast<size_t>(32 * (e / 128) + e % 32)];
      const int shift = 2 * (e / 32 % 4);
      byte = static_cast<uint8_t>((byte & ~(3 << shift)) | code << shift);
      block[64] = 0x00, block[65] = 0x3c;
      const std::vector<float> y = decode(DType::TQ2_0, block);
      for (int i = 0; i < 256; ++i) {
        ASSERT_EQ(y[static_cast<size_t>(i)], i == e ? static_cast<float>(code - 1) : 0.0f) << e << " " << i;
      }
    }
  }
}

TEST(FormatTQ2_0, IsNotWritten) { EXPECT_EQ(type_info(DType::TQ2_0).codec->encode, nullptr); }

TEST(FormatTQ2_0, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::TQ2_0, random_blocks(DType::TQ2_0, n, {64}, 5));
  expect_kernels_equal_reference(DType::TQ2_0, std::vector<uint8_t>(66 * 3, 0));
}

}  // namespace
}  // namespace tandem::test
