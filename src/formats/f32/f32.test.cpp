#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "formats/dtype.h"
#include "formats/format_checks.test.h"

namespace tandem::test {
namespace {

TEST(FormatF32, LittleEndianBytes) {
  const std::vector<float> y = decode(DType::F32, bytes_of_hex("0000803f 00004040 010000c0"));
  EXPECT_EQ(y, (std::vector<float>{1.0f, 3.0f, std::bit_cast<float>(0xc0000001u)}));
  EXPECT_EQ(encode(DType::F32, y), bytes_of_hex("0000803f 00004040 010000c0"));
}

TEST(FormatF32, SpecialValuesKeepTheirBits) {
  const std::vector<float> x = {0.0f, -0.0f, std::numeric_limits<float>::infinity(), std::nanf("7"),
                                std::numeric_limits<float>::denorm_min()};
  const std::vector<float> y = decode(DType::F32, encode(DType::F32, x));
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(x[i]));
}

TEST(FormatF32, KernelsEqualReference) {
  for (int64_t n : {1, 7, 16, 1000})
    expect_kernels_equal_reference(DType::F32, random_blocks(DType::F32, n, {}, 1));
}

}  // namespace
}  // namespace tandem::test
