#include "formats/iq2_xxs/iq2_xxs.h"

#include "base/grid.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

// The values of codes of two bits: 8, 25, 43.
TANDEM_INLINE IVec value_of(IVec codes) {
  codes &= 3;
  return 8 + (codes << 4) + codes + (codes >> 1);
}

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockIQ2_XXS* __restrict block = (const BlockIQ2_XXS*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int b = 0; b < 8; ++b) {
      const uint8_t* entries = block->qs + 8 * b;
      uint32_t signs_scale;
      memcpy(&signs_scale, entries + 4, 4);
      const float step = d * (0.5f + (float)(signs_scale >> 28)) * 0.25f;
      for (int l = 0; l < 4; l += 2) {
        const uint32_t codes[2] = {kIq2XxsGrid[entries[l]], kIq2XxsGrid[entries[l + 1]]};
        const uint32_t signs[2] = {even_signs(signs_scale >> 7 * l & 127),
                                   even_signs(signs_scale >> 7 * (l + 1) & 127)};
        store_signed(dst + i + 32 * b + 8 * l, step, codes, 2, signs, value_of);
      }
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(IQ2_XXS) = {to_f32, nullptr};

}  // namespace tandem::TANDEM_ISA
