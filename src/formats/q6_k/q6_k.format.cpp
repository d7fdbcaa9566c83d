#include "formats/q6_k/q6_k.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockQ6_K*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int e = 0; e < 256; ++e) {
      const int h = e / 128;
      const int g = e / 32 % 4;
      const int k = e % 32;
      const int low = (block->ql[64 * h + 32 * (g & 1) + k] >> 4 * (g >> 1)) & 15;
      const int high = (block->qh[32 * h + k] >> 2 * g) & 3;
      dst[i + e] = (d * block->sc[e / 16]) * static_cast<float>((low | high << 4) - 32);
    }
  }
}

// Codes of one block of 256 finite values, in [0, 63]; also fills d and sc.  False where all is zero.
bool quantize(const float* x, BlockQ6_K* block, uint8_t q[256]) {
  float scale[16];
  float largest = 0.0f;  // the scale of largest magnitude, with its sign: it becomes -128
  for (int s = 0; s < 16; ++s) {
    float extreme = 0.0f;
    for (int l = 16 * s; l < 16 * s + 16; ++l) {
      if (std::fabs(x[l]) > std::fabs(extreme)) extreme = x[l];
    }
    scale[s] = extreme / -32.0f;
    if (std::fabs(scale[s]) > std::fabs(largest)) largest = scale[s];
  }
  if (largest == 0.0f) return false;
  block->d = f32_to_f16(largest / -128.0f);
  const float d = f16_to_f32(block->d);
  for (int s = 0; s < 16; ++s) {
    const float sc = std::clamp(std::round(-128.0f * scale[s] / largest), -128.0f, 127.0f);
    block->sc[s] = static_cast<int8_t>(sc);
    // The stored scale is used from here on, so that its rounding does not add to that of the codes.
    const float step = d * block->sc[s];
    for (int l = 16 * s; l < 16 * s + 16; ++l) {
      const float code = step != 0.0f ? std::clamp(std::round(x[l] / step), -32.0f, 31.0f) : 0.0f;
      q[l] = static_cast<uint8_t>(code + 32.0f);
    }
  }
  return true;
}

void encode(const float* src, void* blocks, int64_t n) {
  auto* block = static_cast<BlockQ6_K*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    std::memset(block, 0, sizeof(BlockQ6_K));
    uint8_t q[256];
    if (!quantize(src + i, block, q)) continue;
    for (int e = 0; e < 256; ++e) {
      const int h = e / 128;
      const int g = e / 32 % 4;
      const int k = e % 32;
      uint8_t& low = block->ql[64 * h + 32 * (g & 1) + k];
      uint8_t& high = block->qh[32 * h + k];
      low = static_cast<uint8_t>(low | (q[e] & 15) << 4 * (g >> 1));
      high = static_cast<uint8_t>(high | (q[e] >> 4) << 2 * g);
    }
  }
}

}  // namespace

extern const Codec Q6_K_codec{decode, encode};

}  // namespace tandem
