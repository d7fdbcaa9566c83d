#include "formats/format_checks.test.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/half.h"
#include "formats/format_kernels.h"

namespace tandem::test {

std::vector<uint8_t> bytes_of_hex(std::string_view text) {
  std::vector<uint8_t> bytes;
  int digits = 0;
  int value = 0;
  for (char c : text) {
    if (c == ' ') continue;
    value = value * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    if (++digits % 2 == 0) {
      bytes.push_back(static_cast<uint8_t>(value));
      value = 0;
    }
  }
  return bytes;
}

std::vector<float> decode(DType type, std::span<const uint8_t> blocks) {
  const TypeInfo& info = type_info(type);
  const auto n = static_cast<int64_t>(blocks.size()) / info.block_bytes * info.block_elements;
  std::vector<float> y(static_cast<size_t>(n));
  info.codec->decode(blocks.data(), y.data(), n);
  return y;
}

std::vector<uint8_t> encode(DType type, std::span<const float> x) {
  const auto n = static_cast<int64_t>(x.size());
  // Filled, so that a byte the encoder forgets shows.
  std::vector<uint8_t> blocks(static_cast<size_t>(row_bytes(type, n)), 0xa5);
  type_info(type).codec->encode(x.data(), blocks.data(), n);
  return blocks;
}

std::vector<uint8_t> pattern_block(DType type, std::initializer_list<std::pair<int, uint16_t>> f16_fields) {
  std::vector<uint8_t> block(static_cast<size_t>(type_info(type).block_bytes));
  for (size_t k = 0; k < block.size(); ++k) block[k] = static_cast<uint8_t>(37 * k + 11);
  for (const auto& [offset, bits] : f16_fields) {
    block[static_cast<size_t>(offset)] = static_cast<uint8_t>(bits);
    block[static_cast<size_t>(offset) + 1] = static_cast<uint8_t>(bits >> 8);
  }
  return block;
}

void expect_values(std::span<const float> y, size_t first, std::initializer_list<float> want) {
  ASSERT_LE(first + want.size(), y.size());
  for (float v : want) {
    EXPECT_EQ(y[first], v) << "element " << first;
    ++first;
  }
}

Sums sums_of(std::span<const float> y) {
  Sums sums{0.0, 0.0};
  for (size_t i = 0; i < y.size(); ++i) {
    sums.s1 += y[i];
    sums.s2 += static_cast<double>(i + 1) * y[i];
  }
  return sums;
}

std::vector<uint8_t> random_blocks(DType type, int64_t n_blocks, std::initializer_list<int> f16_offsets,
                                   uint64_t seed) {
  const auto block_bytes = static_cast<size_t>(type_info(type).block_bytes);
  std::mt19937_64 rng(seed);
  std::vector<uint8_t> bytes(static_cast<size_t>(n_blocks) * block_bytes);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  for (size_t block = 0; block < bytes.size(); block += block_bytes) {
    for (int offset : f16_offsets) {
      uint8_t& top = bytes[block + static_cast<size_t>(offset) + 1];
      if ((top & 0x7c) == 0x7c) top ^= 0x40;
    }
  }
  return bytes;
}

std::vector<float> gaussian(int64_t n, float sigma, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> distribution(0.0f, sigma);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = distribution(rng);
  return x;
}

double round_trip_rmse(DType type, std::span<const float> x) {
  const std::vector<float> y = decode(type, encode(type, x));
  double error = 0.0;
  double power = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (double{y[i]} - x[i]) * (double{y[i]} - x[i]);
    power += double{x[i]} * x[i];
  }
  return std::sqrt(error / power);
}

namespace {

// `want` rounded, in the same two ways; bits are compared, but any NaN is as good as another, and a value
// below the normal range may be kept where nothing is computed.
void expect_rounded(const FormatKernels& kernels, DType type, std::span<const uint8_t> blocks,
                    std::span<const float> want) {
  const TypeInfo& info = type_info(type);
  const auto n = static_cast<int64_t>(want.size());
  constexpr uint16_t kGuard = 0x7fad;
  for (int64_t step : {n, int64_t{info.block_elements}}) {
    std::vector<uint16_t> got(want.size() + 32, kGuard);
    for (int64_t i = 0; i < n; i += step) {
      kernels.to_bf16(blocks.data() + row_bytes(type, i), got.data() + i, step);
      ASSERT_EQ(got[static_cast<size_t>(i + step)], kGuard)
          << info.name << " wrote past element " << i + step;
    }
    for (size_t i = 0; i < want.size(); ++i) {
      const float value = bf16_to_f32(got[i]);
      if (std::isnan(want[i])) {
        ASSERT_TRUE(std::isnan(value)) << info.name << " element " << i;
      } else if (std::fabs(want[i]) < std::numeric_limits<float>::min()) {
        ASSERT_LE(std::fabs(value), std::numeric_limits<float>::min()) << info.name << " element " << i;
      } else {
        ASSERT_EQ(got[i], f32_to_bf16(want[i])) << info.name << " element " << i << " of " << n << ", "
                                                << step << " at a time: got " << value << " for " << want[i];
      }
    }
    for (size_t i = want.size(); i < got.size(); ++i) ASSERT_EQ(got[i], kGuard);
  }
  kernels.to_bf16(blocks.data(), nullptr, 0);
}

}  // namespace

void expect_kernels_equal_reference(DType type, std::span<const uint8_t> blocks) {
  const TypeInfo& info = type_info(type);
  const std::vector<float> want = decode(type, blocks);
  ASSERT_FALSE(want.empty());
  const auto n = static_cast<int64_t>(want.size());
  constexpr uint32_t kGuard = 0x7fc0dead;
  for (IsaLevel level : compiled_isa_levels()) {
    if (!isa_supported(level)) continue;
    const FormatKernels* kernels = format_kernels(type, level);
    ASSERT_NE(kernels, nullptr) << info.name << " " << isa_name(level);
    for (int64_t step : {n, int64_t{info.block_elements}}) {
      std::vector<float> got(want.size() + 16, std::bit_cast<float>(kGuard));
      for (int64_t i = 0; i < n; i += step) {
        kernels->to_f32(blocks.data() + row_bytes(type, i), got.data() + i, step);
        ASSERT_EQ(std::bit_cast<uint32_t>(got[static_cast<size_t>(i + step)]), kGuard)
            << info.name << " " << isa_name(level) << " wrote past element " << i + step;
      }
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
            << info.name << " " << isa_name(level) << " element " << i << " of " << n << ", " << step
            << " at a time: got " << got[i] << ", the reference has " << want[i];
      }
      for (size_t i = want.size(); i < got.size(); ++i) ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), kGuard);
    }
    kernels->to_f32(blocks.data(), nullptr, 0);  // an empty row touches nothing
    if (kernels->to_bf16) expect_rounded(*kernels, type, blocks, want);
  }
}

}  // namespace tandem::test
