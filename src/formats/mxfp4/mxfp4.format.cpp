#include "formats/mxfp4/mxfp4.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "formats/dtype.h"

namespace tandem {

namespace {

// 2^(e - 128); subnormal for e < 2.
float half_scale(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockMXFP4*>(blocks);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const float step = half_scale(block->e);
    for (int j = 0; j < 16; ++j) {
      dst[i + j] = step * static_cast<float>(kMxfp4Values[block->qs[j] & 15]);
      dst[i + j + 16] = step * static_cast<float>(kMxfp4Values[block->qs[j] >> 4]);
    }
  }
}

// The exponent of a block: its largest magnitude is 4 to 8 times the scale, though the largest code is 6.
uint8_t exponent_of(const float* x) {
  float largest = 0.0f;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(x[j]));
  if (largest == 0.0f) return 0;
  // In binary32 as in ggml: the logarithm of a value just below a power of two is rounded up to that power's.
  const float e = std::floor(std::log2(largest)) - 2.0f + 127.0f;
  return static_cast<uint8_t>(std::clamp(e, 0.0f, 254.0f));
}

// The nearest code, the lowest one on ties.
uint8_t code(float x, float step) {
  int best = 0;
  float least = std::fabs(x);
  for (int c = 1; c < 16; ++c) {
    const float error = std::fabs(static_cast<float>(kMxfp4Values[c]) * step - x);
    if (error < least) {
      best = c;
      least = error;
    }
  }
  return static_cast<uint8_t>(best);
}

void encode(const float* src, void* blocks, int64_t n) {
  auto* block = static_cast<BlockMXFP4*>(blocks);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const float* x = src + i;
    block->e = exponent_of(x);
    const float step = half_scale(block->e);
    for (int j = 0; j < 16; ++j) {
      block->qs[j] = static_cast<uint8_t>(code(x[j], step) | code(x[j + 16], step) << 4);
    }
  }
}

}  // namespace

extern const Codec MXFP4_codec{decode, encode};

}  // namespace tandem
