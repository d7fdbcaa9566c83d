#include <gtest/gtest.h>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatTQ1_0, DecodesThePatternBlock) {  // quantization.md 6
  const std::vector<float> y = decode(DType::TQ1_0, pattern_block(DType::TQ1_0, {{52, 0x3800}}));
  ASSERT_EQ(y.size(), 256u);
  expect_values(y, 0, {-0.5f, -0.5f, -0.5f, 0.0f});
  expect_values(y, 128, {0.0f, -0.5f, 0.5f, 0.0f});
  EXPECT_EQ(sums_of(y).s1, -1.0);
  EXPECT_EQ(sums_of(y).s2, -65.5);
}

// The byte of five digits, most significant first: 256 / 243 times their number, rounded up.
uint8_t byte_of(const int digits[5]) {
  int number = 0;
  for (int n = 0; n < 5; ++n) number = number * 3 + digits[n];
  return static_cast<uint8_t>((number * 256 + 242) / 243);
}

// Every element in turn gets the digits 0, 1 and 2, the others 1.
TEST(FormatTQ1_0, EachElementHasItsDigit) {
  for (int e = 0; e < 256; ++e) {
    const int n = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
    const int byte = e < 160 ? e % 32 : e < 240 ? 32 + e % 16 : 48 + e % 4;
    for (int digit = 0; digit < 3; ++digit) {
      int digits[5] = {1, 1, 1, 1, 1};
      std::vector<uint8_t> block(54, byte_of(digits));
      digits[n] = digit;
      block[static_cast<size_t>(byte)] = byte_of(digits);
      block[52] = 0x00, block[53] = 0x3c;
      const std::vector<float> y = decode(DType::TQ1_0, block);
      for (int i = 0; i < 256; ++i) {
        ASSERT_EQ(y[static_cast<size_t>(i)], i == e ? static_cast<float>(digit - 1) : 0.0f) << e << " " << i;
      }
    }
  }
}

TEST(FormatTQ1_0, IsNotWritten) { EXPECT_EQ(type_info(DType::TQ1_0).codec->encode, nullptr); }

TEST(FormatTQ1_0, KernelsEqualReference) {
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::TQ1_0, random_blocks(DType::TQ1_0, n, {52}, 5));
  expect_kernels_equal_reference(DType::TQ1_0, std::vector<uint8_t>(54 * 3, 0));
  // Every byte, in every place.
  std::vector<uint8_t> blocks;
  for (int b = 0; b < 256; ++b) {
    blocks.insert(blocks.end(), 52, static_cast<uint8_t>(b));
    blocks.insert(blocks.end(), {0x00, 0xbc});
  }
  expect_kernels_equal_reference(DType::TQ1_0, blocks);
}

}  // namespace
}  // namespace tandem::test
