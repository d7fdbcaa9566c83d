#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

// A block of this scale, of codes 0, 1, ..., 127, -128, ..., -1.
std::vector<uint8_t> ramp(float d) {
  std::vector<uint8_t> block(292);
  std::memcpy(block.data(), &d, 4);
  for (size_t i = 0; i < 256; ++i) block[4 + i] = static_cast<uint8_t>(i);
  return block;
}

TEST(FormatQ8K, DecodesEveryCode) {  // quantization.md 4
  for (float d : {1.0f, -0.0123f, 1e-42f, 3e38f, 0.0f}) {
    const std::vector<float> y = decode(DType::Q8_K, ramp(d));
    ASSERT_EQ(y.size(), 256u);
    for (int i = 0; i < 256; ++i) {
      const int code = i < 128 ? i : i - 256;
      EXPECT_EQ(y[static_cast<size_t>(i)], d * static_cast<float>(code)) << d << " " << i;
    }
  }
}

TEST(FormatQ8K, SumsAreNotRead) {
  std::vector<uint8_t> block = ramp(0.25f);
  const std::vector<float> y = decode(DType::Q8_K, block);
  std::fill(block.begin() + 260, block.end(), 0xff);
  EXPECT_EQ(decode(DType::Q8_K, block), y);
}

TEST(FormatQ8K, IsNotWritten) { EXPECT_EQ(type_info(DType::Q8_K).codec->encode, nullptr); }

TEST(FormatQ8K, KernelsEqualReference) {
  // Byte 3 has the upper seven exponent bits of a binary32: what makes a binary16 at offset 2 finite, makes
  // it finite.
  for (int64_t n : {1, 2, 301})
    expect_kernels_equal_reference(DType::Q8_K, random_blocks(DType::Q8_K, n, {2}, 5));
  expect_kernels_equal_reference(DType::Q8_K, std::vector<uint8_t>(292 * 3, 0));
  for (float d : {1e-42f, -1e-42f, 3e38f}) expect_kernels_equal_reference(DType::Q8_K, ramp(d));
}

}  // namespace
}  // namespace tandem::test
