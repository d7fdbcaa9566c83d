#include "formats/iq3_xxs/iq3_xxs.h"

#include "base/grid.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

// The values of codes of three bits: 4, 12, 20, 28, 36, 44, 52, 62.
TANDEM_INLINE IVec value_of(IVec codes) {
  codes &= 7;
  return 4 + (codes << 3) + ((codes + 1) >> 3 << 1);
}

// The codes of eight elements, four bits each, from two entries.
TANDEM_INLINE uint32_t group_of(const uint8_t* entries) {
  return kIq3XxsGrid[entries[0]] | (uint32_t)kIq3XxsGrid[entries[1]] << 16;
}

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockIQ3_XXS* __restrict block = (const BlockIQ3_XXS*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int b = 0; b < 8; ++b) {
      uint32_t signs_scale;
      memcpy(&signs_scale, block->scales_signs[b], 4);
      const float step = d * (0.5f + (float)(signs_scale >> 28)) * 0.5f;
      for (int l = 0; l < 4; l += 2) {
        const uint8_t* entries = block->qs + 8 * b + 2 * l;
        const uint32_t codes[2] = {group_of(entries), group_of(entries + 2)};
        const uint32_t signs[2] = {even_signs(signs_scale >> 7 * l & 127),
                                   even_signs(signs_scale >> 7 * (l + 1) & 127)};
        store_signed(dst + i + 32 * b + 8 * l, step, codes, 4, signs, value_of);
      }
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(IQ3_XXS) = {to_f32, nullptr};

}  // namespace tandem::TANDEM_ISA
