// Formats as integers (FormatKernels::int8): what a panel says is what the reference decodes, at every level.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "formats/format_checks.test.h"
#include "formats/format_kernels.h"

namespace tandem::test {
namespace {

// The formats that serving multiplies as integers, and where their binary16 numbers lie.
struct Case {
  DType type;
  std::initializer_list<int> f16_offsets;
};
const Case kCases[] = {{DType::Q4_0, {0}},    {DType::Q4_1, {0, 2}}, {DType::Q5_0, {0}},
                       {DType::Q5_1, {0, 2}}, {DType::Q8_0, {0}},    {DType::Q2_K, {80, 82}},
                       {DType::Q3_K, {108}},  {DType::Q4_K, {0, 2}}, {DType::Q5_K, {0, 2}},
                       {DType::Q6_K, {208}},  {DType::IQ4_NL, {0}},  {DType::IQ4_XS, {0}},
                       {DType::MXFP4, {}}};

std::vector<IsaLevel> host_levels() {
  std::vector<IsaLevel> levels;
  for (IsaLevel level : compiled_isa_levels()) {
    if (isa_supported(level)) levels.push_back(level);
  }
  return levels;
}

// Rows of blocks.  Exponents of MXFP4 are moderate, so that no sum of products overflows.
std::vector<uint8_t> random_rows(const Case& c, int rows, int64_t n, uint64_t seed) {
  const TypeInfo& info = type_info(c.type);
  std::vector<uint8_t> bytes = random_blocks(c.type, rows * n / info.block_elements, c.f16_offsets, seed);
  if (c.type != DType::MXFP4) return bytes;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(info.block_bytes))
    bytes[at] = static_cast<uint8_t>(100 + bytes[at] % 40);
  return bytes;
}

// A panel with guards behind each part.
struct Panel {
  static constexpr size_t kGuard = 64;
  std::vector<uint8_t> codes;
  std::vector<float> scales, offsets;
  Int8Panel view;

  Panel(const Int8Format& format, int64_t n)
      : codes(static_cast<size_t>(n * kI8Rows) + kGuard, 0xa5),
        scales(static_cast<size_t>(n / format.group * kI8Rows) + kGuard, 12345.f),
        offsets(scales.size(), 12345.f),
        view{codes.data(), scales.data(), format.has_offsets ? offsets.data() : nullptr} {}

  double value(const Int8Format& format, int r, int64_t k) const {
    const auto number = static_cast<size_t>(k / format.group * kI8Rows + r);
    const int code = codes[static_cast<size_t>((k / 4 * kI8Rows + r) * 4 + k % 4)];
    return double{scales[number]} * (code - format.zero) + (format.has_offsets ? double{offsets[number]} : 0);
  }
  bool guards_hold() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (codes[codes.size() - 1 - i] != 0xa5 || scales[scales.size() - 1 - i] != 12345.f ||
          offsets[offsets.size() - 1 - i] != 12345.f) {
        return false;
      }
    }
    return true;
  }
};

TEST(Int8, OfTheseFormatsAndAlikeAtAllLevels) {
  std::set<DType> listed;
  for (const Case& c : kCases) listed.insert(c.type);
  for (const TypeInfo& info : all_types()) {
    if (!info.codec) continue;
    EXPECT_EQ(product_precision(Precision::Int8, info.type),
              listed.count(info.type) ? Precision::Int8 : Precision::BF16)
        << info.name;
    EXPECT_EQ(product_precision(Precision::F32, info.type), Precision::F32);
    const Int8Format& base = format_kernels(info.type, IsaLevel::base)->int8;
    for (IsaLevel level : compiled_isa_levels()) {
      const Int8Format& other = format_kernels(info.type, level)->int8;
      EXPECT_EQ(other.pack != nullptr, listed.count(info.type) == 1) << info.name << " " << isa_name(level);
      EXPECT_EQ(other.group, base.group);
      EXPECT_EQ(other.zero, base.zero);
      EXPECT_EQ(other.has_offsets, base.has_offsets);
    }
  }
}

