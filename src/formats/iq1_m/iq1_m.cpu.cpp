#include "formats/iq1_m/iq1_m.h"

#include "base/grid.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockIQ1_M* __restrict block = (const BlockIQ1_M*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const uint16_t* words = block->scales;
    const float d = f16_to_f32(
        (uint16_t)(words[0] >> 12 | (words[1] >> 8 & 0xf0) | (words[2] >> 4 & 0xf00) | (words[3] & 0xf000)));
    for (int h = 0; h < 16; ++h) {
      const float step = d * (float)(2 * (words[h / 4] >> 3 * (h % 4) & 7) + 1);
      const int high = block->qh[h];
      const uint32_t codes[2] = {kIq1Grid[block->qs[2 * h] | (high & 7) << 8],
                                 kIq1Grid[block->qs[2 * h + 1] | (high & 0x70) << 4]};
      const bool lowered[2] = {(high & 0x08) != 0, (high & 0x80) != 0};
      store_shifted(dst + i + 16 * h, step, codes, lowered);
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(IQ1_M) = {to_f32, nullptr};

}  // namespace tandem::TANDEM_ISA
