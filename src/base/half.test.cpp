#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Check values of quantization.md 2.
static_assert(f16_to_f32(0x0001) == 0x1p-24f);
static_assert(f32_to_f16(65519.0f) == 0x7bff);

TEST(Half, CheckValues) {
  EXPECT_EQ(f16_to_f32(0x0001), 5.960464478e-08f);
  EXPECT_EQ(f16_to_f32(0x03ff), 6.097555161e-05f);
  EXPECT_EQ(f16_to_f32(0x0400), 6.103515625e-05f);
  EXPECT_EQ(f16_to_f32(0x3555), 0.3332519531f);
  EXPECT_EQ(f16_to_f32(0x7bff), 65504.0f);
  EXPECT_EQ(f32_to_f16(0.1f), 0x2e66);
  EXPECT_EQ(f32_to_bf16(0.1f), 0x3dcd);
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(f32_to_f16(3.1415927f), 0x4248);
  EXPECT_EQ(f32_to_bf16(3.1415927f), 0x4049);
}

TEST(Half, InfinityNanAndSignedZero) {
  EXPECT_EQ(f16_to_f32(0x7c00), kInfinity);
  EXPECT_EQ(f16_to_f32(0xfc00), -kInfinity);
  EXPECT_EQ(f32_to_f16(kInfinity), 0x7c00);
  EXPECT_EQ(f32_to_f16(-kInfinity), 0xfc00);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
  EXPECT_TRUE(std::signbit(f16_to_f32(0x8000)));
  EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0x7fc02000u)), 0x7e01);
  EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0xff800001u)), 0xfe00);  // a payload out of reach stays NaN
  EXPECT_EQ(f32_to_bf16(kInfinity), 0x7f80);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0xffffffffu)), 0xffff);
}

TEST(Half, EveryBinary16SurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const bool nan = (h & 0x7fff) > 0x7c00;
    EXPECT_EQ(std::isnan(f16_to_f32(static_cast<uint16_t>(h))), nan);
    // NaN comes back quiet, with its payload.
    ASSERT_EQ(f32_to_f16(f16_to_f32(static_cast<uint16_t>(h))), nan ? h | 0x200 : h);
  }
}

TEST(Half, EveryBfloat16SurvivesTheRoundTrip) {
  for (uint32_t b = 0; b < 65536; ++b) {
    const bool nan = (b & 0x7fff) > 0x7f80;
    EXPECT_EQ(std::isnan(bf16_to_f32(static_cast<uint16_t>(b))), nan);
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(static_cast<uint16_t>(b))), nan ? b | 0x40 : b);
  }
}

// Between neighbours the middle goes to the even one, and the f32 beside it to the nearer one.
TEST(Half, RoundsToNearestEven) {
  const auto check = [](uint16_t (*round)(float), float low, float high, uint16_t bits) {
    const float middle = static_cast<float>((double{low} + high) / 2);
    const auto next = static_cast<uint16_t>(bits + 1);
    ASSERT_EQ(round(middle), bits % 2 == 0 ? bits : next) << middle;
    ASSERT_EQ(round(std::nextafter(middle, low)), bits) << middle;
    ASSERT_EQ(round(std::nextafter(middle, high)), next) << middle;
    ASSERT_EQ(round(-middle), (bits % 2 == 0 ? bits : next) | 0x8000) << middle;
  };
  for (uint16_t h = 0; h < 0x7bff; ++h) {
    check(f32_to_f16, f16_to_f32(h), f16_to_f32(static_cast<uint16_t>(h + 1)), h);
  }
  for (uint16_t b = 0; b < 0x7f7f; ++b) {
    check(f32_to_bf16, bf16_to_f32(b), bf16_to_f32(static_cast<uint16_t>(b + 1)), b);
  }
}

}  // namespace
}  // namespace tandem
