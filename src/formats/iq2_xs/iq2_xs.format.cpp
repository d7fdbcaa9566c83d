#include "formats/iq2_xs/iq2_xs.h"

#include "base/half.h"
#include "formats/codebooks.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockIQ2_XS*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int g = 0; g < 32; ++g) {
      const int scale = (block->scales[g / 4] >> 4 * (g / 2 % 2)) & 15;
      const float step = d * (0.5f + static_cast<float>(scale)) * 0.25f;
      const uint16_t entry = kIq2XsGrid[block->qs[g] & 511];
      const uint32_t signs = even_signs(block->qs[g] >> 9);
      for (int j = 0; j < 8; ++j) {
        dst[i + 8 * g + j] = with_sign(step * static_cast<float>(iq2_element(entry, j)), signs, j);
      }
    }
  }
}

}  // namespace

extern const Codec IQ2_XS_codec{decode, nullptr};

}  // namespace tandem
