#include "formats/iq1_s/iq1_s.h"

#include "base/grid.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockIQ1_S* __restrict block = (const BlockIQ1_S*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int g = 0; g < 32; g += 2) {
      const int high = block->qh[g / 4];
      const float step = d * (float)(2 * (high >> 12 & 7) + 1);
      const int entries = high >> 3 * (g % 4);  // high bits of both
      const uint32_t codes[2] = {kIq1Grid[block->qs[g] | (entries & 7) << 8],
                                 kIq1Grid[block->qs[g + 1] | (entries & 56) << 5]};
      const bool lowered[2] = {(high & 0x8000) != 0, (high & 0x8000) != 0};
      store_shifted(dst + i + 8 * g, step, codes, lowered);
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(IQ1_S) = {to_f32, nullptr};

}  // namespace tandem::TANDEM_ISA
