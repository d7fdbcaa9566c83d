// The vocabulary at whatever level this file is compiled for (the base level, in the unit tests).
#if !defined(TANDEM_ISA)
#define TANDEM_ISA isa_simd_test
#endif
#include "base/simd.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/half.h"

namespace tandem {
namespace {

namespace simd = tandem::TANDEM_ISA;
using simd::kLanes;
using simd::Vec;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

float exp_of(float x) { return simd::exp(simd::set1(x))[kLanes - 1]; }

TEST(Simd, ConversionsAreThoseOfHalf) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    ASSERT_TRUE(same_bits(simd::f16_to_f32(bits), f16_to_f32(bits))) << h;
    ASSERT_TRUE(same_bits(simd::bf16_to_f32(bits), bf16_to_f32(bits))) << h;
  }
  // Every exponent and sign with the mantissas that matter to rounding, then a stride through all.
  const auto check = [](uint32_t bits) {
    const float x = std::bit_cast<float>(bits);
    ASSERT_EQ(simd::f32_to_f16(x), f32_to_f16(x)) << x;
    ASSERT_EQ(simd::f32_to_bf16(x), f32_to_bf16(x)) << x;
  };
  for (uint32_t top = 0; top < 65536; ++top) {
    for (uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      check(top << 16 | low);
    }
  }
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 1237) check(static_cast<uint32_t>(bits));
}

TEST(Simd, TailsTouchOnlyTheirLanes) {
  for (int n = 0; n <= kLanes; ++n) {
    float source[kLanes];
    float target[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      source[i] = static_cast<float>(i + 1);
      target[i] = -1.0f;
    }
    const Vec v = simd::load_n(source, n);
    simd::store_n(target, v, n);
    for (int i = 0; i < kLanes; ++i) {
      EXPECT_EQ(v[i], i < n ? source[i] : 0.0f) << n;
      EXPECT_EQ(target[i], i < n ? source[i] : -1.0f) << n;
    }
  }
}

TEST(Simd, Reductions) {
  float x[kLanes];
  float sum = 0.0f;
  for (int i = 0; i < kLanes; ++i) {
    x[i] = static_cast<float>(1 << i);  // every lane must take part once
    sum += x[i];
  }
  EXPECT_EQ(simd::reduce_add(simd::load(x)), sum);
  for (int i = 0; i < kLanes; ++i) {
    float y[kLanes];
    for (int l = 0; l < kLanes; ++l) y[l] = -3.0f;
    y[i] = -2.0f;
    EXPECT_EQ(simd::reduce_max(simd::load(y)), -2.0f) << i;
  }
  // The fold starts by adding lanes half the vector apart: big and -big cancel before the ones are added.
  float z[kLanes];
  for (int i = 0; i < kLanes; ++i) z[i] = 1.0f;
  z[0] = 1e30f;
  z[kLanes / 2] = -1e30f;
  EXPECT_EQ(simd::reduce_add(simd::load(z)), static_cast<float>(kLanes - 2));
}

TEST(Simd, ArithmeticAndNanRules) {
  const auto lane = [](Vec v) { return v[kLanes - 1]; };
  const Vec two = simd::set1(2.0f), three = simd::set1(3.0f), nan = simd::set1(kNan);
  EXPECT_EQ(lane(simd::add(two, three)), 5.0f);
  EXPECT_EQ(lane(simd::sub(two, three)), -1.0f);
  EXPECT_EQ(lane(simd::mul(two, three)), 6.0f);
  EXPECT_EQ(lane(simd::fma(two, three, simd::set1(-7.0f))), -1.0f);
  EXPECT_EQ(lane(simd::max(two, three)), 3.0f);
  EXPECT_EQ(lane(simd::min(two, three)), 2.0f);
  EXPECT_EQ(lane(simd::max(nan, two)), 2.0f);
  EXPECT_TRUE(std::isnan(lane(simd::max(two, nan))));
  EXPECT_EQ(lane(simd::min(nan, two)), 2.0f);
  EXPECT_TRUE(std::isnan(lane(simd::min(two, nan))));
  EXPECT_TRUE(same_bits(lane(simd::set1(-0.0f)), -0.0f));
  EXPECT_TRUE(same_bits(lane(simd::zero()), 0.0f));
}

TEST(Simd, SmallIntegersWiden) {
  uint8_t bytes[256 + kLanes] = {};
  for (int i = 0; i < 256; ++i) bytes[i] = static_cast<uint8_t>(i);
  for (int i = 0; i < 256; i += kLanes) {
    const Vec u = simd::to_float(simd::load_u8(bytes + i));
    const Vec s = simd::to_float(simd::load_i8(reinterpret_cast<const int8_t*>(bytes) + i));
    for (int l = 0; l < kLanes; ++l) {
      EXPECT_EQ(u[l], static_cast<float>(i + l));
      EXPECT_EQ(s[l], static_cast<float>(static_cast<int8_t>(i + l)));
    }
  }
}

TEST(Simd, ExpWithinTwoUlp) {
  double worst = 0.0;
  const auto check = [&worst](float x) {
    const double want = std::exp(static_cast<double>(x));
    // The distance of neighbouring f32 at the result; 2^-149 among subnormals.
    const double ulp = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
    const double error = std::fabs(exp_of(x) - want) / ulp;
    ASSERT_LE(error, 2.0) << x;
    worst = std::max(worst, error);
  };
  for (float x = -103.5f; x < 88.72f; x += 0.00037f) check(x);
  for (int exponent = -140; exponent < 6; ++exponent) {
    check(std::ldexp(1.1f, exponent));
    check(-std::ldexp(1.1f, exponent));
  }
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(Simd, ExpAtTheEnds) {
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(-0.0f), 1.0f);
  EXPECT_TRUE(std::isfinite(exp_of(88.722f)));
  for (float x : {88.73f, 89.0f, 90.0f, 1e4f, 3e38f, kInfinity}) EXPECT_EQ(exp_of(x), kInfinity) << x;
  for (float x : {-104.0f, -105.0f, -1e4f, -3e38f, -kInfinity}) EXPECT_TRUE(same_bits(exp_of(x), 0.0f)) << x;
  EXPECT_GT(exp_of(-103.0f), 0.0f);
  EXPECT_TRUE(std::isnan(exp_of(kNan)));
  EXPECT_TRUE(std::isnan(exp_of(-kNan)));
}

}  // namespace
}  // namespace tandem
