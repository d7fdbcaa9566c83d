#include "formats/iq2_s/iq2_s.h"

#include "base/half.h"
#include "formats/codebooks.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockIQ2_S*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int g = 0; g < 32; ++g) {
      const int scale = (block->scales[g / 4] >> 4 * (g / 2 % 2)) & 15;
      const float step = d * (0.5f + static_cast<float>(scale)) * 0.25f;
      const int high = (block->qh[g / 4] >> 2 * (g % 4)) & 3;
      const uint16_t entry = kIq2SGrid[block->qs[g] | high << 8];
      for (int j = 0; j < 8; ++j) {
        dst[i + 8 * g + j] = with_sign(step * static_cast<float>(iq2_element(entry, j)), block->signs[g], j);
      }
    }
  }
}

}  // namespace

extern const Codec IQ2_S_codec{decode, nullptr};

}  // namespace tandem
