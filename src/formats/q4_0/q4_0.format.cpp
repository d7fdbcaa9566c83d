#include "formats/q4_0/q4_0.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockQ4_0*>(blocks);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const float d = f16_to_f32(block->d);
    for (int j = 0; j < 16; ++j) {
      dst[i + j] = d * static_cast<float>((block->qs[j] & 15) - 8);
      dst[i + j + 16] = d * static_cast<float>((block->qs[j] >> 4) - 8);
    }
  }
}

// The code of x in a block of inverse scale `inverse`; x * inverse is in [-8, 8].
uint8_t code(float x, float inverse) {
  return static_cast<uint8_t>(std::min(15, static_cast<int>(x * inverse + 8.5f)));
}

void encode(const float* src, void* blocks, int64_t n) {
  auto* block = static_cast<BlockQ4_0*>(blocks);
  for (int64_t i = 0; i < n; i += 32, ++block) {
    const float* x = src + i;
    float extreme = 0.0f;  // the first of largest magnitude, with its sign: it becomes code 0
    for (int j = 0; j < 32; ++j) {
      if (std::fabs(x[j]) > std::fabs(extreme)) extreme = x[j];
    }
    const float d = extreme / -8.0f;
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    if (!std::isfinite(inverse)) inverse = 0.0f;  // d is subnormal, and its binary16 zero
    block->d = f32_to_f16(d);
    for (int j = 0; j < 16; ++j) {
      block->qs[j] = static_cast<uint8_t>(code(x[j], inverse) | code(x[j + 16], inverse) << 4);
    }
  }
}

}  // namespace

extern const Codec Q4_0_codec{decode, encode};

}  // namespace tandem
