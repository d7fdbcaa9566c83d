#include "formats/iq4_xs/iq4_xs.h"

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockIQ4_XS*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int b = 0; b < 8; ++b) {
      const int low = (block->scales_l[b / 2] >> 4 * (b % 2)) & 15;
      const int high = (block->scales_h >> 2 * b) & 3;
      const float step = d * static_cast<float>((low | high << 4) - 32);
      for (int j = 0; j < 16; ++j) {
        const int packed = block->qs[16 * b + j];
        dst[i + 32 * b + j] = step * static_cast<float>(kIq4XsValues[packed & 15]);
        dst[i + 32 * b + 16 + j] = step * static_cast<float>(kIq4XsValues[packed >> 4]);
      }
    }
  }
}

}  // namespace

extern const Codec IQ4_XS_codec{decode, nullptr};

}  // namespace tandem
