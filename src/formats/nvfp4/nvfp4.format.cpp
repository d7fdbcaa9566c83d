#include "formats/nvfp4/nvfp4.h"

#include <cmath>

#include "formats/dtype.h"

namespace tandem {

namespace {

// The value of a UE4M3 scale.  Source: quantization.md 2.
float ue4m3(uint8_t u) {
  const int exponent = (u >> 3) & 15;
  const auto mantissa = static_cast<float>(u & 7);
  if ((u & 127) == 127) return 0.0f;  // the code of NaN, read as ggml does
  if (exponent == 0) return mantissa * 0x1p-9f;
  return std::ldexp(1.0f + mantissa / 8.0f, exponent - 7);
}

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockNVFP4*>(blocks);
  for (int64_t i = 0; i < n; i += 64, ++block) {
    for (int e = 0; e < 64; ++e) {
      const int g = e / 16;
      const int q = (block->qs[8 * g + e % 8] >> 4 * (e / 8 % 2)) & 15;
      dst[i + e] = 0.5f * ue4m3(block->scales[g]) * static_cast<float>(kNvfp4Values[q]);
    }
  }
}

}  // namespace

extern const Codec NVFP4_codec{decode, nullptr};

}  // namespace tandem
