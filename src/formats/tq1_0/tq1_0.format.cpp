#include "formats/tq1_0/tq1_0.h"

#include "base/half.h"
#include "formats/dtype.h"

namespace tandem {

namespace {

// Digit n of five, in {0, 1, 2}: a byte is a fraction of 256 in base 3, rounded up.
int digit(uint8_t b, int n) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  return (((b * kPowers[n]) & 255) * 3) >> 8;
}

void decode(const void* blocks, float* dst, int64_t n) {
  const auto* block = static_cast<const BlockTQ1_0*>(blocks);
  for (int64_t i = 0; i < n; i += 256, ++block) {
    const float d = f16_to_f32(block->d);
    for (int e = 0; e < 256; ++e) {
      const int t = e < 160   ? digit(block->qs[e % 32], e / 32)
                    : e < 240 ? digit(block->qs[32 + e % 16], (e - 160) / 16)
                              : digit(block->qh[e % 4], (e - 240) / 4);
      dst[i + e] = d * static_cast<float>(t - 1);
    }
  }
}

}  // namespace

extern const Codec TQ1_0_codec{decode, nullptr};

}  // namespace tandem
