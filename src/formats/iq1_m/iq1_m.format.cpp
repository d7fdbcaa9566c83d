#include "formats/iq1_m/iq1_m.h"

#include "base/half.h"
#include "formats/codebooks.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockIQ1_M*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const uint16_t* words = block->scales;
    const float d = f16_to_f32(static_cast<uint16_t>(words[0] >> 12 | (words[1] >> 12) << 4 |
                                                     (words[2] >> 12) << 8 | (words[3] >> 12) << 12));
    for (int g = 0; g < 32; ++g) {
      const int h = g / 2;  // of 16 halves of sub-blocks
      const float step = d * static_cast<float>(2 * ((words[h / 4] >> 3 * (h % 4)) & 7) + 1);
      const int high = (block->qh[h] >> 4 * (g % 2)) & 15;
      const float delta = high & 8 ? -0.125f : 0.125f;
      const uint16_t entry = kIq1Grid[block->qs[g] | (high & 7) << 8];
      for (int j = 0; j < 8; ++j) {
        dst[i + 8 * g + j] = step * (static_cast<float>(iq1_element(entry, j)) + delta);
      }
    }
  }
}

}  // namespace

extern const Codec IQ1_M_codec{decode, nullptr};

}  // namespace tandem
