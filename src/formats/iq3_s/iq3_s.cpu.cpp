#include "formats/iq3_s/iq3_s.h"

#include "base/grid.h"
#include "base/kernel.h"
#include "base/simd.h"

namespace tandem::TANDEM_ISA {

namespace {

// The values of codes of three bits: 1, 3, .. 15.
TANDEM_INLINE IVec value_of(IVec codes) { return ((codes & 7) << 1) + 1; }

// The codes of eight elements, four bits each, from two entries; their ninth bits are the lowest of `high`.
TANDEM_INLINE uint32_t group_of(const uint8_t* entries, int high) {
  return kIq3SGrid[entries[0] | (high & 1) << 8] | (uint32_t)kIq3SGrid[entries[1] | (high & 2) << 7] << 16;
}

void to_f32(const void* blocks, float* __restrict dst, int64_t n) {
  const BlockIQ3_S* __restrict block = (const BlockIQ3_S*)blocks;
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int g = 0; g < 32; g += 2) {
      const float step = d * (float)(2 * (block->scales[g / 8] >> (g & 4) & 15) + 1);
      const int high = block->qh[g / 4] >> 2 * (g % 4);  // of four entries
      const uint8_t* entries = block->qs + 2 * g;
      const uint32_t codes[2] = {group_of(entries, high), group_of(entries + 2, high >> 2)};
      const uint32_t signs[2] = {block->signs[g], block->signs[g + 1]};
      store_signed(dst + i + 8 * g, step, codes, 4, signs, value_of);
    }
  }
}

}  // namespace

TANDEM_FORMAT_KERNELS(IQ3_S) = {to_f32, nullptr};

}  // namespace tandem::TANDEM_ISA
