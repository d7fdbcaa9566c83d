#include "formats/q3_k/q3_k.h"

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

// The scale of sub-block j, in [-32, 31].
int scale_of(const BlockQ3_K& block, int j) {
  const int low = (block.scales[j % 8] >> 4 * (j / 8)) & 15;
  const int high = (block.scales[8 + j % 4] >> 2 * (j / 4)) & 3;
  return (low | high << 4) - 32;
}

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockQ3_K*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int e = 0; e < 256; ++e) {
      const int h = e / 128;
      const int g = e / 32 % 4;
      const int k = e % 32;
      const int low = (block->qs[32 * h + k] >> 2 * g) & 3;
      const int high = (block->hmask[k] >> (4 * h + g)) & 1;
      const int scale = scale_of(*block, e / 16);
      dst[i + e] = (d * static_cast<float>(scale)) * static_cast<float>(low - (high ? 0 : 4));
    }
  }
}

}  // namespace

extern const Codec Q3_K_codec{decode, nullptr};

}  // namespace tandem
