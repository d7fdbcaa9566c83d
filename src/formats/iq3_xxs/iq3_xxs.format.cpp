#include "formats/iq3_xxs/iq3_xxs.h"

#include <cstring>

#include "base/half.h"
#include "formats/codebooks.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockIQ3_XXS*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int b = 0; b < 8; ++b) {
      uint32_t signs_scale;
      std::memcpy(&signs_scale, block->scales_signs[b], 4);
      const float step = d * (0.5f + static_cast<float>(signs_scale >> 28)) * 0.5f;
      for (int l = 0; l < 4; ++l) {
        const uint32_t signs = even_signs((signs_scale >> 7 * l) & 127);
        for (int j = 0; j < 8; ++j) {
          const uint16_t entry = kIq3XxsGrid[block->qs[8 * b + 2 * l + j / 4]];
          dst[i + 32 * b + 8 * l + j] =
              with_sign(step * static_cast<float>(iq3_xxs_element(entry, j % 4)), signs, j);
        }
      }
    }
  }
}

}  // namespace

extern const Codec IQ3_XXS_codec{decode, nullptr};

}  // namespace tandem
