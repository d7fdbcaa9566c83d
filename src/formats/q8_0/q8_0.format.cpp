#include "formats/q8_0/q8_0.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockQ8_0*>(blocks);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const float d = f16_to_f32(block->d);
    for (int j = 0; j < 32; ++j) dst[i + j] = d * static_cast<float>(block->q[j]);
  }
}

void encode(const float* src, void* blocks, int64_t n) {
  auto* block = static_cast<BlockQ8_0*>(blocks);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const float* x = src + i;
    float largest = 0.0f;
    for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(x[j]));
    const float d = largest / 127.0f;
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    if (!std::isfinite(inverse)) inverse = 0.0f;  // d is subnormal, and its binary16 zero
    block->d = f32_to_f16(d);
    // Ties away from zero.  The product is at most 127 and a rounding error.
    for (int j = 0; j < 32; ++j) block->q[j] = static_cast<int8_t>(std::round(x[j] * inverse));
  }
}

}  // namespace

extern const Codec Q8_0_codec{decode, encode};

}  // namespace tandem
