#include "formats/iq3_s/iq3_s.h"

#include "base/half.h"
#include "formats/codebooks.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockIQ3_S*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int b = 0; b < 8; ++b) {
      const int scale = (block->scales[b / 2] >> 4 * (b % 2)) & 15;
      const float step = d * static_cast<float>(2 * scale + 1);
      for (int k = 0; k < 32; ++k) {
        const int high = (block->qh[b] >> k / 4) & 1;
        const uint16_t entry = kIq3SGrid[block->qs[8 * b + k / 4] | high << 8];
        dst[i + 32 * b + k] = with_sign(step * static_cast<float>(iq3_s_element(entry, k % 4)),
                                        block->signs[4 * b + k / 8], k % 8);
      }
    }
  }
}

}  // namespace

extern const Codec IQ3_S_codec{decode, nullptr};

}  // namespace tandem
