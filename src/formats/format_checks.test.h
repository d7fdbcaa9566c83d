// What the tests of all formats share.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/dtype.h"

namespace tandem::test {

// The bytes of a text of hexadecimal pairs and blanks.
std::vector<uint8_t> bytes_of_hex(std::string_view text);

// Whole blocks through the reference codec.
std::vector<float> decode(DType type, std::span<const uint8_t> blocks);
std::vector<uint8_t> encode(DType type, std::span<const float> x);

// One block of the pattern of quantization.md 6: byte k is 37k + 11 (mod 256), and the binary16 fields at
// these offsets are overwritten.
std::vector<uint8_t> pattern_block(DType type, std::initializer_list<std::pair<int, uint16_t>> f16_fields);

// Expects y[first], y[first + 1], ... to be these values.
void expect_values(std::span<const float> y, size_t first, std::initializer_list<float> want);

// The check sums of quantization.md 6, in binary64 and index order: sum of y[i], sum of (i + 1) y[i].
struct Sums {
  double s1;
  double s2;
};
Sums sums_of(std::span<const float> y);

// Random bytes, with the binary16 fields at these offsets of each block made finite (all magnitudes, both
// signs).
std::vector<uint8_t> random_blocks(DType type, int64_t n_blocks, std::initializer_list<int> f16_offsets,
                                   uint64_t seed);

// Normally distributed values of mean zero.
std::vector<float> gaussian(int64_t n, float sigma, uint64_t seed);

// sqrt(sum (decode(encode(x)) - x)^2 / sum x^2).
double round_trip_rmse(DType type, std::span<const float> x);

// Expects the kernels of every level this machine runs to give the reference's bits: over all blocks at once,
// over each block alone, and without touching what lies behind; where they decode to bf16, those bits
// rounded.
void expect_kernels_equal_reference(DType type, std::span<const uint8_t> blocks);

}  // namespace tandem::test
