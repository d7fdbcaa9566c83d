#include "formats/iq2_xs/iq2_xs.h"

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
  const BlockIQ2_XS* __restrict block = (const BlockIQ2_XS*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int g = 0; g < 32; g += 2) {
      const float step = d * (0.5f + (float)(block->scales[g / 4] >> 2 * (g % 4) & 15)) * 0.25f;
      const uint32_t first = block->qs[g], second = block->qs[g + 1];
      const uint32_t codes[2] = {kIq2XsGrid[first & 511], kIq2XsGrid[second & 511]};
      const uint32_t signs[2] = {even_signs(first >> 9), even_signs(second >> 9)};
      store_signed(dst + i + 8 * g, step, codes, 2, signs, value_of);
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(IQ2_XS) = {to_f32, nullptr};

}  // namespace tandem::TANDEM_ISA