// The numbers of a panel are exact, so their value is the reference's, rounded once.
TEST(Int8, PanelsSayWhatTheReferenceDecodes) {
  for (const Case& c : kCases) {
    const TypeInfo& info = type_info(c.type);
    for (int64_t n : {int64_t{info.block_elements}, int64_t{96}, int64_t{224}, int64_t{256}}) {
      if (n % info.block_elements != 0) continue;
      // Rows of two such parts, to see that the second is left alone.
      const std::vector<uint8_t> blocks = random_rows(c, kI8Rows, 2 * n, 7);
      const std::vector<float> want = decode(c.type, blocks);
      const int64_t stride = row_bytes(c.type, 2 * n);
      for (IsaLevel level : host_levels()) {
        const Int8Format& format = format_kernels(c.type, level)->int8;
        for (int rows : {kI8Rows, 1, 5}) {
          Panel panel(format, n);
          format.pack(blocks.data(), stride, rows, n, panel.view);
          ASSERT_TRUE(panel.guards_hold()) << info.name << " " << isa_name(level);
          for (int r = 0; r < rows; ++r) {
            for (int64_t k = 0; k < n; ++k) {
              const float exact = want[static_cast<size_t>(r * 2 * n + k)];
              const auto got = static_cast<float>(panel.value(format, r, k));
              ASSERT_TRUE(got == exact || std::nextafter(got, exact) == exact)
                  << info.name << " " << isa_name(level) << " row " << r << " of " << rows << " element " << k
                  << " of " << n << ": " << got << ", the reference has " << exact;
            }
          }
        }
      }
    }
  }
}

// Against the sum in double of the same integers, within what a chain of f32 operations loses.
TEST(Int8, DotsEqualTheExactSum) {
  std::mt19937_64 rng(3);
  int n_dots = 0;
  for (const Case& c : kCases) {
    const TypeInfo& info = type_info(c.type);
    for (int64_t n : {int64_t{256}, int64_t{768}, int64_t{96}, int64_t{864}}) {
      if (n % info.block_elements != 0) continue;
      const int64_t stride = row_bytes(c.type, n);
      // Twice as many rows: those that are fetched ahead.
      const std::vector<uint8_t> blocks = random_rows(c, 2 * kI8Rows, n, 11);
      std::vector<int8_t> codes(static_cast<size_t>(n));
      std::vector<float> scales(static_cast<size_t>(n / 32));
      std::vector<int32_t> sums(static_cast<size_t>(n / 16), 0);
      for (size_t k = 0; k < codes.size(); ++k) {
        codes[k] = static_cast<int8_t>(static_cast<int>(rng() % 255) - 127);
        sums[k / 16] += codes[k];
      }
      for (float& s : scales) s = 0.001f * static_cast<float>(1 + rng() % 100);
      for (IsaLevel level : host_levels()) {
        const Int8Format& format = format_kernels(c.type, level)->int8;
        if (!format.dot) continue;
        ++n_dots;
        for (int rows : {kI8Rows, 3}) {
          std::vector<float> y(kI8Rows, 12345.f);
          format.dot(blocks.data(), stride, rows, n, {codes.data(), scales.data(), sums.data()}, true,
                     y.data());
          for (int r = 0; r < rows; ++r) {
            Panel panel(format, 256);
            double want = 0, size = 0;
            for (int64_t k = 0; k < n; ++k) {
              if (k % 256 == 0) {
                const int64_t part = std::min<int64_t>(256, n - k);
                format.pack(blocks.data() + r * stride + row_bytes(c.type, k), stride, 1, part, panel.view);
              }
              const double x = double{scales[static_cast<size_t>(k / 32)]} * codes[static_cast<size_t>(k)];
              want += panel.value(format, 0, k % 256) * x;
              size += std::fabs(panel.value(format, 0, k % 256) * x);
            }
            ASSERT_GT(size, 0);
            ASSERT_LE(std::fabs(y[static_cast<size_t>(r)] - want), 0x1p-22 * std::sqrt(double(n)) * size)
                << info.name << " " << isa_name(level) << " row " << r << " of " << rows << ", " << n;
          }
          for (int r = rows; r < kI8Rows; ++r) EXPECT_EQ(y[static_cast<size_t>(r)], 12345.f);
        }
      }
    }
  }
  if (isa_supported(IsaLevel::avx512)) {
    EXPECT_GT(n_dots, 0);
  }
}

}  // namespace
}  // namespace tandem::test
