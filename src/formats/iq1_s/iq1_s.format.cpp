#include "formats/iq1_s/iq1_s.h"

#include "base/half.h"
#include "formats/codebooks.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockIQ1_S*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int b = 0; b < 8; ++b) {
      const int high = block->qh[b];
      const float step = d * static_cast<float>(2 * ((high >> 12) & 7) + 1);
      const float delta = high >> 15 ? -0.125f : 0.125f;
      for (int l = 0; l < 4; ++l) {
        const uint16_t entry = kIq1Grid[block->qs[4 * b + l] | ((high >> 3 * l) & 7) << 8];
        for (int j = 0; j < 8; ++j) {
          dst[i + 32 * b + 8 * l + j] = step * (static_cast<float>(iq1_element(entry, j)) + delta);
        }
      }
    }
  }
}

}  // namespace

extern const Codec IQ1_S_codec{decode, nullptr};

}  // namespace tandem
