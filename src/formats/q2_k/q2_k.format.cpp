#include "formats/q2_k/q2_k.h"

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockQ2_K*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    const float dmin = f16_to_f32(block->dmin);
    for (int e = 0; e < 256; ++e) {
      const int g = e / 32 % 4;
      const int q = (block->qs[32 * (e / 128) + e % 32] >> 2 * g) & 3;
      const int scale = block->scales[e / 16];
      dst[i + e] = (d * static_cast<float>(scale & 15)) * static_cast<float>(q) -
                   dmin * static_cast<float>(scale >> 4);
    }
  }
}

}  // namespace

extern const Codec Q2_K_codec{decode, nullptr};

}  // namespace tandem
